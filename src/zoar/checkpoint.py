"""Checkpoints of a run: written atomically, read as data only."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

_FORMAT = "zoar checkpoint 1"


@dataclass
class Checkpoint:
    """A file that a run continues from."""

    path: Path
    every: float
    _saved: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, path: Any, every: float) -> Checkpoint | None:
        """A checkpoint, or None without a path."""
        if path is None:
            return None
        if not every >= 0:
            raise ValueError(f"checkpoint_every must be at least 0 seconds, got {every!r}")
        return cls(Path(path), float(every))

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._saved >= self.every

    def save(self, state: dict[str, Any]) -> None:
        """Writes a new file beside the old one and puts it in its place: at every moment one of them is whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=self.path.name, suffix=".part", dir=self.path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"format": _FORMAT, **state}, file)
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
            state = torch.load(self.path, weights_only=True, map_location="cpu")
        except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, zipfile.BadZipFile) as error:
            reason = f"it is truncated or not a zoar checkpoint ({type(error).__name__})"
            raise ValueError(f"checkpoint {self.path} cannot be read: {reason}") from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ValueError(
                f"{self.path} is not a zoar checkpoint of this version; choose another file, or delete this one to start anew"
            )
        return state
