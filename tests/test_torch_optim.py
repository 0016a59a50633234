"""The optimizer over a model's parameters: the core's algebra, nothing drifts, state survives, errors are sentences."""

from __future__ import annotations

import copy
import io
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import zoar
from zoar.kernels import reference
from zoar.streams import Philox
from zoar.torch_optim import ZoAR, ZOOptimizer
from zoar.torch_optim.moving import _rounded_at_random
from zoar.torch_optim.placing import NotPlaced

METHODS: dict[str, dict[str, Any]] = {
    "zoar": {"method": "zoar", "window": 4},
    "zoar K=1": {"method": "zoar", "queries": 1, "window": 3},
    "batch": {"method": "zoar", "baseline": "batch", "window": 5},
    "gaussian": {"method": "zoar", "directions": "gaussian"},
    "vanilla": {"method": "vanilla"},
    "spsa": {"method": "spsa", "window": 2},
    "zohs": {"method": "zohs"},
    "reinforce": {"method": "reinforce", "baseline": "window", "window": 2, "directions": "gaussian"},
    "sgd": {"update": "sgd", "lr": 1e-4},
    "momentum": {"update": "momentum", "lr": 1e-5},
    "sign": {"update": "sign", "directions": "gaussian"},  # signs that sum to zero have a sign of their rounding alone
    "adamm": {"update": "adamm"},
    "corrected adamm": {"update": zoar.AdaMM(amsgrad=True, corrected=True)},
    "maximize": {"maximize": True},
}


class Tied(nn.Module):
    """A model with a tied weight, a normalisation and a frozen layer."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator).mul_(0.4).to(dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.frozen(self.norm(self.hidden(self.embed(tokens)).tanh())))


TOKENS = torch.arange(40).remainder(11).view(8, 5)


def loss_of(model: nn.Module) -> torch.Tensor:
    scores = model(TOKENS).flatten(0, 1)
    return nn.functional.cross_entropy(
        scores.float() if scores.dtype.itemsize < 4 else scores, TOKENS.roll(1, 1).flatten()
    )


def trainable(model: nn.Module) -> list[torch.Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in trainable(model)])


def bits(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


# -- directions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [zoar.Rademacher(), zoar.Gaussian()], ids=lambda law: law.name)
def test_directions_are_those_of_the_core_from_wherever_they_are_read(law: zoar.Smoothing) -> None:
    stream = Philox(2**40 + 7)
    whole = law.draw(stream, 5, 3, 1003, torch.float32, torch.device("cpu"))
    for query in range(3):
        for start, count in ((0, 1003), (1, 1), (131, 646), (1002, 1)):
            address = reference.Address(2**40 + 7, 5, query)
            (part,) = reference.directions([address], law.name, start, count, torch.device("cpu"))
            torch.testing.assert_close(part, whole[query, start : start + count], rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_models_run_is_the_core_optimizers_on_the_flat_vector(name: str) -> None:
    options = {"lr": 1e-2, "queries": 3, "smoothing": 1e-2, "seed": 5, "directions": "rademacher", **METHODS[name]}
    model, probe = Tied(), Tied()
    ours = ZOOptimizer(model.parameters(), **options)
    options["sense"] = "max" if options.pop("maximize", False) else "min"
    core = zoar.Optimizer(flat(model), stream="philox", **{"method": "zoar", **options})

    def value(point: torch.Tensor) -> float:
        nn.utils.vector_to_parameters(point, trainable(probe))
        with torch.no_grad():
            return float(loss_of(probe))

    for _ in range(25):
        ours.step(lambda: loss_of(model))
        batch = core.ask()
        core.tell(batch.ids, [value(point) for point in batch.points])
    assert ours.param_groups[0]["evaluations"] == core.nfev
    torch.testing.assert_close(flat(model), core.x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("update", ["sgd", "radazo"])
def test_how_parameters_are_cut_changes_nothing(update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for cuts, piece in (((600,), 1 << 20), ((1, 30, 569), 1 << 20), ((600,), 64)):
        monkeypatch.setattr(reference, "PIECE", piece)
        parts = [nn.Parameter(part) for part in torch.linspace(-1, 1, 600).split(list(cuts))]
        optimizer = ZoAR(parts, lr=1e-2 if update == "radazo" else 1e-4, smoothing=1e-2, update=update)
        for _ in range(10):
            optimizer.step(lambda: 0.5 * (torch.cat(parts) ** 2).sum())  # noqa: B023  # called in the loop
        ends.append(torch.cat([part.detach() for part in parts]))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


# -- placing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_layer_by_layer_and_on_a_copy_are_one_run(dtype: torch.dtype) -> None:
    ends, losses = [], []
    for placement in ("snapshot", "layerwise"):
        model = Tied(dtype)
        optimizer = ZoAR(model.parameters(), lr=1e-2, smoothing=3e-2, queries=3, placement=placement)
        losses.append([float(optimizer.step(lambda: loss_of(model))) for _ in range(15)])  # noqa: B023
        ends.append(bits(model))
    assert losses[0] == losses[1]
    assert same(*ends)


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_contract_3_a_thousand_steps_at_rate_zero_change_no_bit(dtype: torch.dtype, placement: str) -> None:
    model = Tied(dtype)
    before, places = bits(model), [parameter.data_ptr() for parameter in model.parameters()]
    optimizer = ZoAR(model.parameters(), lr=0.0, smoothing=1e-2, placement=placement)
    for _ in range(1_000):
        optimizer.step(lambda: loss_of(model))
    assert same(bits(model), before)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


class Attention(nn.Module):
    """torch's attention reads the weight of its projection without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


def test_a_module_that_uses_anothers_parameters_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoar.torch_optim.placing.SMALL", 0)
    x = torch.linspace(-1, 1, 64).view(2, 4, 8)
    forced, chosen = Attention(), Attention()
    before = bits(forced)
    with pytest.raises(NotPlaced, match=r"2 of 4 parameters .* placement='snapshot' can"):
        ZoAR(forced.parameters(), placement="layerwise").step(lambda: forced(x).pow(2).mean())
    assert same(bits(forced), before)
    optimizer = ZoAR(chosen.parameters())
    with pytest.warns(UserWarning, match="a copy of all parameters is taken for every query: 2 of 4 parameters"):
        optimizer.step(lambda: chosen(x).pow(2).mean())
    for _ in range(2):
        optimizer.step(lambda: chosen(x).pow(2).mean())
    assert optimizer.param_groups[0]["evaluations"] == 3 * 2 + 1  # one was made before it was noticed


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
def test_an_exception_in_the_closure_leaves_everything_as_it_was(placement: str) -> None:
    model = Tied()
    optimizer = ZoAR(model.parameters(), lr=1e-2, placement=placement, queries=3)
    calls = 0

    def closure() -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 5:
            model(TOKENS[:, :0].reshape(-1))  # fine
            raise RuntimeError("out of luck")
        return loss_of(model)

    optimizer.step(closure)
    before, state = bits(model), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(RuntimeError, match="out of luck"):
        optimizer.step(closure)
    assert same(bits(model), before)
    assert str(optimizer.state_dict()) == str(state)
    twin = Tied()
    other = ZoAR(twin.parameters(), lr=1e-2, placement=placement, queries=3)
    for _ in range(3):
        other.step(lambda: loss_of(twin))
    for _ in range(2):
        optimizer.step(closure)
    assert same(bits(model), bits(twin))


# -- state ------------------------------------------------------------------------------------------------------------


def make(model: nn.Module, **options: Any) -> ZOOptimizer:
    return ZoAR(model.parameters(), **{"lr": 1e-2, "smoothing": 1e-2, "window": 4, **options})


def through_torch_save(optimizer: ZOOptimizer, model: nn.Module) -> ZOOptimizer:
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    fresh = make(model)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_run_resumed_in_the_middle_of_its_window_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    whole, part = Tied(dtype), Tied(dtype)
    one, two = make(whole), make(part)
    for step in range(12):
        if step == 6:
            two = through_torch_save(two, part)
        one.step(lambda: loss_of(whole))
        two.step(lambda: loss_of(part))
    assert same(bits(whole), bits(part))


def test_a_pickle_and_a_copy_go_on_too() -> None:
    model = Tied()
    optimizer = make(model)
    for _ in range(6):
        optimizer.step(lambda: loss_of(model))
    both = pickle.loads(pickle.dumps((model, optimizer)))
    copied = copy.deepcopy((model, optimizer))
    for some, its in ((model, optimizer), both, copied):
        for _ in range(3):
            its.step(lambda: loss_of(some))  # noqa: B023
    assert same(bits(model), bits(both[0]))
    assert same(bits(model), bits(copied[0]))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_distributed_checkpoint_carries_it(tmp_path: Path) -> None:
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    whole, part = Tied(torch.float32), Tied(torch.float32)
    one, two = make(whole), make(part)
    for _ in range(5):
        one.step(lambda: loss_of(whole))
        two.step(lambda: loss_of(part))
    checkpoint.save({"optimizer": get_optimizer_state_dict(part, two)}, checkpoint_id=tmp_path, no_dist=True)
    fresh = make(part)
    before = bits(part)
    state = {"optimizer": get_optimizer_state_dict(part, fresh)}
    assert same(bits(part), before)
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    set_optimizer_state_dict(part, fresh, state["optimizer"])
    for _ in range(4):
        one.step(lambda: loss_of(whole))
        fresh.step(lambda: loss_of(part))
    assert same(bits(whole), bits(part))


def test_schedulers_clipping_decay_and_groups() -> None:
    model = nn.Linear(4, 4, bias=True)
    groups = [{"params": [model.weight], "lr": 0.1, "smoothing": 1e-3}, {"params": [model.bias], "weight_decay": 0.5}]
    optimizer = ZOOptimizer(groups, lr=0.01, smoothing=2e-3, update="sgd", method="vanilla", queries=400)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    x = torch.ones(1, 4)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    optimizer.step(lambda: model(x).sum())
    gradient = (weight - model.weight.detach()) / 0.1
    assert float((gradient * torch.ones(4, 4)).sum()) > 0  # down a slope of ones
    moved = bias * (1 - 0.01 * 0.5) - model.bias.detach()
    assert float(moved.sum()) > 0
    scheduler.step()
    now = bits(model)
    optimizer.step(lambda: model(x).sum())
    assert same(bits(model), now)


def test_the_estimates_norm_is_known_without_making_it() -> None:
    start = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    for norm in (1.0, 1e9):
        x = nn.Parameter(start.clone())
        optimizer = ZOOptimizer([x], lr=1.0, update="sgd", max_norm=norm, queries=6, window=1, smoothing=1e-3)
        optimizer.step(lambda: 1.0 * x.sum())  # noqa: B023
        length = float((start - x.detach()).norm())
        assert length == pytest.approx(1.0, rel=0.05) if norm == 1.0 else length > 10


def test_the_loss_of_micro_batches_is_taken_along_one_direction() -> None:
    """A closure that accumulates is one query."""
    one, two = Tied(), Tied()
    whole, parts = make(one), make(two)

    def in_parts() -> torch.Tensor:
        losses = [
            nn.functional.cross_entropy(two(rows).flatten(0, 1), rows.roll(1, 1).flatten()) for rows in TOKENS.split(2)
        ]
        return torch.stack(losses).mean()

    for _ in range(5):
        whole.step(lambda: loss_of(one))
        parts.step(in_parts)
    torch.testing.assert_close(flat(one), flat(two), rtol=1e-6, atol=1e-8)


# -- noise, randomness, values ----------------------------------------------------------------------------------------


def test_queries_of_a_step_meet_the_same_dropout_and_steps_another_and_the_global_states_stay() -> None:
    dropout, x = nn.Dropout(0.5), nn.Parameter(torch.ones(50))
    masks: list[torch.Tensor] = []

    def closure() -> torch.Tensor:
        masks.append(dropout(torch.ones(50)) > 0)
        return (dropout(x) ** 2).sum()

    torch.manual_seed(3)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    optimizer = ZoAR([x], queries=3)
    for _ in range(2):
        optimizer.step(closure)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[3])
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert states[2] == random.getstate()
    ZoAR([x], queries=3, same_noise=False).step(closure)
    assert not torch.equal(masks[-1], masks[-2])


def test_a_loss_that_is_not_finite_follows_on_error() -> None:
    def closure_of(x: nn.Parameter) -> Callable[[], torch.Tensor]:
        calls = iter(range(1_000))
        return lambda: (x**2).sum() * (float("nan") if next(calls) == 4 else 1.0)

    x = nn.Parameter(torch.ones(6))
    optimizer = ZoAR([x], lr=1e-2, queries=3)
    closure = closure_of(x)
    optimizer.step(closure)
    before, state = x.detach().clone(), str(optimizer.state_dict())
    with pytest.raises(zoar.NonFiniteValue, match="query 2 of 3 in step 1 is nan"):
        optimizer.step(closure)
    assert torch.equal(x.detach(), before)
    assert str(optimizer.state_dict()) == state
    x = nn.Parameter(torch.ones(6))
    optimizer = ZoAR([x], lr=1e-2, queries=3, on_error="drop")
    closure = closure_of(x)
    losses = [optimizer.step(closure) for _ in range(5)]
    assert torch.stack(losses).isfinite().all()
    assert (optimizer.param_groups[0]["dropped"], optimizer.param_groups[0]["evaluations"]) == (1, 15)


def test_the_returned_loss_is_the_mean_of_the_queries() -> None:
    x = nn.Parameter(torch.zeros(4))
    values = iter([1.0, 2.0, 6.0])
    assert float(ZoAR([x], queries=3).step(lambda: next(values))) == 3.0


# -- low precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_updates_are_lost_by_rounding_to_the_nearest_and_by_nothing_else(dtype: torch.dtype) -> None:
    ends = {}
    for rounding in ("nearest", "stochastic", "compensated"):
        x = nn.Parameter(torch.ones(4_000, dtype=dtype))
        optimizer = ZoAR([x], lr=1e-5, update="sign", rounding=rounding, queries=2, smoothing=0.1)
        for _ in range(100):
            optimizer.step(lambda: x.float().sum())  # noqa: B023
        ends[rounding] = float(x.detach().double().mean())
    exact = nn.Parameter(torch.ones(4_000))
    optimizer = ZoAR([exact], lr=1e-5, update="sign", queries=2, smoothing=0.1)
    for _ in range(100):
        optimizer.step(lambda: 1.0 * exact.sum())
    moved = 1 - float(exact.detach().double().mean())
    assert ends["nearest"] == 1.0
    # bfloat16 at 1 has steps of 2**-8 or 2**-7: of 4,000 rounded numbers the mean is sure to some 5e-5
    assert 1 - ends["stochastic"] == pytest.approx(moved, abs=1.5e-4)
    assert 1 - ends["compensated"] == pytest.approx(moved, abs=1.5e-4) or dtype == torch.bfloat16


def test_rounding_at_random_keeps_the_mean_and_what_is_exact() -> None:
    at = reference.Address(0, 0, 0)
    value = torch.full((20_000,), 1.001)
    rounded = _rounded_at_random(value, torch.bfloat16, 7, at)
    assert torch.equal(rounded, rounded.bfloat16().float())
    # spacing 2**-7, a Bernoulli of sd at most 2**-8 over 20,000: four standard errors are 1.1e-4
    assert float(rounded.double().mean()) == pytest.approx(1.001, abs=1.1e-4)
    exact = torch.tensor([1.0, -2.5, 0.0, 3.0])
    assert torch.equal(_rounded_at_random(exact, torch.bfloat16, 0, at), exact)


# -- bad input --------------------------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"lr": -1.0}, ValueError, "lr must be finite and at least 0, got -1.0"),
    ({"smoothing": 0.0}, ValueError, "smoothing must be finite and above 0"),
    ({"weight_decay": -0.1}, ValueError, "weight_decay must be finite"),
    ({"queries": 0}, ValueError, "queries must be at least 1"),
    ({"queries": 1, "window": 1}, ValueError, "queries=1 leaves baseline 'window' nothing to subtract"),
    ({"window": 0}, ValueError, "window must be at least 1"),
    ({"method": "zoat"}, ValueError, "Did you mean 'zoar'"),
    ({"method": "relizo"}, ValueError, "use zoar.Optimizer"),
    ({"method": "vanilla", "baseline": "batch"}, ValueError, "takes no baseline"),
    ({"baseline": "optimal"}, ValueError, "use baseline='window'"),
    ({"directions": "sphere"}, ValueError, "directions must be 'rademacher' or 'gaussian'"),
    ({"update": torch.optim.Adam}, ValueError, "needs the whole estimate as a vector"),
    ({"placement": "inplace"}, ValueError, "placement must be one of"),
    ({"rounding": "up"}, ValueError, "rounding must be one of"),
    ({"max_norm": 0}, ValueError, "max_norm must be above 0"),
    ({"maximize": "yes"}, TypeError, "maximize must be True or False"),
    ({"on_error": "ignore"}, ValueError, "on_error must be one of"),
    ({"seed": -1}, ValueError, "seed must be at least 0"),
    ({"params": [torch.zeros(2, requires_grad=False)]}, ValueError, "no trainable parameter"),
    ({"params": [torch.zeros(2, dtype=torch.complex64, requires_grad=True)]}, TypeError, "real floating-point"),
    ({"params": [torch.zeros(2, device="meta", requires_grad=True)]}, ValueError, "meta device"),
    ({"params": [torch.eye(2).to_sparse().requires_grad_()]}, TypeError, "must be dense"),
    ({"params": []}, ValueError, "empty parameter list"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "words"), BAD, ids=lambda value: None)
def test_bad_input_gets_a_sentence(change: dict[str, Any], error: type[Exception], words: str) -> None:
    options = {"params": [nn.Parameter(torch.zeros(2))], "method": "zoar", **change}
    with pytest.raises(error, match=words):
        ZOOptimizer(**options)


@pytest.mark.parametrize(
    ("closure", "error", "words"),
    [
        (lambda x: x, ValueError, r"query 1 of 2 must be one number, got shape \(3,\); take its mean"),
        (lambda x: "low", TypeError, "must be a number or a tensor of one number, got str"),
        (lambda x: (x**2).sum().backward(), RuntimeError, "forward passes only"),
        (lambda x: None, TypeError, "got NoneType"),
    ],
)
def test_a_bad_closure_gets_a_sentence(closure: Callable[[Any], Any], error: type[Exception], words: str) -> None:
    x = nn.Parameter(torch.ones(3))
    with pytest.raises(error, match=words):
        ZoAR([x]).step(lambda: closure(x))
    assert torch.equal(x.detach(), torch.ones(3))


def test_a_state_of_another_run_is_refused_before_anything_changes() -> None:
    x = nn.Parameter(torch.ones(3))
    state = make(nn.Linear(3, 1)).state_dict()
    for optimizer, words in (
        (ZoAR([x]), "parameters a group '4', and this optimizer has '3'"),
        (make(nn.Linear(3, 1), seed=7), "seed 0, and this optimizer has 7"),
        (make(nn.Linear(3, 1), directions="gaussian"), "directions 'rademacher', and this optimizer has 'gaussian'"),
    ):
        before = str(optimizer.state_dict())
        with pytest.raises(ValueError, match=words):
            optimizer.load_state_dict(state)
        assert str(optimizer.state_dict()) == before
    with pytest.raises(ValueError, match="no state of a zoar optimizer: its first group lacks history"):
        ZoAR([x]).load_state_dict(torch.optim.SGD([x]).state_dict())


def test_a_state_that_could_not_be_gone_on_from_is_refused() -> None:
    model = nn.Linear(3, 1)
    optimizer = make(model, update="momentum")
    optimizer.step(lambda: model(torch.ones(1, 3)).sum())
    for options, words in (
        ({"update": "radazo"}, r"has \['m'\], and update 'radazo' .* needs \['m', 'v'\]"),
        ({"update": "sgd"}, r"update 'sgd' .* needs \[\]"),
    ):
        with pytest.raises(ValueError, match=words):
            make(model, **options).load_state_dict(optimizer.state_dict())
    state = optimizer.state_dict()
    state["param_groups"][0]["history"] = "garbage"
    with pytest.raises(ValueError, match="history is not what"):
        make(model, update="momentum").load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "value"), [("smoothing", 0.0), ("lr", float("nan")), ("lr", "x"), ("weight_decay", -1.0)]
)
def test_a_group_that_was_spoilt_moves_nothing(name: str, value: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = ZoAR([{"params": part.parameters()} for part in model], lr=0.1)
    optimizer.step(lambda: model(torch.ones(1, 2)).sum())
    before = bits(model)
    optimizer.param_groups[1][name] = value
    with pytest.raises((TypeError, ValueError), match=name):
        optimizer.step(lambda: model(torch.ones(1, 2)).sum())
    assert same(bits(model), before)


def test_a_frozen_group_is_no_hindrance() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = ZoAR([{"params": part.parameters()} for part in model], lr=0.1, max_norm=1.0)
    before = bits(model[0])
    for _ in range(3):
        optimizer.step(lambda: model(torch.ones(1, 2)).pow(2).sum())
    assert same(bits(model[0]), before)


def test_modules_of_other_threads_are_left_alone() -> None:
    model, other, stop = Tied(torch.float32), nn.Linear(4, 4), threading.Event()
    before, failed = bits(model), []

    def elsewhere() -> None:
        try:
            while not stop.is_set():
                with torch.inference_mode():
                    other(torch.ones(1, 4))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
            failed.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    optimizer = ZoAR(model.parameters(), lr=0.0, placement="layerwise")
    for _ in range(100):
        optimizer.step(lambda: loss_of(model))
    stop.set()
    thread.join()
    assert not failed
    assert same(bits(model), before)


def test_zoar_is_its_own_method_and_no_closure_is_no_step() -> None:
    x = nn.Parameter(torch.ones(3))
    with pytest.raises(TypeError, match="ZoAR is the method"):
        ZoAR([x], method="spsa")
    optimizer = ZoAR([x])
    assert optimizer.step() is None
    assert optimizer.param_groups[0]["steps"] == 0


# -- it learns --------------------------------------------------------------------------------------------------------


def test_a_network_learns_real_digits_as_well_as_with_gradients() -> None:
    """Within three points of what Adam reaches with the same network; 1,797 scanned digits, a quarter of them held out."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn, which brings the digits, is not installed")
    digits = datasets.load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[450:], order[:450]

    def network() -> nn.Module:
        model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
        generator = torch.Generator().manual_seed(0)
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * (0.2 if parameter.ndim > 1 else 0.0)
        return model

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return float((model(images[test]).argmax(-1) == labels[test]).float().mean())

    first = network()
    adam = torch.optim.Adam(first.parameters(), lr=1e-2)
    for _ in range(300):
        adam.zero_grad()
        nn.functional.cross_entropy(first(images[train]), labels[train]).backward()
        adam.step()
    zeroth = network()
    optimizer = ZoAR(
        zeroth.parameters(), lr=1.5e-2, queries=10, window=8, smoothing=1e-2, baseline="batch",
        update=zoar.AdaMM(betas=(0.9, 0.99), corrected=True),
    )  # fmt: skip
    steps = 2_000
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.step(lambda: nn.functional.cross_entropy(zeroth(images[train]), labels[train]))
        scheduler.step()
    assert accuracy(first) > 0.95
    assert accuracy(zeroth) > accuracy(first) - 0.03
