"""How the closure comes to see theta + radius u. The parameters' own memory is never written, so nothing can drift.

`snapshot`   one copy of all parameters is written perturbed, and the parameters point at it while the closure runs. For small
             trainable sets, such as LoRA.
`layerwise`  a module's parameters are written perturbed into scratch memory just before its forward, and point there until it is
             over: the largest module is all that is held beside the model. Every module must use its own parameters, and no
             other's, in its forward; torch.nn.MultiheadAttention does not, and is noticed. **Not noticed** is a parameter that its
             module uses and another one too, behind its back (`h @ self.embed.weight.T` for a head; a head that is a module of its
             own and shares the weight is fine). Such a model wants `placement="snapshot"`, and so do compiled ones.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from zoar.kernels import reference
from zoar.kernels.reference import Address
from zoar.torch_optim.layout import Layout, Segment, neighbours, overlaps

PLACEMENTS = ("auto", "snapshot", "layerwise")
#: A copy of the parameters may be as large as this before `auto` goes layer by layer.
SMALL = 256 << 20
_EIGHTS = 32  # elements: tensors in scratch memory begin where the kernels can load eight at once


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


class Writer(Protocol):
    """What writes perturbed parameters (see `zoar.torch_optim.backends`)."""

    def write(self, query: Query, places: Sequence[tuple[Segment, Tensor]]) -> None: ...


class Placement(ABC):
    """Places queries."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        self._layout, self._writer = layout, writer

    @abstractmethod
    def at(self, query: Query) -> Any:
        """A context in which the parameters read as the query."""


class Snapshot(Placement):
    """One copy of everything."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        super().__init__(layout, writer)
        self._copies: list[Tensor] | None = None

    @contextmanager
    def at(self, query: Query) -> Iterator[None]:
        segments = self._layout.segments
        if self._copies is None:
            self._copies = [torch.empty_like(s.parameter, memory_format=torch.contiguous_format) for s in segments]
        self._writer.write(query, list(zip(segments, self._copies, strict=True)))
        own = [segment.parameter.data for segment in segments]
        try:
            for segment, copy in zip(segments, self._copies, strict=True):
                segment.parameter.data = copy
            yield
        finally:
            for segment, data in zip(segments, own, strict=True):
                segment.parameter.data = data


class Layerwise(Placement):
    """A block of modules at a time. Hooks on all modules are there only while the closure runs.

    A block is a module whose parameters, its children's included, are no more than the largest module has of its own, or a
    thirty-second of the model: of a transformer a layer. So a layer is one launch, not one for each of its tensors.
    """

    def __init__(self, layout: Layout, writer: Writer) -> None:
        super().__init__(layout, writer)
        self._segments = {id(segment.parameter): segment for segment in layout.segments}
        self._scratch: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}
        self._blocks: WeakKeyDictionary[torch.nn.Module, list[Segment]] = WeakKeyDictionary()
        self._limit = max([layout.bytes() // 32, *(_bytes_of([segment]) for segment in layout.segments)])

    @contextmanager
    def at(self, query: Query) -> Iterator[None]:
        stack: list[list[tuple[Segment, Tensor]]] = []  # of each module that is running, what it placed, and its own data
        used: set[int] = set()
        placed: set[int] = set()
        thread = threading.get_ident()  # the hooks are the process's: what other threads run is not ours

        def enter(module: torch.nn.Module, inputs: Any) -> None:
            if threading.get_ident() != thread:
                return
            block = self._blocks.get(module)
            if block is None:
                block = self._blocks[module] = self._block_of(module)
            fresh = [segment for segment in block if id(segment) not in placed]  # what a module around has placed already
            stack.append([(segment, segment.parameter.data) for segment in fresh])
            if not fresh:
                return
            depth = sum(map(bool, stack))
            rooms = self._rooms(depth, fresh)
            self._writer.write(query, list(zip(fresh, rooms, strict=True)))
            for segment, room in zip(fresh, rooms, strict=True):
                segment.parameter.data = room
                placed.add(id(segment))
                used.add(id(segment))

        def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if threading.get_ident() != thread:
                return
            for segment, data in stack.pop():
                segment.parameter.data = data
                placed.discard(id(segment))

        hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            while stack:
                leave(None, None, None)  # type: ignore[arg-type]  # whatever an exception left
        missing = [segment for segment in self._layout.segments if id(segment) not in used]
        if missing:
            shapes = " ".join(str(tuple(segment.parameter.shape)) for segment in missing[:3])
            raise NotPlaced(
                f"{len(missing)} of {len(self._segments)} parameters (of shapes {shapes} ...) were not used by the forward of a "
                "module of their own"
            )

    def _block_of(self, module: torch.nn.Module) -> list[Segment]:
        """What is placed when the module begins: everything below it, or where that is too much its own parameters."""
        whole, own = (
            sorted(
                {self._segments[id(p)] for p in parameters if id(p) in self._segments}, key=lambda segment: segment.start
            )
            for parameters in (module.parameters(), module.parameters(recurse=False))
        )  # fmt: skip
        return whole if _bytes_of(whole) <= self._limit else own

    def _rooms(self, depth: int, segments: Sequence[Segment]) -> list[Tensor]:
        """Scratch memory for a block's parameters; blocks inside one another have their own."""
        begins: dict[tuple[torch.dtype, torch.device], int] = {}
        places = []
        for segment in segments:
            kind = (segment.parameter.dtype, segment.parameter.device)
            places.append((kind, begins.get(kind, 0)))
            begins[kind] = begins.get(kind, 0) + -(-segment.parameter.numel() // _EIGHTS) * _EIGHTS
        for kind, whole in begins.items():
            scratch = self._scratch.get((depth, *kind))
            if scratch is None or scratch.numel() < whole:
                self._scratch[depth, *kind] = torch.empty(whole, dtype=kind[0], device=kind[1])
        return [
            self._scratch[depth, *kind][begin : begin + segment.parameter.numel()].view(segment.parameter.shape)
            for segment, (kind, begin) in zip(segments, places, strict=True)
        ]


def _bytes_of(segments: Sequence[Segment]) -> int:
    return sum(segment.parameter.numel() * segment.parameter.element_size() for segment in segments)


def choose_placement(placement: str, layout: Layout, writer: Writer) -> Placement:
    """The placement asked for, or the one that fits."""
    if placement == "snapshot" or (placement == "auto" and layout.bytes() <= SMALL):
        return Snapshot(layout, writer)
    return Layerwise(layout, writer)
