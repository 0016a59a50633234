"""What studies share: the arithmetic of the table, the plots and the pieces of the page."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import zoar
from zoar.problems import PROBLEMS, Problem
from zoar.study import plots
from zoar.study.curves import Cell, Curve, Key, Point, run_cell
from zoar.study.descent import STYLES, Synthetic, findings
from zoar.study.page import Code, Points, Section, Table, Text, page
from zoar.study.summary import reference_grid, summarise

# -- the arithmetic of the table --------------------------------------------------------------------------------------


def hand_made(method: str, *values: float, function: str = "quadratic", seed: int = 0) -> Curve:
    points = tuple(Point(100 * i, 1000 * i, value) for i, value in enumerate(values))
    return Curve(Key("demo", function, "adamm", method, seed), points, ms_per_iteration=1.5)


def test_speed_up_is_vanillas_iterations_over_the_methods() -> None:
    vanilla = hand_made("vanilla", 10, 9, 8, 7, 6)
    fast, never = hand_made("fast", 10, 6, 7, 5, 4), hand_made("never", 10, 9, 9, 8, 6.5)
    table = {row.method: row for row in summarise([vanilla, fast, never], "vanilla")}
    assert (table["vanilla"].iterations, table["vanilla"].speed_up) == (400, 1.0)
    assert (table["fast"].iterations, table["fast"].speed_up) == (100, 4.0)
    assert (table["never"].iterations, table["never"].speed_up) == (None, None)
    assert (table["fast"].final, table["fast"].queries, table["fast"].ms_per_iteration) == (4, 4000, 1.5)
    grid = reference_grid([table["never"]], "vanilla")
    shown = {c.title: c.text(value) for c, value in zip(grid.columns, grid.rows[0], strict=True) if c.title}
    assert shown == {
        "function": "quadratic", "method": "never", "final value": "6.500", "iterations to match vanilla": "-",
        "speed-up": "-", "ms per iteration": "1.50",
    }  # fmt: skip


def test_over_seeds_values_are_means_and_speed_up_the_ratio_of_mean_iterations() -> None:
    """Seed 0 is matched after 100 of 200 iterations and seed 1 after 300 of 300; a seed that is not matched leaves a blank."""
    vanilla = [hand_made("vanilla", 9, 5, 3), hand_made("vanilla", 9, 8, 7, 5, seed=1)]
    fast = [hand_made("fast", 9, 3, 1), hand_made("fast", 9, 8, 7, 5, seed=1)]
    (_, row) = summarise(vanilla + fast, "vanilla")
    assert (row.seeds, row.final, row.iterations, row.speed_up) == (2, 3.0, 200, 500 / 400)
    assert row.spread == pytest.approx(8**0.5)
    never = [fast[0], hand_made("fast", 9, 8, 7, 6, seed=1)]
    (_, row) = summarise(vanilla + never, "vanilla")
    assert (row.iterations, row.speed_up) == (None, None)


def test_a_vanilla_that_stands_still_lends_nobody_a_speed_up() -> None:
    vanilla, same = hand_made("vanilla", 10, 6, 7, 7, 6), hand_made("same", 10, 6, 5, 5, 5)
    assert summarise([vanilla, same], "vanilla")[1].speed_up == 1.0


def test_a_vanilla_that_ends_above_its_start_gives_no_ratio() -> None:
    assert [row.speed_up for row in summarise([hand_made("vanilla", 5, 6), hand_made("fast", 5, 1)], "vanilla")] == [
        None,
        None,
    ]


def test_functions_are_compared_each_with_its_own_vanilla() -> None:
    curves = [hand_made("vanilla", 9, 5, 3), hand_made("fast", 9, 3, 1)]
    others = [hand_made("fast", 9, 8, 7, function="levy")]
    assert [row.speed_up for row in summarise(curves + others, "vanilla")] == [1.0, 2.0, None]


def test_the_best_of_a_column_is_the_least_but_of_speed_ups_the_greatest() -> None:
    table = summarise([hand_made("vanilla", 9, 5, 3), hand_made("fast", 9, 3, 1)], "vanilla")
    grid = reference_grid(table, "vanilla")
    marks = {
        column.name: column.marks(values)
        for column, *values in zip(grid.columns, *grid.rows, strict=True)
        if column.best
    }
    assert marks == {
        "final_value": [False, True], "iterations_to_reference": [False, True], "speed_up": [False, True],
        "ms_per_iteration": [False, False],
    }  # fmt: skip


def test_the_sentence_of_findings_says_where_it_does_not_hold() -> None:
    curves = [hand_made("vanilla", 9, 5, 3), hand_made("ZoAR N=6", 9, 3, 1)]
    curves += [hand_made("vanilla", 9, 5, 3, function="levy"), hand_made("ZoAR N=6", 9, 8, 7, function="levy")]
    (sentence,) = findings(summarise(curves, "vanilla"), "vanilla")
    assert sentence == "ZoAR N=6 reaches vanilla's final value 2.0 times sooner on 1 of 2 functions."
    assert findings([], "vanilla") == []


def test_evaluating_the_curve_is_charged_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    nap = 0.03

    def slow_for_the_curve(x: object) -> object:
        if x.ndim == 1:  # type: ignore[attr-defined]  # queries come in batches
            time.sleep(nap)
        return zoar.problem("quadratic").function(x)

    monkeypatch.setitem(PROBLEMS, "slow", Problem("slow", slow_for_the_curve, minimizer=0.0))
    cell = Cell(Key("demo", "slow", "adamm", "vanilla", 0), 50, 20, 1, {"method": "vanilla", "queries": 10})
    curve = run_cell(cell)
    assert curve.ms_per_iteration < 1e3 * nap / 2
    assert curve.points[-1].queries == 20 * 11


# -- plots ------------------------------------------------------------------------------------------------------------


def test_labels_are_spread_as_little_as_needed() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    for _ in range(200):
        places, gap = random.uniform(0, 1, 6) ** 3, 0.12
        spread = np.array(plots.spread(list(places), gap, 0.0, 1.0))
        order = np.argsort(places)
        assert (np.diff(spread[order]) >= gap - 1e-12).all()
        assert spread.min() >= -1e-12
        assert spread.max() <= 1 + 1e-12
    assert plots.spread([0.1, 0.9, 0.5], 0.2, 0.0, 1.0) == pytest.approx([0.1, 0.9, 0.5])
    assert plots.spread([], 0.2, 0.0, 1.0) == []


@pytest.mark.parametrize("values", [[5.0, 5.0], [3.0, 0.0], [1e6, 1e-9], [4e6, 3.9e6], [7.0, 2.0]])
def test_any_curve_can_be_drawn(values: list[float]) -> None:
    panels = plots.panels([hand_made("vanilla", *values)])
    drawing = plots.svg(plots.figure(panels, STYLES), text=True)
    assert "vanilla" in drawing
    assert drawing == plots.svg(plots.figure(panels, STYLES), text=True)


def test_several_seeds_are_drawn_as_their_mean_and_range() -> None:
    curves = [hand_made("vanilla", 10, 6), hand_made("vanilla", 10, 4, seed=1)]
    (line,) = plots.panels(curves)[0].lines
    assert line.low is not None
    assert line.high is not None
    assert (line.y.tolist(), line.low.tolist(), line.high.tolist()) == ([10, 5], [10, 4], [10, 6])


# -- the page ---------------------------------------------------------------------------------------------------------


def test_what_is_text_stays_text() -> None:
    text = page(
        "a < b",
        ["<script>"],
        [Section("`x` & y", [Text(["<b>"]), Code("if a < b:"), Points(["<i>"]), Table(["<u>"], {"": [["<s>"]]})])],
    )
    assert not re.search("<(script|b|i|u|s)>", text)
    assert "<h2><code>x</code> &amp; y</h2>" in text


def test_the_quick_study_keeps_the_papers_ordering() -> None:
    """ZoAR with a window below ZoHS and ZoAR without, and these below vanilla, on every function; one seed of it."""
    study = Synthetic().quick().having(seeds=1)
    ends: dict[str, dict[str, float]] = {}
    for cell in study.cells():
        if cell.key.method in ("vanilla", "ZoHS", "ZoAR N=1", "ZoAR N=6"):
            ends.setdefault(cell.key.function, {})[cell.key.method] = run_cell(cell).final
    for function, final in ends.items():
        assert final["ZoAR N=6"] < min(final["ZoHS"], final["ZoAR N=1"]), function
        assert max(final["ZoHS"], final["ZoAR N=1"]) < final["vanilla"], function
