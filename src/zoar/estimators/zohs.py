"""ZoHS: vanilla estimates averaged over the last N steps.

The paper's Appx. "Baselines":   g_t = 1/N sum_n grad_hat F(theta_{t-n}),   grad_hat F as in Eq. fd.

Before N batches are there it averages those that are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from zoar.baselines import Baseline, Center
from zoar.coefficients import Coefficients, Share
from zoar.directions import Directions
from zoar.estimators.base import Estimator
from zoar.history import QueryBatch


@dataclass(frozen=True)
class ZoHS(Estimator):
    """The mean of the last N vanilla estimates."""

    baseline: Baseline = field(default_factory=Center)
    name = "zohs"
    default_window = 6

    def share(self, batch: QueryBatch, directions: Directions) -> Share | None:
        share = super().share(batch, directions)
        return None if share is None else replace(share, centred=share.centred / share.count)

    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        return Coefficients(shares, scale=1.0 / len(shares))
