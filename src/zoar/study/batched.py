"""A job on one device as one program: all its cells in lock-step, by `zoar.many`."""

from __future__ import annotations

import time
from typing import Any

import torch

from zoar.many import ManyRuns
from zoar.study.curves import Curve, Job, Point, Report


def run_together(job: Job, device: str, report: Report = lambda iteration: None) -> list[Curve]:
    """Runs cells that differ only in their seed. Milliseconds are of a step of all of them, the function's evaluation included."""
    first, place = job.cells[0], torch.device(device)
    function = first.function()
    starts = torch.stack([cell.start() for cell in job.cells]).to(place)
    runs = ManyRuns(starts, [cell.key.seed for cell in job.cells], max_iterations=first.iterations, **first.options)
    noise = torch.Generator(place).manual_seed(first.key.seed)
    points: list[tuple[int, Any, torch.Tensor]] = [(0, runs.evaluations, function(runs.theta.double()))]
    report(0)
    seconds, began = 0.0, time.perf_counter()
    while runs.step < first.iterations:
        values = function(runs.ask())
        if first.noise:
            values = values + first.noise * torch.randn(values.shape, generator=noise, device=place)
        runs.tell(values)
        if first.recorded(runs.step):
            _wait(place)
            seconds += time.perf_counter() - began
            points.append((runs.step, runs.evaluations, function(runs.theta.double())))
            report(runs.step)
            began = time.perf_counter()
    values = torch.stack([value for _, _, value in points]).cpu()
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{job.name} left the range of finite values")
    queries = [torch.as_tensor(asked).expand(len(job.cells)).tolist() for _, asked, _ in points]
    ms = 1e3 * seconds / first.iterations
    return [
        Curve(
            cell.key,
            tuple(Point(step, queries[i][run], float(values[i, run])) for i, (step, _, _) in enumerate(points)),
            ms,
        )
        for run, cell in enumerate(job.cells)
    ]


def _wait(device: torch.device) -> None:
    """Kernels are launched ahead of their time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
