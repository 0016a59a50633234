"""What the attack study attacks: the network, the test images, and f of a perturbation of them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import torch

from zoar.attack.losses import targeted_margin
from zoar.study import cnn, mnist
from zoar.study.folder import Refused

NETWORK = Path("data/mnist-cnn")  # where the network is kept, under the current folder
_LEAST_ACCURACY = 0.985


@dataclass(frozen=True, eq=False)
class Victim:
    """A network and the images it is asked about; each is to be taken for the class after its own."""

    network: torch.nn.Module
    accuracy: float
    digest: str  # of the network's weights
    images: torch.Tensor  # (n, pixels) in [0, 1]
    labels: torch.Tensor

    def targets(self) -> torch.Tensor:
        """label + 1, as the paper has it (and 0 for 9)."""
        return (self.labels + 1) % mnist.CLASSES

    def right(self, count: int) -> list[int]:
        """Which of the first images it takes for what they are. There is nothing to attack in the others."""
        with cnn.one_thread(), torch.inference_mode():
            said = self.network(self.images[:count]).argmax(-1)
        return torch.nonzero(said == self.labels[:count]).flatten().tolist()


@cache
def victim() -> Victim:
    """The network on MNIST, trained where it is not kept yet; the training images are read only for that."""
    images, labels = mnist.read_test()
    network, accuracy = cnn.load(NETWORK, mnist.DIGESTS) or cnn.load_or_train(NETWORK, mnist.read())
    if accuracy < _LEAST_ACCURACY:
        raise Refused(
            f"the network in {NETWORK} gets {accuracy:.2%} of MNIST's test images right, where the study promises "
            f"{_LEAST_ACCURACY:.1%}; delete the folder to train anew"
        )
    return Victim(network, accuracy, cnn.digest(network.state_dict()), images, labels)


@dataclass(frozen=True, eq=False)
class Objective:
    """f of theta for several images at once: the targeted margin of image + clamp(theta, -epsilon, epsilon).

    The clamps are part of f and theta is free, as the paper's numbers suggest: with mu = 0.5 most queries fall outside.
    """

    network: torch.nn.Module
    images: torch.Tensor  # (S, pixels)
    targets: torch.Tensor  # (S,)
    epsilon: float
    clipped: bool  # pixels to [0, 1]

    @classmethod
    def of(cls, victim: Victim, images: Sequence[int], epsilon: float, clipped: bool, device: str | None) -> Self:
        """For some of the images, with repetitions, on a device."""
        network = victim.network if device is None else deepcopy(victim.network).to(device)
        rows, place = torch.tensor(images), device or "cpu"
        return cls(network, victim.images[rows].to(place), victim.targets()[rows].to(place), epsilon, clipped)

    def __call__(self, theta: torch.Tensor) -> torch.Tensor:
        """(S, pixels) -> (S,), or (S, K, pixels) -> (S, K)."""
        images, targets = self.images, self.targets
        if theta.ndim == 3:
            images, targets = images[:, None], targets[:, None]
        perturbed = images + theta.clamp(-self.epsilon, self.epsilon)
        if self.clipped:
            perturbed = perturbed.clamp(0, 1)
        return targeted_margin(self.network(perturbed), targets)

    def keep(self, chosen: torch.Tensor) -> Self:
        """For the chosen images only (a mask)."""
        return type(self)(self.network, self.images[chosen], self.targets[chosen], self.epsilon, self.clipped)

    def white_box(self, steps: int = 300) -> torch.Tensor:
        """The least f that an attack with gradients finds, (S,): signed steps, ever shorter, within the box that f allows.

        It is projected to the box: in f itself, a pixel that a clamp holds has no gradient, and would stay where it is.
        """
        low, high = self.images - self.epsilon, self.images + self.epsilon
        if self.clipped:
            low, high = low.clamp(0, 1), high.clamp(0, 1)
        least = torch.full_like(self.images[:, 0], torch.inf)
        point = self.images
        with cnn.one_thread(), torch.enable_grad():
            for step in range(steps):
                point = point.detach().requires_grad_()
                values = targeted_margin(self.network(point), self.targets)
                least = torch.minimum(least, values.detach())
                (slope,) = torch.autograd.grad(values.sum(), point)
                length = 0.25 * self.epsilon * (1 - step / steps)
                point = torch.minimum(torch.maximum(point - length * slope.sign(), low), high)
        return least
