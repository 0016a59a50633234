"""The leaderboard, its tuning and the ablation: who runs, what the tables say. Rivals themselves are in test_rivals."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

import zoar
from zoar.study.ablation import PAPERS, WHOLE, Ablation, ablation_grid, iterations_to_paper
from zoar.study.curves import Curve, Key, Point
from zoar.study.descent import Demo
from zoar.study.folder import Refused
from zoar.study.grid import csv_text
from zoar.study.leaderboard import Leaderboard, Tuning, board_grid, ratio_grid, tuning_scores
from zoar.study.race import BUDGETS, OURS, Event, cell, contestants, run, settings_of
from zoar.study.registry import STUDIES
from zoar.study.rivals import RIVALS
from zoar.study.runner import report_again, run_study
from zoar.study.tuned import TUNED

SMALL = Event("quadratic", 10, 400)


def curve(
    method: str, *values: float, problem: str = "quadratic, d=100", setting: str = "as it is", seed: int = 1
) -> Curve:
    points = tuple(Point(100 * i, 1_000 * i, value) for i, value in enumerate(values))
    return Curve(Key("leaderboard", problem, setting, method, seed), points, 2.0)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def test_every_rival_has_three_settings_and_everyone_one_at_each_dimension() -> None:
    for dim in BUDGETS:
        assert set(TUNED[dim]) >= set(contestants(dim))
        for method in contestants(dim):
            assert len(settings_of(method)) == (1 if method in OURS else 3)
            assert TUNED[dim][method] in settings_of(method)


@pytest.mark.parametrize("method", OURS)
def test_ours_spend_the_budget_and_no_more(method: str) -> None:
    for setting in settings_of(method):
        made = run(cell("leaderboard", SMALL, method, setting, 1, SMALL.budget), lambda iteration: None)
        assert made.points[-1].queries == 400
        assert made.final < made.points[0].value


def test_a_rival_starts_where_we_start_and_spends_the_same() -> None:
    name = "SPSA (nevergrad)"
    try:
        RIVALS[name].check_installed()
    except ModuleNotFoundError:
        pytest.skip("nevergrad is not installed (pip install 'zoar[rivals]')")
    theirs = run(cell("leaderboard", SMALL, name, "default", 1, 400), lambda iteration: None)
    ours = run(cell("leaderboard", SMALL, "ZoAR N=6 (paper)", "lr 1e-3", 1, 400), lambda iteration: None)
    assert theirs.points[0] == ours.points[0]
    assert theirs.points[-1].queries == 400


def test_noise_is_in_the_queries_and_not_in_the_curve() -> None:
    noisy = Event("quadratic", 10, 400, noise=3.0)
    assert noisy.name == "noisy quadratic, d=10"
    made = run(cell("leaderboard", noisy, "zoar.recommended", "as it is", 1, 400), lambda iteration: None)
    assert made.points[0].value == pytest.approx(
        float((zoar.problem("quadratic").start(10, 1).astype(float) ** 2).sum() / 2)
    )
    assert made.points[-1].queries == 400


def test_the_board_is_ordered_by_final_value_and_gives_the_values_on_the_way() -> None:
    curves = [
        curve("SPSA (nevergrad)", 9, 8, 7, 6, 5, 4, 3, 2, 1, 0.5, 0.25),
        curve("zoar.recommended", *[9] * 10, 0.1),
    ]
    grid = board_grid(curves, {"quadratic, d=100": Event("quadratic", 100, 10_000)})
    names = [column.name for column in grid.columns]
    rows = [dict(zip(names, row, strict=True)) for row in grid.rows]
    assert [row["method"] for row in rows] == ["zoar.recommended", "SPSA (nevergrad)"]
    assert (rows[1]["value_at_10"], rows[1]["value_at_25"], rows[1]["value_at_50"]) == (8, 7, 4)
    assert (rows[1]["final_value"], rows[1]["queries_per_iteration"], rows[1]["ms_per_iteration"]) == (0.25, 10, 2.0)


def test_ratios_are_to_the_best_rival_also_where_we_lose() -> None:
    curves = [curve("Powell (SciPy)", 9, 1), curve("SPSA (nevergrad)", 9, 4), curve("zoar.recommended", 9, 2)]
    ((problem, best, value, ours, ratio, paper, none),) = ratio_grid(curves).rows
    assert (problem, best, value, ours, ratio, paper, none) == (
        "quadratic, d=100",
        "Powell (SciPy)",
        1,
        2,
        2.0,
        None,
        None,
    )
    lead = Leaderboard(dims=(100,), functions=("quadratic",), seeds=1).report(curves, {}).lead[1]
    assert "below every rival on 0 of 1 problems" in lead


def test_every_panel_and_line_of_the_board_has_its_name_and_colour() -> None:
    curves = [
        curve(method, 9, 1, problem=problem)
        for problem in ("noisy quadratic, d=10,000", "levy, d=10,000")
        for method in ("SNES (evotorch)", "zoar.recommended", "VD-CMA (pycma)")
    ]
    (sheet,) = Leaderboard(dims=(10_000,), functions=("levy", "noisy quadratic"), seeds=1).report(curves, {}).sheets
    assert [panel.title for panel in sheet.panels] == ["Noisy quadratic", "Levy"]
    labels = [line.label for line in sheet.panels[0].lines]
    assert set(labels) == {"zoar.recommended", "SNES", "VD-CMA"}
    assert len({sheet.styles[label].colour for label in labels}) == 3


def test_tuning_takes_the_geometric_mean_over_the_functions() -> None:
    curves = [
        curve("x", 9, 1, setting="a"), curve("x", 9, 3, setting="b"),
        curve("x", 9, 100, problem="levy, d=100", setting="a"), curve("x", 9, 3, problem="levy, d=100", setting="b"),
    ]  # fmt: skip
    assert tuning_scores(curves)["d=100", "x"] == pytest.approx({"a": 10, "b": 3})


def test_a_missing_package_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cma", None)
    with pytest.raises(
        Refused, match=r"sep-CMA-ES \(pycma\).* cannot run: cma is not installed: pip install 'zoar\[rivals\]'"
    ):
        run_study(Leaderboard(), tmp_path / "out", command="", console=quiet())
    assert not (tmp_path / "out").exists()


def test_a_rate_is_tuned_over_the_whole_run() -> None:
    budgets = {(cell.dim, cell.key.method): cell.iterations for cell in Tuning().cells()}
    assert budgets[1_000, "SNES (evotorch)"] == BUDGETS[1_000]
    assert budgets[10_000, "SNES (evotorch)"] == BUDGETS[10_000] // 4
    assert budgets[10_000, "PGPE + Adam (evotorch)"] == BUDGETS[10_000]
    assert not {method for _, method in budgets} & set(OURS)


def test_a_tuning_of_one_rival_runs_and_is_reported(tmp_path: Path) -> None:
    name = "Nelder-Mead (SciPy)"
    study = Tuning(dims=(100,), functions=("quadratic",), entrants=(name,))
    assert run_study(study, tmp_path, command="x", workers=1, console=quiet()) == 0
    rows = (tmp_path / "summary.csv").read_text().splitlines()
    assert len(rows) == 4
    assert sum(row.endswith(",yes") for row in rows) == 1


# -- the ablation, and reports made anew -------------------------------------------------------------------------------


def test_every_variant_but_the_papers_differs_from_the_whole_in_one_option() -> None:
    variants = Ablation().variants()
    whole = variants.pop(WHOLE)
    variants.pop(PAPERS)
    for name, options in variants.items():
        assert sum(options[key] != whole[key] for key in whole) == 1, name
        assert set(options) == set(whole)


def test_factors_are_to_the_whole_and_sooner_is_the_slowest_seed() -> None:
    def made(variant: str, *values: float, seed: int = 0) -> Curve:
        points = tuple(Point(10 * i, 100 * i, value) for i, value in enumerate(values))
        return Curve(Key("ablation", "levy", "", variant, seed), points, 1.0)

    curves = [
        made(WHOLE, 9, 4, 2), made(WHOLE, 9, 6, 4, seed=1), made("window 1", 9, 9, 9), made("window 1", 9, 9, 9, seed=1),
        made(PAPERS, 9, 7, 6), made(PAPERS, 9, 7, 6, seed=1),
    ]  # fmt: skip
    assert [row[5] for row in ablation_grid(curves).rows] == [1.0, 3.0, 2.0]
    assert iterations_to_paper(curves) == [("levy", 0.5)]


def test_a_report_is_made_anew_from_folders_of_several_machines(tmp_path: Path) -> None:
    study = Ablation(dim=4, iterations=3, seeds=2, queries=2)
    one, two = tmp_path / "one", tmp_path / "two"
    assert run_study(study, one, command="x", workers=1, console=quiet()) == 0
    assert run_study(study, two, command="x", workers=1, console=quiet()) == 0
    whole = (one / "curves.csv").read_text()
    for folder, seed in ((one, "0"), (two, "1")):
        for name in ("curves.csv", "runs.csv"):
            header, *rows = csv.reader((folder / name).read_text().splitlines())
            (folder / name).write_text(csv_text(header, (row for row in rows if row[4] == seed)))
    assert report_again(STUDIES, one, [two], quiet()) == 0
    assert (one / "curves.csv").read_text() == whole
    assert "some runs were made with" in (one / "report.html").read_text()


def test_machines_share_a_study_by_its_seeds_and_by_nothing_else(tmp_path: Path) -> None:
    whole = Demo(dim=20, iterations=10, seeds=2)
    assert run_study(whole, tmp_path / "whole", command="x", workers=1, console=quiet()) == 0
    for name, study in {
        "a": whole.having(seeds=1), "b": whole.having(seeds=1, first_seed=1), "c": whole.having(seeds=1, dim=30),
    }.items():  # fmt: skip
        assert run_study(study, tmp_path / name, command="x", workers=1, console=quiet()) == 0
    before = (tmp_path / "a" / "curves.csv").read_bytes()
    with pytest.raises(Refused, match=r"c has other settings than .*a: dim"):
        report_again(STUDIES, tmp_path / "a", [tmp_path / "c"], quiet())
    assert (tmp_path / "a" / "curves.csv").read_bytes() == before
    assert report_again(STUDIES, tmp_path / "a", [tmp_path / "b"], quiet()) == 0
    assert (tmp_path / "a" / "curves.csv").read_bytes() == (tmp_path / "whole" / "curves.csv").read_bytes()
    assert run_study(whole, tmp_path / "a", command="x", workers=1, console=(console := quiet())) == 0
    assert "48 of 48 runs are in" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "config", ['{"study": "synthetic"}', '{"study": "nope", "settings": {}}', '{"study": "demo", "settings": 7}']
)
def test_an_odd_config_is_refused(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises((Refused, ValueError), match=r"config\.json is not one|study must be one of"):
        report_again(STUDIES, tmp_path, (), quiet())


def test_a_folder_of_no_study_or_of_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"holds no config\.json"):
        report_again(STUDIES, tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refused, match="was not written by zoar"):
        report_again(STUDIES, tmp_path)


def test_what_runs_is_what_the_published_tuning_chose() -> None:
    published = Path(__file__).parents[1] / "results" / "tuning" / "summary.csv"
    with published.open(newline="") as file:
        chosen = {
            (row["dimension"], row["method"]): row["setting"] for row in csv.DictReader(file) if row["chosen"] == "yes"
        }
    for dim, settings in TUNED.items():
        for method in contestants(dim):
            if method not in OURS:
                assert settings[method] == chosen[f"d={dim:,}", method]
