"""The update of a model: the estimate is made a piece at a time from its coefficients, and used at once.

`rounding` is what becomes of an update smaller than the spacing of low-precision weights:

`nearest`      it may be lost;
`stochastic`   it is taken with a probability in proportion, by words of the step and the element;
`compensated`  what was lost is kept in a second tensor of the weight's dtype and added the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zoar.kernels import reference
from zoar.kernels.reference import Address, Sums
from zoar.torch_optim.layout import Segment, neighbours, overlaps
from zoar.updates import UpdateRule

ROUNDINGS = ("nearest", "stochastic", "compensated")
_PURPOSE = 1  # of the words that round
_LOST_BITS = {torch.bfloat16: 16, torch.float16: 13}


def start_state(parameter: Tensor, rule: UpdateRule, rounding: str) -> dict[str, Tensor]:
    """The rule's vectors for a parameter, flat: in bfloat16 beside bfloat16 weights, whose range they need, else in float32."""
    flat = parameter.detach().reshape(-1)
    kept = parameter.dtype if parameter.dtype in (torch.bfloat16, torch.float64) else torch.float32
    state = {name: tensor.to(kept) for name, tensor in rule.start(flat).items()}
    if rounding == "compensated" and parameter.dtype in _LOST_BITS:
        state["lost"] = torch.zeros_like(flat)
    return state


@dataclass(frozen=True)
class Move:
    """A step of one group: along the sum of c u."""

    addresses: Sequence[Address]
    coefficients: Sequence[float]
    law: str
    rule: UpdateRule
    lr: float
    weight_decay: float
    rounding: str
    at: Address  # of the words that round
    sums: Sums | None = None  # with the addresses of what enters and leaves them

    def apply(self, segments: Sequence[Segment], states: Mapping[Tensor, dict[str, Tensor]]) -> None:
        """Moves the group's parameters; neighbours' estimates are made together."""
        for run, start, stop in neighbours(segments):
            device = run[0].parameter.device
            work = torch.float64 if any(s.parameter.dtype == torch.float64 for s in run) else torch.float32
            for first, last in reference.pieces(start, stop):
                if self.sums is None:
                    made = reference.combine(
                        self.addresses, self.coefficients, self.law, first, last - first, device, work
                    )
                for segment, own, there in overlaps(run, first, last):
                    estimate = (
                        made[there]
                        if self.sums is None
                        else self.sums.estimate(segment.parameter, own, self.addresses, segment.start + own.start, work)
                    )
                    self._move(segment, own, estimate, states[segment.parameter])

    def _move(self, segment: Segment, own: slice, estimate: Tensor, state: dict[str, Tensor]) -> None:
        """Some elements of a parameter."""
        parameter = segment.parameter
        work, size = reference.working_dtype(parameter), parameter.numel()
        whole = parameter.data if parameter.is_contiguous() else parameter.data.contiguous()
        flat = whole.view(-1)
        theta = flat[own].to(work, copy=True)
        if "lost" in state:
            theta += state["lost"][own]
        if self.weight_decay:
            theta *= 1 - self.lr * self.weight_decay
        vectors = {name: tensor for name, tensor in state.items() if name != "lost"}
        parts = {name: (t[own] if t.numel() == size else t).to(work, copy=True) for name, t in vectors.items()}
        self.rule.move_(theta, estimate.to(work, copy=True), parts, self.lr)
        for name, part in parts.items():
            if vectors[name].numel() == size:
                vectors[name][own] = part.to(vectors[name].dtype)
            elif own.stop == size:  # a count of steps is one for all pieces
                vectors[name].copy_(part)
        if self.rounding == "stochastic" and parameter.dtype in _LOST_BITS:
            theta = _rounded_at_random(theta, parameter.dtype, segment.start + own.start, self.at)
        flat[own] = theta.to(parameter.dtype)
        if "lost" in state:
            state["lost"][own] = (theta - flat[own].to(work)).to(parameter.dtype)
        if whole is not parameter.data:
            parameter.data.copy_(whole)


def _rounded_at_random(values: Tensor, dtype: torch.dtype, start: int, at: Address) -> Tensor:
    """float32 numbers that are numbers of `dtype`, up or down with probabilities that keep the mean."""
    first, skipped = divmod(start, 4)
    (made,) = reference.words([at], first, -(-(skipped + values.numel()) // 4), values.device, _PURPOSE)
    lost = _LOST_BITS[dtype]
    noise = (made[skipped : skipped + values.numel()] & ((1 << lost) - 1)).to(torch.int32)
    bits = values.view(torch.int32) + noise  # the sign is apart: this adds to the size
    rounded: Tensor = (bits & ~((1 << lost) - 1)).view(torch.float32)
    return rounded
