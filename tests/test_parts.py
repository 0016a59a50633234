"""The small parts: smoothing laws, schedules, problems, imports."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import zoar
from zoar.directions import Replayed, Stored

CPU = torch.device("cpu")
SOURCE = Path(zoar.__file__).parent
LAWS = [zoar.Gaussian(), zoar.Sphere(), zoar.Coordinate(), zoar.Coordinate(signed=False), zoar.Rademacher()]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_covariance_factor_is_measured(law: zoar.Smoothing) -> None:
    """50,000 draws in five dimensions: every entry of E[u u^T] within five of its own standard errors."""
    dim = 5
    u = law.draw(law.stream(2, CPU), 0, 50_000, dim, torch.float64, CPU)
    products = u[:, :, None] * u[:, None, :]
    error = products.std(0) / len(u) ** 0.5
    gap = (products.mean(0) - law.covariance_factor(dim) * torch.eye(dim)).abs()
    assert bool((gap <= 5 * error + 1e-12).all())
    torch.testing.assert_close(
        (u**2).sum(-1).mean(), torch.tensor(law.squared_norm(dim), dtype=torch.float64), rtol=0.05, atol=0
    )
    assert law.symmetric == (bool((u < 0).any()))


def test_log_densities_are_those_of_the_textbook() -> None:
    u = torch.tensor([[0.5, -1.0, 2.0]], dtype=torch.float64)
    normal = torch.distributions.Normal(0.0, 0.3)
    torch.testing.assert_close(zoar.Gaussian().log_density(u, 0.3), normal.log_prob(0.3 * u).sum(-1))
    sphere_area = 4 * math.pi * 0.3**2
    assert float(zoar.Sphere().log_density(u, 0.3)) == pytest.approx(-math.log(sphere_area))
    assert float(zoar.Coordinate().log_density(u)) == pytest.approx(-math.log(6))
    assert float(zoar.Coordinate(signed=False).log_density(u)) == pytest.approx(-math.log(3))
    assert float(zoar.Rademacher().log_density(u)) == pytest.approx(-3 * math.log(2))


def test_importance_weights_stay_finite_in_logs_at_any_dimension() -> None:
    for law in LAWS:
        u = law.draw(law.stream(0, CPU), 0, 2, 100_000, torch.float32, CPU)
        assert bool(torch.isfinite(law.log_importance_weight(u, 1e-3)).all())


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_stored_and_replayed_directions_are_one(law: zoar.Smoothing) -> None:
    stream = law.stream(1, CPU)
    stores = [kind(law, stream, 37, torch.float32, CPU) for kind in (Stored, Replayed)]
    for store in stores:
        for step in (0, 1, 5):
            store.open(step, 3)
    weights = {0: [1.0, 2.0, 3.0], 5: [0.5, 0.0, -1.0]}
    assert torch.equal(stores[0].combine(weights), stores[1].combine(weights))
    assert torch.equal(stores[0].gram([0, 1]), stores[1].gram([0, 1]))
    rows = torch.cat([stores[0].rows(0), stores[0].rows(5)]).double()
    expected = torch.tensor([*weights[0], *weights[5]], dtype=torch.float64) @ rows
    torch.testing.assert_close(stores[1].combine(weights).double(), expected, rtol=1e-5, atol=1e-6)
    fresh = Replayed(law, stream, 37, torch.float32, CPU)
    fresh.load_state_dict(stores[0].state_dict())
    assert torch.equal(fresh.rows(5), stores[0].rows(5))


def test_schedules_go_from_start_to_end() -> None:
    line, cosine = zoar.Linear(2.0, 1.0), zoar.Cosine(2.0, 1.0)
    for schedule in (line, cosine):
        values = [schedule.at(step, 11) for step in range(11)]
        assert (values[0], values[-1]) == (2.0, 1.0)
        assert values == sorted(values, reverse=True)
        assert schedule.at(50, 11) == 1.0
        assert values[5] == pytest.approx(1.5)
    assert zoar.Linear(1.0, 0.0, steps=3).at(1, horizon=100) == 0.5
    assert zoar.Constant(3.0).at(7, None) == 3.0


def test_the_horizon_is_the_budget_in_steps() -> None:
    run = zoar.Optimizer(np.ones(3), "vanilla", queries=4, max_queries=50, lr=zoar.Linear(1.0, 0.0))
    assert run.settings.horizon == 10
    assert run.settings.rate(9) == 0.0


@pytest.mark.parametrize("name", zoar.PROBLEMS)
@pytest.mark.parametrize("dim", [2, 7])
def test_problems_have_their_minimum_where_they_say(name: str, dim: int) -> None:
    problem = zoar.problem(name)
    best = np.full(dim, problem.minimizer)
    assert problem(best) == pytest.approx(problem.minimum, abs=1e-12)
    generator = np.random.Generator(np.random.PCG64(0))
    around = best + generator.normal(size=(200, dim))
    assert (problem(around) > problem.minimum).all()
    np.testing.assert_allclose(problem(torch.from_numpy(around)).numpy(), problem(around), rtol=1e-12)
    np.testing.assert_allclose([problem(x) for x in around], problem(around), rtol=1e-12)


def test_problems_match_the_paper_s_formulas_written_out() -> None:
    x = [0.3, -1.2, 0.7]
    d = 3
    w = [1 + (t - 1) / 4 for t in x]
    expected = {
        "quadratic": 0.5 * sum(t * t for t in x),
        "ackley": -20 * math.exp(-0.2 * math.sqrt(sum(t * t for t in x) / d))
        - math.exp(sum(math.cos(2 * math.pi * t) for t in x) / d) + 20 + math.e,
        "levy": math.sin(math.pi * w[0]) ** 2
        + sum((t - 1) ** 2 * (1 + 10 * math.sin(math.pi * t + 1) ** 2) for t in w[:-1])
        + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2),
        "rosenbrock": sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(d - 1)),
    }  # fmt: skip
    for name, value in expected.items():
        assert float(zoar.problem(name)(np.array(x))) == pytest.approx(value)


def test_wrappers() -> None:
    noisy = zoar.noisy(zoar.problem("quadratic"), 2.0, seed=1)
    values = noisy(np.zeros((4_000, 3)))
    assert abs(values.std() - 2.0) < 5 * 2.0 / (2 * 4_000) ** 0.5
    assert isinstance(noisy(torch.zeros(2, 3)), torch.Tensor)
    steps = zoar.quantised(zoar.problem("quadratic"), 0.5)
    assert steps(np.array([0.2, 0.6])) == steps(np.array([0.0, 0.5]))


def test_a_wide_radius_sees_through_quantisation_and_a_narrow_one_does_not() -> None:
    """The paper's Limitations: a step function looks flat to a small mu."""
    function = zoar.quantised(zoar.problem("quadratic"), 0.5)
    ends = {
        mu: zoar.minimize(function, np.full(20, 2.0), smoothing=mu, lr=0.02, max_iterations=300, vectorized=True).fun
        for mu in (0.01, 0.5)
    }
    assert ends[0.01] == 40.0  # has not moved
    assert ends[0.5] < 2.0


def test_importing_zoar_loads_no_heavy_library() -> None:
    code = "import sys, zoar; print([m for m in ('transformers', 'ray', 'matplotlib', 'rich', 'pandas', 'peft') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


#: What may import what: a file imports only from files above it.
ORDER = [
    "checking", "problems", "streams", "smoothing", "directions", "schedules", "space", "bounds", "updates", "history", "ledger", "coefficients",
    "baselines", "window_sum", "estimators", "evaluation", "stopping", "storage", "settings", "optimizer", "many_relizo", "many", "checkpoint",
    "progress", "kernels", "torch_optim", "minimize", "recommended", "scipy_method", "theory", "convergence", "diagnostics", "__init__", "attack", "study",
    "cli",
]  # fmt: skip


def test_imports_go_one_way() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert part in ORDER, f"{path} has no place in the order"
        for imported in _imports(path):
            assert ORDER.index(imported) <= ORDER.index(part), f"{path} imports zoar.{imported}, which comes after it"


def _imports(path: Path) -> set[str]:
    """The parts of zoar that a file imports; imports for type checking only are free."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name == "zoar":
                found.add("__init__")
            elif name.startswith("zoar."):
                found.add(name.split(".")[1])
    return found
