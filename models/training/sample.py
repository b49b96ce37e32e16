"""Samples of prompts, reduced to what training reads: Gram matrix, query, oracle and weight of every prompt."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import NoisyRegression
from interp.models.tasks.memory import MEMORY, require_affordable
from interp.models.tasks.noise import normal
from interp.models.training.tails import spread_norms, spread_spectra

__all__ = ["Sample", "fresh_sample", "training_sample"]

CHUNK = 1024  # prompts at a time: a layer's Gram matrices then stay in the cache
BLOCK = 16384  # prompts drawn at a time, which bounds the memory of their tokens


@dataclass(frozen=True, eq=False)
class Sample:
    """``weight`` makes the weighted mean over prompts the mean over the task's own distribution."""

    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt 1 D"]
    oracle: Float[Tensor, "prompt dim"]
    weight: Float[Tensor, " prompt"]
    variances: Float[Tensor, " dim"]  # eigenvalues of C
    sign: int  # of the read-out
    closed_form: bool  # the average over x_t is taken in closed form
    cap: float = math.inf  # losses well above it count by their logarithm

    @property
    def count(self) -> int:
        return self.gram.shape[0]

    def cautious(self, cap: float) -> Sample:
        """Losses far above ``cap`` count by their logarithm, and prompts by the root of their weight."""
        return dataclasses.replace(self, cap=cap, weight=self.weight.sqrt())

    def single(self) -> Sample:
        """In float32."""
        return dataclasses.replace(self._with(lambda column: column.float()), variances=self.variances.float())

    def __getitem__(self, prompts: slice | Tensor) -> Sample:
        """The prompts of these numbers."""
        return self._with(lambda column: column[prompts])

    def _with(self, change: Callable[[Tensor], Tensor]) -> Sample:
        columns = {name: change(getattr(self, name)) for name in ("gram", "query", "oracle", "weight")}
        return dataclasses.replace(self, **columns)

    def chunks(self) -> list[Sample]:
        return [self[first : first + CHUNK] for first in range(0, self.count, CHUNK)]


def fresh_sample(task: NoisyRegression, spec: ModelSpec, count: int, seed: int) -> Sample:
    """``count`` prompts of the task, all of weight 1."""
    parts, block = [], _block(task, count)
    for number, start in enumerate(range(0, count, block)):
        prompts = task.sample(min(block, count - start), seed=seed * 1000 + number)
        grams = prompts.grams(spec)
        parts.append((grams.gram, grams.query, task.oracle_weights(prompts)))
    gram, query, oracle = (torch.cat(column) for column in zip(*parts, strict=True))
    return _sample(task, spec, gram, query, oracle, torch.ones(count, dtype=torch.float64))


def training_sample(task: NoisyRegression, spec: ModelSpec, count: int, seed: int) -> Sample:
    """``count`` prompts with rare ones drawn often (see ``interp.models.training.tails``).

    In the basis of the eigenvectors of Sigma, with Lambda its eigenvalues and z the first d of n standard normals,
    alpha = Lambda w + sigma Lambda^(1/2) z and the label energy is |Lambda^(1/2) w + sigma z|^2 + sigma^2 |others|^2.
    That needs isotropic inputs, keys that are the context alone, and more of them than dimensions; otherwise the
    prompts are plain.
    """
    if task.covariance is not None or spec.attention.keys != "context" or task.context <= task.dim:
        return fresh_sample(task, spec, count, seed)
    generator = torch.Generator().manual_seed(seed)
    dim, context, block = task.dim, task.context, _block(task, count)

    drawn = normal(generator)
    inputs = (drawn(min(block, count - start), context, dim) for start in range(0, count, block))
    pairs = [torch.linalg.eigh(x.mT @ x) for x in inputs]
    plain, vectors = (torch.cat(column) for column in zip(*pairs, strict=True))
    spectra, weight = spread_spectra(plain, context, generator)
    sigma = task.noise.sample(count, generator)[:, None]
    w, noise, pair_weight = spread_norms(drawn(count, dim), drawn(count, context), generator)
    w, z, rest = task.weight_std * w, noise[:, :dim], noise[:, dim:].square().sum(1, keepdim=True)
    alpha = spectra * w + sigma * spectra.sqrt() * z
    energy = (spectra.sqrt() * w + sigma * z).square()
    oracle = alpha / (spectra + (sigma / task.weight_std) ** 2)
    gram = torch.zeros(count, dim + 1, dim + 1, dtype=torch.float64)
    gram[:, :dim, :dim] = (vectors * spectra[:, None]) @ vectors.mT
    gram[:, :dim, dim] = gram[:, dim, :dim] = (vectors @ alpha[..., None])[..., 0]
    gram[:, dim, dim] = (energy.sum(1, keepdim=True) + sigma.square() * rest)[:, 0]
    query = torch.zeros(count, 1, dim + 1, dtype=torch.float64)
    query[:, 0, :dim] = drawn(count, dim)
    return _sample(task, spec, gram, query, (vectors @ oracle[..., None])[..., 0], weight * pair_weight)


def _block(task: NoisyRegression, count: int) -> int:
    """How many prompts to draw at a time. Raises UsageError or LayoutError when what is kept of them does not fit."""
    require_affordable(task, 1)
    kept = 3 * 8 * count * ((task.dim + 1) ** 2 + task.context)  # Gram matrices and noise, with temporaries
    if kept > MEMORY:
        raise UsageError(
            f"a sample of {count} prompts of task.context {task.context} and task.dim {task.dim} takes about "
            f"{kept / 2**30:.0f} GiB, expected {MEMORY // 2**30} or less; ask for fewer prompts"
        )
    return min(BLOCK, task.most_prompts)


def _sample(
    task: NoisyRegression, spec: ModelSpec, gram: Tensor, query: Tensor, oracle: Tensor, weight: Tensor
) -> Sample:
    variances = torch.ones(task.dim) if task.covariance is None else torch.tensor(task.covariance)
    closed = spec.attention.keys == "context"
    return Sample(gram, query, oracle, weight, variances.to(gram.dtype), spec.readout.sign, closed)
