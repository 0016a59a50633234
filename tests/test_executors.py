"""Executors, and what becomes of exceptions, time-outs and dead workers in them."""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import loky
import numpy as np
import pytest

import zoar


def bowl(x: np.ndarray) -> float:
    return float((x**2).sum())


def dies_once(x: np.ndarray, marker: str) -> float:
    """Kills its worker the first time it is called."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return bowl(x)
    os._exit(1)


def fails_on_positive(x: np.ndarray) -> float:
    if x[0] > 1.0:
        raise ValueError("too far")
    return bowl(x)


def processes() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


EXECUTORS = {
    "threads": functools.partial(ThreadPoolExecutor, 3),
    "processes": processes,
    "loky": functools.partial(loky.ProcessPoolExecutor, 2),
}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_every_executor_traces_the_serial_run(kind: str) -> None:
    options = {"max_iterations": 5, "queries": 4, "on_error": "drop"}
    serial = zoar.minimize(fails_on_positive, np.ones(6), **options)
    assert serial.dropped > 0
    with EXECUTORS[kind]() as pool:
        pooled = zoar.minimize(fails_on_positive, np.ones(6), executor=pool, **options)
    np.testing.assert_array_equal(pooled.x, serial.x)
    assert (pooled.nfev, pooled.dropped) == (serial.nfev, serial.dropped)


def test_an_exception_in_a_worker_carries_its_place() -> None:
    with processes() as pool, pytest.raises(ValueError, match="too far") as caught:
        zoar.minimize(fails_on_positive, np.ones(6), executor=pool)
    assert any("of 10 in step 0" in note for note in caught.value.__notes__)


def test_a_time_out_loses_the_query() -> None:
    def sometimes_slow(x: np.ndarray) -> float:
        if x[0] > 1.0:
            time.sleep(0.5)
        return bowl(x)

    with ThreadPoolExecutor(20) as pool:
        result = zoar.minimize(
            sometimes_slow, np.ones(3), executor=pool, timeout=0.1, on_error="drop", max_iterations=1
        )
        assert 0 < result.dropped < 11
        with pytest.raises(zoar.QueryFailed, match=r"no value within 0\.1 seconds"):
            zoar.minimize(sometimes_slow, np.ones(3), executor=pool, timeout=0.1, max_iterations=1)


def test_a_dead_worker_of_a_factory_is_replaced(tmp_path: object) -> None:
    marker = str(tmp_path / "died")
    result = zoar.minimize(
        dies_once, np.ones(6), args=(marker,), executor=processes, queries=4, max_iterations=4, on_error="drop"
    )
    assert 0 < result.dropped <= 4  # the pool that died takes its batch along
    assert result.nit == 4
    assert np.isfinite(result.fun)


def test_a_dead_worker_of_a_given_pool_says_what_to_do(tmp_path: object) -> None:
    marker = str(tmp_path / "died")
    with processes() as pool, pytest.raises(zoar.QueryFailed, match="Pass executor=<a function that makes the pool>"):
        zoar.minimize(dies_once, np.ones(6), args=(marker,), executor=pool, queries=4, max_iterations=4)
