"""The `zoar` command."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from zoar import __version__
from zoar.baselines import BASELINES, Baseline
from zoar.checking import choose
from zoar.estimators import ESTIMATORS, Estimator, as_estimator
from zoar.optimizer import Optimizer
from zoar.smoothing import SMOOTHINGS, Smoothing
from zoar.study.descent import Demo
from zoar.study.folder import Refused
from zoar.study.registry import STUDIES
from zoar.study.runner import report_again, run_study
from zoar.study.study import Study
from zoar.updates import UPDATES, UpdateRule

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run = Callable[[argparse.Namespace, Console], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; returns its exit status."""
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help()
        return 0
    run: Run = arguments.run
    try:
        return run(arguments, Console())
    except Refused as error:
        print(f"zoar: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a folder that cannot be made, a disk that is full
        print(f"zoar: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zoar: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """Each command adds itself: its options, and as `run` the function that does it."""
    parser = argparse.ArgumentParser(
        prog="zoar", description="Zeroth-order optimization, for whoever has losses and no gradients."
    )
    parser.add_argument("--version", action="version", version=f"zoar {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (_add_demo, _add_study, _add_methods):
        add(commands)
    return parser


#: What a study may be told, if it has a field of that name.
_FIELDS = {
    "dim": ("D", 2, "dimensions of each function"),
    "iterations": ("T", 1, "iterations of each run"),
    "seeds": ("S", 1, "runs of each setting, with seeds 0, 1, ..."),
    "first_seed": (
        "S",
        0,
        "the first of those seeds: to share a study among machines, and join it by `zoar study report`",
    ),
    "images": ("I", 1, "images to attack"),
}
_CHOICES = {
    "update": ("RULE", ("adamm", "radazo"), "update rule, for the studies that can do with one: adamm or radazo"),
    "pixels": ("HOW", ("clipped", "free"), "attacked images: clipped to [0, 1], or free"),
}


def _add_demo(commands: Commands) -> None:
    summary = "compare six methods on four functions"
    usual = Demo()
    demo = commands.add_parser(
        "demo",
        help=summary,
        description=f"{summary.capitalize()}; about a minute on two cores. Prints a table; writes a page, a plot and CSV. "
        "Runs that the folder already holds are kept.",
    )
    default = "(default: %(default)s)"
    add = demo.add_argument
    add("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help=f"folder to write to {default}")
    add("--dim", type=whole(2), default=usual.dim, metavar="D", help=f"dimensions of each function {default}")
    add("--iterations", type=whole(1), default=usual.iterations, metavar="T", help=f"iterations of each run {default}")
    add("--seed", type=whole(0), default=usual.first_seed, metavar="S", help=f"seed of start and directions {default}")
    _add_how(demo)
    demo.set_defaults(run=_demo, device=None)


def _demo(arguments: argparse.Namespace, console: Console) -> int:
    demo = Demo(dim=arguments.dim, iterations=arguments.iterations, first_seed=arguments.seed)
    given, usual = vars(arguments), {"dim": Demo().dim, "iterations": Demo().iterations, "seed": 0}
    options = [f"--{name} {given[name]}" for name, value in usual.items() if given[name] != value]
    return _run(demo, arguments, " ".join(["zoar demo", f"--out {shlex.quote(str(arguments.out))}", *options]), console)


def _add_study(commands: Commands) -> None:
    summary = "reproduce the paper's experiments, and ours"
    study = commands.add_parser("study", help=summary, description=f"{summary.capitalize()}.")
    actions = study.add_subparsers(title="commands", metavar="COMMAND", required=True)
    listed = actions.add_parser("list", help="what there is", description="Lists the studies.")
    listed.set_defaults(run=_list_studies)
    run = actions.add_parser(
        "run",
        help="run one",
        description="Runs a study into a folder: config.json, curves.csv, runs.csv, summary.csv, plots (PNG, SVG) and report.html. "
        "Runs that the folder already holds are kept, so an interrupted study goes on where it was.",
    )
    add = run.add_argument
    add("name", metavar="NAME", help=f"one of {', '.join(STUDIES)}")
    add("--out", type=Path, metavar="DIR", help="folder to write to (default: runs/NAME)")
    add("--quick", action="store_true", help="the version of about two minutes on two cores")
    for name, (letter, _, words) in _CHOICES.items():
        add(f"--{name}", metavar=letter, help=words)
    for name, (letter, least, words) in _FIELDS.items():
        add(f"--{_flag(name)}", type=whole(least), metavar=letter, help=words)
    add("--device", metavar="DEVICE", help="such as cuda: all seeds of a setting in one program (default: CPU cores)")
    _add_how(run)
    run.set_defaults(run=_study)
    report = actions.add_parser(
        "report",
        help="write the report of a folder anew",
        description="Writes tables, plots and page of a folder anew from its curves, without running anything. Runs of MORE "
        "folders of the same study, made elsewhere, are taken in.",
    )
    report.add_argument("out", type=Path, metavar="DIR", help="a folder that `zoar study run` has written")
    report.add_argument("more", type=Path, nargs="*", metavar="MORE", help="folders whose runs are taken in")
    report.set_defaults(run=lambda arguments, console: report_again(STUDIES, arguments.out, arguments.more, console))


def _add_how(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=whole(1), metavar="W", help="processes (default: one for each core; on a device one)"
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="WORD",
        help="run those of a function or method with such a word in its name, and leave the rest for later or another machine",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="run everything again, replacing what the folder holds")


def _list_studies(arguments: argparse.Namespace, console: Console) -> int:
    rows = [(study.name, study.source, study.line, study.takes) for study in STUDIES.values()]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for title in ("study", "of the paper", "what it shows", "takes"):
        table.add_column(title, no_wrap=title == "study")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    console.print("zoar study run NAME --quick takes about two minutes on two cores.", highlight=False)
    return 0


def _study(arguments: argparse.Namespace, console: Console) -> int:
    try:
        kind = STUDIES[choose("study", arguments.name, STUDIES)]
        study, words = _with_options(kind(), arguments)
    except ValueError as error:
        raise Refused(str(error)) from None
    if arguments.out is None:
        arguments.out = Path("runs", study.name)
    if arguments.device is not None:
        _check_device(arguments.device)
        words.append(f"--device {arguments.device}")
    command = " ".join([f"zoar study run {study.name} --out {shlex.quote(str(arguments.out))}", *words])
    return _run(study, arguments, command, console)


def _with_options(study: Study, arguments: argparse.Namespace) -> tuple[Study, list[str]]:
    """The study as asked for, and the words that ask for it."""
    words = ["--quick"] if arguments.quick else []
    if arguments.quick:
        study = study.quick()
    fields = {field.name for field in dataclasses.fields(study)}
    for name in (*_FIELDS, *_CHOICES):
        value = getattr(arguments, name)
        if value is None:
            continue
        if name not in fields:
            raise ValueError(f"study {study.name!r} takes no --{_flag(name)}; it takes {_options_of(fields)}")
        if name in _CHOICES:
            choose(f"--{name}", value, _CHOICES[name][1])
        study = study.having(**{name: value})
        words.append(f"--{_flag(name)} {value}")
    return study, words


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _options_of(fields: set[str]) -> str:
    known = [f"--{_flag(name)}" for name in (*_FIELDS, *_CHOICES) if name in fields]
    return ", ".join(["--quick", *known])


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()  # the meta device has no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch without CUDA asserts
        raise Refused(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from None


def _run(study: Study, arguments: argparse.Namespace, command: str, console: Console) -> int:
    return run_study(
        study, arguments.out, command=command, device=arguments.device, workers=arguments.workers, force=arguments.force,
        only=arguments.only,
        console=console,
    )  # fmt: skip


def _add_methods(commands: Commands) -> None:
    summary = "list methods, update rules, directions and baselines"
    methods = commands.add_parser("methods", help=summary, description=f"{summary.capitalize()}, with what each costs.")
    methods.set_defaults(run=_methods)


def _methods(arguments: argparse.Namespace, console: Console) -> int:
    """Four tables, written from the registries: what is in them is what the options take."""
    methods = [as_estimator(name) for name in ESTIMATORS]
    rules = [rule() for rule in UPDATES.values()]
    laws = [law() for law in SMOOTHINGS.values()]
    baselines = [kind() for kind in BASELINES.values()]
    tables = (
        _listing(
            ("method=", "evaluations a step", "window"),
            [(method.name, _evaluations(method), _window(method), _purpose(method)) for method in methods],
        ),
        _listing(("update=", "keeps"), [(rule.name, _kept(rule), _purpose(rule)) for rule in rules]),
        _listing(("directions=", "E[u u']"), [(law.name, _covariance(law), _purpose(law)) for law in laws]),
        _listing(
            ("baseline=", "more evaluations", "needs"),
            [(item.name, "1" if item.needs_center else "0", _needs(item), _purpose(item)) for item in baselines],
        ),
    )
    for table in tables:
        console.print(table)
    console.print("K: queries; N: window; u: a direction, d numbers. Start with zoar.recommended().", highlight=False)
    return 0


def _listing(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for index, title in enumerate(titles):
        table.add_column(Text(title), no_wrap=True, min_width=0 if index else 11)
    table.add_column("what it is")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    table.add_row()
    return table


def _evaluations(method: Estimator) -> str:
    """Evaluations a step as a formula in K."""
    one, two = method.evaluations(1), method.evaluations(2)
    slope, rest = two - one, 2 * one - two
    return f"{'' if slope == 1 else slope}K{f' + {rest}' if rest else ''}"


def _window(method: Estimator) -> str:
    return "none" if method.memoryless else f"N={method.default_window}"


def _kept(rule: UpdateRule) -> str:
    count = len(rule.start(torch.zeros(1)))
    return f"{count or 'no'} vector{'' if count == 1 else 's'}"


def _needs(baseline: Baseline) -> str:
    """The least that the optimizer accepts, found by asking it."""
    for needs, queries, window in (("", 1, 1), ("K or N above 1", 1, 2)):
        with contextlib.suppress(ValueError):
            Optimizer(np.zeros(1), "zoar", queries=queries, window=window, baseline=baseline)
            return needs
    return "K above 1"


def _covariance(law: Smoothing) -> str:
    return "I" if law.covariance_factor(7) == 1 else "I/d"


def _purpose(thing: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def whole(least: int) -> Callable[[str], int]:
    """An argument type: a whole number of at least that much."""

    def parse(text: str) -> int:
        try:
            if not re.fullmatch(r"[+-]?(\d+|\d{1,3}([_,]\d{3})+)", text):
                raise ValueError
            value = int(text.replace("_", "").replace(",", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
