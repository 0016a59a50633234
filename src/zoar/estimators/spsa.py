"""SPSA: two-sided differences, as MeZO uses them.

Spall, "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation", 1992, with any
symmetric direction; Malladi et al., "Fine-tuning language models with just forward passes", 2023 (n-SPSA):

    g = 1/K sum_k (f(theta + mu u_k) - f(theta - mu u_k)) / (2 mu) u_k

K counts directions: a step makes 2K evaluations. A pair with a failed half is lost whole. With a window the last
N estimates are averaged (not in either paper).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zoar.baselines import Baseline, Zero
from zoar.coefficients import Share
from zoar.directions import Directions
from zoar.estimators.base import Estimator
from zoar.history import QueryBatch


@dataclass(frozen=True)
class SPSA(Estimator):
    """Differences of pairs on both sides of theta, as MeZO takes them. For noise that a pair shares."""

    baseline: Baseline = field(default_factory=Zero)
    name = "spsa"
    two_sided = True

    def share(self, batch: QueryBatch, directions: Directions) -> Share | None:
        (above, has_above), (below, has_below) = batch.plus(), batch.minus()
        whole = has_above & has_below
        count = int(whole.sum())
        if count == 0:
            return None
        difference = np.where(whole, above - below, 0.0)
        return Share(0.5 * difference * self.slopes(batch, directions), count=count)
