"""Newton-Schulz iteration for the inverse of Sigma.

    X_0 = Sigma / |Sigma|_1^2,   X_{k+1} = X_k (2 I - Sigma X_k),   I - Sigma X_{k+1} = (I - Sigma X_k)^2

so the error 1 - value^2/|Sigma|_1^2 of each eigenvalue is squared at every iteration. Converges to the pseudo-inverse
when Sigma is singular. Source: Schulz 1933; Ben-Israel and Cohen 1966; as an account of transformers, Fu et al.,
arXiv 2310.17086.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["inverse_iterates", "newton_schulz"]


def inverse_iterates(
    sigma: Float[Tensor, "prompt dim dim"], iterations: int
) -> Float[Tensor, "iterate prompt dim dim"]:
    """X_0, …, X_k."""
    bound = sigma.abs().sum(-1).amax(-1)[:, None, None]  # |Sigma|_1, at least the largest eigenvalue
    iterates = [sigma / torch.where(bound > 0, bound, 1.0).square()]
    for _ in range(iterations):
        X = iterates[-1]
        iterates.append(2.0 * X - X @ sigma @ X)
    return torch.stack(iterates)


def newton_schulz(
    sigma: Float[Tensor, "prompt dim dim"], alpha: Float[Tensor, "prompt dim"], iterations: int
) -> Float[Tensor, "iterate prompt dim"]:
    """w_j = X_j alpha for j = 0..k. Unlike the gradient methods, w_0 is not 0."""
    return torch.einsum("knij,nj->kni", inverse_iterates(sigma, iterations), alpha)
