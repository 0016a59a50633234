"""The study `attack`, on a network of one layer and images of sixteen pixels."""

from __future__ import annotations

import csv
import io
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import zoar
from zoar import cli
from zoar.study import attack_victim, cnn, mnist, plots
from zoar.study.attack import Attack, Attempt, run_attempts
from zoar.study.attack_report import STYLES, details, panels, table
from zoar.study.attack_scores import Score, score
from zoar.study.attack_victim import Objective, Victim
from zoar.study.curves import Curve, Key, Point
from zoar.study.folder import Refused
from zoar.study.mnist import Mnist
from zoar.study.runner import run_study

PIXELS = 16
REAL_VICTIM = attack_victim.victim.__wrapped__  # uncached


class Linear(torch.nn.Module):
    """Scores are products with ten random vectors."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.randn(10, PIXELS, generator=torch.Generator().manual_seed(0))
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(images @ self.weights.T, -1)


def a_victim() -> Victim:
    """Six images; the network is wrong about number 3."""
    network = Linear()
    images = torch.rand(6, PIXELS, generator=torch.Generator().manual_seed(1))
    labels = network(images).argmax(-1)
    labels[3] = (labels[3] + 5) % 10
    return Victim(network, 0.99, "0123456789abcdef", images, labels)


@pytest.fixture(autouse=True)
def victim(monkeypatch: pytest.MonkeyPatch) -> Victim:
    made = a_victim()
    monkeypatch.setattr(attack_victim, "victim", lambda: made)
    return made


TINY = Attack(images=5, seeds=2, iterations=60, epsilon=0.5)


def attempts(study: Attack, method: str = "ZoAR N=6", update: str = "adamm") -> list[Attempt]:
    return [
        cell
        for cell in study.cells()
        if isinstance(cell, Attempt) and (cell.key.method, cell.key.update) == (method, update)
    ]


def run_all(study: Attack, method: str = "ZoAR N=6", look_every: int | None = None) -> list[Curve]:
    these = attempts(study, method)
    return run_attempts(these, study.objective([one.image for one in these]), look_every=look_every)


# -- what is attacked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipped", [True, False])
def test_f_is_the_margin_of_the_clamped_perturbation(victim: Victim, clipped: bool) -> None:
    f = Objective.of(victim, [0, 4], 0.3, clipped, None)
    theta = torch.randn(2, 3, PIXELS, generator=torch.Generator().manual_seed(2))
    values = f(theta)
    assert values.shape == (2, 3)
    for row, image in enumerate((0, 4)):
        target = int(victim.labels[image] + 1) % 10
        for query in range(3):
            attacked = victim.images[image] + theta[row, query].clamp(-0.3, 0.3)
            log_p = victim.network(attacked.clamp(0, 1) if clipped else attacked)
            others = torch.cat([log_p[:target], log_p[target + 1 :]])
            assert float(values[row, query]) == pytest.approx(float(others.max() - log_p[target]), rel=1e-5, abs=1e-5)
    torch.testing.assert_close(f(theta[:, 1]), values[:, 1])
    torch.testing.assert_close(f.keep(torch.tensor([False, True]))(theta[1:]), values[1:])


def test_the_white_box_attack_is_not_held_by_the_clamps() -> None:
    """Pixel 0 is black and has to become brighter, pixel 1 white and darker: the best is at the corner (epsilon, 1 - epsilon)."""
    weights = torch.zeros(10, 2)
    weights[1] = torch.tensor([1.0, -1.0])
    network = Linear()
    network.weights = torch.nn.Parameter(weights, requires_grad=False)
    f = Objective(network, torch.tensor([[0.0, 1.0]]), torch.tensor([1]), 0.2, True)
    assert float(f.white_box()) == pytest.approx(float(f(torch.tensor([[0.2, -0.2]]))), abs=1e-3)
    assert float(replace(f, targets=torch.tensor([0])).white_box()) == pytest.approx(0.0, abs=1e-6)


def test_images_that_the_network_gets_wrong_are_left_out_and_named() -> None:
    assert {cell.image for cell in attempts(TINY)} == {0, 1, 2, 4}
    assert TINY.settings()["images_left_out"] == [3]
    assert TINY.having(images=3).settings()["images_left_out"] == "none"
    assert TINY.settings()["network_sha256"] == "0123456789ab"


def test_theta_0_is_the_same_for_all_methods_and_another_for_each_image_and_seed() -> None:
    starts = {cell.key: cell.start() for cell in TINY.cells()}
    first = {(key.function, key.seed): start for key, start in starts.items()}
    assert all(torch.equal(start, first[key.function, key.seed]) for key, start in starts.items())
    assert len({tuple(start.tolist()) for start in first.values()}) == 4 * 2
    assert all(float(start.abs().max()) == 0.5 for start in first.values())
    free = attempts(TINY.having(start="free"))[0].start()
    assert float(free.abs().max()) > 0.5
    assert torch.equal(free.clamp(-0.5, 0.5), attempts(TINY)[0].start())


# -- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vanilla", "ZoHS", "ZoAR N=1", "ZoAR N=6"])
def test_runs_end_at_their_first_success_as_one_optimizer_after_another_would(victim: Victim, method: str) -> None:
    """The twin is zoar.Optimizer, which works with vectors where many runs work with matrices; both round in float32."""
    study = TINY.having(iterations=25)
    curves = run_all(study, method)
    assert any(curve.final < 0 for curve in curves)
    assert any(curve.final >= 0 for curve in curves)
    for attempt, curve in zip(attempts(study, method), curves, strict=True):
        f = study.objective([attempt.image])
        optimizer = zoar.Optimizer(
            attempt.start(), seed=attempt.seed, stream="philox", max_iterations=study.iterations, **attempt.options
        )
        value = float(f(optimizer.x[None]))
        while value >= 0 and not optimizer.stop():
            batch = optimizer.ask()
            optimizer.tell(batch.ids, f(batch.points[None])[0])
            value = float(f(optimizer.x[None]))
        last = curve.points[-1]
        assert (last.iteration, last.queries) == (optimizer.nit, optimizer.nfev)
        assert last.value == pytest.approx(value, abs=1e-3)
        assert [point.iteration for point in curve.points[:-1]] == list(range(0, last.iteration, study.every))


def test_to_look_every_ten_steps_changes_no_number() -> None:
    seldom, always = run_all(TINY, look_every=10), run_all(TINY)
    for one, other in zip(seldom, always, strict=True):
        assert [point[:2] for point in one.points] == [point[:2] for point in other.points]
        assert one.final == pytest.approx(other.final, abs=1e-5)  # matrices of other shapes round otherwise


def test_an_early_success_and_a_late_failure_are_finished_and_half_a_run_is_not() -> None:
    cell = TINY.cells()[0]

    def finished(*points: Point) -> bool:
        return TINY.finished(cell, Curve(cell.key, points, 1.0))

    start = Point(0, 0, 2.0)
    assert finished(start, Point(7, 14, -0.1))
    assert finished(start, Point(60, 120, 0.5))
    assert finished(start, Point(60, 120, 0.0))
    assert not finished(start, Point(20, 40, 0.5))


# -- the numbers ------------------------------------------------------------------------------------------------------


def hand_made(method: str, image: int, seed: int, iterations: int | None, cost: int = 2) -> Curve:
    end = Point(1000, 1000 * cost, 0.5) if iterations is None else Point(iterations, iterations * cost, -0.1)
    return Curve(Key("attack", f"image {image}: 2 to 3", "adamm", method, seed), (Point(0, 0, 3.0), end), 1.0)


def hand_made_scores() -> list[Score]:
    vanilla = [hand_made("vanilla", image, 0, n, cost=3) for image, n in enumerate((400, 600, None, None))]
    fast = [hand_made("ZoAR N=6", image, 0, n) for image, n in enumerate((100, 100, 800, None))]
    return score([*vanilla, *fast], 1000)


def test_speed_up_is_over_the_pairs_and_over_all_with_failures_charged() -> None:
    vanilla, fast = hand_made_scores()
    assert (vanilla.speed_up(), vanilla.speed_up_charged()) == (1.0, 1.0)
    assert (fast.successes, fast.average, fast.middle) == ([100, 100, 800], pytest.approx(1000 / 3), 100)
    assert fast.charged == 500
    assert len(fast.pairs()) == 2
    assert fast.speed_up() == 1000 / 200
    assert fast.speed_up_charged() == 3000 / 2000
    assert (vanilla.cost, fast.cost) == (3, 2)
    low, high = fast.interval() or (0, 0)
    assert (low, high) == (4, 6)  # images drawn anew: both the first, or both the second
    assert vanilla.interval() is None


def test_where_nothing_succeeds_there_is_no_speed_up() -> None:
    none = score([hand_made("vanilla", 1, 0, None), hand_made("ZoHS", 1, 0, None)], 1000)[1]
    assert (none.average, none.middle, none.speed_up(), none.interval()) == (None, None, None, None)
    assert (none.charged, none.speed_up_charged()) == (1000, 1.0)
    assert score([hand_made("ZoHS", 1, 0, 10)], 1000)[0].speed_up_charged() is None  # vanilla is not there yet


def test_failures_are_counted_and_those_out_of_white_box_reach_apart() -> None:
    grid = table(hand_made_scores(), ["image 0: 2 to 3", "image 2: 2 to 3"], "")
    row = dict(zip([column.name for column in grid.columns], grid.rows[1], strict=True))
    assert (row["images"], row["seeds"], row["runs"], row["successes"], row["failures"]) == (4, 1, 4, 3, 1)
    assert (row["runs_in_white_box_reach"], row["successes_in_white_box_reach"]) == (2, 2)
    assert (row["iterations_mean_charged"], row["queries_median"], row["paper_speed_up"]) == (500, 200, 5.92)
    assert details(hand_made_scores(), ["image 3: 2 to 3"]).rows[1][2:4] == ["3 of 4", "0 of 1"]


def test_the_figure_shows_the_share_that_has_succeeded() -> None:
    (panel,) = panels(hand_made_scores(), ["image 0: 2 to 3"])
    assert not panel.log
    lines = {line.label: line for line in panel.lines}
    vanilla = lines["vanilla"]
    shares = [float(vanilla.y[np.searchsorted(vanilla.x, at)]) for at in (0, 400, 600, 1000)]
    assert shares == [0, 0.25, 0.5, 0.5]
    assert lines["white-box"].y.tolist() == [0.25, 0.25]
    text = plots.svg(plots.figure([panel], STYLES), text=True)
    assert all(f">{tick}%<" in text for tick in (0, 25, 50, 75, 100))


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_study_runs_resumes_and_says_what_it_found(tmp_path: Path) -> None:
    study, out = TINY.having(iterations=40), tmp_path / "out"
    console = Console(file=io.StringIO(), width=80)
    assert run_study(study, out, command="zoar study run attack", workers=1, console=console) == 0
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "ZO-AdaMM ZoAR N=6, 8 runs" in text
    assert "…" not in text  # the table fits into 80 columns
    assert {"attack.png", "attack.svg", "summary.csv", "the_paper_s_image.csv"} <= {path.name for path in out.iterdir()}
    with (out / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["update"], row["method"]) for row in rows] == [
        (rule, method) for rule in ("R-AdaZO", "ZO-AdaMM") for method in study.methods()
    ]
    assert all(int(row["successes"]) + int(row["failures"]) == 4 * 2 for row in rows)
    assert json.loads((out / "config.json").read_text())["settings"]["network_accuracy"] == 0.99
    page = (out / "report.html").read_text()
    assert "test images 3." in page
    assert "Test image 1: " in page
    before = (out / "curves.csv").read_bytes()
    assert run_study(study, out, command="zoar study run attack", workers=1, console=console) == 0
    assert "64 of 64 runs are in" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (out / "curves.csv").read_bytes() == before


def test_one_rule_alone() -> None:
    assert {cell.key.update for cell in TINY.having(update="radazo").cells()} == {"radazo"}
    assert [cell.key.update for cell in TINY.cells()].index("adamm") == len(TINY.cells()) // 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"images": 0}, "images must be at least 1, got 0"),
        ({"images": 10_001}, "images must be at most 10,000, MNIST's test images; got 10,001"),
        ({"epsilon": 0.0}, "epsilon must be above 0, got 0.0"),
        ({"pixels": "clip"}, "pixels must be one of 'clipped', 'free'; got 'clip'. Did you mean 'clipped'?"),
        ({"start": "zero"}, "start must be one of"),
        ({"update": "adam"}, "update must be one of 'both',"),
    ],
)
def test_settings_out_of_range_get_a_sentence(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        Attack(**options)  # type: ignore[arg-type]


def test_the_command_takes_pixels(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["study", "run", "attack", "--pixels", "clip"]) == 2
    assert "--pixels must be one of 'clipped', 'free'; got 'clip'" in capsys.readouterr().err
    assert cli.main(["study", "run", "synthetic", "--pixels", "free"]) == 2
    assert "takes no --pixels; it takes --quick, --dim" in capsys.readouterr().err


# -- the data ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(mnist.VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def test_without_mnist_there_is_a_sentence_with_what_to_do(nowhere: Path) -> None:
    with pytest.raises(Refused, match="Run `make mnist`"):
        REAL_VICTIM()


def test_the_test_images_and_the_kept_network_are_enough(nowhere: Path) -> None:
    random = np.random.Generator(np.random.PCG64(0))
    images, labels = random.integers(0, 256, (30, 28, 28)), np.arange(30) % 10
    folder = nowhere / "data" / "mnist"
    folder.mkdir(parents=True)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    test = mnist.read_test(check=False)
    assert test[0].shape == (30, 784)
    with pytest.raises(Refused, match="neither"):
        mnist.read()
    data, kept = Mnist(*test, *test, digests={"made": "up"}), nowhere / "network"
    training = cnn.Training(epochs=1, batch=30)
    assert cnn.load(kept, data.digests, training) is None
    network, accuracy = cnn.load_or_train(kept, data, training, console=Console(file=io.StringIO()))
    loaded = cnn.load(kept, data.digests, training)
    assert loaded is not None
    assert loaded[1] == accuracy
    assert cnn.digest(loaded[0].state_dict()) == cnn.digest(network.state_dict())
