"""Targets against their definitions, prompt by prompt in numpy, and the registry that names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from interp.errors import UsageError
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import (
    MatrixCompletion,
    NoiseLaw,
    NoisyRegression,
    SimpleRegression,
    Target,
    find_targets,
    register_target,
    target_names,
    targets,
    targets_of,
)
from interp.models.tasks.linear_dynamics import LinearDynamics
from interp.models.transformer import LinearTransformer
from interp.solvers.chebyshev import chebyshev, chebyshev_solve
from interp.solvers.next_state import INVERSE_LAMBDA, PUBLISHED_ALPHA, PUBLISHED_BETA
from interp.solvers.ridge import ols, ridge

REGRESSION = NoisyRegression(dim=4, context=9, noise=NoiseLaw(kind="uniform", values=(0.5, 2.0)), weight_std=1.5)
DYNAMICS = LinearDynamics(dim=3, context=12)


def value(task: Any, name: str, position: int | None, count: int = 5) -> tuple[Any, np.ndarray]:
    prompts = task.sample(count, 7)
    (target,) = find_targets(task, [name])
    found = target.value(prompts, position)
    assert found is not None and found.dtype == torch.float64
    return prompts, found.numpy()


@pytest.mark.parametrize("position", [None, 0, 6])
def test_regression_targets_follow_their_formulas(position: int | None) -> None:
    for name in [t.name for t in targets_of(REGRESSION) if not t.name.startswith("cheb")]:
        prompts, found = value(REGRESSION, name, position)
        for i in range(5):
            X, y, w, sigma = (v[i].numpy() for v in (prompts.x, prompts.y, prompts.w, prompts.sigma))
            x = prompts.x_query[i].numpy() if position is None else X[position]
            S, eye = X.T @ X, np.eye(4)
            expected = {
                "w": lambda w=w: w,
                "w-ols": lambda X=X, y=y: np.linalg.lstsq(X, y, rcond=None)[0],
                "w-ridge": lambda S=S, X=X, y=y, s=sigma, eye=eye: np.linalg.solve(S + (s / 1.5) ** 2 * eye, X.T @ y),
                "alpha": lambda X=X, y=y: X.T @ y,
                "noise": lambda s=sigma: np.array([s]),
                "label": lambda w=w, x=x: np.array([w @ x]),
                "current": lambda x=x: x,
                "preconditioned": lambda S=S, x=x, s=sigma, eye=eye: np.linalg.solve(S + s**2 * eye, x),
            }[name]()
            np.testing.assert_allclose(found[i], expected, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "fields", [{}, {"clip": 0.5}, {"attention": {"keys": "causal"}}, {"attention": {"keys": "all"}}]
)
def test_why_previous_tokens_are_no_target_of_regression(fields: dict[str, Any]) -> None:
    """The sign of one token reaches no other: what a linear probe could find of it elsewhere is 0 by symmetry."""
    spec = {"tokens": [["x", 4], ["y", 1]], "task": REGRESSION.to_dict(), **fields}
    P, Q = 0.1 * torch.randn(2, 3, 2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = LinearTransformer(spec=ModelSpec.from_dict(spec), P=P, Q=Q)
    prompts = REGRESSION.sample(6, 1)
    sign = torch.ones(9, dtype=torch.float64)
    sign[-1] = -1.0
    flipped = replace(prompts, x=prompts.x * sign[:, None], y=prompts.y * sign)
    names = ["blocks.2.hook_resid_post"]
    left, right = (
        HookedLinearTransformer(model).run_with_cache(*p.inputs(model.spec), names_filter=names)[1][names[0]]
        for p in (prompts, flipped)
    )
    torch.testing.assert_close(left[:, 8], -right[:, 8])
    torch.testing.assert_close(left[:, [0, 5, 9]], right[:, [0, 5, 9]])
    assert float(left.abs().max()) > 0.1
    with pytest.raises(UsageError, match="'previous-1'"):
        find_targets(REGRESSION, ["previous-1"])


@pytest.mark.parametrize("position", [0, 1, 5, 11])
def test_dynamics_targets_follow_their_formulas(position: int) -> None:
    for name in ("next", "current", "preconditioned"):
        prompts, found = value(DYNAMICS, name, position)
        for i in range(5):
            s = prompts.states[i].numpy()
            past = s[:position]  # s_0 .. s_{t-1}: the newest pair of the authors' comparator is not left out
            A = past.T @ past + 0.001 * np.eye(3)
            expected = {"next": s[position + 1], "current": s[position]}.get(name)
            expected = np.linalg.solve(A, s[position]) if expected is None else expected
            np.testing.assert_allclose(found[i], expected, rtol=1e-9, err_msg=name)
    (target,) = find_targets(DYNAMICS, ["previous-3"])
    earlier = target.value(prompts, position)
    if position < 3:
        assert earlier is None
    else:
        assert earlier is not None and torch.equal(earlier, prompts.states[:, position - 3])


def spd(count: int, dim: int, condition: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(count, dim, dim, generator=generator, dtype=torch.float64))
    values = torch.logspace(0, float(np.log10(condition)), dim, dtype=torch.float64)
    return basis @ torch.diag(values) @ basis.mT


def test_chebyshev_steps_are_those_of_the_reference_solver_on_the_stated_interval() -> None:
    S, b = spd(6, 5, 30.0), torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    A = S + 0.7 * torch.eye(5, dtype=torch.float64)
    for steps in (1, 2, 6, 30):
        high = A.square().sum((-1, -2)).sqrt()
        low = torch.maximum(torch.tensor(0.7, dtype=torch.float64), high / steps**2).clamp_max(high)
        expected = chebyshev(A, b, low, high, steps)[-1]
        torch.testing.assert_close(chebyshev_solve(S, b, 0.7, steps), expected, rtol=1e-11, atol=1e-13)
    exact = torch.linalg.solve(A, b)
    torch.testing.assert_close(chebyshev_solve(S, b, 0.7, 60), exact, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ridge(S, b, 0.7), exact, rtol=1e-11, atol=1e-13)
    assert not chebyshev_solve(0.0 * S, b, 0.0, 6).any()  # the solution of least norm


def test_the_published_steps_are_a_polynomial_in_matrix_form() -> None:
    """The authors iterate on matrices; here a vector is iterated."""
    prompts, found = value(DYNAMICS, "preconditioned-published", 6)
    for i in range(5):
        s = prompts.states[i].numpy()
        A, eye = s[:6].T @ s[:6] + 0.001 * np.eye(3), np.eye(3)
        B = A / np.linalg.norm(A)
        T, X, X_before = eye, eye, eye
        for alpha, beta in zip(PUBLISHED_ALPHA, PUBLISHED_BETA, strict=True):
            T = T @ (eye - alpha * B)
            X, X_before = X + T + beta * (X - X_before), X
        np.testing.assert_allclose(found[i], X @ s[6] / np.linalg.norm(A), rtol=1e-12)


def test_the_solution_of_least_norm_where_the_matrix_is_singular() -> None:
    x = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A, b = x.mT @ x, (x.mT @ torch.ones(3, 2, 1, dtype=torch.float64)).squeeze(-1)
    expected = (torch.linalg.pinv(A, rtol=1e-10) @ b[..., None]).squeeze(-1)
    torch.testing.assert_close(ols(A, b), expected, rtol=1e-9, atol=1e-11)
    assert INVERSE_LAMBDA == 0.001  # of the paper


def test_names() -> None:
    assert target_names(targets_of(REGRESSION))[0] == "w"
    assert target_names(targets_of(DYNAMICS))[-2:] == ("chebyshev-K", "previous-K")
    assert [t.name for t in find_targets(REGRESSION, ["w", "chebyshev-3", "w"])] == ["w", "chebyshev-3"]
    for task in (REGRESSION, DYNAMICS):
        for target in targets_of(task):
            assert target.formula and target.source and target.expectation
            assert find_targets(task, [target.name])[0].formula == target.formula


@pytest.mark.parametrize(
    ("task", "name", "names"),
    [
        (REGRESSION, "next", ["w-ols", "preconditioned", "chebyshev-K"]),
        (DYNAMICS, "w", ["next", "previous-K"]),
        (DYNAMICS, "nxt", ["'next'", "current"]),
        (REGRESSION, "chebyshev-0", ["1 to 64"]),
        (DYNAMICS, "previous-99", ["1 to 64"]),
        (REGRESSION, "previous-1", ["chebyshev-K", "label"]),
        (REGRESSION, "", ["w-ols"]),
    ],
)
def test_what_does_not_apply_is_refused_with_what_does(task: Any, name: str, names: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        find_targets(task, [name])
    for word in (repr(name), *names):
        assert word in str(refused.value)


def test_tasks_without_targets() -> None:
    for task in (MatrixCompletion(dim=6, context=8), SimpleRegression(context=6)):
        assert targets_of(task) == ()


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> Target:
    """|y|^2 of the context, registered for every task whose prompts have labels."""
    monkeypatch.setattr(targets, "REGISTERED", {})
    return register_target(
        Target(
            name="energy",
            formula="|y|^2",
            source="this test",
            expectation="in the second moments",
            value=lambda prompts, position: prompts.y.square().sum(-1, keepdim=True),
            kinds=("gram", "token"),
            needs=("y",),
        )
    )


def test_a_registered_target_belongs_to_tasks_whose_prompts_have_what_it_needs(energy: Target) -> None:
    assert targets_of(REGRESSION)[-1] is energy and energy not in targets_of(DYNAMICS)
    assert find_targets(REGRESSION, ["energy"]) == (energy,)
    assert register_target(energy) is energy  # again, as a module that is imported twice does
    with pytest.raises(UsageError, match="'energy'"):
        register_target(replace(energy))
    register_target(replace(energy, name="w"))
    with pytest.raises(UsageError, match="'w'"):
        targets_of(REGRESSION)


def test_a_target_has_kinds_of_probes() -> None:
    with pytest.raises(UsageError, match="within-prompt"):
        replace(targets_of(REGRESSION)[0], kinds=("pooled",))
