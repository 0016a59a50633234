"""The kernels for CUDA: one launch for any number of tensors, one pass over memory.

The words are those of `zoar.kernels.reference` to the bit (Triton's own Philox is the same one), and so are the sums of signs:
directions are added in the same order in float32. What rounds otherwise is the update rule, where a compiler may fuse a product
and a sum.

A tile is some consecutive Philox blocks of a direction. A Rademacher block signs 128 elements, 32 a word; a Gaussian one makes
four. A tile knows its tensor by a table of pointers, so that hundreds of small tensors (LoRA) are one launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from zoar.kernels.reference import Address

_BLOCKS = {"rademacher": 8, "gaussian": 256}  # a tile's
_ELEMENTS = {"rademacher": 128, "gaussian": 4}  # a block's
_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
#: The rules there are kernels for, and the vectors that each keeps.
RULES = {"sgd": (), "momentum": ("m",), "sign": (), "adamm": ("m", "v"), "radazo": ("m", "v")}
_RADIANS = -2.0 * 3.141592653589793 / 2**32  # of a word


@triton.jit
def _signed(word, lanes, c):  # type: ignore[no-untyped-def]
    """c with the signs of a word's bits, (blocks, 32): a set bit is -."""
    bit = (word[:, None] >> lanes[None, :]) & 1
    return tl.where(bit != 0, -c, c)


@triton.jit
def _normal(first, second, RADIANS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Two words to two normal numbers (Box and Muller)."""
    uniform = 1.0 - (first >> 9).to(tl.float32) * (1.0 / 8388608.0)
    radius = tl.sqrt(-2.0 * tl.log(uniform))
    angle = RADIANS * second.to(tl.int32, bitcast=True).to(tl.float32)
    return radius * tl.sin(angle), radius * tl.cos(angle)


@triton.jit
def _perturb_part(source, out, index, size, value):  # type: ignore[no-untyped-def]
    inside = (index >= 0) & (index < size)
    theta = tl.load(source + index, mask=inside, other=0.0)
    tl.store(out + index, (theta.to(tl.float32) + value).to(theta.dtype), mask=inside)


@triton.jit
def _perturb(  # type: ignore[no-untyped-def]
    tile_tensor, tile_block, sources, outs, starts, sizes, radii, seed, step, query,
    DTYPE: tl.constexpr, GAUSSIAN: tl.constexpr, BLOCKS: tl.constexpr, RADIANS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    tensor = tl.load(tile_tensor + tile)
    block = tl.load(tile_block + tile) + tl.arange(0, BLOCKS)
    source = tl.load(sources + tensor).to(tl.pointer_type(DTYPE))
    out = tl.load(outs + tensor).to(tl.pointer_type(DTYPE))
    start, size, radius = tl.load(starts + tensor), tl.load(sizes + tensor), tl.load(radii + tensor)
    zero = tl.zeros([BLOCKS], tl.uint32)
    w0, w1, w2, w3 = tl.philox(seed, block.to(tl.uint32), zero + query, zero + step, zero)
    if GAUSSIAN:
        n0, n1 = _normal(w0, w1, RADIANS)
        n2, n3 = _normal(w2, w3, RADIANS)
        index = block * 4 - start
        _perturb_part(source, out, index, size, radius * n0)
        _perturb_part(source, out, index + 1, size, radius * n1)
        _perturb_part(source, out, index + 2, size, radius * n2)
        _perturb_part(source, out, index + 3, size, radius * n3)
    else:
        lanes = tl.arange(0, 32)
        index = block[:, None] * 128 + lanes[None, :] - start
        _perturb_part(source, out, index, size, _signed(w0, lanes, radius))
        _perturb_part(source, out, index + 32, size, _signed(w1, lanes, radius))
        _perturb_part(source, out, index + 64, size, _signed(w2, lanes, radius))
        _perturb_part(source, out, index + 96, size, _signed(w3, lanes, radius))


@triton.jit
def _move_part(  # type: ignore[no-untyped-def]
    parameter, m_at, v_at, index, size, g, lr, shrink, beta1, beta2, eps, RULE: tl.constexpr
):
    inside = (index >= 0) & (index < size)
    held = tl.load(parameter + index, mask=inside, other=0.0)
    theta = held.to(tl.float32) * shrink
    if RULE == "sgd":
        theta -= lr * g
    elif RULE == "sign":
        theta -= lr * ((g > 0).to(tl.float32) - (g < 0).to(tl.float32))
    else:
        kept = tl.load(m_at + index, mask=inside, other=0.0)
        m = kept.to(tl.float32)
        if RULE == "momentum":
            m = beta1 * m + g
            theta -= lr * m
        else:
            m = m + (1 - beta1) * (g - m)
            kept_v = tl.load(v_at + index, mask=inside, other=0.0)
            v = kept_v.to(tl.float32) * beta2
            if RULE == "adamm":
                v += (1 - beta2) * g * g
                theta -= lr * (m / (tl.sqrt(v) + eps))
            else:
                v += (1 - beta2) * m * m
                theta -= lr * (m / tl.sqrt(v + eps))
            tl.store(v_at + index, v.to(kept_v.dtype), mask=inside)
        tl.store(m_at + index, m.to(kept.dtype), mask=inside)
    tl.store(parameter + index, theta.to(held.dtype), mask=inside)


@triton.jit
def _move(  # type: ignore[no-untyped-def]
    tile_tensor, tile_block, parameters, ms, vs, starts, sizes, steps, queries, coefficients, count, seed,
    lr, shrink, beta1, beta2, eps,
    DTYPE: tl.constexpr, KEPT: tl.constexpr, RULE: tl.constexpr, GAUSSIAN: tl.constexpr, BLOCKS: tl.constexpr,
    RADIANS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    tensor = tl.load(tile_tensor + tile)
    block = tl.load(tile_block + tile) + tl.arange(0, BLOCKS)
    parameter = tl.load(parameters + tensor).to(tl.pointer_type(DTYPE))
    m_at = tl.load(ms + tensor).to(tl.pointer_type(KEPT))
    v_at = tl.load(vs + tensor).to(tl.pointer_type(KEPT))
    start, size = tl.load(starts + tensor), tl.load(sizes + tensor)
    zero = tl.zeros([BLOCKS], tl.uint32)
    if GAUSSIAN:
        g0 = tl.zeros([BLOCKS], tl.float32)
        g1, g2, g3 = g0, g0, g0
        r = 0
        while r < count:  # not range(): its length is known at run time only, and one compilation serves every window
            c = tl.load(coefficients + r)
            w0, w1, w2, w3 = tl.philox(
                seed,
                block.to(tl.uint32),
                zero + tl.load(queries + r).to(tl.uint32),
                zero + tl.load(steps + r).to(tl.uint32),
                zero,
            )
            n0, n1 = _normal(w0, w1, RADIANS)
            n2, n3 = _normal(w2, w3, RADIANS)
            g0, g1, g2, g3 = g0 + c * n0, g1 + c * n1, g2 + c * n2, g3 + c * n3
            r += 1
        index = block * 4 - start
        _move_part(parameter, m_at, v_at, index, size, g0, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 1, size, g1, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 2, size, g2, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 3, size, g3, lr, shrink, beta1, beta2, eps, RULE)
    else:
        lanes = tl.arange(0, 32)
        s0 = tl.zeros([BLOCKS, 32], tl.float32)
        s1, s2, s3 = s0, s0, s0
        r = 0
        while r < count:  # not range(): its length is known at run time only, and one compilation serves every window
            c = tl.load(coefficients + r)
            w0, w1, w2, w3 = tl.philox(
                seed,
                block.to(tl.uint32),
                zero + tl.load(queries + r).to(tl.uint32),
                zero + tl.load(steps + r).to(tl.uint32),
                zero,
            )
            s0 += _signed(w0, lanes, c)
            s1 += _signed(w1, lanes, c)
            s2 += _signed(w2, lanes, c)
            s3 += _signed(w3, lanes, c)
            r += 1
        index = block[:, None] * 128 + lanes[None, :] - start
        _move_part(parameter, m_at, v_at, index, size, s0, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 32, size, s1, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 64, size, s2, lr, shrink, beta1, beta2, eps, RULE)
        _move_part(parameter, m_at, v_at, index + 96, size, s3, lr, shrink, beta1, beta2, eps, RULE)


@dataclass(frozen=True)
class Tiles:
    """The tiles of some tensors of one dtype on one device: made once, used at every step.

    Attributes:
        tensor: which tensor each tile is of.
        block: its first Philox block.
        starts, sizes: of each tensor, where it begins in a direction and how many elements it has.
    """

    tensor: Tensor
    block: Tensor
    starts: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, tensors: Sequence[Tensor], starts: Sequence[int], law: str) -> Tiles:
        """`starts` says where each tensor's elements begin in a direction."""
        which: list[int] = []
        first: list[int] = []
        for place, (tensor, start) in enumerate(zip(tensors, starts, strict=True)):
            begin, end = start // _ELEMENTS[law], -(-(start + tensor.numel()) // _ELEMENTS[law])
            blocks = range(begin, end, _BLOCKS[law])
            which += [place] * len(blocks)
            first += blocks
        device = tensors[0].device
        sizes = [tensor.numel() for tensor in tensors]
        return cls(
            torch.tensor(which, dtype=torch.int32, device=device),
            *(torch.tensor(numbers, dtype=torch.int64, device=device) for numbers in (first, starts, sizes)),
        )


def perturb(
    outs: Sequence[Tensor], sources: Sequence[Tensor], tiles: Tiles, address: Address, law: str, radii: Sequence[float]
) -> None:
    """outs = sources + radius u: contiguous tensors of one dtype, all in one launch."""
    device = sources[0].device
    _perturb[(len(tiles.tensor),)](
        tiles.tensor, tiles.block, _pointers(sources), _pointers(outs), tiles.starts, tiles.sizes,
        torch.tensor(radii, dtype=torch.float32, device=device), address.seed, address.step, address.query,
        DTYPE=_DTYPES[sources[0].dtype], GAUSSIAN=law == "gaussian", BLOCKS=_BLOCKS[law], RADIANS=_RADIANS,
    )  # fmt: skip


def move(
    parameters: Sequence[Tensor], vectors: Sequence[dict[str, Tensor]], tiles: Tiles, addresses: Sequence[Address],
    coefficients: Sequence[float], law: str, rule: Any, *, lr: float, weight_decay: float = 0.0,
) -> None:  # fmt: skip
    """Moves contiguous tensors of one dtype along the sum of c u, by `rule`, in one launch and one pass.

    `vectors` are the rule's, flat, of one dtype for all tensors.
    """
    if rule.name not in RULES:
        raise ValueError(f"there is no kernel for update {rule.name!r}; there are for {', '.join(RULES)}")
    device = parameters[0].device
    beta1, beta2 = (*getattr(rule, "betas", (getattr(rule, "beta", 0.0),)), 0.0)[:2]
    names = RULES[rule.name]
    kept = vectors[0][names[0]].dtype if names else torch.float32
    ms, vs = (
        _pointers([vector[name] for vector in vectors]) if name in names else _pointers(parameters)
        for name in ("m", "v")
    )
    numbers = [torch.tensor(column, dtype=torch.int64, device=device) for column in zip(*addresses, strict=True)]
    _move[(len(tiles.tensor),)](
        tiles.tensor, tiles.block, _pointers(parameters), ms, vs, tiles.starts, tiles.sizes, numbers[1], numbers[2],
        torch.tensor(coefficients, dtype=torch.float32, device=device), len(addresses), addresses[0].seed,
        lr, 1.0 - lr * weight_decay, beta1, beta2, getattr(rule, "eps", 0.0),
        DTYPE=_DTYPES[parameters[0].dtype], KEPT=_DTYPES[kept], RULE=rule.name, GAUSSIAN=law == "gaussian", BLOCKS=_BLOCKS[law],
        RADIANS=_RADIANS,
    )  # fmt: skip


def _pointers(tensors: Sequence[Tensor]) -> Tensor:
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError(f"the kernels take contiguous tensors, got one of shape {tuple(tensor.shape)} that is not")
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=tensors[0].device)
