"""What is attacked, as an attack sees it: images go in, log-scores come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

SCORES = ("auto", "logits", "probabilities")
_SUM_TOLERANCE = 1e-3  # of what counts as probabilities: services round what they send
_LEAST_PROBABILITY = 1e-12  # a service that rounds sends zeros


class Oracle:
    """`predict` behind one kind of array: (n, pixels) tensors in, (n, classes) float32 log-scores out, on their device.

    `scores` says what `predict` gives. Logits need no more than they are, since only their differences count; probabilities
    become logarithms. "auto" takes the first answer's word: rows of numbers from 0 to 1 that sum to 1 are probabilities.
    """

    def __init__(
        self, predict: Callable[[Any], Any], shape: tuple[int, ...], numpy: bool, scores: str, batch_size: int | None
    ) -> None:
        self._predict, self._shape, self._numpy, self._batch_size = predict, shape, numpy, batch_size
        self._scores = scores
        self._classes: int | None = None

    @torch.no_grad()
    def __call__(self, pixels: Tensor) -> Tensor:
        parts = [pixels] if self._batch_size is None else torch.split(pixels, self._batch_size)
        return torch.cat([self._ask(part) for part in parts]).to(pixels.device)

    def _ask(self, pixels: Tensor) -> Tensor:
        images = pixels.reshape(-1, *self._shape).clone()  # theirs to do with as they like
        answer = self._predict(images.cpu().numpy() if self._numpy else images)
        scores = self._as_scores(answer, len(images))
        if self._scores == "auto":
            sums = scores.sum(-1)
            alike = bool(((scores >= 0) & (scores <= 1)).all()) and bool(((sums - 1).abs() <= _SUM_TOLERANCE).all())
            self._scores = "probabilities" if alike else "logits"
        return scores.clamp_min(_LEAST_PROBABILITY).log() if self._scores == "probabilities" else scores

    def _as_scores(self, answer: Any, count: int) -> Tensor:
        if not isinstance(answer, Tensor):
            try:
                answer = torch.from_numpy(np.array(answer, np.float32))
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"predict must return an array of scores, got {type(answer).__name__}: {error}"
                ) from None
        scores: Tensor = answer.detach().to(torch.float32, copy=True)  # a buffer of theirs may be used again
        expected = f"({count}, classes)" if self._classes is None else f"({count}, {self._classes})"
        wrong = scores.ndim != 2 or len(scores) != count or scores.shape[1] < 2
        if wrong or (self._classes is not None and scores.shape[1] != self._classes):
            raise ValueError(
                f"predict must return scores of shape {expected} for {count} images, got {tuple(scores.shape)}"
            )
        if not bool(torch.isfinite(scores).all()):
            raise ValueError("predict returned scores that are NaN or infinite; an attack needs finite ones")
        self._classes = scores.shape[1]
        return scores
