"""`zoar demo`: its files, its arithmetic, what it keeps, and the page it leaves."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import zoar
from zoar.problems import PROBLEMS, Problem
from zoar.study import demo as demo_module
from zoar.study import plots
from zoar.study.curves import Cell, Curve, Key, Point, Report, run_cell
from zoar.study.demo import STYLES, Demo, command, run_demo
from zoar.study.demo_page import SNIPPET, findings
from zoar.study.folder import Refused
from zoar.study.page import Code, Points, Section, Table, Text, page
from zoar.study.pool import Board, Stopped, run_cells
from zoar.study.summary import columns, summarise

TINY = Demo(dim=50, iterations=12)
FILES = ["config.json", "curves.csv", "demo.png", "demo.svg", "index.html", "summary.csv"]
CELLS = len(TINY.cells())


def quiet() -> Console:
    return Console(file=io.StringIO(), width=100)


def run(demo: Demo, out: Path, **options: object) -> tuple[int, str]:
    console = quiet()
    status = run_demo(demo, out, workers=1, console=console, **options)  # type: ignore[arg-type]
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

    def spy(cells: list[Cell], *arguments: object, **options: object) -> object:
        ran.extend(str(cell.key) for cell in cells)
        return run_cells(cells, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(demo_module, "run_cells", spy)
    return ran


# -- what it writes -----------------------------------------------------------------------------------------------


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
        start = PROBLEMS[function](PROBLEMS[function].start(TINY.dim, TINY.seed).astype(float))
        assert float(points[0]["value"]) == pytest.approx(start, rel=1e-12)
        asks_theta = method in ("vanilla", "ZoHS", "ReLIZO")
        assert int(points[-1]["queries"]) == TINY.iterations * (TINY.queries + asks_theta)


def test_the_last_value_is_f_of_the_last_theta() -> None:
    cell = next(cell for cell in TINY.cells() if str(cell.key) == "levy, ZoAR N=6")
    curve = run_cell(cell)
    levy = zoar.problem("levy")
    options = {**cell.options, "max_iterations": cell.iterations}
    result = zoar.minimize(levy, levy.start(TINY.dim, TINY.seed), vectorized=True, seed=TINY.seed, **options)
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
    assert config["command"].startswith("zoar demo --out '")
    assert config["command"].endswith("--dim 50 --iterations 12")


def test_the_command_names_what_is_unusual() -> None:
    assert command(Demo(), Path("runs/demo")) == "zoar demo --out runs/demo"
    assert command(Demo(seed=3), Path("runs/demo")) == "zoar demo --out runs/demo --seed 3"


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
    outcome = run_cells(TINY.cells()[:2], lambda curve: None, workers=1, console=console)
    assert not outcome.failed
    assert "2 of 2" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{"dim": 1}, {"iterations": 0}, {"seed": -1}, {"queries": 1}])
def test_settings_out_of_range_get_a_sentence(options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=rf"{name} must be at least \d, got"):
        Demo(**options)


# -- the arithmetic of the table ----------------------------------------------------------------------------------


def hand_made(method: str, *values: float, function: str = "quadratic") -> Curve:
    points = tuple(Point(100 * i, 1000 * i, value) for i, value in enumerate(values))
    return Curve(Key("demo", function, "adamm", method, 0), points, ms_per_iteration=1.5)


def test_speed_up_is_vanillas_iterations_over_the_methods() -> None:
    vanilla = hand_made("vanilla", 10, 9, 8, 7, 6)
    fast, never = hand_made("fast", 10, 6, 7, 5, 4), hand_made("never", 10, 9, 9, 8, 6.5)
    table = {row.key.method: row for row in summarise([vanilla, fast, never], "vanilla")}
    assert (table["vanilla"].iterations, table["vanilla"].speed_up) == (400, 1.0)
    assert (table["fast"].iterations, table["fast"].speed_up) == (100, 4.0)
    assert (table["never"].iterations, table["never"].speed_up) == (None, None)
    assert (table["fast"].final, table["fast"].queries, table["fast"].ms_per_iteration) == (4, 4000, 1.5)
    shown = {column.title: column.text(table["never"]) for column in columns("vanilla")}
    assert shown == {
        "final value": "6.500", "iterations to match vanilla": "-", "speed-up": "-", "ms per iteration": "1.50",
    }  # fmt: skip


def test_a_vanilla_that_stands_still_lends_nobody_a_speed_up() -> None:
    vanilla, same = hand_made("vanilla", 10, 6, 7, 7, 6), hand_made("same", 10, 6, 5, 5, 5)
    assert summarise([vanilla, same], "vanilla")[1].speed_up == 1.0


def test_a_vanilla_that_ends_above_its_start_gives_no_ratio() -> None:
    assert [row.speed_up for row in summarise([hand_made("vanilla", 5, 6), hand_made("fast", 5, 1)], "vanilla")] == [
        None,
        None,
    ]


def test_functions_are_compared_each_with_its_own_vanilla() -> None:
    curves = [hand_made("vanilla", 9, 5, 3), hand_made("fast", 9, 3, 1)]
    others = [hand_made("fast", 9, 8, 7, function="levy")]
    assert [row.speed_up for row in summarise(curves + others, "vanilla")] == [1.0, 2.0, None]


def test_the_best_of_a_column_is_the_least_but_of_speed_ups_the_greatest() -> None:
    table = summarise([hand_made("vanilla", 9, 5, 3), hand_made("fast", 9, 3, 1)], "vanilla")
    assert [column.best(table) for column in columns("vanilla")] == [
        [False, True],
        [False, True],
        [False, True],
        [False, False],
    ]


def test_the_sentence_of_findings_says_where_it_does_not_hold() -> None:
    curves = [hand_made("vanilla", 9, 5, 3), hand_made("ZoAR N=6", 9, 3, 1)]
    curves += [hand_made("vanilla", 9, 5, 3, function="levy"), hand_made("ZoAR N=6", 9, 8, 7, function="levy")]
    (sentence,) = findings(summarise(curves, "vanilla"), "vanilla")
    assert sentence == "ZoAR N=6 reaches vanilla's final value 2.0 times sooner on 1 of 2 functions."
    assert findings([], "vanilla") == []


def test_evaluating_the_curve_is_charged_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    nap = 0.03

    def slow_for_the_curve(x: object) -> object:
        if x.ndim == 1:  # type: ignore[attr-defined]  # queries come in batches
            time.sleep(nap)
        return zoar.problem("quadratic").function(x)

    monkeypatch.setitem(PROBLEMS, "slow", Problem("slow", slow_for_the_curve, minimizer=0.0))
    cell = Cell(Key("demo", "slow", "adamm", "vanilla", 0), 50, 20, 1, {"method": "vanilla", "queries": 10})
    curve = run_cell(cell)
    assert curve.ms_per_iteration < 1e3 * nap / 2
    assert curve.points[-1].queries == 20 * 11


# -- what it keeps ------------------------------------------------------------------------------------------------


def test_a_second_run_runs_nothing_and_writes_the_same(copy: Path, asked: list[str]) -> None:
    before = {name: (copy / name).read_bytes() for name in FILES}
    status, text = run(TINY, copy)
    assert (status, asked) == (0, [])
    assert "24 of 24 runs are in" in text
    after = {name: (copy / name).read_bytes() for name in FILES}
    different = [name for name in FILES if before[name] != after[name]]
    assert set(different) <= {"index.html"}  # the page quotes the command, and this folder has another name


@pytest.mark.parametrize("name", ["curves.csv", "summary.csv"])
def test_a_run_that_is_not_whole_is_run_again(copy: Path, asked: list[str], name: str) -> None:
    whole = (copy / name).read_text()
    last = next(reversed([line for line in whole.splitlines() if ",ackley,adamm,ZoHS," in line]))
    (copy / name).write_text(whole.replace(last + "\n", ""))
    assert run(TINY, copy)[0] == 0
    assert asked == ["ackley, ZoHS"]
    if name == "curves.csv":  # summary.csv has a time in it
        assert (copy / name).read_text() == whole


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
        ({"config.json": '{"model_type": "opt"}'}, "config.json was not written by `zoar demo`"),
        ({"config.json": '{"study": '}, "config.json is not JSON"),
        ({"index.html": "<p>mine</p>"}, "holds index.html but no config.json"),
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
    with pytest.raises(Refused, match=r"curves\.csv is not a table that `zoar demo` wrote .*--force to replace it"):
        run(TINY, copy)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="file is a file; --out takes a folder"):
        run(TINY, tmp_path / "file")


# -- when it does not go well ---------------------------------------------------------------------------------------


def _work(monkeypatch: pytest.MonkeyPatch, work: object) -> None:
    monkeypatch.setattr(demo_module, "run_cells", lambda *args, **options: run_cells(*args, **options, work=work))


def test_an_interrupted_demo_keeps_what_is_done_and_goes_on(
    tmp_path: Path, made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(CELLS))

    def interrupted(cell: Cell, report: Report) -> Curve:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return run_cell(cell, report)

    with monkeypatch.context() as patch:
        _work(patch, interrupted)
        status, text = run(TINY, tmp_path)
    assert status == 130
    assert "Interrupted. 8 of 24 runs are done and kept; the same command goes on from there." in text
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert "This demo is unfinished: 16 of its runs are missing." in (tmp_path / "index.html").read_text()
    status, text = run(TINY, tmp_path)
    assert status == 0
    assert "8 of 24 runs are in" in text
    assert (tmp_path / "curves.csv").read_bytes() == (made[0] / "curves.csv").read_bytes()


def test_a_run_that_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(cell: Cell, report: Report) -> Curve:
        if str(cell.key) == "levy, vanilla":
            raise RuntimeError("no [bold] memory")
        return run_cell(cell, report)

    _work(monkeypatch, failing)
    status, text = run(TINY, tmp_path)
    assert status == 1
    assert "Failed: levy, vanilla: RuntimeError: no [bold] memory" in text
    table = rows(tmp_path / "summary.csv")
    assert len(table) == CELLS - 1
    assert all((row["speed_up"] == "") == (row["function"] == "levy") for row in table)


def test_nothing_done_writes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(cell: Cell, report: Report) -> Curve:
        raise KeyboardInterrupt

    _work(monkeypatch, never)
    assert run(TINY, tmp_path / "out")[0] == 130
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
    assert run_demo(TINY, tmp_path, workers=2, console=quiet()) == 0
    assert (tmp_path / "curves.csv").read_bytes() == (made[0] / "curves.csv").read_bytes()


# -- plots ----------------------------------------------------------------------------------------------------------


def test_labels_are_spread_as_little_as_needed() -> None:
    random = np.random.Generator(np.random.PCG64(0))
    for _ in range(200):
        places, gap = random.uniform(0, 1, 6) ** 3, 0.12
        spread = np.array(plots.spread(list(places), gap, 0.0, 1.0))
        order = np.argsort(places)
        assert (np.diff(spread[order]) >= gap - 1e-12).all()
        assert spread.min() >= -1e-12
        assert spread.max() <= 1 + 1e-12
    assert plots.spread([0.1, 0.9, 0.5], 0.2, 0.0, 1.0) == pytest.approx([0.1, 0.9, 0.5])
    assert plots.spread([], 0.2, 0.0, 1.0) == []


@pytest.mark.parametrize("values", [[5.0, 5.0], [3.0, 0.0], [1e6, 1e-9], [4e6, 3.9e6], [7.0, 2.0]])
def test_any_curve_can_be_drawn(values: list[float]) -> None:
    panels = plots.panels([hand_made("vanilla", *values)])
    drawing = plots.svg(plots.figure(panels, STYLES), text=True)
    assert "vanilla" in drawing
    assert drawing == plots.svg(plots.figure(panels, STYLES), text=True)


def test_several_seeds_are_drawn_as_their_mean_and_range() -> None:
    curves = [hand_made("vanilla", 10, 6), hand_made("vanilla", 10, 4)]
    (line,) = plots.panels(curves)[0].lines
    assert line.low is not None
    assert line.high is not None
    assert (line.y.tolist(), line.low.tolist(), line.high.tolist()) == ([10, 5], [10, 4], [10, 6])


# -- the page -------------------------------------------------------------------------------------------------------


class _Reader(HTMLParser):
    """Every address and id on a page, and whether each tag is closed."""

    VOID = ("meta", "link", "br", "img", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.addresses.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_refers_to_nothing_outside_itself(made: tuple[Path, str]) -> None:
    text = (made[0] / "index.html").read_text()
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.addresses
    assert all(address.startswith("#") or address == "data:," for address in reader.addresses)
    assert {address[1:] for address in reader.addresses if address.startswith("#")} <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r"https?://|@import|<script|url\((?!#)", text)
    assert text.count('<svg role="img"') == len(PROBLEMS)


def test_the_page_says_what_was_run(made: tuple[Path, str]) -> None:
    text = (made[0] / "index.html").read_text()
    for words in (
        "<title>Minimising without gradients",
        "How to read this",
        "zoar demo --out",
        "AdaMM(betas=(0.9, 0.999)",
        zoar.__version__,
    ):
        assert words in text
    assert text.count("<tbody>") == len(PROBLEMS) + 2
    assert "<strong>" in text


def test_what_is_text_stays_text() -> None:
    text = page(
        "a < b",
        ["<script>"],
        [Section("`x` & y", [Text(["<b>"]), Code("if a < b:"), Points(["<i>"]), Table(["<u>"], {"": [["<s>"]]})])],
    )
    assert not re.search("<(script|b|i|u|s)>", text)
    assert "<h2><code>x</code> &amp; y</h2>" in text


def test_the_snippet_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(SNIPPET, names)
    assert names["result"].fun < 0.1  # type: ignore[attr-defined]
    assert "iterations" in capsys.readouterr().out or True


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@pytest.mark.skipif(_chromium() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("scheme", "paper"), [("light", 255), ("dark", 20)])
def test_the_page_renders_in_light_and_dark(made: tuple[Path, str], tmp_path: Path, scheme: str, paper: int) -> None:
    from matplotlib.image import imread

    shot = tmp_path / "page.png"
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --window-size=1200,900"
    flags += f" --blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    subprocess.run(
        [str(_chromium()), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={shot}", (made[0] / "index.html").as_uri()],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    pixels = np.rint(255 * imread(shot)[..., :3])
    assert pixels.shape == (900, 1200, 3)
    assert pixels[5, 5, 0] == paper
    blue = np.array([0x2B, 0x8F, 0xD1] if scheme == "dark" else [0x00, 0x72, 0xB2])  # the line of ZoAR N=6
    assert (np.abs(pixels - blue).max(-1) < 8).sum() > 100
