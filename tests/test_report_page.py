"""The page of a study: whole, self-contained, and readable in a browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import zoar
from zoar.problems import PAPER
from zoar.study.ablation import Ablation
from zoar.study.descent import SNIPPET, Demo, Synthetic
from zoar.study.equivalence import Equivalence
from zoar.study.leaderboard import Leaderboard, Tuning
from zoar.study.race import OURS
from zoar.study.runner import run_study
from zoar.study.study import Study
from zoar.study.window_theory import Theory


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("demo")
    run_study(
        Demo(dim=50, iterations=12), out, command="zoar demo --out here", workers=1, console=Console(file=io.StringIO())
    )
    return out / "report.html"


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


def test_the_page_refers_to_nothing_outside_itself(html: Path) -> None:
    text = html.read_text()
    reader = _Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.addresses
    assert all(address.startswith("#") or address == "data:," for address in reader.addresses)
    assert {address[1:] for address in reader.addresses if address.startswith("#")} <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert not re.search(r"https?://|@import|<script|url\((?!#)", text)
    assert text.count('<svg role="img"') == len(PAPER)


def test_the_page_says_what_was_run(html: Path) -> None:
    text = html.read_text()
    for words in (
        "<title>Minimising without gradients",
        "How to read this",
        "zoar demo --out",
        "AdaMM(betas=(0.0, 0.99)",
        zoar.__version__,
    ):
        assert words in text
    assert text.count("<tbody>") == len(PAPER) + 3
    assert "<strong>" in text


def test_the_snippet_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    exec(SNIPPET, names)
    assert names["result"].fun < 0.1  # type: ignore[attr-defined]
    assert "Used the budget of 20000 evaluations." in capsys.readouterr().out


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


needs_chromium = pytest.mark.skipif(_chromium() is None, reason="no Chromium on this machine")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def browse(page: Path, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """What headless Chromium makes of a page."""
    return subprocess.run(
        [str(_chromium()), *_FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()],
        check=True, capture_output=True, text=True, timeout=90,
    )  # fmt: skip


def console_of(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page as the browser has it, and what it wrote on its console."""
    seen = browse(page, profile, "--enable-logging=stderr", "--dump-dom")
    return seen.stdout, [line for line in seen.stderr.splitlines() if "CONSOLE" in line]


@needs_chromium
def test_a_page_with_a_mistake_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><title>x</title><script>nothing.here()</script>")
    assert console_of(page, tmp_path / "profile")[1]


STUDIES: dict[str, Study] = {
    "demo": Demo(dim=20, iterations=10),
    "synthetic": Synthetic(dim=20, iterations=10, seeds=2),
    "ablation": Ablation(dim=20, iterations=10, seeds=2),
    "equivalence": Equivalence(dim=20, iterations=10, seeds=2, small_iterations=10),
    "theory": Theory(dim=4, rates=(1e-3, 3e-3), queries=(2, 10), windows=(1, 2), redraws=20, live_steps=20),
    "leaderboard": Leaderboard(
        dims=(100,), functions=("quadratic", "levy"), entrants=(*OURS, "Powell (SciPy)"), seeds=2
    ),
    "tuning": Tuning(dims=(100,), functions=("quadratic",), entrants=("Powell (SciPy)",)),
}


@needs_chromium
@pytest.mark.parametrize("name", STUDIES)
def test_a_report_opens_without_an_error_and_shows_every_plot_and_table(name: str, tmp_path: Path) -> None:
    study, found = STUDIES[name], {}

    class Noted(type(study)):  # type: ignore[misc]
        def report(self, curves: Any, config: Any) -> Any:
            found["findings"] = super().report(curves, config)
            return found["findings"]

    noted = Noted(**study.__dict__)
    assert (
        run_study(noted, tmp_path, command=f"zoar study run {name}", workers=1, console=Console(file=io.StringIO()))
        == 0
    )
    page, console = console_of(tmp_path / "report.html", tmp_path / "profile")
    assert console == []
    findings = found["findings"]
    panels = [panel for sheet in findings.sheets for panel in sheet.panels]
    assert page.count('<svg role="img"') == len(panels)
    assert page.count("<svg") == page.count("</svg>")
    for title in (*(sheet.title for sheet in findings.sheets), *findings.grids):
        assert re.search(rf"<h2[^>]*>{re.escape(title)}</h2>", page), title
    bodies = sum(len(grid.groups()) for grid in findings.grids.values())
    assert page.count("<tbody>") >= bodies > 0
    for sheet in findings.sheets:
        for kind in ("png", "svg"):
            assert (tmp_path / f"{sheet.name}.{kind}").stat().st_size > 2_000


@needs_chromium
@pytest.mark.parametrize(("scheme", "paper"), [("light", 255), ("dark", 20)])
def test_the_page_renders_in_light_and_dark(html: Path, tmp_path: Path, scheme: str, paper: int) -> None:
    from matplotlib.image import imread

    shot, dark = tmp_path / "page.png", scheme == "dark"
    browse(
        html, tmp_path / "profile", "--window-size=1200,900", f"--screenshot={shot}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    )  # fmt: skip
    pixels = np.rint(255 * imread(shot)[..., :3])
    assert pixels.shape == (900, 1200, 3)
    assert pixels[5, 5, 0] == paper
    blue = np.array([0x2B, 0x8F, 0xD1] if dark else [0x00, 0x72, 0xB2])  # the line of ZoAR N=6
    assert (np.abs(pixels - blue).max(-1) < 8).sum() > 100
