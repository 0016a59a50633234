"""Update rules: gradient estimate -> step. Pure functions of tensors; the state is a dict of tensors.

None of them corrects its moments for starting at zero unless told to: the paper's algorithm does not. Its first steps are long
for that, up to 1/sqrt(1 - beta2) rates, which a long run forgets and a short one does not (`AdaMM(corrected=True)`).
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoar.checking import choose, real_number

State = dict[str, Any]


class UpdateRule(ABC):
    """theta <- theta - lr * (something of the estimate g and the rule's state)."""

    name: ClassVar[str]

    def start(self, theta: Tensor) -> State:
        """The state before the first step."""
        return {}

    def state_dict(self, state: State) -> State:
        """A copy of the state as plain tensors."""
        return {name: tensor.clone() for name, tensor in state.items()}

    def load_state_dict(self, state: State, saved: State) -> None:
        """Puts a saved state into a fresh one."""
        for name, tensor in state.items():
            tensor.copy_(saved[name])

    @abstractmethod
    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        """Moves `theta` in place and updates `state`; `estimate` may be overwritten."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    """theta <- theta - lr g  (Ghadimi and Lan, 2013)."""

    name = "sgd"

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        theta.add_(estimate, alpha=-lr)


@dataclass(frozen=True)
class Momentum(UpdateRule):
    """m <- beta m + g;  theta <- theta - lr m  (Polyak's heavy ball, as torch.optim.SGD has it)."""

    beta: float = 0.9
    name = "momentum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _fraction("beta", self.beta))

    def start(self, theta: Tensor) -> State:
        return {"m": torch.zeros_like(theta)}

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        theta.add_(state["m"].mul_(self.beta).add_(estimate), alpha=-lr)


@dataclass(frozen=True)
class SignSGD(UpdateRule):
    """theta <- theta - lr sign(g)  (Liu et al., signSGD via zeroth-order oracle, 2019)."""

    name = "sign"

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        theta.add_(estimate.sign_(), alpha=-lr)


@dataclass(frozen=True)
class _TwoMoments(UpdateRule):
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {self.betas!r}")
        object.__setattr__(self, "betas", tuple(_fraction("betas", beta) for beta in self.betas))
        object.__setattr__(self, "eps", real_number("eps", self.eps))
        if not (self.eps > 0 and math.isfinite(self.eps)):
            raise ValueError(f"eps must be a finite number above 0, got {self.eps!r}")

    def start(self, theta: Tensor) -> State:
        return {"m": torch.zeros_like(theta), "v": torch.zeros_like(theta)}


@dataclass(frozen=True)
class AdaMM(_TwoMoments):
    """ZO-AdaMM (Chen et al., 2019): m and v average g and g^2, the step is m / (sqrt(v) + eps).

    `amsgrad=True` is the paper's own rule, v <- max of the second moments so far; without it this is Adam without bias
    correction, which is what the experiments of the ZoAR paper compare (Fig. 2). `corrected=True` is Adam with it: m and v are
    divided by 1 - beta^t.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    amsgrad: bool = False
    corrected: bool = False
    name = "adamm"

    def start(self, theta: Tensor) -> State:
        state = super().start(theta)
        if self.amsgrad:
            state["v_max"] = torch.zeros_like(theta)
        if self.corrected:
            state["steps"] = theta.new_zeros(*theta.shape[:-1], 1)
        return state

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        m, v = state["m"], state["v"]
        m.lerp_(estimate, 1 - self.betas[0])
        v.mul_(self.betas[1]).addcmul_(estimate, estimate, value=1 - self.betas[1])
        if self.amsgrad:
            v = torch.maximum(state["v_max"], v, out=state["v_max"])
        root = torch.sqrt(v, out=estimate)
        if self.corrected:
            steps = state["steps"].add_(1)
            root /= torch.sqrt(1 - torch.pow(self.betas[1], steps))
            m = m / (1 - torch.pow(self.betas[0], steps))
        theta.addcdiv_(m, root.add_(self.eps), value=-lr)


@dataclass(frozen=True)
class RAdaZO(_TwoMoments):
    """R-AdaZO (paper, Alg. 1): the second moment averages m^2, which is less noisy than g^2; m / sqrt(v + zeta)."""

    name = "radazo"

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        m, v = state["m"], state["v"]
        m.lerp_(estimate, 1 - self.betas[0])
        v.mul_(self.betas[1]).addcmul_(m, m, value=1 - self.betas[1])
        theta.addcdiv_(m, torch.add(v, self.eps, out=estimate).sqrt_(), value=-lr)


@dataclass(frozen=True)
class TorchUpdate(UpdateRule):
    """Any torch.optim class: it is handed the estimate as a gradient, and this run's rate at every step.

    >>> TorchUpdate(torch.optim.Adam, {"betas": (0.9, 0.99)}).name
    'torch.optim.Adam'
    """

    optimizer: type[torch.optim.Optimizer]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.optimizer, type) and issubclass(self.optimizer, torch.optim.Optimizer)):
            raise TypeError(f"TorchUpdate takes a torch.optim class, such as torch.optim.Adam; got {self.optimizer!r}")
        if issubclass(self.optimizer, torch.optim.LBFGS):
            raise ValueError(
                "torch.optim.LBFGS evaluates a closure of its own, which a zeroth-order step has not; use another class"
            )
        if "lr" in self.options:
            raise ValueError("the rate of a torch optimizer is the run's: give lr=... to zoar, not to the update rule")
        try:
            self.start(torch.zeros(1))
        except TypeError as error:
            raise TypeError(f"{self.name} does not take the options {self.options!r}: {error}") from None

    @property
    def name(self) -> str:  # type: ignore[override]  # the wrapped class names the rule
        return f"torch.optim.{self.optimizer.__name__}"

    def start(self, theta: Tensor) -> State:
        parameter = torch.nn.Parameter(theta.detach(), requires_grad=True)  # shares theta's memory
        return {"torch": self.optimizer([parameter], lr=0.0, **self.options)}  # type: ignore[call-arg]  # every subclass takes lr

    def state_dict(self, state: State) -> State:
        return {"torch": copy.deepcopy(state["torch"].state_dict())}

    def load_state_dict(self, state: State, saved: State) -> None:
        state["torch"].load_state_dict(saved["torch"])

    def move_(self, theta: Tensor, estimate: Tensor, state: State, lr: float) -> None:
        optimizer = state["torch"]
        group = optimizer.param_groups[0]
        group["lr"] = lr
        group["params"][0].grad = estimate
        optimizer.step()
        group["params"][0].grad = None


UPDATES: dict[str, type[UpdateRule]] = {rule.name: rule for rule in (SGD, Momentum, SignSGD, AdaMM, RAdaZO)}


def as_update(update: str | UpdateRule | type[UpdateRule] | type[torch.optim.Optimizer]) -> UpdateRule:
    """An update rule from its name, its class, a torch.optim class, or itself."""
    if isinstance(update, UpdateRule):
        return update
    if isinstance(update, type) and issubclass(update, torch.optim.Optimizer):
        return TorchUpdate(update)
    if isinstance(update, type) and issubclass(update, UpdateRule):
        return update()
    return UPDATES[choose("update", update, UPDATES)]()


def _fraction(what: str, given: Any) -> float:
    value = real_number(what, given)
    if not 0 <= value < 1:
        raise ValueError(f"{what} must be at least 0 and below 1; got {given!r}")
    return value
