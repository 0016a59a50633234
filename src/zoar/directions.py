"""The directions of the window: kept, or drawn again from their address.

Both give the same numbers, since a direction is a pure function of (seed, step, query). `Stored` costs memory, `Replayed`
costs drawing; a checkpoint of either is a list of steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.smoothing import Smoothing
from zoar.streams import Stream


class Directions(ABC):
    """The directions of the batches in the window, addressed by the step they were asked at."""

    def __init__(self, law: Smoothing, stream: Stream, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.law, self.stream, self.dim, self.dtype, self.device = law, stream, dim, dtype, device
        self._counts: dict[int, int] = {}

    def open(self, step: int, count: int) -> None:
        """A batch enters the window."""
        self._counts[step] = count

    def close(self, step: int) -> None:
        """A batch leaves the window."""
        del self._counts[step]

    @abstractmethod
    def rows(self, step: int) -> Tensor:
        """The (count, dim) directions of a batch."""

    def add_(self, target: Tensor, weights: Mapping[int, Any]) -> Tensor:
        """target += sum of weights[step] @ rows(step)."""
        for step, weight in weights.items():
            target += self._weights(weight) @ self.rows(step)
        return target

    def combine(self, weights: Mapping[int, Any]) -> Tensor:
        """The vector sum of weights[step] @ rows(step)."""
        return self.add_(torch.zeros(self.dim, dtype=self.dtype, device=self.device), weights)

    def gram(self, steps: list[int]) -> Tensor:
        """Inner products of all the directions of those steps, in float64."""
        rows = torch.cat([self.rows(step) for step in steps]).double()
        return rows @ rows.T

    def squared_norms(self, step: int) -> np.ndarray | None:
        """|u|^2 of a batch's directions; None where the law gives every direction the same."""
        if self.law.constant_norm:
            return None
        rows: np.ndarray = (self.rows(step).double() ** 2).sum(-1).cpu().numpy()
        return rows

    def state_dict(self) -> dict[int, int]:
        """The addresses in the window: {step: count}."""
        return dict(self._counts)

    def load_state_dict(self, state: Mapping[int, int]) -> None:
        for step in list(self._counts):
            self.close(step)
        for step, count in state.items():
            self.open(int(step), int(count))

    def _weights(self, weight: Any) -> Tensor:
        return torch.as_tensor(weight).to(device=self.device, dtype=self.dtype)

    def _draw(self, step: int) -> Tensor:
        return self.law.draw(self.stream, step, self._counts[step], self.dim, self.dtype, self.device)


class Stored(Directions):
    """Every direction in the window stays in memory, from its first use on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows: dict[int, Tensor] = {}

    def close(self, step: int) -> None:
        super().close(step)
        self._rows.pop(step, None)

    def rows(self, step: int) -> Tensor:
        if step not in self._rows:
            self._rows[step] = self._draw(step)
        return self._rows[step]


class Replayed(Directions):
    """Only the batch used last stays in memory; the others are drawn again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._last: tuple[int, Tensor] | None = None

    def close(self, step: int) -> None:
        super().close(step)
        if self._last and self._last[0] == step:
            self._last = None

    def rows(self, step: int) -> Tensor:
        if self._last is None or self._last[0] != step:
            self._last = (step, self._draw(step))
        return self._last[1]
