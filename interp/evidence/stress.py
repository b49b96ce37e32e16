"""The recovered algorithm beside the network outside the training distribution: how far the agreement reaches.

One property of the prompts is changed at a time, as ``task.variations()`` says. Agreement is the share of the variance
of the network's predictions that the algorithm leaves unexplained, 1 - R^2, at most ``AGREES``; the mean squared errors
of both say whether the network still works there. A network and an algorithm that coincide on the task only part where
the rest of the network shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

import numpy as np

from interp.evidence.beyond import beyond
from interp.evidence.question import Answer, question, with_error
from interp.identify.choose import Choice
from interp.identify.family import Fit
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import Variation
from interp.results import Stress, StressPoint
from interp.stats.averages import mean_with_error

__all__ = ["AGREES", "region", "stress", "stress_axes"]

AGREES = 0.01
FEWEST = 32  # prompts left for which figures are given
MOST = 512  # prompts at every point
OPERATIONS = 6e9  # floating point operations that all points may take together
NORMAL = 40  # operations in the time that one random number takes


@question("stress")
def stress(choice: Choice, run: Run) -> Answer | Skipped | None:
    """All axes of the task for the chosen family or the closest."""
    best, axes = choice.closest, stress_axes(run)
    if not axes:
        return None
    if best is None:
        return run.network.skipped or Skipped("no family could be scored")
    run.progress("leaving the training distribution")
    own = int(np.random.SeedSequence(run.seeds.replacement).generate_state(2)[1])
    total = sum(_operations(run, v) for entries in axes.values() for v in entries)
    count = min(MOST, int(OPERATIONS / total))
    found = []
    for (name, entries), seed in zip(axes.items(), np.random.SeedSequence(own).generate_state(len(axes)), strict=True):
        skipped = next((str(v.task) for v in entries if isinstance(v.task, Skipped)), None)
        if skipped is None and count < FEWEST:
            skipped = str(Skipped("it would take too long for a network of this size"))
        points = () if skipped else tuple(stress_point(run, best, v, count, int(seed)) for v in entries)
        found.append(Stress(name=name, label=entries[0].label, points=points, agrees=region(points), skipped=skipped))
    return Answer(fields={"evidence.stress": tuple(found)})


def stress_axes(run: Run) -> dict[str, list[Variation]]:
    """The variations that lie on an axis, in order."""
    axes: dict[str, list[Variation]] = {}
    for variation in run.task.variations(run.spec.readout.flat).values():
        if variation.axis is not None:
            axes.setdefault(variation.axis, []).append(variation)
    return axes


def _operations(run: Run, variation: Variation) -> int:
    if isinstance(variation.task, Skipped):
        return 0
    D = run.spec.width
    return run.model.layers * (2 * run.model.heads + 8) * 2 * D**3 + NORMAL * variation.task.context * D


def region(points: Sequence[StressPoint]) -> tuple[float, float] | None:
    """The longest run of values in which the algorithm surely agrees and that holds a trained one."""

    def surely(point: StressPoint) -> bool:
        upper = point.unexplained_ci[1]
        return upper is not None and upper <= AGREES

    runs = [list(run) for agrees, run in groupby(points, surely) if agrees]
    longest = max((run for run in runs if any(p.trained for p in run)), key=len, default=None)
    return None if longest is None else (longest[0].value, longest[-1].value)


def stress_point(run: Run, fit: Fit, variation: Variation, count: int, seed: int) -> StressPoint:
    task, row = variation.task, partial(StressPoint, value=variation.value, trained=variation.trained)
    assert not isinstance(task, Skipped)  # of an axis that is not skipped
    count = min(count, task.most_prompts)
    here = beyond(run.network, fit.predict, task, count, seed) if count else None
    if here is None or here.prompts.count < FEWEST:
        kept = 0 if here is None else here.prompts.count
        why = f"skipped, because {count - kept} of {count} prompts diverge or meet the clip"
        return row(prompts=kept, left_out=count - kept, skipped=why)
    score = here.score(seed)
    oracle = task.oracle(here.prompts).flatten(1)
    low, high = score.interval
    return row(
        prompts=here.prompts.count,
        left_out=here.left_out,
        unexplained=None if score.fidelity is None else 1.0 - score.fidelity,
        unexplained_ci=(None, None) if low is None or high is None else (1.0 - high, 1.0 - low),
        **with_error("network", mean_with_error(here.error(here.network)), "network_stderr"),
        **with_error("recovered", mean_with_error(here.error(here.algorithm)), "recovered_stderr"),
        oracle=mean_with_error(here.error(oracle))[0],
    )
