"""Many cells on several processes, with progress; Ctrl-C keeps those that are done."""

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
from typing import Any

import torch
from rich.console import Console

from zoar.study.curves import Cell, Curve, Key, Report, run_cell
from zoar.study.display import Display

Work = Callable[[Cell, Report], Curve]

_SECONDS_BETWEEN_REDRAWS = 0.2


class Stopped(Exception):
    """The run was told to stop."""


class Board:
    """Where each cell is, in memory that all processes share: iterations made, -1 before it starts; and a flag to stop."""

    def __init__(self, cells: int) -> None:
        self._slots: Any = RawArray("q", [-1] * cells + [0])

    def __getitem__(self, cell: int) -> int:
        return int(self._slots[cell])

    def reporter(self, cell: int) -> Report:
        """What the cell reports its iterations to."""

        def report(iteration: int) -> None:
            self._slots[cell] = iteration
            if self._slots[-1]:
                raise Stopped

        return report

    def stop(self) -> None:
        """Ends every running cell at its next report."""
        self._slots[-1] = 1


@dataclass
class Outcome:
    """How it went, apart from the curves."""

    failed: dict[Key, str] = field(default_factory=dict)
    interrupted: bool = False


def run_cells(
    cells: Sequence[Cell], finished: Callable[[Curve], None], *, workers: int, console: Console, work: Work = run_cell
) -> Outcome:
    """Runs the cells, handing each curve to `finished` as it comes. A cell that fails costs itself, not the others."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    workers = min(workers, len(cells))
    outcome = Outcome()
    if not cells:
        return outcome
    board = Board(len(cells))
    with Display(console, cells) as display:

        def settle(cell: int, result: Callable[[], Curve]) -> None:
            key = cells[cell].key
            try:
                curve = result()
            except Exception as error:  # noqa: BLE001  # reported by name
                outcome.failed[key] = f"{type(error).__name__}: {error}"
                display.failed(cell, outcome.failed[key])
            else:
                finished(curve)
                display.finished(cell, curve)

        try:
            if workers == 1:
                _in_this_process(cells, board, display, work, settle)
            else:
                _in_processes(cells, board, display, work, settle, workers)
        except KeyboardInterrupt:
            outcome.interrupted = True
    return outcome


Settle = Callable[[int, Callable[[], Curve]], None]


def _in_this_process(cells: Sequence[Cell], board: Board, display: Display, work: Work, settle: Settle) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, cell in enumerate(cells):
            report = board.reporter(index)

            def and_draw(iteration: int, report: Report = report) -> None:
                report(iteration)
                display.update(board)

            settle(index, lambda cell=cell, report=and_draw: work(cell, report))  # type: ignore[misc]
    finally:
        torch.set_num_threads(threads)


def _in_processes(
    cells: Sequence[Cell], board: Board, display: Display, work: Work, settle: Settle, workers: int
) -> None:
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(board, work)
    )
    running: dict[Future[Curve], int] = {}
    try:
        with _deaf_to_interrupts():  # inherited by the workers, which start with the first cell
            running = {pool.submit(_run_in_worker, index, cell): index for index, cell in enumerate(cells)}
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


def _start_worker(board: Board, work: Work) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent tells us what to do
    torch.set_num_threads(1)
    _worker.update(board=board, work=work)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A pool whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_any([parent.sentinel])
        os._exit(1)


def _run_in_worker(index: int, cell: Cell) -> Curve:
    curve: Curve = _worker["work"](cell, _worker["board"].reporter(index))
    return curve


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
