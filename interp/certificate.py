"""How far the recovered algorithm agrees with its network: on fresh prompts of the task, and outside of it.

Disagreement is |algorithm - network| per prompt. It is given in units of the root mean square of the network's own
predictions on the same prompts, because outside the task those may be of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.opening import Checkpoint
from interp.identification import Candidate, bootstrap_fidelity
from interp.identified import Subject
from interp.linear_prompts import finite_and_clipped
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.provenance import checkpoint_info, provenance
from interp.recovered_algorithm import describe_recovered
from interp.results import Certificate, Disagreement
from interp.stress import predictions

__all__ = ["certify", "variations"]

FEWEST = 16  # prompts left for which figures are given
EXAMPLES, EXAMPLE_NUMBERS = 4, 16_384  # prompts shown in full: so many, while they hold no more numbers


def variations(task: NoisyRegression) -> dict[str, tuple[str, NoisyRegression | str]]:
    """The task and tasks outside of it, by name, each with a label for people; or why there is no such task."""
    noise = task.noise
    louder = NoiseLaw(kind=noise.kind, values=tuple(2 * v for v in noise.values))
    spectrum = task.covariance or (1.0,) * task.dim

    def scaled(factor: float) -> NoisyRegression:
        return replace(task, covariance=tuple(factor**2 * v for v in spectrum))

    return {
        "task": ("as trained", task),
        "noise x2": ("twice the noise", task.with_noise(louder) if noise.largest > 0 else "the task has no noise"),
        "context x1/2": (
            "half the examples",
            replace(task, context=task.context // 2) if task.context > 1 else "the task has a single example",
        ),
        "context x2": ("twice the examples", replace(task, context=2 * task.context)),
        "inputs x1/2": ("inputs half as large", scaled(0.5)),
        "inputs x2": ("inputs twice as large", scaled(2.0)),
    }


def certify(
    checkpoint: Checkpoint, subject: Subject, chosen: Candidate, prompts: int, seed: int, command: str | None, own: int
) -> Certificate:
    """The certificate of the chosen family on ``prompts`` fresh prompts of each kind, from the seed ``own``; ``seed``
    is that of the whole run."""
    assert isinstance(subject.task, NoisyRegression)  # the command refuses others
    kinds = variations(subject.task)
    seeds = [int(s) for s in np.random.SeedSequence(own).generate_state(len(kinds) + 1)]
    tokens, network, algorithm = _examples(subject, chosen, seeds[-1])
    return Certificate(
        checkpoint=checkpoint_info(checkpoint),
        provenance=provenance(prompts, seed, command),
        recovered=describe_recovered(chosen, subject.model.spec, subject.task),
        disagreements=tuple(
            _disagreement(name, label, task, subject, chosen, prompts, own_seed)
            for (name, (label, task)), own_seed in zip(kinds.items(), seeds, strict=False)
        ),
        examples=tokens.tolist(),
        network=network.tolist(),
        algorithm=algorithm.tolist(),
    )


def _disagreement(
    name: str,
    label: str,
    task: NoisyRegression | str,
    subject: Subject,
    chosen: Candidate,
    prompts: int,
    seed: int,
) -> Disagreement:
    if isinstance(task, str):
        return _skipped(name, label, {}, seed, 0, 0, task)
    count = min(prompts, task.most_prompts)
    if count < 1:
        return _skipped(name, label, task.to_dict(), seed, 0, 0, "a single prompt does not fit in memory")
    drawn = task.sample(count, seed)
    finite, clipped = finite_and_clipped(subject.model, drawn)
    kept = drawn[finite & ~clipped]
    left_out = count - kept.count
    if kept.count < FEWEST:
        why = f"{left_out} of {count} prompts diverge or meet the clip"
        return _skipped(name, label, task.to_dict(), seed, kept.count, left_out, why)
    network, algorithm = predictions(subject.model, chosen, kept)
    rms = float(network.square().mean().sqrt())
    apart = (algorithm - network).abs().flatten() / rms
    if not bool(torch.isfinite(apart).all()):
        why = "the recovered algorithm diverges, or the network predicts nothing"
        return _skipped(name, label, task.to_dict(), seed, kept.count, left_out, why)
    score = bootstrap_fidelity(algorithm, network, seed)
    median, q90, q99 = torch.quantile(apart, torch.tensor([0.5, 0.9, 0.99], dtype=apart.dtype)).tolist()
    return Disagreement(
        name=name,
        label=label,
        task=task.to_dict(),
        seed=seed,
        prompts=kept.count,
        left_out=left_out,
        r2=score.fidelity,
        r2_ci=score.interval,
        rms=rms,
        median=median,
        q90=q90,
        q99=q99,
        largest=float(apart.max()),
    )


def _skipped(
    name: str, label: str, task: Mapping[str, Any], seed: int, prompts: int, left_out: int, why: str
) -> Disagreement:
    return Disagreement(
        name=name, label=label, task=task, seed=seed, prompts=prompts, left_out=left_out, r2=None, r2_ci=(None, None),
        rms=None, median=None, q90=None, q99=None, largest=None, skipped=f"skipped, because {why}",
    )  # fmt: skip


def _examples(
    subject: Subject, chosen: Candidate, seed: int
) -> tuple[Float[Tensor, "prompt token channel"], Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """A few prompts rounded to single precision as tokens (x, y), query last, and what both predict on them."""
    task = subject.task
    assert isinstance(task, NoisyRegression)  # as above
    count = max(1, min(EXAMPLES, EXAMPLE_NUMBERS // ((task.context + 1) * (task.dim + 1))))
    pool = task.sample(min(16 * EXAMPLES, task.most_prompts), seed)
    finite, clipped = finite_and_clipped(subject.model, pool)
    drawn = pool[finite & ~clipped][:count]
    drawn = replace(drawn, **{name: getattr(drawn, name).float().double() for name in ("x", "y", "x_query")})
    network, algorithm = predictions(subject.model, chosen, drawn)
    query = torch.cat([drawn.x_query, torch.zeros_like(drawn.y[:, :1])], -1)
    tokens = torch.cat([torch.cat([drawn.x, drawn.y[..., None]], -1), query[:, None]], 1)
    return tokens, network[:, 0], algorithm[:, 0]
