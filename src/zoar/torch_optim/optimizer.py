"""ZOOptimizer: ask, tell, weigh, move over a model's parameters. ZoAR is its method by that name.

    optimizer = zoar.ZoAR(model.parameters(), lr=5e-5, queries=2, window=15, smoothing=1e-2)
    loss = optimizer.step(lambda: loss_fn(model(batch), target))          # forward passes only

The algebra is that of `zoar.Optimizer`: estimators, baselines and update rules are the same objects. Directions are addresses,
never vectors. What a step remembers is plain numbers in `param_groups[0]`, which every way of saving an optimizer carries:

    history                           the window as JSON: each batch's step, radii, values and answers; a text, since distributed
                                      checkpoints take lists and dicts apart and miss those that are not as long as before
    grid                              what running sums count from and in (`zoar.torch_optim.sums`), where there are any
    steps, evaluations, dropped       counts
    layout, law, seed                 what the window's directions depend on; compared when a state is loaded
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from zoar.baselines import Baseline
from zoar.coefficients import Coefficients
from zoar.estimators import Estimator
from zoar.evaluation.outcomes import NonFiniteValue
from zoar.history import QueryBatch
from zoar.kernels.reference import Address
from zoar.smoothing import Smoothing
from zoar.torch_optim.backends import choose_backend
from zoar.torch_optim.forwards import Forwards
from zoar.torch_optim.layout import Layout, check_parameters
from zoar.torch_optim.moving import Move, start_state
from zoar.torch_optim.recipe import Recipe, check_group
from zoar.torch_optim.saving import by_saved_name, check_state
from zoar.torch_optim.sums import RunningSums
from zoar.torch_optim.trajectory import TrajectoryLog
from zoar.torch_optim.window import BatchWindow
from zoar.updates import UpdateRule


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
        fold: one forward for all queries of a step, where what is trained are Linear layers such as LoRA's and the rest is frozen
            (see `zoar.torch_optim.folding`); `not_folded` says why a model's are not.
        extra_memory: what running sums may take beside the model, in bytes (an int) or times the parameters' own bytes (a float):
            a step then costs the same for any window (see `zoar.torch_optim.sums`). They want 5 bytes a parameter.
        kernels: `"triton"`, `"reference"` (plain torch), or `"auto"`: Triton's on a GPU.
        log: a file that tells the run in kilobytes; `zoar.replay` takes it to the trained parameters.

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
        fold: bool = False,
        extra_memory: float = 0.0,
        kernels: str = "auto",
        log: str | Path | None = None,
    ) -> None:
        self.recipe = Recipe.check(
            method=method, baseline=baseline, directions=directions, update=update, queries=queries, window=window, seed=seed,
            max_norm=max_norm, maximize=maximize, on_error=on_error, placement=placement, rounding=rounding,
            same_noise=same_noise, fold=fold, extra_memory=extra_memory, kernels=kernels, log=log,
        )  # fmt: skip
        self._log: TrajectoryLog | None = None
        self.param_groups: list[dict[str, Any]] = []
        self._lay_out()
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
        first.update(counts, history="[]", grid="")
        first.update(layout=self._layout.fingerprint(), law=self.recipe.law.name, seed=self.recipe.seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "recipe": self.recipe}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._log = None
        self._lay_out()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a state; one of other parameters, another seed or another law is refused before anything changes."""
        check_state(state_dict, self.param_groups[0], self._layout, self.recipe)
        super().load_state_dict(state_dict)
        self._lay_out()
        # torch casts what it loads to the parameter's dtype; ours is kept as it was saved.
        mine = by_saved_name(state_dict, self._layout)
        for name, vectors in state_dict["state"].items():
            device = mine[name].device
            self.state[mine[name]] = {what: vector.detach().to(device, copy=True) for what, vector in vectors.items()}

    # -- a step -----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Evaluates `closure` at every query, forward passes only, and moves the parameters.

        Returns the mean loss of the queries, a float32 tensor. Without a closure it only makes the rule's vectors: distributed
        checkpointing calls it so, to have what it loads into. An exception of the closure leaves parameters and state as they were.
        """
        if closure is None:
            self._start_states()
            return None
        self._check_groups()
        batch, run = self._ask(), self.param_groups[0]
        losses = self._forwards.losses(batch, self._radii(), closure)
        values = losses.double().tolist()  # the one wait for the device
        # Asked for before the parameters move, so that whoever reads it does not wait for that.
        mean = losses.mean() if np.isfinite(values).all() else losses[torch.isfinite(losses)].mean()
        run["evaluations"] += self._forwards.extra
        self._take(batch, values)
        return mean

    @torch.no_grad()
    def tell(self, values: Sequence[float]) -> None:
        """A step whose losses are known: those of another machine, or of a log (`zoar.replay`)."""
        self._check_groups()
        batch = self._ask()
        if len(values) != batch.size:
            raise ValueError(f"a step has {batch.size} queries, got {len(values)} values")
        self._take(batch, [float(value) for value in values])

    def _ask(self) -> QueryBatch:
        estimator, step = self.recipe.estimator, self.param_groups[0]["steps"]
        return QueryBatch(step, 1.0, self.recipe.queries, 0, estimator.two_sided, estimator.centred)

    def _check_groups(self) -> None:
        for group in self.param_groups:  # schedulers write into them
            check_group(group)

    def _radii(self) -> tuple[float, ...]:
        return tuple(float(group["smoothing"]) for group in self.param_groups)

    def _take(self, batch: QueryBatch, values: list[float]) -> None:
        """Losses in slot order to a step."""
        run = self.param_groups[0]
        dropped = self._answer(batch, values)
        window = self._window().with_newest(batch, self._radii(), self.recipe.window)
        coefficients = window.weigh(self.recipe.estimator, self)
        if self.recipe.log is not None:
            self._log = self._log or TrajectoryLog(self.recipe.log)
            self._log.open(self.recipe, self._layout, batch.step)
        if coefficients is not None:
            self._move(coefficients, window, batch.step)
        run.update(
            history=window.text, steps=run["steps"] + 1, evaluations=run["evaluations"] + batch.size,
            dropped=run["dropped"] + dropped,
        )  # fmt: skip
        self._known = window
        if self._log is not None:
            self._log.append(self.param_groups, batch.step, values)

    def _answer(self, batch: QueryBatch, values: list[float]) -> int:
        """Puts the losses into their batch; how many were none."""
        usable = np.isfinite(values)
        if not usable.all() and self.recipe.on_error == "raise":
            slot = int(np.argmin(usable))
            raise NonFiniteValue(
                f"the loss of query {slot + 1} of {batch.size} in step {batch.step} is {values[slot]:g}; parameters and state are "
                'as they were. on_error="drop" leaves such queries out; a loss taken in float32 overflows later'
            )
        sign = -1.0 if self.recipe.maximize else 1.0
        for slot, value in enumerate(values):
            batch.answer(slot, sign * value if usable[slot] else None)
        return int((~usable).sum())

    def _window(self) -> BatchWindow:
        """What `history` says."""
        text = self.param_groups[0]["history"]
        if self._known.text is not text:
            self._known = BatchWindow.parse(text)
        return self._known

    def _move(self, coefficients: Coefficients, window: BatchWindow, step: int) -> None:
        radii, flat, run = window.radii(), coefficients.flat(), self.param_groups[0]
        asked = [(at, len(share.centred)) for at, share in coefficients.shares.items()]
        same = len(set(radii.values())) == 1
        rows = [
            flat / (radii[step][group] if same else np.concatenate([np.full(k, radii[at][group]) for at, k in asked]))
            for group in range(len(self.param_groups))
        ]
        shrink = self._shrink(rows)
        self._start_states()
        planned = self._sums.plan(coefficients, run["grid"]) if same else None
        if planned is None:
            addresses = [Address(self.recipe.seed, at, query) for at, k in asked for query in range(k)]
        else:
            addresses = planned[0].addresses
        for index, group in enumerate(self.param_groups):
            sums = planned and planned[0].of(self._sums.tensors, shrink / radii[step][index])
            move = Move(
                addresses, (shrink * rows[index]).tolist(), self.recipe.law.name, self.recipe.rule, float(group["lr"]),
                float(group["weight_decay"]), self.recipe.rounding, Address(self.recipe.seed, step, 0), sums or None,
            )  # fmt: skip
            self._backend.apply(move, self._layout.groups[index], self.state)
        if planned is not None:
            self._sums.done(planned[0])
            run["grid"] = planned[1]

    def _start_states(self) -> None:
        if len(self.state) == len(self._layout.segments):
            return
        for segment in self._layout.segments:
            if segment.parameter not in self.state:
                self.state[segment.parameter] = start_state(segment.parameter, self.recipe.rule, self.recipe.rounding)

    def _shrink(self, rows: list[np.ndarray]) -> float:
        """What the estimate is multiplied by to have a norm of at most max_norm."""
        if self.recipe.max_norm is None:
            return 1.0
        sizes = self._layout.sizes()
        norm = math.sqrt(sum(size * float((row**2).sum()) for size, row in zip(sizes, rows, strict=True)))
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

    @property
    def not_folded(self) -> str:
        """Why the queries of a step run one after the other; empty while they share a forward, or may yet."""
        return self._forwards.not_folded

    def _lay_out(self) -> None:
        self._layout = Layout(self.param_groups)
        self._backend = choose_backend(self.recipe.kernels, self._layout)
        self._forwards = Forwards(self._layout, self.recipe, self._backend)
        allowed = self.recipe.extra_memory
        self._sums = RunningSums(
            self._layout,
            allowed if isinstance(allowed, int) else allowed * self._layout.bytes(),
            self.recipe.seed,
            self.recipe.law.name,
        )
        self._known = BatchWindow()


class ZoAR(ZOOptimizer):
    """The paper's method: a baseline averaged over a window of recent queries, and those queries used again (Algorithm 1)."""

    def __init__(self, params: Any, lr: float = 1e-3, **options: Any) -> None:
        if "method" in options:
            raise TypeError("ZoAR is the method; use zoar.ZOOptimizer to choose another")
        super().__init__(params, lr, method="zoar", **options)
