"""Causal sequences: the coefficients of block-scalar heads, what they are compared with, and the mesa-objective."""

from __future__ import annotations

from itertools import compress

import torch
from torch import Tensor

from interp.algebra.channels import block_energy, block_means, channel_size, map_name
from interp.evidence.omega_coefficients import energy_split
from interp.evidence.question import Answer, finite, question
from interp.evidence.sequence_evidence import blends, compressions, half_losses, objectives, ranked, shown_positions
from interp.families.block_scalar import BlockScalarFit
from interp.families.channel_heads import FUNCTIONALS, Uncertainty, free_numbers, output_estimates, sense, uncertainty
from interp.families.gradient_step import GradientStep as GradientStepFamily
from interp.identify.choose import Choice
from interp.identify.networks import CausalSequences
from interp.identify.run import Run
from interp.identify.score import EXACT
from interp.models.skipped import Skipped
from interp.models.tasks import States
from interp.results import Coefficient, GradientStep, HeadBlocks, Layer, Sequences
from interp.stats.least_squares import Estimate

__all__ = ["sequences"]

SENSED = 256  # sequences behind the output-weighted estimates and the standard errors


@question("sequences", brief=True)
def sequences(choice: Choice, run: Run) -> Answer | Skipped | None:
    """Coefficients and comparisons; what takes longest only where more than the verdict is asked for."""
    network, fit = run.network, choice.fit_of("revalg")
    if not isinstance(network.held_out.drawn, States):
        return None
    if not isinstance(network, CausalSequences) or not isinstance(fit, BlockScalarFit):
        return network.skipped or Skipped("its channels are not of one size")
    run.progress("estimating coefficients")
    layers, stderr = _layers(run, network, fit)
    positions, tuned, brief = shown_positions(run.task.context), run.references.tuned, run.brief
    found = Sequences(
        prompts=choice.losses.prompts,
        positions=positions,
        clipped=_clipped(run, network),
        live=_live(run, fit),
        losses=half_losses(choice.losses, positions),
        compressions=() if brief else compressions(run, fit),
        interpolation=() if brief else blends(run, fit),
        gradient_step=_gradient_step(choice, run),
        ranking=ranked(run.spec, fit.heads, stderr),
        objectives=() if brief else objectives(run.model, network.held_out, _query(run, fit), positions[-3:]),
        alpha=tuple(tuned.alpha.tolist()),
        beta=tuple(tuned.beta.tolist()),
    )
    return Answer(fields={"layers": layers, "sequences": found})


def _layers(run: Run, network: CausalSequences, fit: BlockScalarFit) -> tuple[tuple[Layer, ...], Uncertainty]:
    model, spec, size, fitted = run.model, run.spec, channel_size(run.spec), network.fitted
    tokens, target = fitted.tokens[:SENSED], fitted.outputs[:SENSED]
    generator = torch.Generator().manual_seed(run.seeds.adaptation)
    functionals = [torch.randn(target.shape, generator=generator, dtype=target.dtype) for _ in range(FUNCTIONALS)]
    sensed = sense(spec, model.Q, model.P, tokens, functionals)
    estimates = output_estimates(sensed, fit.live, size)
    free = free_numbers(fit.live, fit.heads.q.shape[1])
    stderr = uncertainty(spec, fit.heads, free, tokens, target, run.seeds.adaptation)
    names = [name for name, _ in spec.tokens]
    layers = tuple(
        Layer(
            index=index,
            omega={},
            trace={},
            split=energy_split(projection.energy, projection.block, projection.explained),
            heads=tuple(
                _head(model.Q[index, h], model.P[index, h], size, fit.live.read[index], fit.live.written[index])
                for h in range(model.heads)
            ),
            maps=_maps(names, fit, index, estimates[index], stderr),
        )
        for index, projection in enumerate(fit.projections)
    )
    return layers, stderr


def _head(Q: Tensor, P: Tensor, size: int, read: Tensor, written: Tensor) -> HeadBlocks:
    outside = block_energy(Q, size, read, read), block_energy(P, size, written, read)
    whole = None if None in outside else 1.0 - (1.0 - (outside[0] or 0.0)) * (1.0 - (outside[1] or 0.0))
    return HeadBlocks(
        Q=block_means(Q, size).tolist(),
        P=block_means(P, size).tolist(),
        residual=whole,
        residual_Q=outside[0],
        residual_P=outside[1],
    )


def _maps(
    names: list[str], fit: BlockScalarFit, layer: int, output: Estimate | None, uncertain: Uncertainty
) -> dict[str, Coefficient]:
    """The live coefficients of one layer, by their three estimates."""
    if output is None:
        return {}
    k, refit = fit.projections[layer].k, fit.heads.k[layer]
    out = {}
    for row, place in enumerate(torch.nonzero(fit.live.maps(layer)).tolist()):
        at = tuple(place)
        determined = output.determined[row]
        out[map_name(names, *place)] = Coefficient(
            weight=float(k[at]),
            output=float(output.theta[row]) if determined else None,
            stderr=float(output.stderr[row]) if determined else None,
            refit=float(refit[at]),
            refit_stderr=finite(uncertain.stderr[layer][at]) if fit.how == "refit" else None,  # weights are not fitted
            live=True,
            undetermined=None if determined else "other coefficients of this layer have the same effect on the data",
        )
    return out


def _gradient_step(choice: Choice, run: Run) -> GradientStep | None:
    """The step that explains the network, an exact one first, the one with a number for W_0 if it can be."""
    steps = [fit for fit in choice.fits if isinstance(fit.family, GradientStepFamily)]
    if not steps:
        return None
    good = [fit for fit in steps if fit.recognized]
    best = next((fit for fit in good if fit.score.unexplained < EXACT), (good or steps)[0])
    step, search, w0 = best.theta, run.references.tuned.search, best.theta.w0
    return GradientStep(
        eta=step.eta,
        eta_stderr=step.eta_stderr,
        w0=None if isinstance(w0, Tensor) else w0,
        w0_stderr=step.w0_stderr,
        w0_matrix=w0.tolist() if isinstance(w0, Tensor) else None,
        fidelity=best.score.fidelity,
        fidelity_ci=best.score.interval,
        recognized=best.recognized,
        exact=best.score.unexplained < EXACT,
        line_search_eta=search.eta,
        line_search_stderr=search.stderr,
    )


def _clipped(run: Run, network: CausalSequences) -> float:
    """The share of sequences in which some token meets the clip."""
    clip, model = run.spec.clip, run.model
    if clip is None:
        return 0.0
    sensed = sense(run.spec, model.Q, model.P, network.fitted.tokens[:SENSED], ())
    at = torch.stack([(value.abs() >= clip).flatten(1).any(1) for value in sensed.passage[1:]])
    return float(at.any(0).double().mean())


def _live(run: Run, fit: BlockScalarFit) -> dict[str, list[list[str]]]:
    names = [name for name, _ in run.spec.tokens]
    masks = {"read": fit.live.read, "written": fit.live.written}
    return {what: [[*compress(names, row)] for row in mask.tolist()] for what, mask in masks.items()}


def _query(run: Run, fit: BlockScalarFit) -> int:
    """The channel that the last layer scores with when it writes the prediction."""
    out = [name for name, _ in run.spec.tokens].index(run.spec.readout.channel)
    return int(fit.projections[-1].k[out].square().sum((0, 1)).argmax())
