"""Conjugate gradients on Sigma w = alpha, batched over prompts, from w = 0.

Iterate k minimises the Sigma-norm of the error over span{alpha, Sigma alpha, …, Sigma^(k-1) alpha}, so no gradient
method is closer after k steps, and iterate k is exact once k reaches the number of distinct eigenvalues (at most d).
Source: Hestenes and Stiefel 1952; Saad, "Iterative Methods for Sparse Linear Systems", 2nd edition, algorithm 6.18.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["conjugate_gradients"]


def conjugate_gradients(
    sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"], iterations: int
) -> Float[Tensor, "iterate prompt dim"]:
    """The iterates w_0 = 0, …, w_k. A prompt stops moving once its residual is rounding error; for singular Sigma the
    limit is the least-norm solution."""
    iterates = [torch.zeros_like(alpha)]
    residual = alpha
    direction = residual
    square = residual.square().sum(-1, keepdim=True)
    norm, target = torch.linalg.matrix_norm(sigma)[:, None], square.sqrt()
    epsilon = alpha.shape[-1] * torch.finfo(alpha.dtype).eps
    for _ in range(iterations):
        w = iterates[-1]
        # Going on from a residual of rounding error would divide noise by noise.
        floor = epsilon * (norm * torch.linalg.vector_norm(w, dim=-1, keepdim=True) + target)
        active = square.sqrt() > floor
        image = torch.einsum("nij,nj->ni", sigma, direction)
        curvature = (direction * image).sum(-1, keepdim=True)
        active = active & (curvature > 0)
        step = torch.where(active, square / torch.where(active, curvature, 1.0), 0.0)
        iterates.append(w + step * direction)
        residual = residual - step * image
        previous, square = square, residual.square().sum(-1, keepdim=True)
        direction = residual + torch.where(active, square / torch.where(active, previous, 1.0), 0.0) * direction
    return torch.stack(iterates)
