"""The folder of a study: its configuration, its curves and rows as CSV, and which of them a run may keep."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from zoar.study.curves import Cell, Curve, Key, Point
from zoar.study.summary import Row

CONFIG, CURVES, SUMMARY = "config.json", "curves.csv", "summary.csv"
_CURVE_COLUMNS = (*Key._fields, *Point._fields)
_Parsed = TypeVar("_Parsed")
_ROW_COLUMNS = (*Key._fields, "queries", "final_value", "iterations_to_reference", "speed_up", "ms_per_iteration")


class Refused(ValueError):
    """The folder cannot be used; the text says why and what to do."""


class Folder:
    """Files under `path`, each written whole or not at all."""

    def __init__(self, path: Path, study: str) -> None:
        self.path, self._study = path, study

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
            return self._curves()
        self.path.mkdir(parents=True, exist_ok=True)
        for name in (
            CURVES,
            SUMMARY,
        ):  # before the new configuration: at no moment do they lie beside one that is not theirs
            (self.path / name).unlink(missing_ok=True)
        self.write(CONFIG, json.dumps({"study": self._study, **config}, indent=2, ensure_ascii=False) + "\n")
        return {}

    def save(self, curves: Iterable[Curve], rows: Iterable[Row]) -> None:
        """Writes both tables. A cell is kept by the next run once it is in both."""
        self.write(CURVES, _csv(_CURVE_COLUMNS, ((*curve.key, *point) for curve in curves for point in curve.points)))
        self.write(
            SUMMARY,
            _csv(
                _ROW_COLUMNS,
                (
                    (*row.key, row.queries, row.final, row.iterations, row.speed_up, row.ms_per_iteration)
                    for row in rows
                ),
            ),
        )

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
            if found := [name for name in (CURVES, SUMMARY, "index.html") if (self.path / name).exists()]:
                raise Refused(
                    f"{self.path} holds {found[0]} but no {CONFIG}, so `zoar {self._study}` may not have written it; "
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
            raise Refused(f"{self.path / CONFIG} was not written by `zoar {self._study}`; choose another --out")
        return config

    def _curves(self) -> dict[Key, Curve]:
        times = self._read(SUMMARY, _ROW_COLUMNS, lambda row: (_key(row), float(row[-1])))
        points: dict[Key, list[Point]] = {}
        for key, point in self._read(CURVES, _CURVE_COLUMNS, lambda row: (_key(row), _point(row))):
            points.setdefault(key, []).append(point)
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
                f"{path} is not a table that `zoar {self._study}` wrote ({error}); choose another --out, or --force to replace it"
            ) from error


def finished(cells: Iterable[Cell], curves: dict[Key, Curve]) -> dict[Key, Curve]:
    """Those of the curves that are a whole run of one of the cells."""
    last = {cell.key: cell.iterations for cell in cells}
    return {key: curve for key, curve in curves.items() if curve.points[-1].iteration == last.get(key)}


def _key(row: Sequence[str]) -> Key:
    study, function, update, method, seed = row[: len(Key._fields)]
    return Key(study, function, update, method, int(seed))


def _point(row: Sequence[str]) -> Point:
    iteration, queries, value = row[len(Key._fields) :]
    return Point(int(iteration), int(queries), float(value))


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


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
