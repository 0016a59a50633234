"""What the study `equivalence` shows: two programs, one curve; how far rounding drives them apart; gamma in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zoar.smoothing import Sphere
from zoar.study import plots
from zoar.study.curves import Curve, mean
from zoar.study.grid import Column, Grid, number
from zoar.study.study import Findings, Sheet
from zoar.theory import log_gamma

if TYPE_CHECKING:
    from zoar.study.equivalence import Equivalence

#: The paper's baselines by our names: f(theta), red in its figure, and the mean of the last N batches, green.
BASELINES = ("center", "window")
_LABELS = {"center": "f(θ)", "window": "mean"}

#: The project's promise: after so many steps the two curves agree to that.
PROMISED_STEPS, PROMISED_GAP = 1_000, 1e-5
SAME = 0.01  # what a plot does not show

_ON_TOP = plots.Style(plots.INK, width=1.2, dashes=(4, 3), order=4)
STYLES = {
    "ZOO f(θ)": plots.Style(plots.ORANGE, width=4.0),
    "REINFORCE f(θ)": _ON_TOP,
    "ZOO mean": plots.Style(plots.SKY, width=4.0),
    "REINFORCE mean": replace(_ON_TOP, dashes=(1.5, 2)),
    "f(θ)": plots.Style(plots.VERMILLION),
    "mean": plots.Style(plots.BLUE),
    "two seeds": plots.Style(plots.GREY, dashes=(3, 2)),
    "sphere": plots.Style(plots.ORANGE, width=4.0),
    "e_i": plots.Style(plots.SKY, width=4.0),
    "±e_i": plots.Style(plots.GREEN, width=4.0),
    "REINFORCE": replace(_ON_TOP, named=False),
}


class Gap(NamedTuple):
    """How far two curves from the same seeds are apart, |f_R - f_Z|/|f_Z|: the largest over seeds."""

    promised: float | None
    largest: float
    at: int


def relative(zoo: Sequence[Curve], reinforce: Sequence[Curve]) -> np.ndarray:
    """The gap of every seed that both have, at every recorded iteration; (seeds, points)."""
    partner = {curve.key.seed: curve for curve in zoo}
    pairs = [(partner[curve.key.seed], curve) for curve in reinforce if curve.key.seed in partner]
    if not pairs:
        return np.zeros((0, 0))
    values = np.array([[[point.value for point in curve.points] for curve in pair] for pair in pairs])
    base = np.abs(values[:, 0])
    # Where f is 0 itself, which a coordinate law may reach, the gap counts against the smallest number.
    gaps: np.ndarray = np.abs(values[:, 1] - values[:, 0]) / np.maximum(base, np.finfo(float).tiny)
    return gaps


def gap(zoo: Sequence[Curve], reinforce: Sequence[Curve], steps: int = PROMISED_STEPS) -> Gap | None:
    """The gap up to `steps`, if the run got there, and over the whole run; None where there is no pair."""
    apart = relative(zoo, reinforce)
    if not apart.size:
        return None
    iterations = np.array([point.iteration for point in zoo[0].points])
    by_then = apart[:, iterations <= steps]
    worst = apart.max(0)
    return Gap(
        float(by_then.max()) if iterations[-1] >= steps else None, float(worst.max()), int(iterations[worst.argmax()])
    )


def findings(study: Equivalence, curves: Sequence[Curve]) -> Findings:
    """Tables, figures, words."""
    grid, lead = _first_grid(study, curves)
    second, more = _second_grid(study, curves)
    sheets = []
    descents, apart = _descents(study, curves), _gaps(study, curves)
    if descents:
        runs = "One run each" if study.seeds == 1 else f"Mean of {study.seeds} runs"
        sheets = [
            Sheet(
                "equivalence", "Two programs, one curve", descents, STYLES,
                f"f(θ) against iterations, on a log scale. {runs}. Wide and pale: ZOO, with the baseline f(θ) or the mean of "
                f"the last N = {study.window} batches. Thin and broken, on top: REINFORCE with the same baseline.",
            ),
            Sheet(
                "equivalence_gap", "How far apart", apart, STYLES,
                "|f_R − f_Z| / |f_Z|, the largest over seeds, against iterations. The two programs round differently, once, in "
                "float32 (6e-8); what the curves show is how far the descent carries that. `two seeds` is how far runs of one "
                "program from different seeds are apart: the standard deviation over the mean.",
            ),
        ]  # fmt: skip
    third = _directions(study, curves)
    if third:
        sheets.append(
            Sheet(
                "equivalence_gamma", "Directions that are not Gaussian", third, STYLES,
                f"SGD in {study.small_dim} dimensions, float64, one run each. Wide: vanilla ZOO at the rate η, in the paper's "
                "scale,  on the sphere, the basis vectors e_i, and those with random signs. Thin and broken, on top: "
                "importance-weighted REINFORCE at η/γ.",
            )
        )  # fmt: skip
    grids = {"In numbers": grid, "Theorem 3 in numbers": second}
    return Findings(
        "ZOO is REINFORCE with a baseline: the same curve from two programs",
        [
            "Theorem 2 says that Gaussian-smoothed ZOO is single-step REINFORCE with f(θ) as its baseline. Here a REINFORCE "
            f"that sees nothing but actions and rewards runs beside ZOO on test functions of {study.dim:,} dimensions, for "
            f"{study.iterations:,} steps of K = {study.queries} queries, from the same seeds.",
            *lead,
            *more,
        ],
        sheets,
        {title: grid for title, grid in grids.items() if grid.rows},
        _reading(study),
    )


def _of(curves: Sequence[Curve], function: str, update: str, method: str) -> list[Curve]:
    return [curve for curve in curves if curve.key[1:4] == (function, update, method)]


def _functions(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.key.function for curve in curves))


# -- Theorem 2 --------------------------------------------------------------------------------------------------------------


def _first_grid(study: Equivalence, curves: Sequence[Curve]) -> tuple[Grid, list[str]]:
    columns = [
        Column("function", "function"),
        Column("baseline", "baseline"),
        Column("update"),
        Column("seeds"),
        Column("final_zoo", "ZOO ends", number),
        Column("final_reinforce", "REINFORCE ends", number),
        Column("gap_promised", f"gap after {PROMISED_STEPS:,}", _tiny),
        Column("gap_largest", "largest", _tiny),
        Column("gap_at"),
        Column("two_seeds"),
        Column("method_gap_promised"),
        Column("method_gap_largest", "gap of `reinforce`", _tiny),
    ]
    rows: list[list[object]] = []
    gaps, methods = [], []
    for function in _functions(curves):
        for baseline in BASELINES:
            zoo, actions, method = (
                _of(curves, function, study.update, f"{name} {baseline}") for name in ("ZOO", "REINFORCE", "method reinforce")
            )  # fmt: skip
            apart, own = gap(zoo, actions), gap(zoo, method)
            if apart is None:
                continue
            gaps.append(apart)
            methods += [own] if own else []
            spread = _spread(zoo)
            rows.append([
                function, baseline, study.update, len(actions), mean([c.final for c in zoo]), mean([c.final for c in actions]),
                *apart, None if spread is None else float(spread.max()), *((own.promised, own.largest) if own else (None, None)),
            ])  # fmt: skip
    caption = (
        "Gaps are |f_R − f_Z| / |f_Z|, the largest along the curve and over seeds. REINFORCE sees actions; the last "
        'column is zoar’s own `method="reinforce"`, at its largest.'
    )
    lead = []
    promised = [one.promised for one in gaps if one.promised is not None]
    if promised:
        same = (
            "They trace the same curve."
            if max(one.largest for one in gaps) < SAME
            else "They set out on the same curve."
        )
        held = max(promised) <= PROMISED_GAP and all((one.promised or 0.0) <= PROMISED_GAP for one in methods)
        lead.append(
            f"{same} After {PROMISED_STEPS:,} steps the relative gap is at most {_tiny(max(promised))} on every function with "
            "either "
            f"baseline{'' if held else f': more than the {PROMISED_GAP:g} that we promise'}.{_by_the_end(gaps, study.iterations)}"
        )
    return Grid(columns, rows, caption), lead


def _by_the_end(gaps: Sequence[Gap], iterations: int) -> str:
    largest = max(gaps, key=lambda one: one.largest)
    return (
        f" Over all {iterations:,} it reaches {_tiny(largest.largest)}, at iteration {largest.at:,}: rounding in float32, "
        "carried on by the descent, and nothing else tells the two apart."
    )


def _descents(study: Equivalence, curves: Sequence[Curve]) -> list[plots.Panel]:
    """ZOO with its range over seeds; REINFORCE on top of it, as a line alone."""
    names = {f"{name} {b}": f"{name} {label}" for name in ("ZOO", "REINFORCE") for b, label in _LABELS.items()}
    shown = [curve for curve in curves if curve.key.update == study.update and curve.key.method in names]
    return [
        replace(panel, lines=[
            plots.Line(names[line.label], line.x, line.y, *((line.low, line.high) if line.label.startswith("ZOO") else ()))
            for line in panel.lines
        ])
        for panel in plots.panels(shown)
    ]  # fmt: skip


def _gaps(study: Equivalence, curves: Sequence[Curve]) -> list[plots.Panel]:
    panels = []
    for function in _functions(curves):
        lines = []
        for baseline in BASELINES:
            zoo, actions = (_of(curves, function, study.update, f"{name} {baseline}") for name in ("ZOO", "REINFORCE"))
            apart = relative(zoo, actions)
            if not (apart.size and apart.any()):
                continue
            x, worst = _iterations(zoo[0]), apart.max(0)
            lines.append(plots.Line(_LABELS[baseline], x[worst > 0], worst[worst > 0]))  # 0 is nowhere on a log axis
            spread = _spread(zoo)
            if baseline == "center" and spread is not None:
                lines.append(plots.Line("two seeds", x, spread))
        if lines:
            panels.append(plots.Panel(function.capitalize(), lines, y_label="gap"))
    return panels


def _spread(curves: Sequence[Curve]) -> np.ndarray | None:
    if len(curves) < 2:
        return None
    values = np.array([[point.value for point in curve.points] for curve in curves])
    spread: np.ndarray = values.std(0, ddof=1) / np.abs(values.mean(0))
    return spread


def _iterations(curve: Curve) -> np.ndarray:
    return np.array([point.iteration for point in curve.points])


# -- Theorem 3 --------------------------------------------------------------------------------------------------------------


def _second_grid(study: Equivalence, curves: Sequence[Curve]) -> tuple[Grid, list[str]]:
    columns = [
        Column("function", "function"),
        Column("directions", "directions"),
        Column("update", "update"),
        Column("gamma", "γ", _tiny),
        Column("lr_zoo", "rate of ZOO", _tiny),
        Column("lr_reinforce", "of REINFORCE", _tiny),
        Column("zeta", "its ζ, times", lambda value: "1" if value == 1 else _tiny(value)),
        Column("final_zoo"),
        Column("final_reinforce"),
        Column("gap_largest", "largest gap", _tiny),
    ]
    rows: list[list[object]] = []
    gaps: dict[str, list[float]] = {"SGD": [], "at η/γ": [], "with ζγ²": []}
    for pair in study.pairs():
        zoo, own = (_of(curves, pair.function, pair.update, method) for method in (pair.zoo, pair.reinforce))
        apart = gap(zoo, own)
        if apart is None:
            continue
        kind = "SGD" if pair.update == "sgd" else "at η/γ" if pair.zeta == 1.0 else "with ζγ²"
        gaps[kind].append(apart.largest)
        rows.append([
            pair.function, pair.law, {"sgd": "SGD", "radazo": "R-AdaZO"}[pair.update], study.gamma(pair.law), pair.lr,
            pair.own_lr, pair.zeta, zoo[0].final, own[0].final, apart.largest,
        ])  # fmt: skip
    caption = (
        f"d = {study.small_dim}, μ = {study.smoothing:g}, float64, {study.small_iterations:,} steps. e_i: the paper's "
        "coordinate directions; ±e_i: zoar's, with a random sign."
    )
    lead = []
    if all(gaps.values()):
        sgd, wrong, right = (max(found) for found in gaps.values())
        lead.append(
            "Theorem 3's γ is right for the sphere and for coordinates: REINFORCE with importance weights, under SGD at the "
            f"rate η/γ, stays within {_tiny(sgd)} of ZOO at η. Corollary 1 also names Adam, and there it does not hold: a rule "
            f"that divides by the estimate's own size, here R-AdaZO, at η/γ goes elsewhere (gap {_tiny(wrong)}). At η itself, "
            f"with ζγ² in place of ζ, the two are together again, to rounding ({_tiny(right)})."
        )
    return Grid(columns, rows, caption), lead


def _directions(study: Equivalence, curves: Sequence[Curve]) -> list[plots.Panel]:
    panels = []
    for function in _functions(curves):
        lines = []
        for pair in study.pairs():
            if pair.function != function or pair.update != "sgd":
                continue
            for label, method in ((pair.law, pair.zoo), ("REINFORCE", pair.reinforce)):
                for curve in _of(curves, function, "sgd", method):
                    lines.append(
                        plots.Line(label, _iterations(curve), np.array([point.value for point in curve.points]))
                    )
        if lines:
            panels.append(plots.Panel(f"{function.capitalize()}, d = {study.small_dim}", lines))
    return panels


def _reading(study: Equivalence) -> list[str]:
    log = log_gamma(Sphere(), study.dim, study.smoothing)
    return [
        "REINFORCE here is (x − θ)/μ² times (reward − baseline), averaged over actions x: the paper's estimator for a Gaussian "
        "policy, and what a policy gradient by automatic differentiation computes. It knows θ, x and f(x), and no direction u.",
        'zoar\'s own `method="reinforce"` is held against ZOO too. Its factor is μ/μ² where ZOO has 1/μ: float32 does not tell '
        "them apart, so a gap of 0 is what to expect. With `--device` both come out of one program by one formula, and the 0 "
        "says nothing; on CPU cores they are `zoar.minimize` as anyone calls it.",
        "Both baselines are the paper's: `center` asks f(θ), one evaluation more a step; `window` is the mean of the last N = "
        f"{study.window} batches, whose queries are used again.",
        f"γ is a number only in few dimensions: for the sphere at d = {study.dim:,} it is e to the {log:,.0f}. "
        "`zoar.theory.log_gamma` and `log_translated_lr` go on in logs.",
        "What Theorem 3 calls an importance weight divides a density in space by one on a sphere or on points. The two "
        "estimates are proportional, as it says; neither is an unbiased estimate of the Gaussian policy's gradient.",
    ]


def _tiny(value: float) -> str:
    """Two digits."""
    return "0" if value == 0 else f"{value:.1e}" if value < 1e-2 or value >= 1e3 else f"{value:.2g}"
