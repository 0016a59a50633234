"""The setting to start from, chosen by measurement."""

from __future__ import annotations

import math
from typing import Any

from zoar.checking import real_number, whole_number
from zoar.schedules import Cosine, Geometric, Linear
from zoar.updates import AdaMM

_USUAL_RATE = 4e-3
_LARGEST_RATE = 0.1
#: How far noise alone may carry a variable: it walks at random, lr sqrt(steps) far.
_FARTHEST_BY_NOISE = 0.6


def recommended(
    *,
    dim: int | None = None,
    queries: int = 10,
    max_queries: int | None = None,
    lr: float | None = None,
    smoothing: tuple[float, float] = (0.6, 0.03),
    **more: Any,
) -> dict[str, Any]:
    """Options for `zoar.minimize` and `zoar.Optimizer`: our best setting so far.

    What it adds to the paper's method, each measured alone (`zoar study run ablation`): random signs as directions, with less
    variance than normal numbers; a window that shrinks to one batch, a rate that falls to zero and a radius that narrows, wide
    first to smooth ripples away; and an AdaMM whose second moment forgets within a hundred steps, without momentum (the window
    is one) and corrected for starting at zero. The baseline is the paper's.

    Rates and radii are in units of x: scale the problem so that a typical number in x changes by about 1, or scale both.

    Args:
        dim: the number of variables. With it and `max_queries` the first rate is 17 sqrt(1 + dim/(40 queries)) over the number
            of steps: so far a variable can travel, and farther in high dimensions, where most of every step is noise. It is at most
            0.6 over the root of the number of steps: in a short run in many dimensions noise would carry it away.
        queries: evaluations a step.
        max_queries: the budget.
        lr: the first rate, if not by that rule (without `dim` and `max_queries`: 4e-3); it falls to 0, as a squared cosine.
        smoothing: the first radius, and the last, which it has for the last fifth of the run.
        more: options to add or replace, such as `seed`.

    Example:
        >>> import numpy as np, zoar
        >>> options = zoar.recommended(dim=100, max_queries=20_000)
        >>> result = zoar.minimize(zoar.problem("quadratic"), np.ones(100), **options)
        >>> bool(result.fun < 1e-6)
        True
    """
    rate = _rate(dim, queries, max_queries) if lr is None else real_number("lr", lr)
    if not (rate > 0 and math.isfinite(rate)):
        raise ValueError(f"lr must be a finite number above 0, got {lr!r}")
    if not isinstance(smoothing, (tuple, list)) or len(smoothing) != 2:
        raise TypeError(f"smoothing must be two numbers, the first and the last radius; got {smoothing!r}")
    window = 8 if rate <= 0.03 else max(round(0.25 / rate), 2)  # while theta moves fast, old queries mislead
    options: dict[str, Any] = {
        "method": "zoar", "queries": queries, "window": Linear(window, 1), "baseline": "window", "directions": "rademacher",
        "update": AdaMM(betas=(0.0, 0.99), corrected=True), "lr": Cosine(rate, 0.0, power=2.0),
        "smoothing": Geometric(*smoothing, by=0.8),
    }  # fmt: skip
    if max_queries is not None:
        options["max_queries"] = max_queries
    return {**options, **more}


def _rate(dim: int | None, queries: int, max_queries: int | None) -> float:
    if dim is None or max_queries is None:
        return _USUAL_RATE
    dim, queries = whole_number("dim", dim, 1), whole_number("queries", queries, 1)
    steps = max(whole_number("max_queries", max_queries, 1) // queries, 1)
    far_enough = 17 * math.sqrt(1 + dim / (40 * queries)) / steps
    return min(far_enough, _FARTHEST_BY_NOISE / math.sqrt(steps), _LARGEST_RATE)
