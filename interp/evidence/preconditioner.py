"""The matrix of preconditioned gradient descent, y <- y + <alpha, Omega_l x>, and what it inverts.

For inputs of covariance C one layer trained to optimality preconditions by about C^-1 (Ahn et al. 2023, theorem 1; its
exact form has a correction of order 1/n). So Omega is compared, after the best scaling, with C^-1 and with I:

    distance(R) = min_c |Omega - c R|_F / |Omega|_F .
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from interp.families.omegas import PreconditionedGD
from interp.identify.identification import Candidate
from interp.models.gram import HeadLayers
from interp.models.tasks import NoisyRegression
from interp.results import Preconditioner

__all__ = ["describe_preconditioners", "weight_matrix"]


def weight_matrix(
    P: Float[Tensor, "head D D"], Q: Float[Tensor, "head D D"], parametrisation: PreconditionedGD
) -> Float[Tensor, "dim dim"]:
    """Omega by weights: T[y, e] gets Omega[c, e] G[y, c] from K, whatever the gauge."""
    x, y = list(parametrisation.inputs), parametrisation.label
    first = torch.einsum("h,hec->ce", P[:, y, y], Q[:, x][:, :, x])
    second = torch.einsum("hc,he->ce", P[:, y, x], Q[:, x, y])
    return first + second


def describe_preconditioners(
    chosen: Candidate | None, network: HeadLayers, task: NoisyRegression
) -> tuple[Preconditioner, ...]:
    """One row per layer when the verdict is preconditioned-gd, else none."""
    if chosen is None or not isinstance(chosen.parametrisation, PreconditionedGD) or chosen.fit is None:
        return ()
    dim = len(chosen.parametrisation.inputs)
    shape = (network.layers, dim, dim)
    refit, stderr = chosen.fit.theta.reshape(shape), chosen.fit.stderr.reshape(shape)
    references = {"identity": torch.eye(dim, dtype=torch.float64)}
    if task.covariance is not None:
        references["inverse covariance"] = torch.diag(1.0 / torch.tensor(task.covariance, dtype=torch.float64))
    return tuple(
        Preconditioner(
            layer=layer,
            weight=weight_matrix(network.P[layer], network.Q[layer], chosen.parametrisation).tolist(),
            refit=refit[layer].tolist(),
            refit_stderr=stderr[layer].tolist(),
            distance=_distances(refit[layer], references),
        )
        for layer in range(network.layers)
    )


def _distances(omega: Float[Tensor, "dim dim"], references: Mapping[str, Tensor]) -> dict[str, float | None]:
    size = float(omega.norm())
    out: dict[str, float | None] = {}
    for name, reference in references.items():
        best = float((omega * reference).sum() / (reference**2).sum())
        out[name] = float((omega - best * reference).norm()) / size if size > 0 else None
    return out
