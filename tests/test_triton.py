"""The Triton kernels against the reference: on a GPU where there is one, else under Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
pytest.importorskip("triton", reason="Triton is not installed; it is for Linux")

import zoar
from zoar.kernels import reference
from zoar.kernels import triton as kernels
from zoar.kernels.reference import Address
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


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_many_tensors_are_perturbed_in_one_launch_as_by_the_reference(law: str, dtype: torch.dtype) -> None:
    sources = tensors(dtype)
    outs, expected = ([torch.full_like(source, torch.nan) for source in sources] for _ in range(2))
    radii = [0.1, 0.2, 0.3, 0.4, 0.5]
    address = Address(SEED, 5, 2)
    kernels.perturb(outs, sources, kernels.Tiles.of(sources, starts(), law), address, law, radii)
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
    tiles = kernels.Tiles.of(ours, starts(), law)
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


def test_the_sum_of_signs_is_the_references_to_the_bit() -> None:
    (ours,), (theirs,) = ([torch.zeros(403, device=DEVICE)] for _ in range(2))
    addresses = [Address(SEED, step, query) for step in range(9) for query in range(3)]
    coefficients = torch.randn(27, generator=torch.Generator().manual_seed(1)).tolist()
    kernels.move(
        [ours],
        [{}],
        kernels.Tiles.of([ours], [START], "rademacher"),
        addresses,
        coefficients,
        "rademacher",
        zoar.SGD(),
        lr=-1.0,
    )
    theirs += reference.combine(addresses, coefficients, "rademacher", START, 403, DEVICE)
    assert torch.equal(ours, theirs)


def test_what_has_no_kernel_gets_a_sentence() -> None:
    x = torch.zeros(4, 4, device=DEVICE)
    tiles = kernels.Tiles.of([x], [0], "rademacher")
    address = [Address(0, 0, 0)]
    with pytest.raises(ValueError, match=r"there is no kernel for update 'torch\.optim\.SGD'"):
        kernels.move([x], [{}], tiles, address, [1.0], "rademacher", zoar.TorchUpdate(torch.optim.SGD), lr=1.0)
    with pytest.raises(ValueError, match="contiguous tensors"):
        kernels.perturb([x.T[:2]], [x.T[:2]], tiles, address[0], "rademacher", [1.0])
