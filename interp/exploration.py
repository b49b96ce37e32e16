"""From checkpoints to what the weight explorer shows: parts, coefficients, dead cells, alignment.

Any checkpoint that loads will do: causal keys, no task, weights that are not finite. What cannot be computed is NaN,
with a note.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.algebra.alignment import align, canonical, weight_distance
from interp.algebra.basis import BasisMap
from interp.algebra.gauge import LiveCoordinates, live_coordinates
from interp.algebra.weight_parts import (
    block_scalar_part,
    coefficients_of,
    copy_map,
    identity_multiples,
    singular_values,
    split,
    trace_map,
)
from interp.checkpoints.opening import Checkpoint, open_checkpoint
from interp.models.errors import InterpProbeError, LayoutError, UsageError
from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import MatrixCompletion, NoisyRegression, task_of
from interp.models.transformer import LinearTransformer
from interp.provenance import checkpoint_info
from interp.results.explored import LAYER_MAPS, MATRICES, Coefficient, Exploration, Explored, Gauge

__all__ = ["explore"]

MOST_NUMBERS = 14_000_000  # of all steps of a training together; more steps are left out, evenly
PROMPTS = 4  # that dead cells are looked for on; which they are hangs on structure, not on the sample
_STEP = re.compile(r"(?:step|iteration|iter|epoch|ckpt|checkpoint)[-_=. ]*(\d+)", re.IGNORECASE)

Progress = Callable[[str], None]


def explore(
    references: Sequence[str],
    spec: str | None = None,
    progress: Progress = lambda step: None,
    command: str | None = None,
) -> Exploration:
    """Everything the page shows, for one checkpoint, two to compare, or three and more as steps of a training.

    Raises UsageError when they cannot be shown together, and what ``open_checkpoint`` raises.
    """
    if not references:
        raise UsageError("no checkpoint to explore, expected at least one")
    progress(f"reading {references[0]}")
    first = open_checkpoint(references[0], spec)
    if first.model.spec.embedding is not None:
        raise LayoutError(
            f"the tokens of {first.name} are embedded, so its matrices have no channels to show by name; interp-probe "
            f"{first.name} --report draws them"
        )
    in_series = len(references) > 2
    steps = [_step(references[0], first, in_series)]
    size = first.model.Q.numel() + first.model.P.numel()
    references, notes = _affordable(references, size)
    opened = [first]
    for number, reference in enumerate(references[1:], 2):
        progress(f"reading {reference} ({number} of {len(references)})")
        opened.append(open_checkpoint(reference, spec))
        notes += _require_alike(first, opened[-1])
        steps.append(_step(reference, opened[-1], in_series))
    if len(opened) > 2:
        opened, steps, order_notes = _ordered(opened, steps)
        notes += order_notes
        first = opened[0]
    heads = max(checkpoint.model.heads for checkpoint in opened)
    if len({checkpoint.model.heads for checkpoint in opened}) > 1:
        notes.append(f"heads differ in number; missing ones are shown as zeros, up to {heads}")
    names, maps = coefficients_of(first.model.spec)
    explored: list[Explored] = []
    seen: dict[str, int] = {}
    for index, (checkpoint, step) in enumerate(zip(opened, steps, strict=True)):
        where = f"{checkpoint.name} ({index + 1} of {len(opened)})" if len(opened) > 1 else checkpoint.name
        entry = _explored(
            checkpoint,
            step,
            heads,
            names,
            maps,
            explored[0] if explored else None,
            seen,
            lambda t, w=where: progress(f"{w}: {t}"),
        )
        seen.setdefault(entry.weights_sha256, index)
        if entry.same_as is not None:
            notes.append(f"{entry.info.name} holds the same weights as {explored[entry.same_as].info.name}")
        explored.append(entry)
    return Exploration(
        checkpoints=tuple(explored),
        tokens=first.model.spec.tokens,
        coefficients=names,
        notes=tuple(dict.fromkeys(notes)),
        command=command,
    )


def _affordable(references: Sequence[str], size: int) -> tuple[list[str], list[str]]:
    most = max(2, MOST_NUMBERS // size)
    if len(references) <= most:
        return list(references), []
    kept = sorted({round(k * (len(references) - 1) / (most - 1)) for k in range(most)})
    note = (
        f"{len(references) - len(kept)} of {len(references)} checkpoints are left out, evenly, to keep the page small"
    )
    return [references[k] for k in kept], [note]


def _step(reference: str, checkpoint: Checkpoint, in_series: bool) -> int | None:
    """The training step, from the file's provenance, else from its name; any number in it will do in a series."""
    for key in ("step", "steps", "iteration", "epoch"):
        value = checkpoint.model.spec.provenance.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value
    name = re.sub(r"\.[A-Za-z]+$", "", re.split(r"[/\\]", reference)[-1])
    found = _STEP.findall(name) or (re.findall(r"\d+", name) if in_series else [])
    return int(found[-1]) if found and len(found[-1]) < 16 else None


def _ordered(opened: list[Checkpoint], steps: list[int | None]) -> tuple[list[Checkpoint], list[int | None], list[str]]:
    """By training step, where every checkpoint has one of its own; else as given."""
    if None in steps:
        unknown = [c.name for c, step in zip(opened, steps, strict=True) if step is None]
        return opened, [None] * len(opened), [f"no training step is known of {', '.join(unknown)}: order as given"]
    if len(set(steps)) < len(steps):
        return opened, [None] * len(opened), ["training steps repeat in the names: order as given"]
    order = sorted(range(len(opened)), key=lambda k: steps[k] or 0)
    notes = (
        []
        if order == list(range(len(opened)))
        else ["The files are shown in the order of their training steps, not in the order given."]
    )
    return [opened[k] for k in order], [steps[k] for k in order], notes


def _require_alike(first: Checkpoint, other: Checkpoint) -> list[str]:
    """Raises UsageError when two checkpoints have no cells in common; notes on what else differs."""
    a, b = first.model, other.model
    for what, mine, theirs in (("tokens", a.spec.tokens, b.spec.tokens), ("layers", a.layers, b.layers)):
        if mine != theirs:
            shown = (
                (dict(mine), dict(theirs)) if isinstance(mine, tuple) and isinstance(theirs, tuple) else (mine, theirs)
            )
            raise UsageError(
                f"{first.name} has {what} {shown[0]}, but {other.name} {shown[1]}; checkpoints shown together need the "
                "same tokens and layers: explore them one at a time"
            )
    differ = {
        "attention.keys": (a.spec.attention.keys, b.spec.attention.keys),
        "attention.scale": (a.spec.attention.scale, b.spec.attention.scale),
        "residual": (a.spec.residual, b.spec.residual),
        "clip": (a.spec.clip, b.spec.clip),
        "readout": (a.spec.readout, b.spec.readout),
    }
    return [
        f"{what} differs between {first.name} and {other.name}: weights are compared as they are"
        for what, (mine, theirs) in differ.items()
        if mine != theirs
    ]


# --- one checkpoint -------------------------------------------------------------------------------------------------


def _explored(
    checkpoint: Checkpoint,
    step: int | None,
    heads: int,
    names: tuple[Coefficient, ...],
    maps: tuple[BasisMap, ...] | None,
    first: Explored | None,
    seen: Mapping[str, int],
    progress: Progress,
) -> Explored:
    model = checkpoint.model
    stored = {"Q": _padded(model.Q, heads), "P": _padded(model.P, heads)}
    Q, P = (stored[name].astype(np.float64) for name in MATRICES)
    spec, layers = model.spec, model.layers
    digest = hashlib.sha256(Q.tobytes() + P.tobytes()).hexdigest()
    progress("looking for dead cells")
    live, how = _live(model)
    progress("gauge-free maps and coefficients")
    coefficients = np.full((layers, len(names)), np.nan)
    shares = np.full((layers, 3), np.nan)
    free = {name: np.full((layers, spec.width, spec.width), np.nan) for name in LAYER_MAPS}
    with np.errstate(all="ignore"):  # weights may be huge or not finite, and what comes of them is then not finite too
        scalars = {name: identity_multiples(matrix, spec) for name, matrix in (("Q", Q), ("P", P))}
        for layer in range(layers):
            free["copy"][layer] = copy_map(P[layer], Q[layer])
            free["trace"][layer] = trace_map(P[layer], Q[layer])
            if np.isfinite(free["copy"][layer]).all() and np.isfinite(free["trace"][layer]).all():
                part = split(P[layer], Q[layer], names, maps, scalars, live, layer, spec)
                coefficients[layer], free["left"][layer], shares[layer] = part
        order, factor = zip(*(canonical(P[layer], Q[layer]) for layer in range(layers)), strict=True)
        progress("singular values")
        rest = {name: matrix - block_scalar_part(scalars[name], spec) for name, matrix in (("Q", Q), ("P", P))}
        spectra = singular_values({"Q": Q, "P": P, "Q.rest": rest["Q"], "P.rest": rest["P"], **free})
        to_first, differences, distance, head_distance = _compared(Q, P, free, live, first, progress)
    return Explored(
        info=checkpoint_info(checkpoint),
        step=step,
        weights_sha256=digest,
        same_as=seen.get(digest),
        Q=stored["Q"],
        P=stored["P"],
        maps=free,
        scalars=scalars,
        spectra=spectra,
        canonical=Gauge(order=np.stack(order), factor=np.stack(factor)),
        coefficients=coefficients,
        shares=shares,
        live_maps=live.maps.numpy(),
        live_channels=live.channels.numpy(),
        live_how=how,
        to_first=to_first,
        difference_spectra=differences,
        distance=distance,
        head_distance=head_distance,
    )


def _padded(weights: torch.Tensor, heads: int) -> NDArray[np.floating[Any]]:
    """In the file's precision where numpy has it, else exactly in float32; with zero heads up to ``heads``."""
    kept = weights if weights.dtype in (torch.float32, torch.float64) else weights.to(torch.float32)
    missing = heads - kept.shape[1]
    return np.pad(kept.numpy(), ((0, 0), (0, missing), (0, 0), (0, 0)))


# --- dead cells -----------------------------------------------------------------------------------------------------


def _live(model: LinearTransformer) -> tuple[LiveCoordinates, str]:
    """Which entries of the layers' maps can move the prediction, and how that was found out."""
    try:
        wide = model.to(torch.float64)
        task = task_of(model.spec.task)
        prompts = task.sample(PROMPTS, 0)
        grams = prompts.grams(model.spec)
        network = head_layers(wide.require_finite(), task.context)
        if not bool(torch.isfinite(forward(network, grams.gram, grams.query).queries[-1]).all()):
            raise UsageError("the network diverges on its own task")
        readout = _readout(model.spec)
        found = live_coordinates(network, grams.gram, grams.query, readout)
        return found, f"derivatives of the prediction on {PROMPTS} prompts of the task"
    except (InterpProbeError, AttributeError, RuntimeError):
        return _reachable(model), f"which weights are zero, whatever the tokens are: {_unrun(model)}"


def _unrun(model: LinearTransformer) -> str:
    """Why no prompts were run."""
    if not all(bool(torch.isfinite(value).all()) for _, value in model.named()):
        return "not all weights are finite, so no prompts were run"
    task = model.spec.task
    if not task:
        return "the file names no task to run prompts of"
    if model.spec.attention.keys == "causal" or task.get("name") not in (NoisyRegression.name, MatrixCompletion.name):
        return "prompts are run for regression and matrix completion alone"
    return "the network could not be run on prompts of its task"


def _readout(spec: ModelSpec) -> list[int]:
    channel = spec.channel(spec.readout.channel)
    return list(range(channel.start, channel.start + channel.size))


def _reachable(model: LinearTransformer) -> LiveCoordinates:
    """By the pattern of zero weights alone, whatever the tokens: T[a, e] is live if a later layer, or the read-out,
    reads a, and some head writes it from e."""
    P, Q = (matrix.numpy() != 0 for matrix in (model.P.to(torch.float64), model.Q.to(torch.float64)))
    D = model.spec.width
    needed = np.zeros(D, dtype=bool)
    needed[_readout(model.spec)] = True
    maps = np.zeros((model.layers, D, D), dtype=bool)
    for layer in reversed(range(model.layers)):
        maps[layer] = needed[:, None]  # any e: a weight that is zero today is not dead
        writes = P[layer][:, needed].any((1, 2))
        read = np.zeros(D, dtype=bool)
        for head in np.flatnonzero(writes):
            read |= P[layer, head][needed].any(0) | Q[layer, head].any(0) | Q[layer, head].any(1)
        needed = read | needed if model.spec.residual else read
    return LiveCoordinates(maps=torch.from_numpy(maps), channels=torch.ones(model.layers, D, dtype=torch.bool))


# --- against the first checkpoint -----------------------------------------------------------------------------------


def _compared(
    Q: Float[np.ndarray, "layer head D D"],
    P: Float[np.ndarray, "layer head D D"],
    free: Mapping[str, Float[np.ndarray, "layer D D"]],
    live: LiveCoordinates,
    first: Explored | None,
    progress: Progress,
) -> tuple[
    Gauge | None,
    dict[str, Float[np.ndarray, "*owner D"]],
    Float[np.ndarray, " layer"],
    Float[np.ndarray, "layer head"],
]:
    layers, heads = Q.shape[:2]
    if first is None:
        return None, {}, np.zeros(layers), np.zeros((layers, heads))
    progress("aligning with the first")
    to_Q, to_P = first.Q.astype(np.float64), first.P.astype(np.float64)
    order, factor = zip(*(align(P[layer], Q[layer], to_P[layer], to_Q[layer]) for layer in range(layers)), strict=True)
    gauge = Gauge(order=np.stack(order), factor=np.stack(factor))
    scale = gauge.factor[:, :, None, None]
    rows = np.arange(layers)[:, None]
    dQ, dP = Q[rows, gauge.order] / scale - to_Q, P[rows, gauge.order] * scale - to_P
    spectra = singular_values({"Q": dQ, "P": dP, **{name: free[name] - first.maps[name] for name in LAYER_MAPS}})
    # What can move the prediction of either network.
    maps, channels = live.maps.numpy() | first.live_maps, live.channels.numpy() | first.live_channels
    distance = np.array(
        [
            weight_distance(P[layer], Q[layer], to_P[layer], to_Q[layer], maps[layer], channels[layer])
            for layer in range(layers)
        ]
    )
    norms = [np.square(m).sum((2, 3)) for m in (dQ, dP, to_Q, to_P)]
    # P and Q weigh the same, whatever the scale the first checkpoint has them in.
    parts = [
        np.divide(d, t, out=np.where(d > 0, np.nan, 0.0), where=t > 0)
        for d, t in zip(norms[:2], norms[2:], strict=True)
    ]
    return gauge, spectra, distance, np.sqrt(0.5 * (parts[0] + parts[1]))
