"""What each ingredient of `zoar.recommended` is worth: it against itself with one of them taken back."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from zoar.problems import PAPER
from zoar.recommended import recommended
from zoar.schedules import Cosine, Linear
from zoar.study import plots
from zoar.study.curves import Cell, Curve, Key, grouped, mean, without_holes
from zoar.study.grid import Column, Grid, about, number
from zoar.study.study import Findings, Sheet, Study
from zoar.updates import AdaMM

WHOLE, PAPERS = "recommended", "ZoAR N=6 (paper)"
_MOST_MISSED = 4  # variants in a panel


@dataclass(frozen=True)
class Ablation(Study):
    """Every variant differs from `recommended` in one option; the paper's ZoAR differs in all."""

    dim: int = 10_000
    iterations: int = 20_000
    seeds: int = 5
    queries: int = 10
    name = "ablation"
    line = "what each ingredient of zoar.recommended is worth"
    source = "ours"
    takes = "minutes on a GPU, three hours on two cores"

    def quick(self) -> Self:
        return self.having(dim=1_000, iterations=2_000, seeds=2)

    def variants(self) -> dict[str, dict[str, Any]]:
        """Options by name."""
        whole = recommended(dim=self.dim, queries=self.queries, max_queries=self.iterations * self.queries)
        del whole["max_queries"]  # the study counts iterations
        assert isinstance(whole["lr"], Cosine)
        changes: dict[str, dict[str, Any]] = {
            WHOLE: {},
            "batch mean as baseline": {"baseline": "batch"},
            "gaussian directions": {"directions": "gaussian"},
            "window 1": {"window": 1},
            "window 8, not shrinking": {"window": 8},
            "window 20, shrinking": {"window": Linear(20, 1)},
            "constant rate 1e-3": {"lr": 1e-3},
            "rate falls as a line": {"lr": Linear(whole["lr"].start, 0.0)},
            "rate falls as a cosine": {"lr": Cosine(whole["lr"].start, 0.0)},
            "radius narrows to the end": {"smoothing": replace(whole["smoothing"], by=1.0)},
            "constant radius 0.05": {"smoothing": 0.05},
            "constant radius 0.3": {"smoothing": 0.3},
            "uncorrected AdaMM": {"update": AdaMM(betas=(0.0, 0.99))},
            "AdaMM as in the paper": {"update": "adamm"},
            "R-AdaZO": {"update": "radazo"},
        }
        paper = {
            "method": "zoar",
            "window": 6,
            "queries": self.queries,
            "smoothing": 0.05,
            "lr": 1e-3,
            "update": "adamm",
        }
        return {**{name: {**whole, **change} for name, change in changes.items()}, PAPERS: paper}

    def finished(self, cell: Cell, curve: Curve) -> bool:
        return without_holes(cell, curve)

    def cells(self) -> list[Cell]:
        every = max(1, self.iterations // 200)
        return [
            Cell(Key(self.name, function, "", variant, seed), self.dim, self.iterations, every, options)
            for function in PAPER
            for variant, options in self.variants().items()
            for seed in range(self.seeds)
        ]

    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        grid, sooner = ablation_grid(curves), iterations_to_paper(curves)
        lead = [
            f"`zoar.recommended` on the paper's four functions of {self.dim:,} dimensions, {self.iterations:,} iterations of "
            f"{self.queries} queries, and the same with one ingredient taken back. "
            f"Mean of {self.seeds} seed{'s' * (self.seeds > 1)}.",
        ]
        if sooner:
            most = max(share for _, share in sooner)
            lead.append(
                f"It reaches the final value of the paper's ZoAR N=6 after {min(s for _, s in sooner):.0%} to {most:.0%} of its "
                f"iterations on {len(sooner)} of the functions."
            )
        worst = {
            function: max(row[5] for row in rows if row[5] is not None) for function, rows in grid.groups().items()
        }
        reading = [
            "Factor: the variant's final value over that of `recommended`. Above 1 the ingredient helps on that function; below "
            "1 it costs something there, and is kept for what it gives elsewhere.",
            f"The largest factors are {', '.join(f'{value:.1f} on {name}' for name, value in worst.items())}.",
            "`recommended` was chosen on these functions, as a compromise: for each of them alone a better setting exists.",
        ]
        caption = (
            "f(θ) against iterations, on a log scale. Mean and range over seeds; the four variants that end highest."
        )
        return Findings(
            "What each ingredient is worth", lead, [Sheet("ablation", "The descent", _panels(curves), _STYLES, caption)],
            {"In numbers": grid}, reading,
        )  # fmt: skip


def ablation_grid(curves: Sequence[Curve]) -> Grid:
    """Final values, and their ratio to the whole's."""
    columns = [
        Column("function", "function"), Column("variant", "variant"), Column("seeds"),
        Column("final_value", "final value", number, "least"), Column("final_value_sd", "±", about),
        Column("factor", "factor", lambda value: f"{value:.2f}"),
    ]  # fmt: skip
    groups = {
        (function, variant): [curve.final for curve in group]
        for (function, _, variant), group in grouped(curves).items()
    }
    rows = []
    for (function, variant), finals in groups.items():
        whole = groups.get((function, WHOLE))
        spread = statistics.stdev(finals) if len(finals) > 1 else None
        rows.append(
            [function, variant, len(finals), mean(finals), spread, mean(finals) / mean(whole) if whole else None]
        )
    return Grid(
        columns, rows, "The lowest value of each function is emphasised; ± is the standard deviation over seeds."
    )


def iterations_to_paper(curves: Sequence[Curve]) -> list[tuple[str, float]]:
    """(function, share): after what share of the iterations `recommended` is, for all seeds, at the paper's final value."""
    groups = {(function, variant): group for (function, _, variant), group in grouped(curves).items()}
    shares = []
    for (function, variant), group in groups.items():
        if variant != PAPERS or (function, WHOLE) not in groups:
            continue
        needed = [
            ours.iterations_to(theirs.final) for ours, theirs in zip(groups[function, WHOLE], group, strict=False)
        ]
        if all(needed):
            shares.append((function, max(n for n in needed if n) / group[0].points[-1].iteration))
    return shares


#: Short names for the figure.
_LABELS = {
    "window mean as baseline": "window mean",
    "gaussian directions": "gaussian",
    "window 8, not shrinking": "window 8",
    "window 20, shrinking": "window 20",
    "constant rate 1e-3": "rate 1e-3",
    "rate falls as a line": "linear rate",
    "constant radius 0.05": "radius 0.05",
    "constant radius 0.3": "radius 0.3",
    "uncorrected AdaMM": "uncorrected",
    "AdaMM as in the paper": "paper's AdaMM",
}
_COLOURS = (plots.GREY, plots.ORANGE, plots.SKY, plots.GREEN, plots.PURPLE)
_STYLES = {
    WHOLE: plots.Style(plots.VERMILLION, width=2.2, order=3),
    PAPERS: plots.Style(plots.BLUE, width=2.0, order=3),
    **{
        name: plots.Style(_COLOURS[place % len(_COLOURS)], dashes=(4, 2) if place >= len(_COLOURS) else None)
        for place, name in enumerate(("window 1", "R-AdaZO", *_LABELS.values()))
    },
}


def _panels(curves: Sequence[Curve]) -> list[plots.Panel]:
    """A panel for each function: the whole, the paper's, and the variants that miss their ingredient most."""
    panels = []
    for panel in plots.panels(curves):
        highest = sorted(panel.lines, key=lambda line: -float(line.y[-1]))
        missed = [line.label for line in highest if line.label not in (WHOLE, PAPERS)][:_MOST_MISSED]
        lines = [
            replace(line, label=_LABELS.get(line.label, line.label))
            for line in panel.lines
            if line.label in (WHOLE, PAPERS, *missed)
        ]
        panels.append(replace(panel, lines=lines))
    return panels
