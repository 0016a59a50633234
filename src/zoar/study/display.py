"""What is running: live bars in a terminal, elsewhere one line for each finished job."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from zoar.study.curves import Curve, Job, mean
from zoar.study.grid import number


class Positions(Protocol):
    """Iterations made by each job; -1 before it starts."""

    def __getitem__(self, job: int) -> int: ...


class Display:
    """Progress over jobs, for as long as the context lasts."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self._console, self._jobs = console, jobs
        self._width = max((len(job.name) for job in jobs), default=0)
        self._settled: set[int] = set()
        self._tasks: dict[int, TaskID] = {}
        self._bars: Progress | None = None
        if console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(32), TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(), console=console, transient=True, refresh_per_second=5,
            )  # fmt: skip
            self._overall = self._bars.add_task(
                f"{'all runs':{self._width}}", total=sum(job.iterations for job in jobs), text=self._count()
            )

    def __enter__(self) -> Display:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def update(self, positions: Positions) -> None:
        """Moves the bars to where the jobs are."""
        if self._bars is None:
            return
        overall = 0
        for index, job in enumerate(self._jobs):
            made = job.iterations if index in self._settled else positions[index]
            overall += max(made, 0)
            if index in self._settled or made < 0:
                continue
            if index not in self._tasks:
                self._tasks[index] = self._bars.add_task(job.name, total=job.iterations, text="")
            of = f"{job.iterations:,}"
            text = f"{made:{len(of)},} of {of} iterations"  # as wide at the start as at the end
            self._bars.update(self._tasks[index], completed=made, text=text)
        self._bars.update(self._overall, completed=overall)

    def finished(self, index: int, curves: Sequence[Curve]) -> None:
        """A job is done."""
        self._settle(
            index,
            f"{number(mean([curve.final for curve in curves])):>11}  {curves[0].ms_per_iteration:6.2f} ms per iteration",
        )

    def failed(self, index: int, why: str) -> None:
        """A job came to nothing."""
        self._settle(index, f"failed: {why}", always=True)

    def _settle(self, index: int, text: str, always: bool = False) -> None:
        self._settled.add(index)
        if self._bars is None or always:
            self._console.print(
                f"[{self._count():>8}]  {self._jobs[index].name:{self._width}}  {text}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        if self._bars is not None:
            if index in self._tasks:
                self._bars.remove_task(self._tasks.pop(index))
            self._bars.update(self._overall, text=self._count())

    def _count(self) -> str:
        return f"{len(self._settled)} of {len(self._jobs)}"
