"""Certificates of networks whose tokens share their keys: regression, and matrix completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interp.algebra.linear_prompts import finite_and_clipped
from interp.evidence.disagreement import EXAMPLES, Compared, Example
from interp.evidence.stress import predictions
from interp.identify.identification import Candidate
from interp.identify.identified import Subject
from interp.identify.recovered_algorithm import describe_recovered
from interp.models.tasks import MatrixCompletion, Task, Variation
from interp.results import Recovered, ScalingLaw

__all__ = [
    "ContextComparison",
]

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

    def variations(self) -> Mapping[str, Variation]:
        return self.subject.task.variations()

    def compare(self, task: Task, count: int, seed: int) -> Compared:
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
        drawn = pool[finite & ~clipped][:count].rounded()
        network, algorithm = predictions(self.subject.model, self.chosen, drawn)
        if isinstance(task, MatrixCompletion):
            shape = (-1, queries, outputs)
            return Example(drawn.rows(), network.reshape(shape), algorithm.reshape(shape))
        return Example(drawn.rows(), network[:, 0], algorithm[:, 0])
