"""What the study `theory` shows: which part of the window's error falls with N, which part grows, and what the bound says of "
"both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from zoar.study.curves import Curve
from zoar.study.grid import Column, Grid, number
from zoar.study.study import Findings, Sheet
from zoar.study.window_figures import (
    STYLES,
    Results,
    against_queries,
    baselines,
    drift,
    panels_by_rate,
    parts,
    proofs,
    rate_styles,
    window_styles,
)  # fmt: skip

if TYPE_CHECKING:
    from zoar.study.window_theory import Theory


def findings(study: Theory, curves: Sequence[Curve]) -> Findings:
    """Tables, figures, words."""
    results = Results(curves)
    styles = {**STYLES, **rate_styles(study), **window_styles(study)}
    sheets = [
        Sheet(
            "theory", "The error against the window", panels_by_rate(study, results), styles,
            f"E|g − ∇F_μ(θ)|² over |∇F_μ(θ)|² against N, both axes logarithmic; K = {study.live_queries}, the theorem's own "
            f"baseline b*, {study.redraws:,} redraws a point. Broken: the theorem's bound, for the thetas of the window. Last, "
            "each batch's own mean in place of b*.",
        ),
        Sheet(
            "theory_parts", "What the error is made of, on the quadratic", parts(study, results), styles,
            "Baseline b*. `by stride`: the bound with the greatest step that R-AdaZO can make, as the theorem has it; `as "
            "printed`: the same with the drifts that the paper prints. `live error` and `diagnosed`: not on redraws but along "
            "the run, with the window's mean as baseline; the second is what `zoar.diagnose` sees without knowing the function.",
        ),
        Sheet(
            "theory_baselines", "Three baselines, on the quadratic", baselines(study, results), styles,
            "The same error for b* (`optimal`, wide), for the mean of the window (the paper's), and for each batch's own mean, "
            'which is `baseline="batch"`.',
        ),
        Sheet(
            "theory_queries", "The variance against K", against_queries(study, results), styles,
            f"Variance for b* at the lowest rate, lr = {study.rates[0]:g}. Broken: V = A σ_μ²/(N K μ²), of the theorem's terms "
            "the one that falls as 1/(NK).",
        ),
        Sheet(
            "theory_proofs", "Two steps of the proofs", proofs(study, results), styles,
            "Left: thetas on a straight line at even steps, the farthest that the theorem's last step allows for. Right: the "
            "error against the baseline, in σ_μ from b*, and the parabola that the theorem on the optimal baseline is about, "
            "through its least point.",
        ),
    ]  # fmt: skip
    return Findings(
        "What the window costs and what it gives: measured, and the paper's bound",
        [
            "ZoAR averages K queries at each of the last N thetas. The longer the window, the less noise and the older the "
            f"gradients. Both are measured here in {study.dim} dimensions, on thetas from real runs, and held against the bound "
            "of the paper's Bias-Variance Decomposition.",
            *_lead(study, results),
        ],
        [sheet for sheet in sheets if sheet.panels],
        {"In numbers": _summary(study, results), "The quadratic, point by point": _points(study, results)},
        _reading(study),
    )  # fmt: skip


def _summary(study: Theory, results: Results) -> Grid:
    columns = [
        Column("function", "function"),
        Column("rate", "rate", lambda value: f"{value:g}"),
        Column("step"),
        Column("best_window", "N, b*"),
        Column("best_error", "error", number),
        Column("bound_window", "N, bound"),
        Column("paper_window", "N, window"),
        Column("batch_window", "N, batch"),
        Column("batch_error", "error", number),
        Column("bound_least"),
        Column("bound_most"),
        Column("stride_bound_most"),
    ]
    rows = []
    for function in results.functions:
        for lr in study.rates:
            at = (function, drift(lr), study.live_queries)
            found = results.together(
                *at, ("optimal error", "window error", "batch error", "bound", "step", "bound by stride")
            )
            if found is None:
                continue
            measured, window, batch, bound, step, stride = found
            looseness = bound / measured
            best = [study.windows[int(one.argmin())] for one in (measured, bound, window, batch)]
            rows.append([
                function, lr, float(step[-1]), best[0], float(measured.min()), best[1], best[2], best[3], float(batch.min()),
                float(looseness.min()), float(looseness.max()), float((stride / measured).max()),
            ])  # fmt: skip
    caption = (
        f"The best N of {', '.join(map(str, study.windows))} at K = {study.live_queries}: for b*, by the bound, for the mean of "
        "the window (the paper's baseline), for each batch's own mean. Errors are in units of the squared gradient: at 1 the "
        "estimate is as far off as the gradient is long."
    )
    return Grid(columns, rows, caption)


def _points(study: Theory, results: Results) -> Grid:
    names = {
        "error, b*": "optimal error", "±": "optimal error se", "bias²": "optimal bias", "± ": "optimal bias se",
        "bias² by Thm": "exact bias", "bound": "bound", "by stride": "bound by stride", "as printed": "printed by stride",
        "window's mean": "window error", "batch's mean": "batch error", "diagnosed variance": "diagnosed variance",
        "diagnosed drift": "diagnosed drift", "live error": "live error",
    }  # fmt: skip
    columns = [Column("rate", "rate"), Column("window", "N", str)]
    columns += [Column(what.replace(" ", "_"), title, _three) for title, what in names.items()]
    rows = []
    for lr in study.rates:
        found = results.together("quadratic", drift(lr), study.live_queries, names.values())
        if found is not None:
            rows += [[drift(lr), window, *(float(one[i]) for one in found)] for i, window in enumerate(study.windows)]
    return Grid(columns, rows, f"K = {study.live_queries}. The other functions and K are in `curves.csv`.")


def _three(value: float) -> str:
    return "0" if value == 0 else f"{value:.2e}" if abs(value) < 1e-3 or abs(value) >= 1e4 else f"{value:.3g}"


def _lead(study: Theory, results: Results) -> list[str]:
    names = (
        "optimal error",
        "optimal error se",
        "bound",
        "proof as printed",
        "optimal bias",
        "optimal bias se",
        "exact bias",
    )
    points, broken, printed, sigmas = 0, 0, 0, [0.0]
    for function in results.functions:
        for lr in study.rates:
            for queries in study.queries:
                found = results.together(function, drift(lr), queries, names)
                if found is None:
                    continue
                error, se, bound, third, bias, bias_se, exact = found
                points += len(error)
                broken += int((error - 3 * se > bound).sum())
                printed += int((error - 3 * se > third).sum())
                sigmas += list(np.abs(bias - exact) / bias_se)
    lead = []
    if points:
        verdict = f"is broken at {broken}" if broken else "holds at every one"
        lead.append(
            f"The bound {verdict} of {points} points (function, rate, K, N). The inequality that it is proved from, as the "
            f"paper prints it with the squared mean gradient taken off whole, is below the measured error at {printed} of them, "
            f"by more than three standard errors. The squared bias is what the theorem on bias says: at most {max(sigmas):.1f} "
            "standard errors off."
        )
    lead += _levels(study, results)
    straight = results.together(
        "slope", "straight line", study.live_queries, ("optimal error", "bound by stride", "printed by stride")
    )
    if straight is not None:
        error, proved, short = straight
        if (error > short).any() and (error < proved).all():
            first = study.windows[int((error > short).argmax())]
            lead.append(
                "The drifts that the theorem prints are too small. R-AdaZO's greatest step is several times its usual one, "
                "which hides it on real runs; on a straight line of even steps the error is above the printed bound from N = "
                f"{first} on ({error[-1] / short[-1]:.0f} times as large at N = {study.windows[-1]}), and below the corrected "
                "bound."
            )
    return lead


def _levels(study: Theory, results: Results) -> list[str]:
    """What the growing part of the error is."""
    lr, last = study.rates[-1], study.windows[-1]
    at = ("quadratic", drift(lr), study.live_queries)
    found = results.together(*at, ("optimal error", "exact bias", "window error", "batch error"))
    if found is None:
        return []
    error, bias, window, batch = (float(one[-1]) for one in found)
    return [
        f"What grows with N is the variance, and hardly the bias. At lr = {lr:g} and N = {last} on the quadratic the error is "
        f"{number(error)} squared gradients ({number(window)} with the window's mean); the squared bias is {_three(bias)} of "
        "these. One baseline for thetas where f is at different levels weighs old directions by the difference of levels. With "
        f'each batch\'s own mean, `baseline="batch"`, the error is {number(batch)}.'
    ]


def _reading(study: Theory) -> list[str]:
    return [
        "In `curves.csv` a curve is one quantity, named in `method`; its `iteration` is N, its `queries` are N·K, `update` says "
        "which run the thetas are from, and `se` is the standard error of a mean. With `update` = baseline, `iteration` is (b − "
        "b*)/σ_μ.",
        f"The thetas are the last {study.windows[-1]} of a run of {study.live_steps} steps: ZoAR with K = {study.live_queries}, "
        f"N = {study.live_window}, R-AdaZO at the rate given. A redraw asks new directions at all of them, so thetas are given, "
        "as the theorems have it. The estimates are zoar's own; for b* that number is taken from the values, and baseline "
        "`zero` used.",
        f"Directions are on the unit sphere, with the factor d that makes E[g] the gradient; μ = {study.smoothing:g}, which is "
        f"the length of μu for Gaussian directions at μ = {study.smoothing / study.dim**0.5:g}. In the paper's scale all is "
        "smaller by d².",
        "Slope: a·x with |a| = 1. Wave: −50 cos(a·x/50), whose constants hold everywhere. Quadratic: |x|²/2, with the constants "
        "of the ball that holds the thetas. There is no noise in the values: σ_ξ = 0.",
        "The bound is the proof's with its two slips put right, from the window's own thetas (without the negative term, which "
        "the theorem leaves out). `zoar.theory` says what the slips are.",
        "`live error` is along the run itself, the mean over its second half, for a window of any length on the one path: there "
        "old directions have led to where θ is, and that correlation is part of the error. A window that is older than the "
        "run's own sees it less. `diagnosed` is variance + drift from `zoar.diagnose`.",
    ]
