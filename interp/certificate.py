"""How far the recovered algorithm agrees with its network: on fresh prompts of the task, and outside of it.

Disagreement is |algorithm - network| of every number predicted. It is given in units of the root mean square of the
network's own predictions on the same prompts, because outside the task those may be of any size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import interp.families  # noqa: F401 - registers them
from interp.checkpoints.opening import Checkpoint
from interp.evidence.beyond import beyond
from interp.identify.choose import Choice, identify
from interp.identify.family import Fit
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import Variation
from interp.provenance import checkpoint_info, provenance
from interp.results import Certificate, Disagreement

__all__ = ["certify", "recognize"]

FEWEST = 16  # prompts left for which figures are given
MOST_NUMBERS = 2**22  # predicted numbers behind a quantile
MOST_SEQUENCES = 2**20  # numbers predicted on one kind of prompts
EXAMPLES, EXAMPLE_NUMBERS = 4, 16_384  # prompts that a certificate shows in full, at most


def recognize(
    checkpoint: Checkpoint, prompts: int, seed: int, progress: Callable[[str], None] = lambda step: None
) -> Choice | None:
    """Identified as the main command does with the same ``prompts`` and ``seed``; None when no algorithm is recognized.

    Raises as ``Run.of`` does.
    """
    choice = identify(Run.of(checkpoint, prompts, seed, progress, brief=True))
    return None if choice.chosen is None else choice


def certify(choice: Choice, prompts: int, command: str | None) -> Certificate:
    """The certificate of a recognized network on ``prompts`` fresh prompts of each kind."""
    run, chosen = choice.run, choice.chosen
    assert chosen is not None  # recognized
    kinds = {name: v for name, v in run.task.variations(run.spec.readout.flat).items() if v.axis is None}
    seeds = [int(s) for s in np.random.SeedSequence(run.seeds.certificate).generate_state(len(kinds) + 1)]
    examples, network, algorithm = _examples(run, chosen, seeds[-1])
    return Certificate(
        checkpoint=checkpoint_info(run.checkpoint),
        provenance=provenance(prompts, run.seed, command),
        recovered=chosen.family.recovered(chosen, run),
        disagreements=tuple(
            disagreement(name, kind, run, chosen, prompts, seed)
            for (name, kind), seed in zip(kinds.items(), seeds, strict=False)
        ),
        examples=examples,
        network=network,
        algorithm=algorithm,
    )


def _examples(run: Run, fit: Fit, seed: int) -> tuple[list[Any], list[Any], list[Any]]:
    """A few prompts in numbers that single precision holds exactly, and what both predict."""
    pool = run.task.sample(min(16 * EXAMPLES, run.task.most_prompts), seed)
    pool = pool[run.network.usable(pool)].rounded()
    count = max(1, min(EXAMPLES, EXAMPLE_NUMBERS // max(1, pool.rows()[0].numel())))
    drawn = pool[slice(0, count)]
    shape = drawn.target.shape
    network, algorithm = (p.reshape(shape) for p in (run.network.readouts(drawn)["network"], fit.predict(drawn)))
    if shape[1:] == (1, 1):
        network, algorithm = network[:, 0, 0], algorithm[:, 0, 0]
    return drawn.rows().tolist(), network.tolist(), algorithm.tolist()


def disagreement(name: str, kind: Variation, run: Run, fit: Fit, prompts: int, seed: int) -> Disagreement:
    """On ``prompts`` fresh prompts of one kind, as many of them as fit in memory."""
    task = kind.task
    row = partial(Disagreement, name=name, label=kind.label, seed=seed)

    def skipped(why: str, kept: int = 0, left_out: int = 0) -> Disagreement:
        described = {} if isinstance(task, Skipped) else task.to_dict()
        return row(task=described, prompts=kept, left_out=left_out, skipped=str(Skipped(why)))

    if isinstance(task, Skipped):
        return skipped(task.reason)
    count = min(prompts, task.most_prompts, max(FEWEST, MOST_SEQUENCES // task.context))
    if count < 1:
        return skipped("a single prompt does not fit in memory")
    here = beyond(run.network, fit.predict, task, count, seed)
    kept, left_out = here.prompts.count, here.left_out
    if kept < FEWEST:
        return skipped(f"{left_out} of {count} prompts diverge or meet the clip", kept, left_out)
    rms = float(here.network.square().mean().sqrt())
    apart = (here.algorithm - here.network).abs().flatten() / rms
    if not bool(torch.isfinite(apart).all()):
        return skipped("the recovered algorithm diverges, or the network predicts nothing", kept, left_out)
    score = here.score(seed)
    some = apart[: MOST_NUMBERS // here.network.shape[1] * here.network.shape[1]]
    median, q90, q99 = torch.quantile(some, torch.tensor([0.5, 0.9, 0.99], dtype=apart.dtype)).tolist()
    return row(
        task=task.to_dict(),
        prompts=kept,
        left_out=left_out,
        r2=score.fidelity,
        r2_ci=score.interval,
        rms=rms,
        median=median,
        q90=q90,
        q99=q99,
        largest=float(apart.max()),
    )
