"""The error of zoar's estimate on given thetas, over thousands of independent redraws of the window's directions.

The redraws are the runs of `zoar.many`, side by side: the estimates are the library's, and only where theta goes is
prescribed. The functions are three whose constants are known (`zoar.theory.Constants`); directions are on the unit sphere, where
the theorem is proved.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor

from zoar.diagnostics import diagnose
from zoar.many import ManyRuns
from zoar.optimizer import Optimizer
from zoar.smoothing import Sphere
from zoar.streams import SFC64
from zoar.theory import Constants
from zoar.updates import RAdaZO, State, UpdateRule

# -- functions with known constants -----------------------------------------------------------------------------------------


class Known(ABC):
    """A function of which everything that the theorem asks for is known."""

    @abstractmethod
    def __call__(self, x: Any) -> Any:
        """F, over the last axis."""

    @abstractmethod
    def start(self, dim: int) -> Tensor: ...

    @abstractmethod
    def gradient(self, thetas: Tensor, radius: float) -> Tensor:
        """grad F_mu, F averaged over the ball: what the estimate aims at."""

    @abstractmethod
    def level(self, thetas: Tensor, radius: float) -> Tensor:
        """E_u F(theta + mu u), u on the sphere, of which the optimal baseline is made."""

    @abstractmethod
    def constants(self, thetas: Tensor, radius: float) -> Constants:
        """Of F on the smallest ball around 0 that holds `thetas`."""


class Slope(Known):
    """a.x with |a| = 1: every step of the proof but one is an equality."""

    def __call__(self, x: Any) -> Any:
        return x.sum(-1) / math.sqrt(x.shape[-1])

    def start(self, dim: int) -> Tensor:
        return torch.zeros(dim, dtype=torch.float64)

    def gradient(self, thetas: Tensor, radius: float) -> Tensor:
        return torch.full_like(thetas, 1 / math.sqrt(thetas.shape[-1]))

    def level(self, thetas: Tensor, radius: float) -> Tensor:
        level: Tensor = self(thetas)
        return level

    def constants(self, thetas: Tensor, radius: float) -> Constants:
        return Constants(L0=1.0, L1=0.0, sigma_mu=radius / math.sqrt(thetas.shape[-1]))


class Bowl(Known):
    """|x|^2/2, from a start of ones."""

    def __call__(self, x: Any) -> Any:
        return 0.5 * (x * x).sum(-1)

    def start(self, dim: int) -> Tensor:
        return torch.ones(dim, dtype=torch.float64)

    def gradient(self, thetas: Tensor, radius: float) -> Tensor:
        return thetas

    def level(self, thetas: Tensor, radius: float) -> Tensor:
        level: Tensor = self(thetas) + 0.5 * radius**2
        return level

    def constants(self, thetas: Tensor, radius: float) -> Constants:
        # F(theta + mu u) varies over the sphere by mu theta.u alone.
        farthest = float(torch.linalg.vector_norm(thetas, dim=-1).max())
        return Constants(L0=farthest, L1=1.0, sigma_mu=radius * farthest / math.sqrt(thetas.shape[-1]))


class Wave(Known):
    """-50 cos(a.x/50) with |a| = 1: bounded, with Lipschitz constants that hold everywhere, as Assump. 1 has them."""

    length = 50.0

    def __call__(self, x: Any) -> Any:
        return -self.length * _cos(x.sum(-1) / (self.length * math.sqrt(x.shape[-1])))

    def start(self, dim: int) -> Tensor:  # where it is steepest
        return torch.full((dim,), 0.5 * math.pi * self.length / math.sqrt(dim), dtype=torch.float64)

    def gradient(self, thetas: Tensor, radius: float) -> Tensor:
        dim = thetas.shape[-1]
        along = torch.sin(thetas.sum(-1, keepdim=True) / (self.length * math.sqrt(dim)))
        factor = cosine_factor(radius / self.length, 0.5 * (dim - 1))
        return (along * factor / math.sqrt(dim)).expand_as(thetas)

    def level(self, thetas: Tensor, radius: float) -> Tensor:
        level: Tensor = self(thetas) * cosine_factor(radius / self.length, 0.5 * (thetas.shape[-1] - 3))
        return level

    def constants(self, thetas: Tensor, radius: float) -> Constants:
        root = math.sqrt(thetas.shape[-1])  # it is 1-Lipschitz in a.x, whose variance over the sphere is mu^2/d
        return Constants(L0=1.0, L1=1 / (self.length * root), sigma_mu=radius / root, C=self.length)


def _cos(x: Any) -> Any:
    return torch.cos(x) if isinstance(x, Tensor) else np.cos(x)


@functools.cache
def cosine_factor(radius: float, power: float) -> float:
    """E[cos(radius v)] for a coordinate v of a uniform point of the ball (power (d - 1)/2) or of the sphere ((d - 3)/2)."""

    def weight(v: float) -> float:
        return math.pow(1 - v * v, power)

    return float(quad(lambda v: math.cos(radius * v) * weight(v), -1, 1)[0] / quad(weight, -1, 1)[0])


KNOWN: dict[str, Known] = {"slope": Slope(), "wave": Wave(), "quadratic": Bowl()}


# -- redraws on given thetas ------------------------------------------------------------------------------------------------


class Given(UpdateRule):
    """Keeps the estimate and goes where it is told: the last of `path` and all before it, in order."""

    name = "given"

    def __init__(self, path: Tensor) -> None:
        self.path, self.step, self.estimate = path, 0, path

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        self.step, self.estimate = self.step + 1, estimate
        if self.step < len(self.path):
            theta.copy_(self.path[self.step].expand_as(theta))


def redraw(
    function: Any, path: Tensor, queries: int, radius: float, redraws: int, baseline: str, seed: int, b: float = 0.0
) -> Tensor:
    """Independent estimates (redraws, d) from windows that hold the thetas of `path`, newest last.

    `baseline` is one of zoar's, or "optimal" for the theorem's: then `b` is taken from every value, and nothing else.
    """
    rule, runs_at_once, made = Given(path), 512, []
    for first in range(0, redraws, runs_at_once):  # so many as stay in the cache
        count, rule = min(runs_at_once, redraws - first), Given(path)
        runs = ManyRuns(
            path[0].expand(count, -1), range(count), max_iterations=len(path), queries=queries, window=len(path),
            smoothing=radius, directions=Sphere(), update=rule, baseline="zero" if baseline == "optimal" else baseline,
        )  # fmt: skip
        # One stream for all: rows of one stream are as independent as streams are, and come faster.
        runs.stream = SFC64(seed + first)
        for _ in path:
            runs.tell(function(runs.ask()) - b)
        made.append(rule.estimate)
    return torch.cat(made)


class Measured(NamedTuple):
    """A mean over redraws and its standard error."""

    value: float
    error: float


def errors(estimates: Tensor, newest: Tensor) -> dict[str, Measured]:
    """Variance, squared bias and their sum, against grad F_mu(theta_{t-1}); the first two are unbiased."""
    count = len(estimates)
    centre = estimates.mean(0)
    scatter = ((estimates - centre) ** 2).sum(-1) * count / (count - 1)
    variance = float(scatter.mean())
    # |mean - target|^2 holds the noise of the mean, tr C/S; and varies by 4 b'Cb/S + 2 tr C^2/S^2.
    covariance = (estimates - centre).T @ (estimates - centre) / (count - 1)
    bias = centre - newest
    noise = 4 * float(bias @ covariance @ bias) / count + 2 * float((covariance**2).sum()) / count**2
    total = ((estimates - newest) ** 2).sum(-1)
    root = math.sqrt(count)
    return {
        "variance": Measured(variance, float(scatter.std()) / root),
        "bias": Measured(float((bias**2).sum()) - variance / count, math.sqrt(noise)),
        "error": Measured(float(total.mean()), float(total.std()) / root),
    }


# -- a real path, and what can be seen from it ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Walk:
    """A run of zoar with R-AdaZO, and as many shadows as one likes: the same queries, another window."""

    function: Known
    dim: int
    queries: int
    window: int
    radius: float
    lr: float
    steps: int
    seed: int = 0

    def thetas(self) -> Tensor:
        """Where it went, (steps, d)."""
        optimizer = self._optimizer(self.window, RAdaZO())
        path = []
        for _ in range(self.steps):
            path.append(torch.as_tensor(optimizer.x).clone())
            batch = optimizer.ask()
            optimizer.tell(batch.ids, self.function(batch.points))
        return torch.stack(path)

    def diagnosed(self, path: Tensor, window: int, last: int) -> dict[str, float]:
        """Means over the `last` steps: what `zoar.diagnose` sees from the window of that length, and what is so on this path.

        A shadow follows `path` and so asks what the run asked; its window is its own. In units of the squared gradient.
        """
        rule = Given(path)
        optimizer = self._optimizer(window, rule)
        gradients = self.function.gradient(path, self.radius)
        seen, live = [], []
        for step in range(len(path)):
            batch = optimizer.ask()
            optimizer.tell(batch.ids, self.function(batch.points))
            if step >= len(path) - last:
                seen.append(diagnose(optimizer))
                live.append(float(((rule.estimate - gradients[step]) ** 2).sum()))
        scale = float((gradients[-last:] ** 2).sum(-1).mean())
        return {
            "diagnosed variance": float(np.mean([one.variance for one in seen])) / scale,
            "diagnosed drift": float(np.mean([one.drift for one in seen])) / scale,
            "live error": float(np.mean(live)) / scale,
        }

    def _optimizer(self, window: int, rule: UpdateRule) -> Optimizer:
        return Optimizer(
            self.function.start(self.dim), queries=self.queries, window=window, smoothing=self.radius, lr=self.lr,
            update=rule, directions="sphere", seed=self.seed,
        )  # fmt: skip
