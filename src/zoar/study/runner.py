"""Runs a study into a folder: what is missing, with progress; then the table, the figures and the page."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from zoar.checking import choose
from zoar.study import plots
from zoar.study.curves import Cell, Curve
from zoar.study.folder import Folder, Refused
from zoar.study.page import Code, Figure, Part, Points, Section, Table, page
from zoar.study.pool import run_jobs
from zoar.study.provenance import cores, provenance
from zoar.study.study import Findings, Study

PAGE = "report.html"


def run_study(
    study: Study, out: Path, *, command: str, device: str | None = None, workers: int | None = None, force: bool = False,
    only: Sequence[str] = (), console: Console | None = None,
) -> int:  # fmt: skip
    """Runs what `out` does not hold yet and writes the report; returns the exit status of the command.

    With `only`, of what is missing the runs whose function or method has one of these words in its name.
    """
    console = console or Console()
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    study.prepare(say)
    cells = study.cells()
    config = {"settings": study.settings(), **provenance(device), "command": command}
    folder = Folder(out, study.name)
    wanted = {cell.key: cell for cell in cells}
    curves = {
        key: curve
        for key, curve in folder.open(config, anew=force).items()
        if key in wanted and study.finished(wanted[key], curve)
    }

    def in_order() -> list[Curve]:
        return [curves[cell.key] for cell in cells if cell.key in curves]

    def keep(made: list[Curve]) -> None:
        curves.update({curve.key: curve for curve in made})
        folder.save(in_order())

    if only and not any(_meant(cell, only) for cell in cells):
        names = sorted({cell.key.function for cell in cells} | {cell.key.method for cell in cells})
        raise Refused(f"--only {' '.join(only)} is part of no name here. There are: {', '.join(names)}")
    jobs = study.jobs([cell for cell in cells if cell.key not in curves and _meant(cell, only)], device)
    # One process keeps a device busy only in part: a step is many small kernels. More is for whoever asks.
    workers = min(workers or (1 if device else cores()), max(len(jobs), 1))
    say(f"{study.name}: {len(cells)} runs, {workers} at a time{f' on {device}' if device else ''}.")
    if curves:
        say(f"{len(curves)} of {len(cells)} runs are in {out} already; --force runs them again.")
    try:
        outcome = run_jobs(jobs, study, keep, device=device, workers=workers, console=console)
        if curves:
            findings = study.report(in_order(), config)
            console.print(next(iter(findings.grids.values())).terminal())
            write_report(folder, findings, config, missing=len(cells) - len(curves))
    except OSError as error:  # a full disk; what a run itself raises is its own failure
        say(
            f"Cannot write to {out}: {error.strerror or error}. {folder.saved} of {len(cells)} runs are kept there, whole."
        )
        say("Make room, and the same command goes on from them.")
        return 1
    for name, why in outcome.failed.items():
        say(f"Failed: {name}: {why}")
    if outcome.interrupted:
        say(f"Interrupted. {len(curves)} of {len(cells)} runs are done and kept; the same command goes on from there.")
    if curves:
        say(
            f"{time.monotonic() - began:.0f} s. The report is {out / PAGE}; its data, plots and settings lie beside it."
        )
    return 130 if outcome.interrupted else 1 if outcome.failed else 0


def report_again(
    kinds: Mapping[str, type[Study]], out: Path, more: Sequence[Path] = (), console: Console | None = None
) -> int:
    """Writes the tables, figures and page of `out` anew from its curves, and those of `more` folders of the same study.

    The folders may come from different machines; the page then says so.
    """
    console = console or Console()
    folders = [Folder.reading(path) for path in (out, *more)]
    configs = [folder.config() for folder in folders]
    config = dict(configs[0])
    kind = kinds[choose("study", config["study"], kinds)]
    for path, other in zip(more, configs[1:], strict=True):
        if other["study"] != config["study"]:
            raise Refused(f"{path} holds the study {other['study']!r}, {out} holds {config['study']!r}")
        if different := _different(kind, _but_seeds(config), _but_seeds(other)):
            raise Refused(f"{path} has other settings than {out}: {', '.join(different)}. Only the seeds may differ")
    try:
        study = _with_all_seeds([kind.from_settings(one["settings"]) for one in configs])
        whole = {cell.key: cell for cell in study.cells()}
        cells = list(whole)
        config = {**config, "settings": {**config["settings"], **_seeds(study)}}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{out / 'config.json'} is not one that zoar wrote ({type(error).__name__}: {error})") from error
    curves = {
        key: curve
        for folder in reversed(folders)
        for key, curve in folder.curves().items()
        if key in whole and study.finished(whole[key], curve)
    }
    kept = [curves[key] for key in cells if key in curves]
    if not kept:
        raise Refused(f"{out} holds no finished run")
    if more:
        for folder in folders:
            held = folder.curves()
            console.print(
                f"{len(set(held) & set(cells))} runs from {folder.path}.", highlight=False, soft_wrap=True, markup=False
            )
        folders[0].save(kept)
        config["also"] = [{name: other[name] for name in ("versions", "hardware")} for other in configs[1:]]
        folders[0].write("config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    findings = study.report(kept, config)
    console.print(next(iter(findings.grids.values())).terminal())
    write_report(folders[0], findings, config, missing=len(cells) - len(kept))
    console.print(f"The report is {out / PAGE}.", highlight=False, soft_wrap=True, markup=False)
    return 0


def _different(kind: type[Study], here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """The settings that differ; one that an older study does not have is what it is by default."""

    def value(settings: Mapping[str, Any], name: str) -> Any:
        default = getattr(kind(), name, None)
        return settings.get(name, list(default) if isinstance(default, tuple) else default)

    return [name for name in {**here, **there} if value(here, name) != value(there, name)]


def _meant(cell: Cell, only: Sequence[str]) -> bool:
    return not only or any(word.lower() in f"{cell.key.function} {cell.key.method}".lower() for word in only)


_SEEDS = ("seeds", "first_seed")


def _but_seeds(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config["settings"].items() if name not in _SEEDS}


def _seeds(study: Study) -> dict[str, int]:
    return {name: getattr(study, name) for name in _SEEDS if hasattr(study, name)}


def _with_all_seeds(studies: Sequence[Study]) -> Study:
    """The first with the seeds of all."""
    whole = studies[0]
    if not hasattr(whole, "seeds"):
        return whole
    spans = [(getattr(study, "first_seed", 0), study.seeds) for study in studies]  # type: ignore[attr-defined]  # it has some
    first, last = min(start for start, _ in spans), max(start + count for start, count in spans)
    return whole.having(seeds=last - first, **({"first_seed": first} if hasattr(whole, "first_seed") else {}))


def write_report(folder: Folder, findings: Findings, config: Mapping[str, Any], missing: int) -> None:
    """summary.csv (and more tables by their names), PNG and SVG figures, and one self-contained page."""
    for place, (title, grid) in enumerate(findings.grids.items()):
        folder.write("summary.csv" if place == 0 else f"{_file_name(title)}.csv", grid.csv())
    sections: list[Section] = []
    for sheet in findings.sheets:
        drawing = plots.figure(sheet.panels, sheet.styles)
        folder.write(f"{sheet.name}.png", plots.png(drawing))
        folder.write(f"{sheet.name}.svg", plots.svg(drawing))
        panels = {
            f"{panel.title}: {panel.y_label} over {panel.x_label}": plots.svg(
                plots.figure([panel], sheet.styles), text=True
            )
            for panel in sheet.panels
        }
        sections.append(Section(sheet.title, [Figure(panels, sheet.caption, plots.NAMES)]))
    sections += [Section(title, [grid.part()]) for title, grid in findings.grids.items()]
    if findings.reading:
        sections.append(Section("How to read this", [Points(findings.reading)]))
    sections += [*findings.sections, Section("How it was made", _how(config))]
    lead = list(findings.lead)
    if missing:
        lead.append(f"This study is unfinished: {missing} of its runs are missing. The same command goes on from here.")
    footer = (
        "The data are in `curves.csv`, `runs.csv` and `summary.csv`, the settings in `config.json`, beside this page."
    )
    folder.write(PAGE, page(findings.title, lead, sections, footer))


def _how(config: Mapping[str, Any]) -> Sequence[Part]:
    """The command, the settings, the versions and the hardware."""
    settings = dict(config["settings"])
    methods: dict[str, dict[str, Any]] = settings.pop("methods", {})
    fields = [[name.replace("_", " "), _words(value)] for name, value in settings.items()]
    options = [[name, ", ".join(f"{k}={v}" for k, v in given.items())] for name, given in methods.items()]
    made = [[name, str(value)] for part in ("versions", "hardware") for name, value in config[part].items()]
    for other in config.get("also", ()):
        made.append(["some runs were made with", ""])
        made += [[name, str(value)] for part in ("versions", "hardware") for name, value in other[part].items()]
    parts: list[Part] = [Code(config["command"]), Table(["setting", ""], {"": fields}, numbers=False)]
    if options:
        parts.append(Table(["method", "options"], {"": options}, numbers=False))
    return [*parts, Table(["made with", ""], {"": made}, numbers=False)]


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _file_name(title: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in title.lower())
