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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from zoar.kernels import reference
from zoar.kernels.reference import Address
from zoar.torch_optim.layout import Layout, Segment, neighbours, overlaps

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


class Placement(ABC):
    """Places queries."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    @abstractmethod
    def at(self, query: Query) -> Any:
        """A context in which the parameters read as the query."""


class Snapshot(Placement):
    """One copy of everything."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._copies: list[Tensor] | None = None

    @contextmanager
    def at(self, query: Query) -> Iterator[None]:
        segments = self._layout.segments
        if self._copies is None:
            self._copies = [torch.empty_like(s.parameter, memory_format=torch.contiguous_format) for s in segments]
        query.write(list(zip(segments, self._copies, strict=True)))
        own = [segment.parameter.data for segment in segments]
        try:
            for segment, copy in zip(segments, self._copies, strict=True):
                segment.parameter.data = copy
            yield
        finally:
            for segment, data in zip(segments, own, strict=True):
                segment.parameter.data = data


class Layerwise(Placement):
    """A module at a time. Hooks on all modules are there only while the closure runs."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._segments = {id(segment.parameter): segment for segment in layout.segments}
        self._scratch: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    @contextmanager
    def at(self, query: Query) -> Iterator[None]:
        stack: list[
            list[tuple[Tensor, Tensor]]
        ] = []  # of each module that is running, its parameters and their own data
        used: set[int] = set()
        placed: set[int] = set()
        thread = threading.get_ident()  # the hooks are the process's: what other threads run is not ours

        def enter(module: torch.nn.Module, inputs: Any) -> None:
            if threading.get_ident() != thread:
                return
            mine = {id(p): p for p in module._parameters.values() if p is not None and id(p) in self._segments}
            fresh = {key: p for key, p in mine.items() if key not in placed}  # a module within itself is placed already
            stack.append([(parameter, parameter.data) for parameter in fresh.values()])
            used.update(mine)
            taken: dict[tuple[torch.dtype, torch.device], int] = {}
            rooms = {key: self._room(len(stack), parameter, fresh, taken) for key, parameter in fresh.items()}
            query.write(
                sorted(((self._segments[key], room) for key, room in rooms.items()), key=lambda pair: pair[0].start)
            )
            for key, parameter in fresh.items():
                parameter.data = rooms[key]
            placed.update(fresh)

        def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if threading.get_ident() != thread:
                return
            for parameter, data in stack.pop():
                parameter.data = data
                placed.discard(id(parameter))

        hooks = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            while stack:
                leave(None, None, None)  # type: ignore[arg-type]  # whatever an exception left
        missing = [segment for key, segment in self._segments.items() if key not in used]
        if missing:
            shapes = " ".join(str(tuple(segment.parameter.shape)) for segment in missing[:3])
            raise NotPlaced(
                f"{len(missing)} of {len(self._segments)} parameters (of shapes {shapes} ...) were not used by the forward of a "
                "module of their own"
            )

    def _room(
        self, depth: int, parameter: Tensor, together: Mapping[int, Tensor], taken: dict[tuple[torch.dtype, torch.device], int]
    ) -> Tensor:  # fmt: skip
        """Scratch memory for one of a module's parameters; modules inside one another have their own."""
        kind = (parameter.dtype, parameter.device)
        whole = sum(p.numel() for p in together.values() if (p.dtype, p.device) == kind)
        scratch = self._scratch.get((depth, *kind))
        if scratch is None or scratch.numel() < whole:
            scratch = self._scratch[depth, *kind] = torch.empty(whole, dtype=kind[0], device=kind[1])
        begin = taken.get(kind, 0)
        taken[kind] = begin + parameter.numel()
        return scratch[begin : begin + parameter.numel()].view(parameter.shape)


def choose_placement(placement: str, layout: Layout) -> Placement:
    """The placement asked for, or the one that fits."""
    if placement == "snapshot" or (placement == "auto" and layout.bytes() <= SMALL):
        return Snapshot(layout)
    return Layerwise(layout)
