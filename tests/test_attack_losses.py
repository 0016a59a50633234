"""The margins, against a loop over plain numbers."""

from __future__ import annotations

import math

import pytest
import torch

from zoar.attack import targeted_margin, untargeted_margin

MARGINS = [targeted_margin, untargeted_margin]


def looped(margin: object, rows: list[list[float]], classes: list[int]) -> list[float]:
    """The definition, one row at a time."""
    values = []
    for row, chosen in zip(rows, classes, strict=True):
        best_other = max(score for j, score in enumerate(row) if j != chosen)
        values.append(best_other - row[chosen] if margin is targeted_margin else row[chosen] - best_other)
    return values


def scores(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("lead", [(), (1,), (7,), (3, 4), (2, 0)])
@pytest.mark.parametrize("count", [2, 10])
def test_margin_is_the_loops(margin: object, lead: tuple[int, ...], count: int) -> None:
    log_p = scores(*lead, count).log_softmax(-1)
    classes = torch.randint(count, lead, generator=torch.Generator().manual_seed(1))
    got = margin(log_p, classes)
    assert got.shape == lead
    assert got.flatten().tolist() == pytest.approx(
        looped(margin, log_p.reshape(-1, count).tolist(), classes.flatten().tolist()), abs=1e-6
    )


def test_below_zero_is_success() -> None:
    log_p = scores(500, 10).log_softmax(-1)
    classes = torch.arange(500) % 10
    said = log_p.argmax(-1)
    assert torch.equal(targeted_margin(log_p, classes) < 0, said == classes)
    assert torch.equal(untargeted_margin(log_p, classes) < 0, said != classes)
    tie = torch.tensor([1.0, 1.0, 0.0])
    assert targeted_margin(tie, torch.tensor(0)) == untargeted_margin(tie, torch.tensor(0)) == 0


@pytest.mark.parametrize("margin", MARGINS)
def test_one_class_serves_all_queries_of_its_image(margin: object) -> None:
    log_p, classes = scores(5, 3, 10), torch.tensor([0, 1, 2, 3, 9])
    expected = torch.stack([margin(log_p[:, k], classes) for k in range(3)], 1)
    assert torch.equal(margin(log_p, classes[:, None]), expected)
    assert torch.equal(margin(log_p[0], torch.tensor(4)), margin(log_p[0], torch.tensor([4, 4, 4])))


@pytest.mark.parametrize("margin", MARGINS)
def test_logits_have_the_margin_of_their_log_probabilities(margin: object) -> None:
    logits, classes = scores(50, 10), torch.arange(50) % 10
    torch.testing.assert_close(margin(logits, classes), margin(logits.log_softmax(-1), classes), rtol=0, atol=1e-5)


@pytest.mark.parametrize("margin", MARGINS)
def test_the_arguments_are_left_alone_and_gradients_pass(margin: object) -> None:
    log_p = scores(4, 10).requires_grad_()
    before = log_p.detach().clone()
    margin(log_p, torch.zeros(4, dtype=torch.uint8)).sum().backward()
    assert torch.equal(log_p.detach(), before)
    assert log_p.grad is not None
    assert log_p.grad.abs().sum(-1).tolist() == [2.0] * 4


def test_certainty_and_nan_are_what_they_are() -> None:
    certain = torch.tensor([0.0, -math.inf, -math.inf])
    assert targeted_margin(certain, torch.tensor(0)) == -math.inf
    assert targeted_margin(certain, torch.tensor(1)) == math.inf
    assert targeted_margin(torch.tensor([0.0, math.nan, 1.0]), torch.tensor(0)).isnan()


@pytest.mark.parametrize(
    ("log_p", "classes", "error", "sentence"),
    [
        (torch.zeros(3, 1), torch.zeros(3).long(), ValueError, "at least 2 classes, got torch.float32 of shape \\(3, 1\\)"),
        (torch.zeros(3, 4).long(), torch.zeros(3).long(), ValueError, "floating-point .* got torch.int64"),
        (torch.tensor(1.0), torch.tensor(0), ValueError, "shape \\(..., classes\\)"),
        (torch.zeros(3, 4), torch.zeros(3), TypeError, "targets must be whole numbers, got torch.float32"),
        (torch.zeros(3, 4), torch.zeros(3).bool(), TypeError, "targets must be whole numbers, got torch.bool"),
        (torch.zeros(3, 4), torch.zeros(2).long(), ValueError, "targets must broadcast .* \\(3,\\); got \\(2,\\)"),
        (torch.zeros(3, 4), torch.tensor([0, 4, 1]), ValueError, "targets must lie in 0..3, got 0..4"),
        (torch.zeros(3, 4), torch.tensor([0, -1, 1]), ValueError, "targets must lie in 0..3, got -1..1"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_sentence(log_p: torch.Tensor, classes: torch.Tensor, error: type, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        targeted_margin(log_p, classes)
    with pytest.raises(error, match=sentence.replace("targets", "labels")):
        untargeted_margin(log_p, classes)
