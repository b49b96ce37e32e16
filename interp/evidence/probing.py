"""Probes of one checkpoint, with their controls, as one result.

All prompts go through the network once; the controls (untrained models, targets of other prompts, the inputs alone)
are scored on the first of them, together with the network itself, so that differences are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from interp.checkpoints.opening import Checkpoint
from interp.errors import LayoutError, UsageError
from interp.evidence.implicit_fits import implicit_fits
from interp.evidence.interventions import intervene, operations
from interp.evidence.probe_controls import CONTROLS, Controls, enough, measure_controls, score_row
from interp.evidence.probe_request import ProbeRequest
from interp.evidence.published import find_protocols
from interp.evidence.question import with_error
from interp.models.tasks import KINDS, Task, find_targets, targets_of, task_of
from interp.models.transformer import LinearTransformer
from interp.probes.across import Battery, batteries, gather
from interp.probes.activations import Reader, query_tokens, stream
from interp.probes.intervals import score
from interp.probes.moments import Moments
from interp.probes.ridge import cross_fit
from interp.provenance import checkpoint_info, provenance
from interp.results import ImplicitFit, ProbeReport, ProbeScore, ProbeTarget

__all__ = ["DEFAULT_PROMPTS", "default_probes", "probe_checkpoint", "probe_model"]

DEFAULT_PROMPTS = 4096
FEWEST_PROMPTS = 64
CHUNK = 2048  # prompts held at a time, when tokens are few and small
CHUNK_NUMBERS = 2**23  # at most so many numbers of a chunk's tokens over all layers
GROUPS, FEWEST_GROUPS = 128, 32  # of sequences; half of them are fitted, half scored
MOMENT_NUMBERS = 2**26  # at most so many numbers of moments: 512 MiB
CONTROL_PROMPTS, FEWEST_CONTROL_PROMPTS = 2048, 384  # as many as CONTROL_OPERATIONS allow
CONTROL_OPERATIONS = 2e9  # on the prompts of the controls, by each of the networks
MOST_POSITIONS = 8  # of a causal model, when none are named
USUAL_POSITIONS = (5, 10, 20, 49)  # of a sequence, in an analysis: those of the mesa paper
UNDEFINED = "skipped, because the target is the same for all prompts, or not defined at this position"


def probe_checkpoint(
    checkpoint: Checkpoint,
    *,
    targets: Sequence[str] = (),
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    prompts: int = DEFAULT_PROMPTS,
    seed: int = 0,
    protocols: Sequence[str] = (),
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> ProbeReport:
    """Probe a checkpoint on ``prompts`` prompts of its task, for ``targets`` by name (all that apply when empty), by
    ``protocols`` (when empty, the sound one, and published ones that are followed by default).

    ``layers`` are layers run, 0 being the input; ``positions`` are tokens of the context or sequence, by default the
    query or, for causal models of a sequence, a few from the first to the last. Raises UsageError for a target, layer,
    position or number of prompts that does not fit; LayoutError for a task that is not known or not the model's;
    UnreadableFile for weights that are not finite.
    """
    model = checkpoint.model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    known = targets_of(task)
    if not known:
        raise LayoutError(
            f"task.name is {task.name!r}, which has no targets to probe for; expected a task with targets, or one "
            f"registered by register_target. interp-probe CHECKPOINT says what it runs"
        )
    if not model.spec.has_channels:
        model.require_maps("a probe of this task")
    queried = bool(query_tokens(task, model.spec))
    if not queried and model.spec.attention.keys != "causal":
        raise LayoutError(
            f"attention.keys is {model.spec.attention.keys!r}, expected 'causal' for {task.name}, whose every token is "
            f"read out"
        )
    chosen = find_targets(task, targets) if targets else known
    sound, published = find_protocols(known, protocols, chosen if targets else ())
    layers, places = _layers(model, layers), _positions(task, queried, positions)
    request = ProbeRequest(model, task, chosen, layers, places, prompts, seed, progress)
    rows, notes, parts = _sound(request) if sound else ([], [], {})
    for protocol in published:
        progress(f"probing as published ({protocol.name})")
        rows += protocol.scores(replace(request, targets=protocol.chosen(chosen, named=bool(targets))))
        notes += protocol.weaknesses
    probed = {row.target for row in rows}
    return ProbeReport(
        checkpoint=checkpoint_info(checkpoint),
        task=task.to_dict(),
        probes=tuple(rows),
        targets=tuple(
            ProbeTarget(name=t.name, formula=t.formula, source=t.source, expectation=t.expectation)
            for t in chosen
            if t.name in probed
        ),
        provenance=provenance(prompts, seed, command),
        notes=tuple(notes),
        **parts,
    )


def _sound(request: ProbeRequest) -> tuple[list[ProbeScore], list[str], dict[str, Any]]:
    """Scores with their controls, notes, and how linear implicit models are and interventions as fields of a report."""
    scores, notes = probe_model(request)
    request.progress("intervening")
    fits: tuple[ImplicitFit, ...] = ()
    if any("within-prompt" in target.kinds for target in request.targets):
        drawn = request.task.sample(min(request.prompts, CHUNK), request.seed)
        fits = implicit_fits(request.model, drawn, request.positions, request.layers)
    apart = int(np.random.SeedSequence((request.seed, 1)).generate_state(1)[0])
    moved, erased, skipped = intervene(replace(request, seed=apart))
    return scores, [*notes, *skipped], {"implicit": fits, "transplants": moved, "erasures": erased}


def default_probes(
    model: LinearTransformer, task: Task, prompts: int, seed: int
) -> tuple[tuple[ProbeScore, ...], str | None]:
    """The probes that an analysis makes: of the targets that are ``usual`` for the task, at the query or at a few
    positions of a sequence. And a note when there are none."""
    targets = [target for target in targets_of(task) if target.usual]
    positions: tuple[int | None, ...] = (None,)
    if not query_tokens(task, model.spec):
        positions = tuple(place for place in USUAL_POSITIONS if place < task.context) or (task.context - 1,)
    request = ProbeRequest(model, task, targets, range(model.layers + 1), positions, prompts, seed)
    try:
        scores, _ = probe_model(request, list(dict.fromkeys(kind for target in targets for kind in target.usual)))
    except UsageError as error:
        return (), f"probes: skipped, because {error}"
    return tuple(scores), None


def probe_model(request: ProbeRequest, kinds: Sequence[str] = KINDS) -> tuple[list[ProbeScore], tuple[str, ...]]:
    """The scores, by kind, target, position and layer, and notes on what was left out."""
    model, task, prompts = request.model, request.task, request.prompts
    if prompts < FEWEST_PROMPTS:
        raise UsageError(f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more to fit and score probes on")
    notes = []
    reader = Reader(model, (), request.positions)
    if "within-prompt" in kinds and (why := _without_implicit(reader, task)):
        kinds = [kind for kind in kinds if kind != "within-prompt"]
        notes.append(f"within-prompt probes: skipped, because {why}")
    wanted = batteries(task, request.targets, request.positions, kinds, reader.causal)
    reader = replace(reader, kinds=tuple(battery.kind for battery in wanted))
    read = sorted({0, *request.layers})  # the input is a control
    groups = _groups(model, wanted, len(read), prompts)
    seeds = [int(s) for s in np.random.SeedSequence(request.seed).generate_state(3)]
    chunk = _chunk(model, task)

    request.progress("reading activations")
    moments = gather(reader, wanted, read, stream(task, prompts, seeds[0], chunk), prompts, groups)
    dropped = max(int(m.dropped.sum()) for m in moments.values())
    if dropped:
        notes.append(f"{dropped} of {prompts} prompts diverge; they are left out of every figure")
    kept = [battery for battery in wanted if enough(moments[battery.kind])]
    diverge = f"skipped, because {dropped} of {prompts} prompts diverge"
    scores = [score for battery in wanted if battery not in kept for score in _unscored(battery, request, diverge)]
    if not kept:
        return scores, tuple(notes)
    affordable = int(CONTROL_OPERATIONS / operations(model, task.context, reader.shared_maps))
    few = min(prompts, CONTROL_PROMPTS, max(affordable, FEWEST_CONTROL_PROMPTS))
    same = list(stream(task, few, seeds[0], chunk))
    controls = measure_controls(request, reader, kept, read, same, min(groups, few), seeds[1])
    if controls.fewer:
        notes.append(f"controls, and the differences to them: on {few} prompts, and so is the R² that they belong to")

    request.progress("scoring")
    for battery in kept:
        scores += _scores(battery, moments[battery.kind], controls, request.layers, read, seeds[2])
    return scores, tuple(notes)


def _without_implicit(reader: Reader, task: Task) -> str | None:
    """Why implicit weights cannot be read; None when they can."""
    if not any("within-prompt" in target.kinds for target in targets_of(task)):
        return f"no target of {task.name} is one of a whole sequence: every one belongs to a token"
    width = reader.model.spec.width
    if reader.causal and reader.model.spec.no_map is not None:
        return str(reader.model.spec.no_map.reason)
    if reader.shared_maps or reader.causal or task.context + 1 > width:
        return None
    return (
        f"the {task.context + 1} tokens of a prompt leave {width} unknowns free, or determine them without a token "
        f"left to say how linear a clipped network still is"
    )


def _scores(
    battery: Battery, moments: Moments, controls: Controls, shown: Sequence[int], read: Sequence[int], seed: int
) -> list[ProbeScore]:
    fit = cross_fit(moments, battery.widths)
    out = []
    for number, target in enumerate(battery.targets):
        outputs = fit.targets[target.name]
        held_out = score(fit.held_out, outputs, seed)
        row = score_row(held_out, controls, battery.kind, outputs, seed)
        paired, nothing = controls.network(battery.kind, outputs, seed), (None, (None, None))
        for cell, layer in product(range(len(battery.positions)), shown):
            at = (read.index(layer), *((cell,) if battery.placed else ()))
            scored = held_out.r2.at(*at)[0] is not None
            out.append(
                row(
                    at,
                    layer=layer,
                    target=target.name,
                    position=battery.positions[cell],
                    mse=held_out.mse.at(*at)[0],
                    **with_error("paired_r2", nothing if paired is None else paired.at(*at)),
                    paired_prompts=None if paired is None else controls.fewer,
                    penalty=float(fit.penalty[(*at, number)]) if scored else None,
                    prompts=int(moments.count.sum()),
                    reason=None if scored else UNDEFINED,
                )
            )
    return out


def _unscored(battery: Battery, request: ProbeRequest, reason: str) -> list[ProbeScore]:
    row = partial(ProbeScore, kind=battery.kind, r2=None, r2_ci=(None, None), mse=None, control=dict.fromkeys(CONTROLS))
    places = product(battery.targets, battery.positions, request.layers)
    return [row(layer=layer, target=t.name, position=position, reason=reason) for t, position, layer in places]


def _layers(model: LinearTransformer, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Those asked for, or all."""
    shown = tuple(range(model.layers + 1)) if layers is None else tuple(sorted(set(layers)))
    if not shown or shown[0] < 0 or shown[-1] > model.layers:
        raise UsageError(
            f"asked for activations after {', '.join(map(str, shown))} layers, expected 0, the input, or 1 to "
            f"{model.layers}"
        )
    return shown


def _positions(task: Task, queried: bool, positions: Sequence[int] | None) -> tuple[int | None, ...]:
    """Those asked for; else the query where prompts have one, and steps through a sequence where they have none."""
    if positions is not None:
        wrong = [p for p in positions if not 0 <= p < task.context]
        if wrong or not positions:
            raise UsageError(
                f"asked for positions {', '.join(map(str, positions))}, expected 0 to {task.context - 1}: prompts have "
                f"{task.context} tokens{' before the query' if queried else ''}"
            )
        return tuple(sorted(set(positions)))
    if queried:
        return (None,)
    steps = [m * 10**k for k in range(6) for m in (1, 2, 5) if m * 10**k < task.context - 1]
    return (*steps[-MOST_POSITIONS + 1 :], task.context - 1)


def _chunk(model: LinearTransformer, task: Task) -> int:
    each = (task.context + 1) * model.spec.width * (model.layers + 1)
    return max(1, min(CHUNK, CHUNK_NUMBERS // each))


def _groups(model: LinearTransformer, wanted: Sequence[Battery], layers: int, prompts: int) -> int:
    """As many groups of sequences as fit in memory; more make smoother intervals."""
    D, each = model.spec.width, 0
    for battery in wanted:
        features = D * (D + 1) // 2 if battery.kind == "gram" else D
        each += layers * len(battery.positions) * features * (features + sum(battery.sizes))
    groups = min(GROUPS, MOMENT_NUMBERS // each)
    if groups < FEWEST_GROUPS:
        raise UsageError(
            f"probes of {layers} layers at {max(len(b.positions) for b in wanted)} positions of a model with D = "
            f"{model.spec.width} would take about {FEWEST_GROUPS * each * 8 / 2**30:.1f} GiB; ask for fewer with "
            f"--layers, --positions or --target"
        )
    return min(groups, prompts)
