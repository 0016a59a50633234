"""Models moved in different ways that must come to the same: plain torch and kernels, replayed and summed, alone and folded, run and
replayed from a log. On a GPU where there is one, else by Triton's interpreter."""

from __future__ import annotations

import copy
import json
import os
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import zoar
from zoar.torch_optim import placing, sums

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def needs_triton(kernels: str) -> None:
    if kernels == "triton":
        pytest.importorskip("triton", reason="Triton is not installed; it is for Linux")


def made(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.LayerNorm(24), nn.Linear(24, 3, bias=False)).to(DEVICE, dtype)


def closure_of(model: nn.Module) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, 8, generator=generator)
    y = torch.randn(16, 3, generator=generator).to(DEVICE)
    inputs = x.to(DEVICE, next(model.parameters()).dtype)
    return lambda: ((model(inputs).float() - y) ** 2).mean()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in model.parameters()])


def trained(steps: int, dtype: torch.dtype = torch.float32, **options: Any) -> Tensor:
    model = made(dtype)
    optimizer = zoar.ZoAR(model.parameters(), 1e-2, **{"queries": 2, "window": 3, "smoothing": 1e-2, **options})
    for _ in range(steps):
        optimizer.step(closure_of(model))
    return flat(model)


# -- kernels ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
@pytest.mark.parametrize("directions", ["rademacher", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_train_as_plain_torch_does(placement: str, directions: str, dtype: torch.dtype) -> None:
    needs_triton("triton")
    options = {"placement": placement, "directions": directions, "weight_decay": 0.01, "dtype": dtype}
    plain, kernels = (trained(4, kernels=which, **options) for which in ("reference", "triton"))
    moved = (plain - flat(made(dtype))).abs()
    assert float(moved.max()) > 5e-3
    if dtype == torch.float32:
        assert float((plain - kernels).abs().max()) <= 2e-4
    else:  # a loss rounds otherwise now and then; and the interpreter cuts bits off where hardware rounds
        assert float((plain - kernels).abs().mean()) <= 0.1 * float(moved.mean())


def test_what_there_is_no_kernel_for_is_done_in_plain_torch() -> None:
    needs_triton("triton")
    for rule in (zoar.AdaMM(amsgrad=True), zoar.AdaMM(corrected=True)):
        both = [trained(3, kernels=which, update=rule) for which in ("reference", "triton")]
        torch.testing.assert_close(*both, rtol=1e-3, atol=1e-4)
    model = made(torch.float64)
    zoar.ZoAR(model.parameters(), 1e-2, kernels="triton").step(closure_of(model))


# -- running sums -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WORTHWHILE", 4)


@pytest.mark.usefixtures("few_suffice")
@pytest.mark.parametrize("kernels", ["reference", "triton"])
@pytest.mark.parametrize("method", [{}, {"baseline": "batch"}, {"max_norm": 0.5}])
def test_running_sums_are_a_replay(kernels: str, method: dict[str, Any]) -> None:
    needs_triton(kernels)
    replayed, summed = (trained(9, kernels=kernels, extra_memory=memory, **method) for memory in (0, 5.0))
    torch.testing.assert_close(replayed, summed, rtol=1e-3, atol=2e-4)
    assert not torch.equal(replayed, summed) or kernels == "triton", "sums were not used"


@pytest.mark.usefixtures("few_suffice")
def test_sums_take_no_more_than_they_may() -> None:
    model = made()
    for memory, used in ((5, False), (0.5, False), (1.25, True), (10**6, True)):
        optimizer = zoar.ZoAR(model.parameters(), 1e-3, queries=3, window=3, extra_memory=memory)
        optimizer.step(closure_of(model))
        optimizer.step(closure_of(model))
        assert bool(optimizer._sums.tensors) is used, memory
        held = sum(t.numel() * t.element_size() for pair in optimizer._sums.tensors.values() for t in pair)
        assert held == (5 * optimizer.dim if used else 0)


@pytest.mark.usefixtures("few_suffice")
@pytest.mark.parametrize("extra_memory", [0, 5.0])
def test_a_resumed_run_is_the_run_it_left_to_the_bit(extra_memory: float) -> None:
    def optimizer_of(model: nn.Module) -> zoar.ZoAR:
        return zoar.ZoAR(model.parameters(), 1e-2, queries=2, window=4, smoothing=1e-2, extra_memory=extra_memory)

    model = made()
    optimizer = optimizer_of(model)
    for _ in range(6):
        optimizer.step(closure_of(model))
    other = copy.deepcopy(model)
    resumed = optimizer_of(other)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for _ in range(6):
        optimizer.step(closure_of(model))
        resumed.step(closure_of(other))
    assert torch.equal(flat(model), flat(other))


@pytest.mark.usefixtures("few_suffice")
def test_sums_follow_losses_out_of_their_range() -> None:
    def run(memory: float) -> Tensor:
        model = made()
        optimizer = zoar.ZoAR(
            model.parameters(), queries=2, window=4, smoothing=1e-2, update="sgd", extra_memory=memory, kernels="reference"
        )  # fmt: skip
        closure = closure_of(model)
        factors = [1.0, 1.0, 1e6, 1e6, 1.0, 1.0, 1.0, 1.0, 1e-8, 1e-8, 1e-8, 1e-8, 1e-8, 1e-8]
        for step, factor in enumerate(factors):
            optimizer.param_groups[0]["lr"] = 1e-3 / max(factors[max(0, step - 3) : step + 1])
            optimizer.step(lambda: closure() * factor)  # noqa: B023  # called at once
        return flat(model)

    replayed = run(0.0)
    assert float((replayed - flat(made())).abs().max()) > 1e-3
    torch.testing.assert_close(run(5.0), replayed, rtol=1e-3, atol=1e-5)


# -- folding ----------------------------------------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A frozen layer with an adapter, as PEFT makes them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + 2.0 * self.lora_B(self.lora_A(self.dropout(x)))
        return out


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Adapted(8, 16), Adapted(16, 16)
        self.calls = 0

    def forward(self, x: Tensor, scale: Tensor | None = None) -> dict[str, Any]:
        self.calls += 1
        return {"hidden": self.second(torch.tanh(self.first(x))), "length": x.shape[1], "nothing": None}


class Headed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = Body(), nn.Linear(16, 3).requires_grad_(False)
        self.to(DEVICE)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.head(self.body(x)["hidden"])
        return hidden


def headed_closure(model: Headed) -> Callable[[], Tensor]:
    x, y = (
        torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(3)).to(DEVICE),
        torch.zeros(5, 4, 3, device=DEVICE),
    )
    return lambda: ((model(x) - y) ** 2).mean()


def folded(model: nn.Module, **options: Any) -> zoar.ZoAR:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return zoar.ZoAR(trained, 1e-2, queries=3, window=3, smoothing=1e-2, fold=True, **options)


@pytest.mark.parametrize("kernels", ["reference", "triton"])
def test_folded_queries_are_the_queries_alone(kernels: str) -> None:
    needs_triton(kernels)
    ends, calls = [], []
    for fold in (False, True):
        model = Headed()
        optimizer = zoar.ZoAR(
            [p for p in model.parameters() if p.requires_grad],
            1e-2,
            queries=3,
            window=3,
            smoothing=1e-2,
            fold=fold,
            kernels=kernels,
        )
        for _ in range(6):
            optimizer.step(headed_closure(model))
        ends.append(flat(model))
        calls.append(model.body.calls)
        assert optimizer.not_folded == ("" if fold else "fold=False")
    torch.testing.assert_close(*ends, rtol=1e-3, atol=1e-4)
    assert calls[0] == 18
    assert calls[1] == 3 + 5 + 1 + 3, "a step of three to learn, five folded, one and three that were compared"
    assert "forward" not in vars(model.body), "nothing of the model is left changed"
    assert "forward" not in vars(model.body.first.lora_A)


def reason(model: nn.Module, closure: Callable[[], Any], **options: Any) -> str:
    optimizer = folded(model, **options)
    before = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.step(closure)
            before = flat(model) if before is None else before
    assert not torch.equal(before, flat(model)), "it goes on, one query after the other"
    assert len([w for w in caught if "run one after the other" in str(w.message)]) == 1
    return optimizer.not_folded


def test_what_cannot_be_folded_says_why() -> None:
    model = Headed()
    model.body.first.dropout.p = 0.5
    assert "draws random numbers (dropout)" in reason(model, headed_closure(model))
    model = Headed()
    model.head.requires_grad_(True)
    model.head.weight.data = model.head.weight.data.clone()

    class Norm(Headed):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(3).to(DEVICE)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.norm(super().forward(x))
            return out

    norm = Norm()
    assert "belongs to a LayerNorm, not to a Linear" in reason(norm, headed_closure(norm))

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Headed()
            self.extra = Adapted(3, 3).to(DEVICE)

        def forward(self, x: Tensor) -> Tensor:
            return (self.extra(self.inner(x)) ** 2).mean()

    loss = Loss()
    x = torch.ones(5, 4, 8, device=DEVICE)
    assert "leave out labels" in reason(loss, lambda: loss(x))
    fresh = Headed()
    draw = torch.Generator().manual_seed(0)
    assert "other inputs" in reason(fresh, lambda: (fresh(torch.randn(5, 4, 8, generator=draw).to(DEVICE)) ** 2).mean())
    pair = nn.ModuleList([Adapted(8, 8), Adapted(8, 8)]).to(DEVICE)
    assert "no module's forward contains all" in reason(pair, lambda: ((pair[0](x) + pair[1](x)) ** 2).mean())


# -- the trajectory log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"extra_memory": 5.0, "window": 40}, {"rounding": "stochastic", "method": "spsa"}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_log_leads_to_the_trained_parameters_to_the_bit(
    tmp_path: Path, options: dict[str, Any], dtype: torch.dtype
) -> None:
    model, log = made(dtype), tmp_path / "run.zoar"
    initial = copy.deepcopy(model)
    optimizer = zoar.ZOOptimizer(
        model.parameters(),
        1e-2,
        **{"queries": 2, "smoothing": 1e-2, "weight_decay": 0.1, "log": log, "max_norm": 5.0, **options},
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    for _ in range(45):
        optimizer.step(closure_of(model))
        schedule.step()
    again = zoar.replay(initial, log)
    assert torch.equal(flat(initial), flat(model))
    assert again.state_dict()["param_groups"][0]["history"] == optimizer.state_dict()["param_groups"][0]["history"]
    assert log.stat().st_size < 45 * 150 + 1000


def test_a_log_goes_on_with_its_run(tmp_path: Path) -> None:
    def optimizer_of(model: nn.Module) -> zoar.ZoAR:
        return zoar.ZoAR(model.parameters(), 1e-2, queries=2, window=3, smoothing=1e-2, log=tmp_path / "log")

    model, initial = made(), made()
    optimizer = optimizer_of(model)
    for _ in range(4):
        optimizer.step(closure_of(model))
    saved, then = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model)
    for _ in range(3):
        optimizer.step(closure_of(model))  # lost: the run goes on from step 4
    resumed = optimizer_of(then)
    resumed.load_state_dict(saved)
    for _ in range(2):
        resumed.step(closure_of(then))
    zoar.replay(initial, tmp_path / "log")
    assert torch.equal(flat(initial), flat(then))
    part = made()
    zoar.replay(part, tmp_path / "log", steps=4)
    zoar.replay(made(), tmp_path / "log", steps=0)
    with pytest.raises(FileExistsError, match="the log of another run"):
        optimizer_of(made()).step(closure_of(made()))


def test_a_log_is_refused_where_it_does_not_belong(tmp_path: Path) -> None:
    log = tmp_path / "log"
    model = made()
    optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2, log=log)
    for _ in range(3):
        optimizer.step(closure_of(model))
    with pytest.raises(ValueError, match="not the parameters that the run began with"):
        zoar.replay(model, log)
    with pytest.raises(ValueError, match="the log is of 5 parameters in 1 group"):
        zoar.replay(nn.Linear(3, 3), log)
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines)[:-7])  # cut short while it was written
    again = zoar.replay(made(), log)
    assert again.param_groups[0]["steps"] == 2
    log.write_text("\n".join([lines[0], lines[2], lines[3]]))
    with pytest.raises(ValueError, match="lines are missing"):
        zoar.replay(made(), log)
    log.write_text("\n".join([lines[0], "{", lines[3]]))
    with pytest.raises(ValueError, match="line 2 of"):
        zoar.replay(made(), log)
    log.write_text(json.dumps({"some": "file"}))
    with pytest.raises(ValueError, match="no trajectory log"):
        zoar.replay(made(), log)
    own = zoar.ZoAR(made().parameters(), 1e-2, queries=2, log=tmp_path / "own", update=type("Mine", (zoar.SGD,), {})())
    with pytest.raises(ValueError, match="cannot describe objects of your own"):
        own.step(lambda: 1.0)
    with pytest.raises(ValueError, match="a step has 2 queries, got 3 values"):
        own.tell([1.0, 2.0, 3.0])


# -- how people run their models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_trains_as_it_is(in_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled by torch.compile's eager backend, which traces and guards as every other one does, and needs no C compiler."""
    monkeypatch.setattr(placing, "SMALL", 0)  # auto would go layer by layer
    ends = []
    for compiled in (False, True):
        torch._dynamo.reset()
        model = made()
        run: Any = model
        if compiled and in_place:
            model.compile(backend="eager")
        elif compiled:
            run = torch.compile(model, backend="eager")
        optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2, window=3, smoothing=1e-2)
        with pytest.warns(UserWarning, match="a copy of all parameters is taken") if compiled else nullcontext():
            optimizer.step(closure_of_module(run))
        for _ in range(4):
            optimizer.step(closure_of_module(run))
        ends.append(flat(model))
        if compiled:
            with pytest.raises(RuntimeError, match="placement='snapshot' can"):
                zoar.ZoAR(model.parameters(), 1e-2, placement="layerwise").step(closure_of_module(run))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def closure_of_module(run: Any) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(16, 8, generator=generator).to(DEVICE), torch.randn(16, 3, generator=generator).to(DEVICE)
    return lambda: ((run(x) - y) ** 2).mean()


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
def test_autocast_sees_every_query(placement: str) -> None:
    """Autocast keeps casts of weights; one kept from a query before would hide the next."""
    model = made()
    closure, losses = closure_of(model), []

    def recorded() -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            losses.append(float(closure()))
        return torch.tensor(losses[-1])

    optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=8, smoothing=0.3, placement=placement)
    with torch.autocast(DEVICE.type, torch.bfloat16):  # around the step as well
        optimizer.step(recorded)
    assert len(set(losses)) == 8


def test_a_step_within_inference_mode_and_no_grad() -> None:
    for context in (torch.inference_mode, torch.no_grad):
        model = made()
        optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2)
        before = flat(model)
        optimizer.step(closure_of(model))
        with context():
            optimizer.step(closure_of(model))
        optimizer.step(closure_of(model))
        assert not torch.equal(before, flat(model))


def test_peft_and_transformers_models_train_folded_and_layer_by_layer() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.OPTConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, ffn_dim=32, num_attention_heads=2, word_embed_proj_dim=16,
        max_position_embeddings=32, dropout=0.0,
    )  # fmt: skip
    ids = torch.randint(0, 60, (4, 8), generator=torch.Generator().manual_seed(0)).to(DEVICE)

    def loss_of(model: Any) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            logits = model(input_ids=ids).logits
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())

        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = transformers.OPTForCausalLM(config).to(DEVICE).eval()
        start = copy.deepcopy(whole.state_dict())
        ends = []
        for placement in ("snapshot", "layerwise"):  # its head shares the embedding's weight
            whole.load_state_dict(start)
            optimizer = zoar.ZoAR(whole.parameters(), 1e-3, queries=2, placement=placement)
            for _ in range(3):
                optimizer.step(loss_of(whole))
            ends.append(flat(whole))
        assert torch.equal(*ends)
        whole.load_state_dict(start)
        adapted = peft.get_peft_model(whole, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])).eval()
        optimizer = folded(adapted)
        for _ in range(4):
            optimizer.step(loss_of(adapted))
    assert optimizer.not_folded == ""


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
def test_a_model_may_change_its_dtype_or_memory_between_steps(placement: str) -> None:
    model = made()
    optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2, placement=placement)
    optimizer.step(closure_of(model))
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    optimizer.step(closure_of(model))
    model.to(torch.bfloat16)
    before = flat(model)
    optimizer.step(closure_of(model))
    assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    assert not torch.equal(before, flat(model))


def test_a_step_that_fails_is_not_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, log = made(), tmp_path / "log"
    initial = copy.deepcopy(model)
    optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2, kernels="reference", log=log)
    optimizer.step(closure_of(model))
    with monkeypatch.context() as patched:
        patched.setattr(type(optimizer._backend), "apply", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            optimizer.step(closure_of(model))
    optimizer.step(closure_of(model))
    zoar.replay(initial, log, kernels="reference")
    assert torch.equal(flat(initial), flat(model))


# -- models that are not one layer after the other --------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.b(torch.tanh(self.a(x)))
        return out


class Large(nn.Module):
    """With a layer so large that Blocks are blocks of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.big, self.back = nn.Linear(8, 400), nn.Linear(400, 8)

    def rest(self, x: Tensor) -> Tensor:
        out: Tensor = self.back(torch.tanh(self.big(x)))
        return out


class PartAlsoAlone(Large):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.block(x)) + self.block.a(x)


class Inner(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.q = block, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.q(self.block(x))
        return out


class SharedBlock(Large):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.inner = Inner(self.block)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.inner(self.block(x)))


class Given(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p, self.q = Block(), nn.Linear(8, 8)

    def forward(self, x: Tensor, other: nn.Module) -> Tensor:
        out: Tensor = self.q(self.p(other(x)))
        return out


class BlockGivenToABlock(Large):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.given = Block(), Given()

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.given(x, self.block))


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(1, 8)) for _ in range(3))

    def forward(self) -> tuple[Tensor, ...]:
        return self.a[0], self.b[0], self.c[0]


class ReturnsItsParameters(Large):
    def __init__(self) -> None:
        super().__init__()
        self.three, self.block = Three(), Block()

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = self.three()
        return self.rest(self.block(x + a) * b + c)


class Normed(Large):
    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.big, self.c = (torch.nn.utils.weight_norm(layer) for layer in (self.big, nn.Linear(8, 8)))

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(self.c(x))


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.blocks = nn.Linear(8, 100), nn.ModuleList(Block() for _ in range(2))
        self.adapters = nn.ModuleDict({"one": nn.Linear(8, 8)})
        self.back = nn.Linear(100, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = self.adapters["one"](block(x))
        out: Tensor = self.back(self.table(x))
        return out


@pytest.mark.parametrize(
    ("kind", "placed"),
    [
        (PartAlsoAlone, False), (SharedBlock, True), (BlockGivenToABlock, True), (ReturnsItsParameters, False), (Normed, True),
        (Listed, True),
    ],
)  # fmt: skip
def test_layer_by_layer_is_the_copy_or_says_it_cannot(kind: type[nn.Module], placed: bool) -> None:
    ends = []
    for placement in ("snapshot", "layerwise"):
        torch.manual_seed(0)
        model = kind().to(DEVICE)
        x, y = torch.randn(16, 8, device=DEVICE), torch.randn(16, 8, device=DEVICE)
        optimizer = zoar.ZoAR(model.parameters(), 1e-3, queries=3, smoothing=1e-2, placement=placement)
        loss = lambda: ((model(x) - y) ** 2).mean()  # noqa: E731, B023
        if placement == "layerwise" and not placed:
            before = flat(model)
            with pytest.raises(
                RuntimeError, match=r"(outside of the module|returns its parameters).*placement='snapshot' can"
            ):
                optimizer.step(loss)
            assert torch.equal(before, flat(model))
            return
        for _ in range(3):
            optimizer.step(loss)
        ends.append(flat(model))
    assert torch.equal(*ends)


def test_convolutions_laid_out_channels_last() -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 400))
        return layers.to(DEVICE, memory_format=torch.channels_last)

    x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    ends = []
    for placement in ("snapshot", "layerwise"):
        made_ = model()
        optimizer = zoar.ZoAR(made_.parameters(), 1e-3, queries=2, placement=placement)
        for _ in range(2):
            optimizer.step(lambda: made_(x).pow(2).mean())  # noqa: B023
        ends.append(flat(made_))
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("placement", ["snapshot", "layerwise"])
def test_a_parameter_turned_over_in_its_memory_stays_so(placement: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).to(DEVICE)
    optimizer = zoar.ZoAR(model.parameters(), lr=0.0, queries=2, placement=placement)
    optimizer.step(closure_of(model))
    model[0].weight.data = model[0].weight.data.t()
    turned = model[0].weight.detach().clone()
    optimizer.step(closure_of(model))
    assert torch.equal(model[0].weight, turned)
    assert model[0].weight.stride() == (1, 8)


class TimeFirst(Body):
    def forward(self, x: Tensor, scale: Tensor | None = None) -> dict[str, Any]:
        return {"hidden": super().forward(x.transpose(0, 1))["hidden"].transpose(0, 1)}


class Averaged(Body):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, affine=False)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> dict[str, Any]:
        return {"hidden": self.second(self.norm(torch.tanh(self.first(x))))}


def with_body(body: Body) -> Headed:
    model = Headed()
    torch.manual_seed(0)
    model.body = body.to(DEVICE)
    return model


def test_wrong_folds_are_noticed_at_the_smallest_radius() -> None:
    model = with_body(TimeFirst())
    x = torch.randn(6, 3, 8, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    said = reason(model, lambda: (model(x) ** 2).mean())
    assert "alone and" in said or "RuntimeError" in said or "is not 3 batches" in said
    averaged = with_body(Averaged())
    assert "BatchNorm1d in training mode would mix the queries" in reason(averaged, headed_closure(averaged))
    penal = Headed()
    trained_ = [p for p in penal.parameters() if p.requires_grad]
    fit = headed_closure(penal)
    assert "alone and" in reason(penal, lambda: fit() + sum(p.pow(2).sum() for p in trained_))


def test_folding_starts_anew_where_the_model_changes() -> None:
    model = Headed().eval()
    model.body.first.dropout.p = 0.5
    optimizer = folded(model)
    for _ in range(3):
        optimizer.step(headed_closure(model))
    assert optimizer.not_folded == ""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.zeros_like(parameter)
    model.body.first.base.weight.data = model.body.first.base.weight.data * 2
    seen = float(optimizer.step(headed_closure(model)))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.zero_()
        assert abs(seen - float(headed_closure(model)())) < 0.05 * seen, "the new memory is what is folded"
    model.train()
    with pytest.warns(UserWarning, match=r"draws random numbers \(dropout\)"):
        optimizer.step(headed_closure(model))


def test_folding_leaves_a_wrapped_forward_as_it_was() -> None:
    model = Headed()
    plain = model.body.forward
    wrapped = model.body.__dict__["forward"] = lambda x: plain(x)
    optimizer = folded(model)
    for _ in range(4):
        optimizer.step(headed_closure(model))
    assert optimizer.not_folded == ""
    assert model.body.__dict__["forward"] is wrapped


def test_two_runs_do_not_write_one_log(tmp_path: Path) -> None:
    model = made()
    optimizer = zoar.ZoAR(model.parameters(), 1e-2, queries=2, log=tmp_path / "log")
    optimizer.step(closure_of(model))
    twin, other = copy.deepcopy((model, optimizer))
    other.step(closure_of(twin))
    with pytest.raises(RuntimeError, match="another run writes to"):
        optimizer.step(closure_of(model))
    with pytest.raises(ValueError, match="log must be a file in a folder that is there"):
        zoar.ZoAR(made().parameters(), log=tmp_path / "no" / "log")
    with pytest.raises(ValueError, match="same dtype"):
        zoar.replay(made().to(torch.bfloat16), tmp_path / "log")
