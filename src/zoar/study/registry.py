"""The studies by name."""

from __future__ import annotations

from zoar.study.descent import Demo, Synthetic
from zoar.study.study import Study

STUDIES: dict[str, type[Study]] = {study.name: study for study in (Demo, Synthetic)}
