from zoar.checking import choose as choose
