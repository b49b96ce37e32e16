"""Errors on fresh prompts, every predictor on the same ones.

The error of a prompt is that of its task, against the noise-free target. ``excess`` is the mean difference to the
oracle's error on the same prompts: for Bayes-optimal oracles the adjusted loss of versatile.md A7 (which prints half of
it), with a far smaller standard error than the two losses themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.results import Loss
from interp.stats.averages import mean_with_error, wilson
from interp.stats.bootstrap import Interval

if TYPE_CHECKING:
    from interp.identify.family import Fit
    from interp.identify.run import Run

__all__ = ["Losses", "Solves", "affordable_prompts", "ladder", "measure_losses", "solves_task", "summarise"]

# Least share of what the oracle gains over predicting zero that a network must gain to be said to solve a task.
SOLVES_SHARE = 0.05
CAP = 10.0  # times the mean error of predicting zero: what a prompt counts at most, and from where the network explodes
WORST = 1000  # one prompt in so many is left out of the means that a few prompts cannot decide
CHUNK = 4096  # prompts in memory at a time
MOST_PROMPTS = 65_536
OPERATIONS = 4e10  # floating point operations that a table of losses may take, about 10 s
NORMAL = 40  # operations in the time that one random number takes


@dataclass(frozen=True, kw_only=True, eq=False)
class Losses:
    """``errors`` by predictor, every prompt at every scored position; ``labels`` for people; ``lost``: on so many
    prompts more the network diverges."""

    labels: Mapping[str, str]
    errors: Mapping[str, Float[Tensor, "prompt position"]]
    lost: int = 0

    @property
    def prompts(self) -> int:
        return len(self.errors["network"])

    @property
    def squares(self) -> dict[str, Float[Tensor, " prompt"]]:
        """The error of every prompt, averaged over positions."""
        return {name: values.mean(1) for name, values in self.errors.items()}

    @property
    def rows(self) -> tuple[Loss, ...]:
        return summarise(self.labels, self.squares)

    @cached_property
    def solves(self) -> Solves:
        return solves_task(self.squares, self.lost)


def affordable_prompts(layers: int, heads: int, width: int, context: int, least: int) -> int:
    """How many prompts a table of losses is taken over: as many as ``OPERATIONS`` allows, within ``least`` and
    ``MOST_PROMPTS``."""
    each = layers * (2 * heads + 2) * 2 * width**3 + NORMAL * context * width
    return max(least, min(MOST_PROMPTS, int(OPERATIONS / each) // CHUNK * CHUNK))


def measure_losses(run: Run, fit: Fit | None) -> Losses:
    """The references of the task, the network with its read-out after every layer, and a fitted algorithm."""
    references, network = run.references, run.network
    labels = {**references.labels, "network": "the network"}
    predictors: list[Callable[[Any], Mapping[str, Tensor]]] = [references.predict, network.readouts]
    if fit is not None:
        what = "recovered algorithm" if fit.recognized else "closest family"
        labels["recovered"] = f"{what} ({fit.family.title})"
        predictors.append(lambda prompts: {"recovered": fit.predict(prompts)})
        for name, (label, predict) in fit.also.items():
            labels[name] = label
            predictors.append(lambda prompts, name=name, predict=predict: {name: predict(prompts)})
    count, chunk = network.loss_prompts(run.prompts), max(1, min(network.chunk, CHUNK))
    starts = range(0, count, chunk)
    errors: dict[str, list[Tensor]] = {}
    lost = 0
    for start, seed in zip(starts, np.random.SeedSequence(run.seeds.losses).generate_state(len(starts)), strict=True):
        prompts = run.task.sample(min(chunk, count - start), int(seed))
        kept = network.usable(prompts)
        lost += int((~kept).sum())
        prompts = prompts if bool(kept.all()) else prompts[kept]
        for predict in predictors:
            for name, prediction in predict(prompts).items():
                errors.setdefault(name, []).append(run.task.errors(prediction, prompts))
    depth = {name: depth_label(int(name.removeprefix("layer-"))) for name in errors if name.startswith("layer-")}
    return Losses(labels=labels | depth, errors={name: torch.cat(parts) for name, parts in errors.items()}, lost=lost)


def depth_label(layer: int) -> str:
    """In words, what is predicted from the tokens after ``layer`` layers: 0 is the input."""
    return f"read-out after {layer} layer{'s' * (layer != 1)}"


def ladder(losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """From worst to best; what is not finite counts as the worst."""
    return tuple(sorted(losses, key=lambda entry: -entry.mse if entry.mse is not None else float("-inf")))


def summarise(labels: Mapping[str, str], squares: Mapping[str, Float[Tensor, " prompt"]]) -> tuple[Loss, ...]:
    """The table of losses, a row for every label; figures that overflow are None."""
    rows = []
    for name, label in labels.items():
        mse, stderr = mean_with_error(squares[name])
        difference = squares[name] - squares["oracle"]
        excess, excess_stderr = mean_with_error(difference)
        left_out = math.ceil(len(difference) / WORST)
        trimmed, _ = mean_with_error(difference.sort().values[:-left_out])
        rows.append(
            Loss(
                name=name, label=label, mse=mse, stderr=stderr, excess=excess, excess_stderr=excess_stderr,
                trimmed=trimmed, left_out=left_out,
            )
        )  # fmt: skip
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Solves:
    """``answer``: does the network beat predicting zero by ``SOLVES_SHARE`` of what the best possible gains?
    ``share`` is what it gains of that, with a 95 % interval; ``explodes`` the share of prompts on which its error is
    above ``CAP`` times that of predicting zero, with its interval."""

    answer: Literal["yes", "no", "undecided"]
    share: float | None
    share_ci: Interval
    explodes: float
    explodes_ci: tuple[float, float]


def solves_task(squares: Mapping[str, Float[Tensor, " prompt"]], lost: int = 0) -> Solves:
    """Paired over prompts, by a mean that no one prompt decides: an error counts as at most ``CAP`` times the mean
    error of predicting zero. ``lost`` prompts more exploded so far that they have no error."""
    null, own, best = (squares[name] for name in ("null", "network", "oracle"))
    cap = CAP * float(null.mean())
    own = torch.cat([own.nan_to_num(torch.inf), own.new_full((lost,), torch.inf)])
    exploded, count = int((own > cap).sum()), len(own)
    explodes = wilson(exploded, count)
    gains = torch.cat([null, null.mean().expand(lost)]) - own.clamp(max=cap)
    possible = float((null - best.clamp(max=cap)).mean())
    gain, error = mean_with_error(gains)
    if gain is None or error is None or not possible > 0:
        answer, share, ends = "no", None, (None, None)
    else:
        share, ends = gain / possible, ((gain - 2 * error) / possible, (gain + 2 * error) / possible)
        answer = "yes" if ends[0] >= SOLVES_SHARE else "no" if ends[1] < SOLVES_SHARE else "undecided"
    return Solves(answer=answer, share=share, share_ci=ends, explodes=exploded / count, explodes_ci=explodes)
