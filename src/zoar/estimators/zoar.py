"""ZoAR: averaged baseline and query reuse.

Qiu, Xie, Yan, Yang, Shu: "Zeroth-Order Optimization is Secretly Single-Step Policy Optimization" (Algorithm 1).
With H_t the last N batches of K queries,

    b_t = 1/|H_t| sum y                                 (Eq. baseline-avg)
    g_t = 1/(|H_t| - 1) sum (y - b_t)/mu u              (Eq. grad-avg)

With the default baseline and directions this is the paper's algorithm to the letter. Departures: with |H_t| = 1 (the
first step of a K=1 run) there is no estimate and no move, where the paper divides by zero; each batch is divided
by the radius it was asked at, which is the same thing while the radius is constant; sphere and coordinate
directions are scaled by d unless `scale="paper"`. Other baselines are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zoar.baselines import Baseline, WindowMean
from zoar.estimators.base import Estimator


@dataclass(frozen=True)
class ZoAR(Estimator):
    """Values less the mean of a window, whose queries are all used again. The one to begin with."""

    baseline: Baseline = field(default_factory=WindowMean)
    name = "zoar"
    default_window = 6
