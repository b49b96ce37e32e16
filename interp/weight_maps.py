"""From checkpoints to what the weight explorer shows: parts, coefficients, dead cells, alignment.

Any checkpoint that loads will do: causal keys, no task, weights that are not finite. What cannot be computed is NaN,
with a note.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.algebra.alignment import align, canonical, weight_distance
from interp.algebra.gauge import LiveCoordinates, live_coordinates
from interp.algebra.unrolling import label_indices
from interp.algebra.weight_parts import (
    LayerBasis,
    block_scalar_part,
    gauge_free_parts,
    identity_multiples,
    layer_basis,
    singular_values,
)
from interp.checkpoints.opening import Checkpoint, open_checkpoint
from interp.checkpoints.reading import Described
from interp.errors import InterpProbeError, LayoutError, UsageError
from interp.models.gram import forward, head_layers
from interp.models.skipped import Skipped
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer
from interp.provenance import checkpoint_info
from interp.results.weight_maps import LAYER_MAPS, CheckpointMaps, Gauge, WeightMaps

__all__ = ["explore"]

MOST_NUMBERS = 14_000_000  # of all steps of a training together; more steps are left out, evenly
PROMPTS = 4  # that dead cells are looked for on; which they are hangs on structure, not on the sample
_STEP = re.compile(r"(?:step|iteration|iter|epoch|ckpt|checkpoint)[-_=. ]*(\d+)", re.IGNORECASE)


def explore(
    references: Sequence[str],
    spec: Described = None,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> WeightMaps:
    """Everything the page shows, for one checkpoint, two to compare, or three and more as steps of a training.

    Raises UsageError when they cannot be shown together, and what ``open_checkpoint`` raises.
    """
    opened, steps, notes = _opened(references, spec, progress)
    heads = max(checkpoint.model.heads for checkpoint in opened)
    if any(checkpoint.model.heads < heads for checkpoint in opened):
        notes.append(f"heads differ in number; missing ones are shown as zeros, up to {heads}")
    basis = layer_basis(opened[0].model.spec)
    shown: list[CheckpointMaps] = []
    for number, (checkpoint, step) in enumerate(zip(opened, steps, strict=True), 1):
        progress(f"maps of {checkpoint.name} ({number} of {len(opened)})")
        entry = _checkpoint_maps(checkpoint, step, heads, basis, shown)
        if entry.same_as is not None:
            notes.append(f"{entry.info.name} holds the same weights as {shown[entry.same_as].info.name}")
        shown.append(entry)
    return WeightMaps(
        checkpoints=tuple(shown),
        tokens=opened[0].model.spec.tokens,
        coefficients=basis.coefficients,
        notes=tuple(dict.fromkeys(notes)),
        command=command,
    )


# --- which checkpoints, in which order ------------------------------------------------------------------------------


def _opened(
    references: Sequence[str], spec: Described, progress: Callable[[str], None]
) -> tuple[list[Checkpoint], list[int | None], list[str]]:
    """The checkpoints, their training steps, and notes on what is left out, reordered or different."""
    if not references:
        raise UsageError("no checkpoint to explore, expected at least one")
    progress(f"reading {references[0]}")
    first = open_checkpoint(references[0], spec)
    if not first.model.spec.has_channels:
        raise LayoutError(
            f"the tokens of {first.name} are embedded, so its matrices have no channels to show by name; interp-probe "
            f"{first.name} --report draws them"
        )
    kept, notes = _affordable(references, first.model.Q.numel() + first.model.P.numel())
    opened = [first]
    for number, reference in enumerate(kept[1:], 2):
        progress(f"reading {reference} ({number} of {len(kept)})")
        opened.append(open_checkpoint(reference, spec))
        notes += _require_alike(first, opened[-1])
    steps = [_step(name, c, len(references) > 2) for name, c in zip(kept, opened, strict=True)]
    if len(opened) < 3:
        return opened, steps, notes
    unordered: list[int | None] = [None] * len(opened)
    if None in steps:
        unknown = ", ".join(c.name for c, step in zip(opened, steps, strict=True) if step is None)
        return opened, unordered, [*notes, f"no training step is known of {unknown}: order as given"]
    if len(set(steps)) < len(steps):
        return opened, unordered, [*notes, "training steps repeat in the names: order as given"]
    order = sorted(range(len(opened)), key=lambda k: steps[k] or 0)
    if order != list(range(len(opened))):
        notes.append("The files are shown in the order of their training steps, not in the order given.")
    return [opened[k] for k in order], [steps[k] for k in order], notes


def _affordable(references: Sequence[str], size: int) -> tuple[list[str], list[str]]:
    most = max(2, MOST_NUMBERS // size)
    if len(references) <= most:
        return list(references), []
    kept = sorted({round(k * (len(references) - 1) / (most - 1)) for k in range(most)})
    left_out = f"{len(references) - len(kept)} of {len(references)} checkpoints are left out, evenly"
    return [references[k] for k in kept], [f"{left_out}, to keep the page small"]


def _step(reference: str, checkpoint: Checkpoint, in_series: bool) -> int | None:
    """The training step, from the file's provenance, else from its name; any number in it will do in a series."""
    for key in ("step", "steps", "iteration", "epoch"):
        value = checkpoint.model.spec.provenance.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
            return value
    name = re.sub(r"\.[A-Za-z]+$", "", re.split(r"[/\\]", reference)[-1])
    numbers = _STEP.findall(name) or (re.findall(r"\d+", name) if in_series else [])
    return int(numbers[-1]) if numbers and len(numbers[-1]) < 16 else None


def _require_alike(first: Checkpoint, other: Checkpoint) -> list[str]:
    """Raises UsageError when two checkpoints have no cells in common; notes on what else differs."""
    a, b = first.model, other.model
    for what, one, another in (
        ("tokens", dict(a.spec.tokens), dict(b.spec.tokens)),
        ("layers", a.layers, b.layers),
        ("tokens", a.spec.tokens, b.spec.tokens),  # their order
    ):
        if one != another:
            raise UsageError(
                f"{first.name} has {what} {one}, but {other.name} {another}; checkpoints shown together need the "
                "same tokens and layers: explore them one at a time"
            )
    differ = ("attention.keys", "attention.scale", "residual", "clip", "readout")
    return [
        f"{what} differs between {first.name} and {other.name}: weights are compared as they are"
        for what in differ
        if attrgetter(what)(a.spec) != attrgetter(what)(b.spec)
    ]


# --- one checkpoint -------------------------------------------------------------------------------------------------


def _checkpoint_maps(
    checkpoint: Checkpoint, step: int | None, heads: int, basis: LayerBasis, before: Sequence[CheckpointMaps]
) -> CheckpointMaps:
    """``before``: the checkpoints already done; the first is what this one is compared with."""
    model, spec = checkpoint.model, checkpoint.model.spec
    stored = {"Q": _padded(model.Q, heads), "P": _padded(model.P, heads)}
    Q, P = (stored[name].astype(np.float64) for name in ("Q", "P"))
    digest = hashlib.sha256(Q.tobytes() + P.tobytes()).hexdigest()
    live = _live(model)
    how = f"derivatives of the prediction on {PROMPTS} prompts of the task"
    if isinstance(live, Skipped):
        live, how = _reachable(model), f"which weights are zero, whatever the tokens are: {live.reason}"
    with np.errstate(all="ignore"):  # weights may be huge or not finite, and what comes of them is then not finite too
        scalars = {"Q": identity_multiples(Q, spec), "P": identity_multiples(P, spec)}
        maps, coefficients, shares = gauge_free_parts(P, Q, scalars, basis, live)
        rest = {f"{name}.rest": m - block_scalar_part(scalars[name], spec) for name, m in (("Q", Q), ("P", P))}
        return CheckpointMaps(
            info=checkpoint_info(checkpoint),
            step=step,
            weights_sha256=digest,
            same_as=next((k for k, entry in enumerate(before) if entry.weights_sha256 == digest), None),
            Q=stored["Q"],
            P=stored["P"],
            maps=maps,
            scalars=scalars,
            spectra=singular_values({"Q": Q, "P": P, **rest, **maps}),
            canonical=_gauge([canonical(*pair) for pair in zip(P, Q, strict=True)]),
            coefficients=coefficients,
            shares=shares,
            live_maps=live.maps.numpy(),
            live_channels=live.channels.numpy(),
            live_how=how,
            **_compared(Q, P, maps, live, before[0] if before else None),
        )


def _padded(weights: torch.Tensor, heads: int) -> NDArray[np.floating[Any]]:
    """In the file's precision where numpy has it, else exactly in float32; with zero heads up to ``heads``."""
    kept = weights if weights.dtype in (torch.float32, torch.float64) else weights.to(torch.float32)
    return np.pad(kept.numpy(), ((0, 0), (0, heads - kept.shape[1]), (0, 0), (0, 0)))


def _gauge(layers: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Gauge:
    order, factor = zip(*layers, strict=True)
    return Gauge(order=np.stack(order), factor=np.stack(factor))


# --- dead cells -----------------------------------------------------------------------------------------------------


def _live(model: LinearTransformer) -> LiveCoordinates | Skipped:
    """Which entries of the layers' maps can move the prediction, by its derivatives on prompts of the task."""
    if model.spec.task is None:
        return Skipped("the file names no task to run prompts of")
    if model.spec.attention.keys == "causal":
        return Skipped("with causal keys the tokens of a prompt share no Gram matrix")
    try:
        wide, task = model.to(torch.float64).require_finite(), task_of(model.spec.task)
        task.fits(wide)
        layers, prompts = head_layers(wide, task.context), task.sample(PROMPTS, 0)
        if not hasattr(prompts, "grams"):
            return Skipped("the tokens of its prompts share no Gram matrix")
        grams = prompts.grams(model.spec)
        if not bool(torch.isfinite(forward(layers, grams.gram, grams.query).queries[-1]).all()):
            return Skipped("the network diverges on its own task")
        return live_coordinates(layers, grams.gram, grams.query, label_indices(model.spec)[1])
    except InterpProbeError as error:
        return Skipped(str(error))


def _reachable(model: LinearTransformer) -> LiveCoordinates:
    """By the pattern of zero weights alone, whatever the tokens: T[a, e] is live if a later layer, or the read-out,
    reads a, and some head writes it from e."""
    P, Q = (matrix.numpy() != 0 for matrix in (model.P.to(torch.float64), model.Q.to(torch.float64)))
    D = model.spec.width
    needed = np.zeros(D, dtype=bool)
    needed[label_indices(model.spec)[1]] = True
    maps = np.zeros((model.layers, D, D), dtype=bool)
    for layer in reversed(range(model.layers)):
        maps[layer] = needed[:, None]  # any e: a weight that is zero today is not dead
        writes = P[layer][:, needed].any((1, 2))
        read = P[layer, writes][:, needed].any((0, 1)) | Q[layer, writes].any((0, 1)) | Q[layer, writes].any((0, 2))
        needed = read | needed if model.spec.residual else read
    return LiveCoordinates(maps=torch.from_numpy(maps), channels=torch.ones(model.layers, D, dtype=torch.bool))


# --- against the first checkpoint -----------------------------------------------------------------------------------


def _compared(
    Q: Float[np.ndarray, "layer head D D"],
    P: Float[np.ndarray, "layer head D D"],
    maps: Mapping[str, Float[np.ndarray, "layer D D"]],
    live: LiveCoordinates,
    first: CheckpointMaps | None,
) -> dict[str, Any]:
    """The fields of ``CheckpointMaps`` that compare it with the first."""
    layers, heads = Q.shape[:2]
    if first is None:
        zeros = {"distance": np.zeros(layers), "head_distance": np.zeros((layers, heads))}
        return {"to_first": None, "difference_spectra": {}, **zeros}
    to_Q, to_P = first.Q.astype(np.float64), first.P.astype(np.float64)
    every = list(zip(P, Q, to_P, to_Q, strict=True))
    gauge = _gauge([align(*layer) for layer in every])
    scale = gauge.factor[:, :, None, None]
    rows = np.arange(layers)[:, None]
    dQ, dP = Q[rows, gauge.order] / scale - to_Q, P[rows, gauge.order] * scale - to_P
    # What can move the prediction of either network.
    cells, channels = live.maps.numpy() | first.live_maps, live.channels.numpy() | first.live_channels
    distance = [weight_distance(*layer, *either) for layer, *either in zip(every, cells, channels, strict=True)]
    sizes = [np.square(m).sum((2, 3)) for m in (dQ, dP, to_Q, to_P)]
    # P and Q weigh the same, whatever the scale the first checkpoint has them in.
    parts = [
        np.divide(d, t, out=np.where(d > 0, np.nan, 0.0), where=t > 0)
        for d, t in zip(sizes[:2], sizes[2:], strict=True)
    ]
    differences = {"Q": dQ, "P": dP, **{name: maps[name] - first.maps[name] for name in LAYER_MAPS}}
    return {
        "to_first": gauge,
        "difference_spectra": singular_values(differences),
        "distance": np.array(distance),
        "head_distance": np.sqrt(0.5 * (parts[0] + parts[1])),
    }
