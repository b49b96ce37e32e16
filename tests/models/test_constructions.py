"""Hand-built models against the algorithms they are built to run, written out sequence by sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.errors import UsageError
from interp.models.constructions import gradient_step, neumann, preconditioned_step, richardson
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics
from interp.models.transformer import LinearTransformer

ALPHA = (1.0257748, 3.2508426, 3.2583678, 3.2122886, 2.694414, 1.2727231)  # learned by the authors; papers/mesa.md 5
BETA = (0.0, 0.6787798, 0.30748147, 0.74470717, 1.8360422, 2.3438027)


def task(**fields: object) -> LinearDynamics:
    return LinearDynamics.from_dict({"dim": 4, "context": 12, **fields})


def states(of: LinearDynamics) -> np.ndarray:
    return of.sample(5, 3).states.numpy()


def run(model: LinearTransformer, of: LinearDynamics) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
    (tokens,) = of.sample(5, 3).inputs(model.spec)
    prediction, cache = HookedLinearTransformer(model).run_with_cache(tokens)
    return prediction.numpy(), cache


@pytest.mark.parametrize("start", [0.0, 0.3, "matrix"])
def test_proposition_1_is_one_gradient_step(start: object) -> None:
    """The gradient of L_t at W_0 by automatic differentiation."""
    W_0 = 0.3 * torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of = task(start=W_0.tolist() if start == "matrix" else start)
    found, _ = run(gradient_step(of, 0.05), of)
    s = torch.from_numpy(states(of))
    for n in range(5):
        for t in range(12):
            W = of.start_matrix().clone().requires_grad_(True)
            pairs = [(s[n, i], s[n, i - 1]) for i in range(1, t + 1)]
            loss = 0.5 * sum((((y - W @ x) ** 2).sum() for y, x in pairs), W.sum() * 0.0)
            (gradient,) = torch.autograd.grad(loss, W)
            expected = (W.detach() - 0.05 * gradient) @ s[n, t]
            np.testing.assert_allclose(found[n, t], expected.numpy(), rtol=1e-10, atol=1e-12)


def preconditioned(A: np.ndarray, s: np.ndarray, alpha, beta, scale: float, ridge: float) -> np.ndarray:
    """The recursion on vectors, as the paper's code runs it."""
    B = (A + ridge * np.eye(len(A))) / scale
    term, before, total = s, s, s
    for a, b in zip(alpha, beta, strict=True):
        term = term - a * B @ term
        before, total = total, total + term + b * (total - before)
    return total / scale


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize(
    ("alpha", "beta"),
    [(ALPHA, BETA), ((1.0,) * 6, (0.0,) * 6), ((1.0,) * 3, (0.0,) * 3), ((1.2, 8.2), (0.0, 4.95)), ((), ())],
    ids=["published", "neumann-6", "neumann-3", "published-2", "none"],
)
def test_proposition_2_is_the_preconditioner_and_then_the_step(alpha, beta, ridge: float) -> None:
    of, scale = task(), 12.0
    coefficients = richardson(alpha, beta, scale, ridge)
    model = preconditioned_step(of, 0.7, coefficients)
    assert model.layers == len(alpha) + 1
    found, cache = run(model, of)
    queries = cache[f"blocks.{model.layers - 1}.hook_resid_pre"][..., model.spec.channel("query").indices].numpy()
    s = states(of)
    for n in range(5):
        for t in range(12):
            A = s[n, :t].T @ s[n, :t]
            inner = preconditioned(A, s[n, t], alpha, beta, scale, ridge)
            np.testing.assert_allclose(queries[n, t] * coefficients[0], inner, rtol=1e-10, atol=1e-10)
            expected = 0.7 * s[n, 1 : t + 1].T @ s[n, :t] @ inner
            np.testing.assert_allclose(found[n, t], expected, rtol=1e-10, atol=1e-10)


def test_neumann_is_the_truncated_series() -> None:
    B = lambda a: (a + 0.2) / 5.0  # noqa: E731
    for a in (0.0, 0.7, 3.0):
        series = sum((1.0 - B(a)) ** k for k in range(5)) / 5.0
        assert np.polynomial.Polynomial(neumann(4, 5.0, 0.2))(a) == pytest.approx(series, rel=1e-13)


def test_a_construction_is_a_canonical_model() -> None:
    model = preconditioned_step(task(), 1.0, neumann(2, 10.0))
    assert ModelSpec.from_dict(model.spec.to_dict()) == model.spec
    assert LinearDynamics.from_dict(model.spec.task or {}) == task()


@pytest.mark.parametrize("coefficients", [(), (0.0, 1.0), (1.0, 0.0), (1.0, float("nan"))])
def test_polynomials_that_no_such_network_computes(coefficients: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="expected finite ones"):
        preconditioned_step(task(), 1.0, coefficients)


def test_other_bad_input() -> None:
    with pytest.raises(UsageError, match="expected 0"):
        preconditioned_step(task(start=0.1), 1.0, (1.0,))
    with pytest.raises(UsageError, match="one alpha and beta per step"):
        richardson((1.0,), (), 1.0)
    with pytest.raises(UsageError, match="positive scale"):
        neumann(2, 0.0)
