"""`zoar demo`: the paper's four functions (Fig. 2), six methods, two minutes; a table, a plot, CSV and a page."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from zoar.problems import PROBLEMS
from zoar.recommended import recommended
from zoar.study import plots
from zoar.study.curves import Cell, Curve, Key
from zoar.study.demo_page import demo_page
from zoar.study.folder import Folder, finished
from zoar.study.pool import run_cells
from zoar.study.provenance import cores, provenance
from zoar.study.summary import summarise
from zoar.study.terminal import table

REFERENCE = "vanilla"

STYLES = {
    "vanilla": plots.Style(plots.GREY, width=2.0),
    "ZoHS": plots.Style(plots.ORANGE),
    "ReLIZO": plots.Style(plots.PURPLE, dashes=(3, 2), order=2.5),  # over vanilla, which it may cover
    "ZoAR N=1": plots.Style(plots.SKY),
    "ZoAR N=6": plots.Style(plots.BLUE, width=2.0, order=3),
    "recommended": plots.Style(plots.VERMILLION, width=2.0, order=3),
}


@dataclass(frozen=True)
class Demo:
    """The setting of Fig. 2, over fewer iterations."""

    dim: int = 10_000
    iterations: int = 2_000
    seed: int = 0
    queries: int = 10
    smoothing: float = 0.05
    lr: float = 1e-3
    update: str = "adamm"

    def __post_init__(self) -> None:
        for name, least in (("dim", 2), ("iterations", 1), ("seed", 0), ("queries", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    @property
    def every(self) -> int:
        """Iterations from one recorded value to the next: some two hundred to a curve."""
        return max(1, self.iterations // 200)

    def methods(self) -> dict[str, dict[str, Any]]:
        """Every method's options."""
        common: dict[str, Any] = {
            "queries": self.queries,
            "smoothing": self.smoothing,
            "lr": self.lr,
            "update": self.update,
        }
        return {
            "vanilla": {"method": "vanilla", **common},
            "ZoHS": {"method": "zohs", "window": 6, **common},
            "ReLIZO": {"method": "relizo", **common},
            "ZoAR N=1": {"method": "zoar", "window": 1, **common},
            "ZoAR N=6": {"method": "zoar", "window": 6, **common},
            "recommended": recommended(queries=self.queries),
        }

    def cells(self) -> list[Cell]:
        """Function by function, so that an interrupted demo leaves whole panels."""
        return [
            Cell(Key("demo", function, self.update, method, self.seed), self.dim, self.iterations, self.every, options)
            for function in PROBLEMS
            for method, options in self.methods().items()
        ]

    def settings(self) -> dict[str, Any]:
        """Everything that the numbers depend on, as plain data."""
        methods = {
            method: {name: _plain(value) for name, value in options.items()}
            for method, options in self.methods().items()
        }
        return {
            **asdict(self),
            "functions": list(PROBLEMS),
            "reference": REFERENCE,
            "methods": methods,
        }


def run_demo(
    demo: Demo, out: Path, *, workers: int | None = None, force: bool = False, console: Console | None = None
) -> int:
    """Runs what `out` does not hold yet and writes the report; returns the exit status of the command."""
    console = console or Console()
    began = time.monotonic()
    cells = demo.cells()
    workers = workers or min(cores(), len(cells))
    config = {"settings": demo.settings(), **provenance(), "recorded_every": demo.every, "command": command(demo, out)}
    folder = Folder(out, "demo")
    curves = finished(cells, folder.open(config, anew=force))

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    def in_order() -> list[Curve]:
        return [curves[cell.key] for cell in cells if cell.key in curves]

    def keep(curve: Curve) -> None:
        curves[curve.key] = curve
        folder.save(in_order(), summarise(in_order(), REFERENCE))

    say(
        f"{len(PROBLEMS)} functions of {demo.dim:,} dimensions, {len(demo.methods())} methods, "
        f"{demo.iterations:,} iterations; workers: {workers}."
    )
    if curves:
        say(f"{len(curves)} of {len(cells)} runs are in {out} already; --force runs them again.")
    left = [cell for cell in cells if cell.key not in curves]
    outcome = run_cells(left, keep, workers=workers, console=console)
    if curves:
        _write(folder, in_order(), config, len(cells), console)
    for key, why in outcome.failed.items():
        say(f"Failed: {key}: {why}")
    if outcome.interrupted:
        say(f"Interrupted. {len(curves)} of {len(cells)} runs are done and kept; the same command goes on from there.")
    if curves:
        say(
            f"{time.monotonic() - began:.0f} s. The report is {out / 'index.html'}; its data, plot and settings lie beside it."
        )
    return 130 if outcome.interrupted else 1 if outcome.failed else 0


def _write(folder: Folder, curves: list[Curve], config: dict[str, Any], total: int, console: Console) -> None:
    """The table on the terminal; the CSV, the plot and the page in the folder."""
    rows = summarise(curves, REFERENCE)
    console.print(table(rows, REFERENCE))
    folder.save(curves, rows)
    panels = plots.panels(curves)
    sheet = plots.figure(panels, STYLES)
    folder.write("demo.png", plots.png(sheet))
    folder.write("demo.svg", plots.svg(sheet))
    drawings = {
        f"{panel.title}: f(θ) over iterations, by method": plots.svg(plots.figure([panel], STYLES), text=True)
        for panel in panels
    }
    folder.write("index.html", demo_page(rows, drawings, config, missing=total - len(curves)))


def command(demo: Demo, out: Path) -> str:
    """The command that makes these results."""
    given, usual = asdict(demo), asdict(Demo())
    options = [f"--{name} {given[name]}" for name in ("dim", "iterations", "seed") if given[name] != usual[name]]
    return " ".join(["zoar demo", f"--out {shlex.quote(str(out))}", *options])


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else repr(value)
