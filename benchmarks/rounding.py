"""What rounding costs low-precision weights: a network trained from forward passes in float32, and in bfloat16 rounded three ways.

    python benchmarks/rounding.py --json FILE          # two minutes on one core; needs scikit-learn for its 1,797 scanned digits

A row is the training loss and the test accuracy after 2,000 steps, mean of the seeds. The loss is computed from the bfloat16
weights in float32, so that all that differs is what becomes of an update.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn
from torch.func import functional_call

import zoar
from zoar.study.provenance import provenance

CASES = {
    "float32": (torch.float32, "nearest"), "bfloat16, nearest": (torch.bfloat16, "nearest"),
    "bfloat16, stochastic": (torch.bfloat16, "stochastic"), "bfloat16, compensated": (torch.bfloat16, "compensated"),
}  # fmt: skip


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order[450:]], labels[order[450:]], images[order[:450]], labels[order[:450]]


def trained(case: str, seed: int, steps: int, lr: float) -> tuple[float, float]:
    dtype, rounding = CASES[case]
    images, labels, test_images, test_labels = digits()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10)).to(dtype)

    def logits(x: Tensor) -> Tensor:
        return functional_call(model, {name: p.float() for name, p in model.named_parameters()}, (x,))

    def loss() -> Tensor:
        return nn.functional.cross_entropy(logits(images), labels)

    rule = zoar.AdaMM(betas=(0.9, 0.99), corrected=True)
    optimizer = zoar.ZoAR(
        model.parameters(), lr, queries=10, window=8, smoothing=1e-2, baseline="batch", update=rule, seed=seed, rounding=rounding,
        placement="snapshot",
    )  # fmt: skip
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.step(loss)
        schedule.step()
    with torch.no_grad():
        return float(loss()), float((logits(test_images).argmax(-1) == test_labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        runs = [trained(case, seed, arguments.steps, arguments.lr) for seed in range(arguments.seeds)]
        rows.append(
            {"case": case, "loss": round(mean(r[0] for r in runs), 4), "accuracy": round(mean(r[1] for r in runs), 4)}
        )
        print(rows[-1], flush=True)
    if arguments.json:
        settings = {name: getattr(arguments, name) for name in ("seeds", "steps", "lr")}
        command = f"python benchmarks/rounding.py --json {arguments.json.name}"
        report = {"command": command, "settings": settings, **provenance(None), "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
