"""Where a perturbed image may be: within epsilon of the image, and within the pixels' bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zoar.checking import choose, real_number

NORMS = ("linf", "l2")


@dataclass(frozen=True)
class Ball:
    """All images whose distance from the image, in the norm, is at most epsilon."""

    norm: str
    epsilon: float
    low: float
    high: float

    @classmethod
    def check(cls, norm: str, epsilon: float, bounds: tuple[float, float]) -> Ball:
        """The ball, or a sentence about what is wrong with it."""
        choose("norm", norm, NORMS)
        size = real_number("epsilon", epsilon)
        if not (size > 0 and math.isfinite(size)):
            raise ValueError(f"epsilon must be a finite number above 0, got {epsilon!r}")
        try:
            low, high = (real_number("bounds", side) for side in bounds)
        except (TypeError, ValueError):
            raise TypeError(f"bounds must be two numbers, the least and the greatest pixel; got {bounds!r}") from None
        if not low < high:
            raise ValueError(f"bounds must be (least, greatest) with least < greatest, got {bounds!r}")
        return cls(norm, size, low, high)

    def pixel(self, dim: int) -> float:
        """The size of a pixel's part in a perturbation that reaches epsilon with all of `dim` pixels alike."""
        return self.epsilon if self.norm == "linf" else self.epsilon / math.sqrt(dim)

    def nearest(self, theta: Tensor) -> Tensor:
        """The perturbation of at most epsilon that is nearest to theta, along its last axis."""
        if self.norm == "linf":
            return theta.clamp(-self.epsilon, self.epsilon)
        lengths = torch.linalg.vector_norm(theta, dim=-1, keepdim=True)
        within: Tensor = theta * (self.epsilon / lengths.clamp_min(self.epsilon))
        return within

    def perturbed(self, images: Tensor, theta: Tensor) -> Tensor:
        """The images with that perturbation. Clipping pixels to their bounds cannot lead out of the ball, which the image is in."""
        return (images + self.nearest(theta)).clamp(self.low, self.high)

    def distance(self, images: Tensor, others: Tensor) -> Tensor:
        """How far each is from its image."""
        order = torch.inf if self.norm == "linf" else 2.0
        length: Tensor = torch.linalg.vector_norm((others - images).double(), ord=order, dim=-1)
        return length
