"""Coefficients as whole numbers of 24 bits, in three signed bytes: what `dp4a` multiplies by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: The largest number that three signed bytes hold on either side of zero.
LARGEST = 127 * (1 + 256 + 65536)


def whole_numbers(coefficients: Sequence[float]) -> tuple[Array, float]:
    """Whole numbers and the unit they count; the largest coefficient has all 24 bits."""
    values = np.asarray(coefficients, float)
    largest = float(np.abs(values).max(initial=0.0))
    unit = largest / LARGEST if largest else 1.0
    return np.rint(values / unit).astype(np.int64), unit


def digits_of(whole: Array, stride: int) -> Array:
    """(3, stride) words: of four numbers the lowest bytes, then the middle ones, then the highest."""
    rest = np.zeros(4 * stride, np.int64)
    rest[: len(whole)] = whole
    rows = []
    for _ in range(3):
        byte = (rest + 128) % 256 - 128
        rest = (rest - byte) >> 8
        rows.append(byte.astype(np.int8).view(np.int32))
    return np.stack(rows)
