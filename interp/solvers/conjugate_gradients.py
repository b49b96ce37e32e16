"""Conjugate gradients on Sigma w = alpha, batched over prompts, from w = 0.

Iterate k minimises the Sigma-norm of the error over span{alpha, Sigma alpha, …, Sigma^(k-1) alpha}, so no gradient
method is closer after k steps, and iterate k is exact once k reaches the number of distinct eigenvalues (at most d).
Source: Hestenes and Stiefel 1952; Saad, "Iterative Methods for Sparse Linear Systems", 2nd edition, algorithm 6.18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["conjugate_gradients", "one_by_one"]


def conjugate_gradients(
    sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"], iterations: int
) -> Float[Tensor, "iterate prompt dim"]:
    """The iterates w_0 = 0, …, w_k. A prompt stops moving once its residual is rounding error; for singular Sigma the
    limit is the least-norm solution."""
    norm = torch.linalg.matrix_norm(sigma)[:, None]
    steps = one_by_one(lambda v: torch.einsum("nij,nj->ni", sigma, v), alpha, norm)
    return torch.stack(list(islice(steps, iterations + 1)))


def one_by_one(
    apply: Callable[[Tensor], Tensor], alpha: Float[Tensor, "prompt dim"], norm: Float[Tensor, "#prompt 1"]
) -> Iterator[Float[Tensor, "prompt dim"]]:
    """The same one by one, without end, for a Sigma that is known by what it does to vectors, ``apply``, and by (a
    bound on) its ``norm``."""
    w = torch.zeros_like(alpha)
    residual = alpha
    direction = residual
    square = residual.square().sum(-1, keepdim=True)
    target = square.sqrt()
    epsilon = alpha.shape[-1] * torch.finfo(alpha.dtype).eps
    while True:
        yield w
        # Going on from a residual of rounding error would divide noise by noise.
        floor = epsilon * (norm * torch.linalg.vector_norm(w, dim=-1, keepdim=True) + target)
        active = square.sqrt() > floor
        image = apply(direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        active = active & (curvature > 0)
        step = torch.where(active, square / torch.where(active, curvature, 1.0), 0.0)
        w = w + step * direction
        residual = residual - step * image
        previous, square = square, residual.square().sum(-1, keepdim=True)
        direction = residual + torch.where(active, square / torch.where(active, previous, 1.0), 0.0) * direction
