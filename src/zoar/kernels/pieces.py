"""What the kernels are made of: words to signs, to normal numbers, to exact sums of signs; and rounding.

A tile is `BLOCKS` consecutive Philox blocks of a direction. A Rademacher block signs 128 elements, a bit each; they are held as
chunks of 8 elements, a byte of a word each: (16 BLOCKS, 8). A chunk is 16 bytes of bfloat16, what a thread loads at once.

**The sum of many signs** is the heart of a replay, and is exact. Coefficients are whole numbers of 24 bits, in three signed
bytes (`zoar.kernels.digits`); beside weights of 16 bits, which keep 8 or 11 of them, of 16 bits, in two. Of four directions the
words are turned round, so that a register holds four directions' bytes for the same 8 elements; one `and` then picks an element's
four bits, and `dp4a` adds the four products to a whole number. Two or three quarters of an instruction for each direction and
element is less than shifting, flipping a sign and adding would take, and nothing is rounded. A bit is left where it stands in its
byte: the sums are 2^lane times too large, and are divided once at the end.

Inline assembly is what Triton's interpreter lacks: `ASM=False` says the same in plain operations.
"""

# Triton reads these functions, not Python: their arguments are tensors and numbers of the device.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

_RADIANS = tl.constexpr(-2.0 * 3.141592653589793 / 2**32)  # of a word


@triton.jit
def words(seed, block, step, query, purpose):
    """The four words of each block: Philox 4x32-10.

    Its own, since tl.philox takes two instructions for the two halves of a product, where a multiplication of 32 bits to 64 is one.
    """
    key = seed.to(tl.uint64)
    key0, key1 = key.to(tl.uint32), (key >> 32).to(tl.uint32)
    zero = block * 0
    c0, c1, c2, c3 = block, zero + query.to(tl.uint32), zero + step.to(tl.uint32), zero + purpose
    for _ in tl.static_range(10):
        first, second = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c2 = (second >> 32).to(tl.uint32) ^ c1 ^ key0, (first >> 32).to(tl.uint32) ^ c3 ^ key1
        c1, c3 = second.to(tl.uint32), first.to(tl.uint32)
        key0, key1 = key0 + 0x9E3779B9, key1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def quads(a, b, c, d):
    """Four (n) to (n, 4)."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [a.shape[0], 4])


# -- one direction ----------------------------------------------------------------------------------------------------------


@triton.jit
def bits_of(seed, block, step, query):
    """Blocks to a word for each element, (chunks, 8), whose lowest bit is the element's: set for -."""
    w0, w1, w2, w3 = words(seed, block, step, query, 0)
    all_words = tl.reshape(quads(w0, w1, w2, w3), [block.shape[0] * 4])
    octets = all_words[:, None] >> (tl.arange(0, 4) * 8).to(tl.uint32)[None, :]
    return tl.reshape(octets, [block.shape[0] * 16])[:, None] >> tl.arange(0, 8).to(tl.uint32)[None, :]


@triton.jit
def signed(bits, value):
    """value with the bits' signs."""
    return ((bits << 31) ^ value.to(tl.uint32, bitcast=True)).to(tl.float32, bitcast=True)


@triton.jit
def _normal(first, second):
    """Two words to two normal numbers (Box and Muller)."""
    uniform = 1.0 - (first >> 9).to(tl.float32) * (1.0 / 8388608.0)
    radius = tl.sqrt(-2.0 * tl.log(uniform))
    angle = _RADIANS * second.to(tl.int32, bitcast=True).to(tl.float32)
    return radius * tl.sin(angle), radius * tl.cos(angle)


@triton.jit
def normals(seed, block, step, query):
    """Blocks to their four normal numbers each."""
    w0, w1, w2, w3 = words(seed, block, step, query, 0)
    n0, n1 = _normal(w0, w1)
    n2, n3 = _normal(w2, w3)
    return n0, n1, n2, n3


# -- exact sums of signs ----------------------------------------------------------------------------------------------------


@triton.jit
def _bytes_of_two(a, b, PICK: tl.constexpr, ASM: tl.constexpr):
    """Four of the eight bytes of a (0-3) and b (4-7), by PTX's prmt."""
    if ASM:
        if PICK == 0x5140:
            out = tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x5140;", "=r,r,r", [a, b], tl.uint32, True, 1)
        elif PICK == 0x7362:
            out = tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7362;", "=r,r,r", [a, b], tl.uint32, True, 1)
        elif PICK == 0x5410:
            out = tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], tl.uint32, True, 1)
        else:
            out = tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], tl.uint32, True, 1)
    else:
        out = a * 0
        for place in tl.static_range(4):
            byte: tl.constexpr = (PICK >> (4 * place)) & 7
            word = a if byte < 4 else b
            out |= ((word >> (8 * (byte % 4))) & 255) << (8 * place)
    return out


@triton.jit
def _turned(a, b, c, d, ASM: tl.constexpr):
    """Words of four directions to four words of a byte of each."""
    low, low_ = _bytes_of_two(a, b, 0x5140, ASM), _bytes_of_two(c, d, 0x5140, ASM)
    high, high_ = _bytes_of_two(a, b, 0x7362, ASM), _bytes_of_two(c, d, 0x7362, ASM)
    return (
        _bytes_of_two(low, low_, 0x5410, ASM), _bytes_of_two(low, low_, 0x7632, ASM),
        _bytes_of_two(high, high_, 0x5410, ASM), _bytes_of_two(high, high_, 0x7632, ASM),
    )  # fmt: skip


@triton.jit
def turned_chunks(seed, first_block, steps, queries, r, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ASM: tl.constexpr):
    """4 GROUPS directions from r on: (chunks, GROUPS) words, each a byte of four directions.

    Every thread makes words of its own, which then change hands: made where they are needed they would be made 16 times.
    """
    item = tl.arange(0, BLOCKS * GROUPS)
    block = (first_block + item % BLOCKS).to(tl.uint32)
    at = r + item // BLOCKS * 4
    a0, a1, a2, a3 = words(seed, block, tl.load(steps + at), tl.load(queries + at), 0)
    b0, b1, b2, b3 = words(seed, block, tl.load(steps + at + 1), tl.load(queries + at + 1), 0)
    c0, c1, c2, c3 = words(seed, block, tl.load(steps + at + 2), tl.load(queries + at + 2), 0)
    d0, d1, d2, d3 = words(seed, block, tl.load(steps + at + 3), tl.load(queries + at + 3), 0)
    s0, s1, s2, s3 = _turned(a0, b0, c0, d0, ASM)
    t0, t1, t2, t3 = _turned(a1, b1, c1, d1, ASM)
    u0, u1, u2, u3 = _turned(a2, b2, c2, d2, ASM)
    v0, v1, v2, v3 = _turned(a3, b3, c3, d3, ASM)
    s, t, u, v = quads(s0, s1, s2, s3), quads(t0, t1, t2, t3), quads(u0, u1, u2, u3), quads(v0, v1, v2, v3)
    every = tl.reshape(
        tl.join(tl.join(s, u), tl.join(t, v)), [GROUPS, BLOCKS, 4, 4]
    )  # of a word the bytes, then which word
    return tl.reshape(tl.permute(every, [1, 3, 2, 0]), [BLOCKS * 16, GROUPS])


@triton.jit
def dp4a(bits, digits, total, ASM: tl.constexpr):
    """total + the products of four unsigned with four signed bytes."""
    if ASM:
        total = tl.inline_asm_elementwise(
            "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", [bits, digits, total], tl.int32, True, 1
        )
    else:
        for byte in tl.static_range(4):
            digit = (digits << (24 - 8 * byte)) >> 24
            total += ((bits >> (8 * byte)) & 255).to(tl.int32) * digit
    return total


# -- rounding ---------------------------------------------------------------------------------------------------------------


@triton.jit
def rounded_at_random(values, seed, first_element, step, CHUNKS: tl.constexpr, LOST: tl.constexpr):
    """float32 (chunks, 8) to numbers with LOST bits fewer, up or down with probabilities that keep the mean."""
    block = (first_element // 4 + tl.arange(0, CHUNKS * 2)).to(tl.uint32)
    w0, w1, w2, w3 = words(seed, block, step, step * 0, 1)
    noise = tl.reshape(quads(w0, w1, w2, w3), [CHUNKS, 8]) & ((1 << LOST) - 1)
    bits = values.to(tl.uint32, bitcast=True) + noise
    return ((bits >> LOST) << LOST).to(tl.float32, bitcast=True)
