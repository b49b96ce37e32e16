"""The hooked forward pass against two independent implementations: Gram matrices, and Python loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.errors import UsageError
from interp.models import gram
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import SCALES, AttentionSpec, ModelSpec
from interp.models.transformer import LinearTransformer

# Eight layers, six heads and forty tokens make some thousand roundings of 1e-16 each, and the updates are kept small
# enough not to amplify them. Worst of 1500 cases: 4e-14 against the loops, 8e-14 against the Gram path.
RELATIVE = 1e-12

# The fields of a canonical checkpoint. They become a ModelSpec inside the tests, because the type checks of this suite
# draw random numbers, which hypothesis does not allow in a strategy.
fields = st.fixed_dictionaries(
    {
        "tokens": st.tuples(st.tuples(st.just("x"), st.integers(1, 6)), st.tuples(st.just("y"), st.integers(1, 3))),
        "attention": st.fixed_dictionaries(
            {
                "keys": st.sampled_from(["context", "causal", "all"]),
                "scale": st.sampled_from([*SCALES, 0.3, -2.0]),
            }
        ),
        "residual": st.booleans(),
        "clip": st.sampled_from([None, 0.5]),
        "readout": st.fixed_dictionaries({"channel": st.sampled_from(["x", "y"]), "sign": st.sampled_from([-1, 1])}),
    }
)


def random_model(spec: ModelSpec, layers: int, heads: int, context: int, seed: int) -> LinearTransformer:
    """Dense random weights; updates of standard normal tokens have about a tenth of the tokens' size, so that eight
    layers of a cubic map neither explode nor vanish."""
    generator = torch.Generator().manual_seed(seed)
    Q, P = torch.randn(2, layers, heads, spec.width, spec.width, generator=generator, dtype=torch.float64)
    if spec.residual:
        scale = abs(spec.attention.factor(context))
        size = 0.1 / (scale * context * spec.width * heads**0.5)
    else:
        size = 1.0 / (context * spec.width)
    return LinearTransformer(spec=spec, Q=size**0.5 * Q, P=size**0.5 * P)


def random_tokens(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_close(ours: Tensor, theirs: Tensor, size: float) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= RELATIVE * size


def python_loops(model: LinearTransformer, context: Tensor, query: Tensor | None) -> dict[str, np.ndarray]:
    """One prompt, by the definition of the model and nothing else. Returns activations by hook name, and "output"."""
    spec, Q, P = model.spec, model.Q.numpy(), model.P.numpy()
    tokens = [row.copy() for row in context.numpy()] + ([] if query is None else [row.copy() for row in query.numpy()])
    n = len(context)
    s = {"1": 1.0, "1/n": 1 / n, "1/(n+1)": 1 / (n + 1)}.get(spec.attention.scale, spec.attention.scale)
    seen: dict[str, list] = {}
    for layer in range(model.layers):
        seen[f"blocks.{layer}.hook_resid_pre"] = tokens
        sources = n if spec.attention.keys == "context" else len(tokens)
        scores = np.zeros((model.heads, len(tokens), sources))
        outs = np.zeros((model.heads, len(tokens), spec.width))
        after = []
        for i, e_i in enumerate(tokens):
            update = np.zeros(spec.width)
            for h in range(model.heads):
                for j in range(sources):
                    if spec.attention.keys == "causal" and j > i:
                        break
                    e_j = tokens[j]
                    scores[h, i, j] = sum(
                        e_i[a] * Q[layer, h, a, c] * e_j[c] for a in range(spec.width) for c in range(spec.width)
                    )
                    outs[h, i] += s * scores[h, i, j] * (P[layer, h] @ e_j)
                update += outs[h, i]
            new = e_i + update if spec.residual else update
            after.append(new if spec.clip is None else np.minimum(np.maximum(new, -spec.clip), spec.clip))
        tokens = after
        seen[f"blocks.{layer}.attn.hook_scores"] = scores
        seen[f"blocks.{layer}.attn.hook_head_out"] = outs
        seen[f"blocks.{layer}.hook_attn_out"] = outs.sum(0)
        seen[f"blocks.{layer}.hook_resid_post"] = tokens
    first = 0 if spec.attention.keys == "causal" else n
    start = 0 if spec.readout.channel == "x" else dict(spec.tokens)["x"]
    size = dict(spec.tokens)[spec.readout.channel]
    seen["output"] = [spec.readout.sign * token[start : start + size] for token in tokens[first:]]
    return {name: np.array(value) for name, value in seen.items()}


@settings(max_examples=60)
@given(
    fields=fields,
    layers=st.integers(1, 3),
    heads=st.integers(1, 3),
    context=st.integers(1, 4),
    queries=st.integers(1, 2),
    seed=st.integers(0, 2**32),
)
def test_every_activation_agrees_with_python_loops(fields, layers, heads, context, queries, seed):
    spec = ModelSpec.from_dict(fields)
    model = random_model(spec, layers, heads, context, seed)
    causal = spec.attention.keys == "causal"
    tokens, query = random_tokens(seed + 1, 2, context, spec.width), random_tokens(seed + 2, 2, queries, spec.width)
    output, cache = HookedLinearTransformer(model).run_with_cache(*((tokens,) if causal else (tokens, query)))
    for prompt in range(2):
        expected = python_loops(model, tokens[prompt], None if causal else query[prompt])
        assert set(expected) == {*cache, "output"}
        for name, value in expected.items():
            ours = output[prompt] if name == "output" else cache[name][prompt]
            # a predicted channel can be small beside the token it is read from: the token sets the rounding error
            size = expected[f"blocks.{layers - 1}.hook_resid_post"] if name == "output" else value
            assert_close(ours, torch.tensor(value), float(np.abs(size).max()))


@settings(max_examples=100)
@given(
    fields=fields,
    layers=st.integers(1, 8),
    heads=st.integers(1, 6),
    context=st.integers(1, 40),
    queries=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_tokens_and_gram_matrices_agree_with_the_gram_path(fields, layers, heads, context, queries, seed):
    spec = ModelSpec.from_dict({**fields, "clip": None})
    keys = spec.attention.keys
    assume(keys != "causal")
    if not spec.residual:
        layers = min(layers, 3)  # a cubic map without a skip: a few layers more, and every number underflows
    model = random_model(spec, layers, heads, context, seed)
    tokens, query = random_tokens(seed + 1, 3, context, spec.width), random_tokens(seed + 2, 3, queries, spec.width)
    keys_gram = tokens.mT @ tokens + (query.mT @ query if keys == "all" else 0)
    trajectory = gram.forward(gram.head_layers(model, context), keys_gram, query)
    assume(float(trajectory.grams[-1].abs().max()) < 1e6)  # a rare draw explodes: each layer then triples the rounding

    output, cache = HookedLinearTransformer(model).run_with_cache(tokens, query)
    sources = context if keys == "context" else context + queries
    for layer in range(layers):
        before = cache[f"blocks.{layer}.hook_resid_pre"]
        assert_close(before[:, context:], trajectory.queries[layer], float(before.abs().max()))
        G = trajectory.grams[layer]
        assert_close(before[:, :sources].mT @ before[:, :sources], G, float(G.abs().max()))
    final = trajectory.queries[layers]
    assert_close(
        output,
        spec.readout.sign * final[..., spec.channel(spec.readout.channel).indices],
        float(final.abs().max()),
    )


@given(context=st.integers(1, 6), cut=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_causal_predictions_do_not_depend_on_later_tokens(context, cut, seed):
    spec = ModelSpec(tokens=(("x", 2), ("y", 1)), attention=AttentionSpec(keys="causal", scale=0.1))
    hooked = HookedLinearTransformer(random_model(spec, 3, 2, context, seed))
    tokens = random_tokens(seed, 2, context, 3)
    assert_close(hooked(tokens[:, :cut]), hooked(tokens)[:, :cut], 1.0)


def test_queries_of_context_keys_do_not_see_each_other():
    spec = ModelSpec(tokens=(("x", 2), ("y", 1)))
    hooked = HookedLinearTransformer(random_model(spec, 3, 2, 5, 0))
    context, query = random_tokens(1, 4, 5, 3), random_tokens(2, 4, 3, 3)
    together = hooked(context, query)
    for q in range(3):
        assert_close(hooked(context, query[:, q : q + 1]), together[:, q : q + 1], 1.0)


def test_float32_differs_by_its_rounding_only():
    spec = ModelSpec(tokens=(("x", 4), ("y", 1)), attention=AttentionSpec(scale="1/n"))
    model = random_model(spec, 4, 2, 20, 0)
    context, query = random_tokens(1, 8, 20, 5), random_tokens(2, 8, 1, 5)
    exact = HookedLinearTransformer(model)(context, query)
    single = HookedLinearTransformer(model.to(torch.float32))(context.float(), query.float())
    assert single.dtype == torch.float32 and exact.dtype == torch.float64
    assert 0 < (single - exact).abs().max() < 1e-5  # 2^-24 = 6e-8 per rounding, some tens of them


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_refused(dtype):
    model = random_model(ModelSpec(tokens=(("x", 2), ("y", 1))), 1, 1, 5, 0)
    with pytest.raises(UsageError, match=r"model\.to\(torch\.float64\)"):
        HookedLinearTransformer(model.to(dtype))


def test_weights_of_two_dtypes_are_refused():
    model = random_model(ModelSpec(tokens=(("x", 2), ("y", 1))), 1, 1, 5, 0)
    with pytest.raises(UsageError, match="all float32 or all float64"):
        HookedLinearTransformer(LinearTransformer(spec=model.spec, Q=model.Q.float(), P=model.P))


CONTEXT, QUERY = torch.ones(2, 5, 3, dtype=torch.float64), torch.ones(2, 1, 3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("keys", "arguments", "message"),
    [
        ("context", (CONTEXT,), r"got no query tokens.*model\(context, query\)"),
        ("all", (CONTEXT,), "got no query tokens"),
        ("causal", (CONTEXT, QUERY), "whole sequence as one tensor"),
        ("causal", (CONTEXT[0],), r"tokens has shape \(5, 3\), expected \(batch, number of tokens, 3\)"),
        ("context", (CONTEXT[..., :2], QUERY), r"context has shape \(2, 5, 2\).*\{'x': 2, 'y': 1\}.*adds up to 3"),
        ("context", (CONTEXT, QUERY[0]), r"query has shape \(1, 3\), expected \(batch, number of queries, 3\)"),
        ("context", (CONTEXT[:, :0], QUERY), r"context has shape \(2, 0, 3\).*none of them 0"),
        ("all", (CONTEXT, QUERY[:, :0]), r"query has shape \(2, 0, 3\)"),
        ("context", (CONTEXT, QUERY[:1]), "context holds 2 prompts and query 1"),
        ("context", (CONTEXT.float(), QUERY), "context has dtype torch.float32, but the model has torch.float64"),
        ("all", (CONTEXT, QUERY.long()), "query has dtype torch.int64"),
        ("causal", (CONTEXT.to("meta"),), "tokens is on meta, but the model on cpu"),
    ],
)
def test_bad_input_is_one_clear_line(keys, arguments, message):
    spec = ModelSpec(tokens=(("x", 2), ("y", 1)), attention=AttentionSpec(keys=keys))
    with pytest.raises(UsageError, match=message) as caught:
        HookedLinearTransformer(random_model(spec, 1, 1, 5, 0))(*arguments)
    assert "\n" not in str(caught.value)


def test_an_array_of_another_library_is_refused():
    hooked = HookedLinearTransformer(random_model(ModelSpec(tokens=(("x", 2), ("y", 1))), 1, 1, 5, 0))
    # not through forward, whose annotation already stops it in this suite, unlike for users
    with pytest.raises(UsageError, match="context is of type ndarray, expected a torch tensor"):
        hooked._require_tokens("context", np.ones((2, 5, 3)))


def test_the_model_keeps_its_own_copy_of_the_weights():
    model = random_model(ModelSpec(tokens=(("x", 2), ("y", 1))), 2, 2, 5, 0)
    hooked = HookedLinearTransformer(model)
    before = hooked(CONTEXT, QUERY)
    model.Q.zero_()
    assert torch.equal(hooked(CONTEXT, QUERY), before)
