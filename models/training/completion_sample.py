"""Training prompts of matrix completion with the rare large ones drawn often, and their weights.

A network of L layers is a polynomial of degree 3^L in A. Just outside the range it was trained on it explodes, so its
mean error hangs on prompts with an unusually large |A|, which plain samples of any affordable size hardly contain. For
the low-rank law |A| is large when the two factors are long in the direction of the largest variance: in half of the
prompts, with m standard normal numbers in those two columns, these are drawn with one of the variances v of ``WIDE``.
With e the sum of their squares the weight of a prompt is the density of the task over that of the mixture,

    1 / mean_v( v^(-m/2) exp(e (1 - 1/v) / 2) )     over v = 1 (twice) and the two wide ones,

which is at most 2: every average stays what it was.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.tasks import CompletionPrompts, MatrixCompletion

__all__ = ["spread_prompts"]

# By how many standard deviations sqrt(2 m) of e a wide prompt is typically above the others: each factor has half.
WIDE = (0.0, 0.0, 2.0, 4.0)


def spread_prompts(task: MatrixCompletion, count: int, seed: int) -> tuple[CompletionPrompts, Float[Tensor, " prompt"]]:
    """``count`` prompts, and the weights (of mean 1 in expectation) that make averages over them those of the task.
    Context tokens are merged into fewer of the same Gram matrix where X is of low rank.

    Kernel matrices, whose norm is bounded by their size, come as they are.
    """
    if task.kernel is not None:
        return task.sample(count, seed), torch.ones(count, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    left, right, sigma = task.factors(count, generator)
    top = max(range(len(task.spectrum)), key=task.spectrum.__getitem__)
    numbers = left.shape[1] + right.shape[1]
    variances = torch.tensor([1.0 + reach * math.sqrt(2.0 / numbers) for reach in WIDE], dtype=torch.float64)
    own = variances[torch.arange(count) % len(WIDE)].sqrt()[:, None]
    left[..., top] *= own
    right[..., top] *= own
    energy = left[..., top].square().sum(1) + right[..., top].square().sum(1)
    if len(task.spectrum) < task.context and not task.noise.largest > 0:
        # A network sees the context through its Gram matrix alone, so as many tokens as the rank will do.
        context, query = left[:, : task.context], left[:, task.context :]
        left = torch.cat([torch.linalg.cholesky(context.mT @ context).mT, query], 1)
        task = dataclasses.replace(task, context=len(task.spectrum))
    ratio = (0.5 * (energy[:, None] * (1.0 - 1.0 / variances) - numbers * variances.log())).exp().mean(1)
    return task.assemble(left, right, sigma, generator), 1.0 / ratio
