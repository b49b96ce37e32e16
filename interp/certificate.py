"""How far the recovered algorithm agrees with its network: on fresh prompts of the task, and outside of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from interp.checkpoints.opening import Checkpoint
from interp.evidence.certified_closed_form import recognize_simple
from interp.evidence.certified_context import ContextComparison
from interp.evidence.certified_sequences import recognize_sequences
from interp.evidence.disagreement import Comparison, disagreement
from interp.families.scaling_law import eagle_law
from interp.identify.identified import identify, open_subject
from interp.identify.simple_identification import is_simple
from interp.models.tasks import MatrixCompletion
from interp.provenance import checkpoint_info, provenance, seeds_of
from interp.results import Certificate

__all__ = ["certify", "recognize"]


def recognize(
    checkpoint: Checkpoint, prompts: int, seed: int, progress: Callable[[str], None] = lambda step: None
) -> Comparison | None:
    """The network and the algorithm that it runs, identified as the main command does with the same ``prompts`` and
    ``seed``; None when the verdict is unrecognized.

    Raises as ``open_subject`` does, for causal models as ``open_causal``, for simple regression as ``open_simple``.
    """
    seeds = seeds_of(seed)
    if is_simple(checkpoint.model.spec):
        return recognize_simple(checkpoint, prompts, seeds, progress)
    if checkpoint.model.spec.attention.keys == "causal":
        return recognize_sequences(checkpoint, prompts, seeds, progress)
    subject = open_subject(checkpoint, prompts)
    found = identify(subject, prompts, seeds[:3], progress)
    if isinstance(found, str) or found.chosen is None:
        return None
    law = None
    if isinstance(subject.task, MatrixCompletion):
        progress("looking for EAGLE")
        law = eagle_law(found.chosen, found.network, subject.task, subject.model.spec, seeds[5])
    return ContextComparison.of(subject, found.chosen, law)


def certify(
    checkpoint: Checkpoint, comparison: Comparison, prompts: int, seed: int, command: str | None, own: int
) -> Certificate:
    """The certificate on ``prompts`` fresh prompts of each kind, from the seed ``own``; ``seed`` is that of the whole
    run."""
    kinds = {name: v for name, v in comparison.variations().items() if v.axis is None}
    seeds = [int(s) for s in np.random.SeedSequence(own).generate_state(len(kinds) + 1)]
    shown = comparison.examples(seeds[-1])
    return Certificate(
        checkpoint=checkpoint_info(checkpoint),
        provenance=provenance(prompts, seed, command),
        recovered=comparison.recovered,
        disagreements=tuple(
            disagreement(name, kind.label, kind.task, comparison, prompts, own_seed)
            for (name, kind), own_seed in zip(kinds.items(), seeds, strict=False)
        ),
        examples=shown.prompts.tolist(),
        network=shown.network.tolist(),
        algorithm=shown.algorithm.tolist(),
    )
