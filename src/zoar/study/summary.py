"""Curves -> the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from zoar.study.curves import Curve, Key


@dataclass(frozen=True)
class Row:
    """One curve in numbers; `iterations` and `speed_up` are None where the reference's final value is not reached."""

    key: Key
    queries: int
    final: float
    iterations: int | None
    speed_up: float | None
    ms_per_iteration: float


def summarise(curves: Iterable[Curve], reference: str) -> list[Row]:
    """A row for each curve, held against the `reference` method on the same function, update and seed.

    The reference is held against itself by the same rule, the first iteration at its final value or below: were it
    charged all its iterations, one that has stopped descending would lend the others a speed-up.
    """
    curves = list(curves)
    references = {_problem(curve.key): curve for curve in curves if curve.key.method == reference}
    return [_row(curve, references.get(_problem(curve.key))) for curve in curves]


def _problem(key: Key) -> tuple[str, str, int]:
    # Not the update: `recommended` brings its own, and is compared all the same.
    return key.study, key.function, key.seed


def _row(curve: Curve, reference: Curve | None) -> Row:
    iterations, speed_up = None, None
    if reference is not None:
        iterations, own = curve.iterations_to(reference.final), reference.iterations_to(reference.final)
        if iterations and own:  # 0 iterations: the reference ended above its start
            speed_up = own / iterations
    return Row(curve.key, curve.points[-1].queries, curve.final, iterations, speed_up, curve.ms_per_iteration)


@dataclass(frozen=True)
class Column:
    """A column of the table: what of a row it shows, how, and which end is best."""

    title: str
    value: Callable[[Row], float | None]
    show: Callable[[float], str]
    most: bool = False

    def text(self, row: Row) -> str:
        value = self.value(row)
        return "-" if value is None else self.show(value)

    def best(self, rows: Sequence[Row]) -> list[bool]:
        """Which of the rows have the best value; none where all are the same."""
        known = [value for row in rows if (value := self.value(row)) is not None]
        if not known or min(known) == max(known):
            return [False] * len(rows)
        best = max(known) if self.most else min(known)
        return [self.value(row) == best for row in rows]


def number(value: float) -> str:
    """Four digits, or all the whole ones.

    >>> [number(x) for x in (3974012.3, 581.26, 0.06, 1.25e-7)]
    ['3,974,012', '581.3', '0.06000', '1.250e-07']
    """
    size = abs(value)
    if size >= 1e3:
        return f"{value:,.0f}" if size < 1e9 else f"{value:.3e}"
    return f"{value:#.4g}" if size >= 1e-4 or value == 0 else f"{value:.3e}"


def columns(reference: str) -> list[Column]:
    """The columns of every study against a reference; to match it is to reach its final value."""
    return [
        Column("final value", lambda row: row.final, number),
        Column(f"iterations to match {reference}", lambda row: row.iterations, lambda value: f"{value:,.0f}"),
        Column("speed-up", lambda row: row.speed_up, lambda value: f"{value:.1f}x", most=True),
        Column("ms per iteration", lambda row: row.ms_per_iteration, lambda value: f"{value:.2f}"),
    ]


def by_function(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each function, in the order they came."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key.function, []).append(row)
    return groups
