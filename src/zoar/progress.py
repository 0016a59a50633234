"""The live bar of `progress=True`."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoar.optimizer import Optimizer

_SECONDS_BETWEEN_REDRAWS = 0.1


class ProgressBar:
    """Value, rate and queries of a running optimizer; does nothing unless shown."""

    def __init__(self, optimizer: Optimizer, shown: bool) -> None:
        self._optimizer, self._drawn = optimizer, 0.0
        self._bar: Any = None
        self._task: Any = None
        self._started, self._nfev_before = time.monotonic(), optimizer.nfev
        if shown:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(), refresh_per_second=1 / _SECONDS_BETWEEN_REDRAWS,
            )  # fmt: skip
            name, total = optimizer.settings.method.name, optimizer.settings.horizon
            self._task = self._bar.add_task(name, total=total, completed=optimizer.nit, text="")

    def __enter__(self) -> ProgressBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def advance(self) -> None:
        """An iteration is over; redraws now and then."""
        if self._bar is not None and time.monotonic() - self._drawn > _SECONDS_BETWEEN_REDRAWS:
            self._draw()

    def _draw(self) -> None:
        optimizer = self._optimizer
        self._drawn = time.monotonic()
        rate = (optimizer.nfev - self._nfev_before) / max(self._drawn - self._started, 1e-9)
        text = (
            f"value {optimizer.last_mean:.4g}  best {optimizer.best_fun:.4g}  {optimizer.nfev:,} queries  {rate:,.0f}/s"
        )
        self._bar.update(self._task, completed=optimizer.nit, text=text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()
