"""The recovered algorithm against its network on fresh prompts of one kind, whatever the task.

Disagreement is |algorithm - network| of every number predicted. It is given in units of the root mean square of the
network's own predictions on the same prompts, because outside the task those may be of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identify.identification import bootstrap_fidelity
from interp.models.skipped import Skipped
from interp.models.tasks import Task, Variation
from interp.results import Disagreement, RecoveredAlgorithm

__all__ = ["EXAMPLES", "Compared", "Comparison", "Example", "disagreement"]

FEWEST = 16  # prompts left for which figures are given
MOST_NUMBERS = 2**22  # predicted numbers behind a quantile
EXAMPLES = 4  # prompts that a certificate shows in full, at most


@dataclass(frozen=True, eq=False)
class Compared:
    """What both predict on the prompts that count, and how many were ``left_out`` as ``why`` says. ``held``: what the
    tokens hold before the first layer, which R^2 leaves out (None: nothing)."""

    network: Float[Tensor, "prompt output"]
    algorithm: Float[Tensor, "prompt output"]
    left_out: int
    why: str
    held: Float[Tensor, "prompt output"] | None = None


@dataclass(frozen=True, eq=False)
class Example:
    """A few prompts, rounded to single precision, and what both predict, as ``Certificate`` lays them out."""

    prompts: Tensor
    network: Tensor
    algorithm: Tensor


@runtime_checkable  # so that beartype can check it in tests
class Comparison(Protocol):
    """A network and what was recovered from it, for one kind of task."""

    @property
    def recovered(self) -> RecoveredAlgorithm: ...

    def variations(self) -> Mapping[str, Variation]:
        """The task and tasks outside of it, by name, each with a label for people; or why there is no such task."""
        ...

    def compare(self, task: Any, count: int, seed: int) -> Compared:
        """On ``count`` fresh prompts of ``task``, one of the variations."""
        ...

    def examples(self, seed: int) -> Example: ...


def disagreement(
    name: str, label: str, task: Task | Skipped, comparison: Comparison, prompts: int, seed: int
) -> Disagreement:
    if isinstance(task, Skipped):
        return _skipped(name, label, {}, seed, 0, 0, task.reason)
    count = min(prompts, task.most_prompts)
    if count < 1:
        return _skipped(name, label, task.to_dict(), seed, 0, 0, "a single prompt does not fit in memory")
    found = comparison.compare(task, count, seed)
    kept, left_out = len(found.network), found.left_out
    if kept < FEWEST:
        why = f"{left_out} of {kept + left_out} prompts {found.why}"
        return _skipped(name, label, task.to_dict(), seed, kept, left_out, why)
    rms = float(found.network.square().mean().sqrt())
    apart = (found.algorithm - found.network).abs().flatten() / rms
    if not bool(torch.isfinite(apart).all()):
        why = "the recovered algorithm diverges, or the network predicts nothing"
        return _skipped(name, label, task.to_dict(), seed, kept, left_out, why)
    held = torch.zeros_like(found.network) if found.held is None else found.held
    score = bootstrap_fidelity(found.algorithm - held, found.network - held, seed)
    some = apart[: MOST_NUMBERS // found.network.shape[1] * found.network.shape[1]]
    median, q90, q99 = torch.quantile(some, torch.tensor([0.5, 0.9, 0.99], dtype=apart.dtype)).tolist()
    return Disagreement(
        name=name,
        label=label,
        task=task.to_dict(),
        seed=seed,
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


def _skipped(
    name: str, label: str, task: Mapping[str, Any], seed: int, prompts: int, left_out: int, why: str
) -> Disagreement:
    return Disagreement(
        name=name, label=label, task=task, seed=seed, prompts=prompts, left_out=left_out, r2=None, r2_ci=(None, None),
        rms=None, median=None, q90=None, q99=None, largest=None, skipped=f"skipped, because {why}",
    )  # fmt: skip
