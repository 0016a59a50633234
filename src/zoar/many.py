"""Many runs of one setting, side by side in one program: (S, d) thetas, (S, K, d) queries, no loop over runs.

Run s does what `zoar.Optimizer(starts[s], seed=seeds[s], stream="philox", ...)` does, to rounding (the tests hold it to that).
Nothing waits for the device: on a GPU, where a step is a few dozen small kernels, five runs cost what one does. That is for
studies over seeds, and for attacks on a batch of images, where runs end one by one (`keep`).

    runs = ManyRuns(starts, seeds, max_iterations=1_000, queries=10, window=6)
    while runs.step < 1_000:
        runs.tell(function(runs.ask()))        # (S, K, d) -> (S, K)

It takes what can be done in lock-step: every query must give a finite value, and bounds are per run. What changes from run to
run is not here: failures, late answers, targets, checkpoints.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zoar.checking import whole_number
from zoar.estimators import Estimator
from zoar.many_relizo import ManyInterpolations
from zoar.schedules import Schedule
from zoar.settings import Settings
from zoar.smoothing import Smoothing
from zoar.space import Space
from zoar.stopping import Budget
from zoar.streams import WORDS_PER_BLOCK, Philox, Stream, philox4x32
from zoar.updates import TorchUpdate, UpdateRule
from zoar.window_sum import REFRESH_EVERY


class ManyRuns:
    """S runs in lock-step.

    Args:
        starts: (S, d), where each run starts; float32 or float64, on the device to work on.
        seeds: one a run.
        max_iterations: how long the runs are, for the schedules.
        lower, upper: bounds, anything that broadcasts to (S, d).
        method, queries, window, smoothing, lr, update, directions, baseline, scale: as for `zoar.Optimizer`.

    Example:
        >>> import zoar
        >>> runs = ManyRuns(torch.ones(3, 20), seeds=[0, 1, 2], max_iterations=300, lr=zoar.Linear(0.05, 0))
        >>> while runs.step < 300:
        ...     runs.tell((runs.ask() ** 2).sum(-1))
        >>> bool(((runs.theta**2).sum(-1) < 2).all())  # from 20
        True
    """

    def __init__(
        self,
        starts: Tensor,
        seeds: Sequence[int],
        *,
        max_iterations: int,
        lower: Any = None,
        upper: Any = None,
        method: str | Estimator = "zoar",
        queries: int = 10,
        window: int | Schedule | None = None,
        smoothing: float | Schedule = 0.05,
        lr: float | Schedule = 1e-3,
        update: str | UpdateRule = "radazo",
        directions: str | Smoothing = "gaussian",
        baseline: Any = None,
        scale: str | None = None,
    ) -> None:
        if starts.ndim != 2 or len(starts) != len(seeds):
            raise ValueError(
                f"starts must be (runs, d), one row a seed; got {tuple(starts.shape)} and {len(seeds)} seeds"
            )
        space, _ = Space.of(starts[0])
        whole_number("max_iterations", max_iterations, 1)
        self.settings = settings = Settings.check(
            space, Budget(max_iterations), method=method, queries=queries, window=window, smoothing=smoothing, lr=lr,
            update=update, directions=directions, baseline=baseline, scale=scale, seed=0, bounds=None, sense="min",
            on_error="raise", storage="summed", memory=0, stream="philox",
        )  # fmt: skip
        _check_supported(settings)
        self.theta = starts.detach().to(space.work_dtype).clone()
        self.step = 0
        self.stream: Stream = ManyPhilox(seeds, starts.device)
        self._lower, self._upper = (_side(side, self.theta) for side in (lower, upper))
        self._clamp_(self.theta)
        self._update_state = settings.update.start(self.theta)
        self._sum = _ManySums(settings) if settings.method.name != "relizo" else None
        self._relizo = ManyInterpolations(settings.method, settings.queries) if self._sum is None else None  # type: ignore[arg-type]
        self._rows = self.theta.new_empty(0)

    @property
    def runs(self) -> int:
        """S, the runs still kept."""
        return len(self.theta)

    @property
    def evaluations(self) -> int | Tensor:
        """Evaluations of each run so far; one number where all runs made the same."""
        if self._relizo is not None:
            return self._relizo.evaluations
        return self.step * self.settings.method.evaluations(self.settings.queries)

    def ask(self) -> Tensor:
        """Every query of the step, (S, K', d) in the slot order of `zoar.history.QueryBatch`."""
        settings, theta = self.settings, self.theta
        runs, dim = theta.shape
        radius = settings.radius(self.step)
        rows = settings.directions.draw(
            self.stream, self.step, runs * settings.queries, dim, theta.dtype, theta.device
        ).reshape(runs, settings.queries, dim)  # fmt: skip
        center = theta[:, None]
        if self._relizo is not None:
            self._rows = rows * radius
            self._relizo.choose(theta, settings.rate(self.step))
        else:
            self._rows = rows
        scaled = self._rows if self._relizo is not None else rows * radius
        points = center + scaled
        if settings.method.two_sided:
            points = torch.cat([points, center - scaled], 1)
        if settings.method.centred:
            points = torch.cat([points, center], 1)
        return self._clamp_(points)

    def tell(self, values: Tensor) -> None:
        """Takes the (S, K') values of the queries just asked, and moves every run."""
        settings, theta = self.settings, self.theta
        asked = settings.queries * (2 if settings.method.two_sided else 1) + settings.method.centred
        if values.shape != (self.runs, asked):
            raise ValueError(f"values must have shape {(self.runs, asked)}, got {tuple(values.shape)}")
        if self._relizo is not None:
            estimate: Tensor | None = self._relizo.gradient(self._rows, values)
        else:
            assert self._sum is not None
            estimate = self._sum.gradient(self.step, self._rows, values)
        if estimate is not None:
            before = theta.clone()
            settings.update.move_(theta, estimate, self._update_state, settings.rate(self.step))
            self._clamp_(theta)
            if self._relizo is not None:
                self._relizo.moved(theta - before)
        self.step += 1

    def keep(self, chosen: Tensor) -> None:
        """Goes on with the chosen runs only (a mask, or positions); the others are over."""
        self.theta = self.theta[chosen].contiguous()
        self._lower, self._upper = (None if side is None else side[chosen] for side in (self._lower, self._upper))
        self._update_state = {name: tensor[chosen].contiguous() for name, tensor in self._update_state.items()}
        assert isinstance(self.stream, ManyPhilox)
        self.stream = self.stream.chosen(chosen)
        if self._sum is not None:
            self._sum.keep(chosen)
        if self._relizo is not None:
            self._relizo.keep(chosen)

    def _clamp_(self, points: Tensor) -> Tensor:
        for side, clamp in ((self._lower, torch.maximum), (self._upper, torch.minimum)):
            if side is not None:
                clamp(points, side[:, None] if points.ndim == 3 else side, out=points)
        return points


class _ManySums:
    """The window of all runs as running sums: `zoar.window_sum` and the baselines, with a leading axis for the runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._baseline = settings, settings.method.baseline.name
        self._parts: deque[Tensor] = deque()  # (sums, S, d) of each batch, oldest first
        self._levels: deque[Tensor] = deque()  # (S, 1), the mean of each batch
        self._total: Tensor | None = None

    def gradient(self, step: int, rows: Tensor, values: Tensor) -> Tensor | None:
        """g of every run, (S, d); None while one value is all there is."""
        settings = self._settings
        while len(self._parts) >= settings.window_length(step):
            assert self._total is not None
            self._total -= self._parts.popleft()
            self._levels.popleft()
        part, level = self._part(rows, values.double(), settings.radius(step))
        self._parts.append(part)
        self._levels.append(level)
        if self._total is None or len(self._parts) == 1 or (step + 1) % REFRESH_EVERY == 0:
            self._total = torch.stack(tuple(self._parts)).sum(0)
        else:
            self._total += part
        size = len(self._parts) * settings.queries
        if self._baseline != "window":
            return (self._total[0] / size).to(rows.dtype)
        if size == 1:
            return None
        shift = torch.stack(tuple(self._levels)).mean(0)
        return ((self._total[0] - shift * self._total[1]) / (size - 1)).to(rows.dtype)

    def keep(self, chosen: Tensor) -> None:
        self._parts = deque(part[:, chosen] for part in self._parts)
        self._levels = deque(level[chosen] for level in self._levels)
        self._total = None if self._total is None else self._total[:, chosen]

    def _part(self, rows: Tensor, values: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        """What a batch adds to the sums, and its mean; `baselines.py` says why it is split so."""
        settings, k = self._settings, self._settings.queries
        slope = settings.method.factor(settings.directions, rows.shape[-1]) / radius
        y = values[:, :k]
        level = y.mean(-1, keepdim=True)
        if settings.method.two_sided:
            centred = 0.5 * (y - values[:, k : 2 * k])
        elif self._baseline == "center":
            centred = y - values[:, -1:]
        elif self._baseline == "zero":
            centred = y
        elif self._baseline == "batch":
            centred = (y - level) * (k / (k - 1))
        else:
            both = torch.stack([y - level, torch.ones_like(y)], 1) * slope
            sums = torch.bmm(both.to(rows.dtype), rows).double()
            return torch.stack([sums[:, 0] + level * sums[:, 1], sums[:, 1]]), level
        return torch.bmm((centred * slope).to(rows.dtype)[:, None], rows).double().transpose(0, 1), level


class ManyPhilox(Stream):
    """The Philox words of several seeds: row r of `words` is query r % K of run r // K, whatever else is kept."""

    name = "philox"
    # A GPU makes 4 million blocks in about a millisecond, and as many launches for a single step: so many steps at once.
    _LOOKAHEAD_BLOCKS = 1 << 22

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        super().__init__(0)
        self.seeds, self.device = [int(seed) for seed in seeds], device
        self._each = [Philox(seed, device) for seed in seeds]  # checks the seeds; on the CPU, makes the words
        self._chunks: OrderedDict[tuple[int, int, int], Tensor] = OrderedDict()

    def chosen(self, runs: Tensor) -> ManyPhilox:
        """The words of some of the runs."""
        positions = torch.arange(len(self.seeds))[runs.cpu()].tolist()
        return ManyPhilox([self.seeds[i] for i in positions], self.device)

    def words(self, step: int, queries: int, count: int) -> Any:
        each = queries // len(self.seeds)
        if self.device.type == "cpu":
            return np.concatenate([stream.words(step, each, count) for stream in self._each])
        blocks = -(-count // WORDS_PER_BLOCK)
        span = max(1, self._LOOKAHEAD_BLOCKS // (blocks * queries))
        address = (step // span, queries, count)
        if address not in self._chunks:
            self._chunks.clear()
            self._chunks[address] = self._make(step // span * span, span, each, blocks)
        return self._chunks[address][step % span][:, :count]

    def _make(self, first: int, span: int, queries: int, blocks: int) -> Tensor:
        options: dict[str, Any] = {"dtype": torch.int64, "device": self.device}
        keys = torch.tensor([[seed & 0xFFFFFFFF, seed >> 32] for seed in self.seeds], **options)
        low, high = (key[None, :, None, None] for key in keys.unbind(1))
        steps, _, query, block = torch.meshgrid(
            torch.arange(first, first + span, **options), torch.arange(len(self.seeds), **options),
            torch.arange(queries, **options), torch.arange(blocks, **options), indexing="ij",
        )  # fmt: skip
        counter = (block.clone(), query.clone(), steps.clone(), torch.zeros_like(block))
        words = torch.stack(philox4x32(counter, (low, high)), -1)  # type: ignore[arg-type]  # keys may be arrays
        return words.reshape(span, len(self.seeds) * queries, blocks * WORDS_PER_BLOCK)


def _side(side: Any, theta: Tensor) -> Tensor | None:
    return None if side is None else torch.as_tensor(side, dtype=theta.dtype, device=theta.device).expand(theta.shape)


def _check_supported(settings: Settings) -> None:
    """Says what cannot be done in lock-step."""
    method, law = settings.method, settings.directions
    if isinstance(settings.update, TorchUpdate):
        raise ValueError(
            f"update {settings.update.name!r} may mix runs; many runs at once take zoar's own update rules"
        )
    if method.baseline.name == "optimal" and not law.constant_norm:
        raise ValueError(
            f"baseline 'optimal' with {law.name} directions is not available for many runs at once; use zoar.Optimizer"
        )
    if method.name == "reinforce" and law.constant_norm:
        raise ValueError(f"method 'reinforce' takes gaussian directions for many runs at once, got {law.name}")
    if method.name == "relizo" and getattr(method, "orthogonal", False):
        raise ValueError(
            "method 'relizo' with orthogonal=True is not available for many runs at once; use zoar.Optimizer"
        )
