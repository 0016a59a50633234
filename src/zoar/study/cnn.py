"""The classifier that the attack study attacks: two convolutions and a linear layer, trained on MNIST once and kept.

The paper (Appx. "Black-box Adversarial Attack") says "a simple two-layer CNN trained on the MNIST dataset" and no more; the sizes
and the training here are ours: 98.8% of the test images after half a minute on one core.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from zoar.study.folder import Folder, Refused
from zoar.study.mnist import CLASSES, SIDE, Mnist
from zoar.study.provenance import provenance

_FORMAT = "zoar cnn 1"
_FIRST, _SECOND, _KERNEL, _LAST_SIDE = 10, 20, 5, 4


class CNN(torch.nn.Module):
    """Images with pixels in [0, 1] -> log-probabilities of the ten digits.

    Takes (..., 784) or (..., 1, 28, 28), on the device and in the dtype of its parameters, and gives (..., 10).
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        """Weights drawn from `generator`, left undefined without one: torch's own layers would draw from the global state."""
        super().__init__()
        self.first, self.first_bias = _weights(generator, _FIRST, 1, _KERNEL, _KERNEL)
        self.second, self.second_bias = _weights(generator, _SECOND, _FIRST, _KERNEL, _KERNEL)
        self.linear, self.linear_bias = _weights(generator, CLASSES, _SECOND * _LAST_SIDE**2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.shape[-1:] == (SIDE * SIDE,):
            lead = images.shape[:-1]
        elif images.shape[-3:] == (1, SIDE, SIDE):
            lead = images.shape[:-3]
        else:
            raise ValueError(
                f"images must have shape (..., {SIDE * SIDE}) or (..., 1, {SIDE}, {SIDE}), got {tuple(images.shape)}"
            )
        x = images.reshape(-1, 1, SIDE, SIDE)
        x = F.relu(_halved(F.conv2d(x, self.first, self.first_bias)))
        x = F.relu(_halved(F.conv2d(x, self.second, self.second_bias)))
        return F.log_softmax(F.linear(x.flatten(1), self.linear, self.linear_bias), -1).reshape(*lead, CLASSES)


@dataclass(frozen=True)
class Training:
    """How the network is trained: Adam, its rate rising and falling once."""

    seed: int = 0
    epochs: int = 4
    batch: int = 128
    lr: float = 5e-3

    def __post_init__(self) -> None:
        for name, least in (("seed", 0), ("epochs", 1), ("batch", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.lr > 0:
            raise ValueError(f"lr must be above 0, got {self.lr}")


def load_or_train(
    folder: str | Path, data: Mnist, training: Training | None = None, *, console: Console | None = None
) -> tuple[CNN, float]:
    """The network and the part of the test images it gets right; trained where `folder` does not keep it yet.

    It comes in eval mode, with frozen parameters, on the CPU. The file is named after the data and the training, so that no
    two networks are taken for one another; a JSON beside it says how it was made.
    """
    folder, training, console = Path(folder), training or Training(), console or Console()
    kept = load(folder, data.digests, training)
    if kept is not None:
        return kept
    recipe, path = _recipe(folder, data.digests, training)
    if folder.exists() and not folder.is_dir():
        raise Refused(f"{folder} is a file; the network is kept in a folder")
    folder.mkdir(parents=True, exist_ok=True)
    console.print("Training the network to attack, once: half a minute on one core.", highlight=False)
    began = time.monotonic()
    with one_thread():
        model = train(data, training, console)
        right = accuracy(model, data.test_images, data.test_labels)
    seconds = time.monotonic() - began
    weights = model.state_dict()
    made = {**recipe, "accuracy": right, "weights_sha256": digest(weights)}
    content = io.BytesIO()
    torch.save({**made, "weights": weights}, content)
    files = Folder(folder, "cnn")
    files.write(path.name, content.getvalue())
    about = {**made, "test_images": len(data.test_images), "seconds": round(seconds, 1), **provenance()}
    files.write(f"{path.stem}.json", json.dumps(about, indent=2) + "\n")
    console.print(
        f"Trained the network in {seconds:.0f} s: {right:.2%} of {len(data.test_images):,} test images. Kept in {path}.",
        highlight=False, soft_wrap=True, markup=False,
    )  # fmt: skip
    return model, right


def load(folder: str | Path, digests: dict[str, str], training: Training | None = None) -> tuple[CNN, float] | None:
    """What `load_or_train` keeps in `folder` for data of these digests, which need not be here; None if it keeps none."""
    recipe, path = _recipe(Path(folder), digests, training or Training())
    return _load(path, recipe) if path.exists() else None


def train(data: Mnist, training: Training, console: Console) -> CNN:
    """A trained network: the same bits for the same data, training, machine and number of threads."""
    generator = torch.Generator().manual_seed(training.seed)
    images, labels = data.train_images, data.train_labels
    batches = -(-len(images) // training.batch)
    total = training.epochs * batches
    with torch.inference_mode(False), torch.enable_grad(), _progress(console) as progress:
        model = CNN(generator)
        adam = torch.optim.Adam(model.parameters(), lr=training.lr)
        task = progress.add_task("training the network", total=total)
        for step in range(total):
            if step % batches == 0:
                order = torch.randperm(len(images), generator=generator)
            chosen = order[step % batches * training.batch :][: training.batch]
            adam.param_groups[0]["lr"] = training.lr * _hat(step / total)
            adam.zero_grad()
            F.nll_loss(model(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
            adam.step()
            progress.update(task, completed=step + 1)
    return model.eval().requires_grad_(False)


@torch.inference_mode()
def accuracy(model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The part of the images whose label is the model's first choice."""
    pairs = zip(torch.split(images, 1000), torch.split(labels, 1000), strict=True)
    return sum(int((model(some).argmax(-1) == right).sum()) for some, right in pairs) / len(labels)


def _recipe(folder: Path, digests: dict[str, str], training: Training) -> tuple[dict[str, Any], Path]:
    """All that the weights depend on, and the file that is named after it."""
    recipe = {"format": _FORMAT, "training": asdict(training), "data": digests}
    name = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    return recipe, folder / f"cnn-{name}.pt"


def _load(path: Path, recipe: dict[str, Any]) -> tuple[CNN, float]:
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        if not isinstance(state, dict) or {name: state.get(name) for name in recipe} != recipe:
            raise ValueError("it is another file under this name")
        if digest(state["weights"]) != state["weights_sha256"]:
            raise ValueError("its weights are not those that were written")
        model = CNN()
        model.load_state_dict(state["weights"])
        right = float(state["accuracy"])
    except (
        pickle.UnpicklingError, RuntimeError, EOFError, OSError, zipfile.BadZipFile,
        ValueError, KeyError, TypeError, AttributeError,
    ) as error:  # fmt: skip
        reason = error if isinstance(error, ValueError) else f"truncated or foreign: {type(error).__name__}"
        raise Refused(f"{path} is not a network that zoar kept ({reason}); delete it to train anew") from error
    return model.eval().requires_grad_(False), right


def _weights(generator: torch.Generator | None, *shape: int) -> tuple[torch.nn.Parameter, torch.nn.Parameter]:
    """A layer's weight and bias; N(0, 2 / inputs), which keeps the scale through relu, and 0."""
    weight = torch.empty(shape, dtype=torch.float32, device="cpu")
    if generator is not None:
        weight.normal_(0, (2 / weight[0].numel()) ** 0.5, generator=generator)
    return torch.nn.Parameter(weight), torch.nn.Parameter(torch.zeros(shape[0], dtype=torch.float32, device="cpu"))


def _halved(x: torch.Tensor) -> torch.Tensor:
    """The maximum of each 2x2 square: max_pool2d, which takes ten times as long on a CPU."""
    x = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(x[..., ::2], x[..., 1::2])


def _hat(done: float) -> float:
    """The rate over the training: up over its first quarter, down to zero over the rest."""
    return min(0.04 + 4 * done, (1 - done) / 0.75)


def digest(weights: dict[str, torch.Tensor]) -> str:
    """The sha256 of a network's weights."""
    sha256 = hashlib.sha256()
    for name in sorted(weights):
        sha256.update(name.encode() + b"\0" + weights[name].numpy().tobytes())
    return sha256.hexdigest()


@contextmanager
def one_thread() -> Iterator[None]:
    """The bits depend on the number of threads, and a second one gains little, or loses much where its core is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
