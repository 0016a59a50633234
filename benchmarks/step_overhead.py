"""What a step costs beside its function evaluations.

    python benchmarks/step_overhead.py --json results/step_overhead.json

For Rosenbrock at d in {10^3, 10^4, 10^5}, K=10, window N in {1, 6, 50}, Gaussian and Rademacher directions, float32, one
thread: milliseconds of

    evaluations   ten separate calls of the function, nothing else
    vectorised    one call for all ten, nothing else
    iteration     zoar's ask, one vectorised call, tell
    overhead      zoar's ask and tell alone
    twin          the method as one writes it on a page: noise tensors in a list, ten calls, a Python loop over the window

All variants of a dimension are timed in turn, in bursts of twenty steps, round after round, so that a busy moment of the
machine meets them all; each figure is the median over rounds of a burst's mean, which counts the words that one step
in twenty draws for the others. The twin is not run where its N K d noise numbers would not fit 1 GB.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import zoar

QUERIES, RADIUS, RATE = 10, 0.05, 1e-3
DIMENSIONS, WINDOWS = (1_000, 10_000, 100_000), (1, 6, 50)
LAWS, BURST = ("gaussian", "rademacher"), 20
FUNCTION = zoar.problem("rosenbrock").function


class Twin:
    """ZoAR with R-AdaZO, literally."""

    def __init__(self, theta: torch.Tensor, window: int, law: str) -> None:
        self.theta, self.law = theta.clone(), law
        self.history: deque[list[tuple[torch.Tensor, torch.Tensor]]] = deque(maxlen=window)
        self.m, self.v = torch.zeros_like(theta), torch.zeros_like(theta)
        self.generator = torch.Generator().manual_seed(0)

    def draw(self) -> torch.Tensor:
        d = len(self.theta)
        if self.law == "gaussian":
            return torch.randn(d, generator=self.generator)
        return torch.randint(0, 2, (d,), generator=self.generator) * 2.0 - 1.0

    def step(self) -> None:
        batch = []
        for _ in range(QUERIES):
            u = self.draw()
            batch.append((u, FUNCTION(self.theta + RADIUS * u)))
        self.history.append(batch)
        pairs = [pair for batch in self.history for pair in batch]
        b = sum(y for _, y in pairs) / len(pairs)
        g = torch.zeros_like(self.theta)
        for u, y in pairs:
            g += (y - b) / RADIUS * u
        g /= len(pairs) - 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.99 * self.v + 0.01 * self.m**2
        self.theta -= RATE * self.m / torch.sqrt(self.v + 1e-8)


def burst(call: Callable[[], Any], steps: int) -> float:
    """Milliseconds a call, over a few in a row: what a run sees, with its arrays in the cache."""
    begun = time.perf_counter()
    for _ in range(steps):
        call()
    return 1e3 * (time.perf_counter() - begun) / steps


def stepper(theta: torch.Tensor, window: int, law: str, spent: list[float]) -> Callable[[], None]:
    """One iteration of zoar; `spent` gathers the milliseconds of ask and tell."""
    optimizer = zoar.Optimizer(theta, queries=QUERIES, window=window, smoothing=RADIUS, lr=RATE, directions=law)

    def step() -> None:
        asked = time.perf_counter()
        batch = optimizer.ask()
        answered = time.perf_counter()
        values = FUNCTION(batch.points)
        told = time.perf_counter()
        optimizer.tell(batch.ids, values)
        spent.append(1e3 * (time.perf_counter() - told + answered - asked))

    return step


def measure(dim: int, rounds: int) -> list[dict[str, Any]]:
    """Every law and window at one dimension."""
    theta = torch.from_numpy(zoar.problem("rosenbrock").start(dim))
    points = theta + RADIUS * torch.randn(QUERIES, dim, generator=torch.Generator().manual_seed(1))
    rows = []
    for law in LAWS:
        cells: dict[int, dict[str, Any]] = {}
        for window in WINDOWS:
            twin = Twin(theta, window, law) if 4 * window * QUERIES * dim < 1 << 30 else None
            cells[window] = {"steps": [], "overhead": [], "iteration": [], "twin": [], "run_twin": twin and twin.step}
            cells[window]["step"] = stepper(theta, window, law, cells[window]["steps"])
            for fill in ("step", "run_twin"):
                if cells[window][fill]:
                    burst(cells[window][fill], window + 2)
        separate, vectorised = [], []
        for _ in range(rounds):
            separate.append(burst(lambda: [FUNCTION(x) for x in points], BURST))
            vectorised.append(burst(lambda: FUNCTION(points), BURST))
            for window, cell in cells.items():
                burst(cell["step"], 2)  # back into the cache
                cell["steps"].clear()
                cell["iteration"].append(burst(cell["step"], BURST))
                cell["overhead"].append(float(np.mean(cell["steps"])))
                if cell["run_twin"]:
                    cell["twin"].append(burst(cell["run_twin"], BURST if window < 50 else 2))
        for window, cell in cells.items():
            rows.append({
                "dimension": dim, "directions": law, "window": window, "evaluations_ms": float(np.median(separate)),
                "vectorised_ms": float(np.median(vectorised)), "iteration_ms": float(np.median(cell["iteration"])),
                "overhead_ms": float(np.median(cell["overhead"])),
                "twin_ms": float(np.median(cell["twin"])) if cell["twin"] else None,
            })  # fmt: skip
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"Milliseconds an iteration, Rosenbrock, K={QUERIES}, float32, one thread")
    columns = "d", "directions", "N", "ten calls", "one call", "zoar", "overhead", "overhead / ten calls", "twin"
    for column in (*columns, "twin / zoar", "N / N=1"):
        table.add_column(column, justify="left" if column == "directions" else "right")
    for row in rows:
        first = next(
            r
            for r in rows
            if (r["dimension"], r["directions"], r["window"]) == (row["dimension"], row["directions"], 1)
        )
        twin = row["twin_ms"]
        table.add_row(
            f"{row['dimension']:,}", row["directions"], str(row["window"]), f"{row['evaluations_ms']:.2f}",
            f"{row['vectorised_ms']:.2f}",
            f"{row['iteration_ms']:.2f}", f"{row['overhead_ms']:.2f}", f"{row['overhead_ms'] / row['evaluations_ms']:.2f}",
            "-" if twin is None else f"{twin:.2f}", "-" if twin is None else f"{twin / row['iteration_ms']:.1f}x",
            f"{row['iteration_ms'] / first['iteration_ms']:.2f}",
        )  # fmt: skip
    Console(width=130).print(table)


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds (default: 20)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for dim in DIMENSIONS:
        rows += measure(dim, arguments.rounds if dim < 100_000 else max(arguments.rounds // 5, 3))
    show(rows)
    if arguments.json:
        record = {
            "command": "python benchmarks/step_overhead.py --json results/step_overhead.json", "cpu": cpu_name(), "threads": 1,
            "versions": {
                "zoar": zoar.__version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version(),
            },
            "queries": QUERIES, "function": "rosenbrock", "rows": rows,
        }  # fmt: skip
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
