"""The fast causal forward pass against the hooked one, which forms every score."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from interp.models.causal import causal_passage, causal_prediction
from interp.models.constructions import gradient_step
from interp.models.errors import LayoutError
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import AttentionSpec, LayerNorm, ModelSpec, Readout
from interp.models.tasks import LinearDynamics
from interp.models.transformer import LinearTransformer

TASK = LinearDynamics(dim=3, context=7)


@pytest.mark.parametrize("scale", ["1", "1/n", 0.3])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("clip", [None, 0.6])
def test_equals_the_hooked_model_at_every_layer(scale, residual, clip):
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
    tokens = TASK.sample(5, 0).inputs(spec)[0]
    passage = causal_passage(spec, Q, P, tokens)
    predicted, cache = HookedLinearTransformer(LinearTransformer(spec=spec, Q=Q, P=P)).run_with_cache(tokens)
    for layer in range(3):
        torch.testing.assert_close(passage[layer + 1], cache[f"blocks.{layer}.hook_resid_post"], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(causal_prediction(spec, passage[-1]), predicted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"attention": AttentionSpec(keys="context")}, "attention.keys is 'context', expected 'causal'"),
        ({"layernorm": LayerNorm()}, "the model has LayerNorm, expected causal attention layers alone"),
    ],
)
def test_what_it_would_run_wrongly_is_refused(changed, said):
    model = gradient_step(TASK, 0.1)
    tokens = TASK.sample(2, 0).inputs(model.spec)[0]
    with pytest.raises(LayoutError, match=said):
        causal_passage(dataclasses.replace(model.spec, **changed), model.Q, model.P, tokens)
