"""Common random numbers: every query of a step meets the same dropout masks, and the global generators are as they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from zoar.streams import philox4x32

_PURPOSE = 2  # of the words: 0 is for directions


def seed_of_step(seed: int, step: int) -> int:
    """A seed for the generators of torch, the same for every query of a step."""
    high, low, *_ = philox4x32((0, 0, step, _PURPOSE), (seed & 0xFFFFFFFF, seed >> 32))
    return int(high >> 1 << 32 | low)


@contextmanager
def generators_kept(devices: Iterable[torch.device]) -> Iterator[list[torch.Generator]]:
    """The global generators of the CPU and those devices, to be seeded at will; put back as they were at the end."""
    generators = [torch.default_generator]
    for device in devices:
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            generators.append(torch.cuda.default_generators[index])
    states = [generator.get_state() for generator in generators]
    try:
        yield generators
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
