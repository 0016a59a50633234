"""Functions with known minima, vectorised over leading axes, for NumPy arrays and torch tensors alike.

The paper's four (Appx. "Synthetic Functions"), and three more of the usual test functions. The minimum of each is 0: at
theta = 0 for Ackley, Quadratic, Rastrigin and Griewank, at theta = 1 for Levy and Rosenbrock, at -2.9035 for Styblinski-Tang.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from zoar.checking import choose

Function = Callable[[Any], Any]


def quadratic(x: Any) -> Any:
    """Half the sum of squares."""
    return 0.5 * (x * x).sum(-1)


def ackley(x: Any) -> Any:
    """A wide funnel covered in ripples."""
    xp = _library(x)
    d = x.shape[-1]
    return -20 * xp.exp(-0.2 * xp.sqrt((x * x).sum(-1) / d)) - xp.exp(xp.cos(2 * math.pi * x).sum(-1) / d) + 20 + math.e


def levy(x: Any) -> Any:
    """Sine ripples on a bowl."""
    xp = _library(x)
    w = 1 + (x - 1) / 4
    w1, wd, inner = w[..., 0], w[..., -1], w[..., :-1]
    bowl = (inner - 1) ** 2 * (1 + 10 * xp.sin(math.pi * inner + 1) ** 2)
    return xp.sin(math.pi * w1) ** 2 + bowl.sum(-1) + (wd - 1) ** 2 * (1 + xp.sin(2 * math.pi * wd) ** 2)


def rosenbrock(x: Any) -> Any:
    """A curved, narrow valley."""
    head = x[..., :-1]
    valley = x[..., 1:] - head * head
    slope = 1 - head
    return 100 * (valley * valley).sum(-1) + (slope * slope).sum(-1)


def rastrigin(x: Any) -> Any:
    """A bowl with a deep dent at every whole number."""
    xp = _library(x)
    return (x * x - 10 * xp.cos(2 * math.pi * x)).sum(-1) + 10 * x.shape[-1]


def griewank(x: Any) -> Any:
    """A flat bowl with ripples that all variables share; in many dimensions they all but vanish."""
    xp = _library(x)
    roots = xp.sqrt(xp.arange(1, x.shape[-1] + 1, dtype=x.dtype, **_place(x)))
    return (x * x).sum(-1) / 4_000 - xp.cos(x / roots).prod(-1) + 1


def styblinski_tang(x: Any) -> Any:
    """In each variable two valleys, one of them deeper; shifted so that its minimum is 0."""
    square = x * x
    return 0.5 * (square * square - 16 * square + 5 * x + 2 * _STYBLINSKI_TANG_MINIMUM).sum(-1)


_STYBLINSKI_TANG_MINIMIZER = -2.9035340276896057
_STYBLINSKI_TANG_MINIMUM = 39.16616570377142


@dataclass(frozen=True)
class Problem:
    """A function to minimise, with what is known of it. Calling it evaluates it."""

    name: str
    function: Function
    minimizer: float  # every coordinate of the minimiser
    minimum: float = 0.0

    def __call__(self, x: Any) -> Any:
        if x.shape[-1] < 2:
            raise ValueError(f"{self.name} needs at least 2 dimensions, got an array of shape {tuple(x.shape)}")
        return self.function(x)

    def start(self, dim: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
        """The paper's start: theta_0 ~ N(0, I)."""
        return np.random.Generator(np.random.PCG64(seed)).standard_normal(dim).astype(dtype)


PROBLEMS: dict[str, Problem] = {
    problem.name: problem
    for problem in (
        Problem("ackley", ackley, minimizer=0.0),
        Problem("levy", levy, minimizer=1.0),
        Problem("quadratic", quadratic, minimizer=0.0),
        Problem("rosenbrock", rosenbrock, minimizer=1.0),
        Problem("rastrigin", rastrigin, minimizer=0.0),
        Problem("griewank", griewank, minimizer=0.0),
        Problem("styblinski-tang", styblinski_tang, minimizer=_STYBLINSKI_TANG_MINIMIZER),
    )
}


#: The four that the paper's figures show.
PAPER = ("ackley", "levy", "quadratic", "rosenbrock")


def problem(name: str) -> Problem:
    """The problem of that name."""
    return PROBLEMS[choose("problem", name, PROBLEMS)]


def noisy(function: Function, scale: float, seed: int = 0) -> Function:
    """Adds independent N(0, scale^2) noise to every value; the noise has a generator of its own."""
    if not (scale >= 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number of at least 0, got {scale!r}")
    generator = np.random.Generator(np.random.PCG64(seed))

    def with_noise(x: Any) -> Any:
        value = function(x)
        noise = scale * generator.standard_normal(tuple(getattr(value, "shape", ())))
        return value + (
            torch.as_tensor(noise, dtype=value.dtype, device=value.device) if isinstance(value, torch.Tensor) else noise
        )

    return with_noise


def quantised(function: Function, step: float) -> Function:
    """A step function: the argument is rounded to a grid of that step first, as quantised weights are.

    A radius far below the step sees no change at all; a radius of its order smooths the steps away.
    """
    if not (step > 0 and math.isfinite(step)):
        raise ValueError(f"step must be a finite number above 0, got {step!r}")
    return lambda x: function(_library(x).round(x / step) * step)


def _place(x: Any) -> dict[str, Any]:
    return {"device": x.device} if isinstance(x, torch.Tensor) else {}


def _library(x: Any) -> Any:
    return torch if isinstance(x, torch.Tensor) else np
