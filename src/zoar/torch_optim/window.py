"""The window of an optimizer as a text in `param_groups`, and as the batches it stands for.

The text is what there is; the batches are kept beside it so that a step parses nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from zoar.coefficients import Coefficients
from zoar.estimators import Estimator
from zoar.history import QueryBatch


@dataclass(frozen=True)
class Entry:
    """A batch, its groups' radii, and both as JSON."""

    batch: QueryBatch
    radii: tuple[float, ...]
    text: str

    @classmethod
    def of(cls, batch: QueryBatch, radii: tuple[float, ...]) -> Entry:
        return cls(batch, radii, json.dumps({**batch.state_dict(), "radii": list(radii)}))

    @classmethod
    def parse(cls, saved: dict[str, Any]) -> Entry:
        batch = QueryBatch.from_state_dict({name: value for name, value in saved.items() if name != "radii"})
        return cls.of(batch, tuple(saved["radii"]))


@dataclass(frozen=True)
class BatchWindow:
    """The batches that are reused, oldest first."""

    entries: tuple[Entry, ...] = ()
    text: str = field(default="[]", compare=False)

    @classmethod
    def parse(cls, text: str) -> BatchWindow:
        """ValueError for a text that no optimizer wrote."""
        try:
            return cls(tuple(Entry.parse(saved) for saved in json.loads(text)), text)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError("the state's history is not what a zoar optimizer writes") from error

    def with_newest(self, batch: QueryBatch, radii: tuple[float, ...], length: int) -> BatchWindow:
        """A window of at most `length` batches."""
        entries = (*self.entries, Entry.of(batch, radii))[-length:]
        return BatchWindow(entries, f"[{','.join(entry.text for entry in entries)}]")

    def weigh(self, estimator: Estimator, directions: Any) -> Coefficients | None:
        """The estimate for a radius of 1 everywhere, as coefficients."""
        shares = {}
        for entry in self.entries:
            if entry.batch.share is None:
                entry.batch.share = estimator.share(entry.batch, directions)
            if entry.batch.share is not None:
                shares[entry.batch.step] = entry.batch.share
        return estimator.coefficients(shares) if shares else None

    def radii(self) -> dict[int, tuple[float, ...]]:
        """Of each batch, by its step."""
        return {entry.batch.step: entry.radii for entry in self.entries}
