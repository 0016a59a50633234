"""Other people's optimizers behind one interface: the same start, the same budget of queries, every query counted.

The packages are an extra, `pip install 'zoar[rivals]'`, and are imported only when one of theirs runs. The adapters
are in `rivals_adapters`. What holds for all of them:

- a run ends after exactly `max_queries` evaluations, in the middle of a population if need be, and not before:
  tolerances are off, and so are restarts. Only Powell may have converged earlier (`Outcome.queries` tells).
- three settings each. The first is the package's default where it has one. The others are known to do well at 10,000
  dimensions from theta_0 ~ N(0, I), or were picked by judgement after a short trial: the paper's four functions at
  1,000 dimensions, 20,000 queries, one start (seed 0), two to twelve candidates a rival. Nelder-Mead had no trial.
- what is judged is the package's own answer: its mean, its center, its best point. The adapters say which, and where
  a better one was to be had.
"""

from __future__ import annotations

import importlib
import math
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from zoar.study import rivals_adapters as adapters

Function = Callable[[np.ndarray], np.ndarray]  # (n, d) -> (n,)
Record = Callable[[int, np.ndarray], None]

RECORDS = 200  # a run, about


class NotInstalled(ModuleNotFoundError):
    """The rival's package is missing; the message is a sentence for the report."""


class _BudgetSpent(Exception):
    """Ends a run from within the package, most of which would overrun otherwise."""


@dataclass(frozen=True)
class Outcome:
    """What a run took. The seconds leave out imports and recording; `evaluating` is the function's own share of them."""

    queries: int
    iterations: int
    seconds: float
    evaluating: float

    @property
    def ms_per_iteration(self) -> float:
        """Milliseconds from one ask to the next, the function's included; nan if not one iteration was completed."""
        return 1e3 * self.seconds / self.iterations if self.iterations else math.nan


@dataclass(frozen=True)
class Rival:
    """One method of one package. `run` minimises with it."""

    name: str
    package: str  # on PyPI
    modules: tuple[str, ...]  # what it imports: done before its clock starts
    adapter: adapters.Adapter
    settings: Mapping[str, Mapping[str, Any]]
    largest_dim: int | None = None
    #: Whether its settings differ in a rate, whose best value depends on how long the run is.
    has_rate: bool = False

    def version(self) -> str:
        """The installed version."""
        self.check_installed()
        return version(self.package)

    def check_installed(self) -> None:
        """Raises NotInstalled if the package cannot be imported."""
        with _random_state_kept(), _quiet():
            try:
                for module in self.modules:
                    importlib.import_module(module)
            except ModuleNotFoundError as error:
                raise NotInstalled(f"{self.package} is not installed: pip install 'zoar[rivals]' ({error})") from error

    def run(
        self,
        function: Function,
        x0: np.ndarray,
        max_queries: int,
        seed: int,
        options: Mapping[str, Any],
        record: Record,
    ) -> Outcome:
        """Minimises `function`, handing `record` the queries made and the answer so far, at both ends and some 200 times between.

        Leaves the global random states of numpy, torch and random as they were.
        """
        x0 = np.array(x0, np.float64)
        if self.largest_dim is not None and x0.size > self.largest_dim:
            raise ValueError(f"{self.name} is for at most {self.largest_dim} dimensions, got {x0.size}")
        self.check_installed()
        with _random_state_kept(seed), _quiet():
            queries = Queries(function, x0, max_queries, record)
            queries.start()
            with suppress(_BudgetSpent):
                self.adapter(queries, x0.copy(), seed, options)
            return queries.finish()


class Queries:
    """The function as an adapter sees it: counted, timed, and at an end with the budget."""

    def __init__(self, function: Function, x0: np.ndarray, max_queries: int, record: Record) -> None:
        if max_queries < 1:
            raise ValueError(f"max_queries must be at least 1, got {max_queries}")
        self.max_queries = max_queries
        self._function, self._record = function, record
        self._answer: adapters.Answer = lambda: x0
        self._used = self._iterations = self._marks = 0
        self._recorded = -1
        self._began = self._evaluating = self._recording = 0.0

    def __call__(self, points: Any) -> np.ndarray:
        """Values at points (n, d). A batch that exceeds the budget is evaluated up to it, and is the end."""
        points = np.asarray(points, np.float64)
        allowed = points[: self.max_queries - self._used]
        began = time.perf_counter()
        values = np.asarray(self._function(allowed), np.float64) if len(allowed) else np.empty(0)
        self._evaluating += time.perf_counter() - began
        self._used += len(allowed)
        if len(allowed) < len(points):
            raise _BudgetSpent
        return values

    def one(self, point: Any) -> float:
        """The value at one point (d,)."""
        return float(self(np.asarray(point)[None])[0])

    def iterated(self, answer: adapters.Answer) -> None:
        """An iteration is done; `answer` gives the package's solution from now to the next."""
        self._iterations += 1
        self.solution(answer)
        if self._used >= self.max_queries:
            raise _BudgetSpent

    def solution(self, answer: adapters.Answer) -> None:
        """`answer` gives the package's solution from now on."""
        self._answer = answer
        if self._used * RECORDS >= self.max_queries * (self._marks + 1):
            self._put_down()

    def start(self) -> None:
        """Starts the clock."""
        self._put_down()
        self._recording = 0.0
        self._began = time.perf_counter()

    def finish(self) -> Outcome:
        """Stops it."""
        seconds = time.perf_counter() - self._began - self._recording
        if self._recorded < self._used:
            self._put_down()
        return Outcome(self._used, self._iterations, seconds, self._evaluating)

    def _put_down(self) -> None:
        began = time.perf_counter()
        self._record(self._used, np.array(self._answer(), np.float64))
        self._recorded = self._used
        self._marks = self._used * RECORDS // self.max_queries
        self._recording += time.perf_counter() - began


@contextmanager
def _random_state_kept(seed: int | None = None) -> Iterator[None]:
    """Puts the global random states back; with a seed, starts them there first, for packages that draw from them.

    Importing is enough to change them: nevergrad draws from two while it is loaded.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.default_generator.manual_seed(seed)  # the CPU's alone, which is what is put back
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


@contextmanager
def _quiet() -> Iterator[None]:
    """Their warnings are about their own code (deprecations) or about stopping, which is not theirs to decide here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_PYCMA = ("cma", "cma.restricted_gaussian_sampler")
_TORCH_OPTIM = ("torch._dynamo",)  # the first torch optimizer of a process takes a second or two to import it

RIVALS: dict[str, Rival] = {
    rival.name: rival
    for rival in (
        Rival(
            "sep-CMA-ES (pycma)", "cma", _PYCMA, adapters.sep_cma,
            {
                "default popsize, sigma0 0.2": {"sigma0": 0.2},
                "popsize 10, sigma0 0.05": {"popsize": 10, "sigma0": 0.05},
                "popsize 60, sigma0 0.5": {"popsize": 60, "sigma0": 0.5},
            },
        ),
        Rival(
            "VD-CMA (pycma)", "cma", _PYCMA, adapters.vd_cma,
            {
                "default popsize, sigma0 0.2": {"sigma0": 0.2},
                "popsize 10, sigma0 0.05": {"popsize": 10, "sigma0": 0.05},
                "popsize 60, sigma0 0.5": {"popsize": 60, "sigma0": 0.5},
            },
        ),
        Rival(
            "R1-ES (pypop7)", "pypop7", ("pypop7.optimizers.es.r1es",), adapters.r1_es,
            {
                "default popsize, sigma 0.2": {"sigma": 0.2},
                "popsize 10, sigma 0.05": {"n_individuals": 10, "sigma": 0.05},
                "popsize 60, sigma 0.5": {"n_individuals": 60, "sigma": 0.5},
            },
        ),
        Rival(
            "LM-MA-ES (pypop7)", "pypop7", ("pypop7.optimizers.es.lmmaes",), adapters.lm_ma_es,
            {
                "default popsize, sigma 0.2": {"sigma": 0.2},
                "popsize 10, sigma 0.05": {"n_individuals": 10, "sigma": 0.05},
                "popsize 60, sigma 0.5": {"n_individuals": 60, "sigma": 0.5},
            },
        ),
        Rival(
            "SNES (evotorch)", "evotorch", ("evotorch.algorithms", *_TORCH_OPTIM), adapters.snes,
            {
                "default popsize, stdev 0.1": {"stdev_init": 0.1},
                "popsize 40, stdev 0.05": {"popsize": 40, "stdev_init": 0.05},
                "popsize 40, stdev 0.2": {"popsize": 40, "stdev_init": 0.2},
            },
        ),
        Rival(
            "PGPE + ClipUp (evotorch)", "evotorch", ("evotorch.algorithms", *_TORCH_OPTIM), adapters.pgpe_clipup,
            {
                "popsize 40, stdev 0.05": {"popsize": 40, "stdev_init": 0.05},
                "popsize 40, stdev 0.1": {"popsize": 40, "stdev_init": 0.1},
                "popsize 40, stdev 0.3": {"popsize": 40, "stdev_init": 0.3},
            },
            has_rate=True,
        ),
        Rival(
            "PGPE + Adam (evotorch)", "evotorch", ("evotorch.algorithms", *_TORCH_OPTIM), adapters.pgpe_adam,
            {
                "popsize 40, stdev 0.3, lr 0.01": {"popsize": 40, "stdev_init": 0.3, "center_learning_rate": 0.01},
                "popsize 40, stdev 0.1, lr 0.01": {"popsize": 40, "stdev_init": 0.1, "center_learning_rate": 0.01},
                "popsize 40, stdev 0.3, lr 0.03": {"popsize": 40, "stdev_init": 0.3, "center_learning_rate": 0.03},
            },
            has_rate=True,
        ),
        Rival(
            "SPSA (nevergrad)", "nevergrad", ("nevergrad",), adapters.spsa,
            {
                "default": {},
                "a 0.02": {"a": 0.02},
                "a 10": {"a": 10.0},
            },
            has_rate=True,
        ),
        Rival(
            "TwoPointsDE (nevergrad)", "nevergrad", ("nevergrad",), adapters.two_points_de,
            {
                "default": {},
                "sigma 0.3": {"sigma": 0.3},
                "sigma 0.1": {"sigma": 0.1},
            },
        ),
        Rival(
            "Nelder-Mead (SciPy)", "scipy", ("scipy.optimize",), adapters.nelder_mead,
            {
                "default": {},
                "adaptive": {"adaptive": True},
                "adaptive, simplex 0.5": {"adaptive": True, "simplex": 0.5},
            },
            largest_dim=100,  # at 1,000 an iteration sorts and copies 8 MB, and 1,001 queries make the first simplex
        ),
        Rival(
            "Powell (SciPy)", "scipy", ("scipy.optimize",), adapters.powell,
            {
                "default": {},
                "xtol 1e-2": {"xtol": 1e-2},
                "xtol 1e-1": {"xtol": 1e-1},
            },
            largest_dim=10_000,  # its directions are then 0.8 GB
        ),
        Rival(
            "SPSA + Adam (torchzero)", "torchzero", ("torchzero", *_TORCH_OPTIM), adapters.torchzero_spsa,
            {
                "default, lr 3e-3": {"lr": 3e-3},
                "5 samples, h 0.3, lr 3e-3": {"n_samples": 5, "h": 0.3, "lr": 3e-3},
                "5 samples, h 0.3, lr 1e-2": {"n_samples": 5, "h": 0.3, "lr": 1e-2},
            },
            has_rate=True,
        ),
    )
}  # fmt: skip
