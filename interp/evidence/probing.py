"""Probes of one checkpoint, with their controls, as one result.

All prompts go through the network once; the controls (untrained models, targets of other prompts, the inputs alone)
are scored on the first of them, together with the network itself, so that differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.evidence.implicit_fits import implicit_fits
from interp.evidence.interventions import causal_checks
from interp.evidence.probe_controls import CONTROLS, Controls, enough, measure_controls
from interp.evidence.published import SOUND, WEAKNESSES, default_protocols, find_protocols, published_scores
from interp.models.errors import LayoutError, UsageError
from interp.models.tasks import (
    LinearDynamics,
    MatrixCompletion,
    NoisyRegression,
    SimpleRegression,
    task_of,
)
from interp.models.transformer import LinearTransformer
from interp.probes.across import Battery, batteries, gather
from interp.probes.activations import Reader, Task, stream
from interp.probes.intervals import score
from interp.probes.moments import Moments
from interp.probes.ridge import cross_fit
from interp.probes.targets import KINDS, NEXT, PUBLISHED, Target, default_targets, find_targets
from interp.provenance import checkpoint_info, provenance
from interp.results import Erasure, ImplicitFit, ProbeReport, ProbeScore, ProbeTarget, Transplant

__all__ = ["DEFAULT_PROMPTS", "default_probes", "default_sequence_probes", "probe_checkpoint", "probe_model"]

DEFAULT_PROMPTS = 4096
FEWEST_PROMPTS = 64
CHUNK = 2048  # prompts held at a time, when tokens are few and small
CHUNK_NUMBERS = 2**23  # at most so many numbers of a chunk's tokens over all layers
GROUPS, FEWEST_GROUPS = 128, 32  # of sequences; half of them are fitted, half scored
MOMENT_NUMBERS = 2**26  # at most so many numbers of moments: 512 MiB
CONTROL_PROMPTS, FEWEST_CONTROL_PROMPTS = 2048, 384  # as many as CONTROL_OPERATIONS allow
CONTROL_OPERATIONS = 2e9  # on the prompts of the controls, by each of the networks
MOST_POSITIONS = 8  # of a causal model, when none are named
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
    ``protocols`` (when empty, the sound one, and for linear dynamics the mesa paper's).

    ``layers`` are layers run, 0 being the input; ``positions`` are tokens of the context or sequence, by default the
    query or, for causal models of a sequence, a few from the first to the last. Raises UsageError for a target, layer,
    position or number of prompts that does not fit; LayoutError for a task that is not known or not the model's;
    UnreadableFile for weights that are not finite.
    """
    model = checkpoint.model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    if isinstance(task, (SimpleRegression, MatrixCompletion)):
        raise LayoutError(
            f"task.name is {task.name!r}, for which there are no probes; expected {NoisyRegression.name!r} or "
            f"{LinearDynamics.name!r}. interp-probe CHECKPOINT says what it runs"
        )
    model.require_maps("a probe of this task")
    if isinstance(task, LinearDynamics) and model.spec.attention.keys != "causal":
        raise LayoutError(
            f"attention.keys is {model.spec.attention.keys!r}, expected 'causal' for {task.name}, whose every token is "
            f"read out"
        )
    chosen = find_targets(task.name, targets) if targets else default_targets(task.name)
    wanted = find_protocols(task.name, protocols or default_protocols(task.name), chosen if targets else ())
    shown, _ = _layers(model, layers)
    places = _positions(task, positions)
    parts = _Parts()
    if SOUND in wanted:
        parts = _sound(model, task, chosen, shown, places, prompts, seed, progress)
    notes = list(parts.notes)
    rows = list(parts.probes)
    for protocol in (name for name in wanted if name != SOUND):
        progress(f"probing as published ({protocol})")
        rows += published_scores(model, task, chosen if targets else (), places, shown, prompts, seed, progress)
        notes += WEAKNESSES[protocol]
    found = {row.target for row in rows}
    return ProbeReport(
        checkpoint=checkpoint_info(checkpoint),
        task=task.to_dict(),
        probes=tuple(rows),
        targets=tuple(
            ProbeTarget(name=t.name, formula=t.formula, source=t.source, expectation=t.expectation)
            for t in chosen
            if t.name in found
        ),
        provenance=provenance(prompts, seed, command),
        implicit=parts.implicit,
        transplants=parts.transplants,
        erasures=parts.erasures,
        notes=tuple(notes),
    )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What the sound protocol gives."""

    probes: tuple[ProbeScore, ...] = ()
    implicit: tuple[ImplicitFit, ...] = ()
    transplants: tuple[Transplant, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    notes: tuple[str, ...] = ()


def _sound(
    model: LinearTransformer,
    task: Task,
    targets: Sequence[Target],
    layers: Sequence[int],
    positions: tuple[int | None, ...],
    prompts: int,
    seed: int,
    progress: Callable[[str], None],
) -> _Parts:
    """Scores with their controls, how linear implicit models are, and causal checks."""
    named = None if positions == (None,) else [p for p in positions if p is not None]
    scores, notes = probe_model(model, task, targets, KINDS, layers, named, prompts, seed, progress)
    progress("intervening")
    fits: tuple[ImplicitFit, ...] = ()
    if isinstance(task, NoisyRegression) and any("within-prompt" in target.kinds for target in targets):
        fits = implicit_fits(model, task.sample(min(prompts, CHUNK), seed), positions, layers)
    own = int(np.random.SeedSequence((seed, 1)).generate_state(1)[0])
    moved, erased, skipped = causal_checks(model, task, targets, layers, positions, prompts, own)
    return _Parts(probes=scores, implicit=fits, transplants=moved, erasures=erased, notes=(*notes, *skipped))


def default_probes(
    model: LinearTransformer, task: NoisyRegression, prompts: int, seed: int
) -> tuple[tuple[ProbeScore, ...], str | None]:
    """A few probes of a model of regression, and a note when there are none: what the implicit weights and the query
    token hold of the task."""
    targets = find_targets(task.name, ("w", "w-ridge", "label", "preconditioned"))
    try:
        scores, _ = probe_model(
            model, task, targets, ("within-prompt", "token"), None, None, prompts, seed, lambda step: None
        )
    except UsageError as error:
        return (), f"probes: skipped, because {error}"
    return scores, None


def default_sequence_probes(
    model: LinearTransformer, task: LinearDynamics, prompts: int, seed: int
) -> tuple[tuple[ProbeScore, ...], str | None]:
    """The two probes of the mesa paper, of the next and of the preconditioned state (exact inverse, and the paper's six
    steps), by layer at a few positions, and a note when there are none."""
    targets = find_targets(task.name, (NEXT, "preconditioned", PUBLISHED))
    positions = [place for place in (5, 10, 20, 49) if place < task.context] or [task.context - 1]
    try:
        scores, _ = probe_model(model, task, targets, ("token",), None, positions, prompts, seed, lambda step: None)
    except UsageError as error:
        return (), f"probes: skipped, because {error}"
    return scores, None


def probe_model(
    model: LinearTransformer,
    task: Task,
    targets: Sequence[Target],
    kinds: Sequence[str],
    layers: Sequence[int] | None,
    positions: Sequence[int] | None,
    prompts: int,
    seed: int,
    progress: Callable[[str], None],
) -> tuple[tuple[ProbeScore, ...], tuple[str, ...]]:
    """The scores, by kind, target, position and layer, and notes on what was left out."""
    if prompts < FEWEST_PROMPTS:
        raise UsageError(f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more to fit and score probes on")
    shown, read = _layers(model, layers)
    places = _positions(task, positions)
    notes = []
    reader = Reader(model, (), places)
    if "within-prompt" in kinds and (why := _without_implicit(reader, task)):
        kinds = [kind for kind in kinds if kind != "within-prompt"]
        notes.append(f"within-prompt probes: skipped, because {why}")
    wanted = batteries(task, targets, places, kinds, reader.causal)
    reader = replace(reader, kinds=tuple(battery.kind for battery in wanted))
    groups = _groups(model, wanted, len(read), prompts)
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3)]
    chunk = _chunk(model, task)

    progress("reading activations")
    moments = gather(reader, task, wanted, read, stream(task, prompts, seeds[0], chunk), prompts, groups)
    dropped = max(int(m.dropped.sum()) for m in moments.values())
    if dropped:
        notes.append(f"{dropped} of {prompts} prompts diverge; they are left out of every figure")
    lost = [battery for battery in wanted if not enough(moments[battery.kind])]
    kept = [battery for battery in wanted if battery not in lost]
    diverge = f"skipped, because {dropped} of {prompts} prompts diverge"
    scores = [score for battery in lost for score in _unscored(battery, shown, diverge)]
    if not kept:
        return tuple(scores), tuple(notes)
    affordable = int(CONTROL_OPERATIONS / _operations(reader, task))
    few = min(prompts, CONTROL_PROMPTS, max(affordable, FEWEST_CONTROL_PROMPTS))
    same = list(stream(task, few, seeds[0], chunk))
    fewer = few if few < prompts else None
    controls = measure_controls(reader, task, kept, read, same, min(groups, few), fewer, seeds[1], progress)
    if fewer:
        notes.append(f"controls, and the differences to them: on {few} prompts, and so is the R² that they belong to")

    progress("scoring")
    for battery in kept:
        scores += _scores(battery, moments[battery.kind], controls, shown, read, seeds[2])
    return tuple(scores), tuple(notes)


def _without_implicit(reader: Reader, task: Task) -> str | None:
    """Why implicit weights cannot be read; None when they can."""
    if isinstance(task, LinearDynamics):
        return f"no target of {task.name} is one of a whole sequence: every one belongs to a token"
    width = reader.model.spec.width
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
        found = score(fit.held_out, outputs, seed)
        compared = controls.selectivity(battery.kind, outputs, seed)
        paired = controls.network(battery.kind, outputs, seed)
        for cell, layer in product(range(len(battery.positions)), shown):
            at = (read.index(layer), *((cell,) if battery.placed else ()))
            r2, r2_ci = found.r2.at(*at)
            gaps = {name: entry.gap.at(*at) for name, entry in compared.items()} if r2 is not None else {}
            paired_r2, paired_ci = (None, (None, None)) if paired is None else paired.at(*at)
            out.append(
                ProbeScore(
                    layer=layer,
                    target=target.name,
                    kind=battery.kind,
                    position=battery.positions[cell],
                    r2=r2,
                    r2_ci=r2_ci,
                    mse=found.mse.at(*at)[0],
                    variance=_known(found.variance[at]),
                    control={name: _known(compared[name].control[at]) if compared else None for name in CONTROLS},
                    selectivity={name: value for name, (value, _) in gaps.items()},
                    selectivity_ci={name: ci for name, (_, ci) in gaps.items()},
                    paired_r2=paired_r2,
                    paired_r2_ci=paired_ci,
                    paired_prompts=None if paired is None else controls.fewer,
                    penalty=None if r2 is None else float(fit.penalty[(*at, number)]),
                    prompts=int(moments.count.sum()),
                    reason=None if r2 is not None else UNDEFINED,
                )
            )
    return out


def _unscored(battery: Battery, shown: Sequence[int], reason: str) -> list[ProbeScore]:
    return [
        ProbeScore(
            layer=layer, target=target.name, kind=battery.kind, position=position, r2=None, r2_ci=(None, None),
            mse=None, control=dict.fromkeys(CONTROLS), reason=reason,
        )
        for target, position, layer in product(battery.targets, battery.positions, shown)
    ]  # fmt: skip


def _known(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _layers(model: LinearTransformer, layers: Sequence[int] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those asked for, and those read: the input is a control, and is always read."""
    shown = tuple(range(model.layers + 1)) if layers is None else tuple(sorted(set(layers)))
    if not shown or shown[0] < 0 or shown[-1] > model.layers:
        raise UsageError(
            f"asked for activations after {', '.join(map(str, shown))} layers, expected 0, the input, or 1 to "
            f"{model.layers}"
        )
    return shown, tuple(sorted({0, *shown}))


def _positions(task: Task, positions: Sequence[int] | None) -> tuple[int | None, ...]:
    if positions is not None:
        wrong = [p for p in positions if not 0 <= p < task.context]
        if wrong or not positions:
            raise UsageError(
                f"asked for positions {', '.join(map(str, positions))}, expected 0 to {task.context - 1}: prompts have "
                f"{task.context} tokens{'' if isinstance(task, LinearDynamics) else ' before the query'}"
            )
        return tuple(sorted(set(positions)))
    if not isinstance(task, LinearDynamics):
        return (None,)
    steps = [m * 10**k for k in range(6) for m in (1, 2, 5) if m * 10**k < task.context - 1]
    return (*steps[-MOST_POSITIONS + 1 :], task.context - 1)


def _chunk(model: LinearTransformer, task: Task) -> int:
    each = (task.context + 1) * model.spec.width * (model.layers + 1)
    return max(1, min(CHUNK, CHUNK_NUMBERS // each))


def _operations(reader: Reader, task: Task) -> float:
    """Floating-point operations of one prompt, roughly."""
    model, D, tokens = reader.model, reader.model.spec.width, task.context + 1
    if reader.shared_maps:
        return 4.0 * model.layers * (model.heads + 2) * D**3
    return 4.0 * model.layers * model.heads * (tokens * D**2 + tokens**2 * D)


def _groups(model: LinearTransformer, wanted: Sequence[Battery], layers: int, prompts: int) -> int:
    """As many groups of sequences as fit in memory; more make smoother intervals."""
    each = 0
    for battery in wanted:
        features = model.spec.width * (model.spec.width + 1) // 2 if battery.kind == "gram" else model.spec.width
        each += layers * len(battery.positions) * features * (features + sum(battery.sizes))
    groups = min(GROUPS, MOMENT_NUMBERS // each)
    if groups < FEWEST_GROUPS:
        raise UsageError(
            f"probes of {layers} layers at {max(len(b.positions) for b in wanted)} positions of a model with D = "
            f"{model.spec.width} would take about {FEWEST_GROUPS * each * 8 / 2**30:.1f} GiB; ask for fewer with "
            f"--layers, --positions or --target"
        )
    return min(groups, prompts)
