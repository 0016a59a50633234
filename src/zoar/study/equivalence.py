"""ZOO is REINFORCE with a baseline: the study `equivalence`, Fig. 3 of the paper and its Theorem 3.

Two methods of one library are easily equal: zoar's `reinforce` is vanilla with 1/mu written as mu/mu^2, and in float32 that is
the same number. So a third program stands beside them that has never heard of directions. Like any policy gradient it sees
actions x and their rewards, and takes the score (x - theta)/mu^2 from them (Eq. reinforce-grad-refined), with the rounding of x
in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from zoar.many import ManyRuns
from zoar.problems import PAPER
from zoar.smoothing import Coordinate, Smoothing, Sphere
from zoar.study.curves import Cell, Curve, Job, Key, Point, Report, by_setting, run_cell, without_holes
from zoar.study.equivalence_report import BASELINES, findings
from zoar.study.study import Findings, Study
from zoar.theory import gamma, translate_lr
from zoar.updates import RAdaZO

#: What Theorem 3 is about; the paper's coordinate law has no signs.
LAWS: dict[str, Smoothing] = {"sphere": Sphere(), "e_i": Coordinate(signed=False), "±e_i": Coordinate()}
SMALL = {"quadratic": 1e-2, "rosenbrock": 1e-4}  # functions of the second part, with the rate of SGD on each


class Pair(NamedTuple):
    """A REINFORCE run of the second part and the vanilla run that it is held against: their rates, and what multiplies zeta."""

    function: str
    law: str
    update: str
    lr: float
    own_lr: float
    zeta: float = 1.0

    @property
    def zoo(self) -> str:
        return f"ZOO {self.law}"

    @property
    def reinforce(self) -> str:
        return f"REINFORCE {self.law}, {'η/γ' if self.zeta == 1.0 else 'ζγ²'}"


class Policies(ManyRuns):
    """REINFORCE from actions alone: the score of x is (x - theta)/mu^2, whatever x was made of."""

    def ask(self) -> Tensor:
        points = super().ask()
        actions = points[:, : self.settings.queries]
        self._rows = (actions - self.theta[:, None]) / self.settings.radius(self.step)
        return points


class Small(Cell):
    """A run in float64."""

    def start(self) -> Tensor:
        return super().start().double()


@dataclass(frozen=True)
class Equivalence(Study):
    """Part one in float32 at the paper's size; part two, on the laws whose gamma is not 1, where gamma is a number."""

    dim: int = 10_000
    iterations: int = 20_000
    seeds: int = 5
    queries: int = 10
    window: int = 6
    smoothing: float = 0.05
    lr: float = 1e-3
    update: str = "adamm"
    small_dim: int = 8
    small_iterations: int = 2_000
    small_lr: float = 1e-3  # of R-AdaZO
    name = "equivalence"
    line = "ZOO and REINFORCE, the same curves; Theorem 3's gamma"
    source = "Fig. 3, Thm 3"
    takes = "minutes on a GPU, two to three hours on two cores"

    def __post_init__(self) -> None:
        least = {
            "dim": 2,
            "iterations": 1,
            "seeds": 1,
            "queries": 2,
            "window": 2,
            "small_dim": 2,
            "small_iterations": 1,
        }
        for name, number in least.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")

    def quick(self) -> Self:
        return self.having(dim=1_000, iterations=2_000, seeds=2)

    # -- the runs ---------------------------------------------------------------------------------------------------------

    def finished(self, cell: Cell, curve: Curve) -> bool:
        return without_holes(cell, curve)

    def cells(self) -> list[Cell]:
        """Function by function; the small runs last."""
        every = max(1, self.iterations // 200)
        return [
            Cell(Key(self.name, function, self.update, method, seed), self.dim, self.iterations, every, options)
            for function in PAPER
            for method, options in self._methods().items()
            for seed in range(self.seeds)
        ] + self._small_cells()

    def jobs(self, cells: Sequence[Cell], device: str | None) -> list[Job]:
        """On a device all seeds of a large run are one program; the small ones are too small for it."""
        large = [cell for cell in cells if not isinstance(cell, Small)]
        alone = [Job((cell,)) for cell in cells if isinstance(cell, Small)]
        return [*(by_setting(large) if device else super().jobs(large, None)), *alone]

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]:
        if isinstance(job.cells[0], Small):
            return [run_cell(cell, report) for cell in job.cells]
        if job.cells[0].key.method.startswith("REINFORCE"):
            return act(job, device, report)
        return super().run(job, device, report)

    def _methods(self) -> dict[str, dict[str, Any]]:
        common: dict[str, Any] = {
            "queries": self.queries, "smoothing": self.smoothing, "lr": self.lr, "update": self.update,
        }  # fmt: skip
        methods: dict[str, dict[str, Any]] = {}
        for baseline, window in zip(BASELINES, (1, self.window), strict=True):
            options = {"baseline": baseline, "window": window, **common}
            methods[f"ZOO {baseline}"] = {"method": "zoar", **options}
            methods[f"REINFORCE {baseline}"] = methods[f"method reinforce {baseline}"] = {
                "method": "reinforce",
                **options,
            }
        return methods

    def gamma(self, law: str) -> float:
        """gamma of Theorem 3 in the second part."""
        return gamma(LAWS[law], self.small_dim, self.smoothing)

    def pairs(self) -> list[Pair]:
        """What Cor. equiv-conv says of each law, for SGD and for a rule like Adam; and what is so where it says too much."""
        made = []
        for function, sgd in SMALL.items():
            for name, law in LAWS.items():
                translated, adaptive = (
                    translate_lr(lr, law, self.small_dim, self.smoothing) for lr in (sgd, self.small_lr)
                )
                made += [
                    Pair(function, name, "sgd", sgd, translated),
                    Pair(function, name, "radazo", self.small_lr, adaptive),
                    # A rule that divides by g takes the same steps at the same rate, where zeta has the size of g^2.
                    Pair(function, name, "radazo", self.small_lr, self.small_lr, self.gamma(name) ** 2),
                ]
        return made

    def _small_cells(self) -> list[Cell]:
        cells: dict[Key, Cell] = {}
        for pair in self.pairs():
            common = {"queries": self.queries, "smoothing": self.smoothing, "directions": LAWS[pair.law]}
            rule = pair.update if pair.zeta == 1.0 else RAdaZO(eps=RAdaZO().eps * pair.zeta)
            # `scale="paper"` is Eq. fd, which has no factor d.
            zoo = {"method": "vanilla", "scale": "paper", "lr": pair.lr, "update": pair.update, **common}
            own = {"method": "reinforce", "lr": pair.own_lr, "update": rule, **common}
            for method, options in ((pair.zoo, zoo), (pair.reinforce, own)):
                key = Key(self.name, pair.function, pair.update, method, 0)
                every = max(1, self.small_iterations // 200)
                cells[key] = Small(key, self.small_dim, self.small_iterations, every, options)
        return list(cells.values())

    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        return findings(self, curves)


def act(job: Job, device: str | None, report: Report) -> list[Curve]:
    """Runs REINFORCE from actions, on a device all seeds together."""
    first, place = job.cells[0], torch.device(device or "cpu")
    function = first.function()
    starts = torch.stack([cell.start() for cell in job.cells]).to(place)
    runs = Policies(starts, [cell.key.seed for cell in job.cells], max_iterations=first.iterations, **first.options)
    if (
        device is None and len(job.cells) == 1
    ):  # the actions of `zoar.minimize`, which on a CPU draws from a faster stream
        runs.stream = runs.settings.directions.stream(first.key.seed, place)
    points: list[tuple[int, int, Tensor]] = []

    def record() -> None:
        assert isinstance(runs.evaluations, int)
        points.append((runs.step, runs.evaluations, function(runs.theta.double()).cpu()))
        report(runs.step)

    record()
    began = time.perf_counter()
    while runs.step < first.iterations:
        runs.tell(function(runs.ask()))
        if first.recorded(runs.step):
            record()
    ms = 1e3 * (time.perf_counter() - began) / first.iterations
    return [
        Curve(cell.key, tuple(Point(step, asked, float(values[run])) for step, asked, values in points), ms)
        for run, cell in enumerate(job.cells)
    ]
