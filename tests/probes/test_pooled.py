"""Pooled probes: what was planted in some tokens is found, with either read-out; what was not, is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.models.errors import UsageError
from interp.models.tasks.noisy_regression import NoisyRegression
from interp.probes.held_out import HeldOut
from interp.probes.intervals import difference, score
from interp.probes.moments import group_of
from interp.probes.pooled import AttentionPooling, attention_pooled, context_tokens, gram_features, gram_pooled

PROMPTS, POSITIONS, GROUPS = 600, 5, 60
SMALL = {"projection": 32, "hidden": 32, "steps": 600, "learning_rates": (1e-2,)}


def planted(seed: int, nonlinear: bool = False):
    """Tokens of two layers, (2, prompt, position, 4), and a target (prompt, 2): in layer 0 there is nothing of it, in
    layer 1 it stands in the token of position 3, among other tokens that say nothing."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(2, PROMPTS, POSITIONS, 4, generator=generator, dtype=torch.float64)
    target = tokens[1, :, 3, :2].clone()
    if nonlinear:
        target = target.square() - 1.0
    return tokens, target, group_of(torch.arange(PROMPTS), PROMPTS, GROUPS)


def r2(held_out: HeldOut) -> np.ndarray:
    return score(held_out).r2.value.numpy()


def test_gram_features_against_loops():
    tokens = planted(0)[0][:, :3]
    got = gram_features(tokens)
    assert got.shape == (2, 3, 4 + 10)
    for layer, prompt in np.ndindex(2, 3):
        e = tokens[layer, prompt].numpy()
        second = np.mean([np.outer(token, token) for token in e], axis=0)
        expected = [*e.mean(0), *(second[i, j] for i in range(4) for j in range(i, 4))]
        np.testing.assert_allclose(got[layer, prompt], expected, rtol=1e-12)


def test_gram_pooling_reads_second_moments_and_shuffled_targets_are_not_there():
    tokens, _, group = planted(1)
    target = torch.stack([tokens[1, :, :, 0].square().sum(-1), (tokens[1, :, :, 1] * tokens[1, :, :, 2]).sum(-1)], -1)
    found = gram_pooled(tokens, target, group, GROUPS)
    assert found.protocol == "sound" and found.dropped == 0
    np.testing.assert_allclose(r2(found.held_out)[1], 1.0, atol=1e-9)
    assert abs(r2(found.held_out)[0]) < 0.1 and np.abs(r2(found.shuffled)).max() < 0.1
    gap = difference(found.held_out, found.shuffled)
    assert gap.low[1] > 0.9 and gap.low[0] < 0.05 and gap.high[0] > -0.05


@pytest.mark.parametrize("readout", ["linear", "mlp"])
def test_attention_pooling_finds_the_token_that_holds_the_target(readout):
    tokens, target, group = planted(2)
    found = attention_pooled(tokens, target, group, AttentionPooling(readout=readout, **SMALL))
    assert found.protocol == "akyurek"
    assert r2(found.held_out)[1] > 0.97 and r2(found.held_out)[0] < 0.05
    assert r2(found.shuffled).max() < 0.05
    assert found.attention is not None and found.attention.shape == (2, POSITIONS)
    assert int(found.attention[1].argmax()) == 3 and float(found.attention[1, 3]) > 0.8
    np.testing.assert_allclose(found.attention.sum(-1), 1.0, atol=1e-6)
    # and the exact linear algebra of the sound protocol agrees that it cannot be read from moments of all tokens alike
    assert r2(gram_pooled(tokens, target, group, GROUPS).held_out)[1] < 0.5


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
    settings = AttentionPooling(projection=8, hidden=8, steps=20, learning_rates=(1e-3, 1e-2))
    before = attention_pooled(tokens, target, group, settings)
    apart = group % 2 == 1
    tokens[:, apart], target[apart] = tokens[:, apart] * 3.0 + 1.0, -target[apart]
    after = attention_pooled(tokens, target, group, settings)
    assert before.attention is not None and after.attention is not None
    assert torch.equal(before.attention, after.attention)
    assert before.learning_rate is not None and after.learning_rate is not None
    assert torch.equal(before.learning_rate, after.learning_rate)
    assert not torch.equal(before.held_out.squared_error, after.held_out.squared_error)
    again = attention_pooled(tokens, target, group, settings)
    assert torch.equal(after.held_out.squared_error, again.held_out.squared_error)


def test_the_learning_rate_is_chosen_per_layer_and_is_that_of_the_better_fit():
    tokens, target, group = planted(5)
    settings = AttentionPooling(projection=32, hidden=32, steps=200, learning_rates=(1e-6, 1e-2, 1e3))
    found = attention_pooled(tokens, target, group, settings)
    assert found.learning_rate is not None and float(found.learning_rate[1]) == 1e-2
    assert r2(found.held_out)[1] > 0.7


def test_prompts_that_diverge_are_left_out():
    tokens, target, group = planted(6)
    tokens[1, 7, 2, 0], tokens[0, 9, 0, 0], target[11, 1] = float("nan"), 1e30, float("inf")
    settings = AttentionPooling(projection=8, hidden=8, steps=5)
    found = attention_pooled(tokens, target, group, settings)
    assert found.dropped == 3 and bool(found.held_out.squared_error.isfinite().all())
    tokens[0, 9, 0, 0] = 1.0
    assert gram_pooled(tokens, target, group, GROUPS).dropped == 2


def test_wrong_arguments():
    tokens, target, group = planted(7)
    with pytest.raises(UsageError, match="too few"):
        attention_pooled(tokens[:, :20], target[:20], group[:20] * 0)
    with pytest.raises(UsageError, match="too few"):
        attention_pooled(tokens * float("nan"), target, group)
    with pytest.raises(UsageError, match="steps is 0"):
        AttentionPooling(steps=0)
    with pytest.raises(UsageError, match="learning_rates"):
        AttentionPooling(learning_rates=())


@pytest.fixture(scope="module")
def trained():
    """Context tokens of a zoo model on its own task, X^T Y and the weights of least squares."""
    model = open_checkpoint("zoo:diag-l4-u5").model.to(torch.float64)
    task = NoisyRegression.from_dict({k: v for k, v in (model.spec.task or {}).items() if k != "name"})
    prompts = task.sample(1200, 1)
    targets = {
        "moments": (prompts.x.mT @ prompts.y[..., None]).squeeze(-1),
        "w-ols": torch.linalg.lstsq(prompts.x, prompts.y[..., None]).solution.squeeze(-1),
    }
    return context_tokens(model, prompts), prompts, targets


def test_tokens_of_a_trained_model(trained):
    tokens, prompts, _ = trained
    assert tokens.shape == (5, 1200, 20, 11)
    assert torch.equal(tokens[0, :, :, :10], prompts.x) and torch.equal(tokens[0, :, :, 10], prompts.y)
    assert not torch.equal(tokens[1], tokens[0])


@pytest.mark.parametrize("name", ["moments", "w-ols"])
def test_gram_pooling_of_a_trained_model(trained, name):
    """The inputs hold X^T Y exactly, so only what a layer adds to them would be a finding; least squares is no linear
    function of second moments, and stands nearer to one after a layer of the network than before it."""
    tokens, _, targets = trained
    group = group_of(torch.arange(1200), 1200, GROUPS)
    found = gram_pooled(tokens, targets[name], group, GROUPS)
    r2, shuffled = score(found.held_out).r2, score(found.shuffled).r2
    if name == "moments":
        assert float(r2.value[0]) == pytest.approx(1.0, abs=1e-9) and bool((r2.high[1:] < 0.9).all())
    else:
        assert difference(found.held_out.streams(1), found.held_out.streams(0)).low > 0.02
    assert bool((shuffled.value < 0.05).all()) and bool((difference(found.held_out, found.shuffled).low[0] > 0.1).all())


@pytest.mark.parametrize("readout", ["linear", "mlp"])
def test_the_published_protocol_on_a_trained_model(trained, readout):
    """A weighted mean of the tokens (x_i, y_i) says nothing of X^T Y: no score above chance, by any read-out."""
    tokens, _, targets = trained
    settings = AttentionPooling(readout=readout, projection=32, hidden=32, steps=150)
    found = attention_pooled(tokens, targets["moments"], group_of(torch.arange(1200), 1200, GROUPS), settings)
    r2 = score(found.held_out).r2
    assert bool((r2.value < 0.1).all()) and bool(r2.low.isfinite().all())
    assert found.attention is not None and found.attention.shape == (5, 20)
