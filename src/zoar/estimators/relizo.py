"""ReLIZO: linear interpolation with reused samples.

Wang et al., "ReLIZO: Sample reusable linear interpolation-based zeroth-order optimization", NeurIPS 2024. At theta, with
f(theta) known, the candidates for reuse are the previous step's samples and its center, displaced by the last move. Those
nearer than `bound` (2 lr in the paper's comparison) are reused, nearest first, at most `reuse` of K; the others are
drawn anew at a distance of about mu sqrt(d). With D the unit displacements as rows and s_i = (f(x_i) - f(theta))/|x_i - theta|,

    (D D^T) c = s,   g = D^T c

solved by least squares: the shortest gradient that explains every difference. As everywhere here the estimate is
coefficients over directions; the rows are displacements, which move with theta, so this method stores them (K + 1
vectors) and has no window beyond the previous step.

Departure: with `orthogonal=True` the new directions are made orthogonal to the reused ones and to each other by QR and
set to the length mu sqrt(d); otherwise they keep the length their law gave them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.baselines import Baseline, Center
from zoar.checking import real_number
from zoar.directions import Directions
from zoar.estimators.base import Estimator, Weigher
from zoar.history import QueryBatch, Window
from zoar.smoothing import Smoothing


@dataclass(frozen=True)
class ReLIZO(Estimator):
    """Least squares over new samples and reused near ones. For short steps and little noise."""

    baseline: Baseline = field(default_factory=Center)
    bound: float | None = None
    reuse: float = 0.5
    orthogonal: bool = False
    name = "relizo"
    memoryless = True

    def __post_init__(self) -> None:
        if self.bound is not None and not (real_number("bound", self.bound) >= 0 and math.isfinite(self.bound)):
            raise ValueError(f"bound must be a finite distance of at least 0, got {self.bound!r}")
        if not 0 <= real_number("reuse", self.reuse) < 1:
            raise ValueError(f"reuse must be a share of the queries, at least 0 and below 1; got {self.reuse!r}")

    def check(self, queries: int, shortest_window: float, law: Smoothing, dim: int, smallest_radius: float) -> None:
        super().check(queries, shortest_window, law, dim, smallest_radius)
        if self.orthogonal and queries > dim:
            raise ValueError(f"orthogonal=True needs queries <= dimension, got queries={queries} and {dim} dimensions")

    def start(self, directions: Directions, keep_sums: bool = False) -> Weigher:
        return _Interpolation(directions, self)


class _Interpolation(Weigher):
    """The samples of the last step, as displacements from the current theta."""

    follows_moves = True

    def __init__(self, directions: Directions, method: ReLIZO) -> None:
        super().__init__(directions)
        self._method = method
        self._displacements = torch.zeros(0, directions.dim, dtype=directions.dtype, device=directions.device)
        self._values = np.empty(0)
        self._placed: tuple[int, Tensor] | None = None

    def fresh(self, theta: Tensor, queries: int, lr: float) -> int:
        """Chooses what is reused; the rest are new."""
        bound = 2 * lr if self._method.bound is None else self._method.bound
        distances = torch.linalg.vector_norm(self._displacements, dim=-1).cpu().numpy()
        nearest = np.argsort(distances, kind="stable")[: int(self._method.reuse * queries)]
        # A sample at theta itself says nothing of the slope there.
        kept = [int(i) for i in nearest if 0 < distances[i] <= bound]
        self._displacements, self._values, self._placed = self._displacements[kept], self._values[kept], None
        return queries - len(kept)

    def displacements(self, batch: QueryBatch) -> Tensor:
        """x_j - theta of the new samples, (directions, dim)."""
        if self._placed is None or self._placed[0] != batch.step:
            self._placed = (batch.step, self._place(batch))
        return self._placed[1]

    def points(self, theta: Tensor, batch: QueryBatch) -> Tensor:
        return torch.cat([theta + self.displacements(batch), theta[None]])

    def point(self, theta: Tensor, batch: QueryBatch, slot: int) -> Tensor:
        return theta.clone() if slot == batch.directions else theta + self.displacements(batch)[slot]

    def _place(self, batch: QueryBatch) -> Tensor:
        rows = self.directions.rows(batch.step)
        if not self._method.orthogonal:
            return rows * batch.radius
        reused = len(self._displacements)
        basis = torch.linalg.qr(torch.cat([self._displacements, rows]).T.double()).Q[:, reused:].T
        placed: Tensor = (basis * (batch.radius * math.sqrt(self.directions.dim))).to(rows.dtype)
        return placed

    def gradient(self, window: Window, theta: Tensor) -> Tensor | None:
        batch = window.newest
        center = batch.center()
        values, present = batch.plus()
        if center is None or not (present.any() or len(self._values)):
            return None
        mask = torch.from_numpy(present.copy()).to(theta.device)
        samples = torch.cat([self._displacements, self.displacements(batch)[mask]])
        known = np.concatenate([self._values, values[present]])
        lengths = torch.linalg.vector_norm(samples, dim=-1, keepdim=True)
        unit = samples / lengths
        slopes = torch.from_numpy(known - center).to(unit) / lengths[:, 0]
        # gelsd's cut of small singular values, on the Gram matrix: samples may be nearly parallel.
        gram, right = (unit @ unit.T).double().cpu(), slopes.double().cpu()[:, None]
        coefficients: Tensor = torch.linalg.lstsq(gram, right, driver="gelsd").solution[:, 0]
        self._displacements = torch.cat([samples, torch.zeros_like(theta)[None]])
        self._values = np.append(known, center)
        gradient: Tensor = coefficients.to(unit) @ unit
        return gradient

    def moved(self, step: Tensor) -> None:
        self._displacements = self._displacements - step

    def state_dict(self) -> dict[str, Any]:
        return {"displacements": self._displacements.clone(), "values": self._values.tolist()}

    def load_state_dict(self, state: dict[str, Any], window: Window) -> None:
        self._displacements = state["displacements"].clone()
        self._values = np.array(state["values"], float)
        self._placed = None
