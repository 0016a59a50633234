"""Placing a query a block of modules at a time: beside the model is held what one block takes.

A block is a module whose parameters, its children's included, are no more than the largest parameter there is, or a thirty-second
of the model: of a transformer a layer. They are written perturbed into scratch memory when its forward begins, and point there
until it is over. So a layer is one launch, not one for each of its tensors.

Every parameter must be used within the forward of a module that has it. One that is only used from elsewhere, a part of a block
that runs outside of it, and a module that returns its parameters are noticed. **Not noticed** is a parameter that its own module
uses and another one too, behind its back (`h @ self.embed.weight.T` for a head; a head that is a module of its own and shares the
weight is fine), and what a forward does only later than the first step. Such a model wants `placement="snapshot"`, and so do
compiled ones.

The first forward is watched by hooks on all modules, to learn which there are; from then on only blocks have hooks, and only while
the closure runs.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from zoar.torch_optim.layout import Layout, Segment, places_of
from zoar.torch_optim.placing import NotPlaced, Painted, Placement, Query, Writer

_APART = 32  # elements: tensors in scratch memory begin where the kernels can load eight at once
_FEW = 2  # parameters: a block of so few has memory of its own, given back at once


class _Block:
    """A module, and what is placed when its forward begins."""

    def __init__(
        self, module: torch.nn.Module, segments: Sequence[Segment], writer: Writer, scratch: _Scratch | None
    ) -> None:
        self.module, self.segments, self._writer = module, segments, writer
        self._kept = None if scratch is None else Painted(segments, writer, lambda: scratch.rooms(segments))

    def write(self, query: Query, placed: set[int]) -> Painted | None:
        """The perturbed parameters, but those that a module around this one has placed; None where that is all."""
        free = [segment for segment in self.segments if id(segment) not in placed] if placed else self.segments
        if not free:
            return None
        painted = self._kept
        if (
            placed or painted is None
        ):  # memory of its own, given back afterwards: another block's is in use, or it is large
            painted = Painted(free, self._writer, lambda: _copies(free))
        if not painted.rooms:
            painted.refresh()
        painted.paint(query)
        return painted


def _copies(segments: Sequence[Segment]) -> list[Tensor]:
    return [torch.empty_like(s.parameter, memory_format=torch.contiguous_format) for s in segments]


class _Scratch:
    """Memory that blocks use one after another."""

    def __init__(self, blocks: Sequence[Sequence[Segment]]) -> None:
        self._sizes: dict[tuple[torch.dtype, torch.device], int] = {}
        for segments in blocks:
            for kind, size in self._places(segments)[1].items():
                self._sizes[kind] = max(self._sizes.get(kind, 0), size)
        self._flat: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def rooms(self, segments: Sequence[Segment]) -> list[Tensor]:
        places, ends = self._places(segments)
        for kind, end in ends.items():  # of another dtype or device than at first, where the model was moved since
            if kind not in self._flat:
                self._flat[kind] = torch.empty(max(end, self._sizes.get(kind, 0)), dtype=kind[0], device=kind[1])
            elif self._flat[kind].numel() < end:
                self._flat[kind] = torch.empty(end, dtype=kind[0], device=kind[1])
        return [
            self._flat[kind][begin : begin + segment.parameter.numel()].view(segment.parameter.shape)
            for segment, (kind, begin) in zip(segments, places, strict=True)
        ]

    @staticmethod
    def _places(segments: Sequence[Segment]) -> tuple[list[tuple[Any, int]], dict[Any, int]]:
        """Where each begins, and how long all are, of each dtype and device."""
        ends: dict[Any, int] = {}
        places = []
        for segment in segments:
            kind = (segment.parameter.dtype, segment.parameter.device)
            places.append((kind, ends.get(kind, 0)))
            ends[kind] = ends.get(kind, 0) + -(-segment.parameter.numel() // _APART) * _APART
        return places, ends


class Layerwise(Placement):
    """A block of modules at a time."""

    def __init__(self, layout: Layout, writer: Writer) -> None:
        super().__init__(layout, writer)
        self._segments = {id(segment.parameter): segment for segment in layout.segments}
        self._limit = max([layout.bytes() // 32, *(_bytes_of([segment]) for segment in layout.segments)])
        self._blocks: list[_Block] | None = None
        self._places: list[Any] = []
        self._running = _Running()

    def forget(self) -> bool:
        known, self._blocks = self._blocks is not None, None
        return known

    @contextmanager
    def open(self) -> Iterator[None]:
        places = places_of(self._layout.segments)
        if places != self._places:  # parameters that were replaced or moved
            self._places, self._blocks = places, None
        running = self._running = _Running(watched=self._blocks is None)
        found: list[_Block] = []
        seen: set[torch.nn.Module] = set()

        def discover(module: torch.nn.Module, inputs: Any) -> None:
            if torch.compiler.is_compiling() or threading.get_ident() != running.thread:
                return
            if module not in seen:  # part of none that ran before
                if any(_is_compiled(part) for part in module.modules()):
                    raise NotPlaced("the model is compiled, and a compiled forward runs no hooks")
                blocks = self._blocks_of(module, seen)
                found.extend(blocks)
                running.hook(blocks)
                for block in blocks:
                    if block.module is module:  # whose own hooks were called already
                        running.enter(block, module, inputs)
            elif not any(block.module is module for block in found):
                running.check_within(module, self._of(module.parameters(recurse=False)))

        with warnings.catch_warnings():
            if self._blocks is None:
                warnings.filterwarnings("ignore", message=r".*torch\.compile\(module\).* when there are global hooks")
                running.undo.append(register_module_forward_pre_hook(discover).remove)
            else:
                running.hook(self._blocks)
            try:
                yield
                self._blocks = self._blocks or found
            finally:
                running.over()

    @contextmanager
    def at(self, query: Query) -> Iterator[None]:
        running = self._running
        running.query, running.used = query, set()
        try:
            yield
        finally:
            running.leave_all()
        if len(running.used) < len(self._segments):
            missing = [segment for segment in self._layout.segments if id(segment) not in running.used]
            shapes = " ".join(str(tuple(segment.parameter.shape)) for segment in missing[:3])
            raise NotPlaced(
                f"{len(missing)} of {len(self._segments)} parameters (of shapes {shapes} ...) were not used by the forward of a "
                "module of their own"
            )

    def _blocks_of(self, root: torch.nn.Module, seen: set[torch.nn.Module]) -> list[_Block]:
        """The blocks that a module and those below it are cut into."""
        whole: list[tuple[torch.nn.Module, list[Segment]]] = []
        parts: list[tuple[torch.nn.Module, list[Segment]]] = []  # of modules whose children are blocks themselves

        def cut(module: torch.nn.Module) -> None:
            if module in seen:
                return
            everything = self._of(module.parameters())
            runs = type(module).forward is not torch.nn.Module.forward  # a list of modules does not
            if runs and _bytes_of(everything) <= self._limit:
                seen.update(module.modules())
                if everything:
                    whole.append((module, everything))
                return
            seen.add(module)
            own = self._of(module.parameters(recurse=False))
            if own:
                parts.append((module, own))
            for child in module.children():
                cut(child)

        cut(root)
        shared = _Scratch([segments for _, segments in whole if len(segments) > _FEW])
        return [
            _Block(module, segments, self._writer, None if len(segments) <= _FEW else shared)
            for module, segments in whole
        ] + [_Block(module, segments, self._writer, _Scratch([segments])) for module, segments in parts]

    def _of(self, parameters: Iterator[torch.nn.Parameter]) -> list[Segment]:
        mine = {self._segments[id(parameter)] for parameter in parameters if id(parameter) in self._segments}
        return sorted(mine, key=lambda segment: segment.start)


class _Running:
    """A step's queries: the hooks, and what is placed where."""

    def __init__(self, watched: bool = False) -> None:
        self.query: Query | None = None
        self.thread = threading.get_ident()  # what other threads run is not ours
        self.used: set[int] = set()
        self.undo: list[Callable[[], None]] = []
        self._watched = watched
        self._placed: set[int] = set()
        self._stack: list[tuple[Painted | None, set[int]]] = []

    def hook(self, blocks: Sequence[_Block]) -> None:
        for block in blocks:  # before other hooks, which may read the parameters
            enter = block.module.register_forward_pre_hook(partial(self.enter, block), prepend=True)
            leave = block.module.register_forward_hook(self._leave, always_call=True)
            self.undo += [enter.remove, leave.remove]

    def enter(self, block: _Block, module: torch.nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self.thread or self.query is None:
            return
        painted = block.write(self.query, self._placed)
        ids = {id(segment) for segment in painted.segments} if painted else set()
        self._stack.append((painted, ids))
        self.used |= ids
        self._placed |= ids
        if painted:
            painted.point(painted.rooms)

    def check_within(self, module: torch.nn.Module, own: Sequence[Segment]) -> None:
        """A module that is part of a block must run while the block does."""
        if self.query is not None and any(id(segment) not in self._placed for segment in own):
            raise NotPlaced(f"a {type(module).__name__} runs outside of the module that it is a part of")

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self.thread or not self._stack:
            return
        painted, ids = self._stack.pop()
        if painted:
            painted.point(painted.own)
        self._placed -= ids
        if self._watched and painted and self.query is not None:
            rooms = {room.untyped_storage().data_ptr() for room in painted.rooms}
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() in rooms:
                    raise NotPlaced(
                        f"a {type(module).__name__} returns its parameters, which are used after its forward"
                    )

    def leave_all(self) -> None:
        """Whatever an exception left."""
        self.query = None
        while self._stack:
            self._leave(None, None, None)

    def over(self) -> None:
        self.leave_all()
        for undo in self.undo:
            undo()


def _is_compiled(module: torch.nn.Module) -> bool:
    """Whether torch.compile(module) made it, or module.compile() changed it."""
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


def _bytes_of(segments: Sequence[Segment]) -> int:
    return sum(segment.parameter.numel() * segment.parameter.element_size() for segment in segments)
