"""The main job: one checkpoint in, one ``Analysis`` out.

Prompts are drawn from the task of the checkpoint with seeds derived from one: half to fit on, half to score on, and
others to tune the baselines. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.estimates import Prompts, predict, sensitivities
from interp.evidence import classical_panel, implicit_models, tuned_baselines
from interp.gauge import beyond_rounding, live_coordinates, regauged
from interp.identification import Candidate, choose, fit_families
from interp.losses import Panel, affordable_prompts, solves_task, squared_errors, summarise
from interp.models.errors import LayoutError, UsageError
from interp.models.gram import HeadLayers, forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import RegressionPrompts, task_from_dict
from interp.models.transformer import LinearTransformer
from interp.preconditioner import describe_preconditioners
from interp.probes.linearity import linearity_r2
from interp.probing import default_probes
from interp.provenance import checkpoint_info, provenance, recorded_weights
from interp.recovered import describe_layers, family_rows, no_verdict, verdict
from interp.regression import Half, describe_regression
from interp.results import Analysis, Evidence, Loss
from interp.unrolling import label_indices, unclipped

__all__ = ["DEFAULT_PROMPTS", "analyse"]

DEFAULT_PROMPTS = 4096
FEWEST_PROMPTS = 64
PROBE_PROMPTS = 2048  # at most
FEW = 64  # prompts enough for what is exact: zero patterns, and agreement with the hooked model
DIVERGED = 1e60  # activations beyond this are divergence: their fourth powers no longer fit float64
FEWEST_KEPT = 0.9  # share of the prompts that must neither diverge nor be clipped
MEMORY = 8 * 2**30  # bytes that the intermediate matrices of a run may take


def analyse(
    checkpoint: Checkpoint,
    prompts: int = DEFAULT_PROMPTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> Analysis:
    """Identify the algorithm of a checkpoint on ``prompts`` prompts of its task.

    Raises LayoutError when the model or its task is of a kind that has no families yet, UnreadableFile for weights that
    are not finite, UsageError for a number of prompts that is too small or needs too much memory.
    """
    model = checkpoint.model.require_finite().to(torch.float64)
    spec, task = model.spec, task_from_dict(model.spec.task)
    if spec.attention.keys == "causal":
        raise LayoutError(
            "attention.keys is 'causal', expected 'context' or 'all': identification and unroll need keys that all "
            "tokens share; interp-probe inspect shows what the file holds"
        )
    if spec.readout.channel != "y":
        raise LayoutError(
            f"readout.channel is {spec.readout.channel!r}, expected 'y', the label that {task.name} asks for"
        )
    task.require_channels(spec)
    _require_affordable(model, prompts)
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(7)]

    progress("running the network")
    half = prompts // 2
    (fitted, _, _), (held_out, note, hopeless) = (_usable(model, task.sample(half, s)) for s in seeds[:2])
    origin = {
        "checkpoint": checkpoint_info(checkpoint),
        "task": task.to_dict(),
        "provenance": provenance(prompts, seed, command),
        "weights": recorded_weights(model),
    }
    if hopeless is not None:
        nothing = Evidence(prompts=0, losses=(), depth_losses=(), notes=(hopeless,))
        return Analysis(**origin, layers=(), families=(), verdict=no_verdict(hopeless), evidence=nothing, implicit=())
    network = head_layers(model, task.context)
    fit_prompts, test_prompts = (_gram_prompts(p, spec) for p in (fitted, held_out))
    live = live_coordinates(network, fit_prompts.gram[:FEW], fit_prompts.query[:FEW], fit_prompts.readout)
    sensed = sensitivities(network, fit_prompts)
    sensed = replace(sensed, prediction=_without_rounding(sensed.prediction, network, fit_prompts))
    trajectory = forward(network, test_prompts.gram, test_prompts.query)
    reference = _without_rounding(test_prompts.read(trajectory.queries[-1]), network, test_prompts)

    progress("fitting the families")
    candidates = fit_families(network, spec, live, fit_prompts, sensed, test_prompts, reference, seeds[2])
    chosen, why = choose(candidates)
    best = chosen or _closest(candidates)

    progress("measuring losses")
    baselines = tuned_baselines(task, prompts, seeds[3])
    panels = [classical_panel(task, baselines), _network_panel(network, spec)]
    if best is not None:
        panels.append(_recovered_panel(best, spec, chosen is not None))
    count = affordable_prompts(model.layers, model.heads, spec.width, task.context, least=held_out.count)
    squares = squared_errors(
        lambda n, s: _usable(model, task.sample(n, s))[0], panels, count, task.most_prompts, seeds[4]
    )
    losses = summarise(panels, squares)
    solves, share = solves_task(squares)

    progress("measuring how it adapts to noise")
    regression = None
    if best is not None:
        regression = describe_regression(
            network,
            spec,
            task,
            live,
            candidates,
            (best, _recovered_label(best, chosen is not None)),
            baselines,
            (Half(fitted, fit_prompts, sensed.trajectory), Half(held_out, test_prompts, trajectory)),
            lambda law, n, s: _unclipped(model, law.sample(n, s)),
            prompts,
            seeds[5],
        )

    progress("probing activations")
    probes, probe_note = default_probes(model, task, min(prompts, PROBE_PROMPTS), seeds[6])

    progress("checking the unrolling token by token")
    linearity = linearity_r2(model, held_out[:FEW])
    return Analysis(
        **origin,
        layers=describe_layers(network, spec, live, candidates, chosen),
        families=family_rows(candidates, chosen, why, held_out.target.flatten(1)),
        verdict=verdict(chosen, best, solves, share, losses),
        evidence=Evidence(
            prompts=len(squares["network"]),
            held_out=held_out.count,
            losses=_ladder([entry for entry in losses if not entry.name.startswith("layer-")]),
            depth_losses=tuple(entry for entry in losses if entry.name.startswith("layer-")),
            notes=tuple(text for text in (note, probe_note) if text is not None),
        ),
        implicit=implicit_models(trajectory, spec, task, held_out, baselines, linearity),
        preconditioners=describe_preconditioners(chosen, network, task),
        regression=regression,
        probes=probes,
    )


def _network_panel(network: HeadLayers, spec: ModelSpec) -> Panel:
    """The network, and its read-out after every layer."""
    names = [f"layer-{layer}" for layer in range(network.layers + 1)]

    def run(drawn: RegressionPrompts) -> Mapping[str, Tensor]:
        prompts = _gram_prompts(drawn, spec)
        tokens = forward(network, prompts.gram, prompts.query).queries
        read = dict(zip(names, (prompts.read(t) for t in tokens), strict=True))
        return {"network": read[names[-1]], **read}

    labels = {name: f"read-out after layer {layer}" for layer, name in enumerate(names)}
    return Panel(labels={"network": "the network", **labels}, predict=run)


def _recovered_panel(best: Candidate, spec: ModelSpec, recognized: bool) -> Panel:
    """The recovered algorithm run in the network's place, or the closest family when none is recognized."""
    assert best.parametrisation is not None and best.fit is not None  # a scored candidate has both
    layers = best.parametrisation.build(best.fit.theta)
    return Panel(
        labels={"recovered": _recovered_label(best, recognized)},
        predict=lambda drawn: {"recovered": predict(layers, _gram_prompts(drawn, spec))},
    )


def _recovered_label(best: Candidate, recognized: bool) -> str:
    return f"{'recovered algorithm' if recognized else 'closest family'} ({best.family.name})"


def _require_affordable(model: LinearTransformer, prompts: int) -> None:
    if prompts < FEWEST_PROMPTS:
        raise UsageError(
            f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more: half are fitted on, half scored on"
        )
    # Maps, Gram matrices and derivatives of every layer, with temporaries, on half of the prompts.
    each = 4 * 8 * model.layers * model.spec.width**2
    if prompts * each > MEMORY:
        raise UsageError(
            f"asked for {prompts} prompts of a model with {model.layers} layers and D = {model.spec.width}, which "
            f"would take about {prompts * each / 2**30:.0f} GiB; use --prompts {MEMORY // each} or fewer"
        )


def _usable(model: LinearTransformer, prompts: RegressionPrompts) -> tuple[RegressionPrompts, str | None, str | None]:
    """The prompts on which the layers are linear maps of reasonable size: (those, a note on the others, and why there
    is nothing to analyse when too few are left)."""
    grams = prompts.grams(model.spec)
    trajectory = forward(head_layers(model, prompts.context), grams.gram, grams.query)
    sizes = [value.abs().flatten(1).amax(-1) for value in (*trajectory.maps, *trajectory.grams, trajectory.queries[-1])]
    finite = (torch.stack(sizes) < DIVERGED).all(0)  # False for NaN too
    kept = finite & unclipped(model, trajectory, *prompts.tokens(model.spec))
    diverging, clipped = int((~finite).sum()), int((finite & ~kept).sum())
    if diverging + clipped == 0:
        return prompts, None, None
    left = f"{diverging} of {prompts.count} prompts diverge (beyond {DIVERGED:g}) and {clipped} meet the clip"
    if int(kept.sum()) < FEWEST_KEPT * prompts.count:
        return prompts[kept], None, f"skipped, because {left}: no linear map describes the network on its own task"
    return prompts[kept], f"{left}; they are left out of every figure", None


def _unclipped(model: LinearTransformer, prompts: RegressionPrompts) -> RegressionPrompts:
    """The prompts that the model runs as linear maps; none of them when too many meet its clip. Divergence is kept."""
    if model.spec.clip is None:
        return prompts
    kept, _, hopeless = _usable(model, prompts)
    return kept if hopeless is None else kept[:0]


def _gram_prompts(prompts: RegressionPrompts, spec: ModelSpec) -> Prompts:
    grams = prompts.grams(spec)
    return Prompts(grams.gram, grams.query, tuple(label_indices(spec)[1]), spec.readout.sign)


def _without_rounding(
    prediction: Float[Tensor, "prompt output"], network: HeadLayers, prompts: Prompts
) -> Float[Tensor, "prompt output"]:
    """0 where heads that cancel leave nothing but rounding, so that no family is fitted to it."""
    return torch.where(beyond_rounding(prediction, predict(regauged(network), prompts)), prediction, 0.0)


def _closest(candidates: Sequence[Candidate]) -> Candidate | None:
    scored = [c for c in candidates if c.score.fidelity is not None]
    return max(scored, key=lambda c: c.score.fidelity or 0.0, default=None)


def _ladder(losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """From worst to best; what has no figure comes first."""
    return tuple(sorted(losses, key=lambda entry: -entry.mse if entry.mse is not None else float("-inf")))
