"""Vanilla zeroth-order optimization: forward differences from the center.

Nesterov and Spokoiny, "Random gradient-free minimization of convex functions", 2017; the paper's Eq. fd:

    g = 1/K sum_k (f(theta + mu u_k) - f(theta))/mu u_k

Departure: sphere and coordinate directions are scaled by d unless `scale="paper"`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zoar.baselines import Baseline, Center
from zoar.estimators.base import Estimator


@dataclass(frozen=True)
class Vanilla(Estimator):
    """Forward differences of the newest batch. The usual yardstick."""

    baseline: Baseline = field(default_factory=Center)
    name = "vanilla"
    memoryless = True
