"""Many jobs on several processes, with progress; Ctrl-C keeps those that are done."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.sharedctypes import RawArray
from typing import Any, Protocol

import torch
from rich.console import Console

from zoar.study.curves import Curve, Job, Report
from zoar.study.display import Display

_SECONDS_BETWEEN_REDRAWS = 0.2


class Work(Protocol):
    """What makes the curves of a job; a study does. It crosses to other processes by pickle."""

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]: ...


class Stopped(Exception):
    """The run was told to stop."""


class Board:
    """Where each job is, in memory that all processes share: iterations made, -1 before it starts; and a flag to stop."""

    def __init__(self, jobs: int) -> None:
        self._slots: Any = RawArray("q", [-1] * jobs + [0])

    def __getitem__(self, job: int) -> int:
        return int(self._slots[job])

    def reporter(self, job: int) -> Report:
        """What the job reports its iterations to."""

        def report(iteration: int) -> None:
            self._slots[job] = iteration
            if self._slots[-1]:
                raise Stopped

        return report

    def stop(self) -> None:
        """Ends every running job at its next report."""
        self._slots[-1] = 1


@dataclass
class Outcome:
    """How it went, apart from the curves."""

    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def run_jobs(
    jobs: Sequence[Job],
    work: Work,
    finished: Callable[[list[Curve]], None],
    *,
    device: str | None = None,
    workers: int,
    console: Console,
) -> Outcome:
    """Runs the jobs, handing the curves of each to `finished` as they come. A job that fails costs itself, not the others."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    workers = min(workers, len(jobs))
    outcome = Outcome()
    if not jobs:
        return outcome
    board = Board(len(jobs))
    with Display(console, jobs) as display:

        def settle(index: int, result: Callable[[], list[Curve]]) -> None:
            try:
                curves = result()
            except Exception as error:  # noqa: BLE001  # reported by name
                outcome.failed[jobs[index].name] = f"{type(error).__name__}: {error}"
                display.failed(index, outcome.failed[jobs[index].name])
            else:
                finished(curves)
                display.finished(index, curves)

        try:
            if workers == 1:
                _in_this_process(jobs, board, display, work, settle, device)
            else:
                _in_processes(jobs, board, display, work, settle, device, workers)
        except KeyboardInterrupt:
            outcome.interrupted = True
    return outcome


Settle = Callable[[int, Callable[[], list[Curve]]], None]


def _in_this_process(
    jobs: Sequence[Job], board: Board, display: Display, work: Work, settle: Settle, device: str | None
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, job in enumerate(jobs):
            report = board.reporter(index)

            def and_draw(iteration: int, report: Report = report) -> None:
                report(iteration)
                display.update(board)

            settle(index, lambda job=job, report=and_draw: work.run(job, device, report))  # type: ignore[misc]
    finally:
        torch.set_num_threads(threads)


def _in_processes(
    jobs: Sequence[Job], board: Board, display: Display, work: Work, settle: Settle, device: str | None, workers: int
) -> None:
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(board, work, device)
    )
    running: dict[Future[list[Curve]], int] = {}
    try:
        with _deaf_to_interrupts():  # inherited by the workers, which start with the first job
            running = {pool.submit(_run_in_worker, index, job): index for index, job in enumerate(jobs)}
        while running:
            done, _ = wait(running, timeout=_SECONDS_BETWEEN_REDRAWS, return_when=FIRST_COMPLETED)
            for future in done:
                settle(running.pop(future), future.result)
            display.update(board)
    except BaseException:
        board.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_worker: dict[str, Any] = {}  # what the worker was started with


def _start_worker(board: Board, work: Work, device: str | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent tells us what to do
    torch.set_num_threads(1)
    _worker.update(board=board, work=work, device=device)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_any([parent.sentinel])
        os._exit(1)


def _run_in_worker(index: int, job: Job) -> list[Curve]:
    curves: list[Curve] = _worker["work"].run(job, _worker["device"], _worker["board"].reporter(index))
    return curves


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it is interrupted
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
