"""zoar.minimize: a function, a start, and the loop between them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from scipy.optimize import OptimizeResult

from zoar.baselines import Baseline
from zoar.checkpoint import Checkpoint
from zoar.estimators import Estimator
from zoar.evaluation import Evaluator, make_evaluator
from zoar.evaluation.outcomes import NonFiniteValue, QueryContext, attach_context
from zoar.optimizer import Batch, Optimizer
from zoar.progress import ProgressBar
from zoar.schedules import Schedule
from zoar.smoothing import Smoothing
from zoar.stopping import StopReason
from zoar.storage import DEFAULT_MEMORY
from zoar.updates import UpdateRule

# Where the best query is the answer: it reached the target, or no more evaluations are to be made.
_BEST_IS_X = (StopReason.TARGET, StopReason.INTERRUPTED)
_UNSUCCESSFUL = (StopReason.FAILING, StopReason.INTERRUPTED, StopReason.CALLBACK)


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    method: str | Estimator = "zoar",
    *,
    queries: int = 10,
    window: int | Schedule | None = None,
    smoothing: float | Schedule = 0.05,
    lr: float | Schedule = 1e-3,
    update: str | UpdateRule | type[torch.optim.Optimizer] = "radazo",
    directions: str | Smoothing = "gaussian",
    baseline: str | Baseline | None = None,
    scale: str | None = None,
    max_iterations: int | None = 20_000,
    max_queries: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    tol: float = 0.0,
    seed: int = 0,
    bounds: Any = None,
    sense: str = "min",
    args: tuple[Any, ...] = (),
    vectorized: bool = False,
    executor: Any = None,
    timeout: float | None = None,
    on_error: str = "raise",
    callback: Callable[..., Any] | None = None,
    progress: bool = False,
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
    storage: str = "auto",
    memory: int = DEFAULT_MEMORY,
    stream: str | None = None,
) -> OptimizeResult:
    """Minimises `fun` from its values alone.

    Args:
        fun: takes an array of x0's kind and shape and returns a number; with `vectorized=True` it takes a batch, (K, *shape),
            and returns (K,) values.
        x0: where to start, a NumPy array or a torch tensor (results come back as the same kind, on its device).
        args: more arguments for `fun`.
        executor: a concurrent.futures.Executor to evaluate in, or a function that makes one (then dead workers are replaced).
        timeout: seconds a batch may take in the executor; later values count as failed.
        on_error: `"raise"` lets the exception of a query through, with a note on where it happened (and, as
            `zoar_optimizer`, an optimizer that can go on); `"drop"` loses the query and goes on. A NaN or infinite value is a
            failed query too.
        callback: called after each iteration, with `intermediate_result=` if it has a parameter of that name, else with x;
            `StopIteration` ends the run.
        progress: shows a live bar.
        checkpoint: a file that is written every `checkpoint_every` seconds and at the end, and continued from if it exists.
        method, queries, window, smoothing, lr, update, directions, baseline, scale, seed, bounds, sense, max_iterations,
            max_queries, max_time, target, patience, tol, storage, memory, stream: see `zoar.Optimizer`.

    Returns:
        scipy's OptimizeResult: `x`, the last theta, and `fun`, its value, which costs one evaluation (when the target was
        reached or the run interrupted they are the best query instead); `best_x` and `best_fun`, the best point evaluated;
        `nit`, `nfev` (all evaluations), `dropped` (failed ones), `success`, `status`, `message`; and `history`, a dict of arrays
        with one entry an iteration: `nfev`, `value` (the mean of the batch) and `best`.

    Example:
        >>> import zoar
        >>> rate = zoar.Linear(0.05, 0)  # a constant rate would end in a circle of about its size
        >>> result = zoar.minimize(lambda x: float((x**2).sum()), np.ones(5), lr=rate, max_iterations=300)
        >>> result.message, bool(result.fun < 1e-3)
        ('Made all 300 iterations.', True)
    """
    evaluator = make_evaluator(fun, vectorized=vectorized, executor=executor, timeout=timeout, args=args)
    optimizer = Optimizer(
        x0, method, queries=queries, window=window, smoothing=smoothing, lr=lr, update=update, directions=directions,
        baseline=baseline, scale=scale, seed=seed, bounds=bounds, sense=sense, on_error=on_error, max_iterations=max_iterations,
        max_queries=max_queries, max_time=max_time, target=target, patience=patience, tol=tol, storage=storage, memory=memory,
        stream=stream,
    )  # fmt: skip
    return run(
        optimizer,
        evaluator,
        callback=callback,
        progress=progress,
        checkpoint=Checkpoint.of(checkpoint, checkpoint_every),
    )


def run(
    optimizer: Optimizer,
    evaluator: Evaluator,
    *,
    callback: Callable[..., Any] | None = None,
    progress: bool = False,
    checkpoint: Checkpoint | None = None,
) -> OptimizeResult:
    """Runs an optimizer until it stops."""
    optimizer.reserve(1)  # for the value of the last theta
    history = History(optimizer)
    if checkpoint is not None and (saved := checkpoint.load()) is not None:
        optimizer.load_state_dict(saved["optimizer"])
        history.load_state_dict(saved["history"])
    notify = _Callback(callback)
    bar = ProgressBar(optimizer, shown=progress)
    reason: StopReason | None = None
    try:
        with bar:
            while (reason := optimizer.stop()) is None:
                evaluate(optimizer, optimizer.ask(), evaluator)
                history.append()
                bar.advance()
                if checkpoint is not None and checkpoint.due():
                    checkpoint.save({"optimizer": optimizer.state_dict(), "history": history.state_dict()})
                if not notify(optimizer, history):
                    reason = StopReason.CALLBACK
                    break
        if checkpoint is not None:
            checkpoint.save({"optimizer": optimizer.state_dict(), "history": history.state_dict()})
        fun = None if reason in _BEST_IS_X else _value_at_theta(optimizer, evaluator)
    except KeyboardInterrupt:
        reason, fun = StopReason.INTERRUPTED, None
        if checkpoint is not None:
            checkpoint.save({"optimizer": optimizer.state_dict(), "history": history.state_dict()})
    finally:
        evaluator.close()
    return _result(optimizer, history, reason, fun)


def evaluate(optimizer: Optimizer, batch: Batch, evaluator: Evaluator) -> None:
    """Evaluates a batch and tells the optimizer; a failed query follows `on_error`."""
    outcomes = evaluator.evaluate(batch.points)
    if isinstance(outcomes, np.ndarray) and (optimizer.settings.on_error == "drop" or np.isfinite(outcomes).all()):
        optimizer.tell(batch.ids, outcomes)
        return
    values: list[float] = []
    ids: list[int] = []
    failed: list[int] = []
    for position, (query, outcome) in enumerate(zip(batch.ids, outcomes, strict=True)):
        error = _failure(outcome)
        if error is None:
            ids.append(query)
            values.append(outcome)
            continue
        failed.append(query)
        if optimizer.settings.on_error == "raise":
            step = optimizer.nit
            optimizer.tell(ids, values)
            optimizer.fail(failed)
            _raise(error, optimizer, QueryContext(step, position, len(batch.ids), optimizer.nfev))
    if failed:
        optimizer.fail(failed)
        optimizer.tell(ids, values)
    else:
        optimizer.tell(batch.ids, values)


def _failure(outcome: Any) -> Exception | None:
    """The exception that an outcome is or, under on_error="raise", becomes."""
    if isinstance(outcome, Exception):
        return outcome
    if math.isfinite(outcome):
        return None
    return NonFiniteValue(
        f'fun returned {outcome:g}; under on_error="raise" values must be finite, on_error="drop" leaves such queries out'
    )


def _raise(error: Exception, optimizer: Optimizer, context: QueryContext) -> NoReturn:
    attach_context(error, context)
    error.zoar_optimizer = optimizer  # type: ignore[attr-defined]  # to go on from
    raise error


class History:
    """The course of a run, one entry an iteration."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._rows: list[tuple[int, float, float]] = []

    def append(self) -> None:
        optimizer = self._optimizer
        self._rows.append((optimizer.nfev, optimizer.last_mean, optimizer.best_fun))

    def arrays(self) -> dict[str, np.ndarray]:
        nfev, value, best = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        return {"nfev": np.array(nfev, int), "value": np.array(value, float), "best": np.array(best, float)}

    def state_dict(self) -> list[list[float]]:
        return [list(row) for row in self._rows]

    def load_state_dict(self, rows: list[list[float]]) -> None:
        self._rows = [(int(nfev), value, best) for nfev, value, best in rows]


class _Callback:
    """Both of scipy's callback styles."""

    def __init__(self, callback: Callable[..., Any] | None) -> None:
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        self._callback = callback
        self._by_name = callback is not None and "intermediate_result" in _parameters(callback)

    def __call__(self, optimizer: Optimizer, history: History) -> bool:
        """Whether to go on."""
        if self._callback is None:
            return True
        try:
            if self._by_name:
                self._callback(intermediate_result=OptimizeResult(
                    x=optimizer.x, fun=optimizer.last_mean, nit=optimizer.nit, nfev=optimizer.nfev,
                    best_x=optimizer.best_x, best_fun=optimizer.best_fun,
                ))  # fmt: skip
            else:
                self._callback(optimizer.x)
        except StopIteration:
            return False
        return True


def _parameters(callback: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(callback).parameters)
    except ValueError:  # some builtins have none to show
        return ()


def _value_at_theta(optimizer: Optimizer, evaluator: Evaluator) -> float | None:
    """f at the last theta, counted; None if that evaluation failed and failures are dropped."""
    outcome: Any = next(iter(evaluator.evaluate(optimizer.x[None])))
    error = _failure(outcome)
    value = None if error is not None else float(outcome)
    optimizer.observe(value)
    if error is not None and optimizer.settings.on_error == "raise":
        _raise(error, optimizer, QueryContext(optimizer.nit, 0, 1, optimizer.nfev))
    return value


def _result(optimizer: Optimizer, history: History, reason: StopReason, fun: float | None) -> OptimizeResult:
    best_x, best_fun = optimizer.best_x, optimizer.best_fun
    x = optimizer.x
    if fun is None:
        x, fun = best_x, best_fun
    missed = optimizer.budget.target is not None and reason is not StopReason.TARGET
    return OptimizeResult(
        x=x, fun=fun, nit=optimizer.nit, nfev=optimizer.nfev, dropped=optimizer.dropped, best_x=best_x, best_fun=best_fun,
        success=reason not in _UNSUCCESSFUL and not missed, status=reason.status, message=reason.message(optimizer.budget),
        history=history.arrays(),
    )  # fmt: skip
