"""The recovered algorithm beside its network outside the training distribution: how far the agreement reaches.

One property of the prompts is changed at a time: the number of examples, the noise, the size of the inputs, and how
uneven their variances are. Agreement is the share of the variance of the network's predictions that the algorithm
leaves unexplained, 1 - R^2, at most ``AGREES``; the mean squared errors of both say whether the network still works
there. A network and an algorithm that coincide on the task only part where the rest of the network shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.algebra.linear_prompts import finite_and_clipped, gram_prompts
from interp.identify.estimates import predict
from interp.identify.identification import Candidate, bootstrap_fidelity
from interp.models.gram import head_layers
from interp.models.skipped import Skipped
from interp.models.tasks import Examples, Task, Variation
from interp.models.transformer import LinearTransformer
from interp.results import Stress, StressPoint
from interp.stats.averages import mean_with_error

__all__ = ["AGREES", "Axis", "axes", "predictions", "region", "stress"]

AGREES = 0.01
FEWEST = 32  # prompts left for which figures are given
OPERATIONS = 6e9  # floating point operations that all points may take together
NORMAL = 40  # operations in the time that one random number takes


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One property of the prompts: values in order, with the task at each, and which of them the task itself holds."""

    name: str
    label: str
    tasks: tuple[tuple[float, bool, Task], ...]
    skipped: str | None = None


def axes(task: Task) -> tuple[Axis, ...]:
    """What is varied. The other properties stay those of the task."""
    grid: dict[str, list[Variation]] = {}
    for variation in task.variations().values():
        if variation.axis is not None:
            grid.setdefault(variation.axis, []).append(variation)
    return tuple(
        Axis(
            name=name,
            label=entries[0].label,
            tasks=tuple((v.value, v.trained, v.task) for v in entries if not isinstance(v.task, Skipped)),
            skipped=next((str(v.task) for v in entries if isinstance(v.task, Skipped)), None),
        )
        for name, entries in grid.items()
    )


def predictions(
    model: LinearTransformer, candidate: Candidate, prompts: Examples
) -> tuple[Float[Tensor, "prompt output"], Float[Tensor, "prompt output"]]:
    """What the network and a fitted family predict. Both scale their sums by the number of examples that there are."""
    assert candidate.parametrisation is not None and candidate.fit is not None  # a scored candidate has both
    drawn, context = gram_prompts(prompts, model.spec), prompts.context
    # Every family is a dataclass with a scale, which its protocol does not say.
    fitted = replace(candidate.parametrisation, scale=model.spec.attention.factor(context))  # type: ignore[type-var]
    return predict(head_layers(model, context), drawn), predict(fitted.build(candidate.fit.theta), drawn)


def stress(
    model: LinearTransformer, candidate: Candidate, task: Task, prompts: int, seed: int
) -> tuple[Stress, ...]:
    """All axes, with at most ``prompts`` prompts at every point."""
    found = []
    kinds = list(axes(task))
    total = sum(_operations(model, own) for axis in kinds for _, _, own in axis.tasks)
    count = min(prompts, int(OPERATIONS / total))
    for axis, own_seed in zip(kinds, np.random.SeedSequence(seed).generate_state(len(kinds)), strict=True):
        skipped = axis.skipped
        if skipped is None and count < FEWEST:
            skipped = "skipped, because it would take too long for a network of this size"
        points = (
            ()
            if skipped
            else tuple(
                _point(model, candidate, value, trained, own, count, int(own_seed))
                for value, trained, own in axis.tasks
            )
        )
        found.append(Stress(name=axis.name, label=axis.label, points=points, agrees=region(points), skipped=skipped))
    return tuple(found)


def _operations(model: LinearTransformer, task: Task) -> int:
    D = model.spec.width
    return model.layers * (2 * model.heads + 8) * 2 * D**3 + NORMAL * task.context * D


def region(points: Sequence[StressPoint]) -> tuple[float, float] | None:
    """The longest run of values in which the algorithm surely agrees and that holds a trained one."""
    runs: list[list[StressPoint]] = [[]]
    for point in points:
        upper = point.unexplained_ci[1]
        if upper is not None and upper <= AGREES:
            runs[-1].append(point)
        else:
            runs.append([])
    known = [run for run in runs if any(point.trained for point in run)]
    if not known:
        return None
    longest = max(known, key=len)
    return longest[0].value, longest[-1].value


def _point(
    model: LinearTransformer,
    candidate: Candidate,
    value: float,
    trained: bool,
    task: Task,
    count: int,
    seed: int,
) -> StressPoint:
    count = min(count, task.most_prompts)
    drawn = task.sample(count, seed) if count else None
    if drawn is not None:
        finite, clipped = finite_and_clipped(model, drawn)
        drawn = drawn[finite & ~clipped]
    if drawn is None or drawn.count < FEWEST:
        kept = 0 if drawn is None else drawn.count
        why = f"skipped, because {count - kept} of {count} prompts diverge or meet the clip"
        nothing = (None, None)
        return StressPoint(
            value=value, trained=trained, prompts=kept, left_out=count - kept, unexplained=None, unexplained_ci=nothing,
            network=None, network_stderr=None, recovered=None, recovered_stderr=None, oracle=None, skipped=why,
        )  # fmt: skip
    network, recovered = predictions(model, candidate, drawn)
    score = bootstrap_fidelity(recovered, network, seed)
    target = drawn.target.flatten(1)
    (mse, stderr), (own, own_stderr), (best, _) = (
        mean_with_error(((p - target) ** 2).sum(1)) for p in (network, recovered, task.oracle(drawn).flatten(1))
    )
    low, high = score.interval
    return StressPoint(
        value=value,
        trained=trained,
        prompts=drawn.count,
        left_out=count - drawn.count,
        unexplained=None if score.fidelity is None else 1.0 - score.fidelity,
        unexplained_ci=(None, None) if low is None or high is None else (1.0 - high, 1.0 - low),
        network=mse,
        network_stderr=stderr,
        recovered=own,
        recovered_stderr=own_stderr,
        oracle=best,
    )
