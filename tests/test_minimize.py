"""zoar.minimize as its users meet it, and zoar.scipy_method."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.optimize
import torch
from scipy.optimize import Bounds, OptimizeResult, OptimizeWarning

import zoar
from zoar.stopping import StopReason


def bowl(x: np.ndarray) -> float:
    return float(((x - 0.5) ** 2).sum())


FAST = {"lr": 0.05, "smoothing": 0.01, "max_iterations": 300}


def test_numpy_in_numpy_out_of_any_shape() -> None:
    seen = []

    def fun(x: np.ndarray) -> float:
        seen.append(x.shape)
        return bowl(x)

    result = zoar.minimize(fun, np.zeros((2, 3)), **FAST)
    assert isinstance(result, OptimizeResult)
    assert isinstance(result.x, np.ndarray)
    assert (result.x.shape, result.x.dtype, set(seen)) == ((2, 3), np.float64, {(2, 3)})
    assert result.fun == bowl(result.x) < 1e-3
    assert result.best_fun == bowl(result.best_x) <= result.fun


def test_torch_in_torch_out() -> None:
    x0 = torch.zeros(6)
    result = zoar.minimize(lambda x: ((x - 0.5) ** 2).sum(), x0, **FAST)
    assert isinstance(result.x, torch.Tensor)
    assert result.x.dtype == torch.float32
    assert result.fun < 1e-3
    assert torch.equal(x0, torch.zeros(6))


def test_a_function_that_changes_its_argument_changes_nothing_else() -> None:
    def rude(x: np.ndarray) -> float:
        value = bowl(x)
        x[:] = 1e9
        return value

    polite, spoiled = (zoar.minimize(fun, np.zeros(4), **FAST) for fun in (bowl, rude))
    np.testing.assert_array_equal(polite.x, spoiled.x)
    np.testing.assert_array_equal(polite.best_x, spoiled.best_x)


def test_numpy_numbers_are_numbers() -> None:
    options = {
        "queries": np.int64(4),
        "window": np.int32(3),
        "lr": np.float32(0.05),
        "seed": np.uint64(2**63),
        "target": np.float32(0.01),
    }
    assert zoar.minimize(bowl, np.zeros(4), max_iterations=np.int64(200), **options).status == 0


def test_integers_and_scalars_start_a_run() -> None:
    assert zoar.minimize(bowl, [0, 0], **FAST).x.dtype == np.float64
    assert zoar.minimize(bowl, 3, **FAST).x.shape == (1,)


@pytest.mark.parametrize(
    ("options", "reason", "success"),
    [
        ({"max_iterations": 7}, StopReason.ITERATIONS, True),
        ({"max_queries": 75}, StopReason.QUERIES, True),
        ({"max_time": 0.05, "max_iterations": None}, StopReason.TIME, True),
        ({"target": 0.3, "lr": 0.05}, StopReason.TARGET, True),
        ({"target": -1.0, "max_iterations": 5}, StopReason.ITERATIONS, False),
        ({"patience": 5, "tol": 1e6}, StopReason.STAGNATION, True),
    ],
    ids=str,
)
def test_each_end_has_its_sentence(options: dict, reason: StopReason, success: bool) -> None:
    result = zoar.minimize(bowl, np.zeros(4), **options)
    assert (result.status, result.success) == (reason.status, success)
    assert result.message == reason.message(zoar.Optimizer(np.zeros(4), **options).budget)
    assert len(result.message) > 20
    if "max_queries" in options:
        assert result.nfev <= 75


def test_the_target_is_met_by_x() -> None:
    result = zoar.minimize(bowl, np.zeros(4), target=0.01, lr=0.05)
    assert result.fun == bowl(result.x) <= 0.01


def test_maximising_reports_the_users_values() -> None:
    result = zoar.minimize(lambda x: -bowl(x), np.zeros(4), sense="max", target=-0.01, lr=0.05)
    assert result.status == 0
    assert result.fun == -bowl(result.x) >= -0.01
    assert (np.diff(result.history["best"]) >= 0).all()


@pytest.mark.parametrize(
    "bounds", [(0.6, 2.0), [(0.6, 2.0)] * 4, Bounds(0.6, 2.0), Bounds([0.6] * 4, [2.0] * 4), [(0.6, None)] * 4]
)
def test_bounds_hold_for_every_query(bounds: object) -> None:
    inside = []
    highest = np.inf if isinstance(bounds, list) and bounds[0][1] is None else 2.0

    def fun(x: np.ndarray) -> float:
        inside.append(bool((x >= 0.6).all() and (x <= highest).all()))
        return bowl(x)

    result = zoar.minimize(fun, np.ones(4), bounds=bounds, **FAST)
    assert all(inside)
    np.testing.assert_allclose(result.x, 0.6, atol=0.02)


def test_both_callback_styles_and_stop_iteration() -> None:
    points, results = [], []

    def old_style(x: np.ndarray) -> None:
        points.append(x)

    def new_style(intermediate_result: OptimizeResult) -> None:
        results.append(intermediate_result)
        if intermediate_result.nit == 4:
            raise StopIteration

    zoar.minimize(bowl, np.zeros(4), callback=old_style, max_iterations=5)
    assert len(points) == 5
    assert not np.array_equal(points[0], points[4])
    result = zoar.minimize(bowl, np.zeros(4), callback=new_style)
    assert (result.status, result.success, result.nit) == (99, False, 4)
    assert [r.nfev for r in results] == [10, 20, 30, 40]


def test_sigint_returns_the_best_so_far() -> None:
    """A real signal, in the middle of an evaluation."""

    def slow(x: np.ndarray) -> float:
        time.sleep(0.001)
        return bowl(x)

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = zoar.minimize(slow, np.zeros(4))
    timer.join()
    assert (result.status, result.success) == (98, False)
    assert result.fun == result.best_fun == bowl(result.x)
    assert "Interrupted" in result.message


def test_history_has_one_entry_an_iteration() -> None:
    result = zoar.minimize(bowl, np.zeros(4), max_iterations=20)
    assert {name: len(values) for name, values in result.history.items()} == {"nfev": 20, "value": 20, "best": 20}
    assert (np.diff(result.history["best"]) <= 0).all()


def test_no_iterations_is_one_evaluation() -> None:
    result = zoar.minimize(bowl, np.zeros(4), max_iterations=0)
    assert (result.nit, result.nfev, result.fun) == (0, 1, 1.0)


def test_progress_shows_value_and_queries(capsys: pytest.CaptureFixture[str]) -> None:
    zoar.minimize(bowl, np.zeros(4), max_iterations=20, progress=True)
    assert "200 queries" in capsys.readouterr().out


def test_a_run_that_only_fails_ends() -> None:
    def broken(x: np.ndarray) -> float:
        raise RuntimeError("never works")

    result = zoar.minimize(broken, np.zeros(4), on_error="drop")
    assert (result.status, result.success) == (StopReason.FAILING.status, False)
    assert result.dropped == result.nfev == 101  # ten batches of ten, and the last theta
    np.testing.assert_array_equal(result.x, 0.0)


def test_extra_arguments_reach_the_function() -> None:
    assert zoar.minimize(lambda x, a, b: a * bowl(x) + b, np.zeros(2), args=(2.0, 3.0), max_iterations=0).fun == 4.0


def test_recommended_beats_the_paper_setting_on_a_small_problem() -> None:
    problem = zoar.problem("rosenbrock")
    x0 = problem.start(100, seed=3)
    budget = {"max_queries": 20_000, "vectorized": True}
    ours = zoar.minimize(problem, x0, **zoar.recommended(**budget))
    paper = zoar.minimize(problem, x0, queries=10, window=6, smoothing=0.05, lr=1e-3, update="adamm", **budget)
    assert ours.fun < paper.fun


@pytest.mark.parametrize("name", ["quadratic", "ackley", "levy", "rosenbrock"])
def test_recommended_is_ahead_in_a_short_run_too(name: str) -> None:
    """Five queries a variable: the rate must not grow with the shortness of the run until noise carries theta away."""
    problem = zoar.problem(name)
    x0, budget = problem.start(1_000, seed=3), {"max_queries": 5_000, "vectorized": True}
    ours = zoar.minimize(problem, x0, **zoar.recommended(dim=1_000, max_queries=5_000), vectorized=True)
    paper = zoar.minimize(problem, x0, queries=10, window=6, smoothing=0.05, lr=1e-3, update="adamm", **budget)
    assert ours.fun < paper.fun < problem(x0)


class TestScipy:
    def test_it_is_a_method_of_scipy_minimize(self) -> None:
        result = scipy.optimize.minimize(
            bowl,
            np.zeros(4),
            method=zoar.scipy_method,
            bounds=[(0.0, 0.4)] * 4,
            options={"queries": 10, "window": 6, "lr": 0.05, "maxiter": 200},
        )
        assert (result.nit, result.success) == (200, True)
        np.testing.assert_allclose(result.x, 0.4, atol=0.02)

    def test_scipy_s_own_names_and_tol(self) -> None:
        options = {"maxfev": 95, "lr": 0.05}
        result = scipy.optimize.minimize(bowl, np.zeros(4), method=zoar.scipy_method, options=options)
        assert result.nfev <= 95
        result = scipy.optimize.minimize(bowl, np.zeros(4), method=zoar.scipy_method, tol=10.0)
        assert result.status == StopReason.STAGNATION.status
        with pytest.raises(ValueError, match="mean the same"):
            zoar.scipy_method(bowl, np.zeros(4), maxiter=3, max_iterations=4)

    def test_callbacks_and_arguments(self) -> None:
        seen = []
        scipy.optimize.minimize(
            lambda x, a: a * bowl(x),
            np.zeros(4),
            args=(2.0,),
            method=zoar.scipy_method,
            callback=seen.append,
            options={"maxiter": 3},
        )
        assert len(seen) == 3

    def test_constraints_are_refused_and_gradients_ignored_aloud(self) -> None:
        with pytest.raises(ValueError, match="no constraints"):
            scipy.optimize.minimize(
                bowl, np.zeros(4), method=zoar.scipy_method, constraints={"type": "eq", "fun": bowl}
            )
        with pytest.warns(OptimizeWarning, match="ignores jac"):
            scipy.optimize.minimize(
                bowl, np.zeros(4), method=zoar.scipy_method, jac=lambda x: 2 * x, options={"maxiter": 2}
            )
