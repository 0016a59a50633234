"""Which query is which: ids in the order of asking, the batches that still wait for answers, and those that left too early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zoar.history import Answer, QueryBatch, Window


class Ledger:
    """The window, with every query ever asked accounted for: in it, answered, or gone without an answer."""

    def __init__(self) -> None:
        self.window = Window()
        self.next_id = 0
        self._unanswered: set[int] = set()  # ids that left the window before their answer

    def enter(self, batch: QueryBatch, length: int) -> list[QueryBatch]:
        """A batch enters the window; returns those that leave it."""
        self.next_id += batch.size
        self.window.append(batch)
        gone = self.window.expire(length)
        for old in gone:
            if old.waiting:
                slots = np.flatnonzero(old.answers == Answer.WAITING)
                self._unanswered.update(old.first_id + int(slot) for slot in slots)
        return gone

    def locate(self, ids: list[int]) -> list[QueryBatch | None]:
        """The batch of each id, None for one that left the window; an id that may not be answered is an error."""
        seen: set[int] = set()
        places: list[QueryBatch | None] = []
        for query in ids:
            batch = self.window.find(query)
            if not 0 <= query < self.next_id:
                asked = f"the ids so far are 0 to {self.next_id - 1}" if self.next_id else "call ask() first"
                raise ValueError(f"id {query} was never asked; {asked}")
            waiting = query in self._unanswered if batch is None else batch.waits_for(query)
            if query in seen or not waiting:
                raise ValueError(f"id {query} was told twice; each query takes one value")
            seen.add(query)
            places.append(batch)
        return places

    def outstanding(self) -> int:
        """Queries asked and not answered, wherever they are."""
        return len(self._unanswered) + sum(batch.waiting for batch in self.window)

    def answered_too_late(self, query: int) -> None:
        """An answer came for a query that left the window."""
        self._unanswered.discard(query)

    def state_dict(self) -> dict[str, Any]:
        return {
            "next_id": self.next_id, "unanswered": sorted(self._unanswered),
            "window": [batch.state_dict() for batch in self.window],
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next_id, self._unanswered = state["next_id"], set(state["unanswered"])
        self.window = Window()
        for saved in state["window"]:
            self.window.append(QueryBatch.from_state_dict(saved))


def as_ids(ids: Iterable[Any]) -> range | list[int]:
    """Ids as whole numbers; a batch's own ids as they are."""
    if isinstance(ids, range):
        return ids
    if not isinstance(ids, Iterable) or isinstance(ids, (str, bytes)):
        raise TypeError(f"ids must be some of batch.ids, such as [3, 4]; got {ids!r} ({type(ids).__name__})")
    return [_as_id(query) for query in ids]


def _as_id(query: Any) -> int:
    if isinstance(query, bool) or not isinstance(query, (int, np.integer)):
        raise TypeError(f"an id is a whole number from batch.ids, got {query!r} ({type(query).__name__})")
    return int(query)
