"""The trajectory log: what a run did to its parameters, as a text file of kilobytes, and its replay.

    optimizer = zoar.ZoAR(model.parameters(), lr=1e-4, log="run.zoar")
    ...
    zoar.replay(fresh_model, "run.zoar")          # fresh_model now has the trained parameters

A line of JSON tells how the optimizer was made; then every step has one: its losses, and each group's rate, radius and decay.
Directions are addresses, so that is all there is to know. On the backend that wrote the log (`kernels`, device, dtype) the replayed
parameters are the trained ones to the bit; on another, to rounding.

A run that goes on from a checkpoint goes on with its log: lines of steps after the checkpoint are dropped.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from zoar.checking import whole_number
from zoar.estimators import as_estimator
from zoar.smoothing import as_smoothing
from zoar.torch_optim.layout import Layout
from zoar.torch_optim.recipe import Recipe
from zoar.updates import UPDATES

if TYPE_CHECKING:
    from zoar.torch_optim.optimizer import ZOOptimizer

_FORMAT = 1
_OWN = ("lr", "smoothing", "weight_decay")  # of each group


class TrajectoryLog:
    """Appends to a log file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._begun = False
        self._size = 0

    def append(self, groups: Sequence[dict[str, Any]], step: int, values: list[float]) -> None:
        """A step that was taken."""
        settings = [[float(group[name]) for name in _OWN] for group in groups]
        losses = [value if math.isfinite(value) else None for value in values]
        if self.path.stat().st_size != self._size:
            raise RuntimeError(f"another run writes to {self.path} too; give each a file of its own")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "values": losses, "groups": settings}) + "\n")
        self._size = self.path.stat().st_size

    def open(self, recipe: Recipe, layout: Layout, step: int) -> None:
        """Before the first step that is written: how the optimizer was made, or a sentence why this file is not for it."""
        if self._begun:
            return
        made = _made(recipe, layout)
        if step == 0:
            if self.path.exists() and len(self.path.read_text(encoding="utf-8").splitlines()) > 1:
                raise FileExistsError(f"{self.path} is the log of another run; give a file of its own, or remove it")
            self.path.write_text(json.dumps({**made, "start": fingerprint(layout)}) + "\n", encoding="utf-8")
        else:
            header, steps = read(self.path)
            differs = [name for name in made if made[name] != header[name]]
            if differs:
                raise ValueError(
                    f"{self.path} is the log of an optimizer that was made otherwise: {', '.join(differs)}"
                )
            if len(steps) < step:
                raise ValueError(
                    f"{self.path} ends at step {len(steps)}, and this optimizer is at step {step}: steps between are lost"
                )
            lines = self.path.read_text(encoding="utf-8").splitlines()[: 1 + step]
            self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._begun, self._size = True, self.path.stat().st_size


def read(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """How the optimizer was made, and the steps. A last line that was cut short is left out."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(json.loads(line))
        except ValueError:
            if number < len(lines) or number == 1:
                raise ValueError(f"line {number} of {path} is not what a trajectory log has there") from None
    if not parsed or parsed[0].get("zoar_trajectory") != _FORMAT:
        raise ValueError(f"{path} is no trajectory log of zoar (format {_FORMAT})")
    steps = parsed[1:]
    if [entry.get("step") for entry in steps] != list(range(len(steps))):
        raise ValueError(f"the steps in {path} are not 0, 1, 2, ...: lines are missing or were moved")
    return parsed[0], steps


def replay(
    module: torch.nn.Module | Iterable[Any], log: str | Path, *, steps: int | None = None, kernels: str = "auto"
) -> ZOOptimizer:
    """Moves initial parameters along a logged run; no forward pass is taken.

    Args:
        module: the model with the parameters that the run began with; or what the optimizer was given as `params`, where that was
            not `model.parameters()`.
        log: the file.
        steps: how many of its steps to take; None for all.
        kernels: as for the optimizer; for the same bits, what it was then.

    Returns:
        The optimizer as it was after those steps: training can go on with it.
    """
    from zoar.torch_optim.optimizer import ZOOptimizer

    header, entries = read(log)
    params = module.parameters() if isinstance(module, torch.nn.Module) else module
    options = dict(header["options"], update=UPDATES[header["update"][0]](**header["update"][1]))
    optimizer = ZOOptimizer(params, kernels=kernels, **options)
    layout = optimizer._layout
    if _sizes(layout) != header["sizes"] or len(optimizer.param_groups) != header["groups"]:
        raise ValueError(
            f"the log is of {len(header['sizes'])} parameters in {header['groups']} group(s) with {sum(header['sizes'])} elements, "
            f"and these are {len(layout.segments)} in {len(optimizer.param_groups)} with {layout.dim}; give the run's own params"
        )
    if fingerprint(layout) != header["start"]:
        raise ValueError(
            "these are not the parameters that the run began with, to the bit and in the same dtype; load the model as it was then"
        )
    if steps is not None and not 0 <= whole_number("steps", steps, 0) <= len(entries):
        raise ValueError(f"the log has {len(entries)} steps, got steps={steps!r}")
    for entry in entries[:steps]:
        for group, own in zip(optimizer.param_groups, entry["groups"], strict=True):
            group.update(zip(_OWN, own, strict=True))
        optimizer.tell([math.nan if value is None else value for value in entry["values"]])
    return optimizer


def _made(recipe: Recipe, layout: Layout) -> dict[str, Any]:
    """How an optimizer was made, as plain data; a sentence where names do not tell."""
    names = {"method": recipe.estimator.name, "baseline": recipe.estimator.baseline.name, "directions": recipe.law.name}
    plain = (
        as_estimator(names["method"], names["baseline"]) == recipe.estimator
        and as_smoothing(names["directions"]) == recipe.law
    )
    if not plain or type(recipe.rule) is not UPDATES.get(recipe.rule.name):
        raise ValueError("a trajectory log names method, directions and update; it cannot describe objects of your own")
    same = ("queries", "window", "seed", "max_norm", "maximize", "rounding")
    options = {
        **names,
        **{name: getattr(recipe, name) for name in same},
        "on_error": "drop",
        "extra_memory": recipe.extra_memory,
    }
    rule = asdict(recipe.rule)  # type: ignore[call-overload]  # every rule of UPDATES is a dataclass
    made = {
        "zoar_trajectory": _FORMAT, "options": options, "update": [recipe.rule.name, rule], "sizes": _sizes(layout),
        "groups": len(layout.sizes()),
    }  # fmt: skip
    return dict(json.loads(json.dumps(made)))


def _sizes(layout: Layout) -> list[int]:
    return [segment.parameter.numel() for segment in layout.segments]


def fingerprint(layout: Layout) -> str:
    """Of the parameters' bits: sums of whole numbers, which are the same on every device."""
    digest = hashlib.sha256()
    for segment in layout.segments:
        parameter = segment.parameter.detach()
        bits = parameter.contiguous().view(_BITS[parameter.element_size()])
        digest.update(f"{parameter.dtype} {int(bits.sum(dtype=torch.int64))} ".encode())
    return digest.hexdigest()[:16]


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
