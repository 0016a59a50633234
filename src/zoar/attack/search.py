"""Adversarial examples for a classifier seen only through its scores: testing the robustness of a model of one's own.

Every image has a run of its own, with its own directions, its own loss and its own count of queries, all in lock-step
(`zoar.many`): one call of `predict` serves them all, and an image that has succeeded is not asked again. Nothing is summed over
the batch, so an image costs the same queries alone and among others.

f(theta) is the margin of `zoar.attack.losses` at the image perturbed by theta, where theta is taken to the nearest
perturbation of at most epsilon and the pixels to their bounds; below zero the attack has succeeded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.attack.ball import Ball
from zoar.attack.losses import targeted_margin, untargeted_margin
from zoar.attack.oracle import SCORES, Oracle
from zoar.checking import choose, whole_number
from zoar.estimators import as_estimator
from zoar.many import ManyRuns


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What became of each image.

    Attributes:
        images: the adversarial images, as the images came; where there was no success, the best that was seen.
        success: which are taken for what they should be.
        already: which were so before the attack; they are successes that cost nothing, and no statistic counts them.
        queries: evaluations of each image that the search itself made.
        checks: evaluations of each image that only looked: at the image itself, and at theta between the steps.
        margins: f of `images`: below zero for a success.
        distances: how far each is from its image.
    """

    images: Any
    success: np.ndarray
    already: np.ndarray
    queries: np.ndarray
    checks: np.ndarray
    margins: np.ndarray
    distances: np.ndarray

    @property
    def evaluations(self) -> np.ndarray:
        """Of each image, all of them."""
        total: np.ndarray = self.queries + self.checks
        return total

    def success_rate(self, budget: int | None = None) -> float:
        """The share of the images that were attacked that succeeded, within `budget` evaluations if given; NaN for none."""
        attacked = ~self.already
        within = self.success if budget is None else self.success & (self.evaluations <= budget)
        return float(within[attacked].mean()) if attacked.any() else float("nan")

    def evaluations_to_success(self) -> np.ndarray:
        """Of the successes that an attack was needed for."""
        needed: np.ndarray = self.evaluations[self.success & ~self.already]
        return needed

    def __str__(self) -> str:
        """A sentence or two."""
        attacked, needed = int((~self.already).sum()), self.evaluations_to_success()
        words = [f"{len(needed)} of {attacked} images succeed"]
        if len(needed):
            words.append(
                f", after {needed.mean():,.0f} evaluations in the mean and {np.median(needed):,.0f} in the median"
            )
        if self.already.any():
            words.append(f"; {int(self.already.sum())} needed no attack")
        return "".join(words) + "."


def attack(
    predict: Callable[[Any], Any],
    images: Any,
    labels: Any = None,
    *,
    targets: Any = None,
    epsilon: float,
    norm: str = "linf",
    bounds: tuple[float, float] = (0.0, 1.0),
    max_queries: int = 10_000,
    check: bool = False,
    scores: str = "auto",
    batch_size: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> AttackResult:
    """Searches, for each image, a perturbation of at most `epsilon` under which `predict` is wrong.

    Args:
        predict: images (n, ...) -> scores (n, classes): logits, log-probabilities or probabilities. NumPy or torch, as `images`.
        images: (n, ...), a NumPy array or a torch tensor.
        labels: what each image is; the attack is to make `predict` say anything else. None takes what it says at first.
        targets: what each image is to be taken for instead (a targeted attack).
        epsilon: the largest perturbation, in the norm.
        norm: `"linf"` (of any pixel) or `"l2"` (of all of them).
        bounds: the least and the greatest pixel.
        max_queries: evaluations an image may cost, checks included.
        check: whether theta itself is looked at after each step too, for one evaluation. A query that succeeds ends the run in any
            case, and wide queries succeed about as soon as theta does: it seldom pays.
        scores: `"logits"`, `"probabilities"`, or `"auto"` to tell from the first answer.
        batch_size: images in one call of `predict`; None is all of them.
        seed: directions depend on it and on the image, and not on which others are attacked with it.
        progress: called after each step with the number of images that are over and of all.
        options: of `zoar.Optimizer`: `method`, `queries`, `window`, `smoothing`, `lr`, `update`, `directions`, `baseline`.

    Example:
        >>> weights = np.random.default_rng(0).standard_normal((10, 3))
        >>> images = np.random.default_rng(1).random((4, 10))
        >>> result = attack(lambda x: x @ weights, images, epsilon=0.5)
        >>> print(result.success)
        [ True  True  True  True]
        >>> bool((abs(result.images - images) <= 0.5 + 1e-6).all())
        True
    """
    choose("scores", scores, SCORES)
    ball = Ball.check(norm, epsilon, bounds)
    whole_number("max_queries", max_queries, 1)
    if batch_size is not None:
        whole_number("batch_size", batch_size, 1)
    pixels, shape, back = _as_pixels(images, ball)
    oracle = Oracle(predict, shape, not isinstance(images, Tensor), scores, batch_size)
    first = oracle(pixels)
    goals, margin = _goals(first, labels, targets, len(pixels))
    return _Search(oracle, ball, pixels, goals, margin, max_queries, check, seed, options).run(first, progress, back)


Margin = Callable[[Tensor, Tensor], Tensor]


class _Search:
    """All images' runs. What is asked about those that are still going, `going` says which they are."""

    def __init__(
        self, oracle: Oracle, ball: Ball, pixels: Tensor, goals: Tensor, margin: Margin, max_queries: int, check: bool,
        seed: int, options: dict[str, Any],
    ) -> None:  # fmt: skip
        self._oracle, self._ball, self._pixels, self._goals, self._margin = oracle, ball, pixels, goals, margin
        self._budget, self._check, self._seed = max_queries, check, seed
        size = ball.pixel(pixels.shape[1])
        usual: dict[str, Any] = {"queries": 2, "update": "radazo", "smoothing": 2.5 * size, "lr": 0.05 * size}
        if not as_estimator(options.get("method", "zoar")).memoryless:
            usual["window"] = 6
        self._options = {**usual, **options}

    def run(
        self, first: Tensor, progress: Callable[[int, int], None] | None, back: Callable[[Tensor], Any]
    ) -> AttackResult:
        pixels, count = self._pixels, len(self._pixels)
        best, margins = pixels.clone(), self._margin(first, self._goals).double()
        already = margins < 0
        queries, checks = torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64)
        going = torch.nonzero(~already).flatten()
        runs = self._start(going) if len(going) else None
        while runs is not None and len(going):
            cost = runs.settings.method.evaluations(runs.settings.queries)
            spent = int(queries[going[0].cpu()] + checks[going[0].cpu()])  # the same for all that are left
            if spent + cost > self._budget:
                break
            points = self._perturbed(going, runs.ask())
            values = self._values(going, points)
            queries[going.cpu()] += cost
            least, slot = values.min(-1)
            self._keep(best, margins, going, points[torch.arange(len(going)), slot], least)
            runs.tell(values)
            if self._check and spent + cost < self._budget:
                point = self._perturbed(going, runs.theta)
                self._keep(best, margins, going, point, self._values(going, point[:, None])[:, 0])
                checks[going.cpu()] += 1
            left = ~(margins[going] < 0)
            if not bool(left.all()):
                going = going[left]
                runs.keep(left)
            if progress is not None:
                progress(count - len(going), count)
        success, distances = margins < 0, self._ball.distance(pixels, best)
        return AttackResult(
            back(best), success.cpu().numpy(), already.cpu().numpy(), queries.numpy(), checks.numpy(),
            margins.cpu().numpy(), distances.cpu().numpy(),
        )  # fmt: skip

    def _start(self, going: Tensor) -> ManyRuns:
        """Each from a random perturbation of the size of a pixel's part."""
        seeds = [_seed(self._seed, image) for image in self._pixels[going]]
        size = self._ball.pixel(self._pixels.shape[1])
        draws = [np.random.Generator(np.random.PCG64(seed)).standard_normal(self._pixels.shape[1]) for seed in seeds]
        starts = torch.from_numpy(np.stack(draws)).to(self._pixels) * size
        return ManyRuns(self._ball.nearest(starts), seeds, max_iterations=self._budget, **self._options)

    def _perturbed(self, going: Tensor, theta: Tensor) -> Tensor:
        images = self._pixels[going]
        return self._ball.perturbed(images[:, None] if theta.ndim == 3 else images, theta)

    def _values(self, going: Tensor, points: Tensor) -> Tensor:
        """f at (S, K, pixels), (S, K)."""
        scores = self._oracle(points.flatten(0, 1)).reshape(*points.shape[:2], -1)
        return self._margin(scores, self._goals[going][:, None])

    @staticmethod
    def _keep(best: Tensor, margins: Tensor, going: Tensor, points: Tensor, values: Tensor) -> None:
        """The better of what there was and what came, of every image that is still going."""
        better = values.double() < margins[going]
        best[going[better]] = points[better]
        margins[going[better]] = values[better].double()


def _as_pixels(images: Any, ball: Ball) -> tuple[Tensor, tuple[int, ...], Callable[[Tensor], Any]]:
    """Images as (n, pixels) floating-point numbers, the shape of one, and the way back."""
    if isinstance(images, Tensor):
        tensor = images.detach()
    else:
        try:
            tensor = torch.from_numpy(np.array(images))
        except (TypeError, ValueError) as error:
            raise TypeError(f"images must be an array of numbers, got {type(images).__name__}: {error}") from None
    if tensor.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"images must hold float32 or float64 pixels, got {tensor.dtype}; convert them, and give their range as bounds "
            "(rounding to fewer bits would lead out of epsilon)"
        )
    if tensor.ndim < 2 or tensor.numel() == 0:
        raise ValueError(f"images must have shape (n, ...) with at least one image, got {tuple(tensor.shape)}")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("images must be finite; some pixels are NaN or infinite")
    low, high = float(tensor.min()), float(tensor.max())
    if low < ball.low or high > ball.high:
        raise ValueError(
            f"images must lie within bounds {(ball.low, ball.high)}, got pixels from {low:g} to {high:g}; "
            "say bounds=(least, greatest), or scale the images"
        )
    shape, dtype = tuple(tensor.shape), tensor.dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32

    def back(pixels: Tensor) -> Any:
        shaped = pixels.reshape(shape).to(dtype)
        return shaped if isinstance(images, Tensor) else shaped.cpu().numpy()

    return tensor.reshape(shape[0], -1).to(work), shape[1:], back


def _goals(first: Tensor, labels: Any, targets: Any, count: int) -> tuple[Tensor, Margin]:
    """The class that each image's margin is about, and which margin that is."""
    classes = first.shape[1]
    if targets is not None:
        if labels is not None:
            raise ValueError("give labels (to be taken for anything else) or targets (to be taken for that), not both")
        return _as_classes("targets", targets, count, classes).to(first.device), targeted_margin
    if labels is None:
        return first.argmax(-1), untargeted_margin
    return _as_classes("labels", labels, count, classes).to(first.device), untargeted_margin


def _as_classes(name: str, given: Any, count: int, classes: int) -> Tensor:
    tensor = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers, one an image; got {tensor.dtype}")
    if tensor.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), one an image; got {tuple(tensor.shape)}")
    if bool(((tensor < 0) | (tensor >= classes)).any()):
        raise ValueError(
            f"{name} must lie in 0..{classes - 1}, what predict scores; got {int(tensor.min())}..{int(tensor.max())}"
        )
    return tensor.long()


def _seed(seed: int, image: Tensor) -> int:
    """A seed of the image's own, whatever place it has among others."""
    digest = hashlib.sha256(str(seed).encode() + b"\0" + image.cpu().numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "little")
