"""Whether a network that no linear maps describe solves its task all the same: it is run token by token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.identify.losses import Panel, labels_of, solves_task, squared_errors, summarise
from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import CompletionPrompts, Examples, MatrixCompletion, RegressionPrompts, Task
from interp.models.transformer import LinearTransformer
from interp.results import Loss

__all__ = ["TokenLosses", "token_losses"]

MOST, FEWEST = 1024, 64  # prompts
OPERATIONS = 1e10  # of the forward passes, some seconds
NUMBERS = 2**25  # attention scores of a layer at a time


@dataclass(frozen=True, kw_only=True)
class TokenLosses:
    """The network, predicting zero and the optimum on the same ``prompts`` fresh prompts, divergent ones included."""

    losses: tuple[Loss, ...]
    solves_task: bool
    prompts: int


@torch.no_grad()
def token_losses(model: LinearTransformer, task: Task, prompts: int, seed: int) -> TokenLosses:
    """On at most ``prompts`` prompts of the task, fewer where tokens are many."""
    hooked = HookedLinearTransformer(model)

    def run(drawn: Examples) -> Mapping[str, Tensor]:
        return {
            "null": torch.zeros_like(drawn.target).flatten(1),
            "network": hooked(*drawn.inputs(model.spec)).flatten(1),
            "oracle": _oracle(task, drawn).flatten(1),
        }

    panel = Panel(
        labels={"null": "predicting zero", "network": "the network", "oracle": "the best possible"}, predict=run
    )
    width, tokens = model.spec.width, task.context + (task.queries if isinstance(task, MatrixCompletion) else 1)
    each = 4.0 * model.layers * model.heads * (tokens * width**2 + tokens**2 * width)
    count = max(FEWEST, min(MOST, prompts, int(OPERATIONS / each)))
    chunk = max(1, min(task.most_prompts, int(NUMBERS / (model.heads * tokens**2))))
    squares = squared_errors(task.sample, [panel], count, chunk, seed)
    return TokenLosses(
        losses=summarise(labels_of([panel]), squares), solves_task=solves_task(squares)[0], prompts=count
    )


def _oracle(task: Task, drawn: Examples) -> Tensor:
    if isinstance(task, MatrixCompletion):
        assert isinstance(drawn, CompletionPrompts)  # prompts of the task
        return task.oracle(drawn)
    assert isinstance(drawn, RegressionPrompts)
    return (task.oracle_weights(drawn) * drawn.x_query).sum(-1, keepdim=True)
