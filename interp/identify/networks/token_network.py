"""A network that is run token by token, because no other pass describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.identify.networks.halves import Half, Network
from interp.models.skipped import Skipped
from interp.models.tasks import Prompts, Task
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer

__all__ = ["TokenNetwork"]

NUMBERS = 2**25  # attention scores of a layer at a time
OPERATIONS = 1e10  # of the forward passes behind a table of losses, some seconds
MOST_LOSSES, FEWEST_LOSSES = 16_384, 64  # prompts of that table


class TokenNetwork(Network[Half]):
    """See ``Network``. Prompts on which it diverges are part of every figure."""

    @classmethod
    def of(
        cls, model: LinearTransformer, task: Task, prompts: int, seeds: Sequence[int], skipped: Skipped | None
    ) -> TokenNetwork:
        nothing = torch.zeros(0, 0)
        none = Half(drawn=None, prediction=nothing, held=nothing, weight=torch.zeros(0))
        bare = cls(model, task, none, none)
        fitted, held_out = (
            bare._half(task.telling().sample(bare._affordable(prompts // 2), seed)) for seed in seeds[:2]
        )
        return cls(model, task, fitted, held_out, skipped=skipped)

    def _half(self, drawn: Prompts) -> Half:
        prediction = self.readouts(drawn)["network"]
        return Half(drawn, prediction, torch.zeros_like(prediction), torch.ones_like(prediction[:, 0]))

    def usable(self, prompts: Prompts) -> Bool[Tensor, " prompt"]:
        return torch.isfinite(self.readouts(prompts)["network"]).all(1)

    @torch.no_grad()
    def readouts(self, prompts: Prompts) -> Mapping[str, Float[Tensor, "prompt output"]]:
        parts = [
            predict(self.model, *prompts[slice(start, start + self.chunk)].inputs(self.model.spec)).flatten(1)
            for start in range(0, max(1, prompts.count), self.chunk)
        ]
        return {"network": torch.cat(parts)}

    def loss_prompts(self, prompts: int) -> int:
        return self._affordable(MOST_LOSSES)

    @property
    def chunk(self) -> int:
        tokens = self.task.context + 1
        return max(1, min(self.task.most_prompts, NUMBERS // (self.model.heads * tokens**2)))

    def _affordable(self, prompts: int) -> int:
        tokens, width = self.task.context + 1, self.model.spec.stream
        each = 4.0 * self.model.layers * self.model.heads * (tokens * width**2 + tokens**2 * width)
        return max(FEWEST_LOSSES, min(prompts, int(OPERATIONS / each)))
