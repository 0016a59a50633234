"""REINFORCE with baseline: the single-step policy gradient that zeroth-order optimization secretly is.

Williams, "Simple statistical gradient-following algorithms", 1992; the paper's Eqs. reinforce-grad-refined and
reinforce-grad-is. The policy is pi(x) = N(theta, mu^2 I), whose score is grad log pi(x) = (x - theta)/mu^2:

    g = 1/K sum_k  w_k (x_k - theta)/mu^2 (f(x_k) - b),        w_k = pi(x_k)/p(x_k)

where p is the law the actions were drawn from: w = 1 for Gaussian directions, Theorem 3's gamma for the others, which
leaves the range of floating-point numbers beyond a few dozen dimensions (`zoar.theory.translate_lr` carries a rate
over in logs). Baselines: zero, center, batch, or the window's mean; a window reuses actions with the score they
had under the policy that took them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from zoar.baselines import Baseline, Center
from zoar.directions import Directions
from zoar.estimators.base import Estimator
from zoar.history import QueryBatch
from zoar.smoothing import Smoothing

# float32 holds numbers between e**-87 and e**88, and a weight is multiplied by values and by 1/mu.
_LARGEST_LOG = 70.0


@dataclass(frozen=True)
class Reinforce(Estimator):
    """The score-function estimator with importance weights: vanilla, seen as a policy gradient."""

    baseline: Baseline = field(default_factory=Center)
    name = "reinforce"

    def check(self, queries: int, shortest_window: float, law: Smoothing, dim: int, smallest_radius: float) -> None:
        super().check(queries, shortest_window, law, dim, smallest_radius)
        if not law.constant_norm:
            return  # Gaussian: the weight is 1
        u = torch.full((1, dim), math.sqrt(law.squared_norm(dim) / dim))  # any u: they all have one norm
        log_weight = float(law.log_importance_weight(u, smallest_radius))
        if abs(log_weight) > _LARGEST_LOG:
            raise ValueError(
                f"the importance weight of {law.name} directions at d={dim}, smoothing={smallest_radius:g} is "
                f"e**{log_weight:.0f}, outside floating point (Theorem 3). "
                'Use directions="gaussian", whose weight is 1, or method="vanilla"'
            )

    def slopes(self, batch: QueryBatch, directions: Directions) -> np.ndarray:
        """weight * score, as a factor of u: the action is x = theta + displacement * u."""
        law = directions.law
        displacement = batch.radius
        score = displacement / batch.radius**2
        if not law.constant_norm:
            return np.full(batch.directions, score)
        weights: np.ndarray = law.log_importance_weight(directions.rows(batch.step), batch.radius).exp().cpu().numpy()
        return weights * score
