"""Contract 8: bad input gets a sentence at construction, with the name, the value and the rule."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds

import zoar

GOOD = np.ones(4)

# options, error, what the sentence must say
CONSTRUCTION = [
    ({"x0": []}, ValueError, "x0 is empty"),
    ({"x0": np.array([1.0, np.nan])}, ValueError, "x0 must be finite; 1 of its 2"),
    ({"x0": [1.0, np.inf]}, ValueError, "x0 must be finite"),
    ({"x0": "abc"}, TypeError, "x0 must hold real floating-point numbers"),
    ({"x0": np.array([1j])}, TypeError, "complex128"),
    ({"x0": torch.tensor([True])}, TypeError, "x0 must hold real"),
    ({"x0": [[1.0], [1.0, 2.0]]}, TypeError, "x0 must be an array of numbers"),
    ({"x0": torch.ones(3, device="meta")}, TypeError, "dense tensor with data"),
    ({"queries": 0}, ValueError, "queries must be at least 1, got 0"),
    ({"queries": 2.5}, TypeError, "queries must be a whole number, got 2.5"),
    ({"queries": True}, TypeError, "queries must be a whole number"),
    ({"queries": 1, "window": 1}, ValueError, "queries=1 leaves baseline 'window' nothing to subtract.*window >= 2"),
    ({"queries": 1, "window": zoar.Linear(6, 1, steps=5)}, ValueError, "nothing to subtract"),
    ({"queries": 1, "window": 6, "baseline": "batch"}, ValueError, "nothing to subtract.*queries >= 2"),
    ({"window": 0}, ValueError, "window must be finite and at least 1; got 0"),
    ({"window": 2.5}, ValueError, "window must be a whole number of batches, got 2.5"),
    ({"window": "six"}, TypeError, "window must be a number or a schedule"),
    ({"lr": -1e-3}, ValueError, "lr must be finite and at least 0; got -0.001"),
    ({"lr": float("nan")}, ValueError, "lr must be finite"),
    ({"lr": "fast"}, TypeError, "lr must be a number or a schedule"),
    ({"lr": zoar.Linear(1e-3, 0)}, ValueError, "needs to know how long the run is.*max_iterations"),
    ({"smoothing": 0}, ValueError, "smoothing must be finite and above 0; got 0"),
    ({"smoothing": -0.1}, ValueError, "smoothing must be finite and above 0"),
    ({"smoothing": zoar.Linear(0.1, 0.0, steps=9)}, ValueError, "smoothing must be finite and above 0"),
    ({"method": "zoat"}, ValueError, "method must be one of.*got 'zoat'. Did you mean 'zoar'"),
    ({"method": 3}, TypeError, "method must be a name"),
    ({"update": "adam"}, ValueError, "Did you mean 'adamm'"),
    ({"directions": "gausian"}, ValueError, "Did you mean 'gaussian'"),
    ({"baseline": "mean"}, ValueError, "baseline must be one of"),
    ({"method": "vanilla", "baseline": "window"}, ValueError, "method 'vanilla' takes no baseline .its baseline is f"),
    ({"method": "vanilla", "window": 6}, ValueError, "method 'vanilla' takes window 1, got 6: zohs averages"),
    ({"method": "relizo", "window": 2}, ValueError, "method 'relizo' takes window 1"),
    ({"method": "spsa", "baseline": "center"}, ValueError, "each pair of queries is its own baseline"),
    ({"method": "reinforce", "baseline": "optimal"}, ValueError, "method 'reinforce' takes baseline"),
    ({"directions": zoar.Coordinate(signed=False)}, ValueError, "never -u.*biases every component"),
    (
        {"x0": np.ones(5000), "method": "reinforce", "directions": "sphere"},
        ValueError,
        r"importance weight.*outside floating point",
    ),
    ({"scale": "papper"}, ValueError, "Did you mean 'paper'"),
    ({"seed": -1}, ValueError, "seed must be at least 0 and at most"),
    ({"seed": 1.0}, TypeError, "seed must be a whole number, got 1.0"),
    ({"sense": "maximum"}, ValueError, "sense must be one of 'min', 'max'"),
    ({"on_error": "ignore"}, ValueError, "on_error must be one of 'raise', 'drop'"),
    ({"storage": "disk"}, ValueError, "storage must be one of"),
    ({"memory": -1}, ValueError, "memory must be at least 0, got -1"),
    ({"stream": "mt19937"}, ValueError, "stream must be one of 'philox', 'sfc64'"),
    ({"bounds": [(0, 1)] * 3}, ValueError, "or 4 pairs .low, high.; got 3 items"),
    ({"bounds": (1.0, 0.0)}, ValueError, "inverted at position 0: lower 1 is above upper 0"),
    ({"bounds": [(0, 1), (0, 1), (2, 1), (0, 1)]}, ValueError, "inverted at position 2"),
    ({"bounds": Bounds(np.zeros(3), np.ones(3))}, ValueError, "must be numbers or have the shape of x0"),
    ({"bounds": (np.nan, 1.0)}, ValueError, "bounds must not be NaN"),
    ({"bounds": 3}, TypeError, "bounds must be scipy Bounds"),
    ({"max_iterations": -1}, ValueError, "max_iterations must be at least 0, got -1"),
    ({"max_iterations": 10.0}, TypeError, "max_iterations must be a whole number, got 10.0"),
    ({"max_queries": 0}, ValueError, "max_queries must be at least 1"),
    ({"max_time": 0}, ValueError, "max_time must be above 0"),
    ({"target": float("nan")}, ValueError, "target must be a number"),
    ({"patience": 0}, ValueError, "patience must be at least 1"),
    ({"target": "low"}, TypeError, "target must be a number, got 'low'"),
    ({"tol": -1.0}, ValueError, "tol must be at least 0"),
]


@pytest.mark.parametrize(("options", "error", "sentence"), CONSTRUCTION, ids=lambda value: str(value)[:40])
def test_construction(options: dict, error: type[Exception], sentence: str) -> None:
    options = {"x0": GOOD, **options}
    with pytest.raises(error, match=sentence):
        zoar.Optimizer(options.pop("x0"), **options)


RULES = [
    (lambda: zoar.RAdaZO(betas=(0.9, 1.0)), "betas must be at least 0 and below 1; got 1.0"),
    (lambda: zoar.AdaMM(betas=(0.9,)), "betas must be two numbers"),
    (lambda: zoar.AdaMM(eps=0), "eps must be a finite number above 0"),
    (lambda: zoar.Momentum(beta=-0.1), "beta must be at least 0"),
    (
        lambda: zoar.Optimizer(GOOD, update=zoar.TorchUpdate(torch.optim.SGD, {"lr": 1.0})),
        "the rate of a torch optimizer is the run's",
    ),
    (lambda: zoar.ReLIZO(reuse=1.0), "reuse must be a share"),
    (lambda: zoar.ReLIZO(bound=-1.0), "bound must be a finite distance"),
    (
        lambda: zoar.Optimizer(GOOD, zoar.ReLIZO(orthogonal=True), queries=5),
        "orthogonal=True needs queries <= dimension",
    ),
    (lambda: zoar.noisy(np.sum, -1.0), "scale must be"),
    (lambda: zoar.quantised(np.sum, 0.0), "step must be"),
    (lambda: zoar.problem("rosenbrok"), "Did you mean 'rosenbrock'"),
    (lambda: zoar.problem("levy")(np.ones(1)), "levy needs at least 2 dimensions"),
]


@pytest.mark.parametrize(("make", "sentence"), RULES, ids=[sentence[:30] for _, sentence in RULES])
def test_parts(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


# fun, options, error, sentence
RUNS = [
    (3, {}, TypeError, "fun must be callable, got 3"),
    (lambda x: "low", {}, TypeError, "the value of fun must be a number, got 'low'"),
    (lambda x: None, {}, TypeError, "the value of fun must be a number, got None"),
    (lambda x: 1j, {}, TypeError, "must be a number, got 1j"),
    (lambda x: x, {}, ValueError, r"the value of fun must be one number, got an array of shape \(4,\)"),
    (lambda x: float("nan"), {}, ValueError, "the value of fun is nan"),
    (
        lambda x: x,
        {"vectorized": True},
        ValueError,
        r"values of a vectorized fun must have shape \(10,\), got shape \(10, 4\)",
    ),
    (lambda x: x[:3, 0], {"vectorized": True}, ValueError, r"must have shape \(10,\), got shape \(3,\)"),
    (lambda x: 1.0, {"vectorized": True}, TypeError, "must be 10 numbers, got 1.0"),
    (np.sum, {"timeout": 1.0}, ValueError, "timeout=1.0 needs an executor"),
    (np.sum, {"executor": 4}, TypeError, "executor must be a concurrent.futures.Executor"),
    (np.sum, {"callback": 4}, TypeError, "callback must be callable"),
    (np.sum, {"checkpoint": "x", "checkpoint_every": -1}, ValueError, "checkpoint_every must be"),
]


@pytest.mark.parametrize(("fun", "options", "error", "sentence"), RUNS, ids=[row[3][:40] for row in RUNS])
def test_minimize(fun: object, options: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        zoar.minimize(fun, GOOD, max_iterations=3, **options)


def test_vectorized_and_executor_exclude_each_other() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="choose one"):
        zoar.minimize(np.sum, GOOD, executor=pool, vectorized=True)


# what is told, error, sentence
TOLD = [
    ([99], [1.0], ValueError, "id 99 was never asked; the ids so far are 0 to 9"),
    ([-1], [1.0], ValueError, "id -1 was never asked"),
    ([0, 0], [1.0, 2.0], ValueError, "id 0 was told twice"),
    ([0, 1], [1.0], ValueError, "values must be 2 numbers, got 1"),
    (["a"], [1.0], TypeError, "an id is a whole number from batch.ids, got 'a'"),
    ([0], ["1"], TypeError, "the value at position 0 must be a number, got '1'"),
    ([0], [None], TypeError, "must be a number, got None"),
    ([0], 3.0, TypeError, "values must be 1 numbers, got 3.0"),
    ([0], [float("inf")], ValueError, "the value of query 0 is inf"),
    ([0], torch.ones(2), ValueError, r"values must have shape \(1,\)"),
]


@pytest.mark.parametrize(("ids", "values", "error", "sentence"), TOLD, ids=[row[3][:40] for row in TOLD])
def test_tell(ids: list, values: object, error: type[Exception], sentence: str) -> None:
    optimizer = zoar.Optimizer(GOOD)
    optimizer.ask()
    with pytest.raises(error, match=sentence):
        optimizer.tell(ids, values)
    assert optimizer.nfev == 0


def test_tell_twice() -> None:
    optimizer = zoar.Optimizer(GOOD)
    batch = optimizer.ask()
    optimizer.tell(batch.ids, batch.points.sum(-1))
    with pytest.raises(ValueError, match="id 0 was told twice; each query takes one value"):
        optimizer.tell(batch.ids, batch.points.sum(-1))


def test_tell_before_ask() -> None:
    with pytest.raises(ValueError, match=r"never asked; call ask\(\) first"):
        zoar.Optimizer(GOOD).tell([0], [1.0])
