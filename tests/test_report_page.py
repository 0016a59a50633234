"""The page of a study: whole, self-contained, and readable in a browser."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import zoar
from zoar.problems import PAPER
from zoar.study.descent import SNIPPET, Demo
from zoar.study.runner import run_study


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


@pytest.mark.skipif(_chromium() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize(("scheme", "paper"), [("light", 255), ("dark", 20)])
def test_the_page_renders_in_light_and_dark(html: Path, tmp_path: Path, scheme: str, paper: int) -> None:
    from matplotlib.image import imread

    shot = tmp_path / "page.png"
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --window-size=1200,900"
    flags += f" --blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    subprocess.run(
        [str(_chromium()), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={shot}", html.as_uri()],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    pixels = np.rint(255 * imread(shot)[..., :3])
    assert pixels.shape == (900, 1200, 3)
    assert pixels[5, 5, 0] == paper
    blue = np.array([0x2B, 0x8F, 0xD1] if scheme == "dark" else [0x00, 0x72, 0xB2])  # the line of ZoAR N=6
    assert (np.abs(pixels - blue).max(-1) < 8).sum() > 100
