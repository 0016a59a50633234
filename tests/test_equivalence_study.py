"""The study `equivalence`: the promise of equal curves, the program that sees only actions, and gamma."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zoar.many import ManyRuns
from zoar.problems import problem
from zoar.study.curves import Curve, Job, Key, Point
from zoar.study.equivalence import SMALL, Equivalence, Policies, Small
from zoar.study.equivalence_report import PROMISED_GAP, PROMISED_STEPS, gap, relative

TINY = Equivalence(dim=40, iterations=10, seeds=2, small_iterations=40)


def silent(iteration: int) -> None:
    pass


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    return [curve for job in TINY.jobs(TINY.cells(), None) for curve in TINY.run(job, None, silent)]


def of(curves: list[Curve], function: str, method: str, update: str = "adamm") -> list[Curve]:
    return [curve for curve in curves if curve.key[1:4] == (function, update, method)]


def test_every_cell_gets_its_curve_and_the_second_part_is_in_float64(curves: list[Curve]) -> None:
    cells = TINY.cells()
    assert [curve.key for curve in curves] == [cell.key for cell in cells]
    assert len({cell.key for cell in cells}) == len(cells) == 4 * 6 * 2 + len(SMALL) * 3 * 5
    assert {cell.start().dtype for cell in cells if isinstance(cell, Small)} == {torch.float64}
    assert all(TINY.finished(cell, curve) for cell, curve in zip(cells, curves, strict=True))


def test_the_promise_zoo_and_reinforce_trace_one_curve_for_a_thousand_steps() -> None:
    study = Equivalence(dim=50, iterations=PROMISED_STEPS, seeds=1)
    cells = [c for c in study.cells() if c.key.function == "rosenbrock" and c.key.method.endswith(" center")]
    zoo, *others = (study.run(Job((cell,)), None, silent) for cell in cells if not isinstance(cell, Small))
    assert [one[0].key.method.partition(" ")[0] for one in others] == ["REINFORCE", "method"]
    for other in others:
        found = gap(zoo, other)
        assert found is not None
        assert found.promised is not None
        assert found.promised < PROMISED_GAP
    # The program by actions is another program: it rounds otherwise.
    assert relative(zoo, others[0]).max() > 0


def test_policies_take_the_score_from_the_actions_as_they_were_rounded() -> None:
    f, start = problem("levy"), torch.ones(1, 30)
    options: dict[str, Any] = {"max_iterations": 5, "method": "reinforce", "baseline": "center", "smoothing": 0.05}
    runs, usual = Policies(start, [0], **options), ManyRuns(start, [0], **options)
    points = runs.ask()
    assert torch.equal(points, usual.ask())
    assert torch.equal(runs._rows, (points[:, :-1] - start[:, None]) / 0.05)
    assert not torch.equal(runs._rows, usual._rows)
    for one in (runs, usual):
        one.tell(f(points))
    torch.testing.assert_close(runs.theta, usual.theta, rtol=1e-6, atol=1e-6)


def test_in_float64_the_gap_is_gone_so_it_was_rounding() -> None:
    """On Ackley, where it grows fastest."""
    f = problem("ackley")
    options: dict[str, Any] = {"max_iterations": 300, "baseline": "window", "window": 6, "update": "adamm"}
    apart = {}
    for dtype in (torch.float32, torch.float64):
        start = torch.from_numpy(f.start(100)).to(dtype)[None]
        runs = [Policies(start, [0], method="reinforce", **options), ManyRuns(start, [0], method="zoar", **options)]
        for one in runs:
            while one.step < 300:
                one.tell(f(one.ask()))
        values = [float(f(one.theta.double())) for one in runs]
        apart[dtype] = abs(values[0] / values[1] - 1)
    assert 1e-9 < apart[torch.float32] < 1e-4
    assert apart[torch.float64] < 1e-11


def test_on_a_device_seeds_go_together_and_the_small_runs_do_not() -> None:
    jobs = TINY.jobs(TINY.cells(), "cpu")
    assert [len(job.cells) for job in jobs] == [2] * 24 + [1] * 30
    mine = {job.cells[0].key.method: job for job in jobs if job.cells[0].key.function == "levy"}
    zoo, actions = (TINY.run(mine[f"{name} window"], "cpu", silent) for name in ("ZOO", "REINFORCE"))
    assert [curve.key.seed for curve in actions] == [0, 1]
    assert 0 < relative(zoo, actions).max() < 1e-5


def test_gamma_translates_sgd_and_for_other_rules_zeta_takes_it(curves: list[Curve]) -> None:
    for pair in TINY.pairs():
        zoo, own = (of(curves, pair.function, method, pair.update) for method in (pair.zoo, pair.reinforce))
        apart = gap(zoo, own)
        assert apart is not None
        if pair.update == "sgd":
            assert pair.lr / pair.own_lr == pytest.approx(TINY.gamma(pair.law))
        wrong = pair.update == "radazo" and pair.zeta == 1.0  # what the corollary says of rules like Adam
        assert apart.largest > 1e-3 if wrong else apart.largest < 1e-9
        assert zoo[0].final < zoo[0].points[0].value


def hand_made(*values: float, seed: int = 0) -> Curve:
    points = tuple(Point(500 * i, 0, value) for i, value in enumerate(values))
    return Curve(Key("equivalence", "levy", "adamm", "ZOO center", seed), points, 1.0)


def test_a_gap_is_the_largest_over_seeds_and_points() -> None:
    zoo = [hand_made(8, 4, 2, 1), hand_made(8, 4, 2, 1, seed=1)]
    other = [hand_made(8, 4, 2, 1.5, seed=1), hand_made(8, 5, 2, 1)]
    assert gap(zoo, other) == (0.25, 0.5, 1500)
    assert gap(zoo, [hand_made(8, 4, 2, 1, seed=7)]) is None
    assert gap([hand_made(8, 4)], [hand_made(8, 4)]) == (None, 0.0, 0)  # it never got to 1,000 steps


def test_the_report_says_what_the_curves_say_also_of_a_part(curves: list[Curve]) -> None:
    whole = TINY.report(curves, {})
    assert [sheet.name for sheet in whole.sheets] == ["equivalence", "equivalence_gap", "equivalence_gamma"]
    assert [len(grid.rows) for grid in whole.grids.values()] == [8, 18]
    assert "Corollary 1 also names Adam" in " ".join(whole.lead)
    for sheet in whole.sheets:
        assert {line.label for panel in sheet.panels for line in panel.lines} <= set(sheet.styles)
    part = TINY.report(curves[:4], {})
    assert len(part.grids["In numbers"].rows) == 1


def test_settings_out_of_range_get_a_sentence() -> None:
    with pytest.raises(ValueError, match="window must be at least 2, got 1"):
        Equivalence(window=1)
