"""What a method is: which queries it asks, and how their values become coefficients.

A method is a frozen `Estimator` (configuration) that starts a `Weigher` (state). Almost all share one weigher,
`WindowWeigher`: they only say what one batch contributes (`values`, then their baseline's `share`). ReLIZO has its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from zoar.baselines import Baseline, Values
from zoar.coefficients import Coefficients, Share
from zoar.directions import Directions
from zoar.history import QueryBatch, Window
from zoar.smoothing import Smoothing
from zoar.window_sum import WindowSum


class Weigher(ABC):
    """The state of a method in one run: places the queries, and turns the window into a gradient."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions

    def fresh(self, theta: Tensor, queries: int, lr: float) -> int:
        """How many new directions the next batch asks."""
        return queries

    def points(self, theta: Tensor, batch: QueryBatch) -> Tensor:
        """Every query of the batch as a point, in slot order."""
        rows, k = self.directions.rows(batch.step), batch.directions
        if batch.size == k:
            return torch.add(theta, rows, alpha=batch.radius)
        points = torch.empty(batch.size, theta.numel(), dtype=theta.dtype, device=theta.device)
        torch.add(theta, rows, alpha=batch.radius, out=points[:k])
        if batch.two_sided:
            torch.add(theta, rows, alpha=-batch.radius, out=points[k : 2 * k])
        if batch.centred:
            points[-1] = theta
        return points

    def point(self, theta: Tensor, batch: QueryBatch, slot: int) -> Tensor:
        """One query of the batch as a point."""
        if slot >= batch.directions * (2 if batch.two_sided else 1):
            return theta.clone()
        side = 1.0 if slot < batch.directions else -1.0
        return torch.add(theta, self.directions.rows(batch.step)[slot % batch.directions], alpha=side * batch.radius)

    @abstractmethod
    def gradient(self, window: Window, theta: Tensor) -> Tensor | None:
        """The estimate, or None when the window gives none yet."""

    def leave(self, batch: QueryBatch) -> None:
        """The batch is out of the window; its directions can still be had."""

    def moved(self, step: Tensor) -> None:
        """theta moved by `step`."""

    #: Whether `moved` wants to be told.
    follows_moves: ClassVar[bool] = False

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], window: Window) -> None:
        pass


@dataclass(frozen=True)
class Estimator(ABC):
    """A method: how values become coefficients.

    `scale="unbiased"` divides by the law's covariance factor, so that E[g] is the gradient of that law's smoothed
    function; `scale="paper"` leaves the estimate as Eq. fd has it.
    """

    name: ClassVar[str]
    default_window: ClassVar[int] = 1
    #: Methods that use only the newest batch.
    memoryless: ClassVar[bool] = False
    two_sided: ClassVar[bool] = False

    baseline: Baseline
    scale: str = "unbiased"

    @property
    def centred(self) -> bool:
        """Whether each batch asks theta itself too."""
        return self.baseline.needs_center

    def evaluations(self, queries: int) -> int:
        """Evaluations a step."""
        return queries * (2 if self.two_sided else 1) + self.centred

    def check(self, queries: int, shortest_window: float, law: Smoothing, dim: int, smallest_radius: float) -> None:
        """Raises a sentence about a combination that makes no sense."""
        if self.baseline.is_mean and queries == 1 and (shortest_window < 2 or self.baseline.name == "batch"):
            least = "queries >= 2" if self.baseline.name == "batch" else "queries >= 2 or window >= 2"
            raise ValueError(
                f"queries=1 leaves baseline {self.baseline.name!r} nothing to subtract: the mean of one value is the value itself. "
                f'Use {least}, or baseline="center"'
            )
        if not law.symmetric and self.baseline.name != "center" and self.scale != "paper" and not self.two_sided:
            raise ValueError(
                f"{law} draws u but never -u, so subtracting baseline {self.baseline.name!r} biases every component. "
                f'Use zoar.Coordinate() (signed), baseline="center", or scale="paper" for the paper\'s estimator as it stands'
            )

    def factor(self, law: Smoothing, dim: int) -> float:
        """What every coefficient is multiplied by."""
        return 1.0 if self.scale == "paper" else 1.0 / law.covariance_factor(dim)

    def start(self, directions: Directions, keep_sums: bool = False) -> Weigher:
        """The method's state for one run; `keep_sums` keeps each batch's sums over its directions."""
        return WindowWeigher(directions, self.share, self.coefficients, keep_sums)

    def slopes(self, batch: QueryBatch, directions: Directions) -> np.ndarray:
        """What multiplies (y - b), for each direction: 1/mu for a finite difference."""
        return np.full(batch.directions, self.factor(directions.law, directions.dim) / batch.radius)

    def share(self, batch: QueryBatch, directions: Directions) -> Share | None:
        """What a batch contributes; None when it has nothing to give."""
        y, slope, count = batch.values[: batch.directions], self.slopes(batch, directions), batch.directions
        if not batch.complete:
            y, present = batch.plus()
            count = int(present.sum())
            if count == 0:
                return None
            y, slope = np.where(present, y, 0.0), np.where(present, slope, 0.0)
        norms = directions.squared_norms(batch.step) if self.baseline.name == "optimal" else None
        return self.baseline.share(Values(y, slope, count, batch.center(), norms))

    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        """The window's estimate."""
        return self.baseline.coefficients(shares)


class WindowWeigher(Weigher):
    """Weighs batches by their shares and sums them over the window."""

    def __init__(
        self,
        directions: Directions,
        share: Callable[[QueryBatch, Directions], Share | None],
        coefficients: Callable[[dict[int, Share]], Coefficients | None],
        keep_sums: bool,
    ) -> None:
        super().__init__(directions)
        self._share, self._coefficients, self._sum = share, coefficients, WindowSum(directions, keep_sums)

    def coefficients(self, window: Window) -> Coefficients | None:
        """The estimate as coefficients over directions."""
        shares = self._shares(window)
        return self._coefficients(shares) if shares else None

    def gradient(self, window: Window, theta: Tensor) -> Tensor | None:
        coefficients = self.coefficients(window)
        return None if coefficients is None else self._sum.combine(coefficients)

    def leave(self, batch: QueryBatch) -> None:
        self._sum.remove(batch.step)

    def state_dict(self) -> dict[str, Any]:
        return self._sum.state_dict()

    def load_state_dict(self, state: dict[str, Any], window: Window) -> None:
        self._sum.load_state_dict(state)
        for batch in window:  # what is in the sums is known by identity
            known, now = self._sum.share(batch.step), self._share(batch, self.directions)
            batch.share = known if known is not None and now is not None and known.same_as(now) else now

    def _shares(self, window: Window) -> dict[int, Share]:
        shares = {}
        for batch in window:
            if batch.share is None and not batch.untouched:
                batch.share = self._share(batch, self.directions)
            if batch.share is not None:
                shares[batch.step] = batch.share
        return shares
