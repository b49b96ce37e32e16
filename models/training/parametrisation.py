"""Which weights may move: affine or bilinear maps from a flat parameter vector theta to the layers of a network.

Tokens are (x: d, y: 1). With Gamma^l = d f / d T^l of a prompt (see ``interp.models.gram.adjoint``) and
T = r I + s sum_h P_h G Q_h^T, the row of the Jacobian of f follows without another pass through the network:

    d f / d P_h = s Gamma Q_h G ,     d f / d Q_h = s Gamma^T P_h G                                                  (1)

The names are those of Vladymyrov et al.: GD++ moves (omega_xx, omega_yx), DIAG the raw diagonals (p_x, p_y, q_x, q_y)
of every head, FULL all of P and Q. ``free`` moves the four omegas independently, which one head cannot reach
(it has omega_xx omega_yy = omega_xy omega_yx), and ``merged`` moves Q alone with P = I.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.gram import GramTrajectory, HeadLayers, LayerMaps

__all__ = ["FIXED_HEADS", "PARAMETRISATIONS", "Dense", "Diagonal", "Parametrisation", "balanced", "parametrisation"]


class Parametrisation(ABC):
    """A map theta -> layers. theta is a matrix, one row of numbers per layer."""

    size: int  # numbers per layer

    def __init__(self, dim: int, scale: float, residual: float) -> None:
        self.dim, self.scale, self.residual = dim, scale, residual

    @abstractmethod
    def weights(self, theta: Float[Tensor, "layer parameter"]) -> tuple[Tensor, Tensor]:
        """(P, Q), each (layer, head, D, D)."""

    def maps(self, theta: Float[Tensor, "layer parameter"]) -> LayerMaps:
        P, Q = self.weights(theta)
        return HeadLayers(P=P, Q=Q, scale=self.scale, residual=self.residual)

    @abstractmethod
    def rows(
        self, theta: Float[Tensor, "layer parameter"], trajectory: GramTrajectory, gammas: list[Tensor]
    ) -> Float[Tensor, "prompt flat"]:
        """d f / d theta, one row per prompt, from Gamma^l = d f / d T^l."""

    @abstractmethod
    def idle(self, generator: torch.Generator) -> Float[Tensor, " parameter"]:
        """A layer that does nothing and yet has a gradient: the output side is zero, the score side random."""


@dataclass(frozen=True, eq=False)
class OmegaLayers:
    """Layers whose P and Q are diagonal: T - r I = s W o G (entry by entry), W = sum_h diag(P_h) diag(Q_h)^T."""

    W: Float[Tensor, "layer D D"]
    scale: float
    residual: float

    @property
    def layers(self) -> int:
        return self.W.shape[0]

    def update(self, layer: int, gram: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        return (self.scale * self.W[layer]) * gram

    def pullback(self, layer: int, cotangent: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt D D"]:
        total = (0.5 * self.scale * self.W[layer]) * cotangent
        return total + total.mT


class Diagonal(Parametrisation):
    """Layers that are fixed by (omega_xx, omega_xy, omega_yx, omega_yy), omega_ab = sum_h p_a q_b, with the diagonals
    (p_x, p_y) and (q_x, q_y) of every head. With ``scores`` both move; without, p alone, and q is (1, 0) in head 0,
    which then reads x, and (0, 1) in head 1, which reads y: the omegas themselves."""

    def __init__(self, dim: int, scale: float, residual: float, *, heads: int, scores: bool = True) -> None:
        super().__init__(dim, scale, residual)
        self.heads, self.scores, self.size = heads, scores, (4 if scores else 2) * heads
        self._read = torch.eye(2, dtype=torch.float64)[: self.heads]
        self._blocks = torch.zeros(2, 2, dim + 1, dim + 1, dtype=torch.float64)
        parts = (slice(dim), slice(dim, None))
        for a, rows in enumerate(parts):
            for b, columns in enumerate(parts):
                self._blocks[a, b, rows, columns] = 1.0
        self._blocks = self._blocks.flatten(0, 1)

    def diagonals(self, theta: Tensor) -> tuple[Float[Tensor, "layer head 2"], Float[Tensor, "layer head 2"]]:
        """(p, q)."""
        if self.scores:
            entries = theta.unflatten(1, (self.heads, 2, 2))
            return entries[:, :, 0], entries[:, :, 1]
        return theta.unflatten(1, (self.heads, 2)), self._read.to(theta.dtype).expand(len(theta), -1, -1)

    def omegas(self, theta: Tensor) -> Float[Tensor, "layer 4"]:
        """(omega_xx, omega_xy, omega_yx, omega_yy) of every layer."""
        p, q = self.diagonals(theta)
        return torch.einsum("lha,lhb->lab", p, q).flatten(1)

    def slopes(self, theta: Tensor) -> Float[Tensor, "layer 4 parameter"]:
        """d omega / d theta of every layer."""
        (p, q), eye = self.diagonals(theta), torch.eye(2, dtype=theta.dtype)
        by_p = torch.einsum("ac,lhb->labhc", eye, q)
        if not self.scores:
            return by_p.flatten(3).flatten(1, 2)
        by_q = torch.einsum("lha,bc->labhc", p, eye)
        return torch.stack([by_p, by_q], -2).flatten(3).flatten(1, 2)

    def maps(self, theta: Tensor) -> LayerMaps:
        W = torch.einsum("lk,kab->lab", self.omegas(theta), self._blocks)
        return OmegaLayers(W, self.scale, self.residual)

    def rows(self, theta: Tensor, trajectory: GramTrajectory, gammas: list[Tensor]) -> Float[Tensor, "prompt flat"]:
        blocks = self.scale * self._blocks.flatten(1).T
        layers = zip(gammas, trajectory.grams, self.slopes(theta), strict=True)
        return torch.cat([(gamma * gram).flatten(1) @ (blocks @ slope) for gamma, gram, slope in layers], dim=1)

    def weights(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        P, Q = (torch.cat([e[..., :1].expand(*e.shape[:-1], self.dim), e[..., 1:]], -1) for e in self.diagonals(theta))
        return torch.diag_embed(P), torch.diag_embed(Q)

    def idle(self, generator: torch.Generator) -> Tensor:
        layer = torch.zeros(self.heads, self.size // self.heads, dtype=torch.float64)
        if self.scores:
            layer[:, 2] = 1.0
            layer[:, 3] = 0.01 * torch.randn(self.heads, generator=generator, dtype=torch.float64)
        return layer.flatten()


class Dense(Parametrisation):
    """All of P and Q."""

    def __init__(self, dim: int, scale: float, residual: float, *, heads: int) -> None:
        super().__init__(dim, scale, residual)
        self.heads = heads
        self.size = 2 * heads * (dim + 1) ** 2

    def weights(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        both = theta.unflatten(1, (2, self.heads, self.dim + 1, self.dim + 1))
        return both[:, 0], both[:, 1]

    def rows(self, theta: Tensor, trajectory: GramTrajectory, gammas: list[Tensor]) -> Float[Tensor, "prompt flat"]:
        P, Q = self.weights(theta)
        out = []
        for layer, (gamma, gram) in enumerate(zip(gammas, trajectory.grams, strict=True)):
            out += [self.scale * (gamma @ (Qh @ gram)).flatten(1) for Qh in Q[layer]]
            out += [self.scale * (gamma.mT @ (Ph @ gram)).flatten(1) for Ph in P[layer]]
        return torch.cat(out, dim=1)

    def idle(self, generator: torch.Generator) -> Tensor:
        D = self.dim + 1
        Q = torch.eye(D, dtype=torch.float64) + 0.1 * torch.randn(
            self.heads, D, D, generator=generator, dtype=torch.float64
        )
        return torch.cat([torch.zeros(self.heads * D * D, dtype=torch.float64), Q.flatten()])

    def from_weights(self, P: Tensor, Q: Tensor) -> Float[Tensor, "layer parameter"]:
        """theta of given weights (layer, head, D, D)."""
        return torch.stack([P, Q], 1).flatten(1)


class Merged(Parametrisation):
    """One merged matrix per layer: P = I and Q free, as in one-layer models without a value matrix."""

    def __init__(self, dim: int, scale: float, residual: float) -> None:
        super().__init__(dim, scale, residual)
        self.size = (dim + 1) ** 2

    def weights(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        D = self.dim + 1
        Q = theta.unflatten(1, (1, D, D))
        return torch.eye(D, dtype=theta.dtype).expand_as(Q), Q

    def rows(self, theta: Tensor, trajectory: GramTrajectory, gammas: list[Tensor]) -> Float[Tensor, "prompt flat"]:
        layers = zip(gammas, trajectory.grams, strict=True)
        return torch.cat([self.scale * (gamma.mT @ gram).flatten(1) for gamma, gram in layers], dim=1)

    def idle(self, generator: torch.Generator) -> Tensor:
        return torch.randn(self.size, generator=generator, dtype=torch.float64) / (self.dim + 1) ** 0.5


PARAMETRISATIONS = ("gd++", "diag", "free", "full", "merged")
FIXED_HEADS = {"gd++": 1, "free": 2, "merged": 1}


def parametrisation(name: str, *, dim: int, heads: int, scale: float, residual: float) -> Parametrisation:
    """The one of ``PARAMETRISATIONS`` of that name. Raises LayoutError for a number of heads that it cannot have."""
    fixed_heads = FIXED_HEADS.get(name)
    if fixed_heads is not None and heads != fixed_heads:
        raise LayoutError(f"model.heads is {heads} for parametrisation {name!r}, expected {fixed_heads}")
    if name == "merged":
        return Merged(dim, scale, residual)
    if name == "full":
        return Dense(dim, scale, residual, heads=heads)
    return Diagonal(dim, scale, residual, heads=heads, scores=name == "diag")


def balanced(P: Float[Tensor, "layer head D D"], Q: Float[Tensor, "layer head D D"]) -> tuple[Tensor, Tensor]:
    """The same network with |P_h| = |Q_h| in every head: P -> k P, Q -> Q / k changes nothing the network computes."""
    size_p, size_q = torch.linalg.matrix_norm(P), torch.linalg.matrix_norm(Q)
    factor = torch.where((size_p > 0) & (size_q > 0), (size_q / size_p.clamp_min(1e-300)).sqrt(), 1.0)[..., None, None]
    return P * factor, Q / factor
