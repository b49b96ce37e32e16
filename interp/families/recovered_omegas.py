"""The recovered algorithm as a thing that can be run: the chosen family with its own fitted numbers.

These are the numbers of the family that was chosen, fitted alone. The refit column of the layers' omegas is another
fit, of all four omegas together, which shows what the family leaves out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.structure import Sketch
from interp.algebra.unrolling import label_indices
from interp.families.parametrisations import BasisParametrisation, MatrixParametrisation, SketchedParametrisation
from interp.models.specification import ModelSpec
from interp.results import RecoveredCoefficient, RecoveredCompletion, RecoveredLayer, RecoveredOmegas
from interp.stats.least_squares import Estimate

if TYPE_CHECKING:
    from interp.families.omegas import OmegaFit

__all__ = ["describe_recovered"]


def describe_recovered(chosen: OmegaFit, spec: ModelSpec, context: int, blocks: bool) -> RecoveredOmegas:
    """The chosen family as data, for prompts of ``context`` examples; where ``blocks`` of a matrix are completed with
    what a layer sees of x, and with the law that its steps follow if it is eagle."""
    form, (inputs, label) = chosen.parametrisation, label_indices(spec)
    fields: dict[str, Any] = {
        "family": chosen.family.algorithm if chosen.family.tied else chosen.family.name,
        "parameters": chosen.parameters,
        "dim": len(inputs),
        "context": context,
        "keys": spec.attention.keys,
        "scale": spec.attention.scale,
        "residual": spec.residual,
        "sign": spec.readout.sign,
    }
    if isinstance(form, MatrixParametrisation):
        fields["layers"] = _matrices(form, chosen.fit)
    else:
        assert isinstance(form, BasisParametrisation)
        fields["layers"] = _coefficients(form, chosen.fit)
    if not blocks:
        return RecoveredOmegas(**fields)
    if isinstance(form, BasisParametrisation):
        fields["machines"] = form.machines
    if isinstance(form, SketchedParametrisation):
        fields["sketches"], fields["written"] = _subspaces(form.sketch)
    if chosen.law is not None and chosen.law.holds:
        fields |= {name: getattr(chosen.law, name) for name in ("eta", "eta_ci", "gamma", "gamma_ci")}
    return RecoveredCompletion(**fields, outputs=len(label), algorithm=chosen.named)


Subspaces = tuple[list[Any] | None, ...]


def _subspaces(sketch: Sketch) -> tuple[Subspaces, Subspaces]:
    """An orthonormal basis of what every layer sees of x, and of what it writes where that is another subspace."""
    reads = zip(sketch.reads, sketch.ranks, strict=True)
    pairs = zip(sketch.reads, sketch.writes, strict=True)
    return (
        tuple(_basis(read) if rank < len(read) else None for read, rank in reads),
        tuple(None if written is read else _basis(written) for read, written in pairs),
    )


def _basis(projector: Float[Tensor, "n n"]) -> list[Any]:
    return torch.linalg.eigh(projector).eigenvectors[:, -round(float(projector.trace())) :].tolist()


def _coefficients(family: BasisParametrisation, fit: Estimate) -> tuple[RecoveredLayer, ...]:
    maps = [m.name for m in family.maps]
    names = [(layer, maps[k]) for layer, k in torch.nonzero(family.mask).tolist()]
    rows: list[dict[str, RecoveredCoefficient]] = [{} for _ in family.live]
    places = family.index.tolist()
    for k, (layer, name) in zip(places, names, strict=True):
        value, error, determined = float(fit.theta[k]), float(fit.stderr[k]), fit.determined[k]
        reason = None if error < abs(value) else "its standard error exceeds its size"
        if not determined:
            partners = ", ".join(f"{n} of layer {i}" for i, n in (names[places.index(j)] for j in fit.partners[k][:3]))
            reason = "the prompts do not determine it" + (f"; it trades off against {partners}" if partners else "")
        known = error if determined and math.isfinite(error) else None
        rows[layer][name] = RecoveredCoefficient(value=value, stderr=known, undetermined=reason)
    return tuple(RecoveredLayer(index=index, coefficients=row) for index, row in enumerate(rows))


def _matrices(family: MatrixParametrisation, fit: Estimate) -> tuple[RecoveredLayer, ...]:
    dim = len(family.inputs)
    shape = (family.layers, dim, dim)
    known = torch.tensor(fit.determined) & torch.isfinite(fit.stderr)
    stderr = torch.where(known, fit.stderr, torch.nan).reshape(shape)
    return tuple(
        RecoveredLayer(
            index=index,
            coefficients={},
            matrix=matrix.tolist(),
            matrix_stderr=[[None if e != e else e for e in row] for row in error.tolist()],
        )
        for index, (matrix, error) in enumerate(zip(fit.theta.reshape(shape), stderr, strict=True))
    )
