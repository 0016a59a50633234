"""Checkpoints of a run: written atomically, read as data only."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from zoar.checking import real_number

_FORMAT = "zoar checkpoint 2"


@dataclass
class Checkpoint:
    """A file that a run continues from."""

    path: Path
    every: float
    _saved: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, path: Any, every: float) -> Checkpoint | None:
        """A checkpoint, or None without a path."""
        if not real_number("checkpoint_every", every) >= 0:
            raise ValueError(f"checkpoint_every must be at least 0 seconds, got {every!r}")
        if path is None:
            return None
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be a path, got {path!r} ({type(path).__name__})")
        checkpoint = cls(Path(path), float(every))
        checkpoint._check_writable()
        return checkpoint

    def _check_writable(self) -> None:
        """Finds out now, and not after an hour."""
        try:
            if self.path.is_dir():
                raise IsADirectoryError("it is a folder")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise ValueError(f"checkpoint {self.path} cannot be written: {error.strerror or error}") from error

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._saved >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Writes a new file beside the old one and puts it in its place: at every moment one of them is whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=self.path.name, suffix=".part", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": _FORMAT, **_sealed(state)}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._saved = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state in the file, or None if there is no file yet."""
        if not self.path.exists():
            return None
        try:
            outer = torch.load(self.path, weights_only=True, map_location="cpu")
            foreign = not isinstance(outer, dict) or outer.get("format") != _FORMAT
            state = None if foreign else _opened(outer)
        except Exception as error:  # what a damaged file makes of a reader is anything
            reason = f"it is truncated, damaged or not a zoar checkpoint ({type(error).__name__})"
            raise ValueError(f"checkpoint {self.path} cannot be read: {reason}") from error
        if state is None:
            raise ValueError(
                f"{self.path} is not a zoar checkpoint of this version; choose another file, or delete this one to start anew"
            )
        return state


def _sealed(state: dict[str, Any]) -> dict[str, Any]:
    """The state as bytes and their sha256: a file that reads is not yet one that was not changed."""
    content = io.BytesIO()
    torch.save(state, content)
    return {
        "content": torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8),
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
    }


def _opened(outer: dict[str, Any]) -> dict[str, Any]:
    content = outer["content"].numpy().tobytes()
    if hashlib.sha256(content).hexdigest() != outer["sha256"]:
        raise ValueError("its content is not what was written")
    state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    return state
