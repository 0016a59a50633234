"""The examples run as their first lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zoar.study import mnist
from zoar.study.folder import Refused

ROOT = Path(__file__).parents[1]


def test_a_service_is_attacked_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        mnist.find()
    except Refused:
        pytest.skip("MNIST is not here: make mnist")
    picture = tmp_path / "picture.png"
    options = ["--images", "3", "--epsilon", "0.4", "--max-queries", "400", "--out", str(picture)]
    run = subprocess.run(
        [sys.executable, "examples/attack_http.py", *options], capture_output=True, text=True, timeout=300, check=True
    )
    said = re.search(r"(\d) of 3 images succeed", run.stdout)
    assert said is not None, run.stdout
    assert int(said[1]) > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
