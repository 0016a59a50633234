"""The convergence theorem (Thm conv-zoo-formal) as numbers: the rates it asks for, its constants, its right-hand side.

The formulas are as printed, with V and the drifts in the scale of the run: `"paper"` is the text's V, though its bound on |g|
(Eq. abs_nabla_f) has the d of ours. They show how the terms compare and are no promise:

* an eta is lost in Eq. termII_RHS and so stays in 1 - beta2, and twice in T: as printed these are O(eps^4) and O(eps^-6), where the
  theorem says O(eps^2) and O(eps^-4). The second entry of T lacks its factor F_mu(x_0) - E F_mu(x_T);
* B_1, Xi and B_2 hold 1/(1 - beta2), and G holds V: the right-hand side grows as eps shrinks;
* 1/(1 - sqrt(beta2)) <= 1/(1 - beta2), used twice for Term I, is wrong by up to 2;
* Eq. m_var_2 (a) takes the errors of successive estimates for independent, but overlapping windows share queries;
* what `zoar.theory` says of the bias-variance bound, which the proof builds on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from zoar.theory import Constants, Run, check_fraction, check_positive, stride_bound


def momentum_lag(window: int, beta1: float) -> float:
    """C_N of Lemma m_var: 1 for N = 1, growing with the window N.

    beta1 (1 + beta1)/(1 - beta1)^3 C_N = sum_s beta1^s mean_{n<N} (s + n)^2: how old, squared, what the momentum holds is.

    >>> round(momentum_lag(1, 0.9), 12), round(momentum_lag(6, 0.9), 3)
    (1.0, 1.317)
    """
    check_positive(window=window)
    check_fraction(beta1=beta1)
    n, b = window, beta1
    return (2 * (1 - b) ** 2 * n**2 - 3 * (1 - b) * (1 - 3 * b) * n - b * (2 - 13 * b) + 1) / (6 * b * (1 + b))


@dataclass(frozen=True)
class Convergence:
    """Thm conv-zoo-formal in its own letters: at these rates mean_t E|grad F(theta_t)| <= bound over T steps."""

    lr: float
    one_minus_beta2: float
    T: float
    C_N: float
    V: float
    B_1: float
    Xi: float
    G: float
    B_2: float
    bound: float


def convergence_constants(
    constants: Constants, run: Run, epsilon: float, *, beta1: float = 0.9, zeta: float = 1e-8, v0: Any = 1.0
) -> Convergence:
    """What Thm conv-zoo-formal asks of R-AdaZO for an accuracy `epsilon`, its constants, and its right-hand side.

    `v0` > 0 is the second moment at the start, one number or one for each dimension (the library starts at 0). eta and
    1 - beta2 are given through each other, and T through itself: both are solved for.

    >>> known = Constants(L0=1.0, L1=1.0, sigma_mu=0.1, C=1.0, G_mu=1.0)
    >>> found = convergence_constants(known, Run(dim=4, queries=10, window=1, radius=0.1), epsilon=0.1)
    >>> round(found.V, 6), round(found.C_N, 6), found.lr < 1e-6, found.T > 1e12
    (1.6, 1.0, True, True)
    """
    d, mu, b = run.dim, run.radius, beta1
    L1, C, G_mu = constants.L1, constants.C, constants.G_mu
    check_positive(epsilon=epsilon, zeta=zeta, L1=L1, C=C, G_mu=G_mu)
    lag, second = momentum_lag(run.window, b), np.broadcast_to(np.asarray(v0, float), d)
    if not (np.all(second > 0) and np.all(np.isfinite(second))):
        raise ValueError(f"v0 must be finite and above 0, got {v0!r}")

    def one_minus_kappa(x: float) -> float:  # kappa = beta1 / sqrt(beta2), x = 1 - beta2
        return 1 - b / math.sqrt(1 - x)

    def eta(x: float) -> float:
        return (1 - b) * one_minus_kappa(x) * epsilon**2 / (128 * L1 * d * math.sqrt(d))

    # 1 - beta2 is the lesser of two numbers, the first of which falls to 0 as beta2 falls to beta1^2.
    per_eta = (1 - b) ** 2 * mu**2 * math.sqrt(zeta) * epsilon**2 / (64 * C**2 * d**3)
    limit = (1 - b) ** 2 * epsilon**2 / (4 * b**2 * d * math.sqrt(zeta))
    x = _root(lambda x: min(per_eta * eta(x), limit) - x, min(0.5, 1 - b**2))
    if x >= 0.5:
        raise ValueError(
            f"epsilon={epsilon:g} asks for 1 - beta2 = {x:g}, and the theorem for beta2 > 1/2: take a smaller epsilon"
        )
    lr, left = eta(x), one_minus_kappa(x)

    def logs(steps: float) -> float:
        return float(np.sum(np.log(math.exp(steps * math.log1p(-x)) + 4 * C**2 * d**2 / (mu**2 * second))))

    growth = 64 * L1 * math.sqrt(d) * lr / ((1 - b) * left * x * epsilon**2)
    entries = (
        64 * C**2 * d**3 / ((1 - b) ** 2 * mu**2 * lr * math.sqrt(zeta) * lr * epsilon**2),
        8 * left / ((1 - b) * lr * epsilon**2),
        _root(lambda steps: growth * logs(steps) - steps, growth * logs(0.0)),
    )
    error = stride_bound(constants, run, lr * math.sqrt(d / x), printed=True)
    spread = 2 * (1 + b) * (1 - b) ** 2 * (1 - x) / ((1 - x - b**2) * x)
    lagging = 2 * b * (1 + b) ** 2 / ((1 - b) ** 2 * x) * L1**2 * lr**2 * d**2 * lag
    B_1 = math.sqrt(d * (1 - x) * float(np.linalg.norm(second)) + lagging) + math.sqrt(spread * error.baseline_drift)
    Xi = B_1 + math.sqrt(spread * error.variance)
    G = 2 * G_mu / math.sqrt(zeta) * math.sqrt(d * error.total)
    slow, fast = math.sqrt(2 / (b * x)) * (1 + b), zeta**0.25 + math.sqrt(Xi)
    B_2 = slow * G + fast * math.sqrt(G)
    bound = slow * epsilon**2 + fast * epsilon + mu * L1 * math.sqrt(d) + B_2
    return Convergence(lr, x, max(entries), lag, error.variance, B_1, Xi, G, B_2, bound)


def _root(falling: Callable[[float], float], high: float) -> float:
    """Where a falling function crosses 0 between 0 and `high`: halving ends at two neighbouring numbers, however small."""
    low = 0.0
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high
