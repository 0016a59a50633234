"""The outcome of `zoar study run tuning`: the setting of every rival at each dimension of the leaderboard; ours have one."""

from __future__ import annotations

from zoar.study.race import OURS

_OURS = {name: next(iter(settings)) for name, settings in OURS.items()}

TUNED: dict[int, dict[str, str]] = {
    100: {
        **_OURS,
        "sep-CMA-ES (pycma)": "popsize 60, sigma0 0.5",
        "VD-CMA (pycma)": "default popsize, sigma0 0.2",
        "R1-ES (pypop7)": "popsize 10, sigma 0.05",
        "LM-MA-ES (pypop7)": "default popsize, sigma 0.2",
        "SNES (evotorch)": "default popsize, stdev 0.1",
        "PGPE + ClipUp (evotorch)": "popsize 40, stdev 0.3",
        "PGPE + Adam (evotorch)": "popsize 40, stdev 0.3, lr 0.03",
        "SPSA (nevergrad)": "default",
        "TwoPointsDE (nevergrad)": "sigma 0.3",
        "Nelder-Mead (SciPy)": "adaptive, simplex 0.5",
        "Powell (SciPy)": "xtol 1e-2",
        "SPSA + Adam (torchzero)": "5 samples, h 0.3, lr 1e-2",
    },
    1_000: {
        **_OURS,
        "sep-CMA-ES (pycma)": "popsize 60, sigma0 0.5",
        "VD-CMA (pycma)": "default popsize, sigma0 0.2",
        "R1-ES (pypop7)": "default popsize, sigma 0.2",
        "LM-MA-ES (pypop7)": "popsize 60, sigma 0.5",
        "SNES (evotorch)": "popsize 40, stdev 0.2",
        "PGPE + ClipUp (evotorch)": "popsize 40, stdev 0.05",
        "PGPE + Adam (evotorch)": "popsize 40, stdev 0.3, lr 0.01",
        "SPSA (nevergrad)": "default",
        "TwoPointsDE (nevergrad)": "sigma 0.1",
        "Powell (SciPy)": "default",
        "SPSA + Adam (torchzero)": "5 samples, h 0.3, lr 1e-2",
    },
    10_000: {
        **_OURS,
        "sep-CMA-ES (pycma)": "popsize 60, sigma0 0.5",
        "VD-CMA (pycma)": "popsize 60, sigma0 0.5",
        "R1-ES (pypop7)": "default popsize, sigma 0.2",
        "LM-MA-ES (pypop7)": "default popsize, sigma 0.2",
        "SNES (evotorch)": "default popsize, stdev 0.1",
        "PGPE + ClipUp (evotorch)": "popsize 40, stdev 0.05",
        "PGPE + Adam (evotorch)": "popsize 40, stdev 0.3, lr 0.01",
        "SPSA (nevergrad)": "default",
        "TwoPointsDE (nevergrad)": "sigma 0.1",
        "Powell (SciPy)": "xtol 1e-1",
        "SPSA + Adam (torchzero)": "5 samples, h 0.3, lr 3e-3",
    },
}
