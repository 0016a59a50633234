"""Variance and bias of the window's estimate, measured beside the paper's bound: the study `theory`.

A real run gives the thetas. On its last N of them the directions are drawn anew, thousands of times: what Thm bias-variance-decomp
supposes. A cell is one quantity at one function, rate and K; its curve has N where others have the iteration.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from zoar.study.curves import Cell, Curve, Job, Key, Point, Report
from zoar.study.study import Findings, Study, plain
from zoar.study.window_figures import BASELINES
from zoar.study.window_redraws import KNOWN, Known, Measured, Walk, errors, redraw
from zoar.study.window_report import findings
from zoar.theory import Constants, Run, path_bound, stride_bound, window_bias
from zoar.updates import RAdaZO

Note = Callable[[int, int, Mapping[str, float]], None]
STRAIGHT = "straight line"
BETA2 = RAdaZO().betas[1]
_MEASURED = [f"{b} {what}" for b in BASELINES for what in ("error", "error se", "variance", "bias", "bias se")]
_BOUNDS = ["bound", "bound by stride", "printed by stride", "proof as printed", "exact bias", "step"]
_LIVE = ["diagnosed variance", "diagnosed drift", "live error"]
#: Error against b: offsets from b*, in sigma_mu, at the second rate.
OFFSETS = range(-4, 5)
OFFSET_WINDOW = 4


class Setting(Job):
    """All quantities of one function, rate and K."""

    @property
    def name(self) -> str:
        key, queries = self.cells[0].key, self.cells[0].options["queries"]
        return f"{key.function}, {key.update}, K={queries}"


@dataclass(frozen=True)
class Theory(Study):
    """Lengths are those of Gaussian directions at the paper's mu = 0.05: mu sqrt(d) = 0.5 at d = 100."""

    dim: int = 100
    smoothing: float = 0.5
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    queries: tuple[int, ...] = (2, 5, 10, 20)
    windows: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    redraws: int = 4_000
    #: Of the run that gives the thetas, and of the live diagnosis.
    live_queries: int = 10
    live_window: int = 6
    live_steps: int = 300
    stride: float = 0.05
    name = "theory"
    line = "variance and bias of the window, beside the paper's bound"
    source = "its Theoretical Analysis"
    takes = "ten minutes on two cores"

    def __post_init__(self) -> None:
        if self.live_queries not in self.queries:
            raise ValueError(f"live_queries must be one of queries, {self.queries}; got {self.live_queries}")
        if self.redraws < 2:
            raise ValueError(f"redraws must be at least 2, got {self.redraws}")
        if self.live_steps < 2 * max(self.windows):
            raise ValueError(f"live_steps must be at least twice the longest window, got {self.live_steps}")

    def quick(self) -> Self:
        return self.having(rates=(1e-3, 3e-3, 1e-2), queries=(2, 5, 10), redraws=2_000, live_steps=150)

    def settings(self) -> dict[str, Any]:
        return {name: plain(value) for name, value in asdict(self).items()}

    # -- cells and jobs ---------------------------------------------------------------------------------------------------

    def cells(self) -> list[Cell]:
        cells = []
        for function in KNOWN:
            for lr in self.rates:
                for queries in self.queries:
                    live = _LIVE if queries == self.live_queries else []
                    cells += self._cells(function, f"lr={lr:g}", queries, [*_MEASURED, *_BOUNDS, *live], lr)
        cells += self._cells("slope", STRAIGHT, self.live_queries, ["optimal error", "optimal error se", *_BOUNDS[:3]])
        for function in KNOWN:
            cells += self._cells(
                function, "baseline", self.live_queries, ["error at b", "error at b se", "parabola"], last=OFFSETS[-1]
            )
        return cells

    def _cells(
        self, function: str, drift: str, queries: int, quantities: Sequence[str], lr: float = 0.0, last: int = 0
    ) -> list[Cell]:
        options = {"queries": queries, "lr": lr}
        return [
            Cell(
                Key(self.name, function, drift, f"K={queries} {what}", 0), self.dim, last or self.windows[-1], 1, options
            )
            for what in quantities
        ]  # fmt: skip

    def jobs(self, cells: Sequence[Cell], device: str | None) -> list[Job]:
        """Always on the CPU; the longest first, so that no core waits for another at the end."""
        groups: dict[tuple[Any, ...], list[Cell]] = {}
        for cell in cells:
            groups.setdefault((*cell.key[:3], cell.options["queries"]), []).append(cell)
        return [
            Setting(tuple(group)) for _, group in sorted(groups.items(), key=lambda item: item[0][-1], reverse=True)
        ]

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]:
        first, began = job.cells[0], time.perf_counter()
        function, queries, drift = KNOWN[first.key.function], first.options["queries"], first.key.update
        found: dict[str, list[Point]] = {}

        def note(place: int, size: int, values: Mapping[str, float]) -> None:
            for what, value in values.items():
                found.setdefault(f"K={queries} {what}", []).append(Point(place, size * queries, value))
            report(place)

        if drift == "baseline":
            self._against_b(function, queries, note)
        elif drift == STRAIGHT:
            self._straight(function, queries, note)
        else:
            self._on_a_run(function, queries, first.options["lr"], note)
        ms = 1e3 * (time.perf_counter() - began) / len(self.windows)
        return [Curve(cell.key, tuple(found[cell.key.method]), ms) for cell in job.cells]

    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        return findings(self, curves)

    # -- what a job measures; everything in units of |grad F_mu(theta_{t-1})|^2 ---------------------------------------------

    def walk(self, function: Known, lr: float) -> Walk:
        """The run that gives the thetas: the same for every K, so that only K differs."""
        return Walk(
            function, self.dim, self.live_queries, self.live_window, self.smoothing, lr, self.live_steps
        )  # fmt: skip

    def _on_a_run(self, function: Known, queries: int, lr: float, note: Note) -> None:
        walk = self.walk(function, lr)
        path = walk.thetas()
        known = function.constants(path[-self.windows[-1] :], self.smoothing)
        for window in self.windows:
            thetas = path[-window:]
            gradients = function.gradient(thetas, self.smoothing)
            unit = float((gradients[-1] ** 2).sum())
            values = self._redrawn(function, thetas, queries, BASELINES)
            run = Run(self.dim, queries, window, self.smoothing)
            values |= {
                "bound": path_bound(known, run, thetas).total,
                **self._by_stride(known, run, lr * math.sqrt(self.dim / (1 - BETA2))),
                "proof as printed": path_bound(known, run, thetas, gradients, printed=True).total,
                "exact bias": window_bias(gradients) ** 2,
            }
            values = {what: value / unit for what, value in values.items()}
            steps = torch.linalg.vector_norm(path[-window:] - path[-window - 1 : -1], dim=-1)
            values["step"] = float((steps**2).mean().sqrt())
            if queries == self.live_queries:
                values |= walk.diagnosed(path, window, len(path) // 2)
            note(window, window, values)

    def _straight(self, function: Known, queries: int, note: Note) -> None:
        """The longest way that steps of one length can go, along the gradient: what the theorem's last step supposes."""
        ahead = function.gradient(function.start(self.dim)[None], self.smoothing)[0]
        for window in self.windows:
            thetas = self.stride * torch.arange(window, dtype=torch.float64)[:, None] * ahead
            run = Run(self.dim, queries, window, self.smoothing)
            known = function.constants(thetas, self.smoothing)
            note(window, window, {
                **self._redrawn(function, thetas, queries, BASELINES[:1]), **self._by_stride(known, run, self.stride),
                "bound": path_bound(known, run, thetas).total,
            })  # fmt: skip

    def _against_b(self, function: Known, queries: int, note: Note) -> None:
        """Thm opt-baseline: the same redraws for every b."""
        path = self.walk(function, self.rates[1]).thetas()[-OFFSET_WINDOW:]
        newest = function.gradient(path, self.smoothing)[-1]
        unit, best = float((newest**2).sum()), float(function.level(path, self.smoothing).mean())
        sigma = function.constants(path, self.smoothing).sigma_mu
        run = Run(self.dim, queries, OFFSET_WINDOW, self.smoothing)

        def error(offset: int) -> Measured:
            b = best + offset * sigma
            estimates = redraw(function, path, queries, self.smoothing, self.redraws, "optimal", OFFSET_WINDOW, b)
            return errors(estimates, newest)["error"]

        least = error(0).value
        for offset in OFFSETS:
            found = error(offset)
            parabola = least + run.noise_factor * (offset * sigma) ** 2 / (run.size * self.smoothing**2)
            values = {"error at b": found.value, "error at b se": found.error, "parabola": parabola}
            note(offset, OFFSET_WINDOW, {what: value / unit for what, value in values.items()})

    def _redrawn(
        self, function: Known, thetas: Tensor, queries: int, baselines: Sequence[str]
    ) -> dict[str, float]:  # fmt: skip
        newest = function.gradient(thetas, self.smoothing)[-1]
        best = float(function.level(thetas, self.smoothing).mean())
        values: dict[str, float] = {}
        seed = 10_000 * (100 * queries + len(thetas))  # the same draws for every function, rate and baseline
        for baseline in baselines:
            b = best if baseline == "optimal" else 0.0
            estimates = redraw(function, thetas, queries, self.smoothing, self.redraws, baseline, seed, b)
            for what, measured in errors(estimates, newest).items():
                values |= {f"{baseline} {what}": measured.value, f"{baseline} {what} se": measured.error}
        return values

    @staticmethod
    def _by_stride(known: Constants, run: Run, stride: float) -> dict[str, float]:
        return {
            "bound by stride": stride_bound(known, run, stride).total,
            "printed by stride": stride_bound(known, run, stride, printed=True).total,
        }
