"""The three regimes of EAGLE: how the weights of a matrix completion network are made of what is trained.

Weights are factored as in the paper, Q = W_Q W_K^T and P = W_P W_V^T. Regimes (Lutz et al., section 3 and B.4):

- full: one head, k = D columns;
- sketch: one head, W_Q and W_K of r columns, W_P and W_V of r + n' columns;
- sketch, shared: W_Q = W_K = S and, up to the gains g, W_V = (S, I) and W_P = (g_x S, g_y I), as in Algorithm 1, where
  one S_l of r columns serves for everything. S need not be orthonormal here;
- machines: head mu reads x_mu, the columns of x that machine mu holds, and y, and writes anywhere. The paper keeps a
  copy of y on every machine; here there is one, which is what equal copies amount to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.rules import COUNT, FLAG, one_of, ruled
from interp.models.tasks import MatrixCompletion
from interp.models.training.fields import Model
from interp.models.training.parametrisation import balanced

__all__ = ["REGIMES", "Factored", "Factors", "Regime"]

REGIMES = ("full", "sketch", "machines")
GAIN = -0.3  # what the gains of a shared sketch start from: a step of gradient descent is negative

# What is trained: the factors (W_Q, W_K, W_P, W_V) of the first head, each (layer, 1, D, columns), or those of a
# shared sketch: S (layer, 1, d, r) and the two gains (layer, 1, 2, 1).
Factors = Sequence[Float[Tensor, "layer 1 ..."]]
Heads = tuple[Tensor, Tensor, Tensor, Tensor]  # W_Q, W_K, W_P, W_V of all heads, each (layer, head, D, columns)


@dataclass(frozen=True, kw_only=True)
class Regime(Model):
    """``rank``: columns of a sketch; ``shared``: one sketch per layer for all that is read and written of x."""

    regime: str = ruled(one_of(REGIMES))
    rank: int | None = ruled(COUNT, optional=True)
    shared: bool = ruled(FLAG, False)

    def fits(self, task: MatrixCompletion) -> None:
        if (self.regime == "sketch") != (self.rank is not None):
            raise LayoutError(
                f"model.rank is {self.rank!r} in regime {self.regime!r}; the sketch regime alone needs one"
            )
        if self.rank is not None and self.rank > task.dim:
            raise LayoutError(f"model.rank is {self.rank!r}, expected 1 to {task.dim}")
        if self.shared and self.regime != "sketch":
            raise LayoutError(f"model.shared is True in regime {self.regime!r}; only sketch has one to share")
        if (self.regime == "machines") != (task.machines > 1):
            raise LayoutError(f"task.machines is {task.machines} in regime {self.regime!r}; only machines needs them")


@dataclass(frozen=True)
class Factored:
    """The weights of a network for ``task`` as functions of what is trained."""

    regime: Regime
    task: MatrixCompletion

    def initial(self, std: float, seed: int) -> tuple[Tensor, ...]:
        """Random factors, with normal entries of standard deviation ``std``."""
        layers, rank, width = self.regime.layers, self.regime.rank, self.task.dim + self.task.outputs
        generator = torch.Generator().manual_seed(seed)
        if self.regime.shared:
            S = torch.randn(layers, 1, self.task.dim, rank or 0, generator=generator)
            return std * S, torch.full((layers, 1, 2, 1), GAIN)
        read, written = (width, width) if rank is None else (rank, rank + self.task.outputs)
        W_Q, W_K, W_P, W_V = (
            std * torch.randn(layers, 1, width, size, generator=generator) for size in (read, read, written, written)
        )
        return W_Q, W_K, W_P, W_V

    def heads(self, trained: Factors) -> Heads:
        if not self.regime.shared:
            W_Q, W_K, W_P, W_V = map(self._of_all_machines, trained)
            return W_Q, W_K, W_P, W_V
        (S, gain), outputs = trained, self.task.outputs
        label = torch.eye(outputs).expand(len(S), 1, outputs, outputs)
        read = torch.nn.functional.pad(S, (0, 0, 0, outputs))
        return read, read, _block_diagonal(gain[:, :, :1] * S, gain[:, :, 1:] * label), _block_diagonal(S, label)

    def _of_all_machines(self, first: Float[Tensor, "layer 1 D column"]) -> Float[Tensor, "layer head D column"]:
        """The factors of every machine's head from those of the first: one set of transformations is shared, up to the
        names of the machines (appendix B.4). Machine mu + k is to head mu what machine k is to head 0."""
        dim, machines = self.task.dim, self.task.machines
        x, y = first[:, :, :dim], first[:, :, dim:]
        heads = [torch.cat([x.roll(mu * (dim // machines), 2), y], 2) for mu in range(machines)]
        return torch.cat(heads, 1)

    def read_masks(self) -> Float[Tensor, "head D 1"]:
        """1 where a head can read a token's coordinate, by any of W_Q, W_K and W_V, else 0."""
        return torch.nn.functional.pad(self.task.machine_masks, (0, self.task.outputs), value=1.0).float()[..., None]

    def weights(self, trained: Factors) -> tuple[Tensor, Tensor]:
        """(P, Q), of equal size in every head and with a positive trace of Q; what is never read, and so never trained,
        is 0."""
        W_Q, W_K, W_P, W_V = self.heads(trained)
        seen = self.read_masks()
        P, Q = W_P @ (W_V * seen).mT, (W_Q * seen) @ (W_K * seen).mT
        P[-1][:, : self.task.dim] = 0.0
        sign = torch.where(Q.diagonal(dim1=-2, dim2=-1).sum(-1) < 0, -1.0, 1.0)[..., None, None]
        return balanced(sign * P, sign * Q)


def _block_diagonal(x: Float[Tensor, "layer 1 d r"], y: Float[Tensor, "layer 1 k k"]) -> Float[Tensor, "layer 1 D _"]:
    above = torch.nn.functional.pad(x, (0, y.shape[-1], 0, 0))
    return torch.cat([above, torch.nn.functional.pad(y, (x.shape[-1], 0, 0, 0))], 2)
