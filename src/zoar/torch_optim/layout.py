"""Which element of a direction belongs to which element of which parameter.

Parameters lie one after the other, in the order of the groups and within them. So a direction depends neither on how they are cut
into tensors nor on device, dtype or sharding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segment:
    """A parameter, where its elements begin in a direction, and its group."""

    parameter: Tensor
    start: int
    group: int

    @property
    def stop(self) -> int:
        return self.start + self.parameter.numel()


class Layout:
    """All parameters of an optimizer."""

    def __init__(self, groups: Sequence[Mapping[str, Any]]) -> None:
        self.segments: list[Segment] = []
        self.dim = 0
        #: The segments of each group.
        self.groups: list[tuple[Segment, ...]] = []
        for index, group in enumerate(groups):
            first = len(self.segments)
            for parameter in group["params"]:
                self.segments.append(Segment(parameter, self.dim, index))
                self.dim += parameter.numel()
            self.groups.append(tuple(self.segments[first:]))

    def fingerprint(self) -> str:
        """The number of elements of each group: what directions depend on."""
        return ",".join(map(str, self.sizes()))

    def sizes(self) -> list[int]:
        """The number of elements of each group; of one whose parameters are all frozen, 0."""
        return [sum(segment.parameter.numel() for segment in group) for group in self.groups]

    def bytes(self) -> int:
        """What a copy of all of them takes."""
        return sum(segment.parameter.numel() * segment.parameter.element_size() for segment in self.segments)

    def devices(self) -> set[torch.device]:
        return {segment.parameter.device for segment in self.segments}


def places_of(segments: Iterable[Segment]) -> list[tuple[int, torch.dtype, tuple[int, ...]]]:
    """Where the parameters' memory is and how it is laid out: another answer means that they were replaced."""
    return [(s.parameter.data_ptr(), s.parameter.dtype, s.parameter.stride()) for s in segments]


def neighbours(segments: Sequence[Segment]) -> Iterator[tuple[list[Segment], int, int]]:
    """Segments of one group on one device with no gap between them, and the range they cover: what is worked on together."""
    together: list[Segment] = []
    for segment in segments:
        if together and (
            (segment.group, segment.parameter.device) != (together[-1].group, together[-1].parameter.device)
            or segment.start != together[-1].stop
        ):
            yield together, together[0].start, together[-1].stop
            together = []
        together.append(segment)
    if together:
        yield together, together[0].start, together[-1].stop


def overlaps(segments: Iterable[Segment], first: int, last: int) -> Iterator[tuple[Segment, slice, slice]]:
    """The segments that have elements in first..last-1: which of their own, and where those are in the range."""
    for segment in segments:
        low, high = max(segment.start, first), min(segment.stop, last)
        if low < high:
            yield segment, slice(low - segment.start, high - segment.start), slice(low - first, high - first)


def check_parameters(parameters: Iterable[Any]) -> None:
    """A sentence about the first parameter that cannot be optimized so."""
    for place, parameter in enumerate(parameters):
        what = f"parameter {place} of shape {tuple(parameter.shape)}"
        if parameter.is_complex() or not parameter.is_floating_point():
            raise TypeError(f"{what} holds {parameter.dtype}; parameters must be real floating-point numbers")
        if parameter.layout != torch.strided:
            raise TypeError(f"{what} has layout {parameter.layout}; parameters must be dense")
        if parameter.device.type == "meta":
            raise ValueError(f"{what} is on the meta device, where it has no values; load the model first")
