"""The kernels for CUDA: one launch for any number of tensors, one pass over memory.

The words are those of `zoar.kernels.reference` to the bit. What may round otherwise is the
update rule, where a compiler fuses a product and a sum, and the estimate: its sums of signs are exact here
(`zoar.kernels.pieces`), and float32 there.

A tile knows its tensor by a table of pointers, so that hundreds of small tensors (LoRA) are one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from zoar.kernels import programs
from zoar.kernels.digits import digits_of, whole_numbers
from zoar.kernels.reference import Address, Sums
from zoar.kernels.tiles import Tiles

_ASM = not bool(getattr(triton.knobs.runtime, "interpret", False))
_FEW = 4  # directions that are added one by one: for more, 16 are turned round and added together
_LOST = {torch.float32: 0, torch.bfloat16: 16, torch.float16: 13}
#: The rules there are kernels for, and the vectors that each keeps.
RULES = {"sgd": (), "momentum": ("m",), "sign": (), "adamm": ("m", "v"), "radazo": ("m", "v")}


class Perturb:
    """outs = sources + radius u: contiguous tensors of one dtype, all in one launch. Made once for where they are."""

    def __init__(self, outs: Sequence[Tensor], sources: Sequence[Tensor], tiles: Tiles, law: str) -> None:
        self._tiles, self._gaussian, self._kept = tiles, law == "gaussian", (outs, sources)  # which must stay
        self._to, self._from = tiles.pointers(outs), tiles.pointers(sources)
        self._radii: tuple[list[float], Any] = ([], None)

    def __call__(self, address: Address, radii: list[float]) -> None:
        if radii != self._radii[0]:
            self._radii = (radii, self._tiles.floats(radii))
        tiles, to, from_ = self._tiles, self._to, self._from
        programs.perturb[(tiles.count,)](
            tiles.tensor, tiles.block, from_.first, from_.offsets, to.first, to.offsets, tiles.starts, tiles.sizes, self._radii[1],
            address.seed, address.step, address.query,
            GAUSSIAN=self._gaussian, BLOCKS=tiles.blocks, ALIGNED=from_.aligned and to.aligned,
        )  # fmt: skip


def has_rule(rule: Any) -> bool:
    """Whether there is a kernel for an update rule."""
    return rule.name in RULES and not getattr(rule, "amsgrad", False) and not getattr(rule, "corrected", False)


def move(
    parameters: Sequence[Tensor], vectors: Sequence[dict[str, Tensor]], tiles: Tiles, addresses: Sequence[Address],
    coefficients: Sequence[float], law: str, rule: Any, *, lr: float, weight_decay: float = 0.0, rounding: str = "nearest",
    at: Address | None = None, sums: Sums | None = None,
) -> None:  # fmt: skip
    """Moves contiguous tensors of one dtype by `rule` along the sum of c u, in one launch and one pass.

    Args:
        vectors: the rule's, flat, of one dtype for all tensors.
        at: the address of the words that round, with `rounding="stochastic"`.
        sums: running sums, with `addresses` and `coefficients` of what enters and leaves them; the estimate is then theirs.
    """
    if not has_rule(rule):
        raise ValueError(f"there is no kernel for update {rule.name!r}; there are for {', '.join(RULES)}")
    dtype, names, gaussian = parameters[0].dtype, RULES[rule.name], law == "gaussian"
    own = tiles.kept_pointers("parameters", parameters)
    rounding = rounding if _LOST[dtype] else "nearest"
    tables = {name: tiles.kept_pointers(name, [vector[name] for vector in vectors]) for name in names}
    if rounding == "compensated":
        tables["lost"] = tiles.kept_pointers("lost", [vector["lost"] for vector in vectors])
    if sums:
        tables["weighted"] = tiles.kept_pointers("weighted", [sums.tensors[parameter][0] for parameter in parameters])
        if sums.shifts:
            tables["plain"] = tiles.kept_pointers("plain", [sums.tensors[parameter][1] for parameter in parameters])
    few = len(addresses) <= _FEW
    digits = 3 if sums or dtype == torch.float32 else 2
    whole, unit = (sums.whole, sums.unit) if sums else whole_numbers(coefficients, digits)
    plain = sums.plain if sums else np.zeros(0, np.int64)
    # Rows of words: steps and queries (four rows each), then numbers: as they are (four rows each), or four of their digits a word.
    stride = 4 * -(-len(addresses) // 16)
    numbers = np.zeros((16, stride), np.int32)
    for row, column in enumerate(zip(*((a.step, a.query) for a in addresses), strict=True)):
        numbers[4 * row : 4 * row + 4].reshape(-1)[: len(addresses)] = np.array(column, np.uint32).view(np.int32)
    if sums and few:
        numbers[8:12].reshape(-1)[: len(addresses)], numbers[12:].reshape(-1)[: len(addresses)] = whole, plain
    elif not few and not gaussian:
        numbers[8 : 8 + digits] = digits_of(whole, stride, digits)
        numbers[11] = digits_of(plain, stride, 1)[0]
    table = tiles.on_device(numbers)
    floats = tiles.floats(coefficients) if not sums and (gaussian or few) else table
    beta1, beta2 = (*getattr(rule, "betas", (getattr(rule, "beta", 0.0),)), 0.0)[:2]
    programs.move[(tiles.count,)](
        tiles.tensor, tiles.block, *own.arguments,
        *(what for name in ("m", "v", "lost", "weighted", "plain") for what in tables.get(name, own).arguments),
        tiles.starts, tiles.sizes,
        table[0:4], table[4:8], table[8:], floats, len(addresses), stride, int(whole.sum()), int(plain.sum()),
        int(bool(sums and sums.fresh)), addresses[0].seed, at.step if at else 0,
        unit, (sums.shift_whole or 0) if sums else 0, sums.shift_part if sums else 0.0,
        lr, 1.0 - lr * weight_decay, beta1, beta2, getattr(rule, "eps", 0.0),
        RULE=rule.name, GAUSSIAN=gaussian, BLOCKS=tiles.blocks, GROUPS=0 if few else 4, DIGITS=digits,
        ALIGNED=tiles.aligned and all(pointers.aligned for pointers in (own, *tables.values())),
        ROUNDING=rounding, LOST=_LOST[dtype], SUMS=0 if sums is None else 1 + int(sums.shifts), ASM=_ASM,
    )  # fmt: skip
