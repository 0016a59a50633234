"""What the window keeps in memory: a choice between memory and time that changes no result.

| storage | kept for each batch | bytes of a window | drawn again |
| --- | --- | --- | --- |
| `stored` | all its directions | 4 N K d, or 8 in float64 | never |
| `summed` | its two sums over directions, in float64 (`zoar.window_sum`) | 16 N d | for a late answer |
| `replayed` | its step | none | when it leaves the window |

`auto` takes `summed`, the fastest, where it fits the memory allowed, else `replayed`; and `stored`, where it fits, for the one
baseline that weighs every direction anew at each step.
"""

from __future__ import annotations

from dataclasses import dataclass

from zoar.checking import choose, whole_number

STORAGES = ("auto", "stored", "summed", "replayed")
DEFAULT_MEMORY = 1 << 30


@dataclass(frozen=True)
class Storage:
    """What is kept."""

    rows: bool
    sums: bool


def choose_storage(
    storage: str, memory: int, *, window: int, queries: int, dim: int, itemsize: int, all_rows_every_step: bool
) -> Storage:
    """The storage asked for, or the one that `memory` bytes allow."""
    memory = whole_number("memory", memory, 0)
    if choose("storage", storage, STORAGES) == "auto":
        if all_rows_every_step:
            storage = "stored" if window * queries * dim * itemsize <= memory else "replayed"
        else:
            storage = "summed" if 16 * window * dim <= memory else "replayed"
    return Storage(rows=storage == "stored", sums=storage == "summed")
