"""Attacks: the plain function, and the real foolbox's and ART's own interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoar.attack import attack
from zoar.attack.search import AttackResult
from zoar.study.cnn import CNN

EPSILON = 0.02


def network(dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """Random weights: a real network's surface, and images near its borders."""
    return CNN(torch.Generator().manual_seed(0)).to(dtype).eval().requires_grad_(False)


def some_images(count: int = 16) -> torch.Tensor:
    return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return network()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return some_images()


@pytest.fixture(scope="module")
def labels(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    return model(images).argmax(-1)


class Counting:
    """A classifier that counts what it is asked, image by image."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model, self.asked, self.calls = model, 0, 0

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        self.asked += len(images)
        self.calls += 1
        return self.model(images)


# -- the plain function -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", EPSILON), ("l2", 0.4)])
@pytest.mark.parametrize("targeted", [False, True])
def test_successes_are_real_and_within_epsilon(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, norm: str, epsilon: float, targeted: bool
) -> None:
    goal: dict[str, Any] = {"targets": (labels + 1) % 10} if targeted else {"labels": labels}
    result = attack(model, images, **goal, epsilon=epsilon, norm=norm, max_queries=3_000)
    said = model(result.images).argmax(-1)
    hit = said == goal["targets"] if targeted else said != labels
    assert result.success.tolist() == hit.tolist()
    assert result.success_rate() > (0.2 if targeted else 0.8)
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    distances = (result.images - images).flatten(1).double().norm(dim=-1, p=np.inf if norm == "linf" else 2).numpy()
    np.testing.assert_allclose(result.distances, distances)
    assert (distances <= epsilon * (1 + 1e-6)).all()
    assert ((result.margins < 0) == result.success).all()


def test_every_evaluation_is_counted_and_none_made_of_an_image_that_is_over(
    model: torch.nn.Module, images: torch.Tensor
) -> None:
    counting = Counting(model)
    result = attack(counting, images, epsilon=EPSILON, max_queries=200)
    assert counting.asked == result.evaluations.sum()
    assert result.evaluations.max() <= 200
    assert len(set(result.evaluations.tolist())) > 2  # images end one by one
    assert counting.calls <= 200


def test_an_image_costs_the_same_alone_and_among_others() -> None:
    """In float64, where the network's rounding does not depend on how many images it is given at once."""
    model, images = network(torch.float64), some_images().double()
    together = attack(model, images, epsilon=EPSILON, max_queries=2_000)
    alone = [attack(model, image[None], epsilon=EPSILON, max_queries=2_000) for image in images]
    assert together.evaluations.tolist() == [int(result.evaluations[0]) for result in alone]
    assert together.success.all()


def test_looking_at_theta_is_counted_apart_and_within_the_budget(model: torch.nn.Module, images: torch.Tensor) -> None:
    counting = Counting(model)
    blind, looking = (
        attack(counting, images, epsilon=EPSILON, max_queries=400, check=check) for check in (False, True)
    )
    assert blind.checks.tolist() == [1] * len(images)  # the image itself
    assert counting.asked == blind.evaluations.sum() + looking.evaluations.sum()
    assert looking.evaluations.max() <= 400
    steps = looking.queries // 2
    assert (
        (looking.checks - 1 == steps) | (looking.checks == steps)
    ).all()  # the last step may succeed, or have no more to spend


def test_an_image_that_is_wrong_already_costs_one_look(model: torch.nn.Module, images: torch.Tensor) -> None:
    labels = model(images).argmax(-1)
    labels[3] = (labels[3] + 1) % 10
    result = attack(model, images, labels, epsilon=EPSILON, max_queries=2_000)
    assert result.already.tolist() == [i == 3 for i in range(16)]
    assert (result.queries[3], result.checks[3]) == (0, 1)
    torch.testing.assert_close(result.images[3], images[3], rtol=0, atol=0)
    assert "1 needed no attack" in str(result)
    assert len(result.evaluations_to_success()) == result.success.sum() - 1


def test_numpy_and_probabilities_give_what_torch_and_logits_do(model: torch.nn.Module, images: torch.Tensor) -> None:
    def service(pixels: np.ndarray) -> list[list[float]]:
        assert isinstance(pixels, np.ndarray)
        return model(torch.from_numpy(pixels)).softmax(-1).tolist()

    theirs = attack(service, images.numpy(), epsilon=EPSILON, max_queries=600)
    ours = attack(model, images, epsilon=EPSILON, max_queries=600)
    assert isinstance(theirs.images, np.ndarray)
    assert abs(int(theirs.success.sum()) - int(ours.success.sum())) <= 1
    # rounding of a logarithm may cost or save a step, and on other hardware a few
    assert np.median(abs(theirs.evaluations - ours.evaluations)) <= 30


def test_what_predict_does_to_its_arrays_is_its_own_affair(model: torch.nn.Module, images: torch.Tensor) -> None:
    """It may normalise in place, and answer from a buffer that it uses again."""
    buffer, before = torch.empty(64, 10), images.clone()

    def predict(pixels: torch.Tensor) -> torch.Tensor:
        buffer[: len(pixels)] = model(pixels)
        pixels.sub_(0.5)
        return buffer[: len(pixels)]

    theirs = attack(predict, images, epsilon=EPSILON, max_queries=300, batch_size=4)
    ours = attack(model, images, epsilon=EPSILON, max_queries=300, batch_size=4)
    assert torch.equal(images, before)
    assert theirs.evaluations.tolist() == ours.evaluations.tolist()
    assert torch.equal(theirs.images, ours.images)


@pytest.mark.parametrize("method", ["vanilla", "spsa", "relizo", "zohs", "reinforce"])
def test_every_method_attacks_with_a_window_of_its_own(
    model: torch.nn.Module, images: torch.Tensor, method: str
) -> None:
    assert attack(model, images, epsilon=EPSILON, max_queries=30, method=method).evaluations.max() <= 30


def test_parts_of_a_batch_change_nothing(images: torch.Tensor) -> None:
    model = network(torch.float64)
    results = [
        attack(model, images.double(), epsilon=EPSILON, max_queries=300, batch_size=size).evaluations.tolist()
        for size in (None, 5)
    ]
    assert results[0] == results[1]


def test_progress_tells_how_many_are_over(model: torch.nn.Module, images: torch.Tensor) -> None:
    seen: list[tuple[int, int]] = []
    attack(model, images, epsilon=EPSILON, max_queries=2_000, progress=lambda over, of: seen.append((over, of)))
    assert seen[-1] == (16, 16)
    assert seen == sorted(seen)


def test_global_random_states_are_left_alone(model: torch.nn.Module, images: torch.Tensor) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    attack(model, images, epsilon=EPSILON, max_queries=50)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_success_rate_by_budget() -> None:
    result = AttackResult(
        None, success=np.array([True, True, False, True]), already=np.array([False, False, False, True]),
        queries=np.array([10, 100, 500, 0]), checks=np.array([1, 1, 1, 1]), margins=np.zeros(4), distances=np.zeros(4),
    )  # fmt: skip
    assert result.success_rate() == pytest.approx(2 / 3)
    assert result.success_rate(50) == pytest.approx(1 / 3)
    assert result.evaluations_to_success().tolist() == [11, 101]
    assert (
        str(result)
        == "2 of 3 images succeed, after 56 evaluations in the mean and 56 in the median; 1 needed no attack."
    )


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"epsilon": 0}, ValueError, "epsilon must be a finite number above 0, got 0"),
    ({"norm": "l1"}, ValueError, "norm must be one of 'linf', 'l2'; got 'l1'"),
    ({"bounds": (1, 0)}, ValueError, "bounds must be \\(least, greatest\\)"),
    ({"bounds": (0.4, 0.6)}, ValueError, "images must lie within bounds"),
    ({"bounds": 1}, TypeError, "bounds must be two numbers"),
    ({"max_queries": 0}, ValueError, "max_queries must be at least 1"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
    ({"scores": "softmax"}, ValueError, "scores must be one of"),
    ({"labels": [0, 1]}, ValueError, "labels must have shape \\(16,\\)"),
    ({"labels": [0.5] * 16}, TypeError, "labels must be whole numbers"),
    ({"targets": [10] * 16}, ValueError, "targets must lie in 0..9"),
    ({"labels": [0] * 16, "targets": [1] * 16}, ValueError, "not both"),
    ({"images": torch.zeros(3)}, ValueError, "images must have shape"),
    ({"images": torch.zeros(3, 4, dtype=torch.uint8)}, TypeError, "float32 or float64 pixels"),
    ({"images": torch.zeros(3, 4, dtype=torch.bfloat16)}, TypeError, "float32 or float64 pixels"),
    ({"images": torch.full((3, 4), torch.nan)}, ValueError, "images must be finite"),
    ({"images": "pictures"}, TypeError, "images must be an array"),
    ({"predict": lambda x: torch.zeros(len(x))}, ValueError, "predict must return scores of shape \\(16, classes\\)"),
    ({"predict": lambda x: torch.full((len(x), 3), torch.nan)}, ValueError, "NaN or infinite"),
    ({"predict": lambda x: "cat"}, TypeError, "predict must return an array of scores"),
    ({"method": "zoat"}, ValueError, "method must be one of"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), BAD, ids=lambda value: None)
def test_bad_input_gets_a_sentence(
    model: torch.nn.Module, images: torch.Tensor, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    options = {"predict": model, "images": images, "epsilon": EPSILON, "max_queries": 20, **change}
    with pytest.raises(error, match=words):
        attack(options.pop("predict"), options.pop("images"), **options)


# -- foolbox ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foolbox() -> Any:
    return pytest.importorskip("foolbox", reason="foolbox is not installed: pip install 'zoar[attack]'")


@pytest.mark.parametrize(("name", "epsilon"), [("LinfZoAR", EPSILON), ("L2ZoAR", 0.4)])
@pytest.mark.parametrize("targeted", [False, True])
def test_foolbox_accepts_the_attack(
    foolbox: Any, model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, name: str, epsilon: float, targeted: bool
) -> None:  # fmt: skip
    from zoar.attack import for_foolbox

    fmodel = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    chosen = foolbox.criteria.TargetedMisclassification((labels + 1) % 10) if targeted else labels
    search = getattr(for_foolbox, name)(max_queries=1_500)
    raw, clipped, success = search(fmodel, images, chosen, epsilons=epsilon)
    assert isinstance(raw, torch.Tensor)
    assert success.tolist() == search.results[epsilon].success.tolist()
    assert success.float().mean() > (0.2 if targeted else 0.8)
    torch.testing.assert_close(raw, clipped)
    distances = search.distance(images, clipped)
    assert (distances <= epsilon * (1 + 1e-5)).all()


def test_foolbox_takes_several_epsilons_and_numpy_models(foolbox: Any, images: torch.Tensor) -> None:
    import eagerpy

    from zoar.attack.for_foolbox import LinfZoAR

    weights = np.random.default_rng(0).standard_normal((784, 10)).astype(np.float32)
    fmodel = foolbox.NumPyModel(lambda x: x.reshape(len(x), -1) @ weights, bounds=(0, 1))
    inputs = eagerpy.astensor(images.numpy())
    labels = fmodel(inputs).argmax(-1)
    search = LinfZoAR(max_queries=400)
    raw, _, success = search(fmodel, inputs, labels, epsilons=[0.001, 0.1])
    assert [type(one) for one in raw] == [type(inputs)] * 2
    rates = success.float32().mean(axis=-1).numpy()
    assert rates[0] < rates[1] == 1


def test_foolbox_gets_a_sentence_for_what_cannot_be_done(
    foolbox: Any, model: torch.nn.Module, images: torch.Tensor
) -> None:
    from zoar.attack.for_foolbox import LinfZoAR

    class Other(foolbox.criteria.Criterion):
        def __repr__(self) -> str:
            return "Other"

        def __call__(self, perturbed: Any, outputs: Any) -> Any:
            return outputs.argmax(-1) == 0

    fmodel = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    with pytest.raises(ValueError, match="criterion must be Misclassification"):
        LinfZoAR()(fmodel, images, Other(), epsilons=0.1)
    with pytest.raises(TypeError, match="unexpected keyword"):
        LinfZoAR()(fmodel, images, torch.zeros(16, dtype=torch.long), epsilons=0.1, steps=3)


# -- ART --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier(model: torch.nn.Module) -> Any:
    pytest.importorskip("art", reason="ART is not installed: pip install 'zoar[attack]'")
    from art.estimators.classification import BlackBoxClassifierNeuralNetwork

    return BlackBoxClassifierNeuralNetwork(
        lambda x: model(torch.from_numpy(np.asarray(x, np.float32))).softmax(-1).numpy(), (1, 28, 28), 10,
        clip_values=(0, 1), channels_first=True,
    )  # fmt: skip


@pytest.mark.parametrize(("norm", "eps"), [(np.inf, EPSILON), (2, 0.4)])
@pytest.mark.parametrize("targeted", [False, True])
def test_art_accepts_the_attack(
    classifier: Any, images: torch.Tensor, labels: torch.Tensor, norm: float, eps: float, targeted: bool
) -> None:
    from zoar.attack.for_art import ZoARAttack

    y = ((labels + 1) % 10 if targeted else labels).numpy()
    search = ZoARAttack(classifier, norm=norm, eps=eps, targeted=targeted, max_queries=1_500)
    found = search.generate(images.numpy(), np.eye(10)[y] if targeted else y)
    said = classifier.predict(found).argmax(-1)
    hit = said == y if targeted else said != y
    assert hit.tolist() == search.result.success.tolist()
    assert hit.mean() > (0.2 if targeted else 0.8)
    assert found.dtype == np.float32
    order = np.inf if norm == np.inf else 2
    assert (np.linalg.norm((found - images.numpy()).reshape(16, -1), ord=order, axis=-1) <= eps * (1 + 1e-5)).all()


def test_art_untargeted_needs_no_labels(classifier: Any, images: torch.Tensor, labels: torch.Tensor) -> None:
    from zoar.attack.for_art import ZoARAttack

    search = ZoARAttack(classifier, eps=EPSILON, max_queries=1_500, options={"queries": 4})
    said = classifier.predict(search.generate(images.numpy())).argmax(-1)
    assert (said != labels.numpy()).mean() > 0.8
    search.set_params(eps=0.2, seed=1)
    assert "eps=0.2" in repr(search)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"norm": 1}, "norm must be np.inf or 2"), ({"eps": -1}, "eps must be above 0"),
     ({"targeted": 1}, "targeted must be True or False"), ({"max_queries": 0}, "max_queries must be at least 1")],
)  # fmt: skip
def test_art_bad_input_gets_a_sentence(classifier: Any, options: dict[str, Any], words: str) -> None:
    from zoar.attack.for_art import ZoARAttack

    with pytest.raises(ValueError, match=words):
        ZoARAttack(classifier, **options)


def test_art_targeted_needs_targets(classifier: Any, images: torch.Tensor) -> None:
    from zoar.attack.for_art import ZoARAttack

    with pytest.raises(ValueError, match="a targeted attack needs y"):
        ZoARAttack(classifier, targeted=True).generate(images.numpy())
