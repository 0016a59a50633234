"""One cell of a study, a method on a function from one start, and the curve it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from zoar.minimize import minimize
from zoar.problems import Problem, problem
from zoar.stopping import StopReason

Report = Callable[[int], None]


class Key(NamedTuple):
    """What tells one cell from another; the first columns of curves.csv."""

    study: str
    function: str
    update: str
    method: str
    seed: int

    def __str__(self) -> str:
        return f"{self.function}, {self.method}"


class Point(NamedTuple):
    """f(theta) after that many iterations and queries."""

    iteration: int
    queries: int
    value: float


@dataclass(frozen=True)
class Cell:
    """One run to make: `options` go to `zoar.minimize`; the value is recorded `every` so many iterations, and at both ends."""

    key: Key
    dim: int
    iterations: int
    every: int
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """A finished cell."""

    key: Key
    points: tuple[Point, ...]
    ms_per_iteration: float

    @property
    def final(self) -> float:
        """f at the last theta."""
        return self.points[-1].value

    def iterations_to(self, value: float) -> int | None:
        """The first recorded iteration at that value or below; None if there is none."""
        return next((point.iteration for point in self.points if point.value <= value), None)


def run_cell(cell: Cell, report: Report = lambda iteration: None) -> Curve:
    """Runs a cell. `report` hears of every recorded iteration; what it raises ends the run."""
    function = problem(cell.key.function)
    start = torch.from_numpy(function.start(cell.dim, cell.key.seed))
    recorder = _Recorder(function, cell, report)
    recorder.record(start, 0, 0)
    recorder.seconds = 0.0
    began = time.perf_counter()
    result = minimize(
        function, start, vectorized=True, max_iterations=cell.iterations, seed=cell.key.seed, callback=recorder, **cell.options
    )  # fmt: skip
    seconds = time.perf_counter() - began - recorder.seconds
    if result.status == StopReason.INTERRUPTED.status:
        raise KeyboardInterrupt  # minimize returns what it has; half a curve is of no use here
    return Curve(cell.key, tuple(recorder.points), 1e3 * seconds / max(result.nit, 1))


class _Recorder:
    """A callback that evaluates f(theta), outside the run's count of queries and, by `seconds`, outside its time."""

    def __init__(self, function: Problem, cell: Cell, report: Report) -> None:
        self._function, self._cell, self._report = function, cell, report
        self.points: list[Point] = []
        self.seconds = 0.0

    def __call__(self, *, intermediate_result: Any) -> None:
        iteration = intermediate_result.nit
        if iteration % self._cell.every == 0 or iteration == self._cell.iterations:
            self.record(intermediate_result.x, iteration, intermediate_result.nfev)

    def record(self, theta: torch.Tensor, iteration: int, queries: int) -> None:
        began = time.perf_counter()
        self.points.append(Point(iteration, queries, float(self._function(theta.double()))))
        self._report(iteration)
        self.seconds += time.perf_counter() - began
