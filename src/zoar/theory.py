"""The paper's theorems as functions: what an estimate aims at, how far off it may be, how a run must converge.

Letters are the paper's (Appx. "Theoretical Analysis" and "Proofs"). Where its statements need care:

*Scale.* The bounds are proved for u uniform on the unit sphere and an estimate without the factor d, whose mean is
(1/d) grad F_mu and not grad F_mu (Flaxman et al. 2005, Lemma 2.1). Here a `Run` carries the law and the scale, and gives two
factors that are both 1 in the paper's text. A bound is on E|g - m grad F_mu(theta_{t-1})|^2, where m grad F_mu = E[g] at one
theta: for a Gaussian F_mu is F smoothed by the law, for the sphere F smoothed over the ball. For Rademacher and coordinate
directions component i of grad F_mu averages the partial derivative along a segment of u_i: the gradient of F itself for a
quadratic, and beyond a cubic the gradient of nothing (it is O(mu^2) from that of E_u F(theta + mu u)).

*The proof of the bias-variance bound* slips twice; `printed=True` gives what it prints. It bounds |sum of n steps|^2 by n, not n^2,
times the largest |step|^2, which makes the baseline drift N/2 and the gradient drift (2N - 1)/3 times too small (1 for N <= 2).
And it subtracts |mean gradient|^2 where only sum |gradient|^2 / (N^2 K) is there to subtract: Eq. f_var_2 (a) drops the cross
terms, which are products of means and not zero. (The theorem itself leaves the negative term out.)

*Given thetas.* The theorems take the window's thetas as fixed, but theta_{t-1} depends on the directions that led to it. With
the window's mean as baseline that breaks step (a) of Thm bias-analysis (newer values depend on older directions), and with any
baseline step (a) of Eq. f_var_3, whose missing cross term is of order lr. `zoar.diagnostics` measures the error with that in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from zoar.checking import choose
from zoar.smoothing import Gaussian, Smoothing, Sphere

_LARGEST_LOG = math.log(np.finfo(float).max)
_SMALLEST_LOG = math.log(np.finfo(float).tiny)

# -- Theorem 3 and its corollary: other laws as importance-weighted REINFORCE ----------------------------------------------


def log_gamma(law: Smoothing, dim: int, radius: float) -> float:
    """log gamma of Thm zoo-equiv-is: importance-weighted REINFORCE is gamma times Eq. fd, for `law` at the radius mu.

    gamma = pi(x)/p(x) at x = theta + mu u: one number, since every u of the law has one norm. The densities live on different
    sets (space, a sphere, points), so their ratio makes the estimates proportional, as the theorem says, but does not
    make either unbiased for the Gaussian policy's gradient.

    >>> round(log_gamma(Sphere(), dim=10_000, radius=0.05), 1)
    -41045.2
    """
    check_positive(dim=dim, radius=radius)
    if isinstance(law, Gaussian):
        return 0.0
    if not law.constant_norm:
        raise ValueError(f"gamma is one number only for Gaussian directions and laws of one norm, got {law}")
    # `law.log_importance_weight(u, radius)` for any u of the law, without u: the norm is known, and the log-density of such a law
    # needs only the shape, which a view of one number has at any dimension.
    u = torch.ones(1, 1, dtype=torch.float64).expand(1, dim)
    log_policy = -0.5 * law.squared_norm(dim) - 0.5 * dim * math.log(2 * math.pi * radius**2)
    return log_policy - float(law.log_density(u, radius))


def gamma(law: Smoothing, dim: int, radius: float) -> float:
    """gamma itself, while it is a floating-point number.

    >>> math.isclose(gamma(Sphere(), dim=2, radius=0.5), 2 * math.exp(-0.5))
    True
    """
    return _exp(log_gamma(law, dim, radius), f"gamma of {law} at dim={dim}, radius={radius:g}", "log_gamma")


def log_translated_lr(lr: float, law: Smoothing, dim: int, radius: float, scale: str = "paper") -> float:
    """log of `translate_lr`, at any dimension."""
    check_positive(lr=lr)
    return math.log(lr) + math.log(_coefficient_factor(law, dim, scale)) - log_gamma(law, dim, radius)


def translate_lr(lr: float, law: Smoothing, dim: int, radius: float, scale: str = "paper") -> float:
    """Cor. equiv-conv: the rate eta_R = eta_Z / gamma at which REINFORCE takes the steps of vanilla ZOO at eta_Z = `lr`.

    `scale` is the vanilla run's: under the library's default, `"unbiased"`, its estimate is 1/s times Eq. fd, and so is eta_R.
    This is for rules linear in the estimate (SGD, momentum). The corollary names Adam too, wrongly: a rule that divides by
    the estimate's own size takes the same steps at the *same* rate, with zeta (`eps`) times gamma^2 in R-AdaZO.

    >>> round(translate_lr(1e-3, Sphere(), dim=2, radius=0.5), 6)
    0.000824
    """
    logarithm = log_translated_lr(lr, law, dim, radius, scale)
    return _exp(logarithm, f"lr/gamma of {law} at dim={dim}, radius={radius:g}", "log_translated_lr")


# -- Theorems bias-analysis and opt-baseline -------------------------------------------------------------------------------


def window_target(gradients: Any) -> Any:
    """Thm bias-analysis: E[g] = 1/N sum_n grad F_mu(theta_{t-n}), from the (N, d) smoothed gradients at the window's thetas."""
    return _rows("gradients", gradients).mean(0)


def window_bias(gradients: Any) -> float:
    """|E[g] - grad F_mu(theta_{t-1})|: how far the target is from the newest gradient, the last row.

    >>> window_bias([[3.0, 0.0], [1.0, 0.0]])
    1.0
    """
    rows = _rows("gradients", gradients)
    return math.sqrt(float(((rows.mean(0) - rows[-1]) ** 2).sum()))


def optimal_baseline(values: Any, squared_norms: Any) -> float:
    """Thm opt-baseline in general form, b* = E[F |u|^2] / E[|u|^2], over `values` F and the |u|^2 of their directions.

    Where directions have one norm it is the mean of the values.

    >>> optimal_baseline([1.0, 4.0], [3.0, 1.0])
    1.75
    """
    y, norms = np.asarray(values, float), np.asarray(squared_norms, float)
    if y.size == 0 or y.shape != norms.shape:
        raise ValueError(
            f"values and squared_norms must be as many, and at least one; got shapes {y.shape} and {norms.shape}"
        )
    if not (np.all(norms >= 0) and norms.sum() > 0):
        raise ValueError(
            f"squared_norms must be at least 0 and not all 0; they reach from {norms.min():g} to {norms.max():g}"
        )
    return float((y * norms).sum() / norms.sum())


# -- Theorem bias-variance-decomp ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constants:
    """What Assump. 1 and 2 suppose of f, for all theta, theta' and every i, at the radius mu of the run:

    |F(theta) - F(theta')| <= L0 |theta - theta'|,     |grad_i F(theta) - grad_i F(theta')| <= L1 |theta - theta'|,
    E_xi[(f - F)^2] <= sigma_xi^2,     E_u[(F(theta + mu u) - E_u F(theta + mu u))^2] <= sigma_mu^2

    where E_u weighs u by |u|^2/E|u|^2 if norms vary. The convergence theorem also needs |f| <= C and |grad_i F_mu| <= G_mu.
    """

    L0: float
    L1: float
    sigma_mu: float
    sigma_xi: float = 0.0
    C: float = math.inf
    G_mu: float = math.inf

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value!r}")


@dataclass(frozen=True)
class Run:
    """What a bound needs to know of a run: d, K, N, mu, the law of its directions and the scale of its estimate.

    `averaged=False` is for the optimal baseline b* of Thm opt-baseline, as the paper has it. `averaged=True` is for the mean of the
    window's values over |H| - 1 = NK - 1, as Algorithm 1 has it: the same proof then gives NK/(NK - 1) times the variance
    and the square of that times the baseline drift (not in the paper; for laws of one norm).

    >>> run = Run(dim=100, queries=10, window=6, radius=0.05)
    >>> run.noise_factor, Run(dim=100, queries=10, window=6, radius=0.05, scale="paper").noise_factor
    (10000.0, 1.0)
    """

    dim: int
    queries: int
    window: int
    radius: float
    law: Smoothing = field(default_factory=Sphere)
    scale: str = "unbiased"
    averaged: bool = False

    def __post_init__(self) -> None:
        check_positive(dim=self.dim, queries=self.queries, window=self.window, radius=self.radius)
        choose("scale", self.scale, ("unbiased", "paper"))
        if self.averaged and (self.size < 2 or not self.law.constant_norm):
            raise ValueError(
                f"averaged=True needs two values in the window and directions of one norm; got {self.size} of {self.law}"
            )

    @property
    def size(self) -> int:
        """|H| = NK."""
        return self.window * self.queries

    @property
    def mean_factor(self) -> float:
        """m in E[g] = m grad F_mu: 1, or under `scale="paper"` the s of E[u u^T] = s I, which is 1/d on the sphere."""
        return _coefficient_factor(self.law, self.dim, self.scale) * self.law.covariance_factor(self.dim)

    @property
    def noise_factor(self) -> float:
        """A = E|c u|^2 with c the factor of every coefficient, 1 or 1/s. On the sphere 1 in the paper's scale and d^2 in ours."""
        return _coefficient_factor(self.law, self.dim, self.scale) ** 2 * self.law.squared_norm(self.dim)


@dataclass(frozen=True)
class BiasVarianceBound:
    """Thm bias-variance-decomp, term by term: E|g - m grad F_mu(theta_{t-1})|^2 <= total."""

    #: V = A (sigma_xi^2 + sigma_mu^2) / (N K mu^2).
    variance: float
    #: One baseline for several thetas: A L0^2 sum_{n,n'} |theta_{t-n} - theta_{t-n'}|^2 / (N^3 K mu^2).
    baseline_drift: float
    #: Old gradients: m^2 L1^2 d sum_n |theta_{t-n} - theta_{t-1}|^2 / N.
    gradient_drift: float
    #: What is subtracted: m^2 sum_n |grad F_mu(theta_{t-n})|^2 / (N^2 K), and 0 where the gradients are not known.
    signal: float = 0.0

    @property
    def total(self) -> float:
        return self.variance + self.baseline_drift + self.gradient_drift - self.signal


def path_bound(
    constants: Constants, run: Run, thetas: Any, gradients: Any = None, printed: bool = False
) -> BiasVarianceBound:
    """Eq. f_var_3: the bound from the window's own `thetas`, (N, d) with the newest last.

    `gradients`, the smoothed ones at `thetas`, sharpen it by `signal`; for linear F and N = 1 it is then the error itself.

    >>> line = Constants(L0=1.0, L1=0.0, sigma_mu=0.1 / 10**0.5)  # F(theta) = theta_1 in 10 dimensions, mu = 0.1
    >>> bound = path_bound(line, Run(dim=10, queries=5, window=1, radius=0.1), np.zeros((1, 10)), gradients=np.eye(10)[:1])
    >>> round(bound.variance, 6), round(bound.signal, 6)  # (d - 1)/K in all
    (2.0, 0.2)
    """
    path = _rows("thetas", thetas)
    if path.shape != (run.window, run.dim):
        raise ValueError(f"thetas must be window x dim, ({run.window}, {run.dim}); got shape {tuple(path.shape)}")
    signal = 0.0
    if gradients is not None:
        rows = _rows("gradients", gradients)
        if rows.shape != path.shape:
            raise ValueError(
                f"gradients must be window x dim, ({run.window}, {run.dim}); got shape {tuple(rows.shape)}"
            )
        signal = float((rows.mean(0) ** 2).sum() if printed else (rows**2).sum() / (run.window * run.size))
    pairs = 2 * run.window * float(((path - path.mean(0)) ** 2).sum())  # the sum of |a - b|^2 over all pairs
    return _bound(constants, run, pairs, float(((path - path[-1]) ** 2).sum()), signal)


def bias_variance_bound(
    constants: Constants, run: Run, *, lr: float, beta2: float, printed: bool = False
) -> BiasVarianceBound:
    """Thm bias-variance-decomp: `stride_bound` for R-AdaZO, which moves no farther than eta sqrt(d/(1 - beta2)); eta is `lr`.

    With `printed=True` and `Run(scale="paper")` these are the numbers of the paper, whose drifts are
    eta^2 L0^2 d (N^2 - 1) / (3 (1 - beta2) N^2 K mu^2) and eta^2 L1^2 d^2 (N - 1) / (2 (1 - beta2)).

    >>> run, known = Run(dim=4, queries=2, window=6, radius=0.1), Constants(L0=1.0, L1=1.0, sigma_mu=0.1)
    >>> proved, printed = (bias_variance_bound(known, run, lr=0.01, beta2=0.99, printed=flag) for flag in (False, True))
    >>> round(proved.baseline_drift / printed.baseline_drift, 6), round(proved.gradient_drift / printed.gradient_drift, 6)
    (3.0, 3.666667)
    """
    check_positive(lr=lr)
    check_fraction(beta2=beta2)
    return stride_bound(constants, run, lr * math.sqrt(run.dim / (1 - beta2)), printed)


def stride_bound(constants: Constants, run: Run, stride: float, printed: bool = False) -> BiasVarianceBound:
    """The bound for any update rule whose steps are no longer than `stride`: lr sqrt(d) for signs of the estimate."""
    check_positive(stride=stride)
    n = run.window
    # Over all pairs, and from the newest: the sum of |n - n'| where printed, of its square as it should be.
    pairs = n * (n**2 - 1) / 3 if printed else n**2 * (n**2 - 1) / 6
    from_newest = n * (n - 1) / 2 if printed else n * (n - 1) * (2 * n - 1) / 6
    return _bound(constants, run, pairs * stride**2, from_newest * stride**2, signal=0.0)


def _bound(constants: Constants, run: Run, pairs: float, from_newest: float, signal: float) -> BiasVarianceBound:
    """From the sums of squared distances over all pairs of thetas, and from the newest."""
    more = run.size / (run.size - 1) if run.averaged else 1.0
    weight = run.noise_factor / (run.size * run.radius**2)
    return BiasVarianceBound(
        variance=more * weight * (constants.sigma_xi**2 + constants.sigma_mu**2),
        baseline_drift=more**2 * weight * constants.L0**2 * pairs / run.window**2,
        gradient_drift=run.mean_factor**2 * constants.L1**2 * run.dim * from_newest / run.window,
        signal=(2 - more) * run.mean_factor**2 * signal,
    )


# -- what the functions above share ----------------------------------------------------------------------------------------


def _coefficient_factor(law: Smoothing, dim: int, scale: str) -> float:
    return 1.0 if choose("scale", scale, ("unbiased", "paper")) == "paper" else 1.0 / law.covariance_factor(dim)


def _exp(logarithm: float, what: str, instead: str) -> float:
    if not _SMALLEST_LOG <= logarithm <= _LARGEST_LOG:
        raise ValueError(f"{what} is e**{logarithm:.1f}, which no floating-point number holds; work with {instead}")
    return math.exp(logarithm)


def _rows(what: str, rows: Any) -> Any:
    array = rows if isinstance(rows, torch.Tensor) else np.asarray(rows, float)
    if array.ndim != 2 or len(array) == 0:
        raise ValueError(
            f"{what} must be a matrix, a row for each batch of the window, newest last; got shape {tuple(array.shape)}"
        )
    return array


def check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be finite and above 0, got {value!r}")


def check_fraction(**numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")
