"""ReLIZO: what it reuses, and what its least squares explains."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import zoar

D = 8


def objective(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum(-1) + x[..., 0]


def run(steps: int, **options: object) -> tuple[zoar.Optimizer, list[int]]:
    method = zoar.ReLIZO(**{key: options.pop(key) for key in ("bound", "reuse", "orthogonal") if key in options})
    optimizer = zoar.Optimizer(
        torch.linspace(-1, 1, D, dtype=torch.float64), method, **{"queries": 4, "lr": 1e-3, "smoothing": 0.1, **options}
    )
    sizes = []
    for _ in range(steps):
        batch = optimizer.ask()
        sizes.append(len(batch.ids))
        optimizer.tell(batch.ids, objective(batch.points))
    return optimizer, sizes


def test_within_the_bound_half_of_the_queries_are_reused() -> None:
    _, sizes = run(4, bound=100.0)
    assert sizes == [5, 3, 3, 3]  # 4 + center, then 2 + center
    _, sizes = run(4, bound=0.0)
    assert sizes == [5, 5, 5, 5]


def test_the_default_bound_is_two_rates() -> None:
    """With momentum-free sign steps theta moves lr sqrt(d) > 2 lr a step, so nothing is near enough."""
    _, sizes = run(4, update="sign")
    assert sizes == [5, 5, 5, 5]
    _, sizes = run(4, update="sgd", lr=1e-5, bound=None)
    assert sizes[1] == 5  # samples lie mu |u| away, far beyond 2 lr


def test_the_estimate_explains_every_difference() -> None:
    """On a linear function each sample's slope is met: D g = s, for new, reused and orthogonal samples alike."""
    slope = torch.linspace(-2, 3, D, dtype=torch.float64)
    for options in ({}, {"bound": 100.0}, {"bound": 100.0, "orthogonal": True}):
        optimizer = zoar.Optimizer(
            torch.zeros(D, dtype=torch.float64), zoar.ReLIZO(**options), queries=4, lr=0.1, smoothing=0.1, update="sgd"
        )
        for _ in range(3):
            before = optimizer.x
            batch = optimizer.ask()
            optimizer.tell(batch.ids, batch.points @ slope)
            g = (before - optimizer.x) / 0.1
            moved = optimizer.x - before
            displacements = optimizer._weigher._displacements[:-1] + moved  # as they were before the move
            torch.testing.assert_close(displacements @ g, displacements @ slope, rtol=1e-8, atol=1e-10)
            assert torch.linalg.matrix_rank(torch.cat([displacements, g[None]])) == len(
                displacements
            )  # g is in their span


def test_orthogonal_samples_are_orthogonal_and_of_one_length() -> None:
    optimizer = zoar.Optimizer(
        torch.zeros(D, dtype=torch.float64), zoar.ReLIZO(bound=100.0, orthogonal=True), queries=4, smoothing=0.1
    )
    for _ in range(2):
        batch = optimizer.ask()
        fresh = batch.points[:-1] - optimizer.x
        reused = optimizer._weigher._displacements
        gram = fresh @ fresh.T
        torch.testing.assert_close(gram, torch.eye(len(fresh), dtype=torch.float64) * 0.1**2 * D)
        if len(reused):
            torch.testing.assert_close(
                reused @ fresh.T, torch.zeros(len(reused), len(fresh), dtype=torch.float64), rtol=0, atol=1e-12
            )
        optimizer.tell(batch.ids, objective(batch.points))


def test_reused_samples_keep_their_place_in_space() -> None:
    """theta + displacement is the point that was asked, however theta moved since."""
    optimizer, _ = run(1, bound=100.0)
    asked = {}
    for _ in range(5):
        batch = optimizer.ask()
        asked.update({float(v): p for v, p in zip(objective(batch.points), batch.points, strict=True)})
        optimizer.tell(batch.ids, objective(batch.points))
        places = optimizer.x + optimizer._weigher._displacements
        for value, place in zip(optimizer._weigher._values, places, strict=True):
            if value in asked:
                torch.testing.assert_close(place, asked[value], rtol=0, atol=1e-12)


@pytest.mark.parametrize("reuse", [0.0, 0.25, 0.75])
def test_the_reuse_rate_caps_what_is_kept(reuse: float) -> None:
    _, sizes = run(3, bound=100.0, reuse=reuse)
    assert sizes == [5, 5 - int(4 * reuse), 5 - int(4 * reuse)]


def test_a_failed_query_leaves_the_others() -> None:
    optimizer = zoar.Optimizer(np.ones(D), "relizo", queries=4, on_error="drop", lr=0.01)
    for _ in range(30):
        batch = optimizer.ask()
        values = (batch.points**2).sum(-1)
        values[1] = np.nan
        optimizer.tell(batch.ids, values)
    assert optimizer.dropped == 30
    assert (optimizer.x**2).sum() < D
