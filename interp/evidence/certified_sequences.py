"""Certificates of causal models of linear dynamics: block-scalar heads, or one step of gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.channels import heads_of
from interp.checkpoints.opening import Checkpoint
from interp.evidence.disagreement import EXAMPLES, Compared, Example
from interp.families.channel_heads import BlockHeads, free_numbers, uncertainty
from interp.identify.sequence_identification import (
    FoundInSequences,
    Half,
    Subject,
    identify_sequences,
    open_causal,
    run_half,
    run_heads,
)
from interp.models.tasks import LinearDynamics, Variation
from interp.results import RecoveredHeads, RecoveredStep
from interp.solvers.next_state import Pairs

__all__ = ["SequenceComparison", "recognize_sequences"]

MOST_SEQUENCES = 512  # of every kind
EXAMPLE_NUMBERS = 1024  # that the examples hold, at most
SENSED = 256  # sequences behind the standard errors
DIGITS = 10  # of a coefficient


def recognize_sequences(
    checkpoint: Checkpoint, prompts: int, seeds: Sequence[int], progress: Callable[[str], None] = lambda step: None
) -> SequenceComparison | None:
    """None when the verdict is unrecognized. Raises as ``open_causal`` does."""
    subject = open_causal(checkpoint, prompts)
    found = identify_sequences(subject, prompts, seeds[:3], progress)
    if isinstance(found, str) or found.algorithm is None:
        return None
    recovered = _heads(subject, found, seeds[5]) if found.algorithm == "revalg" else _step(subject, found)
    return SequenceComparison(subject, recovered)


@dataclass(frozen=True, eq=False)
class SequenceComparison:
    """A ``Comparison``. R^2 is that of what is added to the tokens, as in the verdict."""

    subject: Subject
    recovered: RecoveredHeads | RecoveredStep

    def variations(self) -> Mapping[str, Variation]:
        return self.subject.task.variations()

    def compare(self, task: LinearDynamics, count: int, seed: int) -> Compared:
        half, lost = run_half(self.subject.model, task.sample(min(count, MOST_SEQUENCES), seed))
        return Compared(
            network=half.prediction.flatten(1),
            algorithm=self._predict(half).flatten(1),
            left_out=lost,
            why="diverge",
            held=(half.prediction - half.added).flatten(1),
        )

    def examples(self, seed: int) -> Example:
        task = self.subject.task
        count = max(1, min(EXAMPLES, EXAMPLE_NUMBERS // (task.context * task.dim)))
        half, _ = run_half(self.subject.model, task.sample(min(4 * EXAMPLES, task.most_prompts), seed))
        drawn = half.drawn[:count]
        half, _ = run_half(self.subject.model, replace(drawn, states=drawn.states.float().double()))
        return Example(half.drawn.states[:, :-1], half.prediction, self._predict(half))

    def _predict(self, half: Half) -> Float[Tensor, "sequence pos dim"]:
        found = self.recovered
        if isinstance(found, RecoveredHeads):
            k = torch.tensor(found.layers, dtype=torch.float64)
            return run_heads(self.subject, BlockHeads.of([heads_of(layer) for layer in k]), half)
        pairs, states = Pairs(half.drawn.states), half.drawn.states[:, :-1]
        held, decay = (_matrix(value, found.dim) for value in (found.held, found.decay))
        return states @ held.T + found.eta * pairs.descent - pairs.curvature @ decay.T


def _matrix(value: float | list[Any], dim: int) -> Float[Tensor, "dim dim"]:
    if isinstance(value, list):
        return torch.tensor(value, dtype=torch.float64)
    return value * torch.eye(dim, dtype=torch.float64)


def _shared(subject: Subject) -> dict[str, Any]:
    spec, task = subject.spec, subject.task
    contents = task.contents(len(spec.tokens)) or ()
    if not bool(task.start_matrix().any()):
        contents = tuple("zero" if content == "start" else content for content in contents)
    return {
        "dim": task.dim,
        "context": task.context,
        "channels": tuple(name for name, _ in spec.tokens),
        "contents": contents,
        "start": [list(row) for row in task.start] if isinstance(task.start, tuple) else float(task.start),
    }


def _readout(subject: Subject) -> int:
    return [name for name, _ in subject.spec.tokens].index(subject.spec.readout.channel)


def _heads(subject: Subject, found: FoundInSequences, seed: int) -> RecoveredHeads:
    spec = subject.spec
    live = torch.stack([found.live.maps(layer) for layer in range(len(found.heads.q))])
    k = torch.where(live, found.heads.k, 0.0)
    stderr: tuple[float | None, ...] = ()
    if found.how == "refit":
        free = free_numbers(found.live, found.heads.q.shape[1])
        tokens, target = found.fitted.tokens[:SENSED], found.fitted.prediction[:SENSED]
        known = uncertainty(spec, found.heads, free, tokens, target, seed).stderr
        most = [
            float(error[alive].max()) if bool(alive.any()) else 0.0 for error, alive in zip(known, live, strict=True)
        ]
        stderr = tuple(value if value == value else None for value in most)
    return RecoveredHeads(
        **_shared(subject),
        family="revalg",
        parameters=found.numbers,
        scale=spec.attention.scale,
        residual=spec.residual,
        clip=spec.clip,
        sign=spec.readout.sign,
        readout=_readout(subject),
        how=found.how,
        fit="weights" if found.how == "weights" else "predictions",
        layers=tuple(_rounded(layer.tolist()) for layer in k),
        stderr=stderr,
    )


def _rounded(value: Any) -> Any:
    return [_rounded(entry) for entry in value] if isinstance(value, list) else float(f"{value:.{DIGITS}g}")


def _step(subject: Subject, found: FoundInSequences) -> RecoveredStep:
    step, sign, task = found.step, subject.spec.readout.sign, subject.task
    assert step is not None  # the verdict is gd
    shared = _shared(subject)
    starts = shared["contents"][_readout(subject)] == "start"
    held = sign * task.start_matrix() if starts else torch.zeros(task.dim, task.dim, dtype=torch.float64)
    return RecoveredStep(
        **shared,
        family="gd",
        parameters=step.numbers,
        eta=step.eta,
        eta_stderr=step.eta_stderr if step.eta_stderr == step.eta_stderr else None,
        held=held.tolist() if isinstance(task.start, tuple) and starts else float(held[0, 0]),
        decay=(sign * step.eta * step.w0).tolist() if isinstance(step.w0, Tensor) else sign * step.eta * step.w0,
    )
