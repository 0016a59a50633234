"""Where queries run: in this process, in one vectorised call, or in any concurrent.futures.Executor.

An evaluator answers with one outcome for each point: a float, or the exception that took its place. It never raises for
a failed query; what that means is decided in one place, `zoar.minimize`.
"""

from __future__ import annotations

import concurrent.futures
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from zoar.checking import real_number
from zoar.evaluation.outcomes import QueryFailed, as_bad_shape, as_value, as_values

Outcome = float | Exception
#: One after another; closed early, whoever makes them knows what they had begun (`Evaluator.unseen`).
Outcomes = Generator[Outcome, None, None]
Function = Callable[..., Any]


class Evaluator(ABC):
    """Evaluates the points of a batch: an array whose first axis counts them."""

    @abstractmethod
    def evaluate(self, points: Any) -> Outcomes | np.ndarray:
        """One outcome a point, in order; evaluated as far as they are taken."""

    def unseen(self) -> int:
        """Evaluations of the last batch that were begun and whose outcome was not taken."""
        return 0

    def close(self) -> None:
        """Gives back what the evaluator itself made."""


class Serial(Evaluator):
    """One call after another. Each call owns the array it is given."""

    def __init__(self, function: Function, args: tuple[Any, ...] = ()) -> None:
        self._function, self._args = function, args
        self._begun = False

    def evaluate(self, points: Any) -> Outcomes:
        for point in points:
            self._begun = True
            outcome: Outcome
            try:
                outcome = as_value(self._function(point, *self._args), "the value of fun")
            except Exception as error:  # noqa: BLE001  # whatever a user's function raises is an outcome
                outcome = error
            self._begun = False
            yield outcome

    def unseen(self) -> int:
        return int(self._begun)  # a call that an interrupt ended


class Vectorised(Evaluator):
    """One call for the whole batch: (K, d) in, (K,) out. A failed call fails all its queries."""

    def __init__(self, function: Function, args: tuple[Any, ...] = ()) -> None:
        self._function, self._args = function, args
        self._begun = 0

    def evaluate(self, points: Any) -> Outcomes | np.ndarray:
        self._begun = len(points)
        try:
            values = self._function(points, *self._args)
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises is an outcome
            return self._failed(error, len(points))
        self._begun = 0
        try:
            return as_values(values, len(points), "the values of a vectorized fun")
        except (TypeError, ValueError) as error:  # a mistake, not a failed query
            raise as_bad_shape(error) from None

    def _failed(self, error: Exception, count: int) -> Outcomes:
        """The one failure as that of every query; all of them were in the call."""
        for position in range(count):
            self._begun = count - position - 1
            yield error

    def unseen(self) -> int:
        return self._begun


class Pooled(Evaluator):
    """A call a query in an executor, or in one made by a factory, which is then made anew when its workers die."""

    def __init__(
        self,
        function: Function,
        executor: concurrent.futures.Executor | Callable[[], concurrent.futures.Executor],
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
    ) -> None:
        self._function, self._timeout, self._args = function, timeout, args
        made = hasattr(executor, "submit") and not isinstance(executor, type)  # a class makes one
        self._factory = None if made else executor
        self._executor: Any = executor if self._factory is None else None
        self._unseen = 0

    def evaluate(self, points: Any) -> Outcomes:
        if self._executor is None:
            assert callable(self._factory)
            self._executor = self._factory()
            if not hasattr(self._executor, "submit"):
                raise TypeError(
                    f"executor={self._factory!r} must make a concurrent.futures.Executor, it made {self._executor!r}"
                )
        futures: list[Any] = []
        for point in points:
            try:
                futures.append(self._executor.submit(self._function, point, *self._args))
            except Exception as error:  # noqa: BLE001  # a pool that takes no more work fails the query
                futures.append(error)
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        taken = 0
        try:
            for future in futures:
                outcome = self._outcome(future, deadline)
                taken += 1
                yield outcome
        finally:
            left = [future for future in futures[taken:] if isinstance(future, concurrent.futures.Future)]
            self._unseen = sum(not future.cancel() for future in left)
            for future in futures[:taken]:  # timed out
                if isinstance(future, concurrent.futures.Future):
                    future.cancel()

    def unseen(self) -> int:
        return self._unseen

    def _outcome(self, future: Any, deadline: float | None) -> Outcome:
        if isinstance(future, concurrent.futures.BrokenExecutor):
            return self._broken(future)
        if isinstance(future, Exception):
            return future
        try:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            return as_value(future.result(timeout=remaining), "the value of fun")
        except concurrent.futures.BrokenExecutor as error:
            return self._broken(error)
        except TimeoutError as error:
            if future.done():  # the function's own TimeoutError
                return error
            return QueryFailed(f"no value within {self._timeout:g} seconds")
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises is an outcome
            return error

    def _broken(self, error: Exception) -> Exception:
        if self._factory is not None:
            self._executor = None  # the next batch gets new workers
            return QueryFailed(f"a worker died: {error}")
        why = str(error).rstrip(".")
        return QueryFailed(
            f"a worker died and took its pool along: {why}. Pass executor=<a function that makes the pool> to survive this"
        )

    def close(self) -> None:
        if self._factory is not None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def make_evaluator(
    function: Function,
    *,
    vectorized: bool,
    executor: Any = None,
    timeout: float | None = None,
    args: tuple[Any, ...] = (),
) -> Evaluator:
    """The evaluator that those options ask for."""
    if not callable(function):
        raise TypeError(f"fun must be callable, got {function!r} ({type(function).__name__})")
    if executor is None:
        if timeout is not None:
            raise ValueError(f"timeout={timeout!r} needs an executor: a call in this process cannot be left behind")
        return (Vectorised if vectorized else Serial)(function, args)
    if vectorized:
        raise ValueError("vectorized=True makes one call a batch, and an executor one a query; choose one")
    if not (hasattr(executor, "submit") or callable(executor)):
        raise TypeError(
            f"executor must be a concurrent.futures.Executor or a function that makes one, got {executor!r}"
        )
    if timeout is not None and not real_number("timeout", timeout) > 0:
        raise ValueError(f"timeout must be above 0 seconds, got {timeout!r}")
    return Pooled(function, executor, timeout, args)
