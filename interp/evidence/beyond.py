"""A fitted algorithm beside its network on prompts that the task does not make: how far beyond it the two agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.identify.networks import Network
from interp.identify.score import Score, bootstrap_fidelity
from interp.models.tasks import Task

__all__ = ["Beyond", "beyond"]


@dataclass(frozen=True, eq=False)
class Beyond:
    """What both predict on the prompts of ``task`` on which the network runs as described; ``left_out`` are the
    others. ``held``: what the tokens hold before the first layer."""

    task: Task
    prompts: Any
    network: Float[Tensor, "prompt output"]
    algorithm: Float[Tensor, "prompt output"]
    held: Float[Tensor, "prompt output"]
    left_out: int

    def score(self, seed: int) -> Score:
        """R^2 of what the algorithm adds to the tokens against what the network adds."""
        return bootstrap_fidelity(self.algorithm - self.held, self.network - self.held, seed)

    def error(self, prediction: Float[Tensor, "prompt output"]) -> Float[Tensor, " prompt"]:
        """Of every prompt, by the task."""
        return self.task.errors(prediction, self.prompts).mean(1)


def beyond(
    network: Network, predict: Callable[[Any], Float[Tensor, "prompt output"]], task: Task, count: int, seed: int
) -> Beyond:
    """On ``count`` fresh prompts of ``task``, any task of the same kind of prompts."""
    prompts = task.sample(count, seed)
    kept = network.usable(prompts)
    prompts = prompts if bool(kept.all()) else prompts[kept]
    readouts = network.readouts(prompts)
    predicted = readouts["network"]
    held = network.held(readouts)
    return Beyond(task, prompts, predicted, predict(prompts), held, count - prompts.count)
