"""Certificates of networks on simple regression: the closed form, or steps of a gradient method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from interp.checkpoints.opening import Checkpoint
from interp.evidence.disagreement import EXAMPLES, Compared, Example
from interp.identify.simple_identification import RecoveredSimple, identify_simple, open_simple
from interp.models.tasks import SimpleRegression, Variation
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer
from interp.results import RecoveredDescent, RecoveredForm

__all__ = ["SimpleComparison", "recognize_simple"]


def recognize_simple(
    checkpoint: Checkpoint, prompts: int, seeds: Sequence[int], progress: Callable[[str], None] = lambda step: None
) -> SimpleComparison | None:
    """None when the verdict is unrecognized. Raises as ``open_simple`` does."""
    model, task = open_simple(checkpoint, prompts)
    found = identify_simple(model, task, prompts, seeds, progress)
    if isinstance(found, str) or not found.recovered.recognized:
        return None
    return SimpleComparison(model, task, found.recovered)


@dataclass(frozen=True, eq=False)
class SimpleComparison:
    """See ``interp.evidence.disagreement.Comparison``."""

    model: LinearTransformer
    task: SimpleRegression
    found: RecoveredSimple

    @property
    def recovered(self) -> RecoveredForm | RecoveredDescent:
        found, context = self.found, self.task.context
        if found.rival is None:
            return RecoveredForm(family=found.name, equation=found.formula, shrunken=found.shrunken, context=context)
        assert found.rival.steps is not None  # the polynomial is never chosen
        return RecoveredDescent(
            family=found.name,
            equation=found.formula,
            parameters=found.parameters,
            context=context,
            keys=self.model.spec.attention.keys,
            x_unit=found.rival.x_unit,
            y_unit=found.rival.y_unit,
            steps=tuple(found.rival.steps.tolist()),
        )

    def variations(self) -> Mapping[str, Variation]:
        return self.task.variations(fixed_context=self.model.spec.readout.flat)

    def compare(self, task: SimpleRegression, count: int, seed: int) -> Compared:
        drawn = task.sample(count, seed)
        network = predict(self.model, *drawn.inputs(self.model.spec))[:, 0, 0]
        kept = torch.isfinite(network)
        algorithm = self.found.predict(drawn[kept])
        return Compared(network[kept][:, None], algorithm[:, None], count - int(kept.sum()), "diverge")

    def examples(self, seed: int) -> Example:
        drawn = self.task.sample(EXAMPLES, seed)
        drawn = replace(drawn, **{name: getattr(drawn, name).float().double() for name in ("x", "y", "x_query")})
        context, query = drawn.inputs(self.model.spec)
        network = predict(self.model, context, query)[:, 0, 0]
        return Example(torch.cat([context, query], 1)[..., 1:], network, self.found.predict(drawn))
