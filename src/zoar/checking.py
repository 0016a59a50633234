"""One way to say that a name is unknown, or a number none."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable
from typing import Any


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


def whole_number(name: str, given: Any, least: int, most: int | None = None) -> int:
    """`given` as an int of at least `least`; numpy's whole numbers count, True and 2.0 do not.

    >>> whole_number("queries", 0, least=1)
    Traceback (most recent call last):
    ValueError: queries must be at least 1, got 0
    """
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {given!r} ({type(given).__name__})")
    number = int(given)
    if number < least or (most is not None and number > most):
        limit = f"at least {least}" if most is None else f"at least {least} and at most {most}"
        raise ValueError(f"{name} must be {limit}, got {number}")
    return number


def real_number(name: str, given: Any) -> float:
    """`given` as a float; numpy's numbers count, True does not."""
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(f"{name} must be a number, got {given!r} ({type(given).__name__})")
    return float(given)


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)
