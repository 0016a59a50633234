"""What an attack minimises: margins between log-probabilities, below zero exactly when it has succeeded.

Only differences between classes count, so logits give the same values as their log-softmax. Take either in float32: in
float16 they are rounded so coarsely that two close queries get the same value.
"""

from __future__ import annotations

import torch


def targeted_margin(log_probabilities: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """By how much the best other class beats the target: f = max_{j != t} log p_j - log p_t.

    f < 0 exactly when the target is what the classifier says; a tie is no success.

    Args:
        log_probabilities: shape (..., classes).
        targets: the class t to be taken for, whole numbers that broadcast to the leading shape (...).

    >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]).log()
    >>> targeted_margin(scores, torch.tensor([2, 2])) < 0
    tensor([False,  True])
    """
    own, best_other = _own_and_best_other(log_probabilities, targets, "targets")
    return best_other - own


def untargeted_margin(log_probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """By how much the true class beats the best other one: f = log p_y - max_{j != y} log p_j.

    f < 0 exactly when the classifier says anything but the label; a tie is no success.

    Args:
        log_probabilities: shape (..., classes).
        labels: the true class y, whole numbers that broadcast to the leading shape (...).

    >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]).log()
    >>> untargeted_margin(scores, torch.tensor(0)) < 0
    tensor([False,  True])
    """
    own, best_other = _own_and_best_other(log_probabilities, labels, "labels")
    return own - best_other


def _own_and_best_other(scores: torch.Tensor, classes: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    if not scores.is_floating_point() or scores.ndim == 0 or scores.shape[-1] < 2:
        raise ValueError(
            "log_probabilities must be floating-point numbers of shape (..., classes) with at least 2 classes, "
            f"got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    if classes.is_floating_point() or classes.is_complex() or classes.dtype == torch.bool:
        raise TypeError(f"{name} must be whole numbers, got {classes.dtype}")
    lead = scores.shape[:-1]
    try:
        index = classes.long().expand(lead).unsqueeze(-1)
    except RuntimeError as error:
        raise ValueError(
            f"{name} must broadcast to the leading shape of log_probabilities, {tuple(lead)}; got {tuple(classes.shape)}"
        ) from error
    if not scores.is_cuda and bool(((index < 0) | (index >= scores.shape[-1])).any()):  # on CUDA, asking would wait
        raise ValueError(f"{name} must lie in 0..{scores.shape[-1] - 1}, got {int(index.min())}..{int(index.max())}")
    return scores.gather(-1, index).squeeze(-1), scores.scatter(-1, index, -torch.inf).amax(-1)
