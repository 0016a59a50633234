"""The studies by name."""

from __future__ import annotations

from zoar.study.ablation import Ablation
from zoar.study.attack import Attack
from zoar.study.descent import Demo, Synthetic
from zoar.study.equivalence import Equivalence
from zoar.study.leaderboard import Leaderboard, Tuning
from zoar.study.study import Study
from zoar.study.window_theory import Theory

STUDIES: dict[str, type[Study]] = {
    study.name: study for study in (Demo, Synthetic, Leaderboard, Tuning, Ablation, Equivalence, Theory, Attack)
}
