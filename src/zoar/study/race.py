"""What the leaderboard and its tuning share: everyone who runs, and one run of them for a budget of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from zoar.problems import noisy
from zoar.recommended import recommended
from zoar.study.curves import Cell, Curve, Key, Point, Report, run_cell
from zoar.study.rivals import RIVALS

QUERIES_A_STEP = 10  # zoar's K
_RECORDS = 40  # a run


@dataclass(frozen=True)
class Event:
    """A function at a dimension, and the queries that everyone gets there."""

    function: str
    dim: int
    budget: int
    noise: float = 0.0

    @property
    def name(self) -> str:
        """As in the tables."""
        return f"{'noisy ' if self.noise else ''}{self.function}, d={self.dim:,}"


#: Queries at a dimension: 100, 50 and 20 for each variable.
BUDGETS = {100: 10_000, 1_000: 50_000, 10_000: 200_000}
PAPER_FUNCTIONS = ("quadratic", "ackley", "levy", "rosenbrock")
OTHER_FUNCTIONS = ("rastrigin", "griewank", "styblinski-tang")


def events(dims: tuple[int, ...], functions: tuple[str, ...]) -> list[Event]:
    """Those functions at those dimensions; `"noisy quadratic"` has noise of a hundredth of the root of d in every query."""
    noise = {"noisy quadratic": 0.01}
    return [
        Event(function.removeprefix("noisy "), dim, BUDGETS[dim], noise.get(function, 0.0) * dim**0.5)
        for dim in dims
        for function in functions
    ]


def _recommended(event: Event) -> dict[str, Any]:
    options = recommended(dim=event.dim, queries=QUERIES_A_STEP, max_queries=event.budget)
    return {name: value for name, value in options.items() if name != "max_queries"}  # a study counts iterations


def _paper(event: Event) -> dict[str, Any]:
    return {
        "method": "zoar", "window": 6, "queries": QUERIES_A_STEP, "smoothing": 0.05, "update": "adamm", "lr": 1e-3,
    }  # fmt: skip


#: Our own, as they are published, and not tuned here: label -> options for an event.
OURS: dict[str, dict[str, Callable[[Event], dict[str, Any]]]] = {
    "zoar.recommended": {"as it is": _recommended},
    "ZoAR N=6 (paper)": {"lr 1e-3": _paper},
}


def settings_of(method: str) -> list[str]:
    """The labels of its settings, the default first: three of a rival, one of ours."""
    return list(OURS[method]) if method in OURS else list(RIVALS[method].settings)


def contestants(dim: int) -> list[str]:
    """Who runs at a dimension."""
    return [*OURS, *(rival.name for rival in RIVALS.values() if rival.largest_dim is None or dim <= rival.largest_dim)]


def cell(study: str, event: Event, method: str, setting: str, seed: int, budget: int) -> Cell:
    """One run of one contestant. A step of ours costs ten queries; a rival's `iterations` are its queries, for the display."""
    options: Mapping[str, Any] = {"rival": method, "setting": setting}
    iterations = budget
    if method in OURS:
        options, iterations = OURS[method][setting](replace(event, budget=budget)), budget // QUERIES_A_STEP
    key = Key(study, event.name, setting, method, seed)
    every = max(1, iterations // _RECORDS)
    return Cell(key, event.dim, iterations, every, options, problem=event.function, noise=event.noise)


def run(cell: Cell, report: Report) -> Curve:
    """Makes the curve of a cell, ours or a rival's."""
    return _run_rival(cell, report) if "rival" in cell.options else run_cell(cell, report)


def _run_rival(cell: Cell, report: Report) -> Curve:
    """The value of the rival's own answer, without noise. Its iterations are known at the end only: those of the points
    between are what their queries say."""
    rival, budget = RIVALS[cell.options["rival"]], cell.iterations
    function = cell.function()
    asked = noisy(function, cell.noise, cell.key.seed) if cell.noise else function
    seen: list[tuple[int, float]] = []

    def record(queries: int, x: np.ndarray) -> None:
        if not seen or queries >= (len(seen) * budget) // _RECORDS or queries >= budget:
            seen.append((queries, float(function(torch.from_numpy(x)))))
        report(queries)

    start = cell.start().double().numpy()
    outcome = rival.run(
        lambda points: asked(torch.from_numpy(np.ascontiguousarray(points))).numpy(),
        start, budget, cell.key.seed, rival.settings[cell.options["setting"]], record,
    )  # fmt: skip
    pace = outcome.iterations / max(outcome.queries, 1)
    points = [Point(round(queries * pace), queries, value) for queries, value in seen]
    return Curve(cell.key, tuple(points), outcome.ms_per_iteration)
