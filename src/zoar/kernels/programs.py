"""The two programs that a GPU runs for each tile: write it perturbed, and move it. Launched by `zoar.kernels.triton`."""

# Triton reads these functions, not Python: their arguments are tensors and numbers of the device.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from zoar.kernels.pieces import bits_of, dp4a, normals, quads, rounded_at_random, signed, turned_chunks


@triton.jit
def _at(base, offsets, tensor, ALIGNED: tl.constexpr):
    """A pointer to a tensor, by how far it is from another: what a compiler knows of that one's alignment it then knows of all."""
    offset = tl.load(offsets + tensor)
    if ALIGNED:
        offset *= 8
    return base + offset


@triton.jit
def _elements(
    tile_tensor, tile_block, starts, sizes,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """The tile's tensor, its first block, and where its elements are in the tensor: (ROWS, COLUMNS), and which are there."""
    tile = tl.program_id(0)
    tensor, first = tl.load(tile_tensor + tile), tl.load(tile_block + tile).to(tl.int64)
    start, size = tl.load(starts + tensor), tl.load(sizes + tensor)
    if ALIGNED:
        start, size = start // 8 * 8, size // 8 * 8  # as they are already, but now the compiler knows
    row = first * BLOCK + tl.arange(0, ROWS)[:, None] * COLUMNS - start
    index = row + tl.arange(0, COLUMNS)[None, :]
    if ALIGNED:  # rows are in or out as a whole  # noqa: SIM108  # Triton compiles one of the two
        inside = ((row >= 0) & (row < size)).broadcast_to(ROWS, COLUMNS)
    else:
        inside = (index >= 0) & (index < size)
    return tensor, first, index, inside


@triton.jit(do_not_specialize=["seed", "step", "query"])
def perturb(
    tile_tensor, tile_block, sources, source_offsets, outs, out_offsets, starts, sizes, radii, seed, step, query,
    GAUSSIAN: tl.constexpr, BLOCKS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    if GAUSSIAN:
        tensor, first, index, inside = _elements(tile_tensor, tile_block, starts, sizes, 4, BLOCKS, 4, ALIGNED)
    else:
        tensor, first, index, inside = _elements(tile_tensor, tile_block, starts, sizes, 128, BLOCKS * 16, 8, ALIGNED)
    source, out = _at(sources, source_offsets, tensor, ALIGNED), _at(outs, out_offsets, tensor, ALIGNED)
    radius = tl.load(radii + tensor)
    theta = tl.load(source + index, mask=inside, other=0.0)
    block = (first + tl.arange(0, BLOCKS)).to(tl.uint32)
    step, query = step.to(tl.uint32), query.to(tl.uint32)
    if GAUSSIAN:
        n0, n1, n2, n3 = normals(seed, block, step, query)
        value = radius * quads(n0, n1, n2, n3)
    else:
        value = signed(bits_of(seed, block, step, query), radius)
    tl.store(out + index, (theta.to(tl.float32) + value).to(theta.dtype), mask=inside)


@triton.jit
def _moved(theta, g, m_at, v_at, index, inside, lr, beta1, beta2, eps, RULE: tl.constexpr):
    """theta after a step of the rule, whose vectors are read and written."""
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
    return theta


@triton.jit
def _few_signs(
    seed, block, steps, queries, numbers, coefficients, count, stride, BLOCKS: tl.constexpr, SUMS: tl.constexpr
):
    """The sum of c u, a direction at a time; or its two sums of whole numbers."""
    g = tl.zeros([BLOCKS * 16, 8], tl.float32)
    h = tl.zeros([BLOCKS * 16, 8], tl.int32)
    p = h
    r = 0
    while r < count:  # not range(): its length is known at run time only, and one compilation serves every window
        bits = bits_of(seed, block, tl.load(steps + r), tl.load(queries + r))
        if SUMS == 0:
            g += signed(bits, tl.load(coefficients + r))
        else:
            sign = 1 - 2 * (bits & 1).to(tl.int32)
            h += sign * tl.load(numbers + r)
            if SUMS == 2:
                p += sign * tl.load(numbers + 4 * stride + r)
        r += 1
    return g, h, p


@triton.jit
def _many_signs(
    seed, first, steps, queries, digits, count, stride, total, plain_total, unit,
    BLOCKS: tl.constexpr, GROUPS: tl.constexpr, DIGITS: tl.constexpr, SUMS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """The same, 16 directions at a time."""
    lane = tl.arange(0, 8)
    mask = (0x01010101 << lane).to(tl.uint32)[None, :]
    s0 = tl.zeros([BLOCKS * 16, 8], tl.int32)
    s1, s2, p = s0, s0, s0
    r = 0
    while r < count:
        chunks = turned_chunks(seed, first, steps, queries, r, BLOCKS, GROUPS, ASM)
        even, odd = tl.split(tl.reshape(chunks, [BLOCKS * 16, 2, 2]))
        x0, x2 = tl.split(even)
        x1, x3 = tl.split(odd)
        for group in tl.static_range(GROUPS):
            x = x0 if group == 0 else (x1 if group == 1 else (x2 if group == 2 else x3))
            bits, at = x[:, None] & mask, digits + r // 4 + group
            s0 = dp4a(bits, tl.load(at), s0, ASM)
            s1 = dp4a(bits, tl.load(at + stride), s1, ASM)
            if DIGITS == 3:
                s2 = dp4a(bits, tl.load(at + 2 * stride), s2, ASM)
            if SUMS == 2:
                p = dp4a(bits, tl.load(at + 3 * stride), p, ASM)
        r += 4 * GROUPS
    if SUMS == 0:
        sums = s1.to(tl.float32) * 256.0 + s0.to(tl.float32)
        if DIGITS == 3:
            sums += s2.to(tl.float32) * 65536.0
        share = (1.0 / (1 << lane).to(tl.float32))[None, :]  # of a sum: bits stand where they stood in their byte
        g = unit * (total - 2.0 * share * sums)
        h = s0
    else:
        h = total - 2 * (((s2 >> lane) << 16) + ((s1 >> lane) << 8) + (s0 >> lane))
        p = plain_total - 2 * (p >> lane)
        g = h.to(tl.float32)
    return g, h, p


@triton.jit(
    do_not_specialize=["count", "stride", "total", "plain_total", "fresh", "seed", "rounding_step", "shift_whole"]
)
def move(
    tile_tensor, tile_block, parameters, parameter_offsets, ms, m_offsets, vs, v_offsets, losts, lost_offsets,
    weighted, weighted_offsets, plain, plain_offsets, starts, sizes,
    steps, queries, digits, coefficients, count, stride, total, plain_total, fresh, seed, rounding_step,
    unit, shift_whole, shift_part, lr, shrink, beta1, beta2, eps,
    RULE: tl.constexpr, GAUSSIAN: tl.constexpr, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, DIGITS: tl.constexpr,
    ALIGNED: tl.constexpr, ROUNDING: tl.constexpr, LOST: tl.constexpr, SUMS: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    if GAUSSIAN:
        tensor, first, index, inside = _elements(tile_tensor, tile_block, starts, sizes, 4, BLOCKS, 4, ALIGNED)
        block = (first + tl.arange(0, BLOCKS)).to(tl.uint32)
        g0 = tl.zeros([BLOCKS], tl.float32)
        g1, g2, g3 = g0, g0, g0
        r = 0
        while r < count:  # not range(): its length is known at run time only, and one compilation serves every window
            c = tl.load(coefficients + r)
            n0, n1, n2, n3 = normals(seed, block, tl.load(steps + r).to(tl.uint32), tl.load(queries + r).to(tl.uint32))
            g0, g1, g2, g3 = g0 + c * n0, g1 + c * n1, g2 + c * n2, g3 + c * n3
            r += 1
        g = quads(g0, g1, g2, g3)
    else:
        tensor, first, index, inside = _elements(tile_tensor, tile_block, starts, sizes, 128, BLOCKS * 16, 8, ALIGNED)
        if GROUPS == 0:
            g, h, p = _few_signs(
                seed,
                (first + tl.arange(0, BLOCKS)).to(tl.uint32),
                steps,
                queries,
                digits,
                coefficients,
                count,
                stride,
                BLOCKS,
                SUMS,
            )
        else:
            g, h, p = _many_signs(
                seed,
                first,
                steps,
                queries,
                digits,
                count,
                stride,
                total,
                plain_total,
                unit,
                BLOCKS,
                GROUPS,
                DIGITS,
                SUMS,
                ASM,
            )
        if SUMS > 0:
            h_at = _at(weighted, weighted_offsets, tensor, ALIGNED)
            if fresh == 0:
                h += tl.load(h_at + index, mask=inside, other=0)
            tl.store(h_at + index, h, mask=inside)
            if SUMS == 2:
                p_at = _at(plain, plain_offsets, tensor, ALIGNED)
                if fresh == 0:
                    p += tl.load(p_at + index, mask=inside, other=0).to(tl.int32)
                tl.store(p_at + index, p.to(tl.int8), mask=inside)
                g = unit * ((h - shift_whole * p).to(tl.float32) - shift_part * p.to(tl.float32))
            else:
                g = unit * h.to(tl.float32)
    parameter = _at(parameters, parameter_offsets, tensor, ALIGNED)
    m_at, v_at = _at(ms, m_offsets, tensor, ALIGNED), _at(vs, v_offsets, tensor, ALIGNED)
    held = tl.load(parameter + index, mask=inside, other=0.0)
    theta = held.to(tl.float32)
    if ROUNDING == "compensated":
        lost_at = _at(losts, lost_offsets, tensor, ALIGNED)
        theta += tl.load(lost_at + index, mask=inside, other=0.0).to(tl.float32)
    theta = _moved(theta * shrink, g, m_at, v_at, index, inside, lr, beta1, beta2, eps, RULE)
    if ROUNDING == "stochastic":
        if GAUSSIAN:
            at_random = rounded_at_random(
                tl.reshape(theta, [BLOCKS // 2, 8]), seed, first * 4, rounding_step, BLOCKS // 2, LOST
            )
            theta = tl.reshape(at_random, [BLOCKS, 4])
        else:
            theta = rounded_at_random(theta, seed, first * 128, rounding_step, BLOCKS * 16, LOST)
    new = theta.to(held.dtype)
    tl.store(parameter + index, new, mask=inside)
    if ROUNDING == "compensated":
        tl.store(lost_at + index, (theta - new.to(tl.float32)).to(held.dtype), mask=inside)
