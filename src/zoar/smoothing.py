"""The smoothing distributions: what a direction u is drawn from.

F_mu(theta) = E_u[F(theta + mu u)]  (paper, Eq. fu). Each distribution knows

* how to draw u by address,
* its covariance factor s, E[u u^T] = s I, so that E[g] = grad F_mu without a hand-tuned rate,
* its log-density, from which Theorem 3's importance weight gamma follows, in logs (it underflows beyond a few hundred
  dimensions).

Departures from the paper: the sphere and coordinate estimators are multiplied by 1/s = d (Flaxman et al. 2005,
Lemma 2.1; `scale="paper"` leaves it out), and a coordinate direction carries a random sign. Without the sign E[u] is not
zero, so any baseline other than f(theta) biases every component by (f(theta) - b)/mu: an averaged baseline
would cancel the mean of the gradient. `Coordinate(signed=False)` is the paper's law (III).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from zoar.checking import choose
from zoar.streams import SFC64, Philox, Stream, box_muller


class Smoothing(ABC):
    """A distribution of directions."""

    name: ClassVar[str]
    #: Whether every draw has the same norm: then the optimal baseline is the window mean (Thm opt-baseline).
    constant_norm: ClassVar[bool] = True
    #: Whether u and -u are equally likely: the condition for subtracting any baseline without bias.
    symmetric: bool = True

    @abstractmethod
    def draw(
        self, stream: Stream, step: int, queries: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The (queries, dim) directions of a step: always the same for the same address."""

    @abstractmethod
    def covariance_factor(self, dim: int) -> float:
        """s in E[u u^T] = s I."""

    @abstractmethod
    def log_density(self, u: Tensor, radius: float = 1.0) -> Tensor:
        """log p(x) of x = theta + radius u, in the measure the law lives on; one value for each row of `u`."""

    def squared_norm(self, dim: int) -> float:
        """E|u|^2, which is every |u|^2 when the norm is constant."""
        return dim * self.covariance_factor(dim)

    def log_importance_weight(self, u: Tensor, radius: float) -> Tensor:
        """log gamma of Theorem 3: log of the Gaussian policy's density over this law's, at x = theta + radius u."""
        dim = u.shape[-1]
        squared = (u.double() ** 2).sum(-1)
        log_policy = -0.5 * squared - 0.5 * dim * math.log(2 * math.pi * radius**2)
        return log_policy - self.log_density(u, radius)

    def stream(self, seed: int, device: torch.device, source: str | None = None) -> Stream:
        """The words this law draws from; `source` overrides the choice."""
        chosen = source or "philox"
        if choose("stream", chosen, ("philox", "sfc64")) == "sfc64":
            if device.type != "cpu":
                raise ValueError(f'stream="sfc64" works on the CPU only and theta is on {device}; use stream="philox"')
            return SFC64(seed)
        return Philox(seed, device)


@dataclass(frozen=True)
class Gaussian(Smoothing):
    """u ~ N(0, I), the paper's (I)."""

    name = "gaussian"
    constant_norm = False

    def draw(
        self, stream: Stream, step: int, queries: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return _normal(stream, step, queries, dim, device).to(dtype)

    def covariance_factor(self, dim: int) -> float:
        return 1.0

    def log_density(self, u: Tensor, radius: float = 1.0) -> Tensor:
        return -0.5 * (u.double() ** 2).sum(-1) - 0.5 * u.shape[-1] * math.log(2 * math.pi * radius**2)

    def log_importance_weight(self, u: Tensor, radius: float) -> Tensor:
        return u.new_zeros(u.shape[:-1], dtype=torch.float64)  # gamma = 1, the policy is this law

    def stream(self, seed: int, device: torch.device, source: str | None = None) -> Stream:
        # Words are most of the cost of a normal number, and SFC64's are the cheapest on a CPU.
        return super().stream(seed, device, source or ("sfc64" if device.type == "cpu" else "philox"))


@dataclass(frozen=True)
class Sphere(Smoothing):
    """u uniform on the unit sphere, the paper's (II)."""

    name = "sphere"

    def draw(
        self, stream: Stream, step: int, queries: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        normal = _normal(stream, step, queries, dim, device).to(dtype)
        norms: Tensor = torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
        return normal / norms

    def covariance_factor(self, dim: int) -> float:
        return 1.0 / dim

    def log_density(self, u: Tensor, radius: float = 1.0) -> Tensor:
        dim = u.shape[-1]
        log_area = math.log(2.0) + 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim) + (dim - 1) * math.log(radius)
        return u.new_full(u.shape[:-1], -log_area, dtype=torch.float64)

    def stream(self, seed: int, device: torch.device, source: str | None = None) -> Stream:
        return Gaussian().stream(seed, device, source)


@dataclass(frozen=True)
class Coordinate(Smoothing):
    """u uniform on the basis vectors and their negatives; with `signed=False` on e_1..e_d alone, the paper's (III)."""

    signed: bool = True
    name = "coordinate"

    @property
    def symmetric(self) -> bool:  # type: ignore[override]  # a property where the parent has a constant
        return self.signed

    def draw(
        self, stream: Stream, step: int, queries: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        words = stream.words(step, queries, 3)
        if not isinstance(words, Tensor):
            words = torch.from_numpy(words.astype(np.int64))
        # 64 bits modulo d: the remainder favours no coordinate by more than d / 2**63.
        index = (((words[:, 0] & 0x7FFFFFFF) << 32) | words[:, 1]) % dim
        sign = 1 - 2 * (words[:, 2] & 1) if self.signed else torch.ones_like(index)
        u = torch.zeros(queries, dim, dtype=dtype, device=device)
        return u.scatter_(1, index[:, None], sign[:, None].to(dtype))

    def covariance_factor(self, dim: int) -> float:
        return 1.0 / dim

    def log_density(self, u: Tensor, radius: float = 1.0) -> Tensor:
        return u.new_full(u.shape[:-1], -math.log(u.shape[-1] * (2 if self.signed else 1)), dtype=torch.float64)


@dataclass(frozen=True)
class Rademacher(Smoothing):
    """Independent signs: the identity covariance of a Gaussian with less variance, at a 32nd of its words.

    Element e takes bit e % 32 of word e // 32; a set bit is -1. No transcendental function is involved, so a key gives
    the same bits on every device.
    """

    name = "rademacher"

    def draw(
        self, stream: Stream, step: int, queries: int, dim: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        words = stream.words(step, queries, -(-dim // 32))
        if device.type == "cpu":
            octets = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
            signs: Tensor = torch.from_numpy(_octet_signs(dtype).take(octets, axis=0).reshape(queries, -1))
        else:
            bits = (words[:, :, None] >> torch.arange(32, device=device)) & 1
            signs = (1 - 2 * bits).reshape(queries, -1)
        return signs[:, :dim].to(dtype)

    def covariance_factor(self, dim: int) -> float:
        return 1.0

    def log_density(self, u: Tensor, radius: float = 1.0) -> Tensor:
        return u.new_full(u.shape[:-1], -u.shape[-1] * math.log(2.0), dtype=torch.float64)


def _octet_signs(dtype: torch.dtype) -> np.ndarray:
    """The eight signs of each of the 256 octets, lowest bit first: a look-up is five times faster than shifting."""
    return _OCTET_SIGNS_64 if dtype == torch.float64 else _OCTET_SIGNS_32


_OCTET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_OCTET_SIGNS_64 = 1.0 - 2.0 * _OCTET_BITS
_OCTET_SIGNS_32 = _OCTET_SIGNS_64.astype(np.float32)


def _normal(stream: Stream, step: int, queries: int, dim: int, device: torch.device) -> Tensor:
    """Standard normal float32 numbers. Words come in fours: two pairs, four consecutive elements."""
    count = -(-dim // 4) * 4
    words = stream.words(step, queries, count)
    if isinstance(stream, SFC64):  # nothing addresses its elements, so the halves of a row may stay contiguous
        flat = words.reshape(-1)
        box_muller(flat[: flat.size // 2], flat[flat.size // 2 :])
        return torch.from_numpy(flat.view(np.float32).reshape(queries, count))[:, :dim]
    quads = words.reshape(queries, -1, 4)
    radius, angle, radius_, angle_ = quads.unbind(-1) if isinstance(words, Tensor) else np.moveaxis(quads, -1, 0).copy()
    normal = torch.stack([*box_muller(radius, angle), *box_muller(radius_, angle_)], -1)
    return normal.reshape(queries, count)[:, :dim].to(device)


SMOOTHINGS: dict[str, type[Smoothing]] = {law.name: law for law in (Gaussian, Sphere, Coordinate, Rademacher)}


def as_smoothing(directions: str | Smoothing | type[Smoothing]) -> Smoothing:
    """A distribution from its name, or itself."""
    if isinstance(directions, Smoothing):
        return directions
    if isinstance(directions, type) and issubclass(directions, Smoothing):
        return directions()
    return SMOOTHINGS[choose("directions", directions, SMOOTHINGS)]()
