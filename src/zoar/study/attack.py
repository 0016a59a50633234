"""Black-box attacks on a classifier of digits: the paper's Table 1, over more than its one image."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch

from zoar.checking import choose
from zoar.many import ManyRuns
from zoar.study import attack_report, attack_victim
from zoar.study.attack_scores import RULES
from zoar.study.attack_victim import Objective
from zoar.study.curves import Cell, Curve, Job, Key, Point, Report
from zoar.study.study import Findings, Study, plain

_TEST_IMAGES = 10_000
_STEPS_BETWEEN_LOOKS = 10  # on a GPU, where each look at what succeeded waits for all steps before it


@dataclass(frozen=True)
class Attempt(Cell):
    """One attack on one image. Its directions and its theta_0 are those of its image and seed, whatever the method."""

    image: int = 0
    bound: float | None = None  # of the pixels of theta_0

    @property
    def seed(self) -> int:
        """One for each image and seed: all images by the same directions would be less than so many images."""
        return self.key.seed * _TEST_IMAGES + self.image

    def start(self) -> torch.Tensor:
        draw = np.random.Generator(np.random.PCG64(self.seed)).standard_normal(self.dim, dtype=np.float32)
        return torch.from_numpy(draw if self.bound is None else draw.clip(-self.bound, self.bound))


@dataclass(frozen=True)
class Attempts(Job):
    """All images and seeds of one method under one rule, in lock-step."""

    @property
    def name(self) -> str:
        key = self.cells[0].key
        return f"{RULES[key.update]} {key.method}, {len(self.cells)} runs"


@dataclass(frozen=True)
class Attack(Study):
    """Targeted attacks, label -> label + 1, by a perturbation of at most `epsilon` a pixel."""

    images: int = 20
    seeds: int = 5
    iterations: int = 10_000  # after which an attack has failed
    update: str = "both"
    pixels: str = "clipped"
    start: str = "clamped"
    queries: int = 2
    window: int = 6
    smoothing: float = 0.5
    lr: float = 0.01
    epsilon: float = 0.2
    name = "attack"
    line = "perturbing digits until a CNN takes each for the next; how soon, and how often"
    source = "Table 1"
    takes = "minutes on a GPU, a quarter of an hour on two cores"

    def __post_init__(self) -> None:
        for name, least in {"images": 1, "seeds": 1, "iterations": 1, "queries": 2, "window": 2}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.images > _TEST_IMAGES:
            raise ValueError(f"images must be at most {_TEST_IMAGES:,}, MNIST's test images; got {self.images:,}")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be above 0, got {self.epsilon}")
        choose("update", self.update, ("both", *RULES))
        choose("pixels", self.pixels, ("clipped", "free"))
        choose("start", self.start, ("clamped", "free"))

    @property
    def every(self) -> int:
        """Iterations from one recorded value to the next: at most fifty to a curve."""
        return max(20, self.iterations // 50)

    def quick(self) -> Self:
        return self.having(images=10, seeds=3, iterations=3_000)

    def methods(self) -> dict[str, dict[str, Any]]:
        """Every method's options, but for the update rule."""
        common: dict[str, Any] = {"queries": self.queries, "smoothing": self.smoothing, "lr": self.lr}
        return {
            "vanilla": {"method": "vanilla", **common},
            "ZoHS": {"method": "zohs", "window": self.window, **common},
            "ZoAR N=1": {"method": "zoar", "window": 1, **common},
            f"ZoAR N={self.window}": {"method": "zoar", "window": self.window, **common},
        }

    def cells(self) -> list[Cell]:
        """Of the images that the network reads right: there is nothing to attack in the others."""
        victim = attack_victim.victim()
        labels, targets, right = victim.labels.tolist(), victim.targets().tolist(), victim.right(self.images)
        return [
            Attempt(
                Key(self.name, f"image {image}: {labels[image]} to {targets[image]}", update, method, seed),
                victim.images.shape[1], self.iterations, self.every, {**options, "update": update},
                image=image, bound=self.epsilon if self.start == "clamped" else None,
            )
            for update in (RULES if self.update == "both" else [self.update])
            for method, options in self.methods().items()
            for image in right
            for seed in range(self.seeds)
        ]  # fmt: skip

    def left_out(self) -> list[int]:
        """The images that the network gets wrong by itself."""
        return sorted(set(range(self.images)) - set(attack_victim.victim().right(self.images)))

    def settings(self) -> dict[str, Any]:
        """And what was attacked."""
        victim = attack_victim.victim()
        return {
            **{name: plain(value) for name, value in asdict(self).items()},
            "network_accuracy": victim.accuracy,
            "network_sha256": victim.digest[:12],
            "images_left_out": self.left_out() or "none",
            "methods": self.methods(),
        }

    def prepare(self, say: Any) -> None:
        victim = attack_victim.victim()
        say(f"The network to attack gets {victim.accuracy:.2%} of MNIST's test images right.")

    def jobs(self, cells: Sequence[Cell], device: str | None) -> list[Job]:
        """Everything of a method and rule together, on any device: what has succeeded makes the rest faster."""
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in cells:
            groups.setdefault((cell.key.update, cell.key.method), []).append(cell)
        return [Attempts(tuple(group)) for group in groups.values()]

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]:
        attempts = [cell for cell in job.cells if isinstance(cell, Attempt)]
        return run_attempts(attempts, self.objective([attempt.image for attempt in attempts], device), report)

    def objective(self, images: Sequence[int], device: str | None = None) -> Objective:
        """f for some of the images, as this study has it."""
        return Objective.of(attack_victim.victim(), images, self.epsilon, self.pixels == "clipped", device)

    def finished(self, cell: Cell, curve: Curve) -> bool:
        """It succeeded, or was given all its iterations."""
        return curve.final < 0 or super().finished(cell, curve)

    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        right = attack_victim.victim().right(self.images)
        least = dict(zip(right, self.objective(right).white_box().tolist(), strict=True))
        return attack_report.findings(self, curves, config["settings"], least)


def run_attempts(
    attempts: Sequence[Attempt],
    objective: Objective,
    report: Report = lambda iteration: None,
    *,
    look_every: int | None = None,
) -> list[Curve]:
    """Runs attacks that differ in image and seed, each until f(theta) < 0 after a step, or to its last iteration.

    The values of f(theta) that tell are no queries, and not counted. Milliseconds are of a step of all that were left.
    """
    first, place = attempts[0], objective.images.device
    starts = torch.stack([attempt.start() for attempt in attempts]).to(place)
    seeds = [attempt.seed for attempt in attempts]
    runs = ManyRuns(starts, seeds, max_iterations=first.iterations, **first.options)
    cost = runs.settings.method.evaluations(runs.settings.queries)
    left = list(range(len(attempts)))
    points: list[list[Point]] = [[] for _ in attempts]
    won = torch.full((len(attempts),), -1.0, dtype=torch.float64, device=place)  # the iteration of the first success
    margin = torch.zeros_like(won)  # f there
    between = look_every or (1 if place.type == "cpu" else _STEPS_BETWEEN_LOOKS)
    began = time.perf_counter()
    with _exact(place):
        while True:
            values = objective(runs.theta).double()
            new = (values < 0) & (won < 0)
            won, margin = torch.where(new, runs.step, won), torch.where(new, values, margin)
            recorded = first.recorded(runs.step)
            if recorded or runs.step % between == 0:
                looked = torch.stack([won, margin, values], 1).tolist()  # the only wait for the device
                for run, (step, last, value) in zip(left, looked, strict=True):
                    if step >= 0:
                        points[run].append(Point(int(step), int(step) * cost, last))
                    elif recorded:
                        points[run].append(Point(runs.step, runs.step * cost, value))
                if recorded:
                    report(runs.step)
                going = [step < 0 for step, _, _ in looked]
                if runs.step == first.iterations or not any(going):
                    break
                if not all(going):
                    left = [run for run, goes in zip(left, going, strict=True) if goes]
                    chosen = torch.tensor(going, device=place)
                    runs.keep(chosen)
                    objective, won, margin = objective.keep(chosen), won[chosen], margin[chosen]
            runs.tell(objective(runs.ask()))
    if not np.isfinite([point.value for curve in points for point in curve]).all():
        raise ValueError(f"attacks by {first.key.method} left the range of finite values")
    ms = 1e3 * (time.perf_counter() - began) / max(runs.step, 1)
    return [Curve(attempt.key, tuple(curve), ms) for attempt, curve in zip(attempts, points, strict=True)]


def _exact(device: torch.device) -> AbstractContextManager[None]:
    """Convolutions in float32: a GPU's default rounds to TF32, which two close queries may not survive."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
