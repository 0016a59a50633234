"""Many runs at once against the Optimizer, their reference twin, one run at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import zoar
from zoar.many import ManyRuns

SEEDS = [3, 11, 2**40 + 5]
FUNCTION = zoar.problem("rosenbrock")

SETTINGS: dict[str, dict[str, Any]] = {
    "zoar": {"method": "zoar"},
    "zoar N=1": {"method": "zoar", "window": 1},
    "zoar K=1": {"method": "zoar", "queries": 1, "window": 5},
    "batch": {"baseline": "batch", "window": 7, "directions": "rademacher", "update": zoar.AdaMM(amsgrad=True)},
    "shrinking": {"baseline": "batch", "window": zoar.Linear(9, 1), "smoothing": zoar.Linear(0.3, 0.05)},
    "recommended": zoar.recommended(),
    "corrected": {"update": zoar.AdaMM(amsgrad=True, corrected=True)},
    "center": {
        "baseline": "center",
        "directions": "sphere",
        "scale": "paper",
        "lr": zoar.Linear(1e-7, 0),
        "update": "sgd",
    },
    "zero": {"baseline": "zero", "directions": "coordinate", "update": "adamm"},
    "vanilla": {"method": "vanilla"},
    "zohs": {"method": "zohs", "update": "momentum", "lr": 1e-6},
    "spsa": {"method": "spsa", "window": 3},
    "reinforce": {"method": "reinforce", "baseline": "window", "window": 4},
    "relizo": {"method": "relizo"},
    "relizo that reuses": {"method": zoar.ReLIZO(bound=1.0), "smoothing": 0.01, "lr": 0.01},
}


def one_by_one(options: dict[str, Any], steps: int, starts: np.ndarray) -> tuple[np.ndarray, list[int]]:
    thetas, counts = [], []
    for seed, start in zip(SEEDS, starts, strict=True):
        optimizer = zoar.Optimizer(start, seed=seed, stream="philox", max_iterations=steps, **options)
        while not optimizer.stop():
            batch = optimizer.ask()
            optimizer.tell(batch.ids, FUNCTION(batch.points))
        thetas.append(optimizer.x)
        counts.append(optimizer.nfev)
    return np.stack(thetas), counts


@pytest.mark.parametrize("name", SETTINGS)
def test_many_runs_do_what_the_optimizer_does(name: str) -> None:
    """float64, so that what is left is the order of sums; 1,200 steps pass a refresh of the running sums."""
    options, steps = {"queries": 4, **SETTINGS[name]}, 1_200 if name in ("zoar", "batch") else 150
    starts = np.random.default_rng(0).standard_normal((3, 12))
    expected, counts = one_by_one(options, steps, starts)
    runs = ManyRuns(torch.from_numpy(starts), SEEDS, max_iterations=steps, **options)
    while runs.step < steps:
        runs.tell(FUNCTION(runs.ask()))
    np.testing.assert_allclose(runs.theta.numpy(), expected, rtol=1e-7, atol=1e-9)
    assert np.broadcast_to(np.asarray(runs.evaluations), 3).tolist() == counts
    if name == "relizo that reuses":
        assert max(counts) < 5 * steps


def test_the_runs_that_are_kept_go_on_as_if_alone() -> None:
    starts, options = (
        torch.randn(3, 12, generator=torch.Generator().manual_seed(0)),
        {"queries": 4, "max_iterations": 60},
    )
    for method in ("zoar", "relizo"):
        whole, part = (ManyRuns(starts, SEEDS, method=method, **options) for _ in range(2))
        while whole.step < 60:
            whole.tell(FUNCTION(whole.ask()))
        while part.step < 60:
            if part.step == 20:
                part.keep(torch.tensor([True, False, True]))
            part.tell(FUNCTION(part.ask()))
        torch.testing.assert_close(part.theta, whole.theta[[0, 2]], rtol=1e-4, atol=1e-5)


def test_every_run_has_its_own_bounds() -> None:
    lower, upper = torch.tensor([[-1.0], [-0.5], [0.25]]), torch.tensor([[1.0], [0.5], [0.5]])
    runs = ManyRuns(torch.zeros(3, 5), SEEDS, max_iterations=50, smoothing=1.0, lr=0.1, lower=lower, upper=upper)
    for _ in range(50):
        points = runs.ask()
        assert bool((points >= lower[:, None]).all() and (points <= upper[:, None]).all())
        runs.tell(-points.sum(-1))
    torch.testing.assert_close(runs.theta, upper.expand(3, 5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"update": torch.optim.Adam}, "may mix runs"),
        ({"baseline": "optimal"}, "'optimal' with gaussian directions is not available"),
        ({"method": "reinforce", "directions": "sphere"}, "takes gaussian directions"),
        ({"method": zoar.ReLIZO(orthogonal=True), "queries": 2}, "orthogonal=True is not available"),
        ({"queries": 0}, "queries must be at least 1"),
    ],
)
def test_what_cannot_be_done_in_lock_step_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ManyRuns(torch.zeros(2, 4), [0, 1], max_iterations=5, **options)


def test_starts_seeds_and_values_must_fit() -> None:
    with pytest.raises(ValueError, match=r"got \(3, 4\) and 2 seeds"):
        ManyRuns(torch.zeros(3, 4), [0, 1], max_iterations=5)
    runs = ManyRuns(torch.zeros(2, 4), [0, 1], max_iterations=5, queries=3)
    runs.ask()
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(2, 4\)"):
        runs.tell(torch.zeros(2, 4))
