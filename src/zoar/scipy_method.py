"""zoar as a method of scipy.optimize.minimize."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from scipy.optimize import OptimizeResult, OptimizeWarning

from zoar.minimize import minimize

_SCIPY_NAMES = {"maxiter": "max_iterations", "maxfev": "max_queries", "maxfun": "max_queries", "disp": "progress"}
#: Iterations without improvement by `tol` that end a run when scipy's `tol` is given.
_PATIENCE = 100


def scipy_method(
    fun: Callable[..., Any],
    x0: Any,
    args: Any = (),
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    **options: Any,
) -> OptimizeResult:
    """The callable for `scipy.optimize.minimize(fun, x0, method=zoar.scipy_method, options=dict(queries=10))`.

    `options` are those of `zoar.minimize`; scipy's `maxiter`, `maxfev` and `disp` work too, and `tol` ends the run after 100
    iterations (or `patience`) without an improvement of that size.

    Example:
        >>> import numpy as np, scipy.optimize, zoar
        >>> options = {"lr": zoar.Linear(0.05, 0), "maxiter": 300}
        >>> result = scipy.optimize.minimize(lambda x: (x**2).sum(), np.ones(3), method=zoar.scipy_method, options=options)
        >>> bool(result.fun < 1e-3)
        True
    """
    if constraints is not None and not (isinstance(constraints, (tuple, list)) and not constraints):
        raise ValueError("zoar takes bounds but no constraints; add a penalty to fun instead")
    given = [name for name, value in (("jac", jac), ("hess", hess), ("hessp", hessp)) if value]
    if given:
        warnings.warn(f"zoar uses values only and ignores {', '.join(given)}", OptimizeWarning, stacklevel=3)
    for theirs, ours in _SCIPY_NAMES.items():
        if theirs in options:
            if ours in options:
                raise ValueError(f"options {theirs!r} and {ours!r} mean the same; give one")
            options[ours] = options.pop(theirs)
    if options.get("tol") is None:
        options.pop("tol", None)
    else:
        options.setdefault("patience", _PATIENCE)
    if not isinstance(args, tuple):
        args = (args,)
    return minimize(fun, x0, args=args, bounds=bounds, callback=callback, **options)
