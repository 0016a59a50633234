"""Baselines: what is subtracted from a value before it weighs its direction.

Each is unbiased for a symmetric law, since what is subtracted from y_j never depends on the sign of u_j: `center` and
`zero` by construction, the means because leaving y_j out of its own mean is the factor M/(M - 1) on all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from zoar.checking import choose
from zoar.coefficients import Array, Coefficients, Share


@dataclass(frozen=True)
class Values:
    """One batch as a baseline sees it.

    `slope` is what multiplies (y - b): 1/mu for a finite difference, weight * score for a policy gradient, and 0 for a
    query without a value, whose `y` is 0 too.
    """

    y: Array
    slope: Array
    count: int
    center: float | None
    squared_norms: Array | None


@dataclass(frozen=True)
class Baseline(ABC):
    """A way to choose b."""

    name: ClassVar[str]
    needs_center: ClassVar[bool] = False
    #: A mean baseline of one value subtracts the value from itself.
    is_mean: ClassVar[bool] = True

    @abstractmethod
    def share(self, values: Values) -> Share | None:
        """What a batch contributes for as long as it stays; None when it can contribute nothing."""

    @abstractmethod
    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        """The window's estimate; None when it has none yet."""


@dataclass(frozen=True)
class _Fixed(Baseline):
    """A baseline that does not change after the batch: the window only averages."""

    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        total = sum(share.count for share in shares.values())
        return Coefficients(shares, scale=1.0 / total) if total else None


@dataclass(frozen=True)
class Zero(_Fixed):
    """b = 0: the plain score-function estimator."""

    name = "zero"
    is_mean = False

    def share(self, values: Values) -> Share | None:
        return Share(values.y * values.slope, count=values.count)


@dataclass(frozen=True)
class Center(_Fixed):
    """b = f(theta), the finite difference of Eq. fd; one more query a step."""

    name = "center"
    needs_center = True
    is_mean = False

    def share(self, values: Values) -> Share | None:
        if values.center is None:  # a failed centre costs its batch
            return None
        return Share((values.y - values.center) * values.slope, count=values.count)


@dataclass(frozen=True)
class BatchMean(_Fixed):
    """b = the batch's own mean, times K/(K - 1) so that no value is held against itself.

    Values asked at an older theta are not offset by newer ones, so a long window keeps its use while theta moves.
    """

    name = "batch"

    def share(self, values: Values) -> Share | None:
        if values.count < 2:
            return None
        mean = float(values.y.sum()) / values.count
        return Share((values.y - mean) * values.slope * (values.count / (values.count - 1)), count=values.count)


@dataclass(frozen=True)
class WindowMean(Baseline):
    """b_t = the mean of the whole window (Eq. baseline-avg), the paper's; divided by |H_t| - 1 (Eq. grad-avg)."""

    name = "window"

    def share(self, values: Values) -> Share | None:
        level = float(values.y.sum()) / values.count
        return Share((values.y - level) * values.slope, values.slope, level, values.count)

    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        total, mass = 0, 0.0
        for share in shares.values():
            total += share.count
            mass += share.count * share.level
        if total < 2:
            return None
        return Coefficients(shares, scale=1.0 / (total - 1), shift=mass / total)


@dataclass(frozen=True)
class Optimal(WindowMean):
    """The variance-minimising b_t* (Thm opt-baseline) = E[F |u|^2] / E[|u|^2], estimated over the window.

    With directions of one norm it is the window mean, and is computed as that. With Gaussian ones a value counts by its
    |u_j|^2 = n_j, and leaving y_j out of its own baseline gives c_j = (y_j - b) W / (W - n_j) / (M mu), W = sum n. Those
    weights change with every batch, so this one case costs a pass over the window each step.
    """

    name = "optimal"

    def share(self, values: Values) -> Share | None:
        if values.squared_norms is None:
            return super().share(values)
        return _NormedShare(values.y * values.slope, values.slope, 0.0, values.count, values)

    def coefficients(self, shares: dict[int, Share]) -> Coefficients | None:
        normed = [share for share in shares.values() if isinstance(share, _NormedShare)]
        if not normed:
            return super().coefficients(shares)
        total = sum(share.count for share in normed)
        if total < 2:
            return None
        norms = {
            step: _present_norms(share.values) for step, share in shares.items() if isinstance(share, _NormedShare)
        }
        weight = sum(float(n.sum()) for n in norms.values())
        mean = sum(float((n * share.values.y).sum()) for n, share in zip(norms.values(), normed, strict=True)) / weight
        left_out = {
            step: Share(
                (share.values.y - mean) * share.values.slope * (weight / (weight - norms[step])), count=share.count
            )
            for step, share in shares.items()
            if isinstance(share, _NormedShare)
        }
        return Coefficients(left_out, scale=1.0 / total)


@dataclass(frozen=True, eq=False)
class _NormedShare(Share):
    values: Values = None  # type: ignore[assignment]  # always given; a default only because the parent has some


def _present_norms(values: Values) -> Array:
    assert values.squared_norms is not None
    norms: Array = values.squared_norms * (values.slope != 0)
    return norms


BASELINES: dict[str, type[Baseline]] = {
    baseline.name: baseline for baseline in (Zero, Center, WindowMean, BatchMean, Optimal)
}


def as_baseline(baseline: str | Baseline, allowed: Sequence[str] = tuple(BASELINES), owner: str = "") -> Baseline:
    """A baseline from its name, or itself; `owner` names the method that allows only some."""
    if isinstance(baseline, Baseline):
        name: str = baseline.name
    else:
        name = choose("baseline", baseline, BASELINES)
    if name not in allowed:
        raise ValueError(f"method {owner!r} takes baseline {' or '.join(map(repr, allowed))}, got {name!r}")
    return baseline if isinstance(baseline, Baseline) else BASELINES[name]()
