"""What writes queries and moves parameters: plain torch, or Triton's kernels where there is a GPU.

Both take the same `Query` and `Move`, which know how to do themselves in plain torch. What the kernels cannot do (float64, tensors
that are not contiguous, AMSGrad) is done so too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from zoar.kernels.tiles import Tiles
from zoar.torch_optim.layout import Layout, Segment, places_of
from zoar.torch_optim.moving import Move
from zoar.torch_optim.placing import Painter, Query

KERNELS = ("auto", "reference", "triton")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Plain:
    """Plain torch."""

    def painter(self, places: Sequence[tuple[Segment, Tensor]]) -> Painter:
        """Writes perturbed parameters into their places."""
        return lambda query: query.write(places)

    def apply(self, move: Move, segments: Sequence[Segment], states: Mapping[Tensor, dict[str, Tensor]]) -> None:
        """Moves a group's parameters."""
        move.apply(segments, states)


class Kernels(Plain):
    """One launch for all parameters of a dtype that begin at a multiple of eight elements, and one for all others."""

    def __init__(self) -> None:
        self._kernels: Any = import_module("zoar.kernels.triton")
        self._tiles: dict[tuple[Any, ...], Tiles] = {}
        self._groups: dict[
            tuple[str, int], tuple[Sequence[Segment], list[Any], list[tuple[list[Segment], Tiles | None]]]
        ] = {}

    def painter(self, places: Sequence[tuple[Segment, Tensor]]) -> Painter:
        room = dict(places)
        painters: dict[str, list[Painter]] = {}

        def paint(query: Query) -> None:
            if query.law not in painters:
                painters[query.law] = [
                    super(Kernels, self).painter([(segment, room[segment]) for segment in segments])
                    if tiles is None
                    else self._launch(segments, [room[segment] for segment in segments], tiles, query.law)
                    for segments, tiles in self._launches(list(room), query.law)
                ]
            for painter in painters[query.law]:
                painter(query)

        return paint

    def _launch(self, segments: Sequence[Segment], rooms: Sequence[Tensor], tiles: Tiles, law: str) -> Painter:
        perturb = self._kernels.Perturb(rooms, [segment.parameter for segment in segments], tiles, law)
        groups = [segment.group for segment in segments]
        place = segments[0].parameter.device

        def paint(query: Query) -> None:
            with _on(place):
                perturb(query.address, [query.radii[group] for group in groups])

        return paint

    def apply(self, move: Move, segments: Sequence[Segment], states: Mapping[Tensor, dict[str, Tensor]]) -> None:
        if not self._kernels.has_rule(move.rule):
            move.apply(segments, states)
            return
        for some, tiles in self._launches_of_group(segments, move.law):
            if tiles is None:
                move.apply(some, states)
                continue
            parameters = [segment.parameter for segment in some]
            with _on(parameters[0].device):
                self._kernels.move(
                    parameters, [states[parameter] for parameter in parameters], tiles, move.addresses, move.coefficients,
                    move.law, move.rule, lr=move.lr, weight_decay=move.weight_decay, rounding=move.rounding, at=move.at,
                    sums=move.sums,
                )  # fmt: skip

    def _launches_of_group(self, segments: Sequence[Segment], law: str) -> list[tuple[list[Segment], Tiles | None]]:
        """Kept for as long as the parameters stay where they are: hundreds of them are not looked at anew at every step."""
        places = places_of(segments)
        known = self._groups.get((law, id(segments)))
        if known is None or known[0] is not segments or known[1] != places:
            known = self._groups[law, id(segments)] = (segments, places, list(self._launches(segments, law)))
        return known[2]

    def _launches(self, segments: Sequence[Segment], law: str) -> Iterator[tuple[list[Segment], Tiles | None]]:
        """Segments that go together and their tiles; none for those that there is no kernel for."""
        together: dict[tuple[Any, ...], list[Segment]] = {}
        for segment in segments:
            parameter = segment.parameter
            usable = parameter.dtype in _DTYPES and parameter.is_contiguous() and parameter.numel()
            eights = segment.start % 8 == 0 and segment.stop % 8 == 0
            together.setdefault((parameter.dtype, parameter.device, eights) if usable else (), []).append(segment)
        for kind, some in together.items():
            if not kind:
                yield some, None
                continue
            key = (law, *kind, tuple(segment.start for segment in some))
            if key not in self._tiles:
                sizes, starts = [s.parameter.numel() for s in some], [s.start for s in some]
                self._tiles[key] = Tiles(sizes, starts, law, kind[1])
            yield some, self._tiles[key]


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Triton launches on the current device."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return nullcontext()


def choose_backend(kernels: str, layout: Layout) -> Plain:
    """The one asked for, or the one that fits."""
    on_gpu = all(device.type == "cuda" for device in layout.devices())
    if kernels == "triton" or (kernels == "auto" and layout.dim and on_gpu and find_spec("triton") is not None):
        return Kernels()
    return Plain()
