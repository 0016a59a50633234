"""A table of results: one set of rows, shown on a terminal, on a page and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich import box
from rich.table import Table as Terminal

from zoar.study.page import Table


def number(value: float) -> str:
    """Four digits, or all the whole ones.

    >>> [number(x) for x in (3974012.3, 581.26, 0.06, 1.25e-7)]
    ['3,974,012', '581.3', '0.06000', '1.250e-07']
    """
    size = abs(value)
    if size >= 1e3:
        return f"{value:,.0f}" if size < 1e9 else f"{value:.3e}"
    return f"{value:#.4g}" if size >= 1e-4 or value == 0 else f"{value:.3e}"


def about(value: float) -> str:
    """Two digits, for what is known no better: a spread.

    >>> [about(x) for x in (5713.6, 11.55, 0.07698, 1.155e-5)]
    ['5,700', '12', '0.077', '1.2e-05']
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.0f}" if 10 <= rounded < 1e6 else f"{rounded:.2g}"


def whole(value: float) -> str:
    """Rounded, with commas."""
    return f"{value:,.0f}"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.1f}x"


def ms(value: float) -> str:
    """Milliseconds."""
    return f"{value:.2f}"


@dataclass(frozen=True)
class Column:
    """A column: its name in the CSV, its title elsewhere (none: only in the CSV), how a value is shown, which end is best."""

    name: str
    title: str = ""
    show: Callable[[Any], str] = str
    best: str = ""  # "least" or "most"

    def text(self, value: Any) -> str:
        return "-" if value is None else self.show(value)

    def marks(self, values: Sequence[Any]) -> list[bool]:
        """Which of the values are the best; none where all are the same."""
        known = [value for value in values if value is not None]
        if not self.best or not known or min(known) == max(known):
            return [False] * len(values)
        best = max(known) if self.best == "most" else min(known)
        return [value == best for value in values]


@dataclass(frozen=True)
class Grid:
    """Rows whose first cell names their group and whose second their line; a value that is not there is None."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    def groups(self) -> dict[str, list[Sequence[Any]]]:
        """The rows of each group, in the order they came."""
        groups: dict[str, list[Sequence[Any]]] = {}
        for row in self.rows:
            groups.setdefault(str(row[0]), []).append(row)
        return groups

    def csv(self) -> str:
        """Every column, every digit."""
        return csv_text([column.name for column in self.columns], self.rows)

    def terminal(self) -> Terminal:
        """A section for each group; the best of each column is bold."""
        table = Terminal(
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            header_style="dim",
            padding=(0, 1),
            collapse_padding=True,
        )
        shown = self._shown()
        for place in shown:
            column = self.columns[place]
            table.add_column(
                "\n".join(wrap(column.title, 12)) if place > 1 else column.title,
                no_wrap=True, vertical="bottom", justify="right" if place > 1 else "left",
            )  # fmt: skip
        for group, rows in self.groups().items():
            best = self._best(rows)
            for index, row in enumerate(rows):
                texts = [(self.columns[place].text(row[place]), best[place][index]) for place in shown[1:]]
                cells = [f"[bold]{text}[/]" if emphasised else text for text, emphasised in texts]
                table.add_row("" if index else group, *cells, end_section=index == len(rows) - 1)
        return table

    def part(self) -> Table:
        """The same for a page."""
        groups = self.groups()
        cells, best = {}, {}
        shown = self._shown()[1:]
        for group, rows in groups.items():
            title = group[:1].upper() + group[1:]
            flags = self._best(rows)
            cells[title] = [[_typeset(self.columns[place].text(row[place])) for place in shown] for row in rows]
            best[title] = [[flags[place][index] for place in shown] for index in range(len(rows))]
        return Table([self.columns[place].title for place in shown], cells, best, self.caption)

    def _shown(self) -> list[int]:
        return [place for place, column in enumerate(self.columns) if column.title]

    def _best(self, rows: Sequence[Sequence[Any]]) -> list[list[bool]]:
        return [column.marks([row[place] for row in rows]) for place, column in enumerate(self.columns)]


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _typeset(text: str) -> str:
    if text == "-":
        return "–"
    return f"{text[:-1]}×" if text.endswith("x") and text[:-1].replace(".", "").isdigit() else text
