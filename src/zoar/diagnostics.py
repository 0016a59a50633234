"""How noisy and how stale is the estimate of a running optimizer? Measured from its window, without a query more.

Let query i of the window contribute x_i = c_i u_i, so that g = sum_i x_i, and let batch n aim at w_n grad F_mu(theta_{t-n}), where
the w_n add up to 1. Products of *distinct* queries carry no noise on average, so

    S(r) = sum_{i != j} r_i r_j k_ij <x_i, x_j>        estimates        |sum_n r_n w_n grad F_mu(theta_{t-n})|^2

with k_ij = 1 between batches and K/(K - 1) within a batch of K, where K(K - 1) products stand for K^2. From this one form:

    signal    S(1)             the squared gradient averaged over the window, |E g|^2
    variance  |g|^2 - S(1)     the sampling noise, the trace of the covariance of g
    drift     S(r)             the squared bias |E g - grad F_mu(theta_{t-1})|^2, with r = 1 for old batches, 1 - 1/w for the newest

A mean as baseline couples the queries that share it: c_i holds y_j and c_j holds y_i, which adds 1/(L - 1)^2 to the product when L
values share the mean. k_ij is divided by that too, so nothing of this is an approximation for a given path of thetas (but for the
`"optimal"` baseline with Gaussian directions, to O(1/L^2)).

On a live path theta depends on the directions that led to it. The products with the newest batch, whose directions are fresh, are
then exactly what makes *variance + drift* an unbiased estimate of E|g - grad F_mu(theta_{t-1})|^2 (for the baselines that
do not reach across batches: batch, center, zero). So `drift` is what reuse costs beyond sampling noise: the squared bias of Thm
bias-analysis and the correlation of old noise with the steps it caused, of order lr, which the paper's decomposition leaves out
(Eq. f_var_3, step a).

One window says little about drift when there are more dimensions than queries: the products of two queries scatter by |x|^2/sqrt(d)
around means of |grad|^2/M^2. `drift_error` says how much; average over steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoar.estimators import WindowWeigher
from zoar.optimizer import Optimizer


@dataclass(frozen=True)
class Diagnosis:
    """Squared lengths, in the units of the optimizer's own estimate g (`scale="paper"` shrinks them all alike)."""

    #: Trace of the covariance of g.
    variance: float
    #: What old batches add to the squared error; an unbiased estimate, so it may be negative. NaN with one query a batch.
    drift: float
    #: Its standard error, from sampling noise.
    drift_error: float
    #: |E g|^2.
    signal: float
    queries: int
    batches: int

    @property
    def error(self) -> float:
        """E|g - grad F_mu(theta)|^2 at the newest theta asked."""
        return self.variance + self.drift

    @property
    def sentence(self) -> str:
        """What the numbers say about the window."""
        numbers = f"variance {self.variance:.3g}, drift {self.drift:.3g} +- {self.drift_error:.1g}, squared gradient {self.signal:.3g}"
        if math.isnan(self.drift):
            return f"One query a batch does not tell drift from noise: ask two or more ({numbers})."
        if self.batches == 1:
            return f"One batch, so no drift: a longer window would lower the variance ({numbers})."
        if self.drift - 2 * self.drift_error > self.variance:
            return f"Drift dominates: a shorter window, or a lower rate, would lower the error ({numbers})."
        if self.drift + 2 * self.drift_error < self.variance:
            return f"Variance dominates: a longer window, or more queries, would lower the error ({numbers})."
        return f"Variance and drift cannot be told apart yet: average the diagnoses of more steps ({numbers})."


def diagnose(optimizer: Optimizer) -> Diagnosis:
    """Variance and drift of the estimate that the values told so far give. Asks nothing and changes nothing.

    Costs one product of the window's M x d directions with themselves, which are drawn again unless stored.

    Example:
        >>> opt = Optimizer(np.ones(5), queries=20, window=4, directions="sphere", update="sgd", lr=0.1)
        >>> for _ in range(4):
        ...     batch = opt.ask()
        ...     opt.tell(batch.ids, (batch.points**2).sum(-1))
        >>> diagnose(opt).sentence
        ''
    """
    weigher, method = optimizer._weigher, optimizer.settings.method
    if not isinstance(weigher, WindowWeigher):
        raise ValueError(f"diagnose needs an estimate that is a sum over independent queries; method {method.name!r} solves for its own")
    coefficients = weigher.coefficients(optimizer.window)
    if coefficients is None:
        raise ValueError("there is no estimate to diagnose yet: tell the values of a batch first")
    dense, steps = coefficients.dense(), list(coefficients.shares)
    counts = np.array([coefficients.shares[step].count for step in steps])
    total, n = int(counts.sum()), len(steps)
    c = np.concatenate([dense[step] for step in steps])
    products = np.outer(c, c) * optimizer._directions.gram(steps).cpu().numpy()

    batch = np.repeat(np.arange(n), [len(dense[step]) for step in steps])
    same = batch[:, None] == batch
    size = counts[batch].astype(float)
    told_apart = bool(counts.min() > 1)
    if not told_apart:  # the window as one batch: its spread counts as noise, 1/M of it
        same, size = np.ones_like(same), np.full_like(size, total)
    if total < 2:
        return Diagnosis(math.nan, math.nan, math.nan, math.nan, total, n)
    kernel = np.where(same, size / (size - 1), 1.0)
    np.fill_diagonal(kernel, 0.0)
    if method.baseline.name == "batch":
        kernel[same] /= (1 + 1 / (np.broadcast_to(size, same.shape)[same] - 1) ** 2)
    elif method.baseline.is_mean:
        kernel /= 1 + 1 / (total - 1) ** 2
    pairs = kernel * products

    signal = float(pairs.sum())
    variance = float(products.sum()) - signal
    if not told_apart and n > 1:
        return Diagnosis(variance, math.nan, math.nan, signal, total, n)
    weights = np.full(n, 1 / n) if method.name == "zohs" else counts / total
    r = np.where(batch == n - 1, 1 - 1 / weights[-1], 1.0)
    stale = r[:, None] * r * pairs
    return Diagnosis(variance, float(stale.sum()), math.sqrt(2 * float((stale**2).sum())), signal, total, n)


def average(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """The mean of diagnoses made at successive steps. Those whose windows share batches do not count as independent."""
    if not diagnoses:
        raise ValueError("there is nothing to average: diagnoses is empty")
    means = {name: float(np.mean([getattr(one, name) for one in diagnoses])) for name in ("variance", "drift", "signal")}
    last, squared = diagnoses[-1], float(np.mean([one.drift_error**2 for one in diagnoses]))
    independent = max(1.0, len(diagnoses) / last.batches)
    return Diagnosis(**means, drift_error=math.sqrt(squared / independent), queries=last.queries, batches=last.batches)
