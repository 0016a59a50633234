"""One cell of a study, a method on a function from one start, and the curve it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from zoar.minimize import minimize
from zoar.problems import Function, noisy, problem
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
    """One run to make: `options` go to `zoar.minimize`; the value is recorded `every` so many iterations, and at both ends.

    `problem` is the function's name where it is not the key's; `noise` is the standard deviation of what is added to every query,
    and to no recorded value.
    """

    key: Key
    dim: int
    iterations: int
    every: int
    options: Mapping[str, Any]
    problem: str = ""
    noise: float = 0.0

    def function(self) -> Function:
        """What is recorded, without noise."""
        return problem(self.problem or self.key.function)

    def start(self) -> torch.Tensor:
        """theta_0, the same for every method."""
        return torch.from_numpy(problem(self.problem or self.key.function).start(self.dim, self.key.seed))

    def recorded(self, iteration: int) -> bool:
        """Whether the value after that iteration is part of the curve."""
        return iteration % self.every == 0 or iteration == self.iterations


def without_holes(cell: Cell, curve: Curve) -> bool:
    """Whether every value of a run is there that `run_cell` records."""
    return curve.points[-1].iteration == cell.iterations and len(curve.points) == 1 + -(-cell.iterations // cell.every)


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

    def at_queries(self, queries: float) -> float:
        """The last value recorded within that many queries."""
        return [point.value for point in self.points if point.queries <= queries][-1]


@dataclass(frozen=True)
class Job:
    """Cells that are run together: one, or all the seeds of a setting on a GPU."""

    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        key = self.cells[0].key
        return f"{key.function} {key.method}, " + (
            f"seed {key.seed}" if len(self.cells) == 1 else f"{len(self.cells)} runs"
        )

    @property
    def iterations(self) -> int:
        return self.cells[0].iterations


def by_setting(cells: Iterable[Cell]) -> list[Job]:
    """The cells that differ in nothing but their seed, together."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((*cell.key[:-1], cell.dim, cell.iterations), []).append(cell)
    return [Job(tuple(group)) for group in groups.values()]


def run_cell(cell: Cell, report: Report = lambda iteration: None) -> Curve:
    """Runs a cell. `report` hears of every recorded iteration; what it raises ends the run."""
    function, start = cell.function(), cell.start()
    asked = noisy(function, cell.noise, cell.key.seed) if cell.noise else function
    recorder = _Recorder(function, cell, report)
    recorder.record(start, 0, 0)
    recorder.seconds = 0.0
    began = time.perf_counter()
    result = minimize(
        asked, start, vectorized=True, max_iterations=cell.iterations, seed=cell.key.seed, callback=recorder, **cell.options
    )  # fmt: skip
    seconds = time.perf_counter() - began - recorder.seconds
    if result.status == StopReason.INTERRUPTED.status:
        raise KeyboardInterrupt  # minimize returns what it has; half a curve is of no use here
    return Curve(cell.key, tuple(recorder.points), 1e3 * seconds / max(result.nit, 1))


class _Recorder:
    """A callback that evaluates f(theta), outside the run's count of queries and, by `seconds`, outside its time."""

    def __init__(self, function: Function, cell: Cell, report: Report) -> None:
        self._function, self._cell, self._report = function, cell, report
        self.points: list[Point] = []
        self.seconds = 0.0

    def __call__(self, *, intermediate_result: Any) -> None:
        iteration = intermediate_result.nit
        if self._cell.recorded(iteration):
            self.record(intermediate_result.x, iteration, intermediate_result.nfev)

    def record(self, theta: torch.Tensor, iteration: int, queries: int) -> None:
        began = time.perf_counter()
        self.points.append(Point(iteration, queries, float(self._function(theta.double()))))
        self._report(iteration)
        self.seconds += time.perf_counter() - began


def grouped(curves: Iterable[Curve]) -> dict[tuple[str, str, str], list[Curve]]:
    """The curves of each (function, update, method), in the order they came: what a table or a plot averages over."""
    groups: dict[tuple[str, str, str], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve.key.function, curve.key.update, curve.key.method), []).append(curve)
    return groups


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number."""
    return sum(values) / len(values)
