"""What is asked of probes and interventions: which targets, where in the network, on how many prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interp.models.tasks import Target, Task
from interp.models.transformer import LinearTransformer

__all__ = ["ProbeRequest"]


@dataclass(frozen=True, eq=False)
class ProbeRequest:
    """``targets`` looked for in a model of float64 weights after ``layers`` layers, 0 being the input, in the tokens at
    ``positions`` (None: the query), on ``prompts`` prompts of ``task``."""

    model: LinearTransformer
    task: Task
    targets: Sequence[Target]
    layers: Sequence[int]
    positions: tuple[int | None, ...]
    prompts: int
    seed: int
    progress: Callable[[str], None] = lambda step: None
