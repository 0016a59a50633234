"""Curves held against a reference method: the table that most studies print."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zoar.study.curves import Curve, grouped, mean
from zoar.study.grid import Column, Grid, about, ms, number, times, whole


@dataclass(frozen=True)
class Row:
    """The curves of one setting in numbers, over its seeds; None where the reference's final value is not reached by all."""

    function: str
    update: str
    method: str
    seeds: int
    queries: int
    final: float
    spread: float | None  # standard deviation over seeds
    iterations: float | None
    speed_up: float | None
    ms_per_iteration: float


def summarise(curves: Iterable[Curve], reference: str) -> list[Row]:
    """A row for each setting, held against the `reference` method on the same function, seed by seed.

    The reference is held against itself by the same rule, the first iteration at its final value or below: were it
    charged all its iterations, one that has stopped descending would lend the others a speed-up. Over seeds, speed-up is
    the ratio of the mean iterations.
    """
    groups = grouped(curves)
    # Not by update: a method may bring its own, and is compared all the same.
    references = {
        (function, curve.key.seed): curve
        for (function, _, method), group in groups.items()
        if method == reference
        for curve in group
    }
    return [
        _row(*name, group, [references.get((name[0], curve.key.seed)) for curve in group])
        for name, group in groups.items()
    ]


def _row(function: str, update: str, method: str, curves: Sequence[Curve], references: Sequence[Curve | None]) -> Row:
    iterations: list[int] = []
    own: list[int] = []
    for curve, reference in zip(curves, references, strict=True):
        if reference is None:
            continue
        needed, charged = curve.iterations_to(reference.final), reference.iterations_to(reference.final)
        if needed and charged:  # 0 iterations: the reference ended above its start
            iterations.append(needed)
            own.append(charged)
    reached = len(iterations) == len(curves)
    finals = [curve.final for curve in curves]
    return Row(
        function, update, method, len(curves), curves[0].points[-1].queries, mean(finals),
        statistics.stdev(finals) if len(finals) > 1 else None,
        mean(iterations) if reached else None, sum(own) / sum(iterations) if reached else None,
        mean([curve.ms_per_iteration for curve in curves]),
    )  # fmt: skip


def reference_grid(rows: Sequence[Row], reference: str) -> Grid:
    """The rows as a table; to match the reference is to reach its final value."""
    many = any(row.seeds > 1 for row in rows)
    columns = [
        Column("function", "function"),
        Column("method", "method"),
        Column("update"),
        Column("seeds"),
        Column("queries"),
        Column("final_value", "final value", number, "least"),
        Column("final_value_sd", "±" if many else "", about),
        Column("iterations_to_reference", f"iterations to match {reference}", whole, "least"),
        Column("speed_up", "speed-up", times, "most"),
        Column("ms_per_iteration", "ms per iteration", ms, "least"),
    ]
    cells = [
        [
            row.function, row.method, row.update, row.seeds, row.queries, row.final, row.spread, row.iterations, row.speed_up,
            row.ms_per_iteration,
        ]
        for row in rows
    ]  # fmt: skip
    caption = "The best value of each column is emphasised, function by function."
    if many:
        caption = f"Means over {max(row.seeds for row in rows)} seeds; ± is their standard deviation. {caption}"
    return Grid(columns, cells, caption)
