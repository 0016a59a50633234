"""The rows of a summary as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich import box
from rich.table import Table

from zoar.study.summary import Row, by_function, columns


def table(rows: Sequence[Row], reference: str) -> Table:
    """A section for each function; the best of each column is bold."""
    shown = columns(reference)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    grid.add_column("function", no_wrap=True, vertical="bottom")
    grid.add_column("method", no_wrap=True, vertical="bottom")
    for column in shown:
        grid.add_column("\n".join(wrap(column.title, 13)), justify="right", vertical="bottom")
    for function, group in by_function(rows).items():
        best = [column.best(group) for column in shown]
        for index, row in enumerate(group):
            cells = [
                f"[bold]{column.text(row)}[/]" if best[place][index] else column.text(row)
                for place, column in enumerate(shown)
            ]
            grid.add_row("" if index else function, row.key.method, *cells, end_section=index == len(group) - 1)
    return grid
