"""The main job: one checkpoint in, one ``Analysis`` out.

Prompts are drawn from the task of the checkpoint with seeds derived from one: half to fit on, half to score on, and
others for whatever else is asked. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import interp.evidence
import interp.families  # noqa: F401 - both rooms register what they hold
from interp.checkpoints.opening import Checkpoint
from interp.evidence.question import QUESTIONS, Answer, Question
from interp.identify.choose import Choice, identify
from interp.identify.losses import ladder
from interp.identify.run import DEFAULT_PROMPTS, Run
from interp.identify.verdict import family_rows, verdict
from interp.models.skipped import Skipped
from interp.provenance import checkpoint_info, provenance, recorded_weights
from interp.results import Analysis, Evidence, Section

__all__ = ["DEFAULT_PROMPTS", "analyse"]

ASKED = "only the verdict was asked for"


def analyse(
    checkpoint: Checkpoint,
    prompts: int = DEFAULT_PROMPTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
    *,
    verdict_only: bool = False,
    questions: Iterable[Question] | None = None,
) -> Analysis:
    """Identify the algorithm of a checkpoint on ``prompts`` prompts of its task, and answer ``questions`` (None: all
    that are registered, or with ``verdict_only`` those that belong to the verdict).

    Raises LayoutError when the model and its task do not fit, UnreadableFile for weights that are not finite,
    UsageError for a number of prompts that is too small or needs too much memory.
    """
    run = Run.of(checkpoint, prompts, seed, progress, verdict_only)
    choice = identify(run)
    asked = QUESTIONS.values() if questions is None else questions
    answers = {q.name: q(choice, run) for q in asked if q.brief or not verdict_only}
    return _assembled(run, choice, answers, provenance(prompts, seed, command, verdict_only))


def _assembled(
    run: Run, choice: Choice, answers: Mapping[str, Answer | Section | Skipped | None], origin: Mapping[str, Any]
) -> Analysis:
    filled = [answer for answer in answers.values() if isinstance(answer, Answer)]
    fields: dict[str, Any] = {"layers": (), "implicit": ()}  # what an answer need not have
    fields |= {name: value for answer in filled for name, value in answer.fields.items()}
    skipped = {name: answer.reason for name, answer in answers.items() if isinstance(answer, Skipped)}
    skipped |= {part: reason for answer in filled for part, reason in answer.skipped.items()}
    if run.brief:
        skipped["further evidence"] = ASKED
    losses = choice.losses
    depth = tuple(row for row in losses.rows if row.name.startswith("layer-"))
    inner = {name.removeprefix("evidence."): fields.pop(name) for name in list(fields) if name.startswith("evidence.")}
    chosen = choice.chosen
    return Analysis(
        checkpoint=checkpoint_info(run.checkpoint),
        task=run.task.to_dict(),
        words=run.task.words,
        provenance=origin,
        weights=recorded_weights(run.model),
        families=family_rows(choice, run),
        verdict=verdict(choice, run),
        recovered=None if chosen is None else chosen.family.recovered(chosen, run),
        evidence=Evidence(
            prompts=losses.prompts,
            held_out=run.network.judged.drawn.count,
            losses=ladder(tuple(row for row in losses.rows if row not in depth)),
            depth_losses=depth,
            notes=(*run.network.notes, *(note for answer in filled for note in answer.notes)),
            **inner,
        ),
        skipped=skipped,
        answers={name: answer for name, answer in answers.items() if isinstance(answer, Section)},
        **fields,
    )
