"""Every method against its twin, and against everything that must not change a run. A new method is one row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import twins
import zoar
from zoar.estimators import ESTIMATORS

D, K, MU, LR = 12, 4, 0.1, 0.02

# name, options, twin, window
METHODS = [
    pytest.param({"method": "zoar", "window": 1}, twins.zoar, 1, id="zoar-1"),
    pytest.param({"method": "zoar", "window": 5}, twins.zoar, 5, id="zoar-5"),
    pytest.param({"method": "zoar", "window": 5, "baseline": "batch"}, twins.batch_mean, 5, id="zoar-batch"),
    pytest.param({"method": "zoar", "window": 5, "baseline": "optimal"}, twins.optimal, 5, id="zoar-optimal"),
    pytest.param({"method": "zoar", "window": 5, "baseline": "zero"}, twins.zero, 5, id="zoar-zero"),
    pytest.param({"method": "zoar", "window": 5, "baseline": "center"}, twins.zohs, 5, id="zoar-center"),
    pytest.param({"method": "vanilla"}, twins.vanilla, 1, id="vanilla"),
    pytest.param({"method": "zohs", "window": 5}, twins.zohs, 5, id="zohs"),
    pytest.param({"method": "reinforce"}, twins.reinforce, 1, id="reinforce-center"),
    pytest.param({"method": "reinforce", "baseline": "window", "window": 5}, twins.zoar, 5, id="reinforce-window"),
    pytest.param({"method": "reinforce", "baseline": "batch"}, twins.batch_mean, 1, id="reinforce-batch"),
    pytest.param({"method": "reinforce", "baseline": "zero"}, twins.zero, 1, id="reinforce-zero"),
    pytest.param({"method": "spsa"}, twins.spsa, 1, id="spsa"),
    pytest.param({"method": "spsa", "window": 5}, twins.spsa, 5, id="spsa-window"),
]
LAWS = [zoar.Gaussian(), zoar.Rademacher()]


def objective(x: Tensor) -> Tensor:
    """Smooth, curved, and far from zero, so that a baseline matters."""
    return 1000.0 + (x**2).sum(-1) + torch.sin(3 * x).sum(-1)


def start() -> Tensor:
    return torch.linspace(-1.0, 1.0, D, dtype=torch.float64)


def traced(steps: int, **options: object) -> list[Tensor]:
    settings = {"queries": K, "smoothing": MU, "lr": LR, "seed": 3, **options}
    optimizer = zoar.Optimizer(start(), **settings)
    thetas = []
    for _ in range(steps):
        batch = optimizer.ask()
        optimizer.tell(batch.ids, objective(batch.points))
        thetas.append(optimizer.x)
    return thetas


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize(("options", "twin", "window"), METHODS)
def test_running_sums_trace_the_twin(
    options: dict[str, object], twin: object, window: int, law: zoar.Smoothing
) -> None:
    """Two orders of the same float64 sum: they differ by rounding, which 40 steps of a smooth map keep below 1e-7."""
    if options["method"] == "reinforce" and law.constant_norm:
        pytest.skip("importance weights: see test_reinforce_weighs_by_theorem_3")
    fast = traced(40, directions=law, **options)
    slow = twins.trace(twin, objective, start(), twins.draws(law, 3, K, D), steps=40, window=window, mu=MU, lr=LR)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


def test_every_method_has_a_row() -> None:
    covered = {row.values[0]["method"] for row in METHODS} | {"relizo"}  # relizo: tests/test_relizo.py
    assert covered == set(ESTIMATORS)


@pytest.mark.parametrize(("options", "twin", "window"), METHODS)
def test_storage_does_not_change_a_run(options: dict[str, object], twin: object, window: int) -> None:
    """Contract 2: stored, summed and replayed directions, bit for bit."""
    runs = [traced(25, storage=storage, **options)[-1] for storage in ("stored", "summed", "replayed")]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("law", [*LAWS, zoar.Sphere(), zoar.Coordinate()], ids=lambda law: law.name)
def test_single_precision_follows_double(law: zoar.Smoothing) -> None:
    """Values near 1000 with differences near 1: float32 sums of raw values would lose four digits; levels keep them apart."""
    options = {"directions": law, "queries": K, "smoothing": MU, "lr": LR, "window": 5, "update": "momentum"}

    def run(dtype: torch.dtype) -> Tensor:
        optimizer = zoar.Optimizer(start().to(dtype), **{**options, "lr": 1e-3})
        for _ in range(60):
            batch = optimizer.ask()
            optimizer.tell(batch.ids, objective(batch.points.double()))
        return optimizer.x.double()

    torch.testing.assert_close(run(torch.float32), run(torch.float64), rtol=1e-3, atol=1e-4)


def test_running_sums_stay_exact_over_many_refreshes() -> None:
    """After 5,000 steps the sums still are what the window's batches add up to, to float64 rounding of their largest term."""
    optimizer = zoar.Optimizer(start(), queries=K, window=7, smoothing=MU, lr=1e-4, update="sgd")
    for _ in range(5_000):
        batch = optimizer.ask()
        optimizer.tell(batch.ids, 1e6 + objective(batch.points))
    weigher = optimizer._weigher
    coefficients = weigher.coefficients(optimizer.window)
    running = weigher._sum.combine(coefficients)
    exact = weigher.directions.combine(coefficients.dense())
    torch.testing.assert_close(running, exact, rtol=0, atol=1e-6)  # 1e6 / MU * 2**-53 * sqrt(1000) is 3e-8


def test_reinforce_weighs_by_theorem_3() -> None:
    """One step from the same values: gamma times the unscaled forward difference, with gamma as the theorem prints it."""
    mu, dim = 0.7, 5
    gammas = {
        zoar.Sphere(): 2 ** (1 - dim / 2)
        * np.exp(-0.5)
        / (mu * float(torch.lgamma(torch.tensor(dim / 2, dtype=torch.float64)).exp())),
        zoar.Coordinate(signed=False): dim * np.exp(-0.5) / (2 * np.pi * mu**2) ** (dim / 2),
    }
    for law, gamma in gammas.items():
        moves = []
        for options in ({"method": "reinforce"}, {"method": "vanilla", "scale": "paper"}):
            x0 = torch.linspace(-1, 1, dim, dtype=torch.float64)
            optimizer = zoar.Optimizer(x0, queries=3, smoothing=mu, lr=1.0, update="sgd", directions=law, **options)
            batch = optimizer.ask()
            optimizer.tell(batch.ids, objective(batch.points))
            moves.append(optimizer.x - x0)
        torch.testing.assert_close(moves[0], gamma * moves[1], rtol=1e-9, atol=0)


def test_vanilla_and_reinforce_trace_one_curve() -> None:
    """Theorem 2 over 1,000 steps at d=10,000: to 1e-5 relative."""
    problem = zoar.problem("rosenbrock")
    curves = []
    for method in ("vanilla", "reinforce"):
        x0 = torch.from_numpy(problem.start(10_000, seed=1, dtype=np.float64))
        result = zoar.minimize(problem, x0, method, baseline="center", vectorized=True, max_iterations=1_000, seed=5)
        curves.append(result.history["value"])
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-5)


def test_each_batch_keeps_the_radius_it_was_asked_at() -> None:
    """With an annealed radius the window divides each batch by its own radius."""
    radii = [0.3, 0.2, 0.1]
    optimizer = zoar.Optimizer(
        start(), queries=K, window=3, smoothing=zoar.Linear(0.3, 0.1, steps=3), lr=0.0, update="sgd"
    )
    history = []
    for step, mu in enumerate(radii):
        batch = optimizer.ask()
        values = objective(batch.points)
        optimizer.tell(batch.ids, values)
        history.append((list(optimizer._directions.rows(step)), list(values), None, None, mu))
    estimate = optimizer._weigher.gradient(optimizer.window, start())
    torch.testing.assert_close(estimate, twins.zoar(history), rtol=1e-9, atol=1e-9)


def test_a_shrinking_window_ends_at_one_batch() -> None:
    optimizer = zoar.Optimizer(start(), queries=K, window=zoar.Linear(6, 1), max_iterations=20)
    lengths = []
    while not optimizer.stop():
        batch = optimizer.ask()
        optimizer.tell(batch.ids, objective(batch.points))
        lengths.append(len(optimizer.window))
    assert max(lengths) >= 4
    assert lengths[-1] == 1
    assert lengths[6:] == sorted(lengths[6:], reverse=True)
