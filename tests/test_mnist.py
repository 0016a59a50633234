"""The idx reader on files written here; on MNIST itself where it is."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from zoar.study import mnist
from zoar.study.folder import Refused

TRAIN, LABELS, T10K = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def contents(train: int = 6, test: int = 3) -> dict[str, bytes]:
    """Four files of a few random images."""
    random = np.random.Generator(np.random.PCG64(0))
    return {
        f"{split}-{what}": idx(random.integers(0, top, (count, *shape)))
        for split, count in (("train", train), ("t10k", test))
        for what, top, shape in (("images-idx3-ubyte", 256, (28, 28)), ("labels-idx1-ubyte", 10, ()))
    }


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No MNIST of this machine's is found by accident."""
    monkeypatch.delenv(mnist.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_images_are_rows_in_0_1_and_labels_whole(tmp_path: Path) -> None:
    files = contents()
    data = mnist.read(write(tmp_path / "m", files), check=False)
    assert (data.train_images.dtype, data.train_labels.dtype) == (torch.float32, torch.int64)
    assert (data.train_images.shape, data.test_images.shape) == ((6, 784), (3, 784))
    expected = np.frombuffer(files[TRAIN], np.uint8, offset=16).reshape(6, 784)
    np.testing.assert_array_equal(data.train_images.numpy(), expected.astype(np.float32) / np.float32(255))
    assert data.train_labels.tolist() == list(files[LABELS][8:])
    assert data.digests == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def test_zipped_files_read_as_plain_ones_do(tmp_path: Path) -> None:
    files = contents()
    plain = mnist.read(write(tmp_path / "plain", files), check=False)
    zipped = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    unzipped = mnist.read(write(tmp_path / "zipped", zipped), check=False)
    assert torch.equal(plain.test_images, unzipped.test_images)
    assert plain.digests == unzipped.digests


def test_the_digest_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, files = write(tmp_path / "m", contents()), contents()
    found = hashlib.sha256(files[TRAIN]).hexdigest()
    with pytest.raises(
        Refused, match=f"{TRAIN} is not MNIST's: its sha256 is {found}, expected {mnist.DIGESTS[TRAIN]}"
    ):
        mnist.read(folder)
    monkeypatch.setattr(
        mnist, "DIGESTS", {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    )
    assert len(mnist.read(folder).train_images) == 6


HEADER = struct.pack(">HBB3I", 0, 8, 3, 3, 28, 28)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (contents()[T10K][:-1], f"{T10K} is truncated: 2,367 bytes, and its header promises 2,368"),
        (contents()[T10K] + b"x", f"{T10K} has bytes that do not belong to it: 2,369 bytes"),
        (HEADER[:9], f"{T10K} is truncated: 9 bytes, and its header alone has 16"),
        (b"", f"{T10K} is not an idx file .* begins with 0x, where 0x00000803 was expected"),
        (b"<!DOCTYPE html>", f"{T10K} is not an idx file of bytes with 3 axes: it begins with 0x3c21444f"),
        (contents()["t10k-labels-idx1-ubyte"], "begins with 0x00000801, where 0x00000803 was expected"),
        (idx(np.zeros((3, 8, 8))), r"must have t10k images of 28x28 pixels, at least one; got shape \(3, 8, 8\)"),
        (idx(np.zeros((0, 28, 28))), r"at least one; got shape \(0, 28, 28\)"),
        (idx(np.zeros((2, 28, 28))), "one t10k label an image; got 2 images, 3 labels"),
    ],
)  # fmt: skip
def test_a_truncated_or_foreign_file_is_refused_by_name(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        mnist.read(write(tmp_path / "m", {**contents(), T10K: content}), check=False)


@pytest.mark.parametrize("content", [gzip.compress(contents()[T10K])[:-20], b"not zipped"], ids=["cut", "plain"])
def test_a_bad_zip_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    files = contents()
    del files[T10K]
    with pytest.raises(Refused, match=rf"{T10K}.gz is truncated or not a gzip file"):
        mnist.read(write(tmp_path / "m", {**files, f"{T10K}.gz": content}), check=False)


def test_labels_are_digits(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"must have train labels in 0\.\.9; got 10"):
        mnist.read(write(tmp_path / "m", {**contents(), LABELS: idx(np.full(6, 10))}), check=False)


def test_the_folder_is_the_given_one_else_the_variables_else_a_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        Refused, match=r"neither in data/mnist nor in .*/home/\.cache/zoar/mnist.*`make mnist`.*ZOAR_MNIST"
    ):
        mnist.find()
    cache = write(tmp_path / "home/.cache/zoar/mnist", contents())
    assert mnist.find() == cache
    write(Path("data/mnist"), contents())
    assert mnist.find() == Path("data/mnist")
    named = write(tmp_path / "named/MNIST/raw", contents())
    monkeypatch.setenv(mnist.VARIABLE, str(tmp_path / "named"))
    assert mnist.find() == named
    given = write(tmp_path / "given", contents())
    assert mnist.find(given) == given


def test_a_folder_that_was_named_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("data/mnist"), contents())
    files = contents()
    del files[T10K]
    partial = write(tmp_path / "partial", files)
    with pytest.raises(Refused, match=f"partial does not hold MNIST: it lacks {T10K}. Run `make mnist`"):
        mnist.find(partial)
    monkeypatch.setenv(mnist.VARIABLE, str(partial))
    with pytest.raises(Refused, match=f"partial, which ZOAR_MNIST names, does not hold MNIST: it lacks {T10K}"):
        mnist.find()


def test_mnist_itself(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.undo()
    monkeypatch.chdir(request.config.rootpath)
    try:
        folder = mnist.find()
    except Refused:
        pytest.skip("MNIST is not here: make mnist")
    data = mnist.read(folder)
    assert (len(data.train_images), len(data.test_images)) == (60_000, 10_000)
    assert data.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert (data.train_images.min(), data.train_images.max()) == (0, 1)
    assert data.train_images.mean().item() == pytest.approx(0.1307, abs=1e-4)  # the mean everyone normalises by
