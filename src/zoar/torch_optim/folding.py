"""K queries in one forward: K copies of the adapters are folded into the batch, and the frozen weights are read once.

What is trained must be weights and biases of `torch.nn.Linear`, as PEFT's LoRA layers are made of; such a layer multiplies each
query's rows by its own copy (`torch.bmm`). Nothing else of the model is told: its inputs come K times as many, its outputs are
cut in K.

The module whose forward is folded is the innermost that all trained layers lie in; it is found by watching a step of ordinary
queries. The closure still runs once a query, and finds that module's part of its work done: the first time it runs for all
queries, then it hands out what it made. So a head and a loss outside it are the user's own, and a closure that gives other inputs
to each query is noticed. `NotFoldable` says in a sentence why a model cannot be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_flatten, tree_unflatten

from zoar.torch_optim.layout import Layout, Segment
from zoar.torch_optim.placing import Painter, Query, Writer


class NotFoldable(RuntimeError):
    """Why queries cannot share a forward."""


class Scout:
    """Watches one forward: which module uses each trained parameter, and what runs around it."""

    def __init__(self, layout: Layout) -> None:
        self._segments = {id(segment.parameter): segment for segment in layout.segments}
        self._around: list[torch.nn.Module] = []
        self.users: dict[Segment, torch.nn.Module] = {}
        self._common: list[torch.nn.Module] | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        mine = [self._segments[id(p)] for p in module._parameters.values() if p is not None and id(p) in self._segments]
        if mine:
            for segment in mine:
                if segment in self.users:
                    raise NotFoldable(f"a trained parameter of shape {_shape(segment)} is used twice in a forward")
                self.users[segment] = module
            shared = self._around if self._common is None else self._common
            same = [one is other for one, other in zip(shared, self._around, strict=False)]
            length = same.index(False) if False in same else len(same)
            self._common = self._around[:length]
        self._around.append(module)

    def _leave(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self._around.pop()

    def found(self) -> Fold:
        """What to fold."""
        for segment in self._segments.values():
            user = self.users.get(segment)
            if user is None:
                raise NotFoldable(f"a trained parameter of shape {_shape(segment)} was not used by a module of its own")
            if "forward" in vars(user) or user._forward_pre_hooks:
                raise NotFoldable("a trained layer's forward was changed, or has hooks")
            if type(user) is not torch.nn.Linear:
                raise NotFoldable(
                    f"a trained parameter of shape {_shape(segment)} belongs to a {type(user).__name__}, not to a Linear"
                )
        if not self._common:
            raise NotFoldable("no module's forward contains all trained layers")
        for module in self._common[-1].modules():
            if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.training:
                raise NotFoldable(f"a {type(module).__name__} in training mode would mix the queries")
        return Fold(self._common[-1], self.users)


class Fold:
    """A module whose forward runs for K queries at once."""

    def __init__(self, module: torch.nn.Module, users: dict[Segment, torch.nn.Module]) -> None:
        self._module, self._users = module, users
        self._copies: dict[Segment, Tensor] = {}
        self._painters: list[Painter] = []
        self._folded: dict[torch.nn.Module, _FoldedLinear] = {}
        self._places: list[Any] = []
        self._training = self._modes()

    def _modes(self) -> tuple[bool, ...]:
        return tuple(module.training for module in self._module.modules())

    @property
    def changed(self) -> bool:
        """Whether the model is in another mode than when it was watched."""
        return self._modes() != self._training

    def losses(self, queries: Sequence[Query], writer: Writer, run: Callable[[int], Tensor]) -> list[Tensor]:
        """`run(k)` is the closure for query k."""
        self._write(queries, writer)
        shared = _SharedForward(self._module.forward, len(queries), self._folded_layers)
        own = self._module.__dict__.get("forward")  # a forward may have been wrapped, as accelerate does
        self._module.__dict__["forward"] = shared
        try:
            losses = [run(k) for k in range(len(queries))]
        finally:
            if own is None:
                del self._module.__dict__["forward"]
            else:
                self._module.__dict__["forward"] = own
        if shared.calls != len(queries):
            raise NotFoldable(f"{type(self._module).__name__} ran {shared.calls} times for {len(queries)} queries")
        return losses

    def _write(self, queries: Sequence[Query], writer: Writer) -> None:
        segments = sorted(self._users, key=lambda segment: segment.start)
        k, layers = len(queries), dict.fromkeys(self._users.values())
        weights = [p for layer in layers for p in layer._parameters.values() if p is not None]
        places = [k, *((p.data_ptr(), p.dtype, p.stride()) for p in weights)]
        if places != self._places:
            self._places = places
            self._copies = {
                s: torch.empty((k, *s.parameter.shape), dtype=s.parameter.dtype, device=s.parameter.device)
                for s in segments
            }
            self._painters = [
                writer.painter(
                    [(Segment(s.parameter.data, s.start, s.group), self._copies[s][place]) for s in segments]
                )
                for place in range(k)
            ]
            self._folded = self._layers(k)
        for paint, query in zip(self._painters, queries, strict=True):
            paint(query)

    def _layers(self, k: int) -> dict[torch.nn.Module, _FoldedLinear]:
        """The trained layers for k copies."""
        copies: dict[torch.nn.Module, dict[int, Tensor]] = {}
        for segment, user in self._users.items():
            copies.setdefault(user, {})[id(segment.parameter)] = self._copies[segment]
        layers = {}
        for layer, own in copies.items():
            weight, bias = layer._parameters["weight"], layer._parameters["bias"]
            layers[layer] = _FoldedLinear(k, own.get(id(weight), weight), own.get(id(bias), bias))
        return layers

    @contextmanager
    def _folded_layers(self) -> Iterator[None]:
        for layer, folded in self._folded.items():
            layer.__dict__["forward"] = folded  # setattr looks through all a module has
        try:
            yield
        finally:
            for layer in self._folded:
                del layer.__dict__["forward"]


class _FoldedLinear:
    """A Linear whose rows' first K-th has the first copy, and so on."""

    def __init__(self, k: int, weight: Any, bias: Any) -> None:
        self._k = k
        self._weight = weight.expand(k, *weight.shape[-2:]).transpose(1, 2)  # a frozen one is K times the same
        self._bias = None if bias is None else bias.reshape(-1, 1, bias.shape[-1])

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] % self._k:
            raise NotFoldable(f"a trained layer's input of shape {tuple(x.shape)} is not {self._k} batches")
        rows = x.reshape(self._k, -1, x.shape[-1])
        out = torch.bmm(rows, self._weight)
        if self._bias is not None:
            out = out + self._bias.to(out.dtype)
        return out.reshape(*x.shape[:-1], out.shape[-1])


_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


class _SharedForward:
    """The first call is for all queries; it and the others return one query's part each."""

    def __init__(self, forward: Callable[..., Any], k: int, folded: Callable[[], Any]) -> None:
        self._forward, self._k, self._folded = forward, k, folded
        self._inputs: list[Any] = []
        self._parts: list[list[Any]] = []
        self._spec: Any = None
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs, spec = tree_flatten((args, kwargs))
        if self.calls == 0:
            self._inputs = inputs
            self._run(inputs, spec)
        elif not self._same(inputs):
            raise NotFoldable(
                "the closure gave the model other inputs than for the query before; every query must have the same"
            )
        self.calls += 1
        if self.calls > self._k:
            raise NotFoldable("the model ran more than once for a query")
        return tree_unflatten([part[self.calls - 1] for part in self._parts], self._spec)

    def _run(self, inputs: list[Any], spec: Any) -> None:
        sizes = [leaf.shape[0] for leaf in inputs if isinstance(leaf, Tensor) and leaf.ndim]
        if not sizes:
            raise NotFoldable("the model was called without a tensor that has a batch dimension")
        batch = sizes[0]
        many = [
            leaf.repeat(self._k, *[1] * (leaf.ndim - 1))
            if isinstance(leaf, Tensor) and leaf.ndim and leaf.shape[0] == batch
            else leaf
            for leaf in inputs
        ]
        args, kwargs = tree_unflatten(many, spec)
        with self._folded():
            outputs, self._spec = tree_flatten(self._forward(*args, **kwargs))
        self._parts = [self._cut(leaf, batch) for leaf in outputs]

    def _cut(self, leaf: Any, batch: int) -> list[Any]:
        if isinstance(leaf, Tensor):
            if not leaf.ndim or leaf.shape[0] != self._k * batch:
                raise NotFoldable(
                    f"the model returned a tensor of shape {tuple(leaf.shape)}, without the batch's {self._k} x {batch} rows; a "
                    "loss must be computed from its other outputs (for Transformers: leave out labels)"
                )
            return list(leaf.chunk(self._k))
        plain = leaf is None or isinstance(leaf, (bool, int, float, str))
        return [leaf if plain else None] * self._k  # a cache of keys and values has K batches' rows: nobody's

    def _same(self, inputs: list[Any]) -> bool:
        if len(inputs) != len(self._inputs):
            return False
        return all(
            one is other
            or (
                isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and one.dtype == other.dtype
                and ((one.data_ptr() == other.data_ptr() and one.stride() == other.stride()) or torch.equal(one, other))
            )
            or (not isinstance(one, Tensor) and type(one) in _PLAIN and one == other)
            for one, other in zip(inputs, self._inputs, strict=True)
        )  # fmt: skip


def _shape(segment: Segment) -> tuple[int, ...]:
    return tuple(segment.parameter.shape)
