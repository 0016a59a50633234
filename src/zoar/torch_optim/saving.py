"""What a saved state must be for an optimizer to go on from it: a sentence for each thing it may not be."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from zoar.torch_optim.layout import Layout
from zoar.torch_optim.moving import start_state
from zoar.torch_optim.recipe import Recipe
from zoar.torch_optim.window import BatchWindow

_RUN = ("history", "grid", "steps", "evaluations", "dropped", "layout", "law", "seed")


def check_state(state_dict: dict[str, Any], group: dict[str, Any], layout: Layout, recipe: Recipe) -> None:
    """ValueError for a state of other parameters, another seed, law or rule, or one that is not whole."""
    saved = state_dict["param_groups"][0] if state_dict.get("param_groups") else {}
    missing = [name for name in _RUN if name not in saved]
    if missing:
        raise ValueError(f"this is no state of a zoar optimizer: its first group lacks {', '.join(missing)}")
    for name, what in (("layout", "parameters a group"), ("law", "directions"), ("seed", "seed")):
        if saved[name] != group[name]:
            raise ValueError(
                f"the state was saved with {what} {saved[name]!r}, and this optimizer has {group[name]!r}: its window would be "
                "replayed along other directions. Make the optimizer as it was then"
            )
    BatchWindow.parse(saved["history"])
    mine = by_saved_name(state_dict, layout)
    for name, vectors in state_dict["state"].items():
        expected = start_state(mine[name].detach().reshape(-1)[:1], recipe.rule, recipe.rounding)
        sizes = {what: mine[name].numel() if what != "steps" else 1 for what in expected}
        if {what: vector.numel() for what, vector in vectors.items()} != sizes:
            raise ValueError(
                f"the state of parameter {name!r} has {sorted(vectors)}, and update {recipe.rule.name!r} with rounding "
                f"{recipe.rounding!r} needs {sorted(sizes)} of its size. Make the optimizer as it was then"
            )


def by_saved_name(state_dict: dict[str, Any], layout: Layout) -> dict[Any, Tensor]:
    """The parameters by what a state calls them: their places, or in distributed checkpoints their names."""
    names = [name for group in state_dict["param_groups"] for name in group["params"]]
    return dict(zip(names, (segment.parameter for segment in layout.segments), strict=True))
