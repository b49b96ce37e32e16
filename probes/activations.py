"""Activations of any number of prompts, a chunk at a time: what probes read, before layer 0 and after every layer.

Three kinds of features, each (prompt, feature) in float64:

- "token": the token e_t^l at one position;
- "within-prompt": the implicit weights w^l of the prompt, y_i^l = a^l y_i - <w^l, x_i>, row by row. They are those of
  the unrolling where layers are linear and tokens share their keys; where a clip cuts, least squares over the tokens of
  the prompt (``interp.probes.within``); with causal keys, one set for every position, that of the tokens before it
  (``interp.probes.responses``);
- "gram": the upper triangle of sum_j e_j^l (e_j^l)^T over the keys.

Where all tokens share their keys and nothing is clipped, a layer is one map of all tokens of a prompt, so the wanted
tokens are carried along on the Gram path. Elsewhere they are read off the hooked token-by-token forward pass. Both give
the same numbers; nothing is kept from one chunk to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import Prompts, Task
from interp.models.transformer import LinearTransformer
from interp.probes.responses import prefix_responses, queries, split

__all__ = ["Activations", "Reader", "query_tokens", "stream"]


def stream(task: Task, count: int, seed: int, chunk: int) -> Iterator[Prompts]:
    """``count`` prompts in chunks of ``chunk``, each with a seed of its own derived from ``seed`` and its number."""
    for number, start in enumerate(range(0, count, chunk)):
        own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        yield task.sample(min(chunk, count - start), own)


def query_tokens(task: Task, spec: ModelSpec) -> int:
    """How many tokens of a prompt are queries; 0 in a sequence, whose every token is read out."""
    prompts = task.sample(1, 0)
    return sum(tokens.shape[1] for tokens in prompts.inputs(spec)) - prompts.context


@dataclass(frozen=True, eq=False)
class Activations:
    """Of one chunk. Lists are by layer, 0 (the input) to L."""

    tokens: dict[int | None, Sequence[Float[Tensor, "prompt D"]]]  # by position; None is the query
    implicit: dict[int | None, Sequence[Float[Tensor, "prompt weights"]]]  # by position in a causal model, else at None
    grams: Sequence[Float[Tensor, "prompt D D"]]

    def features(self, kind: str, layer: int, position: int | None) -> Float[Tensor, "prompt feature"]:
        if kind == "token":
            return self.tokens[position][layer]
        return self.implicit[position][layer] if kind == "within-prompt" else self.second_moments([layer])[0]

    def second_moments(self, layers: Sequence[int]) -> Float[Tensor, "layer prompt feature"]:
        """The features of kind "gram" of several layers."""
        D = self.grams[0].shape[-1]
        row, column = torch.triu_indices(D, D)
        return torch.stack([self.grams[layer].flatten(1).index_select(1, row * D + column) for layer in layers])


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads the ``kinds`` of features off a model of float64 weights, tokens at ``positions`` (None: the query)."""

    model: LinearTransformer
    kinds: tuple[str, ...]
    positions: tuple[int | None, ...]

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it, so that every position has implicit weights of its own."""
        return self.model.spec.attention.keys == "causal"

    @property
    def shared_maps(self) -> bool:
        """Whether a layer is one linear map of all tokens of a prompt."""
        spec = self.model.spec
        return not self.causal and spec.clip is None and spec.no_map is None

    def read(self, prompts: Prompts) -> Activations:
        return self._mapped(prompts) if self.shared_maps else self._hooked(prompts)

    def _mapped(self, prompts: Prompts) -> Activations:
        spec = self.model.spec
        context, query = prompts.inputs(spec)
        gram = context.mT @ context
        if spec.attention.keys == "all":
            gram = gram + query.mT @ query
        rows = [query[:, 0] if position is None else context[:, position] for position in self.positions]
        wanted = torch.stack(rows, 1) if rows else query[:, :0]
        passage = forward(head_layers(self.model, prompts.context), gram, wanted)
        last = passage.maps[-1] @ passage.grams[-1] @ passage.maps[-1].mT
        return Activations(
            tokens={p: [tokens[:, at] for tokens in passage.queries] for at, p in enumerate(self.positions)},
            implicit={None: self._implicit(passage.maps)} if "within-prompt" in self.kinds else {},
            grams=[*passage.grams, last],
        )

    def _implicit(self, maps: Sequence[Float[Tensor, "prompt D D"]]) -> list[Float[Tensor, "prompt weights"]]:
        """-(label rows, input columns) of C^l = T^{l-1} .. T^0, that is w^l."""
        spec = self.model.spec
        inputs, label = split(spec)
        C = torch.eye(spec.width, dtype=torch.float64).expand_as(maps[0])
        rows = [C[:, label]]
        for T in maps:
            C = T @ C
            rows.append(C[:, label])
        return [-row[..., inputs].flatten(1) for row in rows]

    def _hooked(self, prompts: Prompts) -> Activations:
        from interp.probes.tokens import layer_tokens  # imports the hooks, slowly; the Gram path needs none

        layers = layer_tokens(self.model, prompts)
        keys = slice(None) if self.model.spec.attention.keys == "all" else slice(prompts.context)
        grams = [tokens[:, keys].mT @ tokens[:, keys] for tokens in layers] if "gram" in self.kinds else []
        places = {position: prompts.context if position is None else position for position in self.positions}
        return Activations(
            tokens={position: [tokens[:, at] for tokens in layers] for position, at in places.items()},
            implicit=self._fitted(layers, prompts.context, places) if "within-prompt" in self.kinds else {},
            grams=grams,
        )

    def _fitted(
        self, layers: Sequence[Float[Tensor, "prompt position D"]], context: int, places: dict[int | None, int]
    ) -> dict[int | None, Sequence[Float[Tensor, "prompt weights"]]]:
        if not self.causal:
            from interp.probes.within import fit_tokens  # imports the hooks

            return {None: [fit.w.flatten(1) for fit in fit_tokens(layers, self.model.spec)]}
        x = queries(layers[0][:, :context], self.model.spec)
        return {
            position: [fit.w for fit in prefix_responses(self.model, layers, x, at)] for position, at in places.items()
        }
