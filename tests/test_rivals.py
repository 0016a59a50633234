"""Other people's optimizers: the same start, an exact budget, every query counted, and nothing left behind."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoar
from zoar.study.rivals import RIVALS, NotInstalled, Outcome, Rival

DIM = 20
X0 = zoar.problem("quadratic").start(DIM, seed=0).astype(np.float64)
SEEDLESS = {"Nelder-Mead (SciPy)", "Powell (SciPy)"}

Curve = list[tuple[int, np.ndarray]]


@pytest.fixture(params=list(RIVALS))
def rival(request: pytest.FixtureRequest) -> Rival:
    rival = RIVALS[request.param]
    try:
        rival.check_installed()
    except NotInstalled:
        pytest.skip(f"{rival.package} is not installed (pip install 'zoar[rivals]')")
    return rival


def run(rival: Rival, function: Any, max_queries: int, options: Any, seed: int = 0) -> tuple[Outcome, Curve]:
    curve: Curve = []
    outcome = rival.run(function, X0, max_queries, seed, options, lambda queries, x: curve.append((queries, x)))
    return outcome, curve


# -- every rival ------------------------------------------------------------------------------------------------------


def test_the_budget_is_exact_and_every_query_is_counted(rival: Rival) -> None:
    rosenbrock, budget = zoar.problem("rosenbrock"), 1009  # a prime: no population divides it
    asked = 0

    def counted(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        assert (x.dtype, x.ndim, x.shape[1]) == (np.float64, 2, DIM)
        asked += len(x)
        return rosenbrock(x)

    for options in rival.settings.values():
        asked = 0
        outcome, curve = run(rival, counted, budget, options)
        assert outcome.queries == asked == budget
        assert 0 < outcome.evaluating < outcome.seconds
        counts = [queries for queries, _ in curve]
        assert (counts[0], counts[-1]) == (0, budget)
        assert counts == sorted(set(counts))
        np.testing.assert_array_equal(curve[0][1], X0)


def test_the_curve_has_some_two_hundred_points(rival: Rival) -> None:
    options = next(iter(rival.settings.values()))
    _, curve = run(rival, zoar.problem("rosenbrock"), 8000, options)
    assert 190 <= len(curve) <= 202


def test_the_same_seed_gives_the_same_curve(rival: Rival) -> None:
    options = list(rival.settings.values())[-1]
    first, again, other = (run(rival, zoar.problem("levy"), 600, options, seed)[1] for seed in (3, 3, 4))
    for (queries, x), (queries_again, x_again) in zip(first, again, strict=True):
        assert queries == queries_again
        np.testing.assert_array_equal(x, x_again)
    assert (rival.name in SEEDLESS) == np.array_equal(first[-1][1], other[-1][1])


def test_global_random_states_are_left_alone(rival: Rival) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    for options in rival.settings.values():
        run(rival, zoar.problem("quadratic"), 100, options)
    rival.check_installed()
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_it_descends_a_quadratic(rival: Rival) -> None:
    quadratic = zoar.problem("quadratic")
    finals = {
        label: quadratic(run(rival, quadratic, 4000, options)[1][-1][1]) for label, options in rival.settings.items()
    }
    assert min(finals.values()) < 0.3 * quadratic(X0), finals


def test_it_tells_its_version(rival: Rival) -> None:
    assert rival.version()[0].isdigit()


# -- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(RIVALS))
def test_one_that_is_not_installed_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rival = RIVALS[name]
    monkeypatch.setitem(sys.modules, rival.modules[0], None)
    sentence = rf"^{rival.package} is not installed: pip install 'zoar\[rivals\]'"
    with pytest.raises(NotInstalled, match=sentence):
        rival.check_installed()
    with pytest.raises(NotInstalled, match=sentence):
        rival.version()
    with pytest.raises(NotInstalled, match=sentence):
        run(rival, zoar.problem("quadratic"), 100, {})


def test_all_have_the_same_number_of_settings() -> None:
    assert {len(rival.settings) for rival in RIVALS.values()} == {3}


def test_the_extra_has_every_package() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = " ".join(project["optional-dependencies"]["rivals"])
    assert [rival.package for rival in RIVALS.values() if rival.package not in extra] == ["scipy", "scipy"]


def test_importing_the_list_imports_none_of_them() -> None:
    packages = sorted({rival.package for rival in RIVALS.values()} - {"scipy"} | {"ray"})
    code = f"import sys, zoar.study.rivals; print([name for name in {packages} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- the counting, on rivals made for it ------------------------------------------------------------------------------


def made_up(adapter: Any, largest_dim: int | None = None) -> Rival:
    return Rival("made up", "numpy", ("numpy",), adapter, {"only": {}}, largest_dim)


def populations(function: Any, x0: np.ndarray, seed: int, options: Any) -> None:
    """Ten points an iteration; the answer is the last point but of whole populations only."""
    while True:
        points = x0 + np.random.standard_normal((10, x0.size))  # noqa: NPY002  # the global state, as packages do
        function(points)
        function.iterated(lambda points=points: points[-1])


def test_a_population_across_the_end_is_evaluated_up_to_it_and_not_used() -> None:
    sizes = []

    def function(x: np.ndarray) -> np.ndarray:
        sizes.append(len(x))
        return x.sum(-1)

    outcome, curve = run(made_up(populations), function, 25, {})
    assert sizes == [10, 10, 5]
    assert (outcome.queries, outcome.iterations) == (25, 2)
    assert [queries for queries, _ in curve] == [0, 10, 20, 25]
    np.testing.assert_array_equal(curve[2][1], curve[3][1])


def test_recording_is_charged_to_nobody() -> None:
    curve = []

    def record(queries: int, x: np.ndarray) -> None:
        time.sleep(0.02)
        curve.append(queries)

    outcome = made_up(populations).run(zoar.problem("quadratic"), X0, 200, 0, {}, record)
    assert len(curve) == 21
    assert outcome.seconds < 0.2
    assert outcome.ms_per_iteration == pytest.approx(1e3 * outcome.seconds / 20)


def test_one_that_stops_early_says_how_many_queries_it_made() -> None:
    outcome, curve = run(
        made_up(lambda function, x0, seed, options: function.one(x0)), zoar.problem("quadratic"), 9, {}
    )
    assert outcome.queries == 1
    assert np.isnan(outcome.ms_per_iteration)
    assert [queries for queries, _ in curve] == [0, 1]


def test_what_the_function_raises_comes_through_and_random_states_are_put_back() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    with pytest.raises(ZeroDivisionError):
        run(made_up(populations), broken, 100, {})
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_bad_input_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="made up is for at most 10 dimensions, got 20"):
        run(made_up(populations, largest_dim=10), zoar.problem("quadratic"), 100, {})
    with pytest.raises(ValueError, match="max_queries must be at least 1, got 0"):
        run(made_up(populations), zoar.problem("quadratic"), 0, {})
