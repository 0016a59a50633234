"""Which part of which tensor each program of a launch works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_BLOCKS = {"rademacher": 32, "gaussian": 512}  # a tile's
_ELEMENTS = {"rademacher": 128, "gaussian": 4}  # a block's


class Pointers(NamedTuple):
    """Where tensors are: how far from the first of them, in elements, or where all are aligned in eights of them."""

    first: Tensor
    offsets: Tensor
    aligned: bool

    @property
    def arguments(self) -> tuple[Tensor, Tensor]:
        """Of a launch."""
        return self.first, self.offsets


class Tiles:
    """The tiles of some tensors on one device: made once, used at every step.

    Attributes:
        tensor, block: which tensor each tile is of, and its first Philox block.
        starts, sizes: of each tensor, where it begins in a direction and how many elements it has.
        blocks: of a tile.
        aligned: whether eight elements are always of one tensor, so that threads may load them at once.
    """

    def __init__(self, sizes: Sequence[int], starts: Sequence[int], law: str, device: torch.device) -> None:
        self.blocks, per_block = _BLOCKS[law], _ELEMENTS[law]
        first = np.array([start // per_block for start in starts])
        last = np.array([-(-(start + size) // per_block) for start, size in zip(starts, sizes, strict=True)])
        tiles = -(-(last - first) // self.blocks)
        which = np.repeat(np.arange(len(sizes)), tiles)
        within = np.arange(tiles.sum()) - np.repeat(np.cumsum(tiles) - tiles, tiles)
        self.count = len(which)
        self.tensor = torch.from_numpy(which.astype(np.int32)).to(device)
        self.block = torch.from_numpy((first[which] + within * self.blocks).astype(np.int64)).to(device)
        self.starts = torch.tensor(list(starts), dtype=torch.int64, device=device)
        self.sizes = torch.tensor(list(sizes), dtype=torch.int64, device=device)
        self.aligned = not any(number % 8 for number in (*starts, *sizes))
        self._pointers: dict[str, tuple[list[int], Pointers]] = {}

    def pointers(self, tensors: Sequence[Tensor]) -> Pointers:
        """Those of contiguous tensors."""
        for tensor in tensors:
            if not tensor.is_contiguous():
                raise ValueError(
                    f"the kernels take contiguous tensors, got one of shape {tuple(tensor.shape)} that is not"
                )
        places, unit, first = [tensor.data_ptr() for tensor in tensors], tensors[0].element_size(), tensors[0].detach()
        aligned = self.aligned and not any(place % (8 * unit) for place in places)
        offsets = [(place - places[0]) // (unit * (8 if aligned else 1)) for place in places]
        return Pointers(first, self.on_device(np.array(offsets, np.int64)), aligned)

    def kept_pointers(self, name: str, tensors: Sequence[Tensor]) -> Pointers:
        """The same, kept under a name for as long as the tensors stay where they are."""
        places = [tensor.data_ptr() for tensor in tensors]
        known = self._pointers.get(name)
        if known is None or known[0] != places:
            known = self._pointers[name] = (places, self.pointers(tensors))
        return known[1]

    def floats(self, values: Sequence[float]) -> Tensor:
        """float32 numbers on the device."""
        return self.on_device(np.asarray(values, np.float32))

    def on_device(self, values: np.ndarray[Any, Any]) -> Tensor:
        """An array's copy there. Not waited for: a step that waits for the device in its midst leaves it idle afterwards."""
        return torch.from_numpy(values).to(self.starts.device, non_blocking=True)
