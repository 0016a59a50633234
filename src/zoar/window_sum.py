"""The window's gradient from running sums: the cost of a step does not depend on the window.

With the coefficients of `zoar.coefficients`, g = scale * (S0 - shift * S1) where

    S0 = sum_n [ sum_j centred_nj u_nj + level_n sum_j slope_nj u_nj ],     S1 = sum_n sum_j slope_nj u_nj.

A batch is added once, and what was added is subtracted when it leaves. The sums are float64 and each batch's part is
rounded to theta's dtype before it enters, so for float32 the subtraction undoes the addition almost exactly; the rest is
removed by adding everything up anew now and then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.coefficients import Coefficients, Share
from zoar.directions import Directions

#: Steps between two fresh sums: rounding grows like its root, and at 1,000 it is below 1e-13 of the largest term.
REFRESH_EVERY = 1_000


class WindowSum:
    """Running sums over the batches of the window."""

    def __init__(self, directions: Directions) -> None:
        self.directions = directions
        self._sums = torch.zeros(2, directions.dim, dtype=torch.float64, device=directions.device)
        self._in: dict[int, Share] = {}
        self._updates = 0

    def combine(self, coefficients: Coefficients) -> Tensor:
        """g, after bringing the sums up to date with the batches that came, changed or left."""
        for step in [step for step, share in self._in.items() if coefficients.shares.get(step) is not share]:
            self.remove(step)
        for step, share in coefficients.shares.items():
            if step not in self._in:
                self._add(step, share, +1.0)
                self._in[step] = share
        self._updates += 1
        if self._updates % REFRESH_EVERY == 0 and len(self._in) > 1:
            self._sums.zero_()
            for step, share in self._in.items():
                self._add(step, share, +1.0)
        if coefficients.shift == 0.0:
            total = self._sums[0] * coefficients.scale
        else:
            total = torch.add(self._sums[0], self._sums[1], alpha=-coefficients.shift).mul_(coefficients.scale)
        return total.to(self.directions.dtype)

    def remove(self, step: int) -> None:
        """A batch leaves; call it while its directions can still be had."""
        share = self._in.pop(step, None)
        if share is None:
            return
        if not self._in:
            self._sums.zero_()
        else:
            self._add(step, share, -1.0)

    def _add(self, step: int, share: Share, sign: float) -> None:
        rows = self.directions.rows(step)
        if share.slope is None:
            weights = torch.as_tensor(share.centred).to(device=rows.device, dtype=rows.dtype)
            self._sums[0].add_((weights @ rows).double(), alpha=sign)
            return
        weights = torch.as_tensor(np.stack((share.centred, share.slope))).to(device=rows.device, dtype=rows.dtype)
        parts = (weights @ rows).double()
        parts[0].add_(parts[1], alpha=share.level)
        self._sums.add_(parts, alpha=sign)

    def state_dict(self) -> dict[str, Any]:
        """The sums themselves: summing anew could differ in the last bit, and a resumed run must not."""
        return {"sums": self._sums.clone(), "updates": self._updates, "steps": list(self._in)}

    def load_state_dict(self, state: dict[str, Any], shares: dict[int, Share]) -> None:
        """Restores the sums; `shares` are those of the restored batches, computed from the same values."""
        self._sums.copy_(state["sums"])
        self._updates = int(state["updates"])
        self._in = {int(step): shares[int(step)] for step in state["steps"]}
