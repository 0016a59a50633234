"""The kernels as they are meant to be read: plain torch, on any device, a piece of a tensor at a time.

Element e of a direction follows from (seed, step, query, e) alone, in the words of `zoar.streams.Philox`: a Rademacher sign is
bit e % 32 of word e // 32, set for -1; Gaussian elements 4b..4b+3 are made from the four words of block b. So a model's
direction is the same however its parameters are cut into tensors, and the same as `zoar.Optimizer` draws for the flat vector
(`stream="philox"`).

Arithmetic is float32 whatever the tensor holds (float64 for float64), and is rounded to the tensor's dtype once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoar.streams import WORDS_PER_BLOCK, box_muller, philox4x32

LAWS = ("rademacher", "gaussian")
#: Elements worked on at a time: what is held beside the tensors.
PIECE = 1 << 20
_ELEMENTS_PER_BLOCK = {"rademacher": 32 * WORDS_PER_BLOCK, "gaussian": WORDS_PER_BLOCK}
_SHIFTS = torch.arange(32)


class Address(NamedTuple):
    """Where a direction is: the third query of step 7 of the run with seed 0 is (0, 7, 2)."""

    seed: int
    step: int
    query: int


def words(
    addresses: Sequence[Address], first_block: int, blocks: int, device: torch.device, purpose: int = 0
) -> Tensor:
    """The words of some consecutive blocks of directions of one seed: (directions, 4 blocks), as int64."""
    seed = addresses[0].seed
    key = (seed & 0xFFFFFFFF, seed >> 32)
    shape = (len(addresses), blocks)
    if device.type == "cpu":  # numpy's 64-bit integers are several times faster than torch's there
        block = np.broadcast_to(np.arange(first_block, first_block + blocks, dtype=np.uint64), shape)
        step, query = (
            np.broadcast_to(np.array(column, np.uint64)[:, None], shape)
            for column in zip(*((address.step, address.query) for address in addresses), strict=True)
        )
        made = philox4x32((block, query, step, np.full(shape, purpose, np.uint64)), key)
        return torch.from_numpy(np.stack(made, -1).astype(np.int64)).reshape(len(addresses), -1)
    counter = torch.arange(first_block, first_block + blocks, dtype=torch.int64, device=device).expand(shape).clone()
    step_, query_ = (
        torch.tensor(column, dtype=torch.int64, device=device)[:, None].expand(shape).clone()
        for column in zip(*((address.step, address.query) for address in addresses), strict=True)
    )
    made = philox4x32((counter, query_, step_, torch.full_like(counter, purpose)), key)
    return torch.stack(made, -1).reshape(len(addresses), -1)


def directions(addresses: Sequence[Address], law: str, start: int, count: int, device: torch.device) -> Tensor:
    """Elements start..start+count-1 of directions of one seed: (directions, count), float32."""
    per_block = _ELEMENTS_PER_BLOCK[law]
    first, skipped = divmod(start, per_block)
    made = words(addresses, first, -(-(skipped + count) // per_block), device)
    if law == "rademacher":
        elements = (1 - 2 * ((made[..., None] >> _SHIFTS.to(device)) & 1)).to(torch.float32)
    else:
        quads = made.reshape(len(addresses), -1, 4)
        pairs = [box_muller(quads[..., i], quads[..., i + 1]) for i in (0, 2)]
        elements = torch.stack([element for pair in pairs for element in pair], -1)
    return elements.reshape(len(addresses), -1)[:, skipped : skipped + count]


@dataclass(frozen=True, eq=False)
class Sums:
    """Running sums over a window of directions, and a step's change of them. Whole numbers, and so exact in any order.

        H += sum of whole u,    P += sum of plain u,    g = unit (H - shift P)

    Attributes:
        tensors: of each parameter H (int32) and P (int8), flat; P is not used where nothing shifts.
        whole, plain: of each direction that enters or leaves.
        unit: what H counts.
        shift_whole, shift_part: the shift, a whole number and the rest; None where there is none.
        fresh: whether the sums begin with these directions: what the tensors hold is then of another run.
    """

    tensors: Mapping[Tensor, tuple[Tensor, Tensor]]
    whole: np.ndarray[Any, np.dtype[np.int64]]
    plain: np.ndarray[Any, np.dtype[np.int64]]
    unit: float
    shift_whole: int | None = None
    shift_part: float = 0.0
    fresh: bool = False

    @property
    def shifts(self) -> bool:
        return self.shift_whole is not None

    def estimate(
        self, parameter: Tensor, own: slice, addresses: Sequence[Address], first: int, dtype: torch.dtype
    ) -> Tensor:
        """Adds the directions' elements from `first` on to some elements of a parameter's sums; the estimate of those."""
        h, p = self.tensors[parameter]
        for tensor, numbers in ((h, self.whole), (p, self.plain))[: 1 + self.shifts]:
            change = combine(
                addresses, numbers.tolist(), "rademacher", first, own.stop - own.start, h.device, torch.float64
            )
            tensor[own] = (change if self.fresh else tensor[own] + change).to(tensor.dtype)
        if self.shift_whole is None:
            return self.unit * h[own].to(dtype)
        return self.unit * ((h[own] - self.shift_whole * p[own].int()).to(dtype) - self.shift_part * p[own].to(dtype))


def pieces(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The range in parts of at most PIECE."""
    for first in range(start, stop, PIECE):
        yield first, min(first + PIECE, stop)


def combine(
    addresses: Sequence[Address], coefficients: Sequence[float], law: str, start: int, count: int, device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """The sum of c u over the directions, elements start..start+count-1."""
    total = torch.zeros(count, dtype=dtype, device=device)
    together = max(1, PIECE // count)  # directions of so many elements in all
    for first in range(0, len(addresses), together):
        some = slice(first, first + together)
        rows = directions(addresses[some], law, start, count, device).to(dtype)
        for row, coefficient in zip(
            rows, coefficients[some], strict=True
        ):  # one order of sums, whatever is made together
            total.add_(row, alpha=coefficient)
    return total


def working_dtype(tensor: Tensor) -> torch.dtype:
    """What arithmetic on it is done in."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
