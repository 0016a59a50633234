"""A gradient estimate as coefficients over directions, in the form that makes a step independent of the window.

The coefficient of direction j of batch n is

    c_nj = scale * (centred_nj + (level_n - shift) * slope_nj),        g = sum_nj c_nj u_nj.

What a batch contributes (`Share`: centred, slope, level) never changes once its values are in; only the two numbers
`scale` and `shift` change from step to step. So two running sums carry the whole window (`zoar.window_sum`). The paper's
window mean (Eq. grad-avg) is centred = (y - mean_n)/mu, slope = 1/mu, level = mean_n, shift = b_t, scale = 1/(|H| - 1);
keeping each batch's own mean apart keeps float32 exact enough when values are large beside their differences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Share:
    """What one batch contributes; compared by identity."""

    centred: Array
    slope: Array | None = None
    level: float = 0.0
    #: How many values the share stands for.
    count: int = 0

    def same_as(self, other: Share) -> bool:
        """Whether both say the same, to the bit."""
        return self.state_dict() == other.state_dict()

    def state_dict(self) -> dict[str, Any]:
        slope = None if self.slope is None else self.slope.tolist()
        return {"centred": self.centred.tolist(), "slope": slope, "level": self.level, "count": self.count}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Share:
        slope = None if state["slope"] is None else np.array(state["slope"], float)
        return cls(np.array(state["centred"], float), slope, state["level"], state["count"])


@dataclass(frozen=True)
class Coefficients:
    """The estimate of one step: a share for each batch (by the step it was asked at), and the window's two numbers."""

    shares: dict[int, Share]
    scale: float
    shift: float = 0.0

    def flat(self) -> Array:
        """Every coefficient, batch after batch."""
        shares = list(self.shares.values())
        centred = np.concatenate([share.centred for share in shares])
        if all(share.slope is None for share in shares):
            return np.asarray(self.scale * centred)
        slopes = np.concatenate(
            [np.zeros_like(share.centred) if share.slope is None else share.slope for share in shares]
        )
        levels = np.repeat([share.level for share in shares], [len(share.centred) for share in shares])
        return np.asarray(self.scale * (centred + (levels - self.shift) * slopes))

    def dense(self) -> dict[int, Array]:
        """Every coefficient written out."""
        return {
            step: self.scale
            * (share.centred if share.slope is None else share.centred + (share.level - self.shift) * share.slope)
            for step, share in self.shares.items()
        }
