"""ZoAR as attacks of foolbox (`pip install 'zoar[attack]'`): `LinfZoAR` and `L2ZoAR`, for one epsilon or several.

    attack = LinfZoAR(max_queries=5_000)
    raw, clipped, success = attack(model, images, labels, epsilons=0.1)
    print(attack.results[0.1])          # evaluations of each image: an AttackResult

Losses are of each image alone: foolbox's own evolution strategy sums them over the batch, so that its estimate for one image
carries the noise of all. foolbox itself asks the model once more for each image, to say what succeeded.
"""

from __future__ import annotations

from typing import Any, ClassVar

import eagerpy as ep
from foolbox.attacks.base import FixedEpsilonAttack, get_criterion, raise_if_kwargs
from foolbox.criteria import Misclassification, TargetedMisclassification
from foolbox.distances import l2, linf

from zoar.attack.search import AttackResult, attack


class _ZoAR(FixedEpsilonAttack):  # type: ignore[misc]  # foolbox is not there when types are checked
    """What the two share.

    Args:
        max_queries: evaluations an image may cost.
        seed, check, batch_size, options: as for `zoar.attack.attack`.
    """

    norm: ClassVar[str]

    def __init__(
        self,
        *,
        max_queries: int = 10_000,
        check: bool = False,
        seed: int = 0,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        self._options = {
            "max_queries": max_queries, "check": check, "seed": seed, "batch_size": batch_size, **options
        }  # fmt: skip
        #: By epsilon, what the last call found.
        self.results: dict[float, AttackResult] = {}

    def run(self, model: Any, inputs: Any, criterion: Any, *, epsilon: float, **kwargs: Any) -> Any:
        """foolbox calls this once for each epsilon."""
        raise_if_kwargs(kwargs)
        images, restore = ep.astensor_(inputs)
        criterion = get_criterion(criterion)
        if isinstance(criterion, Misclassification):
            goal = {"labels": ep.astensor(criterion.labels).numpy()}
        elif isinstance(criterion, TargetedMisclassification):
            goal = {"targets": ep.astensor(criterion.target_classes).numpy()}
        else:
            raise ValueError(
                f"criterion must be Misclassification (or labels) or TargetedMisclassification, got {type(criterion).__name__}"
            )
        torches = isinstance(images, ep.PyTorchTensor)

        def predict(points: Any) -> Any:
            scores = ep.astensor(model(points if torches else ep.from_numpy(images, points).raw))
            return scores.raw if torches else scores.numpy()

        result = attack(
            predict, images.raw if torches else images.numpy(), **goal, epsilon=epsilon, norm=self.norm,
            bounds=(float(model.bounds.lower), float(model.bounds.upper)), **self._options,
        )  # fmt: skip
        self.results[epsilon] = result
        return restore(ep.astensor(result.images) if torches else ep.from_numpy(images, result.images))


class LinfZoAR(_ZoAR):
    """Perturbations of at most epsilon in every pixel."""

    distance = linf
    norm = "linf"


class L2ZoAR(_ZoAR):
    """Perturbations of at most epsilon in Euclidean length."""

    distance = l2
    norm = "l2"
