"""The nine contracts of the design, by name. Each test would fail if its contract were broken."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import zoar


def bowl(x: np.ndarray) -> float:
    return float((x**2).sum())


LAWS = [zoar.Gaussian(), zoar.Sphere(), zoar.Coordinate(), zoar.Rademacher()]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_contract_1_unbiased(law: zoar.Smoothing) -> None:
    """E[g] = grad F_mu for a linear function, whose smoothed gradient is its own, under the paper's baseline.

    20,000 independent estimates of K=4: each component within five of its own standard errors.
    """
    slope = np.array([1.0, -2.0, 0.5, 3.0, 0.0])
    optimizer = zoar.Optimizer(
        np.zeros(5), queries=4, window=1, smoothing=0.5, lr=1.0, update="sgd", directions=law, seed=4
    )
    estimates = []
    for _ in range(20_000):
        before = optimizer.x
        batch = optimizer.ask()
        optimizer.tell(batch.ids, 7.0 + batch.points @ slope)
        estimates.append(before - optimizer.x)
    mean, error = np.mean(estimates, 0), np.std(estimates, 0) / len(estimates) ** 0.5
    assert (np.abs(mean - slope) < 5 * error).all()


@pytest.mark.parametrize(
    "law", [zoar.Sphere(), zoar.Coordinate(), zoar.Gaussian(), zoar.Rademacher()], ids=lambda law: law.name
)
def test_contract_1_scale_paper_leaves_the_covariance_factor_out(law: zoar.Smoothing) -> None:
    steps = []
    for scale in ("unbiased", "paper"):
        optimizer = zoar.Optimizer(np.zeros(5), queries=4, window=1, lr=1.0, update="sgd", directions=law, scale=scale)
        batch = optimizer.ask()
        optimizer.tell(batch.ids, batch.points.sum(-1))
        steps.append(optimizer.x)
    np.testing.assert_allclose(steps[1], law.covariance_factor(5) * steps[0], rtol=1e-12)


def test_contract_2_one_trajectory_in_process_vectorised_and_pooled() -> None:
    options = {"max_iterations": 40, "queries": 4, "lr": 0.02, "seed": 9}
    x0 = np.linspace(-1, 1, 8)
    serial = zoar.minimize(bowl, x0, **options)
    vectorised = zoar.minimize(lambda x: np.array([bowl(row) for row in x]), x0, vectorized=True, **options)
    with ThreadPoolExecutor(3) as pool:
        pooled = zoar.minimize(bowl, x0, executor=pool, **options)
    np.testing.assert_array_equal(serial.x, vectorised.x)
    np.testing.assert_array_equal(serial.x, pooled.x)
    assert serial.nfev == vectorised.nfev == pooled.nfev


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_contract_2_one_trajectory_stored_summed_and_replayed(law: zoar.Smoothing) -> None:
    """What is kept of the window changes no bit of theta."""
    options = {"max_iterations": 60, "window": 5, "lr": 0.02, "directions": law, "seed": 3}
    ends = [zoar.minimize(bowl, np.ones(9), storage=kind, **options).x for kind in ("stored", "summed", "replayed")]
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def test_contract_2_one_trajectory_interrupted_and_resumed() -> None:
    """Also between two answers of one batch."""
    options = {"queries": 4, "window": 3, "lr": 0.02, "directions": "rademacher"}
    whole, first = (zoar.Optimizer(np.ones(9), **options) for _ in range(2))
    for step in range(30):
        for optimizer in (whole, first):
            batch = optimizer.ask()
            values = [bowl(x) for x in batch.points]
            optimizer.tell(batch.ids[:2], values[:2])
            if optimizer is first and step == 14:
                state = first.state_dict()
                first = zoar.Optimizer(np.ones(9), **options)
                first.load_state_dict(state)
                optimizer = first  # noqa: PLW2901  # the resumed one takes the rest of the answers
            optimizer.tell(batch.ids[2:], values[2:])
    np.testing.assert_array_equal(whole.x, first.x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_contract_3_nothing_drifts_at_rate_zero(dtype: torch.dtype) -> None:
    x0 = torch.linspace(-3, 3, 50).to(dtype)
    optimizer = zoar.Optimizer(x0, queries=2, window=5, lr=0.0)
    for _ in range(1_000):
        batch = optimizer.ask()
        optimizer.tell(batch.ids, batch.points.float().sum(-1))
    assert optimizer.x.dtype == dtype
    assert torch.equal(optimizer.x, x0)


def test_contract_4_your_rng_is_yours() -> None:
    def states() -> tuple:
        legacy = np.random.get_state()  # noqa: NPY002  # the global state is what must not change
        return torch.random.get_rng_state().tolist(), legacy[1].tolist(), legacy[2], random.getstate()

    before = states()
    for law in LAWS:
        zoar.minimize(zoar.problem("ackley"), zoar.problem("ackley").start(10), directions=law, max_iterations=5)
    zoar.minimize(zoar.noisy(bowl_vector, 0.1), np.ones(4), method="relizo", vectorized=True, max_iterations=5)
    assert states() == before


def bowl_vector(x: np.ndarray) -> np.ndarray:
    return (x**2).sum(-1)


@pytest.mark.parametrize(
    ("method", "a_step"), [("zoar", 5), ("vanilla", 6), ("zohs", 6), ("relizo", 6), ("spsa", 10), ("reinforce", 6)]
)
def test_contract_5_honest_counts(method: str, a_step: int) -> None:
    calls = []

    def counted(x: np.ndarray) -> float:
        calls.append(1)
        return bowl(x)

    result = zoar.minimize(counted, np.ones(7), method, queries=5, max_iterations=8)
    assert result.nfev == len(calls) == 8 * a_step + 1  # and the value of the last theta
    result = zoar.minimize(counted, np.ones(7), method, queries=5, max_queries=33)
    assert result.nfev <= 33
    assert result.nit == 32 // a_step


def test_contract_5_dropped_queries_are_counted() -> None:
    calls = []

    def sometimes(x: np.ndarray) -> float:
        calls.append(1)
        if len(calls) % 3 == 0:
            raise RuntimeError("no")
        return bowl(x)

    result = zoar.minimize(sometimes, np.ones(7), queries=5, max_iterations=20, on_error="drop")
    assert result.nfev == len(calls)
    assert result.dropped == len(calls) // 3


def test_contract_6_a_long_window_costs_what_a_short_one_does() -> None:
    """d=20,000, K=4: fifty batches against one. Summing the window afresh would cost ten times more; 1.6 leaves room for noise."""
    x0 = np.zeros(20_000, np.float32)

    def fastest(window: int) -> float:
        optimizer = zoar.Optimizer(x0, queries=4, window=window, directions="rademacher")
        times = []
        for i in range(160):
            begun = time.perf_counter()
            batch = optimizer.ask()
            optimizer.tell(batch.ids, batch.points[:, 0])
            if i >= 60:  # the window is full
                times.append(time.perf_counter() - begun)
        return float(np.median(times))

    assert min(fastest(50) / fastest(1) for _ in range(3)) < 1.6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300, RuntimeError("simulator crashed")], ids=str)
def test_contract_7_a_failed_query_loses_one_query(bad: object) -> None:
    """Every seventh query fails; the run ends as well as one without failures, to a factor."""
    calls = []

    def flaky(x: np.ndarray) -> float:
        calls.append(1)
        if len(calls) % 7 == 0:
            if isinstance(bad, Exception):
                raise bad
            return bad  # type: ignore[return-value]
        return bowl(x)

    x0 = np.ones(5, np.float32)
    result = zoar.minimize(flaky, x0, lr=0.05, max_iterations=200, on_error="drop")
    assert result.dropped == len(calls) // 7
    assert np.isfinite(result.x).all()
    assert bowl(result.x) < 0.05


def test_contract_7_an_exception_leaves_the_optimizer_usable() -> None:
    calls = []

    def seventh_fails(x: np.ndarray) -> float:
        calls.append(1)
        if len(calls) == 17:  # query 7 of the second batch of 10
            raise KeyError("no such part")
        return bowl(x)

    with pytest.raises(KeyError, match="no such part") as caught:
        zoar.minimize(seventh_fails, np.ones(5), queries=10, max_iterations=30)
    assert any("query 7 of 10 in step 1" in note for note in caught.value.__notes__)
    assert (caught.value.zoar_query.position, caught.value.zoar_query.evaluations) == (6, 17)
    optimizer = caught.value.zoar_optimizer
    assert (optimizer.nit, optimizer.nfev) == (1, 17)
    pending = optimizer.pending()
    assert len(pending.ids) == 3
    optimizer.tell(pending.ids, [bowl(x) for x in pending.points])
    for _ in range(20):
        batch = optimizer.ask()
        optimizer.tell(batch.ids, [bowl(x) for x in batch.points])
    assert optimizer.nit == 22


def test_contract_8_bad_input_gets_a_sentence() -> None:
    """One for all: `test_bad_input` has the rest. The name, the value, the rule and what to do instead."""
    with pytest.raises(
        ValueError, match=r"queries=1 leaves baseline 'window' nothing to subtract.*window >= 2, or baseline"
    ):
        zoar.Optimizer(np.ones(3), queries=1, window=1)


def test_contract_9_files_are_data(tmp_path: object) -> None:
    path = tmp_path / "run.pt"
    options = {"lr": zoar.Linear(0.05, 0.0), "max_iterations": 60, "checkpoint": path, "checkpoint_every": 0.0}
    whole = zoar.minimize(bowl, np.ones(5), **{**options, "checkpoint": None})

    def stop_at_20(intermediate_result: object) -> None:
        if intermediate_result.nit == 20:
            raise KeyboardInterrupt

    interrupted = zoar.minimize(bowl, np.ones(5), callback=stop_at_20, **options)
    assert interrupted.status == 98
    assert torch.load(path, weights_only=True)["format"].startswith("zoar")
    resumed = zoar.minimize(bowl, np.ones(5), **options)
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.history["value"], whole.history["value"])
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]  # no half-written file is left behind

    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"run\.pt cannot be read: it is truncated, damaged or not a zoar checkpoint"):
        zoar.minimize(bowl, np.ones(5), **options)
    torch.save({"model": 1}, path)
    with pytest.raises(ValueError, match="not a zoar checkpoint of this version"):
        zoar.minimize(bowl, np.ones(5), **options)
