"""What the demo's page says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from zoar.study.page import Code, Figure, Points, Section, Table, Text, page
from zoar.study.plots import NAMES
from zoar.study.summary import Row, by_function, columns

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


def demo_page(rows: Sequence[Row], drawings: Mapping[str, str], config: Mapping[str, Any], missing: int = 0) -> str:
    """The page of a demo, or of the part of it that is there."""
    settings = config["settings"]
    reference = settings["reference"]
    lead = [
        f"Test functions of {settings['dim']:,} dimensions, minimised from their values alone. Every method starts at the "
        f"same θ₀ ~ N(0, I) and asks K = {settings['queries']} queries a step, for {settings['iterations']:,} steps.",
        *findings(rows, reference),
    ]
    if missing:
        lead.append(f"This demo is unfinished: {missing} of its runs are missing. The same command goes on from here.")
    return page(
        f"Minimising without gradients: {len(drawings)} functions, {len({row.key.method for row in rows})} methods",
        lead,
        [
            Section("The descent", [Figure(drawings, _caption(config), NAMES)]),
            Section("In numbers", [_numbers(rows, reference)]),
            Section("How to read this", [Points(_reading(settings))]),
            Section("Try it on your function", [Code(SNIPPET), Text([AFTER_SNIPPET])]),
            Section("How it was made", [Code(config["command"]), _settings(settings), _provenance(config)]),
        ],
        footer="The data are in `curves.csv` and `summary.csv`, the settings in `config.json`, beside this page.",
    )


def findings(rows: Sequence[Row], reference: str, of: Sequence[str] = ("ZoAR N=6", "recommended")) -> list[str]:
    """What the table says of the methods that matter, in a sentence."""
    functions = len(by_function(rows))
    clauses: list[str] = []
    for method in of:
        gains = [row.speed_up for row in rows if row.key.method == method and row.speed_up is not None]
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


def _caption(config: Mapping[str, Any]) -> str:
    return (
        "f(θ) at the current θ against iterations, on a log scale. Lower is better; every function has the minimum 0. "
        f"One run each, seed {config['settings']['seed']}, recorded every {config['recorded_every']} iterations."
    )


def _numbers(rows: Sequence[Row], reference: str) -> Table:
    shown = columns(reference)
    groups = by_function(rows)
    cells = {
        name.capitalize(): [[row.key.method, *(_typeset(column.text(row)) for column in shown)] for row in group]
        for name, group in groups.items()
    }
    best = {}
    for name, group in groups.items():
        flags = [column.best(group) for column in shown]
        best[name.capitalize()] = [[False, *(flag[index] for flag in flags)] for index in range(len(group))]
    return Table(
        ["method", *(column.title for column in shown)],
        cells,
        best,
        caption="The best value of each column is emphasised, function by function.",
    )


def _typeset(text: str) -> str:
    return "–" if text == "-" else text.replace("x", "×")


def _reading(settings: Mapping[str, Any]) -> list[str]:
    reference, queries = settings["reference"], settings["queries"]
    distance, bound = settings["smoothing"] * math.sqrt(settings["dim"]), 2 * settings["lr"]
    points = [
        f"Iterations to match {reference}: the first recorded iteration at which f(θ) is at or below the value that "
        f"{reference} ends at; – means never. Speed-up is {reference}'s own count over that.",
        f"An iteration costs {queries} evaluations with ZoAR and `recommended`, and {queries + 1} with vanilla, ZoHS and "
        "ReLIZO, which ask f(θ) too. The evaluations behind the curves are in neither the counts nor the times.",
        "Milliseconds per iteration include the evaluations of the function. They are of one core, while other runs may "
        "keep the other cores busy.",
        "All methods but one share the update rule (ZO-AdaMM), the rate and the radius. `recommended` brings its own: read "
        "it as what zoar can do, and ZoAR against the others as what its gradient estimate is worth.",
    ]
    if distance > bound:
        points.append(
            f"ReLIZO looks like vanilla here: with the paper's bound it reuses samples within 2·lr = {bound:g} of θ, and "
            f"they lie about μ√d = {distance:.2g} away."
        )
    points.append(
        "This is one seed: differences of a few percent mean nothing. The paper's figure is over 20,000 iterations."
    )
    return points


def _settings(settings: Mapping[str, Any]) -> Table:
    rows = [
        [method, ", ".join(f"{name}={value}" for name, value in options.items())]
        for method, options in settings["methods"].items()
    ]
    return Table(["method", "options of `zoar.minimize`"], {"": rows}, numbers=False)


def _provenance(config: Mapping[str, Any]) -> Table:
    rows = [[name, str(value)] for part in ("versions", "hardware") for name, value in config[part].items()]
    return Table(["made with", ""], {"": rows}, numbers=False)
