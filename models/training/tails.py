"""Training prompts with the rare ones drawn often, and weighted so that every average stays what it was.

A deep network is a polynomial of high degree in the eigenvalues of Sigma = X^T X and in the energy of the labels. Just
outside the range it was trained on it explodes, so its mean loss hangs on prompts that plain samples of any affordable
size do not contain. Here the largest eigenvalue of a quarter of the prompts, and the smallest of another quarter, are
drawn anew from a flat law. With the others kept, the density of one eigenvalue of a Wishart matrix of n samples in d
dimensions is, up to a factor,

    p(t | rest)  ~  t^((n - d - 1) / 2) exp(-t / 2) prod_j |t - lambda_j| ,                                          (1)

and with k_max, k_min the flat laws the weight of a prompt is 1 / (1/2 + k_max / 4 p_max + k_min / 4 p_min) <= 2.
Likewise w is drawn from a wider normal law in a quarter of the prompts, and the noise in another quarter; the weight is
1 / (1/2 + r_w / 4 + r_noise / 4) with r the ratio of the wide density to the true one.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["spread_norms", "spread_spectra"]

REACH = 70.0  # how far above the second largest eigenvalue the largest is drawn: at d = 10, n = 20, 1e-8 lie beyond
WIDER = 5.0  # the wide variance is 1 + WIDER / sqrt(size): the energy is then typically at 3.5 standard deviations
NODES = 100  # of the quadrature that normalises (1)
CHUNK = 4096  # prompts at a time, which bounds its memory


def spread_spectra(
    spectra: Float[Tensor, "prompt dim"], context: int, generator: torch.Generator
) -> tuple[Float[Tensor, "prompt dim"], Float[Tensor, " prompt"]]:
    """Spectra (ascending) of standard Wishart matrices, and their weights, made from plain draws of them."""
    count, dim = spectra.shape
    out = spectra.clone()
    uniform = torch.rand(2, count, generator=generator, dtype=spectra.dtype)
    high, low = uniform[0] < 0.25, uniform[0] > 0.75
    out[high, -1] = spectra[high, -2] + REACH * uniform[1, high]
    out[low, 0] = spectra[low, 1] * uniform[1, low]
    ratio = torch.zeros(count, dtype=spectra.dtype)
    for index, start, width in (
        (-1, out[:, -2], torch.full_like(out[:, 0], REACH)),
        (0, torch.zeros_like(out[:, 0]), out[:, 1]),
    ):
        rest = out[:, :-1] if index else out[:, 1:]
        for i in range(0, count, CHUNK):
            some = slice(i, i + CHUNK)
            density = _conditional(out[some, index], rest[some], start[some], width[some], context - dim - 1)
            ratio[some] += 0.25 / (width[some] * density)
    return out, 1.0 / (0.5 + ratio)


def _conditional(value: Tensor, rest: Tensor, start: Tensor, width: Tensor, power: int) -> Tensor:
    """Equation (1), normalised on [start, start + width] by the midpoint rule."""

    def log_density(t: Tensor) -> Tensor:
        return 0.5 * power * t.log() - 0.5 * t + (t[:, None] - rest).abs().log().sum(1)

    nodes = (torch.arange(NODES, dtype=value.dtype) + 0.5) / NODES
    logs = torch.stack([log_density(start + width * node) for node in nodes])
    return (log_density(value) - logs.logsumexp(0)).exp() * NODES / width


def spread_norms(
    first: Float[Tensor, "prompt d"], second: Float[Tensor, "prompt n"], generator: torch.Generator
) -> tuple[Float[Tensor, "prompt d"], Float[Tensor, "prompt n"], Float[Tensor, " prompt"]]:
    """Standard normal vectors with unusually long ones often, never both of a pair; and the weights of the pairs."""
    uniform = torch.rand(len(first), 1, generator=generator, dtype=first.dtype)
    out, ratio = [], torch.zeros(len(first), dtype=first.dtype)
    for vector, chosen in ((first, uniform < 0.25), (second, uniform > 0.75)):
        size = vector.shape[1]
        variance = 1.0 + WIDER / size**0.5
        vector = torch.where(chosen, variance**0.5 * vector, vector)
        energy = vector.square().sum(1)
        ratio += 0.25 * (0.5 * energy * (1.0 - 1.0 / variance) - 0.5 * size * math.log(variance)).exp()
        out.append(vector)
    return out[0], out[1], 1.0 / (0.5 + ratio)
