"""The Triton kernels against the reference: on a GPU where there is one, else under Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
pytest.importorskip("triton", reason="Triton is not installed; it is for Linux")

import zoar
from zoar.kernels import reference
from zoar.kernels import triton as kernels
from zoar.kernels.digits import whole_numbers
from zoar.kernels.reference import Address, Sums
from zoar.kernels.tiles import Tiles
from zoar.torch_optim.layout import Segment
from zoar.torch_optim.moving import Move, start_state
from zoar.torch_optim.placing import Query

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = (1, 130, 403, 31, 260)  # of tensors that follow one another, from an odd place in the direction
START = 37
SEED = 2**40 + 7


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator).to(dtype).to(DEVICE) for size in SIZES]


def starts() -> list[int]:
    return [START + sum(SIZES[:place]) for place in range(len(SIZES))]


def tiles_of(tensors: Sequence[torch.Tensor], places: Sequence[int], law: str) -> Tiles:
    return Tiles([tensor.numel() for tensor in tensors], places, law, DEVICE)


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_many_tensors_are_perturbed_in_one_launch_as_by_the_reference(law: str, dtype: torch.dtype) -> None:
    sources = tensors(dtype)
    outs, expected = ([torch.full_like(source, torch.nan) for source in sources] for _ in range(2))
    radii = [0.1, 0.2, 0.3, 0.4, 0.5]
    address = Address(SEED, 5, 2)
    kernels.Perturb(outs, sources, tiles_of(sources, starts(), law), law)(address, radii)
    segments = [
        Segment(source, start, place) for place, (source, start) in enumerate(zip(sources, starts(), strict=True))
    ]
    Query(address, law, radii).write(list(zip(segments, expected, strict=True)))
    for out, wanted in zip(outs, expected, strict=True):
        if (
            law == "rademacher" and DEVICE.type == "cpu" and dtype == torch.bfloat16
        ):  # where the interpreter cuts bits off
            torch.testing.assert_close(out, wanted, rtol=2**-7, atol=0)
        elif law == "rademacher":
            assert torch.equal(out, wanted)
        else:  # sines and logarithms have their own rounding
            torch.testing.assert_close(out, wanted, rtol=2**-7 if dtype != torch.float32 else 1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "rule", [zoar.SGD(), zoar.Momentum(0.8), zoar.SignSGD(), zoar.AdaMM(), zoar.RAdaZO()], ids=lambda rule: rule.name
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_a_step_is_the_references(rule: zoar.UpdateRule, dtype: torch.dtype, law: str) -> None:
    ours, theirs = tensors(dtype), tensors(dtype)
    tiles = tiles_of(ours, starts(), law)
    states = [[start_state(tensor, rule, "nearest") for tensor in both] for both in (ours, theirs)]
    segments = [Segment(tensor, start, 0) for tensor, start in zip(theirs, starts(), strict=True)]
    for step in range(3):
        addresses = [Address(SEED, at, query) for at in range(step + 1) for query in range(2)]
        coefficients = torch.linspace(-1.3, 1.7, len(addresses)).tolist()
        kernels.move(ours, states[0], tiles, addresses, coefficients, law, rule, lr=0.05, weight_decay=0.1)
        Move(addresses, coefficients, law, rule, 0.05, 0.1, "nearest", Address(SEED, step, 0)).apply(
            segments, dict(zip(theirs, states[1], strict=True))
        )
    spacing = 2**-5 if dtype == torch.bfloat16 else 2e-5  # a rounding here and there of what is held in bfloat16
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=spacing, atol=spacing)
    for one, two in zip(*states, strict=True):
        for name, vector in one.items():
            torch.testing.assert_close(vector, two[name], rtol=spacing, atol=spacing)


@pytest.mark.parametrize("directions", [1, 4, 5, 27, 130])
@pytest.mark.parametrize("start", [START, 128, 4096 + 8])
def test_the_sum_of_signs_is_exact(directions: int, start: int) -> None:
    ours = torch.zeros(416, device=DEVICE)
    addresses = [Address(SEED, place // 3, place % 3) for place in range(directions)]
    generator = torch.Generator().manual_seed(directions)
    coefficients = torch.randn(directions, generator=generator).tolist()
    tiles = tiles_of([ours], [start], "rademacher")
    kernels.move([ours], [{}], tiles, addresses, coefficients, "rademacher", zoar.SGD(), lr=-1.0)
    whole, unit = whole_numbers(coefficients)
    exact = unit * reference.combine(addresses, whole.tolist(), "rademacher", start, 416, DEVICE, torch.float64)
    assert float((ours - exact).abs().max()) <= 2e-7 * sum(
        map(abs, coefficients)
    )  # the roundings of float32 at the end
    assert max(abs(c - unit * w) for c, w in zip(coefficients, whole, strict=True)) <= 0.5001 * unit


@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize("start", [START, 128])
def test_running_sums_are_the_references_to_the_bit(shifts: bool, start: int) -> None:
    both = [torch.zeros(416, device=DEVICE) for _ in range(2)]
    pairs = [(torch.full((416,), 7, dtype=torch.int32), torch.full((416,), 7, dtype=torch.int8)) for _ in range(2)]
    held = [{one: (h.to(DEVICE), p.to(DEVICE))} for one, (h, p) in zip(both, pairs, strict=True)]
    for step in range(3):
        addresses = [Address(SEED, at, query) for at in range(step, step + 2) for query in range(3)]
        whole = torch.tensor([5, -(2**22), 3, -5, 8_000_001, -3]) + step
        plain = torch.tensor([1, 1, 1, -1, -1, 0])
        sums = [
            Sums(tensors, whole.numpy(), plain.numpy(), 1e-3, 1000 + step if shifts else None, 0.25, fresh=step == 0) for tensors in held
        ]  # fmt: skip
        tiles = tiles_of(both[:1], [start], "rademacher")
        kernels.move(both[:1], [{}], tiles, addresses, [], "rademacher", zoar.SGD(), lr=1.0, sums=sums[0])
        move = Move(addresses, [], "rademacher", zoar.SGD(), 1.0, 0.0, "nearest", Address(SEED, step, 0), sums[1])
        move.apply([Segment(both[1], start, 0)], {both[1]: {}})
        assert torch.equal(held[0][both[0]][0], held[1][both[1]][0])
        assert torch.equal(held[0][both[0]][1], held[1][both[1]][1])
    torch.testing.assert_close(both[0], both[1], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rounding", ["stochastic", "compensated"])
@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_rounding_is_the_references(rounding: str, law: str) -> None:
    rule, start = zoar.RAdaZO(), 1032
    ours, theirs = (torch.linspace(-3, 3, 416).to(torch.float16).to(DEVICE) for _ in range(2))
    states = [start_state(tensor, rule, rounding) for tensor in (ours, theirs)]
    tiles = tiles_of([ours], [start], law)
    for step in range(4):
        addresses, at = [Address(SEED, step, query) for query in range(3)], Address(SEED, step, 0)
        kernels.move(
            [ours], [states[0]], tiles, addresses, [1.0, -0.5, 0.2], law, rule, lr=1e-4, rounding=rounding, at=at
        )
        move = Move(addresses, [1.0, -0.5, 0.2], law, rule, 1e-4, 0.0, rounding, at)
        move.apply([Segment(theirs, start, 0)], {theirs: states[1]})
    same = float((ours == theirs).double().mean())  # a last bit of the update decides here and there
    assert same > 0.97, same
    assert float((ours.double() - theirs.double()).abs().max()) <= 2**-9


def test_what_has_no_kernel_gets_a_sentence() -> None:
    x = torch.zeros(4, 4, device=DEVICE)
    tiles = tiles_of([x], [0], "rademacher")
    address = [Address(0, 0, 0)]
    with pytest.raises(ValueError, match=r"there is no kernel for update 'torch\.optim\.SGD'"):
        kernels.move([x], [{}], tiles, address, [1.0], "rademacher", zoar.TorchUpdate(torch.optim.SGD), lr=1.0)
    with pytest.raises(ValueError, match="contiguous tensors"):
        kernels.Perturb([x.T[:2]], [x.T[:2]], tiles, "rademacher")
