"""Methods of the paper on its four functions: the study `synthetic` (Figs. 2 and 4), and a short version of it, the demo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from zoar.problems import PAPER
from zoar.recommended import recommended
from zoar.study import plots
from zoar.study.curves import Cell, Curve, Key, without_holes
from zoar.study.page import Code, Section, Text
from zoar.study.study import Findings, Sheet, Study
from zoar.study.summary import Row, reference_grid, summarise

REFERENCE = "vanilla"

STYLES = {
    "vanilla": plots.Style(plots.GREY, width=2.0),
    "ZoHS": plots.Style(plots.ORANGE),
    "ReLIZO": plots.Style(plots.PURPLE, dashes=(3, 2), order=2.5),  # over vanilla, which it may cover
    "ZoAR N=1": plots.Style(plots.SKY),
    "ZoAR N=6": plots.Style(plots.BLUE, width=2.0, order=3),
    "recommended": plots.Style(plots.VERMILLION, width=2.0, order=3),
}

SNIPPET = """
import numpy as np
import zoar

def loss(x):  # your function: an array in, a number out
    return float(((x - 1) ** 2).sum())

options = zoar.recommended(max_queries=20_000)
result = zoar.minimize(loss, np.zeros(100), **options, progress=True)
print(result.fun, result.x[:3], result.message)
"""
AFTER_SNIPPET = (
    "The rates and radii of `zoar.recommended` suit an x whose numbers change by about 1 on the way: scale yours so."
)


@dataclass(frozen=True)
class Descent(Study):
    """One setting for all methods but `recommended`, which brings its own."""

    dim: int = 10_000
    iterations: int = 20_000
    seeds: int = 5
    first_seed: int = 0
    queries: int = 10
    window: int = 6
    smoothing: float = 0.05
    lr: float = 1e-3
    update: str = "adamm"
    with_recommended: bool = True

    def __post_init__(self) -> None:
        least = {"dim": 2, "iterations": 1, "seeds": 1, "first_seed": 0, "queries": 2, "window": 2}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise ValueError(f"{name} must be at least {number}, got {getattr(self, name)}")

    @property
    def every(self) -> int:
        """Iterations from one recorded value to the next: some two hundred to a curve."""
        return max(1, self.iterations // 200)

    def methods(self) -> dict[str, dict[str, Any]]:
        """Every method's options."""
        common: dict[str, Any] = {
            "queries": self.queries, "smoothing": self.smoothing, "lr": self.lr, "update": self.update,
        }  # fmt: skip
        methods: dict[str, dict[str, Any]] = {
            "vanilla": {"method": "vanilla", **common},
            "ZoHS": {"method": "zohs", "window": self.window, **common},
            "ReLIZO": {"method": "relizo", **common},
            "ZoAR N=1": {"method": "zoar", "window": 1, **common},
            f"ZoAR N={self.window}": {"method": "zoar", "window": self.window, **common},
        }
        if self.with_recommended:
            options = recommended(dim=self.dim, queries=self.queries, max_queries=self.iterations * self.queries)
            del options["max_queries"]  # a study counts iterations
            methods["recommended"] = options
        return methods

    def finished(self, cell: Cell, curve: Curve) -> bool:
        return without_holes(cell, curve)

    def cells(self) -> list[Cell]:
        """Function by function, so that an interrupted study leaves whole panels."""
        return [
            Cell(Key(self.name, function, self.update, method, seed), self.dim, self.iterations, self.every, options)
            for function in PAPER
            for method, options in self.methods().items()
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        ]

    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        rows = summarise(curves, REFERENCE)
        panels = plots.panels(curves)
        methods = len({row.method for row in rows})
        return Findings(
            f"Minimising without gradients: {len(panels)} functions, {methods} methods",
            [
                f"Test functions of {self.dim:,} dimensions, minimised from their values alone. Every method starts at the "
                f"same θ₀ ~ N(0, I) and asks K = {self.queries} queries a step, for {self.iterations:,} steps.",
                *findings(rows, REFERENCE),
            ],
            [Sheet(self.name, "The descent", panels, STYLES, self._caption())],
            {"In numbers": reference_grid(rows, REFERENCE)},
            self._reading(),
            [Section("Try it on your function", [Code(SNIPPET), Text([AFTER_SNIPPET])])],
        )

    def _caption(self) -> str:
        runs = f"One run each, seed {self.first_seed}" if self.seeds == 1 else f"Mean and range of {self.seeds} runs"
        return (
            "f(θ) at the current θ against iterations, on a log scale. Lower is better; every function has the minimum 0. "
            f"{runs}, recorded every {self.every} iterations."
        )

    def _reading(self) -> list[str]:
        distance, bound = self.smoothing * math.sqrt(self.dim), 2 * self.lr
        update = {"adamm": "ZO-AdaMM", "radazo": "R-AdaZO"}.get(self.update, self.update)
        points = [
            f"Iterations to match {REFERENCE}: the first recorded iteration at which f(θ) is at or below the value that "
            f"{REFERENCE} ends at; – means never. Speed-up is {REFERENCE}'s own count over that.",
            f"An iteration costs {self.queries} evaluations with ZoAR and `recommended`, and {self.queries + 1} with vanilla, "
            "ZoHS and ReLIZO, which ask f(θ) too. The evaluations behind the curves are in neither the counts nor the times.",
            "Milliseconds per iteration include the evaluations of the function. On a CPU they are of one core, while other runs "
            "may keep the other cores busy; on a GPU a step makes one iteration of all seeds.",
            f"All methods but one share the update rule ({update}), the rate and the radius. `recommended` brings its own: read "
            "it as what zoar can do, and ZoAR against the others as what its gradient estimate is worth.",
        ]
        if distance > bound:
            points.append(
                f"ReLIZO looks like vanilla here: with the paper's bound it reuses samples within 2·lr = {bound:g} of θ, and "
                f"they lie about μ√d = {distance:.2g} away."
            )
        if self.seeds == 1:
            points.append("This is one seed: differences of a few percent mean nothing.")
        if self.iterations < 20_000:
            points.append("The paper's figure is over 20,000 iterations: `zoar study run synthetic`.")
        return points


@dataclass(frozen=True)
class Demo(Descent):
    """The first run."""

    iterations: int = 2_000
    seeds: int = 1
    name = "demo"
    line = "six methods on four functions, the first look"
    source = "Fig. 2, shortened"
    takes = "a minute on two cores"


@dataclass(frozen=True)
class Synthetic(Descent):
    """The paper's figures 2 (`update="adamm"`) and 4 (`"radazo"`)."""

    name = "synthetic"
    line = "the paper's methods on its four functions, d = 10,000"
    source = "Figs. 2 and 4"
    takes = "minutes on a GPU, an hour on two cores"

    def quick(self) -> Self:
        return self.having(dim=1_000, iterations=4_000, seeds=3)


def findings(rows: Sequence[Row], reference: str, of: Sequence[str] = ("ZoAR N=6", "recommended")) -> list[str]:
    """What the table says of the methods that matter, in a sentence."""
    functions = len({row.function for row in rows})
    clauses: list[str] = []
    for method in of:
        gains = [row.speed_up for row in rows if row.method == method and row.speed_up is not None]
        if not gains:
            continue
        low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
        where = "" if len(gains) == functions else f" on {len(gains)} of {functions} functions"
        reaches = "" if clauses else f" reaches {reference}'s final value"
        times = f"{low} times" if low == high else f"{low} to {high} times"
        clauses.append(f"{_named(method)}{reaches} {times} sooner{where}")
    return [f"{', '.join(clauses)}."] if clauses else []


def _named(method: str) -> str:
    return f"`{method}`" if method.islower() else method
