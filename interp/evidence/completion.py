"""Networks for matrix completion: is the gd++ that they run EAGLE, in which of its regimes, and how closely.

Lutz et al., arXiv 2509.19702. The families and their fit are those of every task (``interp.identify.identification``);
here is what is said beyond them: the scaling law, the sketch, the machines, the paper's own extraction, and the
agreement with the recovered algorithm after every layer (the paper's Table 1).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.gauge import LiveCoordinates
from interp.algebra.unrolling import implicit_states, label_indices
from interp.evidence.extraction import extract
from interp.families.omegas import BasisFamily, SketchedFamily
from interp.families.scaling_law import scaling_laws
from interp.identify.identification import Candidate
from interp.identify.identified import Half, Identified
from interp.models.gram import HeadLayers, LayerMaps, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import CompletionPrompts, MatrixCompletion
from interp.results import ImplicitModel
from interp.results.completion import Agreement, Completion, MachineTraffic, SketchLayer
from interp.stats.averages import mean_with_error, ratio_with_error

__all__ = ["agreement", "describe_completion", "implicit_completion", "regime_of"]

REGIMES = {"gd++": "full", "gd++ (sketched)": "sketch", "gd++ (machines)": "machines"}


def regime_of(candidate: Candidate | None) -> str | None:
    return None if candidate is None else REGIMES.get(candidate.family.name)


def describe_completion(found: Identified, spec: ModelSpec, task: MatrixCompletion, seed: int) -> Completion:
    """All of it, for the chosen family or the closest."""
    best, held_out = found.closest, found.held_out
    regime = regime_of(found.chosen)
    inputs, label = label_indices(spec)
    reference = held_out.prompts.read(held_out.trajectory.queries[-1])
    beside: tuple[Agreement, ...] = ()
    if best is not None and best.parametrisation is not None and best.fit is not None and best.output is not None:
        refitted, layerwise = (best.parametrisation.build(e.theta) for e in (best.fit, best.output))
        beside = agreement(found.network, refitted, layerwise, held_out, spec)
    return Completion(
        regime=regime,
        laws=scaling_laws(found.chosen, found.network, task, spec, seed)
        if regime is not None and found.chosen is not None
        else (),
        agreement=beside,
        sketch=_sketch(found.chosen),
        machines=_machines(found.chosen, found.network, found.live, spec, task),
        extraction=extract(found.network, task.machines, inputs, label, held_out.prompts, reference, seed),
    )


def agreement(
    network: LayerMaps, refitted: LayerMaps, layerwise: LayerMaps, half: Half, spec: ModelSpec
) -> tuple[Agreement, ...]:
    """The network and the algorithm, by its refit and its output estimates, run side by side on all tokens of the
    held-out prompts."""
    drawn, prompts = half.drawn, half.prompts
    assert isinstance(drawn, CompletionPrompts)
    context, query = drawn.inputs(spec)
    tokens = torch.cat([context, query], 1)
    runs = [forward(layers, prompts.gram, tokens).queries for layers in (network, refitted, layerwise)]
    _, label = label_indices(spec)
    out = []
    for layer, (ours, *theirs) in enumerate(zip(*runs, strict=True)):
        compared = label if layer + 1 == len(runs[0]) else slice(None)
        apart = [mean_with_error((ours - other)[..., compared].square().mean((1, 2))) for other in theirs]
        (difference, stderr), (own, own_stderr) = apart
        read = spec.readout.sign * ours[:, context.shape[1] :][..., label]
        error, error_stderr = mean_with_error((read - drawn.D).square().mean((1, 2)))
        out.append(
            Agreement(
                layer=layer,
                difference=difference,
                difference_stderr=stderr,
                layerwise=own,
                layerwise_stderr=own_stderr,
                error=error,
                error_stderr=error_stderr,
            )
        )
    return tuple(out)


def _sketch(chosen: Candidate | None) -> tuple[SketchLayer, ...]:
    if chosen is None or not isinstance(chosen.parametrisation, SketchedFamily):
        return ()
    sketch = chosen.parametrisation.sketch
    return tuple(
        SketchLayer(
            layer=layer,
            rank=rank,
            spectrum=spectrum,
            same=_overlap(sketch.reads[layer], sketch.reads[0]),
            written_rank=round(float(sketch.writes[layer].trace())),
            read_by=tuple(_overlap(sketch.writes[layer], read) for read in sketch.reads),
        )
        for layer, (rank, spectrum) in enumerate(zip(sketch.ranks, sketch.spectra, strict=True))
    )


def _overlap(one: Float[Tensor, "n n"], other: Float[Tensor, "n n"]) -> float:
    """The mean squared cosine of the angles between two subspaces, given by their projectors."""
    return float((one * other).sum() / torch.minimum(one.trace(), other.trace()))


def _machines(
    chosen: Candidate | None, network: HeadLayers, live: LiveCoordinates, spec: ModelSpec, task: MatrixCompletion
) -> MachineTraffic | None:
    family = None if chosen is None else chosen.parametrisation
    if not isinstance(family, BasisFamily) or not family.machines:
        return None
    inputs, label = label_indices(spec)
    within, cross = family.machine_masks[0] > 0, []
    for layer in range(network.layers):
        P, Q = network.P[layer][:, inputs], network.Q[layer][:, inputs]
        alive = live.maps[layer][inputs][:, inputs]
        # |K|^2 of every (a, e), symmetrised over the two indices of the Gram matrix as everywhere.
        straight = torch.einsum("hab,kab->ahk", P, P)[:, None] * torch.einsum("hec,kec->ehk", Q, Q)[None]
        crossed = torch.einsum("hec,kac->aehk", Q, P)
        energy = 0.5 * (straight + crossed * crossed.mT).sum((-1, -2))
        energy = torch.where(alive, energy, 0.0)
        total = float(energy.sum())
        cross.append(float(energy[~within].sum()) / total if total > 0 else None)
    shared = all(share is None or share < 0.5 for share in cross)
    return MachineTraffic(
        inputs=family.machines,
        cross=tuple(cross),
        numbers=(task.context + task.queries) * len(label) if shared else None,
    )


def implicit_completion(half: Half, spec: ModelSpec) -> tuple[ImplicitModel, ...]:
    """The implicit weights W^l of every layer, prediction = W x, beside those of the Nystrom estimate, (A^+ C)^T, and
    of one gradient step. All lie in the span of the rows of A."""
    drawn = half.drawn
    assert isinstance(drawn, CompletionPrompts)
    best = (torch.linalg.pinv(drawn.A, rtol=1e-10) @ drawn.C).mT
    rho = torch.linalg.matrix_norm(drawn.A, 2)[:, None, None] ** -2
    references = {"nystrom": best, "gd-1": rho * (drawn.A.mT @ drawn.C).mT}
    out = []
    for layer, state in enumerate(implicit_states(half.trajectory, spec)):
        W = -spec.readout.sign * state.w
        ratios = {
            name: ratio_with_error((W - b).square().sum((1, 2)), b.square().sum((1, 2)))
            for name, b in references.items()
        }
        a = state.a.diagonal(dim1=-2, dim2=-1)
        out.append(
            ImplicitModel(
                layer=layer,
                a=float(a.mean()) if bool(torch.isfinite(a).all()) else None,
                linearity_r2=None,
                distance={name: value for name, (value, _) in ratios.items()},
                distance_stderr={name: error for name, (_, error) in ratios.items()},
            )
        )
    return tuple(out)
