"""How noisy and how stale is the estimate of a running optimizer? Measured from its window, without a query more.

Let x_i = c_i u_i be what query i contributes to g, and let batch n of K queries aim at w_n grad F_mu(theta_{t-n}), where the w_n
add up to 1. The product of two *distinct* queries carries no noise on average, so

    S(r) = sum_{i != j} r_i r_j k_ij <x_i, x_j>        estimates        |sum_n r_n w_n grad F_mu(theta_{t-n})|^2

with k_ij = 1 between batches and K/(K - 1) within one, where K(K - 1) products stand for K^2. From this one form:

    signal    S(1)             |E g|^2, the squared mean of the window's gradients
    variance  |g|^2 - S(1)     the trace of the covariance of g
    drift     S(r)             the squared bias |E g - grad F_mu(theta_{t-1})|^2: r = 1 for old batches, 1 - 1/w for the newest

A mean as baseline couples the queries that share it: c_i holds y_j and c_j holds y_i. If L values share the mean that adds
1/(L - 1)^2 to the product, and k_ij is divided by 1 plus that. For signal and drift the mean is that of each batch, also where the
baseline is the window's: the target is the same, and the levels that theta moves through are kept out of the noise. So on a
given path of thetas all three are unbiased, for every baseline (`"optimal"` with directions of several norms: to O(1/M^2)).

On a live path theta depends on the directions that led to it. Those of the newest batch are fresh, which is enough for
*variance + drift* to be unbiased for |g - grad F_mu(theta_{t-1})|^2 with the baselines batch, center and zero (with a mean
over the window, up to terms of order lr). There `drift` is what reuse costs beyond sampling noise: the squared bias of Thm
bias-analysis, and the correlation of old noise with the steps it caused. The second is of order lr, so at small rates the larger,
and the paper's decomposition leaves it out (Eq. f_var_3, step a).

One window says little about drift in many dimensions: the product of two queries scatters by |x|^2/sqrt(d) around a mean smaller by
d. `drift_error` says how little; `average` over steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoar.coefficients import Array, Share
from zoar.estimators import WindowWeigher
from zoar.optimizer import Optimizer


@dataclass(frozen=True)
class Diagnosis:
    """Squared lengths, in the units of the optimizer's own estimate g (`scale="paper"` shrinks them all alike)."""

    #: Trace of the covariance of g.
    variance: float
    #: The same had each batch been weighed against its own mean, where the baseline is the window's; else `variance`.
    batch_variance: float
    #: What old batches add to the squared error. Unbiased, so it may come out negative; NaN with one query a batch.
    drift: float
    #: Its standard error.
    drift_error: float
    #: |E g|^2.
    signal: float
    #: Values and batches that g is made of.
    queries: int
    batches: int

    @property
    def error(self) -> float:
        """E|g - grad F_mu(theta)|^2 at the newest theta asked."""
        return self.variance + self.drift

    @property
    def sentence(self) -> str:
        """What the numbers say about the window."""
        numbers = (
            f"variance {self.variance:.3g}, drift {self.drift:.3g} +- {self.drift_error:.2g}, signal {self.signal:.3g}"
        )
        if self.batches == 1:
            return f"One batch, so no drift: a longer window would lower the variance ({numbers})."
        if math.isnan(self.drift):
            return f"One query a batch cannot tell drift from noise: ask two or more ({numbers})."
        if self.batch_variance < 0.5 * self.variance:
            return f'The levels that theta moved through are most of the variance: use baseline="batch" ({numbers}).'
        if self.drift - 2 * self.drift_error > self.variance:
            return f"Drift dominates: a shorter window or a lower rate would lower the error ({numbers})."
        if self.drift + 2 * self.drift_error < self.variance:
            return f"Variance dominates: a longer window or more queries would lower the error ({numbers})."
        return f"Variance and drift are alike, or not told apart yet: average over more steps ({numbers})."


def diagnose(optimizer: Optimizer) -> Diagnosis:
    """Variance and drift of the estimate that the values told so far give. Asks nothing and changes nothing.

    Costs the product of the window's M x d directions with themselves; directions that are not stored are drawn again.

    >>> opt, seen = Optimizer(np.ones(50), queries=10, window=3, baseline="batch", directions="rademacher"), []
    >>> for _ in range(100):
    ...     batch = opt.ask()
    ...     opt.tell(batch.ids, (batch.points**2).sum(-1))
    ...     seen += [diagnose(opt)] if opt.nit >= 3 else []
    >>> average(seen).sentence.split(" (")[0]
    'Variance dominates: a longer window or more queries would lower the error'
    """
    weigher, method = optimizer._weigher, optimizer.settings.method
    if not isinstance(weigher, WindowWeigher):
        raise ValueError(
            f"diagnose takes estimates that are sums over independent queries, and method {method.name!r} makes another"
        )
    coefficients = weigher.coefficients(optimizer.window)
    if coefficients is None:
        raise ValueError("there is no estimate to diagnose yet: tell the values of a batch first")
    shares, dense = list(coefficients.shares.values()), list(coefficients.dense().values())
    counts, c = np.array([share.count for share in shares]), np.concatenate(dense)
    total, batches = int(counts.sum()), len(shares)
    if total < 2:
        return Diagnosis(math.nan, math.nan, math.nan, math.nan, math.nan, total, batches)
    gram = optimizer._directions.gram(list(coefficients.shares)).cpu().numpy()
    batch = np.repeat(np.arange(batches), [len(part) for part in dense])
    separate, is_mean = bool(counts.min() > 1), method.baseline.is_mean
    # With one query a batch the window is taken for one batch, and 1/(M - 1) of the gradients' spread for noise.
    same = (batch[:, None] == batch) if separate else np.ones_like(gram, bool)
    size = (counts[batch] if separate else np.full(len(c), total)).astype(float)
    own_mean = np.where(same, 1 + 1 / (size - 1) ** 2, 1.0) if is_mean else 1.0
    whole_mean = 1 + 1 / (total - 1) ** 2 if is_mean and method.baseline.name != "batch" else own_mean

    def pairs(weights: Array, coupling: Array | float) -> Array:
        products: Array = np.outer(weights, weights) * gram * np.where(same, size / (size - 1), 1.0) / coupling
        np.fill_diagonal(products, 0.0)
        return products

    variance = float(c @ gram @ c - pairs(c, whole_mean).sum())
    if separate and is_mean:
        c = np.concatenate([_against_own_mean(share) for share in shares]) / total
    distinct = pairs(c, own_mean)
    signal = float(distinct.sum())
    if batches > 1 and not separate:
        return Diagnosis(variance, variance, math.nan, math.nan, signal, total, batches)
    newest = 1 / batches if method.name == "zohs" else counts[-1] / total
    r = np.where(batch == batches - 1, 1 - 1 / newest, 1.0)
    stale = distinct * np.outer(r, r)
    return Diagnosis(
        variance=variance,
        batch_variance=float(c @ gram @ c) - signal,
        drift=float(stale.sum()),
        drift_error=_standard_error(stale, batch),
        signal=signal,
        queries=total,
        batches=batches,
    )


def average(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """The mean of diagnoses made at successive steps, whose windows overlap and so are not all independent."""
    if not diagnoses:
        raise ValueError("diagnoses is empty: there is nothing to average")
    last, names = diagnoses[-1], ("variance", "batch_variance", "drift", "signal")
    means = {name: float(np.mean([getattr(one, name) for one in diagnoses])) for name in names}
    # Each error is itself an estimate, and a poor one for a few queries: the spread of the diagnoses counts where it is larger.
    squared = max(
        float(np.mean([one.drift_error**2 for one in diagnoses])), float(np.var([one.drift for one in diagnoses]))
    )
    error = math.sqrt(squared / max(1.0, len(diagnoses) / last.batches))
    return Diagnosis(**means, drift_error=error, queries=last.queries, batches=last.batches)


def _against_own_mean(share: Share) -> Array:
    """(y - mean of the other values of the batch) slope, for the values that are in."""
    if share.slope is None:
        return share.centred  # baseline "batch" has it so
    present = share.slope != 0
    levels = np.divide(share.centred, share.slope, out=np.zeros_like(share.centred), where=present)
    own: Array = (levels - levels.sum() / share.count) * share.slope * (share.count / (share.count - 1))
    return own


def _standard_error(pairs: Array, batch: np.ndarray) -> float:
    """Of a sum over pairs of queries, from how the queries of one batch differ: the two terms of Hoeffding's decomposition."""
    member = (batch[:, None] == np.arange(batch[-1] + 1)).astype(float)
    size, distinct = member.sum(0), 1 - np.eye(len(batch))
    means = (member.T @ pairs @ member) / np.maximum(member.T @ distinct @ member, 1)
    both = 2 * float(((pairs - member @ means @ member.T) ** 2 * distinct).sum())
    rows = pairs.sum(1)
    apart = rows - (member.T @ rows / size)[batch]
    single = 4 * float((apart**2 * (size / np.maximum(size - 1, 1))[batch]).sum()) - both
    return math.sqrt(max(single, both))
