"""Random words: the published vectors, the addressing, and the statistics of what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from zoar.smoothing import Gaussian, Rademacher
from zoar.streams import SFC64, Philox, box_muller, philox4x32, uniform

CPU = torch.device("cpu")

# Random123, tests/kat_vectors: philox4x32 10
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_philox_gives_the_published_words(library: str, counter: tuple, key: tuple, expected: tuple) -> None:
    if library == "numpy":
        arrays = tuple(np.full(3, word, np.uint64) for word in counter)
    else:
        arrays = tuple(torch.full((3,), word, dtype=torch.int64) for word in counter)
    assert [int(word[1]) for word in philox4x32(arrays, key)] == list(expected)


def test_words_are_addressed_by_step_query_and_block() -> None:
    """However many are asked for at once, word w of query q of step s is output w % 4 of block (w // 4, q, s, 0)."""
    seed = (7 << 32) | 5
    for step, query, word in ((0, 0, 0), (3, 1, 6), (1000, 2, 9)):
        counter = tuple(np.array([n], np.uint64) for n in (word // 4, query, step, 0))
        expected = int(philox4x32(counter, (5, 7))[word % 4][0])
        for queries, count in ((3, 10), (5, 64)):
            assert int(Philox(seed).words(step, queries, count)[query, word]) == expected


def test_the_order_of_drawing_does_not_matter() -> None:
    for make in (lambda: Philox(1), lambda: SFC64(1)):
        forward, backward = make(), make()
        words = [forward.words(step, 2, 8).copy() for step in range(40)]
        for step in reversed(range(40)):
            np.testing.assert_array_equal(backward.words(step, 2, 8), words[step])


def test_seeds_steps_and_queries_give_other_words() -> None:
    for kind in (Philox, SFC64):
        rows = np.concatenate([kind(seed).words(step, 2, 16) for seed in (0, 1, 2**32) for step in (0, 1)])
        assert len({row.tobytes() for row in rows}) == len(rows)


def test_uniform_never_gives_zero_and_may_give_one() -> None:
    words = np.array([0, 1 << 9, 0xFFFFFFFF], np.uint32)
    expected = np.float32([1, 1 - 2**-23, 2**-23])
    np.testing.assert_array_equal(uniform(torch.from_numpy(words.astype(np.int64))).numpy(), expected)
    np.testing.assert_array_equal(uniform(words), expected)


@pytest.mark.parametrize("source", ["philox", "sfc64"])
def test_normal_numbers_are_normal(source: str) -> None:
    """400,000 numbers: moments within five standard errors; Kolmogorov-Smirnov below its 1e-4 quantile, 2.23 / sqrt(n)."""
    n = 400_000
    u = Gaussian().draw(Gaussian().stream(11, CPU, source), 0, 4, n // 4, torch.float64, CPU).numpy().ravel()
    assert abs(u.mean()) < 5 / n**0.5
    assert abs((u**2).mean() - 1) < 5 * (2 / n) ** 0.5
    assert abs((u**3).mean()) < 5 * (15 / n) ** 0.5
    assert abs((u**4).mean() - 3) < 5 * (96 / n) ** 0.5
    cdf = 0.5 * (1 + torch.erf(torch.from_numpy(np.sort(u)) / 2**0.5).numpy())
    grid = np.arange(n + 1) / n
    assert max(np.abs(cdf - grid[1:]).max(), np.abs(cdf - grid[:-1]).max()) < 2.23 / n**0.5


def test_pairs_of_box_muller_are_independent() -> None:
    """Correlations of the pair, and of its squares, within five standard errors."""
    words = SFC64(5).words(0, 2, 200_000)
    a, b = box_muller(words[0].copy(), words[1].copy())
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / 200_000**0.5
    assert abs(np.corrcoef(a**2, b**2)[0, 1]) < 5 / 200_000**0.5


def test_one_word_signs_32_elements() -> None:
    """Element e is bit e % 32 of word e // 32, and a set bit is -1."""
    stream = Philox(9)
    words = stream.words(4, 3, 3).astype(np.int64)
    expected = [[1 - 2 * ((int(row[e // 32]) >> (e % 32)) & 1) for e in range(70)] for row in words]
    drawn = Rademacher().draw(stream, 4, 3, 70, torch.float64, CPU)
    assert drawn.tolist() == expected


def test_torch_path_gives_the_same_signs_and_nearly_the_same_normals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on a GPU, run here: int64 words in tensors, not numpy."""
    stream = Philox(9)
    reference_signs = Rademacher().draw(stream, 2, 3, 100, torch.float32, CPU)
    reference_normals = Gaussian().draw(stream, 2, 3, 100, torch.float32, CPU)

    class TensorWords(Philox):
        def words(self, step: int, queries: int, count: int) -> torch.Tensor:
            return torch.from_numpy(super().words(step, queries, count).astype(np.int64))

    tensor_stream = TensorWords(9)
    normals = Gaussian().draw(tensor_stream, 2, 3, 100, torch.float32, CPU)
    torch.testing.assert_close(normals, reference_normals, rtol=1e-5, atol=1e-6)
    words = tensor_stream.words(2, 3, 4)
    bits = (words[:, :, None] >> torch.arange(32)) & 1
    assert torch.equal((1 - 2 * bits).reshape(3, -1)[:, :100].float(), reference_signs)
