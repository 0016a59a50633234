"""When a run ends, and the sentence that says why."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import Enum

from zoar.checking import real_number, whole_number


class StopReason(Enum):
    """How a run ended; the text is the result's `message`, the number its `status`."""

    TARGET = (0, "Reached the target value {target:g}.")
    ITERATIONS = (1, "Made all {max_iterations} iterations.")
    QUERIES = (2, "Used the budget of {max_queries} evaluations.")
    TIME = (3, "Used the {max_time:g} seconds allowed.")
    STAGNATION = (4, "The best value improved by less than {tol:g} in {patience} iterations.")
    FAILING = (5, "Every query of {failing_batches} batches in a row failed.")
    TOO_SMALL = (6, "The budget of {max_queries} evaluations is too small for one step.")
    INTERRUPTED = (98, "Interrupted: x is the best point seen so far.")
    CALLBACK = (99, "`callback` raised `StopIteration`.")

    @property
    def status(self) -> int:
        return int(self.value[0])

    def message(self, budget: Budget) -> str:
        """The sentence, with this run's numbers."""
        return str(self.value[1]).format(**budget.__dict__)


@dataclass(frozen=True)
class Budget:
    """The limits of a run; None is no limit. `target` is in the user's sense of better."""

    max_iterations: int | None = None
    max_queries: int | None = None
    max_time: float | None = None
    target: float | None = None
    patience: int | None = None
    tol: float = 0.0
    failing_batches: int = 10

    def __post_init__(self) -> None:
        for name, least in (("max_iterations", 0), ("max_queries", 1), ("patience", 1), ("failing_batches", 1)):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        for name in ("max_time", "target", "tol"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, real_number(name, getattr(self, name)))
        if self.max_time is not None and not self.max_time > 0:
            raise ValueError(f"max_time must be above 0 seconds, got {self.max_time!r}")
        if self.target is not None and math.isnan(self.target):
            raise ValueError("target must be a number, got NaN")
        if not self.tol >= 0:
            raise ValueError(f"tol must be at least 0, got {self.tol!r}")

    def horizon(self, evaluations_a_step: int) -> int | None:
        """The number of steps the limits allow, as far as they say."""
        limits = [
            limit
            for limit in (self.max_iterations, self.max_queries and self.max_queries // evaluations_a_step)
            if limit is not None
        ]
        return max(min(limits), 1) if limits else None


@dataclass
class Progress:
    """What stopping looks at, brought up to date by the optimizer. Values are to be minimised."""

    iterations: int = 0
    evaluations: int = 0
    dropped: int = 0
    best: float = math.inf
    failing: int = 0
    improved_at: int = 0
    improved_from: float = math.inf

    def iterated(self, any_value: bool, tol: float) -> None:
        """A batch is over."""
        self.iterations += 1
        self.failing = 0 if any_value else self.failing + 1
        if self.best < self.improved_from - tol or not math.isfinite(self.improved_from):
            self.improved_from, self.improved_at = self.best, self.iterations


@dataclass
class Clock:
    """Seconds since it was made."""

    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started


def reason_to_stop(
    budget: Budget, progress: Progress, clock: Clock, next_batch: int, target: float | None
) -> StopReason | None:
    """The first limit that the run has met, if any; `target` in the sense of minimising."""
    if target is not None and progress.best <= target:
        return StopReason.TARGET
    if progress.failing >= budget.failing_batches:
        return StopReason.FAILING
    if budget.max_iterations is not None and progress.iterations >= budget.max_iterations:
        return StopReason.ITERATIONS
    if budget.max_queries is not None and progress.evaluations + next_batch > budget.max_queries:
        return StopReason.QUERIES
    if budget.max_time is not None and clock.seconds() >= budget.max_time:
        return StopReason.TIME
    if budget.patience is not None and progress.iterations - progress.improved_at >= budget.patience:
        return StopReason.STAGNATION
    return None
