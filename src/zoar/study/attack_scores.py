"""Iterations to success by image and seed, and what they come to beside vanilla's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zoar.study.curves import Curve, mean

REFERENCE = "vanilla"
RULES = {"radazo": "R-AdaZO", "adamm": "ZO-AdaMM"}  # in the order of the paper's table
#: Table 1: mean iterations to success on one image over 5 runs, and the speed-up.
PAPER = {
    "radazo": {"vanilla": (2330, 1.0), "ZoHS": (2330, 1.0), "ZoAR N=1": (1240, 1.87), "ZoAR N=6": (856, 2.72)},
    "adamm": {"vanilla": (6530, 1.0), "ZoHS": (3690, 1.8), "ZoAR N=1": (3260, 2.0), "ZoAR N=6": (1100, 5.92)},
}


@dataclass(frozen=True)
class Score:
    """A method under a rule: `mine` and `theirs` are iterations to success by (image, seed), None for a failure."""

    update: str
    method: str
    mine: Mapping[tuple[str, int], int | None]
    theirs: Mapping[tuple[str, int], int | None]  # of the reference, for the same images and seeds
    cost: int  # queries an iteration
    most: int  # iterations, which a failure is charged with

    @property
    def successes(self) -> list[int]:
        return [iterations for iterations in self.mine.values() if iterations is not None]

    @property
    def average(self) -> float | None:
        """Mean iterations of the successes."""
        return mean(self.successes) if self.successes else None

    @property
    def middle(self) -> float | None:
        """Their median."""
        return statistics.median(self.successes) if self.successes else None

    @property
    def charged(self) -> float:
        """The mean over all runs."""
        return mean([self.most if iterations is None else iterations for iterations in self.mine.values()])

    def pairs(self) -> list[tuple[str, int, int]]:
        """Image, the reference's iterations and this method's, where both succeeded."""
        both = [(image, self.theirs.get((image, seed)), mine) for (image, seed), mine in self.mine.items()]
        return [(image, one, two) for image, one, two in both if one is not None and two is not None]

    def speed_up(self) -> float | None:
        """Of the mean iterations, over the pairs."""
        return _ratio(self.pairs())

    def speed_up_charged(self) -> float | None:
        """Of the mean iterations over all runs that the reference has made too."""
        known = [
            (image, *(self.most if n is None else n for n in (self.theirs[image, seed], mine)))
            for (image, seed), mine in self.mine.items()
            if (image, seed) in self.theirs
        ]
        return _ratio(known)  # type: ignore[arg-type]

    def interval(self, draws: int = 2_000) -> tuple[float, float] | None:
        """95% of the speed-up over images drawn anew (bootstrap); the runs of one image are not so many images."""
        sums: dict[str, list[int]] = {}
        for image, one, two in self.pairs():
            both = sums.setdefault(image, [0, 0])
            both[0] += one
            both[1] += two
        if len(sums) < 2 or self.method == REFERENCE:
            return None
        table = np.array(list(sums.values()), dtype=float)
        drawn = table[np.random.Generator(np.random.PCG64(0)).integers(len(table), size=(draws, len(table)))].sum(1)
        low, high = np.quantile(drawn[:, 0] / np.maximum(drawn[:, 1], 1), (0.025, 0.975))
        return float(low), float(high)

    def on(self, images: Sequence[str]) -> list[int | None]:
        """The runs on those images."""
        return [iterations for (image, _), iterations in self.mine.items() if image in images]


def score(curves: Sequence[Curve], most: int) -> list[Score]:
    """A score for each rule and method, in the order they came."""
    runs: dict[tuple[str, str], dict[tuple[str, int], int | None]] = {}
    cost: dict[tuple[str, str], int] = {}
    for curve in curves:
        name, last = (curve.key.update, curve.key.method), curve.points[-1]
        runs.setdefault(name, {})[curve.key.function, curve.key.seed] = last.iteration if last.value < 0 else None
        if last.iteration:
            cost[name] = last.queries // last.iteration
    return [
        Score(*name, mine, runs.get((name[0], REFERENCE), {}), cost.get(name, 0), most) for name, mine in runs.items()
    ]


def _ratio(pairs: Sequence[tuple[str, int, int]]) -> float | None:
    below = sum(two for _, _, two in pairs)
    return sum(one for _, one, _ in pairs) / below if below else None
