"""A step that costs the same for any window: two running sums of the model's size, where there is memory for them.

The paper's estimate over a window is g = scale (sum_i y_i u_i - b sum_i u_i). The sums gain a step's K directions and lose the K
that leave; b, which changes every step, is outside them. Both are kept as whole numbers (int32 of values measured from `level` in
`unit`s, and int8), so that adding and taking away is exact: nothing drifts, nothing is refreshed, and a resumed run has the sums
that it had. Values are rounded to the unit once, to 24 bits of eight times the window's spread.

With a baseline that a batch has to itself the second sum is not needed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.coefficients import Coefficients, Share
from zoar.kernels.digits import LARGEST
from zoar.kernels.reference import Address, Sums
from zoar.torch_optim.layout import Layout

#: Fewer directions than this are replayed sooner than two sums are read and written.
WORTHWHILE = 64
_MOST = 127  # directions, whose signs an int8 counts
_HEADROOM, _FINEST = 8.0, 2.0**-10


@dataclass(frozen=True)
class Change:
    """What a step does to the sums, and the estimate after it."""

    addresses: list[Address]
    whole: np.ndarray[Any, Any]
    plain: np.ndarray[Any, Any]
    scale: float
    shift: float | None
    fresh: bool
    inside: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]

    def of(self, tensors: dict[Tensor, tuple[Tensor, Tensor]], factor: float) -> Sums:
        """For a group whose estimate is so much larger."""
        whole = None if self.shift is None else round(self.shift)
        part = 0.0 if self.shift is None or whole is None else self.shift - whole
        return Sums(tensors, self.whole, self.plain, self.scale * factor, whole, part, self.fresh)


class RunningSums:
    """The sums of one optimizer. They are in no saved state: the window and `grid` say what they are."""

    def __init__(self, layout: Layout, allowed: float, seed: int, law: str) -> None:
        self._layout, self._seed = layout, seed
        self._allowed = allowed if law == "rademacher" else 0  # signs are whole numbers
        self.tensors: dict[Tensor, tuple[Tensor, Tensor]] = {}
        self._inside: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] | None = None

    def plan(self, coefficients: Coefficients, grid: str) -> tuple[Change, str] | None:
        """The change from one step to the next and the grid it is in; None where a replay is meant, or all there is."""
        if not self._allowed:
            return None
        shares = coefficients.shares
        directions = sum(len(share.centred) for share in shares.values())
        slopes = {
            float(slope) for share in shares.values() if share.slope is not None for slope in np.unique(share.slope)
        } - {0.0}
        if not (WORTHWHILE <= directions <= _MOST) or len(slopes) > 1 or self._bytes(bool(slopes)) > self._allowed:
            self._inside = None
            return None
        (slope,) = slopes or {0.0}
        level, unit = _regridded(coefficients, slope, grid)
        known = None if json.dumps([level, unit]) != grid else self._inside
        wanted = {
            step: known[step] if known and step in known else _whole(share, level, unit)
            for step, share in shares.items()
        }
        enter = [step for step in wanted if known is None or step not in known]
        leave = [] if known is None else [step for step in known if step not in wanted]
        turned = [(wanted[step], step, 1) for step in enter]
        if known is not None:
            turned += [(known[step], step, -1) for step in leave]
        addresses = [
            Address(self._seed, step, query) for numbers, step, _ in turned for query in range(len(numbers[0]))
        ]
        whole, plain = (
            np.concatenate([np.zeros(0, np.int64), *(sign * numbers[which] for numbers, _, sign in turned)])
            for which in (0, 1)
        )
        shift = (coefficients.shift - level) * slope / unit if slope else None
        change = Change(addresses, whole, plain, coefficients.scale * unit, shift, known is None, wanted)
        self._make(bool(slope))
        self._inside = None  # until it is done
        return change, json.dumps([level, unit])

    def done(self, change: Change) -> None:
        """The tensors have it."""
        self._inside = change.inside

    def _bytes(self, shifts: bool) -> int:
        return self._layout.dim * (5 if shifts else 4)

    def _make(self, shifts: bool) -> None:
        for segment in self._layout.segments:
            parameter = segment.parameter
            if parameter not in self.tensors:
                size = parameter.numel()
                self.tensors[parameter] = (
                    torch.zeros(size, dtype=torch.int32, device=parameter.device),
                    torch.zeros(size if shifts else 0, dtype=torch.int8, device=parameter.device),
                )


def _regridded(coefficients: Coefficients, slope: float, grid: str) -> tuple[float, float]:
    """The level and unit there are, or others where values have left their range, or their differences become small in it."""
    level, unit = json.loads(grid) if grid else (0.0, 0.0)
    middle = coefficients.shift if slope else 0.0
    spread = _largest(coefficients, middle)
    if unit and _largest(coefficients, level) <= LARGEST * unit and spread >= _FINEST * LARGEST * unit:
        return level, unit
    if not spread:
        return middle, unit or 1.0
    return middle, 2.0 ** math.ceil(math.log2(_HEADROOM * spread / LARGEST))


def _largest(coefficients: Coefficients, level: float) -> float:
    return max(float(np.abs(_above(share, level)).max()) for share in coefficients.shares.values())


def _above(share: Share, level: float) -> np.ndarray[Any, Any]:
    return share.centred if share.slope is None else share.centred + (share.level - level) * share.slope


def _whole(share: Share, level: float, unit: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A batch's numbers in the two sums."""
    plain = np.zeros(len(share.centred), np.int64) if share.slope is None else (share.slope != 0).astype(np.int64)
    return np.rint(_above(share, level) / unit).astype(np.int64), plain
