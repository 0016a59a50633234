"""What a step costs, in forward passes: OPT-1.3B and OPT-13B shapes with random bfloat16 weights, a batch of 16 x 64 tokens, K = 2.

    python benchmarks/finetune_step.py --json FILE                  # on a GPU; some minutes
    python benchmarks/finetune_step.py --shapes tiny --device cpu   # whether it runs

Needs transformers, and peft for the LoRA rows. A figure is the median wall time from the end of a step to the end of the next,
as in training: a step reads its losses, and its update runs while the next step's first kernels are being launched. It is over
the same of two forwards (inference mode, both losses read) of the same model. Two ways to do without zoar stand beside it:
a loop over tensors as MeZO's trainer has it (perturb, forward, perturb back and beyond, forward, perturb back, update, each a
torch.normal of a tensor's shape), and a window replayed in that way.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import zoar
from zoar.kernels.reference import Address
from zoar.study.provenance import provenance
from zoar.torch_optim.placing import Query

SHAPES = {
    "opt-1.3b": {"hidden_size": 2048, "num_hidden_layers": 24, "ffn_dim": 8192, "num_attention_heads": 32},
    "opt-13b": {"hidden_size": 5120, "num_hidden_layers": 40, "ffn_dim": 20480, "num_attention_heads": 40},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "ffn_dim": 128, "num_attention_heads": 2},
}
BATCH, TOKENS, K = 16, 64, 2
#: What each row may cost, in times of two forwards.
TARGETS = {
    "LoRA, N=1": 1.05, "LoRA, N=15": 1.05, "LoRA, N=50": 1.05, "LoRA, N=50, folded": {"opt-1.3b": 0.80},
    "full, SGD, N=1": {"opt-1.3b": 1.35, "opt-13b": 1.5}, "full, R-AdaZO, N=15": {"opt-1.3b": 1.6, "opt-13b": 2.0},
    "full, R-AdaZO, N=50": {"opt-1.3b": 2.0, "opt-13b": 2.4},
}  # fmt: skip


class Bench:
    """One shape on one device."""

    def __init__(
        self, shape: str, device: torch.device, steps: int, rows: list[dict[str, Any]], save: Callable[[], None]
    ) -> None:
        from transformers import OPTConfig, OPTForCausalLM

        self.shape, self.device, self.steps = shape, device, steps
        config = OPTConfig(
            **SHAPES[shape], word_embed_proj_dim=SHAPES[shape]["hidden_size"], dropout=0.0, use_cache=False
        )
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with device:
            self.model = OPTForCausalLM(config).eval()
            self.ids = torch.randint(0, config.vocab_size, (BATCH, TOKENS))
        torch.set_default_dtype(torch.float32)
        self.rows, self.save = rows, save

    def closure(self) -> Tensor:
        logits = self.model(input_ids=self.ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), self.ids[:, 1:].flatten())

    def two_forwards(self) -> None:
        with torch.inference_mode():
            torch.stack([self.closure() for _ in range(K)]).tolist()

    def floor(self) -> None:
        """What rows are held against."""
        self.inference_ms, self.inference_bytes = self.timed(self.two_forwards)
        self.note("two forwards", self.inference_ms, self.inference_bytes)

    def timed(
        self, run: Callable[[], Any], warm: int = 3, steps: int | None = None, alone: bool = False
    ) -> tuple[float, int]:
        """Median milliseconds from one to the next, and the most memory held. `alone`: waited for, as nothing in it waits."""
        for _ in range(warm):
            run()
        self.wait()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        took = []
        began = time.perf_counter()
        for _ in range(1 + (steps or self.steps)):
            run()
            if alone:
                self.wait()
            ended = time.perf_counter()
            took.append(1e3 * (ended - began))
            began = ended
        self.wait()
        return median(took[1:]), torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def note(self, case: str, ms: float, held: int = 0, **more: Any) -> None:
        target = TARGETS.get(case)
        row = {
            "shape": self.shape, "case": case, "ms": round(ms, 3), "over_two_forwards": round(ms / self.inference_ms, 3),
            "target": target.get(self.shape) if isinstance(target, dict) else target,
            "peak_over_inference": round(held / self.inference_bytes, 3) if self.inference_bytes and held else None,
            "peak_gib": round(held / 2**30, 3) if held else None, **more,
        }  # fmt: skip
        self.rows.append(row)
        print(" ".join(f"{value}" for value in row.values() if value is not None), flush=True)
        self.save()

    # -- zoar -------------------------------------------------------------------------------------------------------------

    def step(self, case: str, window: int, **options: Any) -> None:
        """A case's row: its window is full before a step counts."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = zoar.ZoAR(trained, lr=1e-6, queries=K, window=window, smoothing=1e-3, **options)
        ms, held = self.timed(lambda: optimizer.step(self.closure), warm=window + 3)
        update, apply = [], optimizer._backend.apply

        def clocked(*arguments: Any) -> None:
            self.wait()
            began = time.perf_counter()
            apply(*arguments)
            self.wait()
            update.append(1e3 * (time.perf_counter() - began))

        optimizer._backend.apply = clocked  # type: ignore[method-assign]
        for _ in range(3):
            optimizer.step(self.closure)
        more: dict[str, Any] = {
            "elements": optimizer.dim,
            "tensors": len(trained),
            "update_alone_ms": round(median(update), 3),
        }
        if options.get("fold"):
            more["not_folded"] = optimizer.not_folded
        if optimizer._sums.tensors:
            more["running_sums"] = True
        self.note(case, ms, held, **more)

    def parts(self) -> None:
        """The passes of a full-parameter step alone, beside a copy of as many bytes."""
        trained = list(self.model.parameters())
        optimizer = zoar.ZoAR(trained, lr=1e-6, queries=K, window=1)
        segments = optimizer._layout.segments
        largest = max(segment.parameter.numel() for segment in segments)
        room = torch.empty(max(largest, optimizer.dim // 8), dtype=torch.bfloat16, device=self.device)
        blocks: list[list[tuple[Any, Tensor]]] = [[]]
        used = 0
        for segment in segments:  # as many as the room holds, then again from its beginning
            size = segment.parameter.numel()
            if used + size > room.numel():
                blocks.append([])
                used = 0
            blocks[-1].append((segment, room[used : used + size]))
            used += size
        query = Query(Address(0, 0, 0), "rademacher", [1e-3])

        painters = [optimizer._backend.painter(block) for block in blocks]

        def perturb() -> None:
            for paint in painters:
                paint(query)

        def copy() -> None:
            for block in blocks:
                torch._foreach_copy_(
                    [place for _, place in block], [segment.parameter.data.view(-1) for segment, _ in block]
                )

        flat = room[: room.numel() // 2], room[room.numel() // 2 : 2 * (room.numel() // 2)]
        copies, _ = self.timed(lambda: flat[1].copy_(flat[0]), alone=True)
        floor = (
            copies * optimizer.dim / flat[0].numel()
        )  # of a copy as long as all parameters, by the rate of a long one
        self.note("floor: a copy of all parameters", floor, bytes=4 * optimizer.dim)
        ms, _ = self.timed(copy, alone=True)
        self.note("a copy of all parameters, tensor by tensor", ms)
        ms, _ = self.timed(perturb, alone=True)
        self.note("a perturbed copy of all parameters", ms, over_floor=round(ms / floor, 3), target_over_floor=1.15)

    def tidy(self) -> None:
        """Gives back what the last case held."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    # -- without zoar -----------------------------------------------------------------------------------------------------

    def loop(self) -> None:
        """A step as MeZO's trainer takes it."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]

        def perturb(scale: float) -> None:
            torch.manual_seed(7)
            for parameter in trained:
                noise = torch.normal(0.0, 1.0, size=parameter.shape, device=parameter.device, dtype=parameter.dtype)
                parameter.data.add_(noise, alpha=scale)

        @torch.inference_mode()
        def step() -> None:
            values = []
            for scale in (1e-3, -2e-3):
                perturb(scale)
                values.append(self.closure())
            perturb(1e-3)
            gain = float(values[0] - values[1])
            perturb(-1e-9 * gain)

        ms, held = self.timed(step)
        self.note("MeZO-style loop", ms, held)

        def replay() -> None:
            for seed in range(30):
                torch.manual_seed(seed)
                for parameter in trained:
                    noise = torch.normal(0.0, 1.0, size=parameter.shape, device=parameter.device, dtype=parameter.dtype)
                    parameter.data.add_(noise, alpha=1e-9)

        ms, _ = self.timed(replay, warm=1, steps=3, alone=True)
        self.note("a window of 30 directions replayed so, alone", ms)


def lora(bench: Bench) -> None:
    """The model with adapters on q and v: the same weights, now frozen."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    bench.model = get_peft_model(bench.model, config, autocast_adapter_dtype=False).eval()
    for name, parameter in bench.model.named_parameters():
        if "lora_" in name:
            parameter.data = parameter.data.to(torch.bfloat16)


def measure(bench: Bench, cases: Sequence[str]) -> None:
    def step(case: str, window: int, **options: Any) -> None:
        bench.tidy()
        bench.step(case, window, **options)

    small = {"update": "radazo", "placement": "snapshot"}
    bench.floor()
    if "parts" in cases:
        bench.parts()
    if "full" in cases:
        step("full, SGD, N=1", 1, update="sgd")
        step("full, R-AdaZO, N=15", 15, update="radazo")
        step("full, R-AdaZO, N=50, replayed", 50, update="radazo")
        step("full, R-AdaZO, N=50", 50, update="radazo", extra_memory=2.5)
    bench.tidy()
    if "loop" in cases:
        bench.loop()
    if "lora" in cases:
        lora(bench)
        bench.tidy()
        bench.floor()
        bench.rows[-1]["case"] = "two forwards, LoRA"
        for window in (1, 15, 50):
            step(f"LoRA, N={window}", window, **small)
        step("LoRA, N=50, folded", 50, fold=True, **small)
        if "loop" in cases:
            bench.loop()
            bench.rows[-2]["case"], bench.rows[-1]["case"] = "MeZO-style loop, LoRA", "30 directions replayed so, LoRA"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["opt-1.3b", "opt-13b"])
    parser.add_argument(
        "--cases", nargs="+", choices=("parts", "full", "loop", "lora"), default=("parts", "full", "loop", "lora")
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=11, help="timed steps of each row")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*lora.*")
    rows: list[dict[str, Any]] = []
    settings = {"batch": BATCH, "tokens": TOKENS, "queries": K, "steps": arguments.steps}
    about = {"settings": settings, **provenance(arguments.device)}

    def save() -> None:
        if arguments.json:
            command = f"python benchmarks/finetune_step.py --json {arguments.json.name}"
            arguments.json.write_text(
                json.dumps({"command": command, **about, "rows": rows}, indent=1) + "\n", encoding="utf-8"
            )

    for shape in arguments.shapes:
        bench = Bench(shape, torch.device(arguments.device), arguments.steps, rows, save)
        measure(bench, arguments.cases)
        del bench
        gc.collect()
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
