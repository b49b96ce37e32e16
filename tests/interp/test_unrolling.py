"""The exact unrolling against the token-by-token forward pass, which shares no code with it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.algebra.unrolling import ImplicitState, implicit_states, partition, unclipped
from interp.errors import UsageError
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

RELATIVE = 1e-12  # of the largest activation of the prompt and layer: float64 rounding through five layers
AMPLIFIED = 3.0  # by a layer without a residual stream: it is cubic in its tokens, and triples their relative errors
PROMPTS = 2


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A random network with tokens that need not come from any task: queries may hold labels, too."""

    model: LinearTransformer
    context: Tensor
    query: Tensor

    @classmethod
    def drawn(
        cls, spec: ModelSpec, layers: int, heads: int, context: int, queries: int, seed: int, size: float = 0.7
    ) -> Case:
        """Weights such that a layer changes its tokens by about ``size`` of their length."""
        D = spec.width
        factor = (size / (heads * context * abs(spec.attention.factor(context)) * D**2)) ** 0.5
        P, Q = factor * normal(2, layers, heads, D, D, seed=seed)
        tokens = normal(PROMPTS, context + queries, D, seed=seed + 1)
        return cls(LinearTransformer(spec=spec, P=P, Q=Q), tokens[:, :context], tokens[:, context:])

    @property
    def gram(self) -> Tensor:
        keys = self.context
        if self.model.spec.attention.keys == "all":
            keys = torch.cat([self.context, self.query], 1)
        return keys.mT @ keys

    def token_by_token(self) -> tuple[Tensor, list[Tensor]]:
        """Predictions, and all tokens before the first layer and after every layer."""
        hooked = HookedLinearTransformer(self.model)
        out, cache = hooked.run_with_cache(self.context, self.query, names_filter=lambda name: "resid" in name)
        posts = [cache[f"blocks.{layer}.hook_resid_post"] for layer in range(self.model.layers)]
        return out, [cache["blocks.0.hook_resid_pre"], *posts]


def split(tokens: Tensor, spec: ModelSpec) -> tuple[Tensor, Tensor]:
    """(inputs, label) of tokens, by the names of the channels alone."""
    label = spec.channel(spec.readout.channel).indices
    return torch.cat([tokens[..., c.indices] for c in spec.channels if c.indices != label], -1), tokens[..., label]


def replay(state: ImplicitState, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x^l = M x + u y and y^l = a y - w x, written out."""
    later_x = torch.einsum("pij,ptj->pti", state.M, x) + torch.einsum("pik,ptk->pti", state.u, y)
    later_y = torch.einsum("pkj,ptj->ptk", state.a, y) - torch.einsum("pki,pti->ptk", state.w, x)
    return later_x, later_y


def require_close(actual: Tensor, expected: Tensor, relative: float = RELATIVE) -> None:
    """Largest difference, beside the largest value of the prompt."""
    size = expected.abs().flatten(1).amax(-1)
    assert bool(((actual - expected).abs().flatten(1).amax(-1) <= relative * size).all())


@settings(max_examples=60)
@given(
    dim=st.integers(1, 8),
    label=st.integers(1, 3),
    label_first=st.booleans(),
    keys=st.sampled_from(["context", "all"]),
    scale=st.sampled_from(["1", "1/n", "1/(n+1)", 0.3, -2.0]),
    residual=st.booleans(),
    sign=st.sampled_from([-1, 1]),
    layers=st.integers(1, 5),
    heads=st.integers(1, 4),
    context=st.integers(1, 30),
    queries=st.integers(1, 3),
    seed=st.integers(0, 2**20),
)
def test_every_layer_agrees_with_the_tokens(
    dim: int,
    label: int,
    label_first: bool,
    keys: str,
    scale: str | float,
    residual: bool,
    sign: int,
    layers: int,
    heads: int,
    context: int,
    queries: int,
    seed: int,
) -> None:
    spec = ModelSpec.from_dict(
        {
            "tokens": [["y", label], ["x", dim]] if label_first else [["x", dim], ["y", label]],
            "attention": {"keys": keys, "scale": scale},
            "residual": residual,
            "readout": {"channel": "y", "sign": sign},
        }
    )
    case = Case.drawn(spec, layers, heads, context, queries, seed)
    predicted, tokens = case.token_by_token()
    trajectory = forward(head_layers(case.model, context), case.gram, case.query)
    states = implicit_states(trajectory, spec)
    assert len(states) == layers + 1
    x, y = split(tokens[0], spec)
    relative = RELATIVE if residual else RELATIVE * AMPLIFIED**layers
    for state, later in zip(states, tokens, strict=True):
        require_close(torch.cat(replay(state, x, y), -1), torch.cat(split(later, spec), -1), relative)
    output = trajectory.queries[-1]
    require_close(output, tokens[-1][:, context:], relative)
    # The prediction is the label of the output tokens, so its errors are theirs; a label may be small beside them.
    assert torch.equal(spec.read(output), sign * split(output, spec)[1])
    assert torch.equal(predicted, sign * split(tokens[-1], spec)[1][:, context:])


@given(dim=st.integers(1, 6), label=st.integers(1, 3), seed=st.integers(0, 2**20))
def test_partition_takes_the_map_apart(dim: int, label: int, seed: int) -> None:
    """[[M, u], [-w, a]] put together again is the map."""
    spec = ModelSpec(tokens=(("x", dim), ("y", label)))
    C = normal(3, dim + label, dim + label, seed=seed)
    state = partition(C, spec)
    assert torch.equal(torch.cat([torch.cat([state.M, state.u], -1), torch.cat([-state.w, state.a], -1)], -2), C)


def clipped_pair(clip: float) -> tuple[Case, Case]:
    """The same network without and with a clip, on 40 prompts."""
    fields = {"tokens": [["x", 3], ["y", 1]]}
    free = Case.drawn(ModelSpec.from_dict(fields), 3, 2, 5, 1, seed=4)
    tokens = normal(40, 6, 4, seed=5)
    model = LinearTransformer(spec=ModelSpec.from_dict({**fields, "clip": clip}), P=free.model.P, Q=free.model.Q)
    return Case(free.model, tokens[:, :5], tokens[:, 5:]), Case(model, tokens[:, :5], tokens[:, 5:])


def test_unclipped_says_which_prompts_the_clip_leaves_alone() -> None:
    free, clipped = clipped_pair(clip=2.5)
    _, without = free.token_by_token()
    _, with_clip = clipped.token_by_token()
    same = torch.stack([(a == b).flatten(1).all(-1) for a, b in zip(without, with_clip, strict=True)]).all(0)
    trajectory = forward(head_layers(clipped.model, 5), clipped.gram, clipped.query)
    found = unclipped(clipped.model, trajectory, clipped.context, clipped.query)
    assert 5 < int(same.sum()) < 35  # the clip has to matter for some prompts and not for others
    assert torch.equal(found, same)


def test_without_a_clip_every_prompt_is_unclipped() -> None:
    free, _ = clipped_pair(clip=2.5)
    trajectory = forward(head_layers(free.model, 5), free.gram, free.query)
    assert bool(unclipped(free.model, trajectory, free.context, free.query).all())


def test_a_clip_met_by_the_query_alone_counts() -> None:
    _free, clipped = clipped_pair(clip=1e3)
    query = clipped.query.clone()
    query[7] *= 1e4
    trajectory = forward(head_layers(clipped.model, 5), clipped.gram, query)
    found = unclipped(clipped.model, trajectory, clipped.context, query)
    assert torch.nonzero(~found).flatten().tolist() == [7]


def test_shared_maps_refuse_causal_keys() -> None:
    with pytest.raises(UsageError, match=r"'causal', expected 'context' or 'all'"):
        spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "attention": {"keys": "causal"}})
        head_layers(Case.drawn(spec, 2, 2, 6, 1, 0).model, 6)
