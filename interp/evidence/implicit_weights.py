"""The implicit weights of every layer beside those of classical algorithms.

The network's prediction after l layers is <w^l, x> of the query, and w^l comes from the exact unrolling, so the
distance to a baseline's weights needs no probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import implicit_states
from interp.evidence.question import Answer, question
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.gram import GramTrajectory
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearExamples
from interp.probes.within import linearity_r2
from interp.results import ImplicitModel
from interp.stats.averages import ratio_with_error

__all__ = ["implicit", "implicit_models"]

FEW = 64  # prompts enough for what is exact, agreement with the hooked model


@question("implicit")
def implicit(choice: Choice, run: Run) -> Answer | Skipped | None:
    network, references = run.network, run.references
    if references.weights is None:
        return None
    if not isinstance(network, SharedKeys):
        return network.skipped
    run.progress("checking the unrolling token by token")
    held_out = network.held_out
    exact = isinstance(held_out.drawn, LinearExamples)
    linearity = linearity_r2(run.model, held_out.drawn[:FEW]) if exact else [None] * (run.model.layers + 1)
    rows = implicit_models(held_out.trajectory, run.spec, references.weights(held_out.drawn), linearity)
    return Answer(fields={"implicit": rows})


def implicit_models(
    trajectory: GramTrajectory,
    spec: ModelSpec,
    references: Mapping[str, Float[Tensor, "prompt dim output"]],
    linearity: Sequence[float | None],
) -> tuple[ImplicitModel, ...]:
    """Distance of the implicit weights of every layer to those of ``references``: E|w - w_b|^2 / E|w_b|^2.

    The weights are those of the prediction, <w, x_t> = sign * y_t^l, so the sign of the read-out is taken out.
    """
    out = []
    for layer, state in enumerate(implicit_states(trajectory, spec)):
        w = -spec.readout.sign * state.w.mT
        sizes = {name: ((w - b).square().sum((1, 2)), b.square().sum((1, 2))) for name, b in references.items()}
        ratios = {name: ratio_with_error(*pair) for name, pair in sizes.items()}
        a = state.a.diagonal(dim1=-2, dim2=-1)
        out.append(
            ImplicitModel(
                layer=layer,
                a=float(a.mean()) if bool(torch.isfinite(a).all()) else None,
                linearity_r2=linearity[layer],
                distance={name: value for name, (value, _) in ratios.items()},
                distance_stderr={name: error for name, (_, error) in ratios.items()},
            )
        )
    return tuple(out)
