"""The recovered algorithm beside its network outside the training distribution: how far the agreement reaches.

One property of the prompts is changed at a time: the number of examples, the noise, the size of the inputs, and how
uneven their variances are. Agreement is the share of the variance of the network's predictions that the algorithm
leaves unexplained, 1 - R^2, at most ``AGREES``; the mean squared errors of both say whether the network still works
there. A network and an algorithm that coincide on the task only part where the rest of the network shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.algebra.linear_prompts import finite_and_clipped, gram_prompts
from interp.identify.estimates import predict
from interp.identify.identification import Candidate, bootstrap_fidelity
from interp.models.gram import head_layers
from interp.models.tasks import ContextPrompts, NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.results import Stress, StressPoint
from interp.stats.averages import mean_with_error

__all__ = ["AGREES", "Axis", "axes", "predictions", "region", "stress"]

AGREES = 0.01
FEWEST = 32  # prompts left for which figures are given
OPERATIONS = 6e9  # floating point operations that all points may take together
NORMAL = 40  # operations in the time that one random number takes
CONTEXTS = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0)  # of the task's number of examples
NOISES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0)  # of the task's largest noise level, or of the labels' spread if it is 0
SCALES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # of the inputs
CONDITIONS = (1.0, 3.0, 10.0, 30.0, 100.0)  # largest over smallest factor on the inputs' variances


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One property of the prompts: values in order, with the task at each, and which of them the task itself holds."""

    name: str
    label: str
    tasks: tuple[tuple[float, bool, NoisyRegression], ...]
    skipped: str | None = None


def axes(task: NoisyRegression) -> Iterator[Axis]:
    """What is varied. The other properties stay those of the task."""
    counts = sorted({max(1, round(task.context * factor)) for factor in CONTEXTS})
    yield Axis(
        name="context",
        label="number of examples",
        tasks=tuple((float(n), n == task.context, replace(task, context=n)) for n in counts),
    )
    spectrum = task.covariance or (1.0,) * task.dim
    low, high = min(task.noise.values), task.noise.largest
    base = high or task.weight_std * math.sqrt(sum(spectrum))
    levels = sorted({base * factor for factor in NOISES} | set(task.noise.values))
    inside = (lambda v: low <= v <= high) if task.noise.kind == "uniform" else (lambda v: v in task.noise.values)
    yield Axis(
        name="noise",
        label="noise σ",
        tasks=tuple((v, inside(v), task.with_noise(NoiseLaw(kind="fixed", values=(v,)))) for v in levels),
    )
    yield Axis(
        name="scale",
        label="size of the inputs",
        tasks=tuple((f, f == 1.0, replace(task, covariance=tuple(f**2 * v for v in spectrum))) for f in SCALES),
    )
    if task.dim == 1:
        yield Axis(name="covariance", label=_CONDITION, tasks=(), skipped="skipped, because there is a single input")
        return
    yield Axis(
        name="covariance",
        label=_CONDITION,
        tasks=tuple((k, k == 1.0, replace(task, covariance=_stretched(spectrum, k))) for k in CONDITIONS),
    )


_CONDITION = "unevenness of the inputs"


def _stretched(spectrum: Sequence[float], condition: float) -> tuple[float, ...]:
    """The eigenvalues times factors from 1 to ``condition`` in geometric steps, rescaled to the same sum."""
    factors = [condition ** (k / (len(spectrum) - 1)) for k in range(len(spectrum))]
    moved = [v * f for v, f in zip(spectrum, factors, strict=True)]
    return tuple(v * sum(spectrum) / sum(moved) for v in moved)


def predictions(
    model: LinearTransformer, candidate: Candidate, prompts: ContextPrompts
) -> tuple[Float[Tensor, "prompt output"], Float[Tensor, "prompt output"]]:
    """What the network and a fitted family predict. Both scale their sums by the number of examples that there are."""
    assert candidate.parametrisation is not None and candidate.fit is not None  # a scored candidate has both
    drawn, context = gram_prompts(prompts, model.spec), prompts.context
    # Every family is a dataclass with a scale, which its protocol does not say.
    fitted = replace(candidate.parametrisation, scale=model.spec.attention.factor(context))  # type: ignore[type-var]
    return predict(head_layers(model, context), drawn), predict(fitted.build(candidate.fit.theta), drawn)


def stress(
    model: LinearTransformer, candidate: Candidate, task: NoisyRegression, prompts: int, seed: int
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


def _operations(model: LinearTransformer, task: NoisyRegression) -> int:
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
    task: NoisyRegression,
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
