"""The studies' GPU path against their CPU path: the same seeds, Rademacher directions, 200 iterations, value by value.

    python benchmarks/devices_agree.py --device cuda --json FILE

Rademacher directions are bits of the same words everywhere, so that only the order of sums differs. The figure is the largest
relative gap between the two curves of f(theta), over all iterations and seeds. Exits with 1 where it exceeds 1e-3 in float32 or
1e-5 in float64. It is not less because coefficients that sum to zero give a variable whose K signs agree (one in 500 at K=10) a
gradient that is zero but for rounding, and the update rule divides it by its own size.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from zoar.problems import PAPER
from zoar.study.batched import run_together
from zoar.study.curves import Cell, Job, Key, run_cell
from zoar.study.descent import Synthetic
from zoar.study.provenance import provenance

DTYPES = {"float32": torch.float32, "float64": torch.float64}
ALLOWED = {"float32": 1e-3, "float64": 1e-5}


@dataclass(frozen=True)
class Typed(Cell):
    """A cell that starts in a dtype of its own."""

    dtype: torch.dtype = torch.float32

    def start(self) -> torch.Tensor:
        return super().start().to(self.dtype)


def gap(function: str, method: str, dtype: str, arguments: argparse.Namespace) -> dict[str, Any]:
    options = {**Synthetic(dim=arguments.dim).methods()[method], "directions": "rademacher"}
    cells = [
        Typed(Key("devices", function, dtype, method, seed), arguments.dim, arguments.iterations, 1, options, dtype=DTYPES[dtype])
        for seed in range(arguments.seeds)
    ]  # fmt: skip
    there = run_together(Job(tuple(cells)), arguments.device)
    here = [run_cell(cell) for cell in cells]
    gaps = [
        abs(one.value - two.value) / abs(two.value)
        for left, right in zip(there, here, strict=True)
        for one, two in zip(left.points, right.points, strict=True)
    ]
    return {
        "function": function, "method": method, "dtype": dtype, "largest_gap": max(gaps), "allowed": ALLOWED[dtype],
        "device_ms": there[0].ms_per_iteration, "cpu_ms_each_seed": here[0].ms_per_iteration,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dim", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    methods = [name for name in Synthetic().methods() if name != "ReLIZO"]  # its directions are normal numbers
    rows = [gap(function, method, dtype, arguments) for dtype in ALLOWED for function in PAPER for method in methods]
    for row in rows:
        print(
            f"{row['function']:11}{row['method']:13}{row['dtype']:9}{row['largest_gap']:.1e}  (allowed {row['allowed']:.0e})"
        )
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("dim", "iterations", "seeds")}
        command = f"python benchmarks/devices_agree.py --device {arguments.device} --json {arguments.json.name}"
        report = {"command": command, "settings": settings, **provenance(arguments.device), "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(not row["largest_gap"] <= row["allowed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
