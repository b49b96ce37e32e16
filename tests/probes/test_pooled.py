"""Pooled probes: what was planted in some tokens is found, with either read-out; what was not, is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.errors import UsageError
from interp.models.tasks import task_of
from interp.probes.held_out import HeldOut
from interp.probes.intervals import score
from interp.probes.moments import group_of
from interp.probes.pooled import AttentionPooling, attention_pooled
from interp.probes.tokens import layer_tokens

PROMPTS, POSITIONS, GROUPS = 600, 5, 60
SMALL = {"projection": 32, "hidden": 32, "steps": 600, "learning_rate": 1e-2}


def planted(seed: int, nonlinear: bool = False):
    """Tokens of two layers, (2, prompt, position, 4), and a target (prompt, 2): in layer 0 there is nothing of it, in
    layer 1 it stands in the token of position 3, among other tokens that say nothing."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(2, PROMPTS, POSITIONS, 4, generator=generator, dtype=torch.float64)
    target = tokens[1, :, 3, :2].clone()
    if nonlinear:
        target = target.square() - 1.0
    return tokens, target, group_of(torch.arange(PROMPTS), PROMPTS, GROUPS)


def r2(held_out: HeldOut | None) -> np.ndarray:
    assert held_out is not None
    return score(held_out).r2.value.numpy()


@pytest.mark.parametrize("readout", ["linear", "mlp"])
def test_attention_pooling_finds_the_token_that_holds_the_target(readout):
    tokens, target, group = planted(2)
    found = attention_pooled(tokens, target, group, AttentionPooling(readout=readout, **SMALL))
    assert r2(found.held_out)[1] > 0.97 and r2(found.held_out)[0] < 0.05
    assert r2(found.shuffled).max() < 0.05
    assert found.attention.shape == (2, POSITIONS)
    assert int(found.attention[1].argmax()) == 3 and float(found.attention[1, 3]) > 0.8
    np.testing.assert_allclose(found.attention.sum(-1), 1.0, atol=1e-6)


def test_only_the_mlp_reads_what_is_not_linear():
    tokens, target, group = planted(3, nonlinear=True)
    tokens = tokens[:, :, 3:4]  # one position, so that the read-out alone matters
    sizes = {**SMALL, "steps": 1000}
    linear, mlp = (
        attention_pooled(tokens, target, group, AttentionPooling(readout=r, **sizes)) for r in ("linear", "mlp")
    )
    assert r2(linear.held_out)[1] < 0.1 < 0.7 < r2(mlp.held_out)[1]


def test_held_out_prompts_never_move_the_fit():
    tokens, target, group = planted(4)
    settings = AttentionPooling(projection=8, hidden=8, steps=20, learning_rate=1e-2)
    before = attention_pooled(tokens, target, group, settings)
    apart = group % 2 == 1
    tokens[:, apart], target[apart] = tokens[:, apart] * 3.0 + 1.0, -target[apart]
    after = attention_pooled(tokens, target, group, settings)
    assert torch.equal(before.attention, after.attention)
    assert not torch.equal(before.held_out.squared_error, after.held_out.squared_error)
    again = attention_pooled(tokens, target, group, settings)
    assert torch.equal(after.held_out.squared_error, again.held_out.squared_error)


def test_prompts_that_diverge_are_left_out():
    tokens, target, group = planted(6)
    tokens[1, 7, 2, 0], tokens[0, 9, 0, 0], target[11, 1] = float("nan"), 1e30, float("inf")
    settings = AttentionPooling(projection=8, hidden=8, steps=5)
    found = attention_pooled(tokens, target, group, settings)
    assert found.dropped == 3 and bool(found.held_out.squared_error.isfinite().all())


def test_wrong_arguments():
    tokens, target, group = planted(7)
    with pytest.raises(UsageError, match="too few"):
        attention_pooled(tokens[:, :20], target[:20], group[:20] * 0)
    with pytest.raises(UsageError, match="too few"):
        attention_pooled(tokens * float("nan"), target, group)


@pytest.mark.parametrize("readout", ["linear", "mlp"])
def test_the_published_protocol_on_a_trained_model(readout):
    """A weighted mean of the tokens (x_i, y_i) says nothing of X^T Y: no score above chance, by any read-out."""
    model = open_checkpoint("zoo:diag-l4-u5").model.to(torch.float64)
    prompts = task_of(model.spec.task).sample(1200, 1)
    moments = (prompts.x.mT @ prompts.y[..., None]).squeeze(-1)
    tokens = torch.stack([tokens[:, :20] for tokens in layer_tokens(model, prompts)])
    assert tokens.shape == (5, 1200, 20, 11)
    settings = AttentionPooling(readout=readout, projection=32, hidden=32, steps=150)
    r2 = score(attention_pooled(tokens, moments, group_of(torch.arange(1200), 1200, GROUPS), settings).held_out).r2
    assert bool((r2.value < 0.1).all()) and bool(r2.low.isfinite().all())
