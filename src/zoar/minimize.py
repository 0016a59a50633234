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
from zoar.evaluation.outcomes import BadShape, QueryContext, attach_context
from zoar.optimizer import Batch, Optimizer
from zoar.progress import ProgressBar
from zoar.schedules import Schedule
from zoar.smoothing import Smoothing
from zoar.stopping import StopReason
from zoar.storage import DEFAULT_MEMORY
from zoar.updates import UpdateRule

# Where the best query is the answer: it reached the target, or no more evaluations are to be made.
_BEST_IS_X = (StopReason.TARGET, StopReason.INTERRUPTED)
_UNSUCCESSFUL = (StopReason.FAILING, StopReason.TOO_SMALL, StopReason.INTERRUPTED, StopReason.CALLBACK)
_USUAL_ITERATIONS = 20_000


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
    max_iterations: int | None = None,
    max_queries: int | None = None,
    max_time: float | None = None,
    target: float | None = None,
    patience: int | None = None,
    tol: float = 0.0,
    seed: int = 0,
    bounds: Any = None,
    sense: str = "min",
    args: Any = (),
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
        max_iterations: when to end at the latest; None is no limit beside `max_queries` or `max_time`, and 20,000 without both.
        executor: a concurrent.futures.Executor to evaluate in, or a function that makes one (then dead workers are replaced).
        timeout: seconds a batch may take in the executor; later values count as failed.
        on_error: `"raise"` lets the exception of a query through, with a note on where it happened (and, as
            `zoar_optimizer`, an optimizer that can go on); `"drop"` loses the query and goes on. A NaN or infinite value is a
            failed query too.
        callback: called after each iteration, with `intermediate_result=` if it has a parameter of that name, else with x;
            `StopIteration` ends the run.
        progress: shows a live bar.
        checkpoint: a file that is written every `checkpoint_every` seconds and at the end, and continued from if it exists.
        method, queries, window, smoothing, lr, update, directions, baseline, scale, seed, bounds, sense, max_queries, max_time,
            target, patience, tol, storage, memory, stream: see `zoar.Optimizer`.

    Returns:
        scipy's OptimizeResult: `x`, the last theta, and `fun`, its value, which costs one evaluation (when the target was
        reached or the run interrupted they are the best query instead); `best_x` and `best_fun`, the best point evaluated;
        `nit`, `nfev` (all evaluations), `dropped` (those that gave nothing), `last_error` (why the last of them failed),
        `success`, `status`, `message`; and `history`, a dict of arrays with one entry an iteration: `nfev`, `value` (the mean of
        the batch) and `best`.

    Example:
        >>> import zoar
        >>> rate = zoar.Linear(0.05, 0)  # a constant rate would end in a circle of about its size
        >>> result = zoar.minimize(lambda x: float((x**2).sum()), np.ones(5), lr=rate, max_iterations=300)
        >>> result.message, bool(result.fun < 1e-3)
        ('Made all 300 iterations.', True)
    """
    if not isinstance(args, tuple):  # as scipy takes it
        args = (args,)
    if max_iterations is None and max_queries is None and max_time is None:
        max_iterations = _USUAL_ITERATIONS
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
    last_error: Exception | None = None

    def save() -> None:
        if checkpoint is not None:
            checkpoint.save({"optimizer": optimizer.state_dict(), "history": history.state_dict()})

    try:
        with bar:
            while (reason := optimizer.stop()) is None:
                last_error = evaluate(optimizer, _unanswered(optimizer), evaluator) or last_error
                history.append()
                bar.advance()
                if checkpoint is not None and checkpoint.due():
                    save()
                if not notify(optimizer, history):
                    reason = StopReason.CALLBACK
                    break
        save()  # before an evaluation that may fail
        fun = None
        if reason not in _BEST_IS_X:
            fun, error = _value_at_theta(optimizer, evaluator)
            last_error = error or last_error
            save()
        if optimizer.reached_target():
            reason, fun = StopReason.TARGET, None
    except KeyboardInterrupt:
        reason, fun = StopReason.INTERRUPTED, None
        save()
    finally:
        evaluator.close()
    if reason is StopReason.QUERIES and not optimizer.nit:
        reason = StopReason.TOO_SMALL
    return _result(optimizer, history, reason, fun, last_error)


def _unanswered(optimizer: Optimizer) -> Batch:
    """The next batch; of one that an interrupt cut short, the queries that are left."""
    rest = optimizer.pending()
    return rest if len(rest.ids) else optimizer.ask()


def evaluate(optimizer: Optimizer, batch: Batch, evaluator: Evaluator) -> Exception | None:
    """Evaluates a batch and tells the optimizer; a failed query follows `on_error`. Returns the last failure that was dropped.

    Every evaluation made is counted, also where an interrupt or a failure ends the batch early.
    """
    step, came = optimizer.nit, list[tuple[int, float]]()
    failed: list[tuple[int, Exception]] = []
    try:
        outcomes = evaluator.evaluate(batch.points)
        if isinstance(outcomes, np.ndarray) and optimizer.usable(outcomes).all():
            optimizer.tell(batch.ids, outcomes)
            return None
        stop_early = optimizer.settings.on_error == "raise" and not isinstance(outcomes, np.ndarray)
        for query, outcome in zip(batch.ids, outcomes, strict=True):
            error = _failure(outcome, optimizer)
            if error is None:
                came.append((query, outcome))
            else:
                failed.append((query, error))
                if stop_early:
                    outcomes.close()  # type: ignore[union-attr]  # what it began is known when it is over
                    break
    except BadShape as error:
        optimizer.unused(len(batch.ids))
        _raise(error, optimizer, QueryContext(step, 0, len(batch.ids), optimizer.nfev))
    except KeyboardInterrupt:
        _tell(optimizer, came, failed)
        optimizer.unused(evaluator.unseen())
        raise
    first = batch.ids.index(failed[0][0]) if failed else 0
    _tell(optimizer, came, failed)
    if not failed:
        return None
    if optimizer.settings.on_error == "raise":
        optimizer.unused(evaluator.unseen())
        _raise(failed[0][1], optimizer, QueryContext(step, first, len(batch.ids), optimizer.nfev))
    return failed[-1][1]


def _tell(optimizer: Optimizer, came: list[tuple[int, float]], failed: list[tuple[int, Exception]]) -> None:
    optimizer.fail([query for query, _ in failed])
    optimizer.tell([query for query, _ in came], [value for _, value in came])


def _failure(outcome: Any, optimizer: Optimizer) -> Exception | None:
    """The exception that an outcome is or, where this run cannot use the value, becomes."""
    if isinstance(outcome, Exception):
        return outcome
    if optimizer.usable(np.array([outcome]))[0]:
        return None
    return optimizer.not_usable("the value of fun", outcome)


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


def _value_at_theta(optimizer: Optimizer, evaluator: Evaluator) -> tuple[float | None, Exception | None]:
    """f at the last theta, counted; or, where failures are dropped, why there is none."""
    outcome: Any = next(iter(evaluator.evaluate(optimizer.x[None])))
    error = _failure(outcome, optimizer)
    value = None if error is not None else float(outcome)
    optimizer.observe(value)
    if error is not None and optimizer.settings.on_error == "raise":
        _raise(error, optimizer, QueryContext(optimizer.nit, 0, 1, optimizer.nfev))
    return value, error


def _result(
    optimizer: Optimizer, history: History, reason: StopReason, fun: float | None, last_error: Exception | None
) -> OptimizeResult:
    best_x, best_fun = optimizer.best_x, optimizer.best_fun
    x = optimizer.x
    if fun is None:
        x, fun = best_x, best_fun
    missed = optimizer.budget.target is not None and reason is not StopReason.TARGET
    message, nothing = reason.message(optimizer.budget), not math.isfinite(best_fun)
    if nothing and reason is not StopReason.FAILING:
        message += " No query gave a value."
    if last_error is not None and (nothing or reason is StopReason.FAILING):
        message += f" The last failure: {type(last_error).__name__}: {last_error}"
    return OptimizeResult(
        x=x, fun=fun, nit=optimizer.nit, nfev=optimizer.nfev, dropped=optimizer.dropped, best_x=best_x, best_fun=best_fun,
        success=reason not in _UNSUCCESSFUL and not missed and not nothing, status=reason.status, message=message,
        last_error=last_error, history=history.arrays(),
    )  # fmt: skip
