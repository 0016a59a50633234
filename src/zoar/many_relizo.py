"""ReLIZO (see `zoar.estimators.relizo`) for many runs at once.

Runs differ in how many samples they reuse. So every run has the same places, K for new samples and as many as may be reused, and
a mask says which count: a sample that does not is a row of zeros, which a least-squares solution of least norm leaves out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from zoar.estimators.relizo import ReLIZO


class ManyInterpolations:
    """The samples of the last step of every run, as displacements from its theta."""

    def __init__(self, method: ReLIZO, queries: int) -> None:
        self._method, self._queries, self._most = method, queries, int(method.reuse * queries)
        self._samples: Tensor | None = None  # (S, M + 1, d), the center last
        self._values: Tensor | None = None
        self._known: Tensor | None = None  # which of them count
        self._fresh: Tensor | None = None  # (S, K), which new samples count
        self.evaluations: int | Tensor = 0

    def choose(self, theta: Tensor, lr: float) -> None:
        """Chooses what is reused: samples within the bound, nearest first."""
        self._fresh = torch.ones(len(theta), self._queries, dtype=torch.bool, device=theta.device)
        if self._samples is None or not self._most:
            self._samples = None
        else:
            assert self._values is not None
            assert self._known is not None
            bound = 2 * lr if self._method.bound is None else self._method.bound
            distances = torch.linalg.vector_norm(self._samples, dim=-1)
            usable = self._known & (distances > 0) & (distances <= bound)
            order = torch.argsort(torch.where(usable, distances, torch.inf), dim=-1, stable=True)[:, : self._most]
            self._samples = torch.gather(self._samples, 1, order[..., None].expand(-1, -1, theta.shape[-1]))
            self._values, self._known = torch.gather(self._values, 1, order), torch.gather(usable, 1, order)
            # A reused sample stands for one of the K: the last new ones are not asked.
            asked = self._queries - self._known.sum(-1, keepdim=True)
            self._fresh = torch.arange(self._queries, device=theta.device) < asked
        self.evaluations = self.evaluations + self._fresh.sum(-1) + 1

    def gradient(self, new: Tensor, values: Tensor) -> Tensor:
        """g of every run from the displacements of the new samples, (S, K, d), and the values with f(theta) last."""
        assert self._fresh is not None
        center, y, known = values[:, -1:].double(), values[:, :-1].double(), self._fresh
        samples = new
        if self._samples is not None and self._values is not None and self._known is not None:
            samples, y = torch.cat([self._samples, new], 1), torch.cat([self._values, y], 1)
            known = torch.cat([self._known, known], 1)
        lengths = torch.linalg.vector_norm(samples, dim=-1, keepdim=True)
        unit = torch.where(known[..., None], samples / lengths, 0.0)
        slopes = torch.where(known, (y - center) / lengths[..., 0], 0.0)
        gram = torch.bmm(unit, unit.transpose(1, 2)).double()
        # On the CPU: a GPU takes ten times as long for a few matrices of ten rows as the way there and back.
        inverse = torch.linalg.pinv(gram.cpu(), hermitian=True).to(gram.device)
        coefficients = inverse @ slopes.to(unit.dtype).double()[..., None]
        zero, true = torch.zeros_like(samples[:, :1]), torch.ones_like(known[:, :1])
        self._samples, self._values = torch.cat([samples, zero], 1), torch.cat([y, center], 1)
        self._known = torch.cat([known, true], 1)
        return torch.bmm(coefficients.to(unit.dtype).transpose(1, 2), unit)[:, 0]

    def moved(self, step: Tensor) -> None:
        """theta of every run moved."""
        if self._samples is not None:
            self._samples = self._samples - step[:, None]

    def keep(self, chosen: Tensor) -> None:
        """Goes on with the chosen runs only."""
        if self._samples is not None and self._values is not None and self._known is not None:
            self._samples, self._values, self._known = self._samples[chosen], self._values[chosen], self._known[chosen]
        if isinstance(self.evaluations, Tensor):
            self.evaluations = self.evaluations[chosen]
