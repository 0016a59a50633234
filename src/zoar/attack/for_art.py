"""ZoAR as an attack of the Adversarial Robustness Toolbox (`pip install 'zoar[attack]'`), over any of its classifiers.

classifier = BlackBoxClassifierNeuralNetwork(predict, input_shape, nb_classes, clip_values=(0, 1))
attack = ZoARAttack(classifier, eps=0.1, max_queries=5_000)
adversarial = attack.generate(images, labels)
print(attack.result)                # evaluations of each image: an AttackResult
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from art.attacks import EvasionAttack
from art.estimators import BaseEstimator
from art.estimators.classification import ClassifierMixin
from art.utils import check_and_transform_label_format

from zoar.attack.search import AttackResult, attack
from zoar.checking import whole_number

_NORMS = {np.inf: "linf", "inf": "linf", "linf": "linf", 2: "l2", "2": "l2", "l2": "l2"}


class ZoARAttack(EvasionAttack):  # type: ignore[misc]  # ART is not there when types are checked
    """Black-box: it calls the classifier's `predict` and nothing else.

    Args:
        classifier: any ART classifier, whose `predict` gives logits or probabilities.
        norm: np.inf or 2.
        eps: the largest perturbation, in the norm.
        targeted: whether `y` says what images are to be taken for, and not what they are.
        max_queries: evaluations an image may cost.
        batch_size: images in one call of `predict`.
        seed: of the directions.
        options: further ones of `zoar.attack.attack`, such as `queries`, `window`, `lr`.
    """

    attack_params: ClassVar[list[str]] = [
        *EvasionAttack.attack_params, "norm", "eps", "targeted", "max_queries", "batch_size", "seed", "options",
    ]  # fmt: skip
    _estimator_requirements = (BaseEstimator, ClassifierMixin)

    def __init__(
        self,
        classifier: Any,
        norm: float | str = np.inf,
        eps: float = 0.3,
        targeted: bool = False,
        max_queries: int = 10_000,
        batch_size: int = 128,
        seed: int = 0,
        options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(estimator=classifier)
        self.norm, self.eps, self.targeted = norm, eps, targeted
        self.max_queries, self.batch_size, self.seed, self.options = max_queries, batch_size, seed, options or {}
        #: What the last `generate` found.
        self.result: AttackResult | None = None
        self._check_params()

    def generate(self, x: np.ndarray, y: np.ndarray | None = None, **kwargs: Any) -> np.ndarray:
        """Adversarial examples for `x`. Labels `y` are numbers or one-hot; an untargeted attack may do without them."""
        if kwargs:
            raise TypeError(f"generate takes x and y, got {', '.join(kwargs)} too")
        if y is None and self.targeted:
            raise ValueError("a targeted attack needs y: what each image is to be taken for")
        classes = None
        if y is not None:
            classes = check_and_transform_label_format(y, nb_classes=self.estimator.nb_classes).argmax(-1)
        limits = self.estimator.clip_values
        bounds = (float(np.min(limits[0])), float(np.max(limits[1]))) if limits is not None else (-np.inf, np.inf)
        self.result = attack(
            lambda images: self.estimator.predict(images, batch_size=self.batch_size), np.asarray(x, np.float32),
            None if self.targeted else classes, targets=classes if self.targeted else None, epsilon=self.eps,
            norm=_NORMS[self.norm], bounds=bounds, max_queries=self.max_queries, seed=self.seed, **self.options,
        )  # fmt: skip
        adversarial: np.ndarray = self.result.images
        return adversarial

    def _check_params(self) -> None:
        if self.norm not in _NORMS:
            raise ValueError(f"norm must be np.inf or 2, got {self.norm!r}")
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, got {self.eps!r}")
        if not isinstance(self.targeted, bool):
            raise ValueError(f"targeted must be True or False, got {self.targeted!r}")
        whole_number("max_queries", self.max_queries, 1)
        whole_number("batch_size", self.batch_size, 1)
