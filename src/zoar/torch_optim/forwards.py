"""The losses of a step's queries: placed one after the other, or folded into one forward."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from zoar.history import QueryBatch
from zoar.kernels.reference import Address
from zoar.torch_optim.folding import Fold, NotFoldable, Scout
from zoar.torch_optim.layout import Layout
from zoar.torch_optim.noise import generators_kept, seed_of_step
from zoar.torch_optim.placing import NotPlaced, Query, Snapshot, Writer, choose_placement
from zoar.torch_optim.recipe import Recipe

#: How far a folded loss may be from the same query's own, in parts of how far apart queries are: other shapes round otherwise.
_AGREE, _AGREE_16_BITS = 1e-2, 0.1
#: Parts of the parameters' own size that queries are apart when that is tried.
_APART = 0.3


class Forwards:
    """Runs the closure."""

    def __init__(self, layout: Layout, recipe: Recipe, writer: Writer) -> None:
        self._layout, self._recipe, self._writer = layout, recipe, writer
        self.placement = choose_placement(recipe.placement, layout, writer)
        self._fold: Fold | None = None
        self._checked = False
        #: Why queries do not share a forward; empty while they do or may yet.
        self.not_folded = "" if recipe.fold else "fold=False"
        #: Evaluations that counted for nothing.
        self.extra = 0

    def losses(self, batch: QueryBatch, radii: tuple[float, ...], closure: Callable[[], Any]) -> Tensor:
        """In slot order."""
        queries = [self._query(batch, slot, radii) for slot in range(batch.size)]
        self.extra = 0
        with self._noise(batch.step) as noise:

            def run(slot: int) -> Tensor:
                noise()
                return as_scalar(self._forward(closure), slot, batch.size)

            def one(slot: int) -> Tensor:
                with self.placement.at(queries[slot]):
                    return run(slot)

            if self._recipe.fold and not self.not_folded and batch.size == 1:
                self.not_folded = "a step has one query"
            if self._fold is not None and self._fold.changed:
                self._fold, self._checked = None, False
            if self._fold is not None:
                return self._folded(self._fold, queries, run, one)
            if not self.not_folded:
                return self._one_by_one(one, batch.size, lambda: self._scouted(one, noise))
            return self._one_by_one(one, batch.size)

    def _one_by_one(self, one: Callable[[int], Tensor], size: int, first: Callable[[], Tensor] | None = None) -> Tensor:
        """Where a placement does not reach a parameter: what it knows of the model may be old; else another one."""
        for last in (False, True):
            try:
                with self.placement.open():
                    return torch.stack([first() if first else one(0), *map(one, range(1, size))])
            except NotPlaced as reason:
                self.extra += 1
                if self.placement.forget() and not last:
                    continue
                if self._recipe.placement == "layerwise":
                    raise NotPlaced(
                        f"{reason}; placement='layerwise' cannot reach them, placement='snapshot' can"
                    ) from None
                warnings.warn(f"a copy of all parameters is taken for every query: {reason}", stacklevel=2)
                break
        self.placement = Snapshot(self._layout, self._writer)
        with self.placement.open():
            return torch.stack([first() if first else one(0), *map(one, range(1, size))])

    def _query(self, batch: QueryBatch, slot: int, radii: tuple[float, ...]) -> Query:
        k = batch.directions
        side = 0.0 if batch.centred and slot == batch.size - 1 else 1.0 if slot < k else -1.0
        address = Address(self._recipe.seed, batch.step, slot % k)
        return Query(address, self._recipe.law.name, [side * radius for radius in radii])

    def _forward(self, closure: Callable[[], Any]) -> Any:
        try:
            with torch.inference_mode():
                return closure()
        except NotFoldable:
            raise
        except RuntimeError as error:
            if "require grad" in str(error) or "inference tensor" in str(error).lower():
                raise RuntimeError(
                    f"the closure takes a gradient; a zeroth-order step is forward passes only ({error})"
                ) from error
            raise

    @contextmanager
    def _noise(self, step: int) -> Iterator[Callable[[], None]]:
        """Yields what is to be called before each query."""
        if not self._recipe.same_noise:
            yield lambda: None
            return
        seed = seed_of_step(self._recipe.seed, step)
        with generators_kept(self._layout.devices()) as generators:

            def seeded() -> None:
                for generator in generators:
                    generator.manual_seed(seed)

            yield seeded

    # -- folding ----------------------------------------------------------------------------------------------------------

    def _scouted(self, one: Callable[[int], Tensor], noise: Callable[[], None]) -> Tensor:
        """The first query, watched."""
        scout = Scout(self._layout)
        devices = self._layout.devices()
        with generators_kept(devices) as generators:
            noise()
            quiet = [generator.get_state() for generator in generators]
            try:
                with scout.watching():
                    loss = one(0)
                if any(not torch.equal(before, g.get_state()) for before, g in zip(quiet, generators, strict=True)):
                    raise NotFoldable(
                        "the model draws random numbers (dropout), which rows of one batch would not share"
                    )
                self._fold = scout.found()
            except NotFoldable as reason:
                self._give_up(reason)
                loss = one(0)
        return loss

    def _folded(
        self, fold: Fold, queries: list[Query], run: Callable[[int], Tensor], one: Callable[[int], Tensor]
    ) -> Tensor:
        """All losses, one by one where the model could not be folded after all."""
        try:
            if not self._checked:
                self._check(fold, queries, run)
            return torch.stack(fold.losses(queries, self._writer, run))
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as reason:
            losses = self._one_by_one(one, len(queries))  # what is wrong with the closure itself is raised here
            self._fold = None
            self._give_up(reason)
            return losses

    def _check(self, fold: Fold, queries: list[Query], run: Callable[[int], Tensor]) -> None:
        """Queries so far apart that their losses differ by more than rounding: folded, and alone."""
        size = sum(float((s.parameter.detach().double() ** 2).sum()) for s in self._layout.segments)
        apart = _APART * (1e-2 + (size / self._layout.dim) ** 0.5)
        far = [Query(q.address, q.law, [(1 if r >= 0 else -1) * max(abs(r), apart) for r in q.radii]) for q in queries]
        folded = [float(loss) for loss in fold.losses(far, self._writer, run)]
        with self.placement.open():
            alone = []
            for slot, query in enumerate(far):
                with self.placement.at(query):
                    alone.append(float(run(slot)))
        self.extra += 2 * len(queries)
        pairs = [pair for pair in zip(folded, alone, strict=True) if all(map(math.isfinite, pair))]
        if len(pairs) < 2:
            return  # tried again at the next step
        short = any(segment.parameter.element_size() < 4 for segment in self._layout.segments)
        spread = max(loss for _, loss in pairs) - min(loss for _, loss in pairs)
        allowed = (_AGREE_16_BITS if short else _AGREE) * (spread + 1e-3 * abs(pairs[0][1]))
        for one, other in pairs:
            if abs(one - other) > allowed:
                raise NotFoldable(f"a query's loss is {other:g} alone and {one:g} folded")
        self._checked = True

    def _give_up(self, reason: Exception) -> None:
        self.not_folded = str(reason)
        warnings.warn(f"the queries of a step run one after the other: {reason}", stacklevel=2)


def as_scalar(loss: Any, slot: int, size: int) -> Tensor:
    """A loss as a float32 number on its device (float64 stays)."""
    where = f"the closure's loss at query {slot + 1} of {size}"
    if isinstance(loss, (int, float)) and not isinstance(loss, bool):
        return torch.tensor(float(loss), dtype=torch.float64)
    if not isinstance(loss, Tensor) or loss.is_complex() or loss.dtype == torch.bool:
        raise TypeError(f"{where} must be a number or a tensor of one number, got {type(loss).__name__}: {loss!r}")
    if loss.numel() != 1:
        raise ValueError(f"{where} must be one number, got shape {tuple(loss.shape)}; take its mean")
    return loss.detach().clone().reshape(()).to(torch.float64 if loss.dtype == torch.float64 else torch.float32)
