"""Curves -> figures: log panels whose lines carry their names at their ends. matplotlib's object API only, no pyplot."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoar.study.curves import Curve

if TYPE_CHECKING:  # `import zoar` and `zoar --help` do without matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart, and the inks around it. The page gives each a
# second value for dark screens, by these names.
BLUE, VERMILLION, ORANGE, SKY = "#0072b2", "#d55e00", "#e69f00", "#56b4e9"
GREEN, PURPLE, GREY = "#009e73", "#cc79a7", "#5f6368"
INK, FAINT, RULE = "#24292f", "#6e7681", "#e4e7eb"
NAMES = {
    BLUE: "blue", VERMILLION: "vermillion", ORANGE: "orange", SKY: "sky", GREEN: "green", PURPLE: "purple", GREY: "grey",
    INK: "ink", FAINT: "faint", RULE: "rule",
}  # fmt: skip

_LABEL_SIZE = 8.5  # points
_LABEL_GAP = 12.0  # points from one label to the next
_SHARES = (-0.02, 1.03)  # a linear axis, with room for a line along 0 or 1


@dataclass(frozen=True)
class Style:
    """How a method's line looks, in every panel."""

    colour: str
    width: float = 1.6
    dashes: tuple[float, ...] | None = None
    order: float = 2.0
    marker: str = ""  # what stands at each point, as matplotlib calls it
    named: bool = True  # whether the line's name is written at its end


@dataclass(frozen=True)
class Line:
    """A line with its name; `low` and `high` bound a band around it."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class Panel:
    """A plot with a logarithmic y axis, or with a linear one from 0 to 100% for shares."""

    title: str
    lines: Sequence[Line]
    x_label: str = "iterations"
    y_label: str = "f(θ)"
    log: bool = True
    log_x: bool = False  # then the lines' own points are the ticks


def panels(curves: Iterable[Curve]) -> list[Panel]:
    """A panel for each function, a line for each method: the mean over seeds, in a band from the least to the greatest."""
    groups: dict[str, dict[str, list[Curve]]] = {}
    for curve in curves:
        groups.setdefault(curve.key.function, {}).setdefault(curve.key.method, []).append(curve)
    return [
        Panel(function.capitalize(), [_line(method, same) for method, same in methods.items()])
        for function, methods in groups.items()
    ]


def _line(method: str, curves: Sequence[Curve]) -> Line:
    x = np.array([point.iteration for point in curves[0].points])
    values = np.array([[point.value for point in curve.points] for curve in curves])
    if len(curves) == 1:
        return Line(method, x, values[0])
    return Line(method, x, values.mean(0), values.min(0), values.max(0))


_LETTER = 0.0142  # of a panel's width


def figure(panels: Sequence[Panel], styles: Mapping[str, Style], columns: int = 2) -> Figure:
    """All panels on one sheet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(1, min(columns, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    sheet = Figure(figsize=(5.3 * columns, 3.4 * rows), facecolor="white")
    FigureCanvasAgg(sheet)
    # By hand: the room for the labels right of each panel is the same everywhere, so the panels line up.
    longest = max((len(line.label) for panel in panels for line in panel.lines), default=0)
    width = min(0.645, (0.885 - _LETTER * longest) / 1.09)
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        axes = sheet.add_axes((
            (column + 0.105) / columns, 1 - (row + 0.855) / rows, width / columns, 0.735 / rows,
        ))  # fmt: skip
        _draw(axes, panel, styles)
    return sheet


def png(sheet: Figure) -> bytes:
    """The figure as pixels."""
    file = io.BytesIO()
    sheet.savefig(file, format="png", dpi=160, metadata={"Software": None})
    return file.getvalue()


def svg(sheet: Figure, *, text: bool = False) -> str:
    """The figure as SVG, the same for the same data. With `text` its letters are text, in whatever font the reader has."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none" if text else "path", "svg.hashsalt": "zoar"}):
        sheet.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, transparent=text)
    return file.getvalue()


def _draw(axes: Axes, panel: Panel, styles: Mapping[str, Style]) -> None:
    """One panel: few rules, no box, names at the ends of the lines."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    low, high = _limits(panel.lines) if panel.log else _SHARES
    axes.set_yscale("log" if panel.log else "linear")
    axes.set_ylim(low, high)
    places = sorted({float(x) for line in panel.lines for x in line.x}) or [1.0]
    if panel.log_x:
        axes.set_xscale("log")
        axes.set_xlim(places[0] / 1.04, places[-1])
    else:
        axes.set_xlim(min(places[0], 0.0), max(places[-1], 1.0))
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high) if panel.log else [0, 0.25, 0.5, 0.75, 1]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value) if panel.log else f"{value:.0%}"))
    axes.xaxis.set_major_locator(FixedLocator(places) if panel.log_x else MaxNLocator(4, integer=True))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(axis="both", colors=FAINT, labelcolor=FAINT, labelsize=_LABEL_SIZE, length=0, pad=5)
    axes.tick_params(axis="x", length=3)
    axes.set_title(panel.title, loc="left", color=INK, fontsize=11, fontweight="bold", pad=10)
    axes.set_xlabel(panel.x_label, color=FAINT, fontsize=_LABEL_SIZE, loc="right", labelpad=3)
    # Above its ticks and beside the title, where it needs no turning of the head.
    axes.annotate(
        panel.y_label, (0, 1), (-5, 10), xycoords="axes fraction", textcoords="offset points", ha="right", color=FAINT,
        fontsize=_LABEL_SIZE, annotation_clip=False,
    )  # fmt: skip
    for line in panel.lines:
        _draw_line(axes, line, styles.get(line.label, Style(GREY)))
    _name_lines(axes, panel.lines, styles)


def _draw_line(axes: Axes, line: Line, style: Style) -> None:
    options: dict[str, Any] = {
        "color": style.colour,
        "linewidth": style.width,
        "zorder": style.order,
        "solid_capstyle": "round",
    }
    if style.dashes is not None:
        options["dashes"] = style.dashes
    if style.marker:
        options |= {
            "marker": style.marker,
            "markersize": max(4.0, 2.5 + style.width),
            "markeredgewidth": 0,
            "clip_on": False,
        }
    axes.plot(line.x, line.y, **options)
    if line.low is not None and line.high is not None:
        axes.fill_between(
            line.x, line.low, line.high, color=style.colour, alpha=0.15, linewidth=0, zorder=style.order - 0.5
        )


def _name_lines(axes: Axes, lines: Sequence[Line], styles: Mapping[str, Style]) -> None:
    """Writes each name right of its line's end, moved up or down until none overlaps, with a stroke from end to name."""
    lines = [line for line in lines if styles.get(line.label, Style(GREY)).named]
    low, high = axes.get_ylim()
    scale: Callable[[float], float] = math.log if axes.get_yscale() == "log" else float
    ends = [(scale(max(float(line.y[-1]), low)) - scale(low)) / (scale(high) - scale(low)) for line in lines]
    assert axes.figure is not None
    height = 72 * axes.figure.get_figheight() * axes.get_position().height  # type: ignore[union-attr]  # no subfigures here
    places = spread(ends, _LABEL_GAP / height, 0.0, 1.0)
    for line, end, place in zip(lines, ends, places, strict=True):
        style = styles.get(line.label, Style(GREY))
        stroke: dict[str, Any] = {} if style.dashes is None else {"dashes": style.dashes}
        axes.plot(
            (1.0, 1.035, 1.075), (end, place, place), transform=axes.transAxes, clip_on=False, color=style.colour,
            linewidth=style.width, solid_capstyle="round", solid_joinstyle="round", zorder=style.order, **stroke,
        )  # fmt: skip
        axes.text(
            1.09, place, line.label, transform=axes.transAxes, color=INK, fontsize=_LABEL_SIZE, va="center_baseline"
        )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The nearest places (in least squares) in the same order, at least `gap` apart and between `low` and `high` if they fit.

    >>> [round(place, 2) for place in spread([0.5, 0.5, 0.9], 0.1, 0.0, 1.0)]
    [0.45, 0.55, 0.9]
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    # place - rank * gap must not fall: neighbours that do are pooled to their mean. A block is their sum and number.
    blocks: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        total, count = places[index] - rank * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before, size = blocks.pop()
            total, count = total + before, count + size
        blocks.append((total, count))
    spaced = [0.0] * len(places)
    rank = 0
    for total, count in blocks:
        for _ in range(count):
            ceiling = high - (len(places) - 1) * gap  # of place - rank * gap
            spaced[order[rank]] = max(low, min(total / count, ceiling)) + rank * gap
            rank += 1
    return spaced


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two positive ones: powers of ten, or 1-2-5 steps, or, within less than that, even steps.

    >>> log_ticks(0.5, 20_000), log_ticks(900, 7_000), log_ticks(3.4, 5.4)
    ([1.0, 10.0, 100.0, 1000.0, 10000.0], [1000.0, 2000.0, 5000.0], [3.5, 4.0, 4.5, 5.0])
    """
    decades = [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for steps in ((1,), (1, 2, 5)):
        ticks = [step * decade for decade in decades for step in steps if low <= step * decade <= high]
        if len(ticks) >= 3:
            return ticks[:: math.ceil(len(ticks) / most)]
    spacing = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(spacing))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= spacing)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def tick_text(value: float) -> str:
    """A tick in a few letters.

    >>> [tick_text(x) for x in (2_000_000, 20_000, 4.5, 0.001, 1e-7)]
    ['2M', '20k', '4.5', '0.001', '1e-07']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:,.0f}" if value >= 100 and value == int(value) else f"{value:.4g}"


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """The range of all values, with a margin; what a log axis cannot show is left out."""
    arrays = [array for line in lines for array in (line.y, line.low, line.high) if array is not None]
    values = np.concatenate(arrays) if arrays else np.ones(1)
    shown = values[np.isfinite(values) & (values > 0)]
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (1.0, 1.0)
    margin = max((high / low) ** 0.06, 1.02)
    return low / margin, high * margin
