"""The study `theory`: the constants it supposes, that it measures the library's estimate, and what it says."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoar
from zoar.study import plots
from zoar.study.curves import Curve
from zoar.study.window_redraws import KNOWN, Given, Known, Walk, errors, redraw
from zoar.study.window_theory import OFFSETS, Theory
from zoar.theory import Run, path_bound, window_bias, window_target

TINY = Theory(
    dim=10, smoothing=0.4, rates=(1e-2, 5e-2), queries=(2, 5), windows=(1, 2, 8), redraws=200, live_queries=5, live_steps=30, stride=0.2
)  # fmt: skip


def silent(iteration: int) -> None:
    pass


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    found = {curve.key: curve for job in TINY.jobs(TINY.cells(), None) for curve in TINY.run(job, None, silent)}
    return [found[cell.key] for cell in TINY.cells()]


def sphere(count: int, dim: int) -> Tensor:
    u = torch.from_numpy(np.random.Generator(np.random.PCG64(0)).standard_normal((count, dim)))
    return u / u.norm(dim=-1, keepdim=True)


# -- what is supposed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", KNOWN.values(), ids=KNOWN)
def test_the_constants_hold_and_the_levels_and_gradients_are_those_of_the_smoothed_function(function: Known) -> None:
    """Averages over 40,000 points of the sphere and the ball; five standard errors."""
    dim, radius = 4, 1.5
    theta = function.start(dim) + torch.tensor([0.3, -0.2, 0.5, 0.1], dtype=torch.float64)
    u = sphere(40_000, dim)
    values = function(theta + radius * u)
    known = function.constants(theta[None], radius)
    assert float(values.mean() - function.level(theta[None], radius)[0]) == pytest.approx(
        0, abs=5 * float(values.std()) / 200 + 1e-12
    )
    assert float(values.std()) < 1.02 * known.sigma_mu
    samples = dim / radius * (values - values.mean())[:, None] * u  # Flaxman et al.
    assert (
        (samples.mean(0) - function.gradient(theta[None], radius)[0]).abs() < 5 * samples.std(0) / 200 + 1e-12
    ).all()  # fmt: skip

    pair = torch.stack([theta, 0.9 * theta])
    apart = float((pair[0] - pair[1]).norm())
    assert float((function(pair[0]) - function(pair[1])).abs()) <= known.L0 * apart + 1e-12
    slopes = function.gradient(pair, 1e-3)
    assert float((slopes[0] - slopes[1]).abs().max()) <= known.L1 * apart + 1e-12


# -- what is measured ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["window", "batch"])
def test_a_redraw_is_the_estimate_of_zoar_itself(baseline: str) -> None:
    """The draws of one redraw, given to `zoar.Optimizer` on the same thetas."""
    function, path = KNOWN["quadratic"], torch.linspace(1, 2, 3, dtype=torch.float64)[:, None] * torch.ones(6).double()
    mine = redraw(function, path, 4, 0.5, 1, baseline, seed=7)
    rule = Given(path)
    optimizer = zoar.Optimizer(
        path[0], queries=4, window=3, smoothing=0.5, update=rule, directions="sphere", baseline=baseline, seed=7
    )
    for _ in path:
        batch = optimizer.ask()
        optimizer.tell(batch.ids, function(batch.points))
    torch.testing.assert_close(mine[0], rule.estimate, rtol=1e-10, atol=1e-10)


def test_redraws_have_the_mean_and_the_error_that_the_theorems_give() -> None:
    """A slope at one theta: (d - 1)/(NK) in all, and no bias; a path on the quadratic: the bias of Thm bias-analysis."""
    function, path = KNOWN["slope"], torch.zeros(3, 8, dtype=torch.float64)
    found = errors(redraw(function, path, 4, 0.5, 1500, "optimal", 1), function.gradient(path, 0.5)[-1])
    assert abs(found["variance"].value - 7 / 12) < 5 * found["variance"].error
    assert abs(found["bias"].value) < 5 * found["bias"].error
    assert found["error"].value == pytest.approx(found["variance"].value, rel=0.01)

    function, path = KNOWN["quadratic"], torch.linspace(1, 2, 4, dtype=torch.float64)[:, None] * torch.ones(8).double()
    gradients = function.gradient(path, 0.5)
    for baseline in ("window", "batch"):
        estimates = redraw(function, path, 4, 0.5, 1500, baseline, 1)
        found = errors(estimates, gradients[-1])
        assert abs(found["bias"].value - window_bias(gradients) ** 2) < 5 * found["bias"].error
        mean = estimates.mean(0) - window_target(gradients)
        assert (mean.abs() < 5 * estimates.std(0) / math.sqrt(1500)).all()
    best = float(function.level(path, 0.5).mean())
    found = errors(redraw(function, path, 4, 0.5, 1500, "optimal", 1, best), gradients[-1])
    bound = path_bound(function.constants(path, 0.5), Run(8, 4, 4, 0.5), path)
    assert found["error"].value < bound.total


def test_a_shadow_asks_what_the_run_asked() -> None:
    walk = Walk(KNOWN["quadratic"], 6, 3, 4, 0.5, 0.05, 25)
    path = walk.thetas()
    assert torch.equal(path, walk.thetas())
    assert len(path) == 25
    assert not torch.equal(path[0], path[1])
    seen = walk.diagnosed(path, 1, 10)
    assert seen["diagnosed drift"] == 0
    assert 0 < seen["live error"] < 100


# -- what is said -------------------------------------------------------------------------------------------------------


def test_every_cell_gets_its_curve_over_all_windows(curves: list[Curve]) -> None:
    for cell, curve in zip(TINY.cells(), curves, strict=True):
        assert TINY.finished(cell, curve)
        places = list(OFFSETS) if cell.key.update == "baseline" else list(TINY.windows)
        assert [point.iteration for point in curve.points] == places
    jobs = TINY.jobs(TINY.cells(), "cuda")
    assert len(jobs) == 3 * 2 * 2 + 1 + 3
    assert {job.name for job in jobs} >= {"wave, lr=0.01, K=2", "slope, straight line, K=5"}


def test_some_of_a_jobs_curves_may_be_asked_for_alone(curves: list[Curve]) -> None:
    cells = [cell for cell in TINY.cells() if cell.key.method == "K=2 bound" and cell.key.function == "wave"]
    (job, _) = TINY.jobs(cells, None)
    (curve,) = TINY.run(job, None, silent)
    assert curve.points == next(one for one in curves if one.key == curve.key).points


def test_the_report_says_what_the_curves_say_also_of_a_part(curves: list[Curve]) -> None:
    whole = TINY.report(curves, {})
    assert [len(sheet.panels) for sheet in whole.sheets] == [4, 2, 2, 3, 2]
    for sheet in whole.sheets:
        assert {line.label for panel in sheet.panels for line in panel.lines} <= set(sheet.styles)
    assert [len(grid.rows) for grid in whole.grids.values()] == [3 * 2, 2 * 3]
    text = " ".join(whole.lead)
    assert "of 36 points" in text
    assert "on a straight line of even steps the error is above the printed bound" in text
    drawn = plots.svg(plots.figure(whole.sheets[0].panels[:1], whole.sheets[0].styles), text=True)
    words = re.findall(r">([^<>]*)</text>", drawn)  # ticks at the points; no names for the broken lines
    assert words[:4] == ["1", "2", "8", "N"]
    assert words[-3:] == ["lr=0.01", "lr=0.05", "Slope"]
    for part in (curves[:1], curves[:40], curves[-4:]):
        TINY.report(part, {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"live_queries": 3}, "live_queries must be one of queries"),
        ({"redraws": 1}, "redraws must be at least 2, got 1"),
        ({"live_steps": 40}, "at least twice the longest window, got 40"),
    ],
)
def test_settings_out_of_range_get_a_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Theory(**options)
