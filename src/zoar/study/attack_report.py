"""What the attacks came to: the tables, the figure and what to say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zoar.study import plots
from zoar.study.attack_scores import PAPER, REFERENCE, RULES, Score, score
from zoar.study.curves import Curve
from zoar.study.descent import STYLES as METHOD_STYLES
from zoar.study.grid import Column, Grid, times, whole
from zoar.study.study import Findings, Sheet

if TYPE_CHECKING:
    from zoar.study.attack import Attack

PAPERS_IMAGE = "image 1"
WHITE_BOX = "white-box"
STYLES = {**METHOD_STYLES, WHITE_BOX: plots.Style(plots.FAINT, width=1.1, dashes=(2, 2), order=1.5)}


def table(scores: Sequence[Score], reached: Sequence[str], caption: str, *, papers_iterations: bool = False) -> Grid:
    """The paper's Table 1 and more; what has no title is in the CSV alone."""
    columns = [
        Column("update", "update"),
        Column("method", "method"),
        Column("images"),
        Column("seeds"),
        Column("runs"),
        Column("successes"),
        Column("failures"),
        Column("success_rate", "succeed", _share, "most"),
        Column("runs_in_white_box_reach"),
        Column("successes_in_white_box_reach"),
        Column("iterations_mean"),
        Column("iterations_median"),
        Column("iterations_mean_charged", "iterations, charged", whole, "least"),
        Column("speed_up", "speed-up", times, "most"),
        Column("speed_up_pairs"),
        Column("speed_up_low"),
        Column("speed_up_high"),
        Column("speed_up_charged", "speed-up, charged", times, "most"),
        Column("queries_an_iteration"),
        Column("queries_mean"),
        Column("queries_median"),
        Column("paper_iterations", "paper's iterations" if papers_iterations else "", whole),
        Column("paper_speed_up", "paper's speed-up", times),
    ]
    return Grid(columns, [_row(one, reached) for one in scores], caption)


def _row(one: Score, reached: Sequence[str]) -> list[Any]:
    runs, successes, within = len(one.mine), len(one.successes), one.on(reached)
    return [
        RULES[one.update], one.method, len({image for image, _ in one.mine}), len({seed for _, seed in one.mine}),
        runs, successes, runs - successes, successes / runs, len(within), len(within) - within.count(None),
        one.average, one.middle, one.charged, one.speed_up(), len(one.pairs()), *(one.interval() or (None, None)),
        one.speed_up_charged(), one.cost, _scaled(one.average, one.cost), _scaled(one.middle, one.cost),
        *PAPER[one.update].get(one.method, (None, None)),
    ]  # fmt: skip


def details(scores: Sequence[Score], reached: Sequence[str]) -> Grid:
    """What the first table has no room for."""
    columns = [
        Column("update", "update"),
        Column("method", "method"),
        Column("successes", "successes"),
        Column("successes_in_white_box_reach", "in white-box reach"),
        Column("iterations_mean", "mean iterations", whole),
        Column("iterations_median", "median iterations", whole),
        Column("queries_mean", "mean queries", whole),
        Column("queries_median", "median queries", whole),
        Column("speed_up_pairs", "pairs"),
        Column("speed_up_interval", "speed-up, 95% interval"),
    ]
    rows = []
    for one in scores:
        within, interval = one.on(reached), one.interval()
        rows.append([
            RULES[one.update], one.method, f"{len(one.successes)} of {len(one.mine)}",
            f"{len(within) - within.count(None)} of {len(within)}", one.average, one.middle,
            _scaled(one.average, one.cost), _scaled(one.middle, one.cost), len(one.pairs()),
            None if interval is None else f"{interval[0]:.1f} to {interval[1]:.1f}",
        ])  # fmt: skip
    caption = (
        "Iterations and queries are of the successes: who succeeds on harder images pays for them here. Pairs are the images "
        "and seeds on which the method and vanilla both succeed; speed-up is over them, its 95% interval over images drawn anew."
    )
    return Grid(columns, rows, caption)


def panels(scores: Sequence[Score], reached: Sequence[str]) -> list[plots.Panel]:
    """The share of runs that have succeeded by each iteration, in a band over seeds."""
    last = max((max(one.successes, default=0) for one in scores), default=0)
    most = max(one.most for one in scores) if any(len(one.successes) < len(one.mine) for one in scores) else last
    x = np.unique(np.linspace(0, max(most, 1), 401).round())
    drawn = []
    for update in dict.fromkeys(one.update for one in scores):
        of_rule = [one for one in scores if one.update == update]
        lines = [_line(one, x) for one in of_rule]
        images = {image for one in of_rule for image, _ in one.mine}
        share = len(images & set(reached)) / len(images)
        lines.append(plots.Line(WHITE_BOX, x[[0, -1]], np.full(2, share)))
        drawn.append(plots.Panel(RULES[update], lines, y_label="share", log=False))
    return drawn


def _line(one: Score, x: np.ndarray) -> plots.Line:
    seeds: dict[int, list[float]] = {}
    for (_, seed), iterations in one.mine.items():
        seeds.setdefault(seed, []).append(np.inf if iterations is None else iterations)
    shares = np.array([(np.array(each)[:, None] <= x).mean(0) for each in seeds.values()])
    if len(shares) == 1:
        return plots.Line(one.method, x, shares[0])
    return plots.Line(one.method, x, shares.mean(0), shares.min(0), shares.max(0))


def findings(
    study: Attack, curves: Sequence[Curve], settings: Mapping[str, Any], white_box: Mapping[int, float]
) -> Findings:
    """`white_box` is the least f found with gradients, by image."""
    names = {int(curve.key.function.split()[1].rstrip(":")): curve.key.function for curve in curves}
    reached = [name for image, name in names.items() if white_box[image] < 0]
    scores = score(curves, study.iterations)
    grids = {
        "In numbers": table(
            scores,
            reached,
            f"Means over all runs; charged: a failure counts as all its {study.iterations:,} iterations. Speed-up, where nothing "
            "is charged, is over the images and seeds on which vanilla and the method both succeed.",
        )
    }
    alone = [curve for curve in curves if curve.key.function.startswith(f"{PAPERS_IMAGE}:")]
    if alone:
        name = alone[0].key.function
        grids["The paper's image"] = table(
            score(alone, study.iterations),
            reached,
            f"Test {name}, over {_counted(len({curve.key.seed for curve in alone}), 'seed')}. An attack with gradients "
            f"{'reaches' if name in reached else 'does not reach'} it.",
            papers_iterations=True,
        )
    grids["In more detail"] = details(scores, reached)
    missed = [name for name in names.values() if name not in reached]
    lead = [
        f"A two-layer CNN that gets {settings['network_accuracy']:.2%} of MNIST's test images right is to take each of "
        f"{len(names)} digits for the next one, a 9 for a 0. The attack sees its log-probabilities and no gradient, and may "
        f"change a pixel by at most {study.epsilon:g}. With gradients, {_of(len(reached), len(names))} can be reached.",
        *_lead(scores, study),
    ]
    seeds = len({curve.key.seed for curve in curves})
    caption = (
        f"The share of attacks that have succeeded, against iterations: {len(names)} images"
        + (f"; mean and range of {seeds} seeds" if seeds > 1 else ", one seed")
        + ". Higher and further left is better. Dashed: what an attack with gradients reaches."
    )
    return Findings(
        f"Attacking a classifier without gradients: {len(names)} images",
        lead,
        [Sheet("attack", "Success over iterations", panels(scores, reached), STYLES, caption)],
        grids,
        _reading(study, scores, missed),
    )


def _lead(scores: Sequence[Score], study: Attack) -> list[str]:
    """What the table says of ZoAR, a sentence for each rule."""
    sentences = []
    for one in scores:
        vanilla = next((s for s in scores if (s.update, s.method) == (one.update, REFERENCE)), None)
        if one.method != f"ZoAR N={study.window}" or vanilla is None:
            continue
        sooner = one.speed_up()
        where = f", {times(sooner)[:-1]} times sooner where both do" if sooner is not None else ""
        sentences.append(
            f"Under {RULES[one.update]}, {one.method} succeeds in {len(one.successes)} of {len(one.mine)} runs to vanilla's "
            f"{len(vanilla.successes)}{where}."
        )
    return [" ".join(sentences)] if sentences else []


def _reading(study: Attack, scores: Sequence[Score], missed: Sequence[str]) -> list[str]:
    clipped = study.pixels == "clipped"
    k = study.queries
    points = [
        f"f(θ) is the margin max log p_j − log p_t over the classes j but the target t, of the image + clamp(θ, ±{study.epsilon:g})"
        + (", its pixels clipped to [0, 1]" if clipped else ", its pixels not clipped, as the paper's numbers suggest")
        + "; the clamps are part of f, and θ is free. θ₀ ~ N(0, I)"
        + (f" clamped to ±{study.epsilon:g}" if study.start == "clamped" else "")
        + ", the same for all methods; each image and seed has its own.",
        f"A run ends with the first θ after a step at which f(θ) < 0, or as a failure after {study.iterations:,} iterations. "
        "Failures are counted, not dropped.",
        "Speed-up is the ratio of vanilla's mean iterations to the method's: over the images and seeds on which both succeed, "
        "which are the easy ones, and over all, each failure charged with all its iterations. What vanilla would have needed "
        "is more than it is charged.",
        f"An iteration costs {k} queries with ZoAR, and {k + 1} with vanilla and ZoHS, which ask f(θ) too. Looking whether "
        f"f(θ) < 0 is not among them. Were it charged, vanilla and ZoHS would lose nothing by it and ZoAR would pay {k + 1} too: "
        "then queries compare as iterations do.",
        _on_white_box(missed, scores),
    ]
    if left_out := study.left_out():
        points.append(
            f"Left out, since the network gets them wrong without an attack: test images {', '.join(map(str, left_out))}."
        )
    points.append(
        "The paper's numbers are of one image (test image 1, as far as can be told) and five runs, on a network of its own."
    )
    other, without = ("free", "without clipping") if clipped else ("clipped", "with clipping")
    points.append(
        f"The same {without} to [0, 1]: `zoar study run attack --pixels {other} --out DIR`, DIR another folder."
    )
    usual = type(study)()
    if (study.images, study.seeds, study.iterations) != (usual.images, usual.seeds, usual.iterations):
        points.append(
            f"The whole study is {usual.images} images, {usual.seeds} seeds and {usual.iterations:,} iterations: "
            "`zoar study run attack`."
        )
    return points


def _on_white_box(missed: Sequence[str], scores: Sequence[Score]) -> str:
    text = "The white-box attack (300 signed gradient steps on the same f, projected) "
    if not missed:
        return text + "reaches every image: whatever failed here, failed for want of gradients or iterations."
    text += f"does not reach {', '.join(missed)}; a black-box attack, which knows less, hardly can. "
    text += "Their runs are counted as all others."
    beyond = sum(len(one.on(missed)) - one.on(missed).count(None) for one in scores)
    return text + (f" Yet {beyond} of them succeeded." if beyond else "")


def _of(some: int, all_of_them: int) -> str:
    return f"all {some}" if some == all_of_them else f"{some} of the {all_of_them}"


def _share(value: float) -> str:
    return f"{value:.0%}"


def _scaled(value: float | None, factor: int) -> float | None:
    return None if value is None else value * factor


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
