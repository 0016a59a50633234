"""Counter-based random words: a direction is an address, not a thing to keep.

Two word sources, one interface. Both are pure functions of their address: nothing is consumed, so a word drawn
again is the same word, and the global generators of torch, numpy and random are never touched.

`Philox`  Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), addressed by
          (seed, step, query, word). The same words on every device.
`SFC64`   numpy's SFC64, addressed by (seed, step); several times cheaper a word, CPU only. Used for Gaussian numbers,
          where the words are the cost.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.checking import whole_number

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)

WORDS_PER_BLOCK = 4

_RADIANS = -2.0 * math.pi / 2**32  # of a word


def philox4x32(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds of Philox4x32 on arrays of counters.

    The four counters are 64-bit arrays that hold 32-bit words (numpy uint64, or torch int64 on any device): 64 bits
    hold the 32x32 product.

    >>> zero = np.zeros(1, np.uint64)
    >>> [hex(int(word[0])) for word in philox4x32((zero, zero, zero, zero), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low3, low1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = low1 >> 32, low3 >> 32
        if isinstance(c0, Tensor):  # torch shifts the sign in
            c0 &= _MASK
            c2 &= _MASK
        c0 ^= c1
        c0 ^= k0
        c2 ^= c3
        c2 ^= k1
        low1 &= _MASK
        low3 &= _MASK
        c1, c3 = low1, low3
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


class Stream(ABC):
    """A source of 32-bit words by address."""

    name: str

    def __init__(self, seed: int) -> None:
        self.seed = whole_number("seed", seed, 0, 2**64 - 1)

    @abstractmethod
    def words(self, step: int, queries: int, count: int) -> Any:
        """`count` words for each of `queries` queries of `step`: shape (queries, count)."""


class Philox(Stream):
    """Words addressed by (seed, step, query, word); numpy uint32 on the CPU, int64 tensors elsewhere.

    Word w of query q of step s is output w % 4 of the block whose counter is (w // 4, q, s, purpose) under the key
    (seed % 2**32, seed // 2**32): a kernel on another device can make just the words it needs.
    """

    name = "philox"
    # Small batches cost more in array calls than in arithmetic, so words of the coming steps are made along with these.
    _LOOKAHEAD_BLOCKS = 16_384
    _CHUNKS_KEPT = 4  # the newest steps, and those just leaving the window, each read their own

    def __init__(self, seed: int, device: torch.device | str = "cpu", purpose: int = 0) -> None:
        super().__init__(seed)
        self.device, self.purpose = torch.device(device), purpose
        self._chunks: OrderedDict[tuple[int, int, int], Any] = OrderedDict()

    def words(self, step: int, queries: int, count: int) -> Any:
        blocks = -(-count // WORDS_PER_BLOCK)
        if blocks > _MASK or step > _MASK or queries > _MASK:
            raise ValueError(
                f"a stream addresses 2**32 steps, queries and blocks; got step {step}, {queries} queries, {blocks} blocks"
            )
        span = max(1, self._LOOKAHEAD_BLOCKS // (blocks * queries))
        address = (step // span, queries, count)
        chunk = self._chunks.get(address)
        if chunk is None:
            chunk = self._make(step // span * span, span, queries, blocks)
            self._chunks[address] = chunk
            while len(self._chunks) > self._CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        return chunk[step % span, :, :count]

    def _make(self, first: int, span: int, queries: int, blocks: int) -> Any:
        shape = (span, queries, blocks)
        counter: tuple[Any, Any, Any, Any]
        packed: Any
        if self.device.type == "cpu":
            axes = [np.arange(n, dtype=np.uint64) for n in shape]
            step, query, block = (
                np.broadcast_to(axis, shape) for axis in np.ix_(axes[0] + np.uint64(first), axes[1], axes[2])
            )
            counter = (block, query, step, np.full(shape, self.purpose, np.uint64))
            packed = np.empty((*shape, WORDS_PER_BLOCK), np.uint32)
        else:
            options: dict[str, Any] = {"dtype": torch.int64, "device": self.device}
            ranges = [torch.arange(n, **options) for n in shape]
            steps, queries_, blocks_ = torch.meshgrid(ranges[0] + first, ranges[1], ranges[2], indexing="ij")
            counter = (blocks_, queries_, steps, torch.full(shape, self.purpose, **options))
            packed = torch.empty((*shape, WORDS_PER_BLOCK), **options)
        for i, word in enumerate(philox4x32(counter, (self.seed & _MASK, self.seed >> 32))):
            packed[..., i] = word
        return packed.reshape(span, queries, blocks * WORDS_PER_BLOCK)


class SFC64(Stream):
    """Words addressed by (seed, step): numpy's SFC64, re-seeded for each step with the step in its state.

    The generator needs twelve outputs to mix its seed (numpy's own seeding does the same); they are thrown away.
    """

    name = "sfc64"
    _MIXING_OUTPUTS = 12

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._bits = np.random.SFC64(0)  # its state is set before every draw

    def words(self, step: int, queries: int, count: int) -> np.ndarray[Any, Any]:
        total = queries * count
        state = np.array([self.seed, step, 0x5A4F4152, 1], np.uint64)  # "ZOAR", then SFC64's counter, which starts at 1
        self._bits.state = {"bit_generator": "SFC64", "state": {"state": state}, "has_uint32": 0, "uinteger": 0}
        raw = self._bits.random_raw(self._MIXING_OUTPUTS + -(-total // 2))[self._MIXING_OUTPUTS :]
        return raw.view(np.uint32)[:total].reshape(queries, count)


def uniform(words: Any) -> Any:
    """Words to float32 numbers in (0, 1]: the top 23 bits become a mantissa, so no word gives 0.

    A numpy array is overwritten by its result.
    """
    if isinstance(words, Tensor):
        return 1.0 - (words >> 9).to(torch.float32) * 2.0**-23
    words >>= 9
    words |= 0x3F800000  # the bits of a float in [1, 2)
    numbers = words.view(np.float32)
    return np.subtract(np.float32(2.0), numbers, out=numbers)


def box_muller(radius_words: Any, angle_words: Any) -> tuple[Tensor, Tensor]:
    """Two arrays of words to two tensors of independent standard normal numbers (Box and Muller, 1958).

    numpy arrays become the memory of their results: at these sizes memory costs as much as arithmetic. The functions
    are torch's there too, a third faster than numpy's.
    """
    # Read as a signed number, a word is an angle between -1/2 and 1/2 turns.
    if isinstance(radius_words, Tensor):
        radius, angle = uniform(radius_words), _RADIANS * angle_words.to(torch.int32).to(torch.float32)
    else:
        radians = angle_words.view(np.float32)
        radians[...] = angle_words.view(np.int32)
        radians *= np.float32(_RADIANS)
        radius, angle = torch.from_numpy(uniform(radius_words)), torch.from_numpy(radians)
    radius.log_().mul_(-2.0).sqrt_()
    sine = angle.sin()
    cosine = angle.cos_().mul_(radius)
    return radius.mul_(sine), cosine
