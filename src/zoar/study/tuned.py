"""The outcome of `zoar study run tuning`: the setting of every method at each dimension of the leaderboard."""

from __future__ import annotations

from zoar.study.race import OURS
from zoar.study.rivals import RIVALS

_DEFAULTS = {
    **{name: next(iter(settings)) for name, settings in OURS.items()},
    **{name: next(iter(rival.settings)) for name, rival in RIVALS.items()},
}

TUNED: dict[int, dict[str, str]] = {100: {**_DEFAULTS}, 1_000: {**_DEFAULTS}, 10_000: {**_DEFAULTS}}
