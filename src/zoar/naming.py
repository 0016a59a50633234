"""One way to say that a name is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def choose(what: str, given: object, allowed: Iterable[str]) -> str:
    """`given` if it is one of `allowed`, else an error that names the valid ones and the nearest.

    >>> choose("method", "zoat", ["zoar", "zohs"])
    Traceback (most recent call last):
    ValueError: method must be one of 'zoar', 'zohs'; got 'zoat'. Did you mean 'zoar'?
    """
    names = list(allowed)
    if not isinstance(given, str):
        raise TypeError(
            f"{what} must be a name ({_listed(names)}) or an object of that kind; got {given!r} ({type(given).__name__})"
        )
    if given in names:
        return given
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what} must be one of {_listed(names)}; got {given!r}.{hint}")


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
