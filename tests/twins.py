"""The methods as one would write them on a page: noise tensors in a list, sums in a Python loop, float64.

These are the specification; the tests hold the library's running sums against them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from zoar.smoothing import Smoothing

Draw = Callable[[int], Tensor]


def draws(law: Smoothing, seed: int, queries: int, dim: int) -> Draw:
    """The library's own directions of a step, as rows."""
    device = torch.device("cpu")
    stream = law.stream(seed, device)
    return lambda step: law.draw(stream, step, queries, dim, torch.float64, device)


def radazo(theta: Tensor, g: Tensor, state: dict[str, Tensor], lr: float) -> Tensor:
    """Algorithm 1, last three lines, betas (0.9, 0.99)."""
    state["m"] = 0.9 * state.get("m", torch.zeros_like(theta)) + 0.1 * g
    state["v"] = 0.99 * state.get("v", torch.zeros_like(theta)) + 0.01 * state["m"] ** 2
    return theta - lr * state["m"] / torch.sqrt(state["v"] + 1e-8)


def trace(
    gradient: Callable[[list[Any]], Tensor | None], f: Callable[[Tensor], Tensor], theta: Tensor, draw: Draw,
    *, steps: int, window: int, mu: float, lr: float,
) -> list[Tensor]:  # fmt: skip
    """theta after each step; `gradient` sees the window as a list of batches (u, y, y_minus, center, mu)."""
    history: deque[Any] = deque(maxlen=window)
    state: dict[str, Tensor] = {}
    thetas = []
    for step in range(steps):
        u = draw(step)
        above = [f(theta + mu * row) for row in u]
        below = [f(theta - mu * row) for row in u]
        history.append((list(u), above, below, f(theta), mu))
        g = gradient(list(history))
        if g is not None:
            theta = radazo(theta, g, state, lr)
        thetas.append(theta)
    return thetas


def zoar(history: list[Any]) -> Tensor | None:
    """Eqs. baseline-avg and grad-avg."""
    pairs = [(u, y, mu) for us, ys, _, _, mu in history for u, y in zip(us, ys, strict=True)]
    if len(pairs) < 2:
        return None
    b = sum(y for _, y, _ in pairs) / len(pairs)
    return sum((y - b) / mu * u for u, y, mu in pairs) / (len(pairs) - 1)


def batch_mean(history: list[Any]) -> Tensor:
    """Each batch's own mean, with the K/(K - 1) correction."""
    total = sum(len(us) for us, *_ in history)
    g = 0.0
    for us, ys, _, _, mu in history:
        b = sum(ys) / len(ys)
        for u, y in zip(us, ys, strict=True):
            g = g + (y - b) / mu * u * len(ys) / (len(ys) - 1) / total
    return g


def optimal(history: list[Any]) -> Tensor:
    """Thm opt-baseline, each value left out of its own baseline, literally."""
    triples = [(u, y, mu, (u * u).sum()) for us, ys, _, _, mu in history for u, y in zip(us, ys, strict=True)]
    g = 0.0
    for j, (u, y, mu, _) in enumerate(triples):
        others = [(yi, ni) for i, (_, yi, _, ni) in enumerate(triples) if i != j]
        b = sum(yi * ni for yi, ni in others) / sum(ni for _, ni in others)
        g = g + (y - b) / mu * u / len(triples)
    return g


def vanilla(history: list[Any]) -> Tensor:
    """Eq. fd."""
    us, ys, _, center, mu = history[-1]
    return sum((y - center) / mu * u for u, y in zip(us, ys, strict=True)) / len(us)


def zohs(history: list[Any]) -> Tensor:
    """Appx. Baselines: the mean of the last vanilla estimates."""
    return sum(vanilla([batch]) for batch in history) / len(history)


def reinforce(history: list[Any]) -> Tensor:
    """Eq. reinforce-grad-refined, with the actions written out."""
    us, ys, _, center, mu = history[-1]
    theta = torch.zeros_like(us[0])
    actions = [theta + mu * u for u in us]
    return sum((x - theta) / mu**2 * (y - center) for x, y in zip(actions, ys, strict=True)) / len(us)


def zero(history: list[Any]) -> Tensor:
    """No baseline."""
    total = sum(len(us) for us, *_ in history)
    return sum(y / mu * u for us, ys, _, _, mu in history for u, y in zip(us, ys, strict=True)) / total


def spsa(history: list[Any]) -> Tensor:
    """Two-sided differences, averaged over the window."""
    total = sum(len(us) for us, *_ in history)
    return (
        sum((a - b) / (2 * mu) * u for us, ys, zs, _, mu in history for u, a, b in zip(us, ys, zs, strict=True)) / total
    )
