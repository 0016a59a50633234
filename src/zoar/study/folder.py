"""The folder of a study: its configuration, its curves as CSV, and which of them a run may keep."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from zoar.study.curves import Curve, Key, Point
from zoar.study.grid import csv_text

CONFIG, CURVES, RUNS = "config.json", "curves.csv", "runs.csv"
_CURVE_COLUMNS = (*Key._fields, *Point._fields)
_Parsed = TypeVar("_Parsed")
_RUN_COLUMNS = (*Key._fields, "ms_per_iteration")


class Refused(ValueError):
    """The folder cannot be used; the text says why and what to do."""


class Folder:
    """Files under `path`, each written whole or not at all."""

    def __init__(self, path: Path, study: str) -> None:
        self.path, self._study = path, study
        #: How many runs the folder keeps, as far as this object knows.
        self.saved = 0

    @classmethod
    def reading(cls, path: Path) -> Folder:
        """A folder that a study has written, whichever it is."""
        if not (path / CONFIG).is_file():
            raise Refused(f"{path} holds no {CONFIG}: it is no folder of a study")
        try:
            study = json.loads((path / CONFIG).read_text(encoding="utf-8"))["study"]
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"{path / CONFIG} was not written by zoar ({type(error).__name__})") from error
        return cls(path, study)

    def config(self) -> dict[str, Any]:
        """What config.json says."""
        config = self._config()
        assert config is not None  # `reading` saw it
        return config

    def curves(self) -> dict[Key, Curve]:
        """The runs that are here."""
        return self._curves()

    def open(self, config: dict[str, Any], *, anew: bool = False) -> dict[Key, Curve]:
        """The curves already here; refuses a folder that holds anything but results of this very configuration.

        `anew` replaces what an earlier run of the same study left, whatever its configuration.
        """
        if self.path.exists() and not self.path.is_dir():
            raise Refused(f"{self.path} is a file; --out takes a folder")
        before = self._config()
        if before is not None and not anew:
            different = _differences(before, config)
            if different:
                raise Refused(
                    f"{self.path} holds another run: {'; '.join(different)}. Choose another --out, or --force to replace it"
                )
            curves = self._curves()
            self.saved = len(curves)
            return curves
        self.path.mkdir(parents=True, exist_ok=True)
        # Before the new configuration: at no moment do they lie beside one that is not theirs.
        for name in (CURVES, RUNS):
            (self.path / name).unlink(missing_ok=True)
        self.write(CONFIG, json.dumps({"study": self._study, **config}, indent=2, ensure_ascii=False) + "\n")
        return {}

    def save(self, curves: Iterable[Curve]) -> None:
        """Writes both tables. A run is kept by the next one once it is in both."""
        curves = list(curves)
        self.write(
            CURVES, csv_text(_CURVE_COLUMNS, ((*curve.key, *point) for curve in curves for point in curve.points))
        )
        self.write(RUNS, csv_text(_RUN_COLUMNS, ((*curve.key, curve.ms_per_iteration) for curve in curves)))
        self.saved = len(curves)

    def write(self, name: str, content: str | bytes) -> Path:
        """Writes a new file beside the old one and puts it in its place."""
        part = self.path / f".{name}.{os.getpid()}.part"
        try:
            part.write_bytes(content.encode() if isinstance(content, str) else content)
            part.replace(self.path / name)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return self.path / name

    def _config(self) -> dict[str, Any] | None:
        """What config.json says; None in a folder without results."""
        try:
            text = (self.path / CONFIG).read_text(encoding="utf-8")
        except FileNotFoundError:
            if found := [name for name in (CURVES, RUNS, "report.html") if (self.path / name).exists()]:
                raise Refused(
                    f"{self.path} holds {found[0]} but no {CONFIG}, so zoar may not have written it; "
                    "choose another --out"
                ) from None
            return None
        try:
            config = json.loads(text)
        except json.JSONDecodeError as error:
            raise Refused(
                f"{self.path / CONFIG} is not JSON ({error}); choose another --out, or delete the folder"
            ) from error
        if not isinstance(config, dict) or config.get("study") != self._study:
            raise Refused(f"{self.path / CONFIG} is not of the study {self._study!r}; choose another --out")
        return config

    def _curves(self) -> dict[Key, Curve]:
        times = self._read(RUNS, _RUN_COLUMNS, lambda row: (_key(row), float(row[-1])))
        points: dict[Key, list[Point]] = {}
        for key, point in self._read(CURVES, _CURVE_COLUMNS, lambda row: (_key(row), _point(row))):
            points.setdefault(key, []).append(point)
        for key, made in points.items():
            if any(one.iteration > two.iteration or one.queries > two.queries for one, two in pairwise(made)):
                raise Refused(
                    f"{self.path / CURVES} is not a table that zoar wrote (the points of {key}, seed {key.seed}, are out of "
                    "order); choose another --out, or --force to replace it"
                )
        return {key: Curve(key, tuple(points[key]), time) for key, time in times if key in points}

    def _read(self, name: str, columns: Sequence[str], parse: Callable[[list[str]], _Parsed]) -> list[_Parsed]:
        path = self.path / name
        if not path.exists():
            return []
        try:
            text = path.read_text(encoding="utf-8")
            header, *rows = csv.reader(io.StringIO(text))
            if not text.endswith("\n"):
                raise ValueError("its last line is cut short")
            if header != list(columns):
                raise ValueError(f"its columns are {', '.join(header)}")
            return [parse(row) for row in rows]
        except (ValueError, csv.Error) as error:
            raise Refused(
                f"{path} is not a table that zoar wrote ({error}); choose another --out, or --force to replace it"
            ) from error


def _key(row: Sequence[str]) -> Key:
    study, function, update, method, seed = row[: len(Key._fields)]
    return Key(study, function, update, method, int(seed))


def _point(row: Sequence[str]) -> Point:
    iteration, queries, value = row[len(Key._fields) :]
    return Point(int(iteration), int(queries), float(value))


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """How two configurations differ, in words. What only changes how they were started does not count."""
    before, now = _flat(there), _flat(json.loads(json.dumps(here)))  # as JSON has it: tuples are lists there
    names = [name for name in {**now, **before} if name.partition(".")[0] in ("settings", "versions", "hardware")]
    return [
        f"{name.partition('.')[2]} is {before.get(name, 'absent')} there and {now.get(name, 'absent')} here"
        for name in names
        if before.get(name, ...) != now.get(name, ...)
    ]


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat
