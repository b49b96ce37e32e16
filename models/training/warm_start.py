"""A start for training on matrix completion: EAGLE with the step sizes that are best on a fixed sample.

2 L - 1 numbers, omega_xx and omega_yx of every layer (the last omega_xx is never read), are fitted by L-BFGS to prompts
of the task. The sample holds the largest prompts of a far larger pool, each with its own small weight, so that the
steps are not so long that rare prompts explode. In the sketch regime all layers start from one random sketch S; on
machines every head conditions the columns of its own machine.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import HeadLayers, forward
from interp.models.training.completion_recipe import CompletionRecipe

__all__ = ["eagle_factors", "eagle_steps"]

POOL, CHUNK = 200_000, 20_000
SIZE = 2048  # prompts of the sample that are the largest of the pool, and as many others
SEED = 61_803  # apart from every training seed
ITERATIONS = 40
TAMED = 0.25  # explosive prompts count by this power of their loss, so that a step too far is finite
SHRINK = 4.0 / 9.0  # of |A|^2 by a layer with eta = 1/3


def _sample(recipe: CompletionRecipe) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gram matrices, queries, targets and weights."""
    parts, few = [], CHUNK * SIZE // POOL  # from every chunk its largest, and as many of the others
    for number in range(POOL // CHUNK):
        drawn = recipe.task.sample(CHUNK, SEED + number)
        size = drawn.A.square().sum((1, 2))
        order = size.argsort(descending=True)
        others = order[few:][torch.randperm(CHUNK - few, generator=torch.Generator().manual_seed(number))[:few]]
        kept = torch.cat([order[:few], others])
        grams = drawn[kept].grams(recipe.spec)
        weight = torch.cat([torch.ones(few), torch.full((few,), CHUNK / few - 1.0)]).double()
        parts.append((grams.gram, grams.query, drawn[kept].D, weight))
    gram, query, target, weight = (torch.cat(column) for column in zip(*parts, strict=True))
    return gram, query, target, weight / weight.sum()


def _heads(
    recipe: CompletionRecipe, xx: Float[Tensor, " layer"], yx: Float[Tensor, " layer"], S: Float[Tensor, "n r"]
) -> tuple[Tensor, Tensor]:
    """(P, Q) of EAGLE with these coefficients."""
    n, outputs, count = recipe.task.dim, recipe.task.outputs, recipe.task.machines
    x = torch.diag_embed(recipe.task.machine_masks) @ (S @ S.mT)
    pad = torch.zeros(len(xx), count, n + outputs, n + outputs, dtype=xx.dtype)
    into = torch.nn.functional.pad(x, (0, outputs, 0, outputs))
    label = torch.zeros(n + outputs, dtype=xx.dtype)
    label[n:] = 1.0
    P = pad + xx[:, None, None, None] * into + yx[:, None, None, None] * torch.diag(label)
    return P, pad + into


def sketch(recipe: CompletionRecipe) -> Float[Tensor, "n r"]:
    """S of the recipe's seed; the identity outside the sketch regime."""
    n = recipe.task.dim
    if recipe.rank is None:
        return torch.eye(n, dtype=torch.float64)
    generator = torch.Generator().manual_seed(recipe.optimiser.seed)
    return torch.linalg.qr(torch.randn(n, recipe.rank, generator=generator, dtype=torch.float64))[0]


def eagle_steps(recipe: CompletionRecipe) -> tuple[Float[Tensor, " layer"], Float[Tensor, " layer"]]:
    """omega_xx and omega_yx of every layer, the last omega_xx 0."""
    gram, query, target, weight = _sample(recipe)
    S, label = sketch(recipe), recipe.spec.channel("y").indices
    n, count = recipe.task.dim, recipe.task.machines
    blocks = (
        S.mT @ gram[:, :n, :n] @ S
        if count == 1
        else torch.cat([gram[:, i : i + n // count, i : i + n // count] for i in range(0, n, n // count)])
    )
    top = float(torch.linalg.eigvalsh(blocks)[:, -1].max())
    norms = top * SHRINK ** torch.arange(recipe.layers, dtype=torch.float64)
    logs = torch.stack([(1 / 3) / norms, (1.0 / count) / norms]).log().requires_grad_()
    optimiser = torch.optim.LBFGS([logs], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def coefficients() -> tuple[Tensor, Tensor]:
        xx, yx = -logs.exp()
        return torch.cat([xx[:-1], torch.zeros(1, dtype=xx.dtype)]), yx

    def loss() -> Tensor:
        optimiser.zero_grad()
        P, Q = _heads(recipe, *coefficients(), S)
        read = forward(HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0), gram, query).queries[-1][..., label]
        error = (-read - target).square().mean((1, 2))
        value = (weight * ((1.0 + error) ** TAMED - 1.0) / TAMED).sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    with torch.no_grad():
        return coefficients()


def eagle_factors(
    recipe: CompletionRecipe, xx: Float[Tensor, " layer"], yx: Float[Tensor, " layer"]
) -> dict[str, Float[Tensor, "layer head D column"]]:
    """W_Q, W_K, W_P and W_V of that EAGLE, of equal size."""
    n, outputs, count = recipe.task.dim, recipe.task.outputs, recipe.task.machines
    columns = n if recipe.rank is None else recipe.rank
    S = sketch(recipe)
    seen = recipe.task.machine_masks[..., None]
    read = n + outputs if recipe.rank is None else recipe.rank  # columns of W_Q and W_K
    scores = torch.zeros(recipe.layers, count, n + outputs, read, dtype=torch.float64)
    scores[:, :, :n, :columns] = seen * S
    values = torch.zeros(recipe.layers, count, n + outputs, columns + outputs, dtype=torch.float64)
    values[:, :, :n, :columns], values[:, :, n:, columns:] = seen * S, torch.eye(outputs, dtype=torch.float64)
    factor = yx.abs().sqrt()[:, None, None, None]  # of Q; P has the coefficients divided by it
    written = values.clone()
    written[:, :, :n] *= xx[:, None, None, None]
    written[:, :, n:] *= yx[:, None, None, None]
    size = factor.sqrt()
    return {"W_Q": size * scores, "W_K": size * scores, "W_P": written / factor / size, "W_V": size * values}
