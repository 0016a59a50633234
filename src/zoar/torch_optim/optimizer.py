"""ZOOptimizer: ask, tell, weigh, move over a model's parameters. ZoAR is its method by that name.

    optimizer = zoar.ZoAR(model.parameters(), lr=5e-5, queries=2, window=15, smoothing=1e-2)
    loss = optimizer.step(lambda: loss_fn(model(batch), target))          # forward passes only

The algebra is that of `zoar.Optimizer`: estimators, baselines and update rules are the same objects. Directions are addresses,
never vectors. What a step remembers is plain numbers in `param_groups[0]`, which every way of saving an optimizer carries:

    history                           the window as JSON: each batch's step, radii, values and answers; a text, since distributed
                                      checkpoints take lists and dicts apart and miss those that are not as long as before
    steps, evaluations, dropped       counts
    layout, law, seed                 what the window's directions depend on; compared when a state is loaded
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.baselines import Baseline
from zoar.coefficients import Coefficients
from zoar.estimators import Estimator
from zoar.evaluation.outcomes import NonFiniteValue
from zoar.history import QueryBatch
from zoar.kernels.reference import Address
from zoar.smoothing import Smoothing
from zoar.torch_optim.layout import Layout, check_parameters
from zoar.torch_optim.moving import Move, start_state
from zoar.torch_optim.noise import generators_kept, seed_of_step
from zoar.torch_optim.placing import NotPlaced, Placement, Query, Snapshot, choose_placement
from zoar.torch_optim.recipe import Recipe, check_group
from zoar.updates import UpdateRule

_RUN = ("history", "steps", "evaluations", "dropped", "layout", "law", "seed")


class ZOOptimizer(torch.optim.Optimizer):
    """Zeroth-order optimization of parameters in place.

    Args:
        params: parameters, or groups of them with their own `lr`, `smoothing` and `weight_decay`.
        lr: the rate; schedulers change it in the groups as for any optimizer.
        method: `"zoar"`, `"vanilla"`, `"spsa"`, `"zohs"`, `"reinforce"`, or one of their objects.
        queries: K, directions a step. `vanilla` and `zohs` ask the parameters themselves too; `spsa` asks both ways.
        window: N, batches kept for reuse; each method has its default (6 for zoar and zohs, else 1).
        smoothing: the radius mu.
        update: `"sgd"`, `"momentum"`, `"sign"`, `"adamm"`, `"radazo"`, or one of their objects.
        directions: `"rademacher"` (the same bits on every device) or `"gaussian"`.
        baseline: `"window"`, `"batch"`, `"center"`, `"zero"`; None is the method's own.
        seed: directions are a pure function of it; no global generator is touched.
        weight_decay: decoupled: parameters shrink by lr * weight_decay a step.
        max_norm: the estimate is scaled down to this norm, which its coefficients tell: |g|^2 is d times the sum of their squares,
            within a few thousandths for a model's d.
        maximize: climb instead.
        on_error: what a NaN or infinite loss means: `"raise"`, or `"drop"` the query.
        placement: `"snapshot"` or `"layerwise"` (see `zoar.torch_optim.placing`), or `"auto"`: by size.
        rounding: `"nearest"`, `"stochastic"` or `"compensated"`, for low-precision weights (see `zoar.torch_optim.moving`).
        same_noise: whether all queries of a step meet the same dropout masks.

    Example:
        >>> x, y = torch.eye(3), torch.tensor([[1.0], [-2.0], [0.5]])
        >>> model = torch.nn.Linear(3, 1, bias=False)
        >>> optimizer = ZOOptimizer(model.parameters(), lr=0.02, method="spsa", queries=4, smoothing=1e-2, update="sign")
        >>> for _ in range(400):
        ...     loss = optimizer.step(lambda: ((model(x) - y) ** 2).mean())
        >>> bool(loss < 0.01)
        True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        *,
        method: str | Estimator = "zoar",
        queries: int = 2,
        window: int | None = None,
        smoothing: float = 1e-3,
        update: str | UpdateRule = "radazo",
        directions: str | Smoothing = "rademacher",
        baseline: str | Baseline | None = None,
        seed: int = 0,
        weight_decay: float = 0.0,
        max_norm: float | None = None,
        maximize: bool = False,
        on_error: str = "raise",
        placement: str = "auto",
        rounding: str = "nearest",
        same_noise: bool = True,
    ) -> None:
        self.recipe = Recipe.check(
            method=method, baseline=baseline, directions=directions, update=update, queries=queries, window=window, seed=seed,
            max_norm=max_norm, maximize=maximize, on_error=on_error, placement=placement, rounding=rounding,
            same_noise=same_noise,
        )  # fmt: skip
        self._layout = Layout(())
        self._placement: Placement = Snapshot(self._layout)
        super().__init__(params, {"lr": lr, "smoothing": smoothing, "weight_decay": weight_decay})
        if not self._layout.dim:
            raise ValueError("params hold no trainable parameter; give at least one with requires_grad=True")
        radius = min(float(group["smoothing"]) for group in self.param_groups)
        self.recipe.estimator.check(self.recipe.queries, self.recipe.window, self.recipe.law, self._layout.dim, radius)

    # -- what torch.optim asks for ----------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters. The window starts anew: its directions had no elements for them."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            check_group(group)
            check_parameters(group["params"])
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        group["params"] = [parameter for parameter in group["params"] if parameter.requires_grad]
        self._lay_out()
        first = self.param_groups[0]
        counts = {name: first.get(name, 0) for name in ("steps", "evaluations", "dropped")}
        first.update(counts, history="[]")
        first.update(layout=self._layout.fingerprint(), law=self.recipe.law.name, seed=self.recipe.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "recipe": self.recipe}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lay_out()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a state; one of other parameters, another seed or another law is refused before anything changes."""
        saved = state_dict["param_groups"][0] if state_dict.get("param_groups") else {}
        missing = [name for name in _RUN if name not in saved]
        if missing:
            raise ValueError(f"this is no state of a zoar optimizer: its first group lacks {', '.join(missing)}")
        for name, what in (("layout", "parameters a group"), ("law", "directions"), ("seed", "seed")):
            if saved[name] != self.param_groups[0][name]:
                raise ValueError(
                    f"the state was saved with {what} {saved[name]!r}, and this optimizer has {self.param_groups[0][name]!r}: "
                    "its window would be replayed along other directions. Make the optimizer as it was then"
                )
        self._check_whole(state_dict)
        super().load_state_dict(state_dict)
        self._lay_out()
        # torch casts what it loads to the parameter's dtype; ours is kept as it was saved.
        mine = self._by_saved_name(state_dict)
        for name, vectors in state_dict["state"].items():
            device = mine[name].device
            self.state[mine[name]] = {what: vector.detach().to(device, copy=True) for what, vector in vectors.items()}

    def _check_whole(self, state_dict: dict[str, Any]) -> None:
        """A sentence about a state that could not be gone on from."""
        try:
            entries = json.loads(state_dict["param_groups"][0]["history"])
            whole = all({"step", "values", "radii"} <= set(entry) for entry in entries)
        except (TypeError, ValueError):
            whole = False
        if not whole:
            raise ValueError("the state's history is not what a zoar optimizer writes")
        mine = self._by_saved_name(state_dict)
        for name, vectors in state_dict["state"].items():
            expected = start_state(mine[name].detach().reshape(-1)[:1], self.recipe.rule, self.recipe.rounding)
            sizes = {what: mine[name].numel() if what != "steps" else 1 for what in expected}
            if {what: vector.numel() for what, vector in vectors.items()} != sizes:
                raise ValueError(
                    f"the state of parameter {name!r} has {sorted(vectors)}, and update {self.recipe.rule.name!r} with rounding "
                    f"{self.recipe.rounding!r} needs {sorted(sizes)} of its size. Make the optimizer as it was then"
                )

    def _by_saved_name(self, state_dict: dict[str, Any]) -> dict[Any, Tensor]:
        """The parameters by what a state calls them: their places, or in distributed checkpoints their names."""
        names = [name for group in state_dict["param_groups"] for name in group["params"]]
        return dict(zip(names, (segment.parameter for segment in self._layout.segments), strict=True))

    # -- a step -----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Evaluates `closure` at every query, forward passes only, and moves the parameters.

        Returns the mean loss of the queries, a float32 tensor. Without a closure it only makes the rule's vectors: distributed
        checkpointing calls it so, to have what it loads into. An exception leaves parameters and state as they were.
        """
        if closure is None:
            self._start_states()
            return None
        for group in self.param_groups:  # schedulers write into them
            check_group(group)
        run = self.param_groups[0]
        batch = self._ask(run["steps"])
        losses = self._evaluate(batch, closure)
        values = losses.double().tolist()  # the one wait for the device
        self._answer(batch, values)
        entry = {**batch.state_dict(), "radii": [float(group["smoothing"]) for group in self.param_groups]}
        history = [*json.loads(run["history"]), entry][-self.recipe.window :]
        coefficients = self._weigh(history)
        if coefficients is not None:
            self._move(coefficients, history, batch.step)
        run.update(
            history=json.dumps(history), steps=run["steps"] + 1, evaluations=run["evaluations"] + batch.size,
            dropped=run["dropped"] + int(sum(not math.isfinite(value) for value in values)),
        )  # fmt: skip
        return losses[torch.isfinite(losses)].mean()

    def _ask(self, step: int) -> QueryBatch:
        estimator = self.recipe.estimator
        return QueryBatch(step, 1.0, self.recipe.queries, 0, estimator.two_sided, estimator.centred)

    def _evaluate(self, batch: QueryBatch, closure: Callable[[], Any]) -> Tensor:
        """The losses in slot order."""
        with self._noise(batch.step) as seeded:
            try:
                return torch.stack(
                    [self._loss(self._placement, batch, slot, closure, seeded) for slot in range(batch.size)]
                )
            except NotPlaced as reason:
                if self.recipe.placement == "layerwise":
                    raise NotPlaced(
                        f"{reason}; placement='layerwise' cannot reach them, placement='snapshot' can"
                    ) from None
                self._placement = Snapshot(self._layout)
                self.param_groups[0]["evaluations"] += 1
                return torch.stack(
                    [self._loss(self._placement, batch, slot, closure, seeded) for slot in range(batch.size)]
                )

    def _loss(
        self, placement: Placement, batch: QueryBatch, slot: int, closure: Callable[[], Any], seeded: Callable[[], None]
    ) -> Tensor:
        k = batch.directions
        side = 0.0 if batch.centred and slot == batch.size - 1 else 1.0 if slot < k else -1.0
        radii = [side * float(group["smoothing"]) for group in self.param_groups]
        query = Query(Address(self.recipe.seed, batch.step, slot % k), self.recipe.law.name, radii)
        seeded()
        try:
            with placement.at(query), torch.inference_mode():
                loss = closure()
        except RuntimeError as error:
            if "require grad" in str(error) or "inference tensor" in str(error).lower():
                raise RuntimeError(
                    f"the closure takes a gradient; a zeroth-order step is forward passes only ({error})"
                ) from error
            raise
        return _as_scalar(loss, slot, batch)

    @contextmanager
    def _noise(self, step: int) -> Iterator[Callable[[], None]]:
        """Yields what is to be called before each query."""
        if not self.recipe.same_noise:
            yield lambda: None
            return
        seed = seed_of_step(self.recipe.seed, step)
        with generators_kept(self._layout.devices()) as generators:

            def seeded() -> None:
                for generator in generators:
                    generator.manual_seed(seed)

            yield seeded

    def _answer(self, batch: QueryBatch, values: list[float]) -> None:
        sign = -1.0 if self.recipe.maximize else 1.0
        for slot, value in enumerate(values):
            usable = math.isfinite(value)
            if not usable and self.recipe.on_error == "raise":
                raise NonFiniteValue(
                    f"the loss of query {slot + 1} of {batch.size} in step {batch.step} is {value:g}; parameters and state are as "
                    'they were. on_error="drop" leaves such queries out; a loss taken in float32 overflows later'
                )
            batch.answer(slot, sign * value if usable else None)

    def _weigh(self, history: list[dict[str, Any]]) -> Coefficients | None:
        """The estimate for a radius of 1 everywhere, as coefficients."""
        estimator, shares = self.recipe.estimator, {}
        for entry in history:
            batch = QueryBatch.from_state_dict({name: value for name, value in entry.items() if name != "radii"})
            share = estimator.share(batch, self)  # type: ignore[arg-type]  # of directions it wants law, dim and norms
            if share is not None:
                shares[batch.step] = share
        return estimator.coefficients(shares) if shares else None

    def _move(self, coefficients: Coefficients, history: list[dict[str, Any]], step: int) -> None:
        seed, dense = self.recipe.seed, coefficients.dense()
        radii = {entry["step"]: entry["radii"] for entry in history}
        addresses = [Address(seed, at, query) for at, row in dense.items() for query in range(len(row))]
        for_group = [
            np.concatenate([row / radii[at][index] for at, row in dense.items()])
            for index in range(len(self.param_groups))
        ]
        shrink = self._shrink(for_group)
        self._start_states()
        for index, group in enumerate(self.param_groups):
            Move(
                addresses, (shrink * for_group[index]).tolist(), self.recipe.law.name, self.recipe.rule, float(group["lr"]),
                float(group["weight_decay"]), self.recipe.rounding, Address(seed, step, 0),
            ).apply([segment for segment in self._layout.segments if segment.group == index], self.state)  # fmt: skip

    def _start_states(self) -> None:
        for segment in self._layout.segments:
            if segment.parameter not in self.state:
                self.state[segment.parameter] = start_state(segment.parameter, self.recipe.rule, self.recipe.rounding)

    def _shrink(self, for_group: list[np.ndarray]) -> float:
        """What the estimate is multiplied by to have a norm of at most max_norm."""
        if self.recipe.max_norm is None:
            return 1.0
        sizes = self._layout.sizes()
        norm = math.sqrt(sum(size * float((row**2).sum()) for size, row in zip(sizes, for_group, strict=True)))
        return min(1.0, self.recipe.max_norm / norm) if norm else 1.0

    # -- what the estimators ask of directions ----------------------------------------------------------------------------

    @property
    def law(self) -> Smoothing:
        """The distribution of directions."""
        return self.recipe.law

    @property
    def dim(self) -> int:
        """Elements of a direction."""
        return self._layout.dim

    def squared_norms(self, step: int) -> None:
        """Not held here; only the optimal baseline asks."""

    def _lay_out(self) -> None:
        self._layout = Layout(self.param_groups)
        self._placement = choose_placement(self.recipe.placement, self._layout)


class ZoAR(ZOOptimizer):
    """The paper's method: a baseline averaged over a window of recent queries, and those queries used again (Algorithm 1)."""

    def __init__(self, params: Any, lr: float = 1e-3, **options: Any) -> None:
        if "method" in options:
            raise TypeError("ZoAR is the method; use zoar.ZOOptimizer to choose another")
        super().__init__(params, lr, method="zoar", **options)


def _as_scalar(loss: Any, slot: int, batch: QueryBatch) -> Tensor:
    """A loss as a float32 number on its device (float64 stays)."""
    where = f"the closure's loss at query {slot + 1} of {batch.size}"
    if isinstance(loss, (int, float)) and not isinstance(loss, bool):
        return torch.tensor(float(loss), dtype=torch.float64)
    if not isinstance(loss, Tensor) or loss.is_complex() or loss.dtype == torch.bool:
        raise TypeError(f"{where} must be a number or a tensor of one number, got {type(loss).__name__}: {loss!r}")
    if loss.numel() != 1:
        raise ValueError(f"{where} must be one number, got shape {tuple(loss.shape)}; take its mean")
    return loss.detach().clone().reshape(()).to(torch.float64 if loss.dtype == torch.float64 else torch.float32)
