"""What every solver here works from: the sufficient statistics of a batch of linear regression prompts.

    Sigma = X^T X  (d x d),   alpha = X^T y  (d),   lambda = y^T y,   n context tokens

Sums over the context, not means: the convention of Vladymyrov et al., "Linear Transformers are Versatile In-Context
Learners" (arXiv 2402.14180). Ridge regression, gradient descent and GD++ all have the form V diag(g) V^T alpha with
V the eigenvectors of Sigma and g(eigenvalue) the spectral gain of the method (1/eigenvalue for least squares).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError

__all__ = ["RANK_TOLERANCE", "RegressionStatistics", "Spectrum"]

RANK_TOLERANCE = 1e-12  # eigenvalues of Sigma below this fraction of the largest count as zero: they are rounding


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of Sigma in ascending order, and its eigenvectors (columns)."""

    values: Float[Tensor, "prompt dim"]
    vectors: Float[Tensor, "prompt dim dim"]

    @classmethod
    def of(cls, sigma: Float[Tensor, "prompt dim dim"]) -> Spectrum:
        values, vectors = torch.linalg.eigh(sigma)
        return cls(values.clamp_min(0.0), vectors)  # Sigma is positive semi-definite; what is below 0 is rounding

    @cached_property
    def determined(self) -> Tensor:
        """Which eigen-directions the context says anything about, (prompt, dim) bool."""
        return self.values > RANK_TOLERANCE * self.values[:, -1:]

    def rotate(self, vector: Float[Tensor, "prompt dim"]) -> Float[Tensor, "prompt dim"]:
        """V^T vector, the coordinates of a vector in the eigenbasis."""
        return torch.einsum("nji,nj->ni", self.vectors, vector)

    def filtered(
        self, gain: Float[Tensor, "prompt dim"], vector: Float[Tensor, "prompt dim"]
    ) -> Float[Tensor, "prompt dim"]:
        """V diag(gain) V^T vector."""
        return torch.einsum("nij,nj->ni", self.vectors, gain * self.rotate(vector))


@dataclass(frozen=True, eq=False)
class RegressionStatistics:
    """Sufficient statistics of prompts with ``context`` (x_i, y_i) pairs each."""

    sigma: Float[Tensor, "prompt dim dim"]
    alpha: Float[Tensor, "prompt dim"]
    lambda_: Float[Tensor, " prompt"]
    context: int

    def __post_init__(self) -> None:
        if self.context < 1:
            raise UsageError(f"context is {self.context}, expected the number of (x, y) pairs of a prompt, 1 or more")

    @classmethod
    def from_data(
        cls, x: Float[Tensor, "prompt context dim"], y: Float[Tensor, "prompt context"]
    ) -> RegressionStatistics:
        return cls(x.mT @ x, torch.einsum("nci,nc->ni", x, y), y.square().sum(-1), x.shape[1])

    @property
    def count(self) -> int:
        return self.alpha.shape[0]

    @property
    def dim(self) -> int:
        return self.alpha.shape[1]

    @cached_property
    def spectrum(self) -> Spectrum:
        """Decomposed once, then shared by every method of the ridge family and every tuning."""
        return Spectrum.of(self.sigma)
