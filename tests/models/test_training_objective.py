"""The objective against independent computations: automatic differentiation through tokens, and closed forms."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from interp.models.specification import AttentionSpec, ModelSpec, Readout
from interp.models.tasks import task_of
from interp.models.training.objective import adjusted_losses, linearise, loss
from interp.models.training.parametrisation import parametrisation
from interp.models.training.sample import fresh_sample

FAMILIES = [("gd++", 1), ("diag", 1), ("diag", 2), ("free", 2), ("full", 1), ("full", 2), ("merged", 1)]


def regression(dim: int = 3, context: int = 6, noise: dict | None = None, **fields):
    noise = noise or {"uniform": [0, 2]}
    return task_of({"name": "noisy_regression", "dim": dim, "context": context, "noise": noise, **fields})


def specification(keys: str = "context", scale: str | float = "1", residual: bool = True, sign: int = -1) -> ModelSpec:
    return ModelSpec(
        tokens=(("x", 3), ("y", 1)),
        attention=AttentionSpec(keys=keys, scale=scale),  # type: ignore[arg-type]
        residual=residual,
        readout=Readout(channel="y", sign=sign),
    )


def random_theta(name: str, heads: int, layers: int, seed: int, *, residual: float = 1.0, scale: float = 1.0):
    family = parametrisation(name, dim=3, heads=heads, scale=scale, residual=residual)
    generator = torch.Generator().manual_seed(seed)
    theta = torch.stack([family.idle(generator) for _ in range(layers)])
    return family, theta + 0.05 * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def token_predictions(P, Q, context, query, *, keys: str, scale: float, residual: float, sign: int):
    """The layer equation, head by head on tokens, with nothing shared with the Gram path."""
    tokens = torch.cat([context, query], 1)
    n = context.shape[1] + (keys == "all")
    for layer in range(P.shape[0]):
        update = torch.zeros_like(tokens)
        for head in range(P.shape[1]):
            scores = torch.einsum("bia,ac,bjc->bij", tokens, Q[layer, head], tokens[:, :n])
            update = update + torch.einsum("bij,ac,bjc->bia", scores, P[layer, head], tokens[:, :n])
        tokens = residual * tokens + scale * update
    return sign * tokens[:, -1, -1]


@pytest.mark.parametrize(("name", "heads"), FAMILIES)
@pytest.mark.parametrize(
    ("keys", "scale", "residual", "sign"),
    [("context", "1", True, -1), ("all", "1/(n+1)", False, 1), ("all", 0.1, True, -1)],
)
def test_loss_and_gradient_match_automatic_differentiation_through_tokens(name, heads, keys, scale, residual, sign):
    task, spec = regression(), specification(keys, scale, residual, sign)
    factor, r = spec.attention.factor(task.context), float(residual)
    family, theta = random_theta(name, heads, 3, 1, residual=r, scale=factor)
    sample = fresh_sample(task, spec, 40, seed=5)
    prompts = task.sample(40, seed=5 * 1000)
    context, query = prompts.inputs(spec)
    unknown = theta.clone().requires_grad_()

    def predictions(query):
        return token_predictions(
            *family.weights(unknown), context, query, keys=keys, scale=factor, residual=r, sign=sign
        )

    if keys == "context":  # linear in the query: the average over x_t is a sum over unit queries
        total = 0.0
        for axis in range(3):
            unit = torch.zeros_like(query)
            unit[..., axis] = 1
            total = total + 0.5 * (predictions(unit) - task.oracle_weights(prompts)[:, axis]).square().mean()
    else:
        total = 0.5 * (predictions(query) - task.oracle(prompts)[:, 0, 0]).square().mean()
    (gradient,) = torch.autograd.grad(total, unknown)
    local = linearise(family, theta, sample)
    assert loss(family, theta, sample) == pytest.approx(float(total.detach()), rel=1e-10)
    assert torch.allclose(local.gradient, gradient.flatten(), rtol=1e-8, atol=1e-10 * float(gradient.abs().max()))

    # Gauss-Newton: E j j^T with j the derivative of the prediction at the prompt's own query
    jacobian = torch.autograd.functional.jacobian(
        lambda t: token_predictions(*family.weights(t), context, query, keys=keys, scale=factor, residual=r, sign=sign),
        theta,
    ).flatten(1)
    assert torch.allclose(
        local.curvature, jacobian.T @ jacobian / 40, rtol=1e-8, atol=1e-10 * float(local.curvature.abs().max())
    )


def test_closed_average_over_the_query_is_the_average_over_queries():
    """With inputs of covariance C; 20 000 prompts fix the mean to about 1 %, and 5 standard errors are allowed."""
    task = regression(covariance=[0.5, 1.0, 2.0])
    spec = specification()
    family, theta = random_theta("diag", 1, 2, 3)
    theta = theta * torch.tensor([0.2, 0.2, 1.0, 1.0], dtype=theta.dtype)
    sample = fresh_sample(task, spec, 20_000, seed=1)
    closed = adjusted_losses(family, theta, sample)
    sampled = adjusted_losses(family, theta, dataclasses.replace(sample, closed_form=False))
    difference = closed - sampled
    assert abs(float(difference.mean())) < 5 * float(difference.std()) / 20_000**0.5


def test_adjusted_loss_is_the_loss_above_the_oracles():
    task, spec = regression(noise={"choice": [0.5, 2.0]}), specification()
    family, theta = random_theta("gd++", 1, 1, 3)
    sample = fresh_sample(task, spec, 16_384, seed=7)  # the first block of the same prompts
    prompts = task.sample(16_384, seed=7000)
    context, query = prompts.inputs(spec)
    P, Q = family.weights(theta)
    predicted = token_predictions(P, Q, context, query, keys="context", scale=1.0, residual=1.0, sign=-1)
    target, oracle = prompts.target[:, 0, 0], task.oracle(prompts)[:, 0, 0]
    plain = 0.5 * ((predicted - target).square() - (oracle - target).square())
    difference = plain - adjusted_losses(family, theta, sample)
    assert abs(float(difference.mean())) < 5 * float(difference.std()) / 16_384**0.5


@pytest.mark.parametrize(("name", "heads"), FAMILIES)
def test_layer_maps_and_weights_are_the_same_network(name, heads):
    family, theta = random_theta(name, heads, 2, 9, scale=0.3)
    P, Q = family.weights(theta)
    assert P.shape == Q.shape == (2, heads, 4, 4)
    root = torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gram = root @ root.mT
    layers = family.maps(theta)
    for layer in range(2):
        direct = 0.3 * torch.einsum("hab,nbc,hdc->nad", P[layer], gram, Q[layer])
        assert torch.allclose(layers.update(layer, gram), direct, rtol=1e-12, atol=1e-12)
        cotangent = torch.randn(5, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        inner = (layers.pullback(layer, cotangent) * gram).sum((1, 2))
        assert torch.allclose(inner, (cotangent * direct).sum((1, 2)), rtol=1e-10)


@pytest.mark.parametrize("closed_form", [True, False])
def test_a_cautious_sample(closed_form):
    """The objective is the mean of cap log(1 + loss / cap) by the root of the weight; its gradient by differences."""
    family, theta = random_theta("diag", 1, 2, 4)
    sample = fresh_sample(regression(), specification(), 60, seed=2)
    weight = torch.rand(60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sample = dataclasses.replace(sample, weight=weight, closed_form=closed_form).cautious(0.3)
    plain = adjusted_losses(family, theta, sample)
    assert float(plain.max()) > 0.3
    expected = 0.3 * (1 + plain / 0.3).log()
    assert loss(family, theta, sample) == pytest.approx(float((weight.sqrt() * expected).mean()), rel=1e-12)
    local = linearise(family, theta, sample)
    direction = torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = 1e-6 * direction
    slope = (loss(family, theta + step, sample) - loss(family, theta - step, sample)) / 2e-6
    assert float(local.gradient @ direction.flatten()) == pytest.approx(slope, rel=1e-6)
