"""The `zoar` command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zoar
from zoar import cli
from zoar.baselines import BASELINES
from zoar.estimators import ESTIMATORS
from zoar.smoothing import SMOOTHINGS
from zoar.study.descent import Demo, Synthetic
from zoar.study.registry import STUDIES
from zoar.study.study import Study
from zoar.updates import UPDATES


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert "usage: zoar" in text
    assert "demo" in text
    assert "methods" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"zoar {zoar.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dmo"], "invalid choice: 'dmo' (choose from"),
        (["demo", "--dim", "1"], "argument --dim: must be at least 2, got 1"),
        (["demo", "--iterations", "many"], "argument --iterations: 'many' is not a whole number"),
        (["demo", "--workers", "0"], "argument --workers: must be at least 1, got 0"),
        (["demo", "--sed", "1"], "unrecognized arguments: --sed 1"),
    ],
)
def test_a_wrong_command_line_gets_a_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert says in capsys.readouterr().err


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["dmo"])
    message = capsys.readouterr().err
    assert all(name in message for name in ("demo", "methods"))


def test_methods_lists_every_registered_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["methods"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = [words[0] for words in lines if words]
    for registry in (ESTIMATORS, UPDATES, SMOOTHINGS, BASELINES):
        assert set(registry) <= set(first)


@pytest.mark.parametrize(
    ("name", "cost"), [("zoar", ["K", "N=6"]), ("vanilla", ["K", "+", "1", "none"]), ("spsa", ["2K", "N=1"])]
)
def test_methods_says_what_a_step_costs(name: str, cost: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["methods"])
    line = next(words for line in capsys.readouterr().out.splitlines() if (words := line.split()) and words[0] == name)
    assert line[1 : 1 + len(cost)] == cost


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Study, Path, dict[str, Any]]]:
    """What was asked to run, instead of running it."""
    calls: list[tuple[Study, Path, dict[str, Any]]] = []

    def run_study(study: Study, out: Path, **options: Any) -> int:
        calls.append((study, out, {name: value for name, value in options.items() if name != "console"}))
        return 0

    monkeypatch.setattr(cli, "run_study", run_study)
    return calls


def test_demo_hands_its_options_on(ran: list[Any], tmp_path: Path) -> None:
    assert cli.main(["demo"]) == 0
    arguments = ["--dim", "10_000", "--iterations", "30", "--seed", "4", "--workers", "3", "--force"]
    assert cli.main(["demo", "--out", str(tmp_path), *arguments]) == 0
    plain = {"device": None, "workers": None, "force": False, "only": (), "command": "zoar demo --out runs/demo"}
    command = f"zoar demo --out {tmp_path} --iterations 30 --seed 4"
    assert ran == [
        (Demo(), Path("runs/demo"), plain),
        (
            Demo(iterations=30, first_seed=4),
            tmp_path,
            {"device": None, "workers": 3, "force": True, "only": (), "command": command},
        ),
    ]


def test_study_run_hands_its_options_on(ran: list[Any]) -> None:
    assert (
        cli.main(["study", "run", "synthetic", "--quick", "--update", "radazo", "--seeds", "2", "--device", "cpu"]) == 0
    )
    ((study, out, options),) = ran
    assert study == Synthetic().quick().having(update="radazo", seeds=2)
    assert out == Path("runs/synthetic")
    assert options["device"] == "cpu"
    assert (
        options["command"]
        == "zoar study run synthetic --out runs/synthetic --quick --seeds 2 --update radazo --device cpu"
    )


def test_study_list_names_every_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in STUDIES)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sythetic"], "study must be one of"),
        (["sythetic"], "Did you mean 'synthetic'?"),
        (
            ["synthetic", "--update", "adam"],
            "--update must be one of 'adamm', 'radazo'; got 'adam'. Did you mean 'adamm'?",
        ),
        (
            ["synthetic", "--images", "3"],
            "study 'synthetic' takes no --images; it takes --quick, --dim, --iterations, --seeds",
        ),
        (["synthetic", "--device", "cuda:77"], "--device cuda:77 cannot be used: "),
        (["synthetic", "--device", "gpu"], "--device gpu cannot be used: "),
        (["synthetic", "--device", "meta"], "--device meta cannot be used: "),
    ],
)
def test_a_wrong_study_gets_a_sentence(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "run", *arguments]) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1


def test_a_refused_folder_is_a_sentence_not_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.html").touch()
    assert cli.main(["demo", "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"zoar: {tmp_path} holds report.html")
    assert message.count("\n") == 1


def test_ctrl_c_anywhere_is_a_word_and_its_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_study", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "zoar: interrupted\n"


def test_the_command_starts_without_matplotlib() -> None:
    code = "import sys, zoar.cli; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
