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

from interp.algebra.structure import label_weights
from interp.evidence.question import Answer, question
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import MatrixParametrisation
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.tasks import LinearTask
from interp.results import Preconditioner

__all__ = ["preconditioners"]


@question("preconditioners", brief=True)
def preconditioners(choice: Choice, run: Run) -> Answer | None:
    """One row per layer when the verdict is preconditioned-gd."""
    chosen, task = choice.chosen, run.task
    if not isinstance(chosen, OmegaFit) or not isinstance(chosen.parametrisation, MatrixParametrisation):
        return None
    assert isinstance(run.network, SharedKeys)  # as of every omega fit
    network = run.network.layers
    dim = len(chosen.parametrisation.inputs)
    shape = (network.layers, dim, dim)
    refit, stderr = chosen.refit.theta.reshape(shape), chosen.refit.stderr.reshape(shape)
    references = {"identity": torch.eye(dim, dtype=torch.float64)}
    if isinstance(task, LinearTask) and task.covariance is not None:
        references["inverse covariance"] = torch.diag(1.0 / torch.tensor(task.covariance, dtype=torch.float64))
    rows = tuple(
        Preconditioner(
            layer=layer,
            weight=label_weights(network, layer, run.spec).tolist(),
            refit=refit[layer].tolist(),
            refit_stderr=stderr[layer].tolist(),
            distance=_distances(refit[layer], references),
        )
        for layer in range(network.layers)
    )
    return Answer(fields={"preconditioners": rows})


def _distances(omega: Float[Tensor, "dim dim"], references: Mapping[str, Tensor]) -> dict[str, float | None]:
    size = float(omega.norm())
    scaled = {name: (omega * r).sum() / (r**2).sum() * r for name, r in references.items()}
    return {name: float((omega - best).norm()) / size if size > 0 else None for name, best in scaled.items()}
