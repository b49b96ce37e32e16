"""The construction solves simple regression, in both readings, with and without the query in the sum."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.errors import LayoutError, UsageError
from interp.models.closed_form import closed_form, leverage_corrected
from interp.models.gram import head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import Embedding, LayerNorm
from interp.models.tasks import SimpleRegression
from interp.models.transformer import LinearTransformer

TASK = SimpleRegression(context=20)
PROMPTS = TASK.sample(1000, 0)


def run(model: LinearTransformer, prompts=PROMPTS) -> Tensor:
    return HookedLinearTransformer(model)(*prompts.inputs(model.spec)).flatten()


def relative(ours: Tensor, truth: Tensor) -> float:
    return float(((ours - truth).square().sum() / truth.square().sum()).sqrt())


def test_the_sum_over_the_context_alone_gives_least_squares() -> None:
    assert relative(run(closed_form(TASK)), PROMPTS.least_squares().prediction) < 2e-5


@pytest.mark.parametrize("placement", ["after-skip", "before-skip"])
def test_the_sum_over_all_rows_gives_the_form_shrunken_by_the_leverage(placement: Any) -> None:
    found = run(closed_form(TASK, "all", placement=placement))
    truth = PROMPTS.least_squares()
    assert relative(found, truth.shrunken) < 1e-4
    assert relative(found, truth.prediction) > 0.05  # and that is not least squares


def test_the_outer_skip_reading_gives_least_squares_too() -> None:
    assert relative(run(closed_form(TASK, placement="before-skip")), PROMPTS.least_squares().prediction) < 1e-4


def test_the_leverage_can_be_corrected_where_layernorm_is_affine() -> None:
    assert relative(run(leverage_corrected(TASK)), PROMPTS.least_squares().prediction) < 1e-3


@pytest.mark.parametrize("context", [5, 50])
def test_any_number_of_examples(context: int) -> None:
    task = SimpleRegression(context=context)
    prompts = task.sample(500, 1)
    assert relative(run(closed_form(task), prompts), prompts.least_squares().prediction) < 5e-5


def test_larger_scales_are_more_exact() -> None:
    truth = PROMPTS.least_squares().prediction
    errors = [relative(run(closed_form(TASK, K=K, r=r)), truth) for K, r in ((1e2, 1e4), (1e3, 1e4), (1e4, 1e4))]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert relative(run(closed_form(TASK, r=1e2)), truth) > 5 * relative(run(closed_form(TASK, r=1e3)), truth)


def test_bad_scales_are_refused() -> None:
    with pytest.raises(UsageError, match="the scale K is 0"):
        closed_form(TASK, K=0.0)
    with pytest.raises(UsageError, match="the scale r is inf"):
        leverage_corrected(TASK, r=float("inf"))


def by_loops(model: LinearTransformer, tokens: np.ndarray, given: int) -> float:
    """The definition of an embedded network, token by token, for one prompt."""
    spec, norm = model.spec, model.spec.find(LayerNorm)
    weights = {name: value.numpy() for name, value in model.named()}
    e = [weights["embedding.weight"] @ t + weights["embedding.bias"] for t in tokens]
    keys = given if spec.attention.keys == "context" else len(e)
    for layer in range(model.layers):
        after = []
        for i in range(len(e)):
            z = e[i].copy()
            for h in range(model.heads):
                for j in range(keys):
                    score = e[i] @ weights["Q"][layer, h] @ e[j]
                    z += spec.attention.factor(given) * score * (weights["P"][layer, h] @ e[j])
            if norm is not None:
                z = (z - z.mean()) / np.sqrt(z.var() + norm.eps)
                if norm.affine:
                    z = weights["layernorm.gain"][layer] * z + weights["layernorm.bias"][layer]
                if norm.placement == "before-skip":
                    z = e[i] + z
            after.append(z)
        e = after
    flat = sum(w @ t for w, t in zip(weights["readout.weight"], e, strict=True)) + weights["readout.bias"][0]
    return spec.readout.sign * float(flat)


@pytest.mark.parametrize("keys", ["context", "all"])
@pytest.mark.parametrize(
    "norm", [None, LayerNorm(), LayerNorm(affine=True), LayerNorm(placement="before-skip", affine=True, eps=0.0)]
)
def test_the_hooked_pass_against_loops(keys: Any, norm: LayerNorm | None) -> None:
    model = random_embedded(keys, norm, seed=4)
    prompts = SimpleRegression(context=4).sample(3, 2)
    context, query = prompts.inputs(model.spec)
    ours = HookedLinearTransformer(model)(context, query)
    assert ours.shape == (3, 1, 1)
    for b in range(3):
        tokens = torch.cat([context[b], query[b]]).numpy()
        assert float(ours[b]) == pytest.approx(by_loops(model, tokens, 4), rel=1e-10)


def random_embedded(keys: Any, norm: LayerNorm | None, seed: int, D: int = 5) -> LinearTransformer:
    generator = torch.Generator().manual_seed(seed)
    base = closed_form(SimpleRegression(context=4), keys).spec
    spec = dataclasses.replace(base, added=(Embedding(size=D), *([norm] if norm else [])))
    draw = lambda *shape: 0.4 * torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    tensors = {name: draw(*(5 if size is None else size for size in shape)) for name, shape in spec.tensors(2).items()}
    return LinearTransformer(spec=spec, Q=draw(2, 3, D, D), P=draw(2, 3, D, D), tensors=tensors)


def test_hook_points_of_layernorm_are_what_they_say() -> None:
    hooked = HookedLinearTransformer(random_embedded("all", LayerNorm(affine=True), 0))
    prompts = SimpleRegression(context=4).sample(6, 0)
    out, cache = hooked.run_with_cache(*prompts.inputs(hooked.spec))
    mid, scale = cache["blocks.1.hook_resid_mid"], cache["blocks.1.ln.hook_scale"]
    torch.testing.assert_close(scale[..., 0], (mid.var(-1, unbiased=False) + 1e-5).sqrt())
    torch.testing.assert_close(mid, cache["blocks.1.hook_resid_pre"] + cache["blocks.1.hook_attn_out"])
    torch.testing.assert_close(cache["blocks.1.ln.hook_normalized"], cache["blocks.1.hook_resid_post"])
    torch.testing.assert_close(cache["embed.hook_embed"], cache["blocks.0.hook_resid_pre"])
    changed = hooked.run_with_hooks(
        *prompts.inputs(hooked.spec), fwd_hooks=[("blocks.1.ln.hook_scale", lambda t, hook: t * 2)]
    )
    assert not torch.allclose(out, changed)


def test_a_prompt_of_another_length_is_refused_by_the_flat_read_out() -> None:
    hooked = HookedLinearTransformer(closed_form(TASK))
    with pytest.raises(UsageError, match="expected 20 context tokens and one query"):
        hooked(*SimpleRegression(context=19).sample(2, 0).inputs(hooked.spec))


def test_there_is_no_gram_matrix_of_such_a_model() -> None:
    with pytest.raises(LayoutError, match=r"for an embedding; .* for LayerNorm; .* for a flat read-out"):
        head_layers(closed_form(TASK), 20)


def by_gram(model: LinearTransformer, context: Tensor, query: Tensor) -> dict[str, Tensor]:
    """A network with every head as the linear map P_h G Q_h^T of a token, G the Gram matrix of the keys."""
    spec, norm, weights = model.spec, model.spec.find(LayerNorm), dict(model.named())
    n, out = context.shape[1], dict[str, Tensor]()
    e = torch.cat([context, query], 1) @ weights["embedding.weight"].mT + weights["embedding.bias"]
    for layer in range(model.layers):
        keys = e[:, :n] if spec.attention.keys == "context" else e
        out[f"blocks.{layer}.hook_resid_pre"] = e
        maps = spec.attention.factor(n) * (model.P[layer] @ (keys.mT @ keys)[:, None] @ model.Q[layer].mT)
        out[f"blocks.{layer}.attn.hook_head_out"] = parts = e[:, None] @ maps.mT
        z = e + parts.sum(1)
        if norm is not None:
            out[f"blocks.{layer}.hook_resid_mid"] = z
            gain, bias = (weights[f"layernorm.{part}"][layer] for part in ("gain", "bias")) if norm.affine else (1, 0)
            z = gain * (z - z.mean(-1, keepdim=True)) / (z.var(-1, correction=0, keepdim=True) + norm.eps).sqrt() + bias
            z = e + z if norm.placement == "before-skip" else z
        out[f"blocks.{layer}.hook_resid_post"] = e = z
    read = (e * weights["readout.weight"]).sum((-1, -2)) + weights["readout.bias"]
    return out | {"prediction": spec.readout.sign * read}


@pytest.mark.parametrize("keys", ["context", "all"])
@pytest.mark.parametrize("norm", [None, LayerNorm(affine=True), LayerNorm(placement="before-skip")])
def test_heads_as_maps_of_a_gram_matrix_agree_in_every_part(keys: Any, norm: LayerNorm | None) -> None:
    model = random_embedded(keys, norm, seed=7)
    given = SimpleRegression(context=4).sample(5, 3).inputs(model.spec)
    out, cache = HookedLinearTransformer(model).run_with_cache(*given)
    for name, value in by_gram(model, *given).items():
        ours = out.flatten() if name == "prediction" else cache[name]
        torch.testing.assert_close(ours, value, rtol=1e-10, atol=1e-12)
