"""The adapters of `rivals`: one function a rival, driving the package as its documentation says.

Each is given the counted function, the start, a seed and the options of one setting, and runs until the budget's end is
raised through it. After every iteration it says, by `iterated`, where the package's answer is to be had; its docstring
says what that answer is. The global random states are seeded before, for the packages that draw from them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

Answer = Callable[[], Any]


class Counted(Protocol):
    """The function, as an adapter sees it (`rivals.Queries`)."""

    max_queries: int

    def __call__(self, points: Any) -> np.ndarray: ...
    def one(self, point: Any) -> float: ...
    def iterated(self, answer: Answer) -> None: ...
    def solution(self, answer: Answer) -> None: ...


Options = Mapping[str, Any]
Adapter = Callable[[Counted, np.ndarray, int, Options], None]


# -- pycma -------------------------------------------------------------------------------------------------------------


def sep_cma(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """CMA-ES with a diagonal covariance, always. The answer is the mean, which pycma calls `xfavorite`."""
    _pycma(function, x0, options, {"CMA_diagonal": True})


def vd_cma(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """CMA-ES with D(I + vv')D for a covariance. The answer is the mean."""
    from cma.restricted_gaussian_sampler import GaussVDSampler

    _pycma(function, x0, options, GaussVDSampler.extend_cma_options())


def _pycma(function: Counted, x0: np.ndarray, options: Options, variant: Options) -> None:
    import cma

    own = dict(options)
    sigma0 = own.pop("sigma0")
    # seed nan: pycma draws from numpy's global state as it finds it (0 would mean the time of day).
    silent = {"seed": math.nan, "verbose": -9, "verb_log": 0, "verb_disp": 0, "signals_filename": None}
    strategy = cma.CMAEvolutionStrategy(x0, sigma0, {**variant, **silent, **own})
    while True:  # strategy.stop() is not asked: the budget is the only end
        points = strategy.ask()
        strategy.tell(points, function(np.asarray(points)))
        function.iterated(lambda: strategy.mean)


# -- pypop7 ------------------------------------------------------------------------------------------------------------


def r1_es(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Rank-one evolution strategy. The answer is the mean."""
    from pypop7.optimizers.es.r1es import R1ES

    _pypop7(R1ES, function, x0, seed, options)


def lm_ma_es(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Limited-memory matrix adaptation. The answer is the mean."""
    from pypop7.optimizers.es.lmmaes import LMMAES

    _pypop7(LMMAES, function, x0, seed, options)


def _pypop7(base: Any, function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """pypop7 asks for one value at a time and owns its loop: its update is where an iteration can be seen to end."""

    class Watched(base):  # type: ignore[misc]
        def _update_distribution(self, *arguments: Any) -> Any:
            updated = super()._update_distribution(*arguments)
            function.iterated(lambda: updated[0])
            return updated

    problem = {"fitness_function": function.one, "ndim_problem": x0.size}
    # A restart would draw a new start from a box that nobody has.
    common = {"mean": x0, "seed_rng": seed, "is_restart": False, "verbose": 0}
    Watched(problem, {**common, **options}).optimize()


# -- evotorch ----------------------------------------------------------------------------------------------------------


def snes(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Separable natural evolution strategy. The answer is the center."""
    _evotorch("SNES", function, x0, seed, options)


def pgpe_clipup(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """PGPE with ClipUp, its default, at the speeds its paper advises: a 15th of the radius. The answer is the center."""
    max_speed = options["stdev_init"] * math.sqrt(x0.size) / 15
    speeds = {"center_learning_rate": max_speed / 2, "optimizer_config": {"max_speed": max_speed}}
    _evotorch("PGPE", function, x0, seed, {"stdev_learning_rate": 0.1, "optimizer": "clipup", **speeds, **options})


def pgpe_adam(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """PGPE with Adam. The answer is the center."""
    _evotorch("PGPE", function, x0, seed, {"stdev_learning_rate": 0.1, "optimizer": "adam", **options})


def _evotorch(algorithm: str, function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    import torch
    from evotorch import Problem, algorithms

    def evaluate(population: Any) -> torch.Tensor:
        return torch.from_numpy(function(population.numpy()))

    logging.getLogger("evotorch").setLevel(logging.WARNING)  # it would say three lines a run
    # Without actors no ray worker starts. Points in float32, its default and the faster; values in float64.
    problem = Problem(
        "min", evaluate, vectorized=True, solution_length=x0.size, dtype="float32", eval_dtype="float64", seed=seed
    )  # fmt: skip
    center = torch.from_numpy(x0).to(torch.float32)
    searcher = getattr(algorithms, algorithm)(problem, center_init=center, **options)
    while True:
        searcher.step()
        function.iterated(lambda: searcher.status["center"])


# -- nevergrad ---------------------------------------------------------------------------------------------------------


def spsa(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Spall's SPSA; `a` scales its rate, `c` its radius. The answer is its last iterate.

    Not its `recommend()`, the mean of all iterates from the start on: where the trials converged, its value was worse, on a
    quadratic up to 75 times.
    """
    _nevergrad("SPSA", function, x0, seed, options, lambda optimizer: x0 + optimizer.t)


def two_points_de(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Differential evolution from a population around x0, `sigma` wide. The answer is its recommendation, the best point."""
    _nevergrad("TwoPointsDE", function, x0, seed, options, lambda optimizer: optimizer.recommend().value)


def _nevergrad(
    algorithm: str, function: Counted, x0: np.ndarray, seed: int, options: Options, answer: Callable[[Any], Any]
) -> None:
    import nevergrad as ng

    own = dict(options)
    start = ng.p.Array(init=x0)
    start.set_mutation(sigma=own.pop("sigma", 1.0))
    start.random_state = np.random.RandomState(seed)  # the kind it takes
    optimizer = ng.optimizers.registry[algorithm](start, budget=function.max_queries)
    for name, value in own.items():
        setattr(optimizer, name, value)
    while True:
        candidate = optimizer.ask()
        optimizer.tell(candidate, function.one(candidate.value))
        function.iterated(lambda: answer(optimizer))


# -- SciPy -------------------------------------------------------------------------------------------------------------


def nelder_mead(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """The simplex; `simplex` is the length of its first edges. The answer is its best vertex."""
    own = dict(options)
    edge = own.pop("simplex", None)
    if edge is not None:
        own["initial_simplex"] = np.vstack([x0, x0 + edge * np.eye(x0.size)])
    _scipy("Nelder-Mead", function, x0, {"xatol": 0.0, "fatol": 0.0, **own})


def powell(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Line searches along a set of directions; an iteration is all of them once. The answer is the best point."""
    _scipy("Powell", function, x0, {"ftol": 0.0, **options})


def _scipy(method: str, function: Counted, x0: np.ndarray, options: Options) -> None:
    """Both hold on to the lowest value they saw, but show it once an iteration, which Powell may never end: it is kept here."""
    from scipy.optimize import minimize

    best = (math.inf, x0)

    def evaluate(x: np.ndarray) -> float:
        nonlocal best
        value = function.one(x)
        if value < best[0]:
            best = (value, x.copy())
        function.solution(lambda: best[1])
        return value

    minimize(
        evaluate, x0, method=method, callback=lambda x: function.iterated(lambda: best[1]),
        options={"maxfev": function.max_queries, **options},
    )  # fmt: skip


# -- torchzero ---------------------------------------------------------------------------------------------------------


def torchzero_spsa(function: Counted, x0: np.ndarray, seed: int, options: Options) -> None:
    """Central differences along Rademacher directions, then Adam. The answer is the parameter after the last whole step."""
    import torch
    import torchzero as tz

    own = dict(options)
    lr = own.pop("lr")
    theta = torch.nn.Parameter(torch.from_numpy(x0))
    # Without return_approx_loss every step would spend a query on a loss that nothing uses.
    estimator = tz.m.SPSA(seed=seed, return_approx_loss=True, **own)
    optimizer = tz.Optimizer([theta], estimator, tz.m.Adam(), tz.m.LR(lr))

    def closure(backward: bool = True) -> torch.Tensor:
        return torch.tensor(function.one(theta.detach().numpy()), dtype=torch.float64)

    while True:
        optimizer.step(closure)
        solution = theta.detach().numpy().copy()  # the budget may end while theta is moved to a query
        function.iterated(lambda solution=solution: solution)  # type: ignore[misc]
