"""Mean squared errors on fresh prompts, every predictor on the same ones.

The error of a prompt is |prediction - target|^2 against the noise-free target. ``excess`` is the mean difference to the
oracle's error on the same prompts: for Bayes-optimal oracles the adjusted loss of versatile.md A7 (which prints half of
it), with a far smaller standard error than the two losses themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.results import Loss
from interp.stats.averages import mean_with_error

__all__ = ["Panel", "affordable_prompts", "depth_label", "labels_of", "solves_task", "squared_errors", "summarise"]

# Least share of what the oracle gains over predicting zero that a network must gain to be said to solve a task.
SOLVES_SHARE = 0.05
WORST = 1000  # one prompt in so many is left out of the means that a few prompts cannot decide
CHUNK = 4096  # prompts in memory at a time
MOST_PROMPTS = 65_536
OPERATIONS = 4e10  # floating point operations that a table of losses may take, about 10 s
NORMAL = 40  # operations in the time that one random number takes


class _Targeted(Protocol):
    """Prompts of any task."""

    @property
    def target(self) -> Float[Tensor, "prompt query output"]: ...


Prompts = TypeVar("Prompts", bound=_Targeted)


@dataclass(frozen=True, kw_only=True)
class Panel(Generic[Prompts]):
    """Predictors that share work: ``labels`` by name, and all their predictions (prompt, output) on given prompts."""

    labels: Mapping[str, str]
    predict: Callable[[Prompts], Mapping[str, Float[Tensor, "prompt output"]]]


def affordable_prompts(layers: int, heads: int, width: int, context: int, least: int) -> int:
    """How many prompts a table of losses is taken over: as many as ``OPERATIONS`` allows, within ``least`` and
    ``MOST_PROMPTS``."""
    each = layers * (2 * heads + 2) * 2 * width**3 + NORMAL * context * width
    return max(least, min(MOST_PROMPTS, int(OPERATIONS / each) // CHUNK * CHUNK))


def squared_errors(
    draw: Callable[[int, int], Prompts], panels: Sequence[Panel[Prompts]], count: int, chunk: int, seed: int
) -> dict[str, Float[Tensor, " prompt"]]:
    """Squared error of every predictor on each of ``count`` prompts, drawn with ``draw(count, seed)``, at most
    ``chunk`` at a time."""
    chunk = min(chunk, CHUNK)
    chunks = [min(chunk, count - start) for start in range(0, count, chunk)]
    seeds = np.random.SeedSequence(seed).generate_state(len(chunks))
    out: dict[str, list[Tensor]] = {name: [] for panel in panels for name in panel.labels}
    for size, chunk_seed in zip(chunks, seeds, strict=True):
        prompts = draw(size, int(chunk_seed))
        target = prompts.target.flatten(1)
        for panel in panels:
            for name, predicted in panel.predict(prompts).items():
                out[name].append(((predicted - target) ** 2).mean(1))
    return {name: torch.cat(parts) for name, parts in out.items()}


def depth_label(layer: int) -> str:
    """In words, what is predicted from the tokens after ``layer`` layers: 0 is the input."""
    return f"read-out after {layer} layer{'s' * (layer != 1)}"


def labels_of(panels: Sequence[Panel[Any]]) -> dict[str, str]:
    return {name: label for panel in panels for name, label in panel.labels.items()}


def summarise(labels: Mapping[str, str], squares: Mapping[str, Float[Tensor, " prompt"]]) -> tuple[Loss, ...]:
    """The table of losses, a row for every label; figures that overflow are None."""
    rows = []
    for name, label in labels.items():
        mse, stderr = mean_with_error(squares[name])
        excess, excess_stderr = mean_with_error(squares[name] - squares["oracle"])
        left_out = math.ceil(len(squares[name]) / WORST)
        trimmed, _ = mean_with_error((squares[name] - squares["oracle"]).sort().values[:-left_out])
        rows.append(
            Loss(
                name=name, label=label, mse=mse, stderr=stderr, excess=excess, excess_stderr=excess_stderr,
                trimmed=trimmed, left_out=left_out,
            )
        )  # fmt: skip
    return tuple(rows)


def solves_task(squares: Mapping[str, Float[Tensor, " prompt"]]) -> tuple[bool, float | None]:
    """Whether the network beats predicting zero: by more than two standard errors (paired), and by at least
    ``SOLVES_SHARE`` of what the oracle gains. Also returns that share."""
    gain, error = mean_with_error(squares["null"] - squares["network"])
    possible = float((squares["null"] - squares["oracle"]).mean())
    if gain is None or error is None or possible <= 0:
        return False, None
    return gain / possible >= SOLVES_SHARE and gain > 2 * error, gain / possible
