"""Running a study: its files, what it keeps, and what it does when a run fails or is interrupted. The demo stands for all."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import zoar
from zoar.problems import PROBLEMS
from zoar.study import runner
from zoar.study.curves import Curve, Job, Report, run_cell
from zoar.study.descent import STYLES, Demo
from zoar.study.folder import Refused
from zoar.study.pool import Board, Stopped, run_jobs
from zoar.study.runner import run_study
from zoar.study.study import Study

TINY = Demo(dim=50, iterations=12)
FILES = ["config.json", "curves.csv", "demo.png", "demo.svg", "report.html", "runs.csv", "summary.csv"]
CELLS = len(TINY.cells())


def quiet() -> Console:
    return Console(file=io.StringIO(), width=100)


def run(study: Study, out: Path, **options: object) -> tuple[int, str]:
    console = quiet()
    status = run_study(study, out, command=f"zoar demo --out {out}", workers=1, console=console, **options)  # type: ignore[arg-type]
    return status, console.file.getvalue()  # type: ignore[attr-defined]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "a folder" / "that is not there yet"
    status, text = run(TINY, out)
    assert status == 0
    return out, text


@pytest.fixture
def copy(made: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "copy"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that were run, by name."""
    ran: list[str] = []

    def spy(jobs: list[Job], *arguments: object, **options: object) -> object:
        ran.extend(str(cell.key) for job in jobs for cell in job.cells)
        return run_jobs(jobs, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "run_jobs", spy)
    return ran


# -- what it writes ---------------------------------------------------------------------------------------------------


def test_the_folder_holds_exactly_the_files_promised(made: tuple[Path, str]) -> None:
    assert sorted(path.name for path in made[0].iterdir()) == FILES


def test_curves_start_at_one_theta_and_end_at_the_last_iteration(made: tuple[Path, str]) -> None:
    table = rows(made[0] / "curves.csv")
    assert list(table[0]) == ["study", "function", "update", "method", "seed", "iteration", "queries", "value"]
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table:
        runs.setdefault((row["function"], row["method"]), []).append(row)
    assert len(runs) == CELLS
    for (function, method), points in runs.items():
        assert [int(point["iteration"]) for point in points] == list(range(TINY.iterations + 1))
        start = PROBLEMS[function](PROBLEMS[function].start(TINY.dim, 0).astype(float))
        assert float(points[0]["value"]) == pytest.approx(start, rel=1e-12)
        asks_theta = method in ("vanilla", "ZoHS", "ReLIZO")
        assert int(points[-1]["queries"]) == TINY.iterations * (TINY.queries + asks_theta)


def test_the_last_value_is_f_of_the_last_theta() -> None:
    cell = next(cell for cell in TINY.cells() if str(cell.key) == "levy, ZoAR N=6")
    curve = run_cell(cell)
    levy = zoar.problem("levy")
    options = {**cell.options, "max_iterations": cell.iterations}
    result = zoar.minimize(levy, levy.start(TINY.dim, 0), vectorized=True, seed=0, **options)
    assert curve.final == pytest.approx(levy(result.x.astype(float)), rel=1e-6)  # NumPy and torch sum in other orders


def test_config_says_what_the_numbers_depend_on(made: tuple[Path, str]) -> None:
    config = json.loads((made[0] / "config.json").read_text())
    assert config["settings"]["dim"] == 50
    assert config["settings"]["methods"]["ZoAR N=6"] == {
        "method": "zoar", "window": 6, "queries": 10, "smoothing": 0.05, "lr": 1e-3, "update": "adamm",
    }  # fmt: skip
    assert config["versions"]["zoar"] == zoar.__version__
    assert set(config["versions"]) >= {"torch", "numpy", "python"}
    assert config["hardware"]["cpu"]
    assert config["hardware"]["cores"] >= 1
    assert config["command"].startswith("zoar demo --out ")


def test_without_a_terminal_there_is_a_plain_line_for_each_run_and_a_table_within_100_columns(
    made: tuple[Path, str],
) -> None:
    text = made[1]
    assert "\x1b" not in text
    assert len(re.findall(r"^\[ ?\d+ of 24\] ", text, re.M)) == CELLS
    table = text[text.index("function ") :]
    assert all(len(line) <= 80 for line in table.splitlines()[:-1])
    assert all(method in table for method in STYLES)


def test_in_a_terminal_there_are_bars() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    jobs = TINY.jobs(TINY.cells()[:2], None)
    outcome = run_jobs(jobs, TINY, lambda curves: None, workers=1, console=console)
    assert not outcome.failed
    assert "2 of 2" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"dim": 1}, {"iterations": 0}, {"first_seed": -1}, {"queries": 1}])
def test_settings_out_of_range_get_a_sentence(options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=rf"{name} must be at least \d, got"):
        Demo(**options)


# -- what it keeps ----------------------------------------------------------------------------------------------------


def test_a_second_run_runs_nothing_and_writes_the_same(copy: Path, asked: list[str]) -> None:
    before = {name: (copy / name).read_bytes() for name in FILES}
    status, text = run(TINY, copy)
    assert (status, asked) == (0, [])
    assert "24 of 24 runs are in" in text
    after = {name: (copy / name).read_bytes() for name in FILES}
    different = [name for name in FILES if before[name] != after[name]]
    assert set(different) <= {"report.html"}  # the page quotes the command, and this folder has another name


@pytest.mark.parametrize("name", ["curves.csv", "runs.csv"])
def test_a_run_that_is_not_whole_is_run_again(copy: Path, asked: list[str], name: str) -> None:
    whole = (copy / name).read_text()
    last = next(reversed([line for line in whole.splitlines() if ",ackley,adamm,ZoHS," in line]))
    (copy / name).write_text(whole.replace(last + "\n", ""))
    assert run(TINY, copy)[0] == 0
    assert asked == ["ackley, ZoHS"]
    if name == "curves.csv":  # runs.csv has a time in it
        assert (copy / name).read_text() == whole


def test_only_a_part_is_run_and_the_rest_can_follow(tmp_path: Path, asked: list[str]) -> None:
    status, _ = run(TINY, tmp_path / "a", only=["ROSENBROCK", "zohs"])
    names = {(row["function"], row["method"]) for row in rows(tmp_path / "a" / "runs.csv")}
    meant = {
        (c.key.function, c.key.method) for c in TINY.cells() if c.key.function == "rosenbrock" or c.key.method == "ZoHS"
    }
    assert status == 0
    assert names == meant
    assert f"{CELLS - len(meant)} of its runs are missing" in (tmp_path / "a" / "report.html").read_text()
    asked.clear()
    run(TINY, tmp_path / "a")
    assert len(asked) == CELLS - len(meant)
    with pytest.raises(Refused, match=r"--only rosenbruck is part of no name here. There are: .*rosenbrock"):
        run(TINY, tmp_path / "b", only=["rosenbruck"])


def test_parts_of_an_older_study_are_joined(tmp_path: Path) -> None:
    """A setting that came later was then what it is by default."""
    for name, only in (("a", ["rosenbrock"]), ("b", ["ackley", "levy", "quadratic"])):
        run(TINY, tmp_path / name, only=only)
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["settings"].pop("queries") == Demo().queries
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    assert runner.report_again({"demo": Demo}, tmp_path / "a", [tmp_path / "b"], quiet()) == 0
    assert len(rows(tmp_path / "a" / "runs.csv")) == CELLS
    config["settings"]["queries"] = 11
    (tmp_path / "b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused, match=r"other settings than .*: queries"):
        runner.report_again({"demo": Demo}, tmp_path / "a", [tmp_path / "b"], quiet())


def test_a_curve_with_a_hole_is_run_again(copy: Path, asked: list[str]) -> None:
    lines = (copy / "curves.csv").read_text().splitlines(True)
    (copy / "curves.csv").write_text("".join(lines[:3] + lines[4:]))
    assert runner.report_again({"demo": Demo}, copy, [], quiet()) == 0
    run(TINY, copy)
    assert len(asked) == 1


def test_force_runs_everything_again(copy: Path, asked: list[str]) -> None:
    run(TINY, copy, force=True)
    assert len(asked) == CELLS


def test_another_configuration_is_refused_by_name_and_left_alone(copy: Path, asked: list[str]) -> None:
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(
        Refused, match=r"holds another run: iterations is 12 there and 13 here\. Choose another --out, or --force"
    ):
        run(Demo(dim=50, iterations=13), copy)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    assert run(Demo(dim=50, iterations=13), copy, force=True)[0] == 0
    assert {row["iteration"] for row in rows(copy / "curves.csv")} == {str(i) for i in range(14)}
    assert len(asked) == CELLS


def test_another_version_is_another_configuration(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["versions"]["torch"] = "1.0"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused, match=r"torch is 1\.0 there and"):
        run(TINY, copy)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"config.json": '{"model_type": "opt"}'}, "config.json is not of the study 'demo'"),
        ({"config.json": '{"study": '}, "config.json is not JSON"),
        ({"report.html": "<p>mine</p>"}, "holds report.html but no config.json"),
    ],
)
def test_a_foreign_folder_is_refused_even_with_force(tmp_path: Path, files: dict[str, str], says: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(Refused, match=says):
        run(TINY, tmp_path, force=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("damage", ["", "a,b\n1,2\n", None])
def test_a_damaged_table_is_refused_by_name(copy: Path, damage: str | None) -> None:
    table = copy / "curves.csv"
    table.write_text(table.read_text()[:-12] if damage is None else damage)
    with pytest.raises(Refused, match=r"curves\.csv is not a table that zoar wrote .*--force to replace it"):
        run(TINY, copy)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="file is a file; --out takes a folder"):
        run(TINY, tmp_path / "file")


# -- when it does not go well -----------------------------------------------------------------------------------------


class Faulty(Demo):
    """A demo whose runs go as a test says."""

    work = staticmethod(run_cell)

    def run(self, job: Job, device: str | None, report: Report) -> list[Curve]:
        return [self.work(cell, report) for cell in job.cells]


FAULTY = Faulty(dim=50, iterations=12)


def test_an_interrupted_study_keeps_what_is_done_and_goes_on(
    tmp_path: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(CELLS))

    def interrupted(cell: Any, report: Report) -> Curve:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return run_cell(cell, report)

    with monkeypatch.context() as patch:
        patch.setattr(Faulty, "work", staticmethod(interrupted))
        status, text = run(FAULTY, tmp_path)
    assert status == 130
    assert "Interrupted. 8 of 24 runs are done and kept; the same command goes on from there." in text
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert "This study is unfinished: 16 of its runs are missing." in (tmp_path / "report.html").read_text()
    status, text = run(TINY, tmp_path)
    assert status == 0
    assert "8 of 24 runs are in" in text
    assert (tmp_path / "curves.csv").read_bytes() == (made[0] / "curves.csv").read_bytes()


def test_a_run_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(cell: Any, report: Report) -> Curve:
        if str(cell.key) == "levy, vanilla":
            raise RuntimeError("no [bold] memory")
        return run_cell(cell, report)

    monkeypatch.setattr(Faulty, "work", staticmethod(failing))
    status, text = run(FAULTY, tmp_path)
    assert status == 1
    assert "Failed: levy vanilla, seed 0: RuntimeError: no [bold] memory" in text
    table = rows(tmp_path / "summary.csv")
    assert len(table) == CELLS - 1
    assert all(row["speed_up"] == "" for row in table if row["function"] == "levy")
    assert all(row["speed_up"] == "1.0" for row in table if row["method"] == "vanilla")


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files stands for the full disk")
def test_a_disk_that_fills_leaves_the_finished_runs_readable(tmp_path: Path, made: tuple[Path, str]) -> None:
    """The limit is the system's own: every write beyond it fails, as on a full disk."""
    command = ["demo", "--dim", "50", "--iterations", "12", "--workers", "1", "--out", str(tmp_path / "out")]
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000)); "
    limited += "from zoar.cli import main; sys.exit(main(sys.argv[1:]))"
    full = subprocess.run([sys.executable, "-c", limited, *command], capture_output=True, text=True, check=False)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    said = re.search(r"Cannot write to .*: File too large\. (\d+) of 24 runs are kept there, whole", full.stdout)
    assert said is not None
    kept = {(row["function"], row["method"]) for row in rows(tmp_path / "out" / "curves.csv")}
    assert 0 < int(said[1]) == len(kept) < CELLS
    assert not list((tmp_path / "out").glob(".*part"))
    status, text = run(TINY, tmp_path / "out")
    assert status == 0
    assert f"{said[1]} of 24 runs are in" in text
    assert (tmp_path / "out" / "curves.csv").read_bytes() == (made[0] / "curves.csv").read_bytes()


def test_nothing_done_writes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(cell: Any, report: Report) -> Curve:
        raise KeyboardInterrupt

    monkeypatch.setattr(Faulty, "work", staticmethod(never))
    assert run(FAULTY, tmp_path / "out")[0] == 130
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]


def test_an_interrupt_during_a_run_is_not_half_a_curve() -> None:
    def report(iteration: int) -> None:
        if iteration == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cell(TINY.cells()[0], report)


def test_a_stopped_board_ends_a_run_at_its_next_report() -> None:
    board = Board(1)
    board.stop()
    with pytest.raises(Stopped):
        run_cell(TINY.cells()[0], board.reporter(0))
    assert board[0] == 0


def test_two_processes_give_the_curves_of_one(made: tuple[Path, str], tmp_path: Path) -> None:
    assert run_study(TINY, tmp_path, command="zoar demo", workers=2, console=quiet()) == 0
    assert (tmp_path / "curves.csv").read_bytes() == (made[0] / "curves.csv").read_bytes()
