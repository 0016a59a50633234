"""What became of a query, and what a failed one means."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

ON_ERROR = ("raise", "drop")


@dataclass(frozen=True)
class QueryContext:
    """Which query an exception belongs to; attached to it as `zoar_query`."""

    step: int
    position: int
    queries: int
    evaluations: int

    def __str__(self) -> str:
        where = f"query {self.position + 1} of {self.queries} in step {self.step}"
        return f"zoar: raised by {where}, evaluation {self.evaluations} of the run"


class QueryFailed(RuntimeError):
    """A query that gave no value for a reason that is no exception of the function: a time-out, or a dead worker."""


class NonFiniteValue(ValueError):
    """A query that returned NaN or an infinity under on_error="raise"."""


class BadShape(Exception):
    """A vectorized function that did not return one number a point: a mistake, whatever on_error says."""


class _BadShapeValue(BadShape, ValueError):
    """Of a wrong shape."""


class _BadShapeType(BadShape, TypeError):
    """Of what are no numbers."""


def as_bad_shape(error: TypeError | ValueError) -> BadShape:
    """The same error, known for what it is."""
    return (_BadShapeType if isinstance(error, TypeError) else _BadShapeValue)(str(error))


def attach_context(error: BaseException, context: QueryContext) -> None:
    """Tells an exception, whose type stays what it is, where it happened."""
    error.add_note(str(context))
    error.zoar_query = context  # type: ignore[attr-defined]  # read back by whoever catches it


def as_value(value: Any, where: str) -> float:
    """One value as a float; arrays and tensors of one number count as numbers."""
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, (Tensor, np.ndarray)):
        if value.ndim and math.prod(value.shape) != 1:
            raise ValueError(f"{where} must be one number, got an array of shape {tuple(value.shape)}")
        item = value.item()
        if isinstance(item, numbers.Real):
            return float(item)
        value = item
    raise TypeError(f"{where} must be a number, got {value!r} ({type(value).__name__})")


def as_values(values: Any, count: int, what: str) -> np.ndarray:
    """`count` values as a float64 array."""
    if isinstance(values, Tensor):
        if not values.is_complex() and values.shape == (count,):
            return np.array(values.tolist(), np.float64)  # one call to torch: fewer than its conversions
        raise ValueError(
            f"{what} must have shape ({count},) and be real, got shape {tuple(values.shape)} of {values.dtype}"
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        if values.shape == (count,):
            return values.astype(np.float64, copy=False)
        raise ValueError(f"{what} must have shape ({count},), got shape {values.shape}")
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"{what} must be {count} numbers, got {values!r} ({type(values).__name__})")
    if len(values) != count:
        raise ValueError(f"{what} must be {count} numbers, got {len(values)}")
    return np.array(
        [as_value(value, f"{what}: the value at position {i}") for i, value in enumerate(values)], np.float64
    )
