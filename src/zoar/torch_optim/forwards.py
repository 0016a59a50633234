"""The losses of a step's queries: placed one after the other, or folded into one forward."""

from __future__ import annotations

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

#: How far a folded loss may be from the same query's own, relative to it: another shape of matrix rounds otherwise.
_AGREE, _AGREE_16_BITS = 1e-4, 2e-2


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

            if self._fold is not None:
                folded = self._folded(self._fold, queries, run, one)
                if folded is not None:
                    return torch.stack(folded)
            elif not self.not_folded and batch.size > 1:
                with self.placement.open():
                    return torch.stack([self._scouted(one, noise), *map(one, range(1, batch.size))])
            return self._one_by_one(one, batch.size)

    def _one_by_one(self, one: Callable[[int], Tensor], size: int) -> Tensor:
        """Where a placement does not reach a parameter: what it knows of the model may be old; else another one."""
        for last in (False, True):
            try:
                with self.placement.open():
                    return torch.stack([one(slot) for slot in range(size)])
            except NotPlaced as reason:
                self.extra += 1
                if self.placement.forget() and not last:
                    continue
                if self._recipe.placement == "layerwise":
                    raise NotPlaced(
                        f"{reason}; placement='layerwise' cannot reach them, placement='snapshot' can"
                    ) from None
                break
        self.placement = Snapshot(self._layout, self._writer)
        with self.placement.open():
            return torch.stack([one(slot) for slot in range(size)])

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
    ) -> list[Tensor] | None:
        """All losses; None where the model could not be folded after all."""
        try:
            losses = fold.losses(queries, self._writer, run)
            if not self._checked:
                self._check(losses, one)
                self._checked = True
            return losses
        except (NotFoldable, NotPlaced) as reason:
            self._fold = None
            self._give_up(reason)
            return None

    def _check(self, losses: list[Tensor], one: Callable[[int], Tensor]) -> None:
        """Each query once more, alone."""
        short = any(segment.parameter.element_size() < 4 for segment in self._layout.segments)
        agree = _AGREE_16_BITS if short else _AGREE
        with self.placement.open():
            for slot, loss in enumerate(losses):
                alone, folded = float(one(slot)), float(loss)
                self.extra += 1
                if not abs(folded - alone) <= agree * (1e-3 + abs(alone)):
                    raise NotFoldable(f"a query's loss is {alone:g} alone and {folded:g} folded")

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
