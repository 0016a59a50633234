"""The window's gradient from running sums: the cost of a step does not depend on the window.

With the coefficients of `zoar.coefficients`, g = scale * (S0 - shift * S1) where

    S0 = sum_n [ sum_j centred_nj u_nj + level_n sum_j slope_nj u_nj ],     S1 = sum_n sum_j slope_nj u_nj.

A batch is added once, and what was added is subtracted when it leaves; its two vectors may be kept for that, or made
again from its directions (`zoar.storage`). The sums are float64 and each batch's part is
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

    def __init__(self, directions: Directions, keep_parts: bool) -> None:
        self.directions = directions
        self._parts: dict[int, Tensor] | None = {} if keep_parts else None
        self._weight_dtype = np.float64 if directions.dtype == torch.float64 else np.float32
        self._sums = torch.zeros(0, directions.dim, dtype=torch.float64, device=directions.device)
        self._in: dict[int, Share] = {}
        self._updates = 0

    def combine(self, coefficients: Coefficients) -> Tensor:
        """g, after bringing the sums up to date with the batches that came, changed or left."""
        stale = [step for step, share in self._in.items() if coefficients.shares.get(step) is not share]
        if len(stale) == len(self._in):
            self.clear()
        for step in stale:
            self.remove(step)
        for step, share in coefficients.shares.items():
            if step not in self._in:
                self._add(step, share)
        self._updates += 1
        if self._updates % REFRESH_EVERY == 0 and len(self._in) > 1:
            self._sums.zero_()
            for step, share in self._in.items():
                self._sums += self._part(step, share)
        weights = np.array([[coefficients.scale, -coefficients.scale * coefficients.shift][: self._sums.shape[0]]])
        return torch.mm(self._on_device(weights), self._sums)[0].to(self.directions.dtype)

    def remove(self, step: int) -> None:
        """A batch leaves; call it while its directions can still be had."""
        share = self._in.pop(step, None)
        if share is None:
            return
        if not self._in:
            self.clear()
            return
        self._sums -= self._part(step, share)
        if self._parts is not None:
            self._parts.pop(step, None)

    def clear(self) -> None:
        """No batch is in: the sums are exactly zero."""
        self._in.clear()
        self._sums.zero_()
        if self._parts is not None:
            self._parts.clear()

    def _add(self, step: int, share: Share) -> None:
        part = self._part(step, share)
        if self._sums.shape != part.shape:  # without a slope there is no second sum
            self._sums = torch.zeros_like(part)
        self._sums += part
        self._in[step] = share

    def _part(self, step: int, share: Share) -> Tensor:
        """What a batch adds to the sums, in float64; the same bits whenever it is asked for."""
        part = None if self._parts is None else self._parts.get(step)
        if part is None:
            rows = self.directions.rows(step)
            weights = np.array(
                [share.centred] if share.slope is None else [share.centred, share.slope], self._weight_dtype
            )
            part = torch.mm(self._on_device(weights), rows).double()
            if share.slope is not None:
                part[0].add_(part[1], alpha=share.level)
            if self._parts is not None:
                self._parts[step] = part
        return part

    def _on_device(self, weights: np.ndarray) -> Tensor:
        return torch.from_numpy(weights).to(self._sums.device)

    def share(self, step: int) -> Share | None:
        """What is in the sums for a batch."""
        return self._in.get(step)

    def state_dict(self) -> dict[str, Any]:
        """The sums themselves, and what is in them: summing anew could differ in the last bit, and a resumed run must not."""
        shares = {step: share.state_dict() for step, share in self._in.items()}
        return {"sums": self._sums.clone(), "updates": self._updates, "shares": shares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums = state["sums"].to(self._sums).clone()
        self._updates = int(state["updates"])
        self._in = {int(step): Share.from_state_dict(share) for step, share in state["shares"].items()}
        if self._parts is not None:
            self._parts.clear()
