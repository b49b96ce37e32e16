"""The training objective on a fixed sample, its gradient and its Gauss-Newton matrix, all on Gram matrices.

Adjusted loss = 1/2 E (yhat - yhat_oracle)^2. The oracle is the posterior mean of the target, so this is the loss minus
the oracle's loss exactly, without the noise that no network can predict; its minimum is the minimum of the loss.
When the keys are the context alone the prediction is linear in the query, yhat = <v, x_t>, and the expectation over
x_t ~ N(0, C) is taken in closed form: 1/2 E (v - w_oracle)^T C (v - w_oracle).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import GramTrajectory, LayerMaps, adjoint, forward
from interp.models.training.parametrisation import Parametrisation
from interp.models.training.sample import Sample
from interp.stats.levenberg_marquardt import Evaluated, Progress, Quadratic, Stopping, minimise

__all__ = ["adjusted_losses", "descend", "linearise", "loss", "losses_of", "one_core_a_chunk", "tamed_losses"]

PATIENCE = 3  # accepted steps in a row below the tolerance that end a run

Part = TypeVar("Part")


@contextmanager
def one_core_a_chunk() -> Iterator[None]:
    """The cores work on different chunks of a sample, whose matrices are too small to be shared among them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _over_chunks(sample: Sample, part: Callable[[Sample], Part]) -> list[Part]:
    """``part`` of every chunk, in their order, so that sums over them do not depend on the number of cores."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(part, sample.chunks()))


def _run(layers: LayerMaps, sample: Sample) -> tuple[GramTrajectory, Tensor, Tensor]:
    """The forward pass with the prompts' own query, and the residual: per coordinate of x when the average over x_t is
    closed (prompt, dim), else of the prediction (prompt, 1). Third, the loss of every prompt."""
    trajectory = forward(layers, sample.gram, sample.query)
    dim = sample.oracle.shape[1]
    if not sample.closed_form:
        target = (sample.oracle * sample.query[:, 0, :dim]).sum(-1, keepdim=True)
        residual = sample.sign * trajectory.queries[-1][:, 0, dim:] - target
        return trajectory, residual, 0.5 * residual.square().sum(-1)
    row = trajectory.maps[-1][:, dim : dim + 1]  # e_y^T T^{L-1} ... T^0
    for T in reversed(trajectory.maps[:-1]):
        row = row @ T
    residual = sample.sign * row[:, 0, :dim] - sample.oracle
    return trajectory, residual, 0.5 * (residual.square() * sample.variances).sum(-1)


def adjusted_losses(
    family: Parametrisation, theta: Float[Tensor, "layer parameter"], sample: Sample
) -> Float[Tensor, " prompt"]:
    """The adjusted loss of every prompt."""
    return losses_of(family.maps(theta), sample)


def losses_of(layers: LayerMaps, sample: Sample) -> Float[Tensor, " prompt"]:
    """The adjusted loss of every prompt, of a network of these layers."""
    return torch.cat(_over_chunks(sample, lambda chunk: _run(layers, chunk)[2]))


def tamed_losses(
    family: Parametrisation, theta: Float[Tensor, "layer parameter"], sample: Sample
) -> Float[Tensor, " prompt"]:
    """The adjusted loss of every prompt, counted as the sample says."""
    return _tamed(adjusted_losses(family, theta, sample), sample)[0]


def loss(family: Parametrisation, theta: Float[Tensor, "layer parameter"], sample: Sample) -> float:
    """The mean adjusted loss, weighted and tamed as the sample says (inf where the network overflows)."""
    value = float((sample.weight * tamed_losses(family, theta, sample)).mean())
    return value if value == value else float("inf")


def _tamed(losses: Tensor, sample: Sample) -> tuple[Tensor, Tensor]:
    """cap log(1 + loss / cap), and its slope."""
    if math.isinf(sample.cap):
        return losses, torch.ones_like(losses)
    return sample.cap * (losses / sample.cap).log1p(), 1.0 / (1.0 + losses / sample.cap)


def descend(
    family: Parametrisation,
    sample: Sample,
    start: Progress,
    watch: Callable[[Progress], None] = lambda progress: None,
    *,
    iterations: int,
    tolerance: float,
) -> Progress:
    """Lower the mean adjusted loss on ``sample`` by Levenberg-Marquardt steps; after ``PATIENCE`` of them in a row that
    each gain less than ``tolerance`` (relative) it ends."""
    stopping = Stopping(iterations=iterations, tolerance=tolerance, patience=PATIENCE)

    def objective(theta: Tensor) -> Evaluated:
        return Evaluated(loss(family, theta, sample), lambda: linearise(family, theta, sample))

    return minimise(objective, start, stopping, watch=watch)


def linearise(family: Parametrisation, theta: Float[Tensor, "layer parameter"], sample: Sample) -> Quadratic:
    """Exact gradient and Gauss-Newton matrix.

    With the average over x_t in closed form the gradient costs one adjoint pass, with C (v - w_oracle) as the query.
    The Gauss-Newton matrix E j j^T is estimated from one row per prompt, j = d yhat / d theta at its own query.
    """
    parts = _over_chunks(sample, lambda chunk: _linearise_chunk(family, theta, chunk))
    gradient, curvature = (torch.stack(column).sum(0) / sample.count for column in zip(*parts, strict=True))
    return Quadratic(gradient, curvature)


def _linearise_chunk(family: Parametrisation, theta: Tensor, chunk: Sample) -> tuple[Tensor, Tensor]:
    """Sums over a chunk: gradient, Gauss-Newton matrix."""
    layers = family.maps(theta)
    trajectory, residual, losses = _run(layers, chunk)
    weight = chunk.weight * _tamed(losses, chunk)[1]
    seed = torch.zeros_like(chunk.query)
    seed[..., -1] = chunk.sign
    rows = family.rows(theta, trajectory, adjoint(layers, trajectory, seed))
    if chunk.closed_form:
        query = torch.zeros_like(chunk.query)
        query[:, 0, : residual.shape[1]] = weight[:, None] * residual * chunk.variances
        queries = [query]
        for T in trajectory.maps:
            queries.append(queries[-1] @ T.mT)
        weighted = GramTrajectory(trajectory.maps, trajectory.grams, tuple(queries))
        gradient = family.rows(theta, weighted, adjoint(layers, weighted, seed)).sum(0)
    else:
        gradient = rows.T @ (weight * residual[:, 0])
    return gradient, rows.T @ (weight[:, None] * rows)
