"""What the implicit weights after every layer keep of least squares, eigen-direction by eigen-direction of Sigma.

Ridge regression, gradient descent and GD++ are filters, <v, w> = f(eigenvalue) <v, w_ols> for every eigenvector v:

    ridge  f = eigenvalue / (eigenvalue + sigma^2 / tau^2) ,      k gradient steps  f = 1 - (1 - eta eigenvalue)^k .

So <v, w^l> is regressed on <v, w_ols> within bins of eigenvalues, apart for prompts of low, middle and high noise: a
network that adapts has three filters, one that does not has one. Ridge with the true noise is regressed likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.models.tasks import LinearTask
from interp.results import FilterBin, SpectralFilter
from interp.solvers.ridge import ols
from interp.solvers.statistics import RegressionStatistics
from interp.stats.averages import quantile_bins, ratio_with_error

__all__ = ["spectral_filters"]

GROUPS = 3  # of prompts by noise, when the levels are many
MOST_LEVELS = 5  # noise levels up to which each is a group of its own


def spectral_filters(
    weights: Sequence[Float[Tensor, "prompt dim"]],
    known: RegressionStatistics,
    sigma: Float[Tensor, " prompt"],
    task: LinearTask,
) -> tuple[SpectralFilter, ...]:
    """One row per layer and group of noise levels. ``weights[l]`` is w after l layers (w^0 = 0 is left out)."""
    spectrum = known.spectrum
    least_squares = spectrum.rotate(ols(known.sigma, known.alpha))
    penalty = (sigma / task.weight_std).square()[:, None]
    ridge = least_squares * spectrum.values / (spectrum.values + penalty).clamp_min(1e-300)
    out = []
    for layer, w in enumerate(weights[1:], start=1):
        kept = spectrum.rotate(w)
        for group in _groups(sigma):
            rows = (spectrum.values, spectrum.determined, least_squares, kept, ridge)
            r2, bins = _filter(*(part[group] for part in rows))
            noise = (float(sigma[group].min()), float(sigma[group].max()))
            out.append(SpectralFilter(layer=layer, noise=noise, r2=r2, bins=bins))
    return tuple(out)


def _groups(sigma: Float[Tensor, " prompt"]) -> Iterator[Bool[Tensor, " prompt"]]:
    """Prompts of each noise level when there are a few, else of its terciles."""
    levels = sigma.unique()
    few = len(levels) <= MOST_LEVELS
    index = torch.bucketize(sigma, levels) if few else quantile_bins(sigma, GROUPS)
    for k in index.unique().tolist():
        yield index == k


def _filter(
    values: Float[Tensor, "prompt dim"],
    determined: Bool[Tensor, "prompt dim"],
    least_squares: Float[Tensor, "prompt dim"],
    kept: Float[Tensor, "prompt dim"],
    ridge: Float[Tensor, "prompt dim"],
) -> tuple[float | None, tuple[FilterBin, ...]]:
    index = torch.full(values.shape, -1)
    index[determined] = quantile_bins(values[determined])
    bins, explained = [], 0.0
    for k in index[determined].unique().tolist():
        inside = (index == k).to(values.dtype)
        bottom = (inside * least_squares.square()).sum(-1)
        top = (inside * kept * least_squares).sum(-1)
        gain, error = ratio_with_error(top, bottom)
        reference, _ = ratio_with_error((inside * ridge * least_squares).sum(-1), bottom)
        if gain is None or reference is None:
            continue
        eigenvalue = float((inside * values).sum() / inside.sum())
        bins.append(FilterBin(eigenvalue=eigenvalue, filter=gain, stderr=error, ridge=reference))
        explained += gain * float(top.sum())  # sum kept^2 - sum (kept - gain least_squares)^2
    total = float(kept.square().sum())
    return (explained / total if 0 < total < float("inf") else None), tuple(bins)
