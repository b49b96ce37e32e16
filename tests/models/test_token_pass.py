"""The token pass without hooks: what it records, what may be changed on the way, and its derivatives."""

from __future__ import annotations

import pytest
import torch

from interp.models.closed_form import closed_form, leverage_corrected
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import AttentionSpec, ModelSpec, Readout
from interp.models.tasks import LinearDynamics, NoiseLaw, NoisyRegression, SimpleRegression
from interp.models.token_pass import Record, point_names, predict, run, states
from interp.models.transformer import LinearTransformer

TASK, LINES = LinearDynamics(dim=3, context=7), SimpleRegression(context=6)


def causal_model(scale: str | float, residual: bool, clip: float | None) -> LinearTransformer:
    generator = torch.Generator().manual_seed(1)
    spec = ModelSpec(
        tokens=(("out", 3), ("query", 3), ("state", 3), ("previous", 3)),
        attention=AttentionSpec(keys="causal", scale=scale),
        residual=residual,
        clip=clip,
        readout=Readout(channel="out", sign=-1),
        task=TASK.to_dict(),
    )
    Q, P = (0.4 * torch.randn(3, 2, 12, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    return LinearTransformer(spec=spec, Q=Q, P=P)


def by_prefixes(model: LinearTransformer, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Token i of a causal model has a map of its own, of the Gram matrix of the tokens up to it."""
    spec, out = model.spec, [tokens]
    for q, p in zip(model.Q, model.P, strict=True):
        grams = (out[-1][..., None] * out[-1][..., None, :]).cumsum(1)
        maps = (p[:, None, None] @ grams @ q.mT[:, None, None]).sum(0)
        update = spec.attention.factor(tokens.shape[1]) * (maps @ out[-1][..., None])[..., 0]
        after = out[-1] + update if spec.residual else update
        out.append(after if spec.clip is None else after.clamp(-spec.clip, spec.clip))
    return out


@pytest.mark.parametrize("scale", ["1", "1/n", 0.3])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("clip", [None, 0.6])
def test_causal_tokens_are_those_of_their_prefixes(scale, residual, clip):
    model = causal_model(scale, residual, clip)
    tokens = TASK.sample(5, 0).inputs(model.spec)[0]
    expected = by_prefixes(model, tokens)
    for ours, theirs in zip(states(model.spec, dict(model.named()), tokens), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(predict(model, tokens), -expected[-1][..., :3], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("keys", ["context", "all"])
def test_equals_the_gram_pass(keys):
    task = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="fixed", values=(1.0,)))
    spec = ModelSpec(tokens=(("x", 3), ("y", 1)), attention=AttentionSpec(keys=keys, scale="1/n"))
    generator = torch.Generator().manual_seed(0)
    Q, P = 0.5 * torch.randn(2, 4, 2, 4, 4, generator=generator, dtype=torch.float64)
    model, drawn = LinearTransformer(spec=spec, Q=Q, P=P), task.sample(6, 0)
    grams = drawn.grams(spec)
    final = forward(head_layers(model, 8), grams.gram, grams.query).queries[-1]
    torch.testing.assert_close(predict(model, *drawn.inputs(spec)), spec.read(final), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (causal_model("1/n", True, 0.6), lambda spec: TASK.sample(4, 0).inputs(spec)),
        (closed_form(SimpleRegression(context=6)), lambda spec: SimpleRegression(context=6).sample(4, 0).inputs(spec)),
        (
            leverage_corrected(SimpleRegression(context=6)),
            lambda spec: SimpleRegression(context=6).sample(4, 0).inputs(spec),
        ),
    ],
)
def test_the_hooked_model_has_its_named_values_as_hook_points(model, inputs):
    record = Record()
    prediction = predict(model, *inputs(model.spec), at=record)
    hooked = HookedLinearTransformer(model)
    out, cache = hooked.run_with_cache(*inputs(model.spec))
    assert list(record) == point_names(model.spec, model.layers) == hooked.hook_names() == list(cache)
    assert torch.equal(prediction, out) and all(torch.equal(record[name], cache[name]) for name in record)


def test_a_value_that_is_changed_on_the_way_is_what_the_pass_goes_on_with():
    model = causal_model("1/n", True, None)
    tokens = TASK.sample(2, 0).inputs(model.spec)[0]
    without = model.Q.clone(), model.P.clone()
    without[1][1, 0] = 0.0

    def ablate(name: str, value: torch.Tensor) -> torch.Tensor:
        if name != "blocks.1.attn.hook_head_out":
            return value
        return value * torch.tensor([0.0, 1.0], dtype=value.dtype)[:, None, None]

    expected = run(model.spec, dict(zip("QP", without, strict=True)), tokens)
    torch.testing.assert_close(predict(model, tokens, at=ablate), expected, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(predict(model, tokens), expected)


def test_derivatives_in_the_weights_of_many_networks_at_once():
    model = leverage_corrected(SimpleRegression(context=5), K=3.0, r=2.0, G=2.0, label=0.5)
    tokens = torch.cat(SimpleRegression(context=5).sample(3, 0).inputs(model.spec), 1)
    weights = {name: value.expand(2, *value.shape).clone() for name, value in model.named()}
    weights["Q"][1] *= 1.1

    def loss(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return run(model.spec, weights, tokens, 5).square().sum()

    slopes = torch.func.vmap(torch.func.grad(loss))(weights)
    for network in range(2):
        own = {name: value[network] for name, value in weights.items()}
        for name, value in own.items():
            towards = torch.randn(value.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
            moved = [loss(own | {name: value + step * towards}) for step in (1e-6, -1e-6)]
            slope = (slopes[name][network] * towards).sum()
            torch.testing.assert_close(slope, (moved[0] - moved[1]) / 2e-6, rtol=1e-5, atol=1e-6)
