"""What a study is: cells to run, and a report on their curves.

    cells()           every run to make, in the order in which they are wanted
    jobs(cells, ..)   which of them run together
    run(job, ..)      curves, one a cell
    report(curves)    tables, figures and what to say of them

`zoar.study.runner` does the rest for all: processes, progress, files, resuming.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from zoar.study.batched import run_together
from zoar.study.curves import Cell, Curve, Job, Report, by_setting, run_cell
from zoar.study.grid import Grid
from zoar.study.page import Section
from zoar.study.plots import Panel, Style


@dataclass(frozen=True)
class Sheet:
    """A figure of several panels; `name` is that of its PNG and SVG files."""

    name: str
    title: str
    panels: Sequence[Panel]
    styles: Mapping[str, Style]
    caption: str


@dataclass(frozen=True)
class Findings:
    """What a study has to say. The first grid is summary.csv and what the terminal shows."""

    title: str
    lead: Sequence[str]
    sheets: Sequence[Sheet]
    grids: Mapping[str, Grid]
    reading: Sequence[str] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


@dataclass(frozen=True)
class Study(ABC):
    """A frozen dataclass whose fields are everything that its numbers depend on."""

    name: ClassVar[str]
    #: One line for `zoar study list`: what it shows.
    line: ClassVar[str]
    #: Of the paper, or "ours".
    source: ClassVar[str]
    #: How long it takes, in words.
    takes: ClassVar[str]

    @abstractmethod
    def cells(self) -> list[Cell]:
        """Every run."""

    @abstractmethod
    def report(self, curves: Sequence[Curve], config: Mapping[str, Any]) -> Findings:
        """Tables, figures, words; also of a part of the curves."""

    def quick(self) -> Self:
        """The two-minute version."""
        return self

    def settings(self) -> dict[str, Any]:
        """The fields, and the options of every method, as plain data."""
        methods: dict[str, dict[str, Any]] = {}
        for cell in self.cells():
            methods.setdefault(cell.key.method, {name: plain(value) for name, value in cell.options.items()})
        return {**{name: plain(value) for name, value in asdict(self).items()}, "methods": methods}

    def jobs(self, cells: Sequence[Cell], device: str | None) -> list[Job]:
        """Cells run one by one on the CPU, and all seeds of a setting together on a device."""
        return by_setting(cells) if device else [Job((cell,)) for cell in cells]

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]:
        """Makes the curves of a job."""
        return run_together(job, device, report) if device else [run_cell(cell, report) for cell in job.cells]

    def finished(self, cell: Cell, curve: Curve) -> bool:
        """Whether a curve that was read back is that cell's whole run."""
        return curve.points[-1].iteration == cell.iterations

    def prepare(self, say: Any) -> None:
        """What has to be there before the first job: data, packages. Raises `Refused` with what to do."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The study that wrote those settings."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: _unlisted(settings[name]) for name in names if name in settings})

    def having(self, **changes: Any) -> Self:
        """The same with other fields."""
        return replace(self, **changes)


def _unlisted(value: Any) -> Any:
    """JSON has lists where the fields have tuples."""
    return tuple(_unlisted(item) for item in value) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Settings as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, dict)) or value is None else repr(value)
