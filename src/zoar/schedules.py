"""Schedules for the rate, the smoothing radius and the window length.

A schedule is a value as a function of progress p in [0, 1]; the optimizer knows how far it is from its own budget
(iterations or queries, whichever ends first), or a schedule carries its own `steps`.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from zoar.checking import real_number, whole_number


class Schedule(ABC):
    """A value that changes over the run."""

    steps: int | None = None

    def at(self, step: int, horizon: int | None) -> float:
        """The value at a step; the first step is 0 and step `horizon - 1` is the last."""
        steps = self.steps or horizon
        if steps is None:
            raise ValueError(
                f"{self} needs to know how long the run is: give it steps=..., or give the run max_iterations or max_queries"
            )
        return self.value(min(step / max(steps - 1, 1), 1.0))

    @abstractmethod
    def value(self, progress: float) -> float:
        """The value at a progress between 0 and 1."""

    @abstractmethod
    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value it takes."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same value at every step."""

    level: float

    def __post_init__(self) -> None:
        real_number("Constant level", self.level)

    def at(self, step: int, horizon: int | None) -> float:
        return self.level

    def value(self, progress: float) -> float:
        return self.level

    def extremes(self) -> tuple[float, float]:
        return self.level, self.level


@dataclass(frozen=True)
class Linear(Schedule):
    """From `start` to `end` along a line, then `end`.

    Args:
        steps: how many steps that takes, if not the whole run.
        by: the part of those after which it is at `end`.

    >>> [Linear(20, 1).at(step, horizon=20) for step in (0, 19, 40)]
    [20.0, 1.0, 1.0]
    >>> [Linear(4, 0, by=0.5).at(step, horizon=5) for step in (0, 1, 2, 3)]
    [4.0, 2.0, 0.0, 0.0]
    """

    start: float
    end: float
    steps: int | None = None
    by: float = 1.0

    def value(self, progress: float) -> float:
        return self.between(min(progress / self.by, 1.0))

    def between(self, share: float) -> float:
        """The value when this share of the way is done."""
        return (1 - share) * self.start + share * self.end

    def extremes(self) -> tuple[float, float]:
        return min(self.start, self.end), max(self.start, self.end)

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not math.isfinite(real_number(f"{type(self).__name__} {name}", getattr(self, name))):
                raise ValueError(f"{type(self).__name__} {name} must be finite, got {getattr(self, name)!r}")
        if self.steps is not None:
            whole_number(f"{type(self).__name__} steps", self.steps, 1)
        if not 0 < real_number(f"{type(self).__name__} by", self.by) <= 1:
            raise ValueError(f"{type(self).__name__} by must be above 0 and at most 1, got {self.by!r}")


@dataclass(frozen=True)
class Cosine(Linear):
    """From `start` to `end` along half a cosine raised to a power, then `end`: 1 is the usual one, 2 is sooner near its end."""

    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < real_number("Cosine power", self.power) < math.inf:
            raise ValueError(f"Cosine power must be finite and above 0, got {self.power!r}")

    def between(self, share: float) -> float:
        return float(self.end + (self.start - self.end) * (0.5 * (1 + math.cos(math.pi * share))) ** self.power)


@dataclass(frozen=True)
class Geometric(Linear):
    """From `start` to `end` by the same factor at every step, then `end`; both above 0.

    >>> [Geometric(0.8, 0.05).at(step, horizon=5) for step in (0, 1, 4)]
    [0.8, 0.4, 0.05]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.start > 0 and self.end > 0):
            raise ValueError(
                f"a geometric schedule is between two numbers above 0, got {self.start!r} and {self.end!r}"
            )

    def between(self, share: float) -> float:
        return self.start * math.pow(self.end / self.start, share)


def as_schedule(what: str, given: Any, *, least: float, strictly: bool = False) -> Schedule:
    """A schedule from a number, or itself; none of its values may be below `least` (or at it, if `strictly`)."""
    if isinstance(given, Schedule):
        schedule = given
    elif isinstance(given, bool) or not isinstance(given, numbers.Real):
        kind = type(given).__name__
        example = (
            "zoar.Linear(20, 1)"
            if what == "window"
            else "zoar.Linear(0.3, 0.05)"
            if what == "smoothing"
            else "zoar.Linear(1e-3, 0)"
        )
        raise TypeError(f"{what} must be a number or a schedule such as {example}; got {given!r} ({kind})")
    else:
        schedule = Constant(float(given))
    low, high = schedule.extremes()
    if not (math.isfinite(low) and math.isfinite(high)) or low < least or (strictly and low == least):
        raise ValueError(f"{what} must be finite and {'above' if strictly else 'at least'} {least:g}; got {given!r}")
    return schedule
