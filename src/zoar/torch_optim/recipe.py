"""What a ZOOptimizer was told to do: checked once, then frozen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from zoar.baselines import Baseline
from zoar.checking import choose, real_number, whole_number
from zoar.estimators import Estimator, as_estimator
from zoar.evaluation.outcomes import ON_ERROR
from zoar.kernels.reference import LAWS
from zoar.smoothing import Smoothing, as_smoothing
from zoar.torch_optim.backends import KERNELS
from zoar.torch_optim.moving import ROUNDINGS
from zoar.torch_optim.placing import PLACEMENTS
from zoar.updates import TorchUpdate, UpdateRule, as_update


@dataclass(frozen=True)
class Recipe:
    """Everything but what a group may have of its own."""

    estimator: Estimator
    law: Smoothing
    rule: UpdateRule
    queries: int
    window: int
    seed: int
    max_norm: float | None
    maximize: bool
    on_error: str
    placement: str
    rounding: str
    same_noise: bool
    fold: bool
    extra_memory: float
    kernels: str
    log: str | None

    @classmethod
    def check(
        cls, *, method: str | Estimator, baseline: str | Baseline | None, directions: str | Smoothing, update: str | UpdateRule,
        queries: int, window: int | None, seed: int, max_norm: float | None, maximize: bool, on_error: str, placement: str,
        rounding: str, same_noise: bool, fold: bool, extra_memory: float, kernels: str, log: str | Path | None,
    ) -> Recipe:  # fmt: skip
        """The recipe, or a sentence about what is wrong with it."""
        estimator, law, rule = as_estimator(method, baseline), as_smoothing(directions), as_update(update)
        if estimator.name == "relizo":
            raise ValueError(
                "method 'relizo' needs the distances between its samples, which are never held here; use zoar.Optimizer"
            )
        if estimator.baseline.name == "optimal":
            raise ValueError(
                "baseline 'optimal' is the window mean with rademacher directions, and needs every direction's norm with others; "
                "use baseline='window'"
            )
        if law.name not in LAWS:
            raise ValueError(
                f"directions must be {' or '.join(map(repr, LAWS))} for a model's parameters, got {law.name!r}"
            )
        if isinstance(rule, TorchUpdate):
            raise ValueError(
                f"update {rule.name!r} needs the whole estimate as a vector, which is never held here; use one of zoar's rules"
            )
        length = estimator.default_window if window is None else whole_number("window", window, 1)
        if estimator.memoryless and length > 1:
            raise ValueError(f"method {estimator.name!r} uses only the newest batch; window must be 1, got {length}")
        if max_norm is not None and not real_number("max_norm", max_norm) > 0:
            raise ValueError(f"max_norm must be above 0, got {max_norm!r}")
        for name, flag in (("maximize", maximize), ("same_noise", same_noise), ("fold", fold)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, got {flag!r}")
        if isinstance(extra_memory, bool) or not 0 <= real_number("extra_memory", extra_memory) < float("inf"):
            raise ValueError(
                "extra_memory must be bytes (an int) or times the parameters' own bytes (a float), at least 0; "
                f"got {extra_memory!r}"
            )
        if log is not None and (not isinstance(log, (str, Path)) or not str(log) or not Path(log).parent.is_dir()):
            raise ValueError(f"log must be a file in a folder that is there, got {log!r}")
        return cls(
            estimator, law, rule, whole_number("queries", queries, 1), length, whole_number("seed", seed, 0, 2**64 - 1), max_norm,
            maximize, choose("on_error", on_error, ON_ERROR), choose("placement", placement, PLACEMENTS),
            choose("rounding", rounding, ROUNDINGS), same_noise, fold, extra_memory, choose("kernels", kernels, KERNELS),
            None if log is None else str(log),
        )  # fmt: skip


def check_group(group: dict[str, Any]) -> None:
    """A sentence about a group's numbers."""
    for name, strictly in (("lr", False), ("smoothing", True), ("weight_decay", False)):
        value = group[name]
        number = float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else real_number(name, value)
        if not (0 <= number < float("inf")) or (strictly and number == 0):
            raise ValueError(f"{name} must be finite and {'above' if strictly else 'at least'} 0, got {value!r}")
