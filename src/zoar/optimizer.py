"""Ask, tell, weigh, move: the only loop order there is.

    opt = zoar.Optimizer(x0, queries=10, window=6)
    while not opt.stop():
        batch = opt.ask()                                  # batch.points, batch.ids
        opt.tell(batch.ids, [f(x) for x in batch.points])  # any subset, any order

theta moves when the last value of the batch is in, or, with some of them in, at the next `ask`. A value that comes later
still counts while its batch is in the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.baselines import Baseline
from zoar.estimators import Estimator
from zoar.evaluation.outcomes import NonFiniteValue, as_values
from zoar.history import Answer, QueryBatch, Window
from zoar.ledger import Ledger, as_ids
from zoar.schedules import Schedule
from zoar.settings import Settings
from zoar.smoothing import Smoothing
from zoar.space import Space
from zoar.stopping import Budget, Clock, Progress, StopReason, reason_to_stop
from zoar.storage import DEFAULT_MEMORY
from zoar.updates import UpdateRule

# A value beyond this would overflow the arithmetic of its dtype: it fails like an infinity.
_LARGEST_VALUE = {torch.float32: 1e30, torch.float64: 1e290}


@dataclass(frozen=True)
class Batch:
    """Queries to answer: `points[i]` has the id `ids[i]`."""

    points: Any
    ids: Sequence[int]


class Optimizer:
    """Zeroth-order optimization by ask and tell.

    Args:
        x0: where to start: a NumPy array or a torch tensor of any shape; points come back as the same kind.
        method: `"zoar"`, `"vanilla"`, `"reinforce"`, `"zohs"`, `"relizo"`, `"spsa"`, or one of their objects.
        queries: K, directions a step. `vanilla`, `zohs` and `relizo` ask theta too; `spsa` asks both ways.
        window: N, batches kept for reuse, a number or a schedule; each method has its default (6 for zoar and zohs, else 1).
        smoothing: the radius mu, a number or a schedule.
        lr: the rate, a number or a schedule.
        update: `"sgd"`, `"momentum"`, `"sign"`, `"adamm"`, `"radazo"`, one of their objects, or a torch.optim class.
        directions: `"gaussian"`, `"sphere"`, `"coordinate"`, `"rademacher"`, or one of their objects.
        baseline: `"window"`, `"batch"`, `"center"`, `"zero"`, `"optimal"`; None is the method's own.
        scale: `"unbiased"` (default), or `"paper"` for Eq. fd without the covariance factor.
        seed: directions are a pure function of it; no global generator is touched.
        bounds: scipy's Bounds, one (low, high) for each number (a list of pairs, or a (d, 2) array), or a pair (lower, upper) of
            numbers or arrays.
        sense: `"min"` or `"max"`.
        on_error: what a NaN or infinite value means: `"raise"`, or `"drop"` the query.
        max_iterations, max_queries, max_time, target, patience, tol: when `stop` says so; None is never.
        storage, memory: what of the window stays in memory: `"summed"`, `"stored"` or `"replayed"` (see `zoar.storage`), or what
            fits in `memory` bytes (`"auto"`). The results are the same.
        stream: the source of random words, `"philox"` (the same on every device) or `"sfc64"` (fast, CPU); None chooses.

    Example:
        >>> import zoar
        >>> opt = zoar.Optimizer(np.ones(3), queries=4, lr=zoar.Linear(0.05, 0), max_iterations=200)
        >>> while not opt.stop():
        ...     batch = opt.ask()
        ...     opt.tell(batch.ids, (batch.points**2).sum(-1))
        >>> opt.nit, opt.nfev, bool((opt.x**2).sum() < 0.01)
        (200, 800, True)
    """

    def __init__(
        self,
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
        seed: int = 0,
        bounds: Any = None,
        sense: str = "min",
        on_error: str = "raise",
        max_iterations: int | None = None,
        max_queries: int | None = None,
        max_time: float | None = None,
        target: float | None = None,
        patience: int | None = None,
        tol: float = 0.0,
        storage: str = "auto",
        memory: int = DEFAULT_MEMORY,
        stream: str | None = None,
    ) -> None:
        self._space, self._theta = Space.of(x0)
        self.budget = Budget(max_iterations, max_queries, max_time, target, patience, tol)
        self.settings = Settings.check(
            self._space, self.budget, method=method, queries=queries, window=window, smoothing=smoothing, lr=lr, update=update,
            directions=directions, baseline=baseline, scale=scale, seed=seed, bounds=bounds, sense=sense, on_error=on_error,
            storage=storage, memory=memory, stream=stream,
        )  # fmt: skip
        self._sign = -1.0 if sense == "max" else 1.0
        self._directions = self.settings.make_directions(self._space)
        self._weigher = self.settings.method.start(self._directions, self.settings.storage.sums)
        self._ledger = Ledger()
        self._current: QueryBatch | None = None
        self._progress, self._clock = Progress(), Clock()
        if self.settings.box is not None:
            self.settings.box.project_(self._theta)
        self._best_x = self._theta.clone()
        self._update_state = self.settings.update.start(self._theta)
        self._reserve = 0
        self._last_mean = float("nan")

    # -- what a run looks like from outside -------------------------------------------------------------------------

    @property
    def x(self) -> Any:
        """The current theta, a copy."""
        return self._space.outward(self._theta.clone())

    @property
    def best_x(self) -> Any:
        """The query with the best value so far, a copy."""
        return self._space.outward(self._best_x.clone())

    @property
    def best_fun(self) -> float:
        """The best value so far."""
        return self._sign * self._progress.best

    @property
    def nit(self) -> int:
        """Batches finished."""
        return self._progress.iterations

    @property
    def nfev(self) -> int:
        """Evaluations told, failed and late ones included."""
        return self._progress.evaluations

    @property
    def dropped(self) -> int:
        """Evaluations that gave no usable value, or gave it too late."""
        return self._progress.dropped

    @property
    def last_mean(self) -> float:
        """The mean value of the last batch: near the smoothed function at the theta it was asked at."""
        return self._sign * self._last_mean

    @property
    def window(self) -> Window:
        """The batches in use, oldest first."""
        return self._ledger.window

    def stop(self) -> StopReason | None:
        """Why the run should end, or None."""
        limit = self.budget.target
        target = None if limit is None else self._sign * limit
        upcoming = self._ledger.outstanding() + self._reserve
        if self._current is None or not self._current.untouched:  # else the next batch is among the outstanding
            upcoming += self.settings.method.evaluations(self.settings.queries)
        return reason_to_stop(self.budget, self._progress, self._clock, upcoming, target)

    def reached_target(self) -> bool:
        """Whether the best value is at the target."""
        return self.budget.target is not None and self._progress.best <= self._sign * self.budget.target

    def reserve(self, evaluations: int) -> None:
        """Keeps that many of `max_queries` for evaluations outside any batch."""
        self._reserve = evaluations

    def observe(self, value: float | None) -> None:
        """Counts an evaluation of the current theta outside any batch; None if it gave no value."""
        self._progress.evaluations += 1
        if value is None:
            self._progress.dropped += 1
        elif self._sign * value < self._progress.best:
            self._progress.best, self._best_x = self._sign * value, self._theta.clone()

    def unused(self, evaluations: int) -> None:
        """Counts evaluations that were made and whose values nobody will tell; their queries may be asked again."""
        self._progress.evaluations += evaluations
        self._progress.dropped += evaluations

    def usable(self, values: np.ndarray) -> np.ndarray:
        """Which of the values this run can use: finite, and within what its dtype computes with."""
        within: np.ndarray = np.abs(values) <= _LARGEST_VALUE[self._theta.dtype]  # False for NaN
        return within

    # -- ask --------------------------------------------------------------------------------------------------------

    def ask(self) -> Batch:
        """The next batch. Without any answer since the last `ask` it is that same batch again."""
        current = self._current
        if current is not None and not current.untouched:
            self._finish(current)
            current = None
        if current is None:
            current = self._open()
        return Batch(self._space.outward(self._points(current)), current.ids)

    def pending(self) -> Batch:
        """The queries of the current batch that have no answer yet."""
        current = self._current
        if current is None:
            return Batch(self._space.outward(self._theta.new_empty(0, self._space.dim)), [])
        slots = np.flatnonzero(current.answers == Answer.WAITING)
        points = self._points(current)[torch.from_numpy(slots).to(self._theta.device)]
        return Batch(self._space.outward(points), [current.first_id + int(slot) for slot in slots])

    def _open(self) -> QueryBatch:
        step, settings = self._progress.iterations, self.settings
        fresh = self._weigher.fresh(self._theta, settings.queries, settings.rate(step))
        method = settings.method
        batch = QueryBatch(step, settings.radius(step), fresh, self._ledger.next_id, method.two_sided, method.centred)
        self._directions.open(step, fresh)
        for old in self._ledger.enter(batch, settings.window_length(step)):
            self._weigher.leave(old)
            self._directions.close(old.step)
        self._current = batch
        return batch

    def _points(self, batch: QueryBatch) -> Tensor:
        points = self._weigher.points(self._theta if batch.theta is None else batch.theta, batch)
        return points if self.settings.box is None else self.settings.box.project_(points)

    # -- tell -------------------------------------------------------------------------------------------------------

    def tell(self, ids: Iterable[int], values: Any) -> None:
        """Takes values by id: any subset, in any order, late ones too.

        Either all of them are taken or, when something is wrong with one, none. Under `on_error="drop"` a value that is
        not finite fails its query. A value whose batch has left the window is counted and otherwise ignored.
        """
        ids = as_ids(ids)
        told = self._sign * as_values(values, len(ids), "values")
        usable = self.usable(told)
        all_usable = np.count_nonzero(usable) == len(told)
        if not all_usable and self.settings.on_error == "raise":
            first = int(np.flatnonzero(~usable)[0])
            raise self.not_usable(f"the value of query {ids[first]}", self._sign * told[first])
        current = self._current
        if current is not None and current.untouched and all_usable and ids == current.ids:
            self._progress.evaluations += len(told)
            current.answer_all(told)
            self._note_best(current, told)
            self._finish(current)
            return
        self._answer(
            [(query, float(value) if ok else None) for query, value, ok in zip(ids, told, usable, strict=True)]
        )

    def not_usable(self, what: str, value: float) -> NonFiniteValue:
        """The error that a value is under `on_error="raise"`."""
        limit = _LARGEST_VALUE[self._theta.dtype]
        return NonFiniteValue(
            f'{what} is {value:g}; under on_error="raise" values must be finite (and below {limit:g} in size). '
            'on_error="drop" leaves such queries out; a run that diverges needs a smaller lr'
        )

    def fail(self, ids: Iterable[int]) -> None:
        """Says that these queries were evaluated and gave no value: each is lost, and counted."""
        self._answer([(query, None) for query in as_ids(ids)])

    def _answer(self, answers: list[tuple[int, float | None]]) -> None:
        places = self._ledger.locate([query for query, _ in answers])
        for (query, value), batch in zip(answers, places, strict=True):
            self._progress.evaluations += 1
            self._progress.dropped += value is None or batch is None
            if batch is None:
                self._ledger.answered_too_late(query)
                continue
            batch.answer(query - batch.first_id, value)
            if value is not None:
                self._note_best(batch, batch.values)
            if not batch.waiting:
                batch.theta = None
        if self._current is not None and not self._current.waiting:
            self._finish(self._current)

    def _note_best(self, batch: QueryBatch, values: np.ndarray) -> None:
        slot = int(values.argmin() if batch.complete else np.nanargmin(values))
        if values[slot] < self._progress.best:
            self._progress.best = float(values[slot])
            point = self._weigher.point(self._theta if batch.theta is None else batch.theta, batch, slot)
            self._best_x = point if self.settings.box is None else self.settings.box.project_(point)

    # -- weigh and move ---------------------------------------------------------------------------------------------

    def _finish(self, batch: QueryBatch) -> None:
        """The batch is over: theta moves by what the window knows now."""
        settings, theta = self.settings, self._theta
        if batch.waiting:
            batch.theta = theta.clone()  # where its late answers belong
        estimate = self._weigher.gradient(self._ledger.window, theta)
        if estimate is not None:
            before = theta.clone() if self._weigher.follows_moves else None
            settings.update.move_(theta, estimate, self._update_state, settings.rate(batch.step))
            if settings.box is not None:
                settings.box.project_(theta)
            if before is not None:
                self._weigher.moved(theta - before)
        self._current = None
        came = batch.values if batch.complete else batch.values[batch.answers == Answer.VALUE]
        self._last_mean = float(came.sum()) / len(came) if len(came) else float("nan")
        self._progress.iterated(len(came) > 0, self.budget.tol)

    # -- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that changes, as tensors and plain data: loads with `torch.load(..., weights_only=True)`."""
        return {
            "zoar": 1, "identity": self.settings.identity(self._space), "theta": self._theta.clone(),
            "best_x": self._best_x.clone(),
            "progress": dict(self._progress.__dict__), "seconds": self._clock.seconds(), "asked": self._ledger.state_dict(),
            "current": None if self._current is None else self._current.step,
            "directions": self._directions.state_dict(), "weigher": self._weigher.state_dict(),
            "update": self.settings.update.state_dict(self._update_state),
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a state: the same values then give the same theta, bit for bit."""
        if not isinstance(state, dict) or state.get("zoar") != 1:
            raise ValueError("this is not the state of a zoar.Optimizer (of version 1)")
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            raise ValueError(f"the state is not whole: it lacks {', '.join(missing)}")
        mine, theirs = self.settings.identity(self._space), state["identity"]
        different = [
            f"{name}: {theirs.get(name)} there, {mine[name]} here" for name in mine if mine[name] != theirs.get(name)
        ]
        if different:
            raise ValueError("the state belongs to another run: " + "; ".join(different))
        self._theta.copy_(state["theta"])
        if self.settings.box is not None:  # bounds may be others than those it was saved under
            self.settings.box.project_(self._theta)
        self._best_x = state["best_x"].to(self._theta).clone()
        self._progress = Progress(**state["progress"])
        self._clock.started = Clock().started - state["seconds"]
        self._ledger.load_state_dict(state["asked"])
        self._current = next((batch for batch in self.window if batch.step == state["current"]), None)
        self._directions.load_state_dict(state["directions"])
        self._weigher.load_state_dict(state["weigher"], self.window)
        self.settings.update.load_state_dict(self._update_state, state["update"])
