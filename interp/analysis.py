"""The main job: one checkpoint in, one ``Analysis`` out.

Prompts are drawn from the task of the checkpoint with seeds derived from one: half to fit on, half to score on, and
others to tune the baselines. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from interp.algebra.linear_prompts import gram_prompts, linear_prompts, usable
from interp.checkpoints.opening import Checkpoint
from interp.evidence.absorption import absorption
from interp.evidence.behaviour import describe_behaviour
from interp.evidence.completion import describe_completion, implicit_completion
from interp.evidence.implicit_weights import implicit_models
from interp.evidence.interventions import intervene
from interp.evidence.preconditioner import describe_preconditioners
from interp.evidence.probing import default_probes
from interp.evidence.regression import describe_regression
from interp.evidence.replacement import Bench, affordable, interpolation, layer_swaps
from interp.evidence.stress import stress
from interp.identify.estimates import predict
from interp.identify.identification import Candidate
from interp.identify.identified import Identified, Subject, identify, open_subject
from interp.identify.losses import (
    Panel,
    affordable_prompts,
    depth_label,
    labels_of,
    solves_task,
    squared_errors,
    summarise,
)
from interp.identify.recovered import describe_layers, family_rows, no_verdict, verdict
from interp.identify.recovered_algorithm import describe_recovered
from interp.identify.simple_identification import is_simple
from interp.identify.token_losses import token_losses
from interp.models.gram import HeadLayers, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import Examples, MatrixCompletion, NoisyRegression, RegressionPrompts, find_targets
from interp.probes.within import linearity_r2
from interp.provenance import ASKED, checkpoint_info, provenance, recorded_weights, seeds_of
from interp.results import Analysis, Behaviour, Evidence, Loss
from interp.sequence_analysis import analyse_sequences
from interp.simple_analysis import analyse_simple_regression

__all__ = ["DEFAULT_PROMPTS", "analyse"]

DEFAULT_PROMPTS = 4096
PROBE_PROMPTS = 2048  # at most
STRESS_PROMPTS = 512  # at every point outside the training distribution
ERASED = ("label", "preconditioned")  # what the query token of a network of linear layers can hold
CAUSAL_OPERATIONS = 2e10  # floating-point operations of the causal checks, some seconds
FEW = 64  # prompts enough for what is exact, agreement with the hooked model


def analyse(
    checkpoint: Checkpoint,
    prompts: int = DEFAULT_PROMPTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
    *,
    verdict_only: bool = False,
) -> Analysis:
    """Identify the algorithm of a checkpoint on ``prompts`` prompts of its task. With ``verdict_only`` it gets its
    families, coefficients, losses and what else the verdict rests on, and none of the further evidence; for simple
    regression the verdict rests on all of it, and nothing is left out.

    Raises as ``open_subject`` does, or for causal models as ``open_causal``.
    """
    if is_simple(checkpoint.model.spec):
        return analyse_simple_regression(checkpoint, prompts, seed, progress, command)
    if checkpoint.model.spec.attention.keys == "causal":
        return analyse_sequences(checkpoint, prompts, seed, progress, command, verdict_only=verdict_only)
    subject = open_subject(checkpoint, prompts)
    model, spec, task = subject.model, subject.model.spec, subject.task
    seeds = seeds_of(seed)
    origin = {
        "checkpoint": checkpoint_info(checkpoint),
        "task": task.to_dict(),
        "provenance": provenance(prompts, seed, command, verdict_only),
        "weights": recorded_weights(model),
    }
    found = identify(subject, prompts, seeds[:3], progress)
    if isinstance(task, MatrixCompletion):
        if isinstance(found, str):
            return Analysis(**origin, **_unstructured(subject, found, prompts, seeds[4], progress))
        return Analysis(**origin, **_completion(subject, task, found, seeds, progress, verdict_only))
    if verdict_only:
        behaviour = ASKED
    else:
        progress("comparing with classical solvers")
        behaviour = describe_behaviour(model, task, seeds[9])
    behaves = behaviour if isinstance(behaviour, Behaviour) else None
    missing = (f"behaviour: skipped, because {behaviour}",) if isinstance(behaviour, str) else ()
    if isinstance(found, str):
        return Analysis(
            **origin, **_unstructured(subject, found, prompts, seeds[4], progress, behaves, missing), behaviour=behaves
        )
    network, chosen, best, held_out = found.network, found.chosen, found.closest, found.held_out
    drawn = held_out.drawn
    assert isinstance(drawn, RegressionPrompts)  # prompts of the task

    progress("measuring losses")
    references = task.references(task.sample(prompts, seeds[3]), model.layers, spec.attention.keys)
    baselines = references.tuned
    panels = [Panel(labels=references.labels, predict=references.predict), _network_panel(network, spec)]
    if best is not None:
        panels.append(_recovered_panel(best, spec, chosen is not None))
    count = affordable_prompts(model.layers, model.heads, spec.width, task.context, least=held_out.drawn.count)
    squares = squared_errors(
        lambda n, s: usable(model, task.sample(n, s))[0], panels, count, task.most_prompts, seeds[4]
    )
    losses = summarise(labels_of(panels), squares)
    solves, share = solves_task(squares)

    described = {
        "layers": describe_layers(network, spec, found.live, found.candidates, chosen),
        "families": family_rows(found.candidates, chosen, found.why, drawn.target.flatten(1)),
        "verdict": verdict(chosen, best, solves, share, losses),
        "preconditioners": describe_preconditioners(chosen, network, task),
        "recovered": None if chosen is None else describe_recovered(chosen, spec, task),
    }
    measured = {
        "prompts": len(squares["network"]),
        "held_out": held_out.drawn.count,
        "losses": _ladder([entry for entry in losses if not entry.name.startswith("layer-")]),
        "depth_losses": tuple(entry for entry in losses if entry.name.startswith("layer-")),
    }
    if verdict_only:
        notes = tuple(text for text in (found.note, f"further evidence: skipped, because {ASKED}") if text is not None)
        return Analysis(**origin, **described, evidence=Evidence(**measured, notes=notes), implicit=())
    tried = None if best is None else _tried(found, best, subject, task, seeds[8], progress)

    progress("measuring how it adapts to noise")
    regression = None
    if best is not None:
        regression = describe_regression(
            network,
            spec,
            task,
            found.live,
            found.candidates,
            (best, _recovered_label(best, chosen is not None)),
            baselines,
            (found.fitted, held_out),
            lambda law, n, s: linear_prompts(model, law.sample(n, s)),
            prompts,
            seeds[5],
        )

    progress("probing activations")
    probes, probe_note = default_probes(model, task, min(prompts, PROBE_PROMPTS), seeds[6])
    progress("intervening")
    moved, erased, causal_notes = intervene(
        model,
        task,
        find_targets(task, ERASED),
        range(model.layers + 1),
        (None,),
        min(prompts, PROBE_PROMPTS),
        seeds[6],
        CAUSAL_OPERATIONS,
    )

    progress("checking the unrolling token by token")
    linearity = linearity_r2(model, drawn[:FEW])
    return Analysis(
        **origin,
        **described,
        evidence=Evidence(
            **measured,
            notes=tuple(text for text in (found.note, probe_note, *causal_notes, *missing) if text is not None),
            **(tried or {}),
        ),
        implicit=implicit_models(held_out.trajectory, spec, task, drawn, baselines, linearity),
        regression=regression,
        probes=probes,
        transplants=moved,
        erasures=erased,
        behaviour=behaves,
    )


def _unstructured(
    subject: Subject,
    why: str,
    prompts: int,
    seed: int,
    progress: Callable[[str], None],
    behaviour: Behaviour | None = None,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """The fields of the analysis of a network that linear maps do not describe, for the reason ``why``."""
    progress("measuring losses")
    measured = token_losses(subject.model, subject.task, prompts, seed)
    return {
        "layers": (),
        "families": (),
        "verdict": no_verdict(why, measured.solves_task, behaviour),
        "evidence": Evidence(
            prompts=measured.prompts, losses=_ladder(measured.losses), depth_losses=(), notes=(why, *missing)
        ),
        "implicit": (),
    }


def _completion(
    subject: Subject,
    task: MatrixCompletion,
    found: Identified,
    seeds: Sequence[int],
    progress: Callable[[str], None],
    verdict_only: bool,
) -> dict[str, Any]:
    """The fields of the analysis of a network for matrix completion."""
    network, chosen, best, held_out = found.network, found.chosen, found.closest, found.held_out
    model, spec = subject.model, subject.model.spec
    progress("measuring losses")
    references = task.references(held_out.drawn, network.layers, spec.attention.keys)
    panels = [Panel(labels=references.labels, predict=references.predict), _network_panel(network, spec)]
    if best is not None:
        panels.append(_recovered_panel(best, spec, chosen is not None))
    count = affordable_prompts(model.layers, model.heads, spec.width, task.context, least=held_out.drawn.count)
    squares = squared_errors(
        lambda n, s: usable(model, task.sample(n, s))[0], panels, count, task.most_prompts, seeds[4]
    )
    losses = summarise(labels_of(panels), squares)
    solves, share = solves_task(squares)
    tried = None if best is None or verdict_only else _replaced(found, best, subject, seeds[8], progress)
    progress("looking for EAGLE")
    completion = describe_completion(found, spec, task, seeds[5])
    notes = [found.note] if found.note is not None else []
    notes.append(
        f"further evidence: skipped, because {ASKED}"
        if verdict_only
        else f"probes and what noise does: skipped, because the task is {task.name.replace('_', ' ')}"
    )
    return {
        "layers": describe_layers(network, spec, found.live, found.candidates, chosen),
        "families": family_rows(found.candidates, chosen, found.why, held_out.drawn.target.flatten(1)),
        "verdict": verdict(chosen, best, solves, share, losses, completion.law),
        "evidence": Evidence(
            prompts=len(squares["network"]),
            held_out=held_out.drawn.count,
            losses=_ladder([entry for entry in losses if not entry.name.startswith("layer-")]),
            depth_losses=tuple(entry for entry in losses if entry.name.startswith("layer-")),
            notes=tuple(notes),
            **(tried or {}),
        ),
        "implicit": implicit_completion(held_out, spec),
        "recovered": None if chosen is None else describe_recovered(chosen, spec, task, completion.law),
        "completion": completion,
    }


def _replaced(
    found: Identified, best: Candidate, subject: Subject, seed: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """The fields of the evidence that come from running the recovered algorithm, or the closest family, in the
    network's place: layer by layer, and by degrees."""
    assert best.parametrisation is not None and best.fit is not None  # a scored candidate has both
    network, held_out, spec = found.network, found.held_out, subject.model.spec
    count = min(held_out.drawn.count, affordable(network.layers, subject.model.heads, spec.width))
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(2)]
    bench = Bench.of(network, held_out.prompts[:count], held_out.drawn[:count].target.flatten(1), seeds[0])
    recovered = best.parametrisation.build(best.fit.theta)
    progress("replacing layers by those of the algorithm")
    fields = {
        "replacement": best.family.name,
        "replaced": count,
        "swaps": layer_swaps(network, recovered, bench),
        "interpolation": interpolation(network, recovered, bench),
        "absorption": absorption(network, spec, found.live, bench.prompts, bench.reference, seeds[0]),
    }
    return fields


def _tried(
    found: Identified,
    best: Candidate,
    subject: Subject,
    task: NoisyRegression,
    seed: int,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """The same, and outside the training distribution."""
    fields = _replaced(found, best, subject, seed, progress)
    own = int(np.random.SeedSequence(seed).generate_state(2)[1])
    progress("leaving the training distribution")
    return fields | {"stress": stress(subject.model, best, task, STRESS_PROMPTS, own)}


def _network_panel(network: HeadLayers, spec: ModelSpec) -> Panel[Examples]:
    """The network, and its read-out after every layer."""
    names = [f"layer-{layer}" for layer in range(network.layers + 1)]

    def run(drawn: Examples) -> Mapping[str, Tensor]:
        prompts = gram_prompts(drawn, spec)
        tokens = forward(network, prompts.gram, prompts.query).queries
        read = dict(zip(names, (prompts.read(t) for t in tokens), strict=True))
        return {"network": read[names[-1]], **read}

    labels = {name: depth_label(layer) for layer, name in enumerate(names)}
    return Panel(labels={"network": "the network", **labels}, predict=run)


def _recovered_panel(best: Candidate, spec: ModelSpec, recognized: bool) -> Panel[Examples]:
    """The recovered algorithm run in the network's place, or the closest family when none is recognized."""
    assert best.parametrisation is not None and best.fit is not None  # a scored candidate has both
    layers = best.parametrisation.build(best.fit.theta)
    return Panel(
        labels={"recovered": _recovered_label(best, recognized)},
        predict=lambda drawn: {"recovered": predict(layers, gram_prompts(drawn, spec))},
    )


def _recovered_label(best: Candidate, recognized: bool) -> str:
    return f"{'recovered algorithm' if recognized else 'closest family'} ({best.family.name})"


def _ladder(losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """From worst to best; what has no figure comes first."""
    return tuple(sorted(losses, key=lambda entry: -entry.mse if entry.mse is not None else float("-inf")))
