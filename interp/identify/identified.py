"""A network run on prompts of its task, the families fitted to it, and the one that explains it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.gauge import LiveCoordinates, beyond_rounding, live_coordinates, regauged
from interp.algebra.linear_prompts import gram_prompts, usable
from interp.checkpoints.opening import Checkpoint
from interp.identify.estimates import LARGEST, Prompts, Sensitivities, bounded_weights, predict, sensitivities
from interp.identify.identification import Candidate, choose, fit_families
from interp.models.errors import LayoutError, UsageError
from interp.models.gram import GramTrajectory, HeadLayers, head_layers
from interp.models.tasks import Examples, MatrixCompletion, Task, task_of
from interp.models.transformer import LinearTransformer

__all__ = ["Half", "Identified", "Subject", "identify", "open_subject"]

FEWEST_PROMPTS = 64
FEW = 64  # prompts enough for a zero pattern
MEMORY = 8 * 2**30  # bytes that the intermediate matrices of a run may take


@dataclass(frozen=True, eq=False)
class Subject:
    """What is analysed: the network of a checkpoint in float64, and its task."""

    model: LinearTransformer
    task: Task


def open_subject(checkpoint: Checkpoint, prompts: int) -> Subject:
    """The subject of a checkpoint, if it can be identified on ``prompts`` prompts.

    Raises LayoutError when the model or its task is of a kind that has no families yet, UnreadableFile for weights that
    are not finite, UsageError for a number of prompts that is too small or needs too much memory.
    """
    model = checkpoint.model.require_finite().to(torch.float64)
    spec, task = model.spec, task_of(model.spec.task)
    task.fits(model)
    if spec.attention.keys == "causal":
        raise LayoutError(
            "attention.keys is 'causal', expected 'context' or 'all': this needs keys that all tokens share; "
            "interp-probe CHECKPOINT identifies causal models, interp-probe inspect shows what the file holds"
        )
    _require_affordable(model, prompts)
    return Subject(model, task)


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


@dataclass(frozen=True, eq=False)
class Half:
    """Half of the prompts, with the network's passage through them."""

    drawn: Examples
    prompts: Prompts
    trajectory: GramTrajectory


@dataclass(frozen=True, eq=False)
class Identified:
    """``chosen`` is None when no family explains the network, ``closest`` when none could be scored either."""

    network: HeadLayers
    live: LiveCoordinates
    fitted: Half
    held_out: Half
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    why: Mapping[str, str]  # by family, why it is or is not the one
    note: str | None  # on prompts left out, or of a bounded weight

    @property
    def closest(self) -> Candidate | None:
        """The chosen family, or the one that comes closest."""
        return self.chosen or _closest(self.candidates)


def identify(
    subject: Subject, prompts: int, seeds: Sequence[int], progress: Callable[[str], None] = lambda step: None
) -> Identified | str:
    """Fit the families on half of ``prompts`` prompts and score them on the other half; ``seeds`` are for the first,
    the second, and the intervals. Returns why there is nothing to identify when the network cannot be run."""
    model, task, spec = subject.model, subject.task, subject.model.spec
    progress("running the network")
    (fitted, _, _), (held_out, note, hopeless) = (usable(model, task.sample(prompts // 2, s)) for s in seeds[:2])
    if hopeless is not None:
        return hopeless
    network = head_layers(model, task.context)
    fit_prompts, test_prompts = gram_prompts(fitted, spec), gram_prompts(held_out, spec)
    live = live_coordinates(network, fit_prompts.gram[:FEW], fit_prompts.query[:FEW], fit_prompts.readout)
    sensed = _sensed(network, fit_prompts)
    trajectory, reference, weight = _weighed(network, test_prompts)

    progress("fitting the families")
    structured = isinstance(task, MatrixCompletion)
    exploding = int((weight < 1).sum())
    if exploding:
        bounded = (
            f"{exploding} of {held_out.count} held-out prompts, where the network's prediction, or what a change of "
            f"its layers does to it, is above {LARGEST:g} times its median, count in the fidelity as if it were that"
        )
        note = bounded if note is None else f"{note}; {bounded}"
    candidates = fit_families(
        network, spec, live, fit_prompts, sensed, test_prompts, reference, weight, seeds[2], structured
    )
    chosen, why = choose(candidates)
    return Identified(
        network=network,
        live=live,
        fitted=Half(fitted, fit_prompts, sensed.trajectory),
        held_out=Half(held_out, test_prompts, trajectory),
        candidates=candidates,
        chosen=chosen,
        why=why,
        note=note,
    )


def _sensed(network: HeadLayers, prompts: Prompts) -> Sensitivities:
    sensed = sensitivities(network, prompts)
    return replace(sensed, prediction=_without_rounding(sensed.prediction, network, prompts))


def _weighed(
    network: HeadLayers, prompts: Prompts
) -> tuple[GramTrajectory, Float[Tensor, "prompt output"], Float[Tensor, " prompt"]]:
    """The network's passage through the prompts, its predictions, and how much each prompt counts."""
    sensed = _sensed(network, prompts)
    return sensed.trajectory, sensed.prediction, bounded_weights(network, sensed)


def _without_rounding(
    prediction: Float[Tensor, "prompt output"], network: HeadLayers, prompts: Prompts
) -> Float[Tensor, "prompt output"]:
    """0 where heads that cancel leave nothing but rounding, so that no family is fitted to it."""
    return torch.where(beyond_rounding(prediction, predict(regauged(network), prompts)), prediction, 0.0)


def _closest(candidates: Sequence[Candidate]) -> Candidate | None:
    scored = [c for c in candidates if c.score.fidelity is not None]
    return max(scored, key=lambda c: c.score.fidelity or 0.0, default=None)
