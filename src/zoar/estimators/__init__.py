"""The methods by name."""

from __future__ import annotations

from typing import Any

from zoar.baselines import Baseline, as_baseline
from zoar.checking import choose
from zoar.estimators.base import Estimator, Weigher, WindowWeigher
from zoar.estimators.reinforce import Reinforce
from zoar.estimators.relizo import ReLIZO
from zoar.estimators.spsa import SPSA
from zoar.estimators.vanilla import Vanilla
from zoar.estimators.zoar import ZoAR
from zoar.estimators.zohs import ZoHS

__all__ = [
    "ESTIMATORS",
    "SPSA",
    "Estimator",
    "ReLIZO",
    "Reinforce",
    "Vanilla",
    "Weigher",
    "WindowWeigher",
    "ZoAR",
    "ZoHS",
    "as_estimator",
]

ESTIMATORS: dict[str, type[Estimator]] = {
    method.name: method for method in (ZoAR, Vanilla, Reinforce, ZoHS, ReLIZO, SPSA)
}

#: The baselines a method takes; the others are what the method is.
_BASELINES: dict[str, tuple[str, ...]] = {
    "zoar": ("window", "batch", "optimal", "center", "zero"),
    "reinforce": ("center", "window", "batch", "zero"),
    "vanilla": ("center",),
    "zohs": ("center",),
    "relizo": ("center",),
    "spsa": ("zero",),
}
_WHY_FIXED = {
    "vanilla": "its baseline is f(theta)",
    "zohs": "it averages vanilla estimates, whose baseline is f(theta)",
    "relizo": "it interpolates differences from f(theta)",
    "spsa": "each pair of queries is its own baseline",
}


def as_estimator(
    method: str | Estimator | type[Estimator], baseline: str | Baseline | None = None, scale: str | None = None
) -> Estimator:
    """A method from its name, or itself; `baseline` and `scale` replace its own."""
    if isinstance(method, type) and issubclass(method, Estimator):
        method = method()  # type: ignore[call-arg]  # every method has a baseline of its own
    if isinstance(method, Estimator):
        kind: type[Estimator] = type(method)
        options: dict[str, Any] = dict(method.__dict__)
    else:
        kind, options = ESTIMATORS[choose("method", method, ESTIMATORS)], {}
    if baseline is not None:
        if kind.name in _WHY_FIXED:
            name = baseline.name if isinstance(baseline, Baseline) else choose("baseline", baseline, _BASELINES["zoar"])
            if name != _BASELINES[kind.name][0]:
                raise ValueError(
                    f'method {kind.name!r} takes no baseline ({_WHY_FIXED[kind.name]}), got {name!r}; method="zoar" takes any'
                )
        else:
            options["baseline"] = as_baseline(baseline, _BASELINES.get(kind.name, _BASELINES["zoar"]), kind.name)
    if scale is not None:
        options["scale"] = choose("scale", scale, ("unbiased", "paper"))
    return kind(**options)
