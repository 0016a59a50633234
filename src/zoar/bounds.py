"""Bounds, kept by projection: no query and no iterate is ever outside.

Projecting the queries too means that the run minimises f(project(x)), whose smoothed gradient the estimate still is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.space import Space


@dataclass(frozen=True)
class Box:
    """lower <= x <= upper, as flat tensors."""

    lower: Tensor
    upper: Tensor

    def project_(self, points: Tensor) -> Tensor:
        """The nearest points inside, in place."""
        return torch.clamp(points, self.lower, self.upper, out=points)


def as_box(bounds: Any, space: Space) -> Box | None:
    """A box from scipy's Bounds, a pair (lower, upper), or one (low, high) pair for each number of x; None is no bound."""
    if bounds is None:
        return None
    if isinstance(bounds, Box):
        return bounds
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        lower, upper = bounds.lb, bounds.ub
    else:
        lower, upper = _pairs(bounds, space)
    try:
        low, high = (
            space.inward(np.asarray(side, float) if not isinstance(side, Tensor) else side) for side in (lower, upper)
        )
    except (RuntimeError, TypeError, ValueError):
        shapes = " and ".join(str(np.shape(side)) for side in (lower, upper))
        raise ValueError(
            f"bounds must be numbers or have the shape of x0, {space.shape}; got shapes {shapes}"
        ) from None
    if bool((torch.isnan(low) | torch.isnan(high)).any()):
        raise ValueError("bounds must not be NaN; use None, or -inf and inf, for an open side")
    crossed = torch.nonzero(low > high)
    if len(crossed):
        i = int(crossed[0])
        raise ValueError(
            f"bounds are inverted at position {i}: lower {float(low[i]):g} is above upper {float(high[i]):g}"
        )
    return Box(low, high)


def _pairs(bounds: Any, space: Space) -> tuple[Any, Any]:
    """A pair of sides from a (low, high) for each number, where None is open, or from (lower, upper).

    With two numbers, ((a, b), (c, d)) could be either. It is read as scipy reads it, a (low, high) for each number, and so are the
    rows of a (d, 2) array; a pair of arrays or tensors is (lower, upper).
    """
    if isinstance(bounds, (np.ndarray, Tensor)):
        if tuple(bounds.shape) == (space.dim, 2):
            return bounds[:, 0].reshape(space.shape), bounds[:, 1].reshape(space.shape)
        bounds = tuple(bounds)
    try:
        items = list(bounds)
    except TypeError:
        raise TypeError(
            f"bounds must be scipy Bounds, (lower, upper), or a (low, high) for each number; got {bounds!r}"
        ) from None
    per_number = len(items) == space.dim and all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items)
    if per_number:
        lower = [-np.inf if low is None else low for low, _ in items]
        upper = [np.inf if high is None else high for _, high in items]
        return np.reshape(lower, space.shape), np.reshape(upper, space.shape)
    if len(items) != 2:
        raise ValueError(
            f"bounds must be scipy Bounds, (lower, upper), or {space.dim} pairs (low, high); got {len(items)} items"
        )
    return _side(items[0], -np.inf), _side(items[1], np.inf)


def _side(side: Any, open_end: float) -> Any:
    """One side, its None replaced."""
    if side is None:
        return open_end
    if isinstance(side, (list, tuple)):
        return [open_end if value is None else value for value in side]
    return side
