"""zoar: zeroth-order optimization, for whoever has losses and no gradients."""

from typing import Any

from zoar.baselines import Baseline
from zoar.estimators import SPSA, Estimator, Reinforce, ReLIZO, Vanilla, ZoHS
from zoar.evaluation import NonFiniteValue, QueryFailed
from zoar.minimize import minimize
from zoar.optimizer import Batch, Optimizer
from zoar.problems import PROBLEMS, Problem, noisy, problem, quantised
from zoar.recommended import recommended
from zoar.schedules import Constant, Cosine, Geometric, Linear, Schedule
from zoar.scipy_method import scipy_method
from zoar.smoothing import Coordinate, Gaussian, Rademacher, Smoothing, Sphere
from zoar.stopping import StopReason
from zoar.torch_optim import ZoAR, ZOOptimizer, replay
from zoar.updates import SGD, AdaMM, Momentum, RAdaZO, SignSGD, TorchUpdate, UpdateRule

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`zoar.theory`, `zoar.diagnostics`, `zoar.attack`: loaded when they are first named."""
    if name in ("theory", "diagnostics", "convergence", "attack"):
        import importlib

        return importlib.import_module(f"zoar.{name}")
    raise AttributeError(f"module 'zoar' has no attribute {name!r}")
