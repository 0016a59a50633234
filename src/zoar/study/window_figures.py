"""The figures of the study `theory`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoar.study import plots
from zoar.study.curves import Curve

if TYPE_CHECKING:
    from zoar.study.window_theory import Theory

#: The theorem's b*, the paper's mean of the window, and each batch's own mean.
BASELINES = ("optimal", "window", "batch")

_RATES = (plots.SKY, plots.BLUE, plots.ORANGE, plots.VERMILLION, plots.PURPLE)
_DASHES = (3.0, 2.0)
STYLES = {
    "error": plots.Style(plots.INK, width=2.0, marker="o", order=3),
    "bias²": plots.Style(plots.VERMILLION, width=1.2),
    "bias², measured": plots.Style(plots.VERMILLION, width=0.0, marker="o", named=False, order=3),
    "bound": plots.Style(plots.INK, dashes=_DASHES),
    "by stride": plots.Style(plots.GREY, dashes=_DASHES),
    "as printed": plots.Style(plots.PURPLE, dashes=_DASHES),
    "live error": plots.Style(plots.ORANGE, marker="s", width=1.2),
    "diagnosed": plots.Style(plots.GREEN, marker="^", width=1.2, dashes=(1, 2)),
    "optimal": plots.Style(plots.ORANGE, width=4.0),
    "window": plots.Style(plots.INK, marker="o", width=1.2),
    "batch": plots.Style(plots.GREEN, marker="o", width=2.0),
    "measured": plots.Style(plots.BLUE, marker="o", width=1.2, order=3),
    "proved": plots.Style(plots.ORANGE, width=4.0),
}


class Results:
    """The curves by function, drift, K and quantity."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._curves = {curve.key[1:4]: curve for curve in curves}
        self.functions = list(dict.fromkeys(curve.key.function for curve in curves))

    def line(self, function: str, drift: str, queries: int, what: str) -> tuple[np.ndarray, np.ndarray] | None:
        """N and the quantity; None while it is not there."""
        curve = self._curves.get((function, drift, f"K={queries} {what}"))
        if curve is None:
            return None
        return np.array([point.iteration for point in curve.points]), np.array([point.value for point in curve.points])

    def values(self, function: str, drift: str, queries: int, what: str) -> np.ndarray:
        line = self.line(function, drift, queries, what)
        return np.array([]) if line is None else line[1]

    def together(self, function: str, drift: str, queries: int, names: Iterable[str]) -> list[np.ndarray] | None:
        """Several quantities; None unless all are there."""
        found = [self.values(function, drift, queries, what) for what in names]
        return found if all(map(len, found)) else None


def drift(lr: float) -> str:
    return f"lr={lr:g}"


def rate_styles(study: Theory) -> dict[str, plots.Style]:
    styles = {}
    for colour, lr in zip(_RATES, study.rates, strict=False):
        styles[drift(lr)] = plots.Style(colour, marker="o", order=3)
        styles[f"{drift(lr)} bound"] = plots.Style(colour, width=1.2, dashes=_DASHES, named=False)
    return styles


def window_styles(study: Theory) -> dict[str, plots.Style]:
    styles = {}
    for colour, window in zip((plots.SKY, plots.BLUE, plots.VERMILLION), _shown_windows(study), strict=False):
        styles[f"N={window}"] = plots.Style(colour, marker="o", order=3)
        styles[f"N={window} V"] = plots.Style(colour, width=1.2, dashes=_DASHES, named=False)
    return styles


def _shown_windows(study: Theory) -> list[int]:
    return list(dict.fromkeys((study.windows[0], study.windows[len(study.windows) // 2], study.windows[-1])))


def _panel(
    title: str,
    lines: Mapping[str, tuple[np.ndarray, np.ndarray] | None],
    x_label: str = "N",
    log_x: bool = True,
    y_label: str = "error",
) -> list[plots.Panel]:
    """The lines that are there; on a log axis only what is above 0."""
    made = []
    for label, line in lines.items():
        if line is not None and (line[1] > 0).any():
            shown = line[1] > 0
            made.append(plots.Line(label, line[0][shown], line[1][shown]))
    return [plots.Panel(title, made, x_label, y_label, log_x=log_x)] if made else []


def panels_by_rate(study: Theory, results: Results) -> list[plots.Panel]:
    panels = []
    for function in results.functions:
        lines = {}
        for lr in study.rates:
            for what, label in (("optimal error", ""), ("bound", " bound")):
                lines[drift(lr) + label] = results.line(function, drift(lr), study.live_queries, what)
        panels += _panel(function.capitalize(), lines)
    own = {drift(lr): results.line("quadratic", drift(lr), study.live_queries, "batch error") for lr in study.rates}
    return panels + _panel("Quadratic, each batch's own mean", own)


def parts(study: Theory, results: Results) -> list[plots.Panel]:
    names = {
        "error": "optimal error", "bias²": "exact bias", "bias², measured": "optimal bias",
        "bound": "bound", "by stride": "bound by stride",
        "as printed": "printed by stride", "live error": "live error", "diagnosed": "diagnosed error",
    }  # fmt: skip
    panels = []
    for lr in study.rates:
        lines = {}
        for label, what in names.items():
            if what == "diagnosed error":
                lines[label] = _diagnosed_error(study, results, "quadratic", lr)
            else:
                lines[label] = results.line("quadratic", drift(lr), study.live_queries, what)
        bias = lines["bias², measured"]
        error = results.values("quadratic", drift(lr), study.live_queries, "optimal bias se")
        if bias is not None:  # what is not told from 0 is noise
            lines["bias², measured"] = bias[0], np.where(bias[1] > 2 * error, bias[1], 0.0)
        panels += _panel(f"Quadratic, lr = {lr:g}", lines)
    return panels


def _diagnosed_error(study: Theory, results: Results, function: str, lr: float) -> tuple[np.ndarray, np.ndarray] | None:
    parts = [
        results.line(function, drift(lr), study.live_queries, f"diagnosed {part}") for part in ("variance", "drift")
    ]
    if parts[0] is None or parts[1] is None:
        return None
    return parts[0][0], parts[0][1] + parts[1][1]


def baselines(study: Theory, results: Results) -> list[plots.Panel]:
    panels = []
    for lr in study.rates:
        lines = {b: results.line("quadratic", drift(lr), study.live_queries, f"{b} error") for b in BASELINES}
        panels += _panel(f"Quadratic, lr = {lr:g}", lines)
    return panels


def against_queries(study: Theory, results: Results) -> list[plots.Panel]:
    panels, lr = [], study.rates[0]
    for function in results.functions:
        lines: dict[str, tuple[np.ndarray, np.ndarray] | None] = {}
        for window in _shown_windows(study):
            place, found, noise = study.windows.index(window), [], []
            for queries in study.queries:
                variance = results.values(function, drift(lr), queries, "optimal variance")
                bound = results.values(function, drift(lr), queries, "bound")
                if len(variance) and len(bound):
                    found.append((queries, variance[place]))
                    noise.append((queries, bound[0] / window))  # at N = 1 the bound is V
            if found:
                lines[f"N={window}"] = tuple(np.array(found).T)
                lines[f"N={window} V"] = tuple(np.array(noise).T)
        panels += _panel(function.capitalize(), lines, "K", y_label="variance")
    return panels


def proofs(study: Theory, results: Results) -> list[plots.Panel]:
    straight = {
        label: results.line("slope", "straight line", study.live_queries, what)
        for label, what in (
            ("error", "optimal error"), ("by stride", "bound by stride"), ("as printed", "printed by stride")
        )
    }  # fmt: skip
    panels = _panel(f"Slope, steps of {study.stride:g} in a line", straight)
    lines = {
        label: results.line("quadratic", "baseline", study.live_queries, what)
        for label, what in (("proved", "parabola"), ("measured", "error at b"))
    }
    return panels + _panel("Quadratic, N = 4", lines, "(b − b*)/σ_μ", log_x=False)
