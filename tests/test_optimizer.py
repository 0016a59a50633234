"""Ask and tell: any subset, any order, late answers, and the state in between."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import zoar


def value(x: np.ndarray) -> float:
    return float(5 + (x**2).sum() + x[0])


def make(**options: object) -> zoar.Optimizer:
    return zoar.Optimizer(np.linspace(-1, 1, 6), **{"queries": 4, "window": 3, "lr": 0.05, "seed": 2, **options})


def answer(optimizer: zoar.Optimizer) -> zoar.Batch:
    batch = optimizer.ask()
    optimizer.tell(batch.ids, [value(x) for x in batch.points])
    return batch


def test_any_order_and_any_pieces_give_the_same_theta() -> None:
    whole, pieces = make(), make()
    for _ in range(10):
        answer(whole)
        batch = pieces.ask()
        for i in (2, 0, 3, 1):
            pieces.tell([batch.ids[i]], [value(batch.points[i])])
    np.testing.assert_array_equal(whole.x, pieces.x)
    assert whole.nfev == pieces.nfev == 40
    assert whole.best_fun == pieces.best_fun
    np.testing.assert_array_equal(whole.best_x, pieces.best_x)


def test_ask_without_an_answer_is_the_same_batch() -> None:
    optimizer = make()
    first, second = optimizer.ask(), optimizer.ask()
    assert list(first.ids) == list(second.ids)
    np.testing.assert_array_equal(first.points, second.points)
    assert optimizer.nit == 0


def test_theta_moves_with_what_came_and_late_values_still_count() -> None:
    optimizer, never_told = make(), make()
    for run in (optimizer, never_told):
        batch = run.ask()
        run.tell(batch.ids[:3], [value(x) for x in batch.points[:3]])
        following = run.ask()  # moves with three values
        assert run.nit == 1
    late = value(batch.points[3])
    optimizer.tell([batch.ids[3]], [late])
    assert optimizer.nfev == 4
    for run in (optimizer, never_told):
        run.tell(following.ids, [value(x) for x in following.points])
    assert not np.array_equal(optimizer.x, never_told.x)


def test_a_late_best_value_keeps_the_point_it_was_asked_at() -> None:
    optimizer = make()
    batch = optimizer.ask()
    optimizer.tell(batch.ids[:2], [9.0, 8.0])
    optimizer.ask()
    optimizer.tell([batch.ids[3]], [-100.0])
    assert optimizer.best_fun == -100.0
    np.testing.assert_allclose(optimizer.best_x, batch.points[3], rtol=0, atol=1e-15)


def test_a_value_later_than_the_window_is_counted_and_ignored() -> None:
    optimizer = make(window=1)
    batch = optimizer.ask()
    optimizer.tell(batch.ids[:3], [1.0, 2.0, 3.0])
    optimizer.ask()
    before = optimizer.x
    optimizer.tell([batch.ids[3]], [4.0])
    np.testing.assert_array_equal(optimizer.x, before)
    assert (optimizer.nfev, optimizer.dropped) == (4, 1)
    with pytest.raises(ValueError, match="told twice"):
        optimizer.tell([batch.ids[3]], [4.0])


def test_pending_are_the_queries_without_an_answer() -> None:
    optimizer = make()
    batch = optimizer.ask()
    optimizer.tell([batch.ids[1]], [value(batch.points[1])])
    pending = optimizer.pending()
    assert list(pending.ids) == [batch.ids[0], batch.ids[2], batch.ids[3]]
    np.testing.assert_array_equal(pending.points, batch.points[[0, 2, 3]])
    optimizer.tell(pending.ids, [value(x) for x in pending.points])
    assert optimizer.nit == 1
    assert len(optimizer.pending().ids) == 0


def test_a_wrong_tell_changes_nothing() -> None:
    optimizer = make()
    batch = optimizer.ask()
    with pytest.raises(ValueError, match="never asked"):
        optimizer.tell([batch.ids[0], 99], [1.0, 2.0])
    with pytest.raises(zoar.NonFiniteValue):
        optimizer.tell(batch.ids, [1.0, 2.0, float("nan"), 3.0])
    with pytest.raises(TypeError, match="position 1"):
        optimizer.tell(batch.ids, [1.0, "x", 2.0, 3.0])
    assert optimizer.nfev == 0
    assert len(optimizer.pending().ids) == 4


def test_k_equals_one_makes_no_first_move_and_then_moves() -> None:
    """|H| - 1 = 0: the first step has nothing to subtract (DESIGN's deviations)."""
    optimizer = make(queries=1, window=4)
    start = optimizer.x
    answer(optimizer)
    np.testing.assert_array_equal(optimizer.x, start)
    answer(optimizer)
    assert not np.array_equal(optimizer.x, start)


@pytest.mark.parametrize("storage", ["stored", "summed", "replayed"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"method": "relizo", "window": 1, "directions": "rademacher"}, {"baseline": "batch"}, {"update": torch.optim.Adam},
        {"directions": "rademacher", "update": "adamm"}, {"method": "spsa"}, {"baseline": "optimal"},
    ],
    ids=str,
)  # fmt: skip
def test_a_resumed_run_goes_on_bit_for_bit(options: dict, storage: str, tmp_path: object) -> None:
    """Contract 2, through a file that loads with weights_only=True, in the middle of a window and of a batch."""
    options = {"max_iterations": 30, "lr": zoar.Linear(0.05, 0.0), "storage": storage, **options}
    one = make(**options)
    while not one.stop():
        answer(one)
    first = make(**options)
    for _ in range(12):
        answer(first)
    batch = first.ask()
    first.tell(batch.ids[:2], [value(x) for x in batch.points[:2]])
    path = tmp_path / "state.pt"
    torch.save(first.state_dict(), path)
    second = make(**options)
    second.load_state_dict(torch.load(path, weights_only=True))
    pending = second.pending()
    second.tell(pending.ids, [value(x) for x in pending.points])
    while not second.stop():
        answer(second)
    np.testing.assert_array_equal(second.x, one.x)
    np.testing.assert_array_equal(second.best_x, one.best_x)
    assert (second.nit, second.nfev, second.best_fun) == (one.nit, one.nfev, one.best_fun)


def test_a_state_of_another_run_is_refused_by_name() -> None:
    state = make(seed=1).state_dict()
    with pytest.raises(ValueError, match="seed: 1 there, 2 here"):
        make().load_state_dict(state)
    with pytest.raises(ValueError, match="not the state of a zoar"):
        make().load_state_dict({"a": 1})


def test_maximising_is_minimising_the_negative() -> None:
    down, up = make(), make(sense="max")
    for _ in range(10):
        answer(down)
        batch = up.ask()
        up.tell(batch.ids, [-value(x) for x in batch.points])
    np.testing.assert_array_equal(down.x, up.x)
    assert down.best_fun == -up.best_fun


@pytest.mark.parametrize(
    "update",
    ["sgd", "momentum", "sign", "adamm", "radazo", zoar.AdaMM(amsgrad=True), torch.optim.Adam, torch.optim.SGD],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_update_rule_goes_down(update: object, dtype: type) -> None:
    optimizer = zoar.Optimizer(np.full(6, 2.0, dtype), queries=8, window=1, lr=0.02, update=update, seed=1)
    for _ in range(150):
        batch = optimizer.ask()
        assert batch.points.dtype == dtype
        optimizer.tell(batch.ids, (batch.points.astype(float) ** 2).sum(-1))
    assert (optimizer.x.astype(float) ** 2).sum() < 12.0  # from 24


def test_torch_sgd_is_our_sgd() -> None:
    ours, theirs = make(update="sgd", lr=0.01), make(update=torch.optim.SGD, lr=0.01)
    for _ in range(10):
        answer(ours)
        answer(theirs)
    np.testing.assert_array_equal(ours.x, theirs.x)


def test_amsgrad_never_lets_the_second_moment_fall() -> None:
    rule = zoar.AdaMM(betas=(0.9, 0.5), amsgrad=True)
    theta = torch.zeros(1)
    state = rule.start(theta)
    seen = []
    for g in (3.0, 0.1, 0.1, 1.0):
        rule.move_(theta, torch.tensor([g]), state, 0.0)
        seen.append(float(state["v_max"]))
    assert seen == sorted(seen)
    assert float(state["v"]) < max(seen) == 4.5
