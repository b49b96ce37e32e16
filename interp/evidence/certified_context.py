"""Certificates of networks whose tokens share their keys: regression, and matrix completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from interp.algebra.linear_prompts import finite_and_clipped
from interp.evidence.disagreement import EXAMPLES, Compared, Example, Task
from interp.evidence.stress import predictions
from interp.identify.identification import Candidate
from interp.identify.identified import Subject
from interp.identify.recovered_algorithm import describe_recovered
from interp.models.tasks import (
    CompletionPrompts,
    ContextPrompts,
    ContextTask,
    MatrixCompletion,
    NoiseLaw,
    NoisyRegression,
)
from interp.results import Recovered, ScalingLaw

__all__ = ["ContextComparison", "completion_variations", "regression_variations"]

EXAMPLE_NUMBERS = 16_384  # that the examples hold, at most


@dataclass(frozen=True, eq=False)
class ContextComparison:
    """A ``Comparison``. Both scale their sums by the number of examples that there are."""

    subject: Subject
    chosen: Candidate
    recovered: Recovered

    @classmethod
    def of(cls, subject: Subject, chosen: Candidate, law: ScalingLaw | None) -> ContextComparison:
        return cls(subject, chosen, describe_recovered(chosen, subject.model.spec, subject.task, law))

    def variations(self) -> Mapping[str, tuple[str, Task | str]]:
        task = self.subject.task
        return regression_variations(task) if isinstance(task, NoisyRegression) else completion_variations(task)

    def compare(self, task: ContextTask, count: int, seed: int) -> Compared:
        drawn = task.sample(count, seed)
        finite, clipped = finite_and_clipped(self.subject.model, drawn)
        kept = drawn[finite & ~clipped]
        network, algorithm = predictions(self.subject.model, self.chosen, kept)
        return Compared(network, algorithm, count - kept.count, "diverge or meet the clip")

    def examples(self, seed: int) -> Example:
        task = self.subject.task
        queries, outputs = (task.queries, task.outputs) if isinstance(task, MatrixCompletion) else (1, 1)
        count = max(1, min(EXAMPLES, EXAMPLE_NUMBERS // ((task.context + queries) * (task.dim + outputs))))
        pool = task.sample(min(16 * EXAMPLES, task.most_prompts), seed)
        finite, clipped = finite_and_clipped(self.subject.model, pool)
        drawn = _rounded(pool[finite & ~clipped][:count])
        network, algorithm = predictions(self.subject.model, self.chosen, drawn)
        if isinstance(task, MatrixCompletion):
            shape = (-1, queries, outputs)
            return Example(_tokens(drawn), network.reshape(shape), algorithm.reshape(shape))
        return Example(_tokens(drawn), network[:, 0], algorithm[:, 0])


def _rounded(drawn: ContextPrompts) -> ContextPrompts:
    names = ("A", "B", "C") if isinstance(drawn, CompletionPrompts) else ("x", "y", "x_query")
    return replace(drawn, **{name: getattr(drawn, name).float().double() for name in names})


def _tokens(drawn: ContextPrompts) -> Tensor:
    """Rows (x, y), queries last."""
    if isinstance(drawn, CompletionPrompts):
        x, y, queries = drawn.A, drawn.C, drawn.B
    else:
        x, y, queries = drawn.x, drawn.y[..., None], drawn.x_query[:, None]
    hidden = y.new_zeros(len(y), queries.shape[1], y.shape[2])
    return torch.cat([torch.cat([x, y], -1), torch.cat([queries, hidden], -1)], 1)


def _louder(noise: NoiseLaw) -> NoiseLaw:
    return NoiseLaw(kind=noise.kind, values=tuple(2 * v for v in noise.values))


def regression_variations(task: NoisyRegression) -> dict[str, tuple[str, NoisyRegression | str]]:
    spectrum = task.covariance or (1.0,) * task.dim

    def scaled(factor: float) -> NoisyRegression:
        return replace(task, covariance=tuple(factor**2 * v for v in spectrum))

    quiet = "the task has no noise"
    return {
        "task": ("as trained", task),
        "noise x2": ("twice the noise", task.with_noise(_louder(task.noise)) if task.noise.largest > 0 else quiet),
        "context x1/2": (
            "half the examples",
            replace(task, context=task.context // 2) if task.context > 1 else "the task has a single example",
        ),
        "context x2": ("twice the examples", replace(task, context=2 * task.context)),
        "inputs x1/2": ("inputs half as large", scaled(0.5)),
        "inputs x2": ("inputs twice as large", scaled(2.0)),
    }


def completion_variations(task: MatrixCompletion) -> dict[str, tuple[str, MatrixCompletion | str]]:
    """Rank and spectrum change, the variance of an entry, (sum of the squared spectrum) / rank, does not."""
    kernel = "a kernel matrix has its own size, rank and scale" if task.kernel is not None else None
    variance = sum(v**2 for v in task.spectrum) / len(task.spectrum)

    def scaled(factor: float) -> MatrixCompletion:
        noise = NoiseLaw(kind=task.noise.kind, values=tuple(factor * v for v in task.noise.values))
        return replace(task, spectrum=tuple(factor * v for v in task.spectrum), noise=noise)

    def of_spectrum(values: tuple[float, ...]) -> MatrixCompletion:
        factor = (variance / (sum(v**2 for v in values) / len(values))) ** 0.5
        return replace(task, spectrum=tuple(factor * v for v in values))

    rank = len(task.spectrum)
    largest = tuple(sorted(task.spectrum, reverse=True))
    flat = len(set(task.spectrum)) == 1
    single = "the matrices are of rank 1" if rank == 1 else None
    return {
        "task": ("as trained", task),
        "noise x2": (
            "twice the noise",
            replace(task, noise=_louder(task.noise)) if task.noise.largest > 0 else "the task has no noise",
        ),
        "rows x1/2": (
            "half the complete rows",
            kernel
            or (replace(task, context=task.context // 2) if task.context > 1 else "there is a single complete row"),
        ),
        "rows x2": ("twice the complete rows", kernel or replace(task, context=2 * task.context)),
        "entries x1/2": ("entries half as large", kernel or scaled(0.5)),
        "entries x5/4": ("entries a quarter larger", kernel or scaled(1.25)),
        "rank x1/2": ("half the rank", kernel or single or of_spectrum(largest[: rank // 2])),
        "rank x2": ("twice the rank", kernel or of_spectrum(tuple(v for v in largest for _ in range(2)))),
        "flat spectrum": (
            "a flat spectrum",
            kernel or ("the spectrum is flat" if flat else of_spectrum((1.0,) * rank)),
        ),
    }
