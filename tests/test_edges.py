"""Corners where a result could mislead: what is counted, what is called a success, what is read as what."""

from __future__ import annotations

import concurrent.futures
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch

import zoar


def bowl(x: Any) -> float:
    return float((x**2).sum())


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [np.array([[0, 1], [2, 3]]), [(0, 1), (2, 3)], ([0, 1], [2, 3])])
def test_two_pairs_for_two_numbers_are_read_as_scipy_reads_them(bounds: Any) -> None:
    options = {"lr": 0.05, "maxiter": 150}
    ours = scipy.optimize.minimize(bowl, np.array([0.5, 2.5]), method=zoar.scipy_method, bounds=bounds, options=options)
    theirs = scipy.optimize.minimize(bowl, np.array([0.5, 2.5]), bounds=bounds)
    np.testing.assert_allclose(ours.x, theirs.x, atol=0.06)  # both end in a corner, ours within a step of it
    np.testing.assert_allclose(theirs.x, [0, 2])


def test_rows_of_an_array_are_pairs_and_a_pair_of_arrays_is_lower_and_upper() -> None:
    for bounds in (
        np.array([[1.0, 2.0]] * 6),
        (np.ones(6), np.full(6, 2.0)),
        (1.0, [None, 2, 2, 2, 2, 2]),
        np.array([[1.0] * 6, [2.0] * 6]),
    ):
        result = zoar.minimize(bowl, np.full(6, 1.5), bounds=bounds, lr=0.05, max_iterations=100)
        np.testing.assert_allclose(result.x, 1.0, atol=0.06)


def test_a_state_saved_under_other_bounds_is_taken_into_these(tmp_path: Path) -> None:
    path, seen = tmp_path / "run.pt", []
    zoar.minimize(bowl, np.ones(6), max_iterations=30, checkpoint=path)
    zoar.minimize(
        lambda x: seen.append(x.min()) or bowl(x), np.full(6, 2.5), bounds=(2, 3), max_iterations=60, checkpoint=path
    )
    assert min(seen) >= 2


# -- success ----------------------------------------------------------------------------------------------------------


def test_a_target_that_the_last_theta_alone_reaches_is_reached() -> None:
    options = {"smoothing": 0.3, "lr": zoar.Linear(0.02, 0), "max_iterations": 300}
    result = zoar.minimize(bowl, np.full(20, 0.3), target=0.2, **options)
    assert result.fun <= 0.2
    assert (result.success, result.message) == (True, "Reached the target value 0.2.")
    assert zoar.minimize(bowl, np.zeros(3), target=0.0, max_iterations=0).success


@pytest.mark.parametrize("limit", [{"max_iterations": 5}, {"max_queries": 50}, {"max_iterations": 10}])
def test_a_run_without_a_value_is_no_success_and_says_why(limit: dict[str, int]) -> None:
    result = zoar.minimize(lambda x: 1 / 0, np.ones(3), on_error="drop", **limit)
    assert not result.success
    assert "The last failure: ZeroDivisionError: division by zero" in result.message
    assert isinstance(result.last_error, ZeroDivisionError)
    assert result.nfev == result.dropped


def test_a_budget_below_one_step_is_no_success() -> None:
    result = zoar.minimize(bowl, np.ones(3), max_queries=9)
    assert (result.nit, result.nfev, result.success) == (0, 1, False)
    assert result.message == "The budget of 9 evaluations is too small for one step."


def test_the_usual_number_of_iterations_does_not_cut_a_budget() -> None:
    result = zoar.minimize(lambda x: (x**2).sum(-1), np.ones(2), queries=2, max_queries=50_000, vectorized=True)
    assert result.message == "Used the budget of 50000 evaluations."
    assert result.nit > 20_000


# -- counts -----------------------------------------------------------------------------------------------------------


class Counter:
    """Counts its calls; at the `bad` one it does what is asked."""

    def __init__(self, bad: int, what: BaseException | float) -> None:
        self.calls, self._bad, self._what, self._lock = 0, bad, what, threading.Lock()

    def __call__(self, x: Any) -> float:
        with self._lock:
            self.calls += 1
            mine = self.calls
        if mine == self._bad:
            if isinstance(self._what, BaseException):
                raise self._what
            return self._what
        time.sleep(0.002)
        return bowl(x)


def test_what_a_pool_has_begun_is_counted_when_a_query_raises() -> None:
    counter = Counter(1, ValueError("no"))
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="no") as caught:
        zoar.minimize(counter, np.ones(3), executor=pool, max_iterations=3)
    assert caught.value.zoar_optimizer.nfev == counter.calls


@pytest.mark.parametrize("call", [5, 18, 27])
def test_what_an_interrupt_cut_short_is_counted_and_its_best_is_kept(call: int) -> None:
    values: list[float] = []

    def falling(x: Any) -> float:
        if len(values) + 1 == call:
            raise KeyboardInterrupt
        values.append(-len(values) - 1.0)
        return values[-1]

    result = zoar.minimize(falling, np.ones(3), max_iterations=9)
    assert result.nfev == call
    assert result.fun == min(values)


def test_a_vectorised_batch_with_one_nan_is_counted_whole() -> None:
    def function(x: Any) -> np.ndarray:
        values = (x**2).sum(-1)
        values[6] = np.nan
        return values

    with pytest.raises(zoar.NonFiniteValue, match="query 7 of 10") as caught:
        zoar.minimize(function, np.ones(3), vectorized=True, max_iterations=3)
    optimizer = caught.value.zoar_optimizer
    assert (optimizer.nfev, optimizer.dropped, len(optimizer.pending().ids)) == (10, 1, 0)


@pytest.mark.parametrize("function", [lambda x: np.zeros(3), lambda x: ["a"] * len(x), lambda x: np.full(len(x), 1e31)])
def test_a_mistake_of_a_vectorised_function_says_where_and_is_counted(function: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        zoar.minimize(function, np.ones(3, np.float32), vectorized=True, max_iterations=3)
    assert caught.value.zoar_query.step == 0
    assert caught.value.zoar_optimizer.nfev == 10


def test_a_vectorised_function_that_raises_fails_the_call_and_leaves_the_rest_to_be_asked_again() -> None:
    calls = 0

    def function(x: Any) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("the simulator is down")
        return (x**2).sum(-1)

    with pytest.raises(RuntimeError, match="the simulator is down") as caught:
        zoar.minimize(function, np.ones(3), vectorized=True, max_iterations=3)
    assert caught.value.zoar_query.step == 1
    optimizer = caught.value.zoar_optimizer
    assert (optimizer.nfev, len(optimizer.pending().ids)) == (20, 9)
    rest = optimizer.pending()
    optimizer.tell(rest.ids, function(rest.points))
    assert optimizer.nit == 2
    calls = 0
    dropped = zoar.minimize(function, np.ones(3), vectorized=True, max_iterations=3, on_error="drop")
    assert (dropped.nfev, dropped.dropped, str(dropped.last_error)) == (31, 10, "the simulator is down")


def test_evaluations_over_several_continuations_add_up(tmp_path: Path) -> None:
    calls = 0

    def counted(x: Any) -> float:
        nonlocal calls
        calls += 1
        return bowl(x)

    for iterations in (5, 10, 15):
        result = zoar.minimize(counted, np.ones(3), max_iterations=iterations, checkpoint=tmp_path / "run.pt")
    assert result.nfev == calls


def test_a_budget_holds_with_answers_in_flight() -> None:
    optimizer = zoar.Optimizer(np.ones(4), queries=10, window=50, max_queries=40)
    late: list[int] = []
    while not optimizer.stop():
        batch = optimizer.ask()
        optimizer.tell(batch.ids[:1], [1.0])
        late += batch.ids[1:]
    assert optimizer.stop().name == "QUERIES"
    optimizer.tell(late, np.ones(len(late)))
    assert optimizer.nfev <= 40


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"hello world\n" * 10, b"", b"\x80\x04K\x01.", b"PK\x03\x04rest"])
def test_a_foreign_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"notes\.txt"):
        zoar.minimize(bowl, np.ones(3), checkpoint=path, max_iterations=2)


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    zoar.minimize(bowl, np.ones(3), checkpoint=path, max_iterations=5)
    whole = path.read_bytes()
    state = zoar.checkpoint.Checkpoint.of(path, 60.0).load()
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            loaded = zoar.checkpoint.Checkpoint.of(path, 60.0).load()
        except ValueError as error:
            assert "run.pt" in str(error)  # noqa: PT017
        else:  # in the padding of the file
            assert str(loaded) == str(state)


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rules for files")
def test_a_checkpoint_that_cannot_be_written_is_known_before_the_first_query(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "run.pt", tmp_path):
        with pytest.raises(ValueError, match="cannot be written"):
            zoar.minimize(lambda x: pytest.fail("was evaluated"), np.ones(3), checkpoint=path)
    with pytest.raises(TypeError, match="checkpoint must be a path, got 3"):
        zoar.minimize(bowl, np.ones(3), checkpoint=3)
    with pytest.raises(TypeError, match="checkpoint_every must be a number"):
        zoar.minimize(bowl, np.ones(3), checkpoint_every="often")


# -- options ----------------------------------------------------------------------------------------------------------


def test_an_executor_class_makes_one_and_what_makes_none_is_told_so() -> None:
    with_class = zoar.minimize(bowl, np.ones(3), executor=ThreadPoolExecutor, max_iterations=3)
    np.testing.assert_array_equal(with_class.x, zoar.minimize(bowl, np.ones(3), max_iterations=3).x)
    with pytest.raises(TypeError, match=r"must make a concurrent\.futures\.Executor, it made None"):
        zoar.minimize(bowl, np.ones(3), executor=lambda: None, max_iterations=3)
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match="timeout must be a number"):
        zoar.minimize(bowl, np.ones(3), executor=pool, timeout="1")
    assert isinstance(concurrent.futures, object)


def test_one_more_argument_needs_no_tuple() -> None:
    assert zoar.minimize(lambda x, a: bowl(x) + a, np.ones(3), args=3, max_iterations=2).fun > 3


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: zoar.Linear(0.1, float("nan")), ValueError, "Linear end must be finite"),
        (lambda: zoar.Linear("a", 0), TypeError, "Linear start must be a number"),
        (lambda: zoar.Linear(1, 0, steps=2.5), TypeError, "Linear steps must be a whole number"),
        (lambda: zoar.Constant("a"), TypeError, "Constant level must be a number"),
        (lambda: zoar.Geometric("a", 1), TypeError, "Geometric start must be a number"),
        (lambda: zoar.RAdaZO(betas=0.9), ValueError, "betas must be two numbers"),
        (lambda: zoar.RAdaZO(eps="x"), TypeError, "eps must be a number"),
        (lambda: zoar.ReLIZO(bound="x"), TypeError, "bound must be a number"),
        (lambda: zoar.TorchUpdate("adam"), TypeError, "takes a torch.optim class"),
        (lambda: zoar.TorchUpdate(torch.optim.LBFGS), ValueError, "LBFGS evaluates a closure"),
        (lambda: zoar.TorchUpdate(torch.optim.Adam, {"foo": 1}), TypeError, "does not take the options"),
        (lambda: zoar.recommended(smoothing=0.5), TypeError, "smoothing must be two numbers"),
        (lambda: zoar.recommended(lr=float("nan")), ValueError, "lr must be a finite number above 0"),
        (lambda: zoar.Optimizer(np.ones(2)).tell(None, [1.0]), TypeError, "ids must be some of batch.ids"),
        (lambda: zoar.Optimizer(np.ones(2)).load_state_dict({"zoar": 1}), ValueError, "the state is not whole"),
        (lambda: zoar.Optimizer(np.ones(2), window="long"), TypeError, r"such as zoar\.Linear\(20, 1\)"),
        (lambda: zoar.Optimizer(torch.ones(2).to(torch.float8_e4m3fn)), TypeError, "x0 must be float16"),
    ],
)
def test_what_is_no_option_gets_a_sentence(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_numpys_numbers_and_byte_orders_are_numbers() -> None:
    assert zoar.Momentum(beta=np.float32(0.5)).beta == 0.5
    assert zoar.RAdaZO(betas=(np.float32(0.5), 0.75)).betas == (0.5, 0.75)
    assert zoar.minimize(bowl, np.ones(3, ">f8"), max_iterations=2).x.dtype == np.float64


def test_a_class_stands_for_its_usual_object() -> None:
    options = {"max_iterations": 5, "lr": 0.01}
    named = zoar.minimize(bowl, np.ones(3), "vanilla", update="momentum", directions="rademacher", **options)
    classes = zoar.minimize(bowl, np.ones(3), zoar.Vanilla, update=zoar.Momentum, directions=zoar.Rademacher, **options)
    np.testing.assert_array_equal(named.x, classes.x)


def test_a_plain_function_may_be_made_noisy() -> None:
    noisy = zoar.noisy(bowl, 0.1)
    assert noisy(np.ones(2)) != noisy(np.ones(2))


def test_theory_and_diagnostics_are_there_when_named() -> None:
    assert zoar.theory.gamma is not None
    assert zoar.diagnostics.diagnose is not None
    with pytest.raises(AttributeError, match="no attribute 'teory'"):
        zoar.teory  # noqa: B018
