"""The configuration of a run: checked once, then frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from zoar.baselines import Baseline
from zoar.bounds import Box, as_box
from zoar.checking import choose, whole_number
from zoar.directions import Directions, Replayed, Stored
from zoar.estimators import Estimator, as_estimator
from zoar.evaluation.outcomes import ON_ERROR
from zoar.schedules import Constant, Schedule, as_schedule
from zoar.smoothing import Smoothing, as_smoothing
from zoar.space import Space
from zoar.stopping import Budget
from zoar.storage import Storage, choose_storage
from zoar.updates import UpdateRule, as_update


@dataclass(frozen=True)
class Settings:
    """What a run does, as objects; the numbers of a step are read from here."""

    method: Estimator
    queries: int
    window: Schedule
    smoothing: Schedule
    lr: Schedule
    update: UpdateRule
    directions: Smoothing
    seed: int
    box: Box | None
    sense: str
    on_error: str
    storage: Storage
    stream: str | None
    horizon: int | None

    @classmethod
    def check(
        cls, space: Space, budget: Budget, *, method: str | Estimator, queries: int, window: int | Schedule | None,
        smoothing: float | Schedule, lr: float | Schedule, update: str | UpdateRule | type[torch.optim.Optimizer],
        directions: str | Smoothing, baseline: str | Baseline | None, scale: str | None, seed: int, bounds: Any, sense: str,
        on_error: str, storage: str, memory: int, stream: str | None,
    ) -> Settings:  # fmt: skip
        """Settings from what a user wrote, or a sentence about what is wrong with it."""
        estimator = as_estimator(method, baseline, scale)
        law = as_smoothing(directions)
        queries = whole_number("queries", queries, 1)
        lengths = _as_window(window, estimator)
        radii = as_schedule("smoothing", smoothing, least=0.0, strictly=True)
        estimator.check(queries, lengths.extremes()[0], law, space.dim, radii.extremes()[0])
        settings = cls(
            method=estimator, queries=queries, window=lengths, smoothing=radii, lr=as_schedule("lr", lr, least=0.0),
            update=as_update(update), directions=law, seed=whole_number("seed", seed, 0, 2**64 - 1), box=as_box(bounds, space),
            sense=choose("sense", sense, ("min", "max")), on_error=choose("on_error", on_error, ON_ERROR),
            storage=choose_storage(
                storage, memory, window=round(lengths.extremes()[1]), queries=queries,
                dim=space.dim, itemsize=space.work_dtype.itemsize,
                all_rows_every_step=estimator.baseline.name == "optimal" and not law.constant_norm,
            ),
            stream=stream, horizon=budget.horizon(estimator.evaluations(queries)),
        )  # fmt: skip
        for schedule in (settings.window, settings.smoothing, settings.lr):
            schedule.at(0, settings.horizon)  # a schedule without a length says so now
        return settings

    def window_length(self, step: int) -> int:
        """N at a step."""
        return max(1, round(self.window.at(step, self.horizon)))

    def radius(self, step: int) -> float:
        """mu at a step."""
        return self.smoothing.at(step, self.horizon)

    def rate(self, step: int) -> float:
        """lr at a step."""
        return self.lr.at(step, self.horizon)

    def make_directions(self, space: Space) -> Directions:
        """The directions of a run, kept or drawn again as the storage says."""
        stream = self.directions.stream(self.seed, space.device, self.stream)
        kind = Stored if self.storage.rows else Replayed
        return kind(self.directions, stream, space.dim, space.work_dtype, space.device)

    def identity(self, space: Space) -> dict[str, str]:
        """What must be the same for a saved state to mean the same here; rates and limits may change."""
        stream = self.directions.stream(self.seed, space.device, self.stream)
        return {
            "dimension": str(space.dim), "dtype": str(space.dtype), "seed": str(self.seed), "queries": str(self.queries),
            "method": repr(self.method), "directions": repr(self.directions), "stream": stream.name,
            "update": repr(self.update), "sense": self.sense,
        }  # fmt: skip


def _as_window(window: int | Schedule | None, method: Estimator) -> Schedule:
    if window is None:
        window = method.default_window
    lengths = as_schedule("window", window, least=1.0)
    if isinstance(lengths, Constant) and lengths.level != round(lengths.level):
        raise ValueError(f"window must be a whole number of batches, got {window}")
    if method.memoryless and lengths.extremes()[1] > 1:
        advice = "it keeps the previous step's samples by its own rule"
        if method.name == "vanilla":
            advice = "zohs averages vanilla estimates over a window, zoar reuses its queries"
        raise ValueError(f"method {method.name!r} takes window 1, got {window!r}: {advice}")
    return lengths
