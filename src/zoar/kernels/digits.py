"""Coefficients as whole numbers in two or three signed bytes: what `dp4a` multiplies by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: The largest number that three signed bytes hold on either side of zero.
LARGEST = 127 * (1 + 256 + 65536)


def whole_numbers(coefficients: Sequence[float], digits: int = 3) -> tuple[Array, float]:
    """Whole numbers and the unit they count; the largest coefficient has all the bits there are."""
    values = np.asarray(coefficients, float)
    largest = float(np.abs(values).max(initial=0.0))
    unit = largest / (127 * sum(256**digit for digit in range(digits))) if largest else 1.0
    return np.rint(values / unit).astype(np.int64), unit


def digits_of(whole: Array, stride: int, digits: int) -> Array:
    """(digits, stride) words: of four numbers the lowest bytes, then the next."""
    rest = np.zeros(4 * stride, np.int64)
    rest[: len(whole)] = whole
    rows = []
    for _ in range(digits):
        byte = (rest + 128) % 256 - 128
        rest = (rest - byte) >> 8
        rows.append(byte.astype(np.int8).view(np.int32))
    return np.stack(rows)
