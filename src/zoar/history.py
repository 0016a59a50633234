"""The window: the last N batches, each with the radius and the step it was asked at.

A batch holds scalars only. Its directions are an address (seed, step), kept or drawn again by `zoar.directions`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor


class Answer(IntEnum):
    """What is known of a query."""

    WAITING = 0
    VALUE = 1
    FAILED = 2


@dataclass
class QueryBatch:
    """One step's queries.

    Slots 0..directions-1 are theta + radius u. A two-sided batch has as many again at theta - radius u; a centred one
    has theta itself in the last slot.
    """

    step: int
    radius: float
    directions: int
    first_id: int
    two_sided: bool = False
    centred: bool = False
    values: np.ndarray | Any = None  # made to size when not given
    answers: np.ndarray | Any = None
    #: Queries without an answer.
    waiting: int = 0
    #: Whether every query gave a value.
    complete: bool = False
    #: Where the queries were placed around; kept only when the batch moved on before its last answer.
    theta: Tensor | None = None
    #: The batch's part of the gradient's coefficients; None after a new answer, until it is weighed again.
    share: Any = None

    def __post_init__(self) -> None:
        if self.values is None:
            self.values, self.answers = np.full(self.size, np.nan), np.zeros(self.size, np.int8)
            self.waiting = self.size
        else:
            self._count()

    @cached_property
    def size(self) -> int:
        """The number of queries."""
        return self.directions * (2 if self.two_sided else 1) + self.centred

    @cached_property
    def ids(self) -> range:
        return range(self.first_id, self.first_id + self.size)

    @property
    def untouched(self) -> bool:
        """Whether no answer came yet."""
        return self.waiting == self.size

    def waits_for(self, query_id: int) -> bool:
        """Whether this query of the batch has no answer yet."""
        return bool(self.answers[query_id - self.first_id] == Answer.WAITING)

    def answer(self, slot: int, value: float | None) -> None:
        """Takes a value, or None for a query that failed."""
        self.answers[slot] = Answer.FAILED if value is None else Answer.VALUE
        if value is not None:
            self.values[slot] = value
        self._count()
        self.share = None

    def answer_all(self, values: np.ndarray) -> None:
        """Takes every value at once, in slot order."""
        self.values[:] = values
        self.answers[:] = Answer.VALUE
        self.waiting, self.complete = 0, True
        self.share = None

    def _count(self) -> None:
        self.waiting = int((self.answers == Answer.WAITING).sum())
        self.complete = bool((self.answers == Answer.VALUE).all())

    def plus(self) -> tuple[np.ndarray, np.ndarray]:
        """Values at theta + radius u, and which of them are in."""
        k = self.directions
        return self.values[:k], self.answers[:k] == Answer.VALUE

    def minus(self) -> tuple[np.ndarray, np.ndarray]:
        """Values at theta - radius u, and which of them are in."""
        k = self.directions
        return self.values[k : 2 * k], self.answers[k : 2 * k] == Answer.VALUE

    def center(self) -> float | None:
        """f(theta), where it was asked and came back."""
        return float(self.values[-1]) if self.centred and self.answers[-1] == Answer.VALUE else None

    def state_dict(self) -> dict[str, Any]:
        """Plain data; the directions follow from the step."""
        return {
            "step": self.step, "radius": self.radius, "directions": self.directions, "first_id": self.first_id,
            "two_sided": self.two_sided, "centred": self.centred, "theta": self.theta,
            "values": self.values.tolist(), "answers": self.answers.tolist(),
        }  # fmt: skip

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> QueryBatch:
        return cls(
            **{**state, "values": np.array(state["values"], float), "answers": np.array(state["answers"], np.int8)}
        )


class Window:
    """The batches whose values may still be used, oldest first."""

    def __init__(self) -> None:
        self._batches: OrderedDict[int, QueryBatch] = OrderedDict()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[QueryBatch]:
        return iter(self._batches.values())

    @property
    def newest(self) -> QueryBatch:
        return next(reversed(self._batches.values()))

    def append(self, batch: QueryBatch) -> None:
        self._batches[batch.step] = batch

    def expire(self, length: int) -> list[QueryBatch]:
        """Removes and returns the oldest batches until `length` are left."""
        return [self._batches.popitem(last=False)[1] for _ in range(len(self._batches) - length)]

    def find(self, query_id: int) -> QueryBatch | None:
        """The batch that holds a query."""
        return next((batch for batch in reversed(self._batches.values()) if query_id in batch.ids), None)
