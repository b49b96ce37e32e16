"""Networks for matrix completion: is the gd++ that they run EAGLE, in which of its regimes, and how closely.

Lutz et al., arXiv 2509.19702. The families and their fit are those of every task (``interp.identify.identification``);
here is what is said beyond them: the scaling law, the sketch, the machines, the paper's own extraction, and the
agreement with the recovered algorithm after every layer (the paper's Table 1).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import label_indices
from interp.evidence.extraction import extract
from interp.evidence.question import Answer, question
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import BasisParametrisation, SketchedParametrisation
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.gram import forward
from interp.models.skipped import Skipped
from interp.models.tasks import Blocks, BlocksTask
from interp.results.completion import Agreement, Completion, MachineTraffic, SketchLayer
from interp.stats.averages import mean_with_error

__all__ = ["agreement", "completion"]

REGIMES = {"gd++": "full", "tied gd++": "full", "gd++ (sketched)": "sketch", "gd++ (machines)": "machines"}


@question("completion", brief=True)
def completion(choice: Choice, run: Run) -> Answer | Skipped | None:
    """All of it, for the chosen family or the closest."""
    network, best, chosen, task = run.network, choice.closest, choice.chosen, run.task
    if not isinstance(network.held_out.drawn, Blocks) or not isinstance(task, BlocksTask):
        return None
    if not isinstance(network, SharedKeys):
        return network.skipped
    form = chosen if isinstance(chosen, OmegaFit) else None
    found = Completion(
        regime=None if form is None else REGIMES.get(form.family.name),
        laws=() if form is None else form.laws,
        agreement=agreement(network, best) if isinstance(best, OmegaFit) else (),
        sketch=_sketch(form),
        machines=_machines(form, network, task.context + task.queries),
        extraction=extract(network, task.machines, run.seeds.adaptation),
    )
    return Answer(fields={"completion": found})


def agreement(network: SharedKeys, fit: OmegaFit) -> tuple[Agreement, ...]:
    """The network and the algorithm, by its refit and its output estimates, run side by side on all tokens of the
    held-out prompts."""
    drawn, prompts, spec = network.held_out.drawn, network.held_out.prompts, network.model.spec
    context, query = drawn.inputs(spec)
    tokens, layerwise = torch.cat([context, query], 1), fit.parametrisation.build(fit.output.theta)
    runs = [forward(layers, prompts.gram, tokens).queries for layers in (network.layers, fit.layers, layerwise)]
    _, label = label_indices(spec)
    out = []
    for layer, (ours, *theirs) in enumerate(zip(*runs, strict=True)):
        compared = label if layer + 1 == len(runs[0]) else slice(None)
        apart = [mean_with_error((ours - other)[..., compared].square().mean((1, 2))) for other in theirs]
        read = spec.readout.sign * ours[:, context.shape[1] :][..., label]
        error = mean_with_error((read - drawn.target).square().mean((1, 2)))
        row = dict(zip(("difference", "layerwise", "error"), (*apart, error), strict=True))
        figures = {f"{name}_stderr": error for name, (_, error) in row.items()}
        out.append(Agreement(layer=layer, **{name: mean for name, (mean, _) in row.items()}, **figures))
    return tuple(out)


def _sketch(chosen: OmegaFit | None) -> tuple[SketchLayer, ...]:
    if chosen is None or not isinstance(chosen.parametrisation, SketchedParametrisation):
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


def _machines(chosen: OmegaFit | None, network: SharedKeys, tokens: int) -> MachineTraffic | None:
    family = None if chosen is None else chosen.parametrisation
    if not isinstance(family, BasisParametrisation) or not family.machines:
        return None
    inputs, label = label_indices(network.model.spec)
    within, cross = family.machine_masks[0] > 0, []
    for layer in range(network.layers.layers):
        P, Q = network.layers.P[layer][:, inputs], network.layers.Q[layer][:, inputs]
        alive = network.live.maps[layer][inputs][:, inputs]
        # |K|^2 of every (a, e), symmetrised over the two indices of the Gram matrix as everywhere.
        straight = torch.einsum("hab,kab->ahk", P, P)[:, None] * torch.einsum("hec,kec->ehk", Q, Q)[None]
        crossed = torch.einsum("hec,kac->aehk", Q, P)
        energy = 0.5 * (straight + crossed * crossed.mT).sum((-1, -2))
        energy = torch.where(alive, energy, 0.0)
        total = float(energy.sum())
        cross.append(float(energy[~within].sum()) / total if total > 0 else None)
    shared = all(share is None or share < 0.5 for share in cross)
    numbers = tokens * len(label) if shared else None
    return MachineTraffic(inputs=family.machines, cross=tuple(cross), numbers=numbers)
