"""The network of the attack study, trained on a few bars that any network can tell apart."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from zoar.study import cnn, mnist
from zoar.study.cnn import CNN, Training
from zoar.study.folder import Refused

QUICK = Training(epochs=1, batch=20)


def bars(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digit j is a bright bar in rows 2j+4 and 2j+5, under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 10
    images = 0.2 * torch.rand(count, 28, 28, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[2 * label + 4 : 2 * label + 6] += 0.8
    return images.flatten(1), labels


DATA = mnist.Mnist(*bars(1000, 0), *bars(200, 1), digests={"bars": "0"})


def quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def load_or_train(folder: Path, training: Training = QUICK, data: mnist.Mnist = DATA) -> tuple[CNN, float]:
    return cnn.load_or_train(folder, data, training, console=quiet())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CNN, float]:
    folder = tmp_path_factory.mktemp("cnn") / "not there yet"
    return folder, *load_or_train(folder)


def test_it_learns_and_comes_frozen_in_eval_mode(kept: tuple[Path, CNN, float]) -> None:
    _, model, right = kept
    assert right > 0.9
    assert right == cnn.accuracy(model, DATA.test_images, DATA.test_labels)
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_it_gives_log_probabilities_for_rows_and_for_images(kept: tuple[Path, CNN, float]) -> None:
    model, rows = kept[1], DATA.test_images[:6]
    log_p = model(rows)
    assert log_p.shape == (6, 10)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(6))
    assert torch.equal(model(rows.view(6, 1, 28, 28)), log_p)
    assert torch.equal(model(rows.view(2, 3, 784)), log_p.view(2, 3, 10))
    torch.testing.assert_close(model(rows[0]), log_p[0])
    assert model(rows[:0]).shape == (0, 10)
    with pytest.raises(ValueError, match=r"images must have shape .* got \(6, 28, 28\)"):
        model(rows.view(6, 28, 28))


def test_it_is_two_convolutions_each_with_pooling_and_a_linear_layer(kept: tuple[Path, CNN, float]) -> None:
    model, images = kept[1], DATA.test_images[:6].view(6, 1, 28, 28)
    x = F.max_pool2d(F.conv2d(images, model.first, model.first_bias), 2).relu()
    x = F.max_pool2d(F.conv2d(x, model.second, model.second_bias), 2).relu()
    expected = F.linear(x.flatten(1), model.linear, model.linear_bias).log_softmax(-1)
    torch.testing.assert_close(model(images), expected)


def test_the_second_time_it_is_read_not_trained(kept: tuple[Path, CNN, float], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, model, right = kept
    monkeypatch.delattr(cnn, "train")
    again, still = load_or_train(folder)
    assert still == right
    assert torch.equal(again(DATA.test_images), model(DATA.test_images))
    assert not again.training
    assert not any(parameter.requires_grad for parameter in again.parameters())


def test_a_json_beside_it_says_how_it_was_made(kept: tuple[Path, CNN, float]) -> None:
    folder, _, right = kept
    weights, about = sorted(folder.iterdir(), reverse=True)
    assert (weights.suffix, about.suffix) == (".pt", ".json")
    made = json.loads(about.read_text())
    assert made["training"] == {"seed": 0, "epochs": 1, "batch": 20, "lr": 5e-3}
    assert (made["accuracy"], made["data"], made["test_images"]) == (right, {"bars": "0"}, 200)


def test_training_is_the_same_for_the_same_seed_only_and_in_any_mode(
    tmp_path: Path, kept: tuple[Path, CNN, float]
) -> None:
    image = DATA.test_images[:5]
    with torch.inference_mode():
        again, _ = load_or_train(tmp_path)
        assert torch.equal(again(image), kept[1](image))
        other, _ = load_or_train(tmp_path, Training(seed=1, epochs=1, batch=20))
        assert not torch.equal(other(image), kept[1](image))
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_other_data_is_another_network(tmp_path: Path, kept: tuple[Path, CNN, float]) -> None:
    data = mnist.Mnist(*bars(40, 2), *bars(10, 3), digests={"bars": "1"})
    load_or_train(tmp_path, data=data)
    assert {path.name for path in tmp_path.iterdir()}.isdisjoint(path.name for path in kept[0].iterdir())


def test_your_rng_and_your_threads_are_yours(tmp_path: Path) -> None:
    def states() -> tuple:
        legacy = np.random.get_state()  # noqa: NPY002  # the global state is what must not change
        return (
            torch.random.get_rng_state().tolist(), legacy[1].tolist(), legacy[2], random.getstate(),
            torch.get_num_threads(), torch.is_grad_enabled(),
        )  # fmt: skip

    before = states()
    data = mnist.Mnist(*bars(40, 2), *bars(10, 3), digests={})
    load_or_train(tmp_path, data=data)
    load_or_train(tmp_path, data=data)
    assert states() == before


def test_a_truncated_or_foreign_file_is_refused_by_name(tmp_path: Path, kept: tuple[Path, CNN, float]) -> None:
    (written,) = kept[0].glob("*.pt")
    path, whole = tmp_path / written.name, written.read_bytes()
    state = torch.load(written, weights_only=True)
    changed = {**state, "weights": {name: weight + 1 for name, weight in state["weights"].items()}}
    foreign = [{**state, "training": {}}, changed, {"a": 1}, [1, 2], {**state, "weights": [1]}]
    bad = [whole[: len(whole) // 2], b"", b"hello", *map(saved, foreign)]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(Refused, match=rf"{path.name} is not a network that zoar kept \(.*\); delete it"):
            load_or_train(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def saved(state: object) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def test_bad_input_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="file is a file; the network is kept in a folder"):
        load_or_train(tmp_path / "file")
    for options, sentence in (
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Training(**options)
