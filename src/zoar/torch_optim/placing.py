"""How the closure comes to see theta + radius u. The parameters' own memory is never written, so nothing can drift.

`snapshot`   one copy of all parameters is written perturbed, and the parameters point at it while the closure runs. For small
             trainable sets, such as LoRA.
`layerwise`  a block of modules at a time, see `zoar.torch_optim.layerwise`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from zoar.kernels import reference
from zoar.kernels.reference import Address
from zoar.torch_optim.layout import Layout, Segment, neighbours, overlaps, places_of

PLACEMENTS = ("auto", "snapshot", "layerwise")
#: A copy of the parameters may be as large as this before `auto` goes layer by layer.
SMALL = 256 << 20


@dataclass(frozen=True)
class Query:
    """theta + radius u, with a radius for each group; negative for the other side, zero for theta itself."""

    address: Address
    law: str
    radii: Sequence[float]

    def write(self, places: Sequence[tuple[Segment, Tensor]]) -> None:
        """The perturbed parameters into their places; neighbours' elements are made together."""
        room = {segment: place.view(-1) for segment, place in places}
        for segments, start, stop in neighbours(list(room)):
            device = segments[0].parameter.device
            for first, last in reference.pieces(start, stop):
                (u,) = reference.directions([self.address], self.law, first, last - first, device)
                for segment, own, there in overlaps(segments, first, last):
                    theta = segment.parameter.detach().reshape(-1)[own].to(reference.working_dtype(segment.parameter))
                    room[segment][own] = torch.add(theta, u[there].to(theta.dtype), alpha=self.radii[segment.group])


class NotPlaced(RuntimeError):
    """A parameter that no module's forward was seen to use."""


#: Writes a query into places that were chosen before.
Painter = Callable[[Query], None]


class Writer(Protocol):
    """What writes perturbed parameters (see `zoar.torch_optim.backends`)."""

    def painter(self, places: Sequence[tuple[Segment, Tensor]]) -> Painter:
        """For parameters and as large tensors of their dtype, device and contiguous."""


class Placement(ABC):
    """Places queries: `at` within `open`."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        self._layout, self._writer = layout, writer

    @abstractmethod
    def open(self) -> AbstractContextManager[None]:
        """For the queries of a step; afterwards all is as it was."""

    @abstractmethod
    def at(self, query: Query) -> AbstractContextManager[None]:
        """A context in which the parameters read as the query."""

    def forget(self) -> bool:
        """Drops what was learned of the model; whether there was anything."""
        return False


class Painted:
    """Parameters, their own memory, and where they are written perturbed.

    A parameter is given its own memory back by the tensor that was its data; where it has other memory by now, that is noticed.
    """

    def __init__(self, segments: Sequence[Segment], writer: Writer, rooms: Callable[[], list[Tensor]]) -> None:
        self.segments, self._writer, self._make_rooms = segments, writer, rooms
        self.parameters = [segment.parameter for segment in segments]
        self.rooms: list[Tensor] = []
        self.own: list[Tensor] = []
        self._places: list[tuple[int, torch.dtype, tuple[int, ...]]] = []
        self._paint: Painter = lambda query: None

    def refresh(self) -> None:
        """To be called while the parameters have their own memory."""
        places = places_of(self.segments)
        if places != self._places:
            self._places, self.own = places, [parameter.data for parameter in self.parameters]
            self.rooms = self._make_rooms()
            mine = [Segment(own, s.start, s.group) for own, s in zip(self.own, self.segments, strict=True)]
            self._paint = self._writer.painter(list(zip(mine, self.rooms, strict=True)))

    def paint(self, query: Query) -> None:
        """Writes the query into the rooms."""
        self._paint(query)

    def point(self, tensors: Sequence[Tensor]) -> None:
        """Has the parameters read as these."""
        for parameter, tensor in zip(self.parameters, tensors, strict=True):
            parameter.data = tensor


class Snapshot(Placement):
    """One copy of everything."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        super().__init__(layout, writer)
        self._all = Painted(layout.segments, writer, self._copies)

    def _copies(self) -> list[Tensor]:
        return [torch.empty_like(s.parameter, memory_format=torch.contiguous_format) for s in self._layout.segments]

    @contextmanager
    def open(self) -> Iterator[None]:
        self._all.refresh()
        try:
            self._all.point(self._all.rooms)
            yield
        finally:
            self._all.point(self._all.own)

    def at(self, query: Query) -> AbstractContextManager[None]:
        self._all.paint(query)
        return nullcontext()


def choose_placement(placement: str, layout: Layout, writer: Writer) -> Placement:
    """The placement asked for, or the one that fits."""
    from zoar.torch_optim.layerwise import Layerwise

    if placement == "snapshot" or (placement == "auto" and layout.bytes() <= SMALL):
        return Snapshot(layout, writer)
    return Layerwise(layout, writer)
