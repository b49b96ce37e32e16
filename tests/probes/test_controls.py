"""Untrained models, and how much a model is above them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.probes.controls import shuffled, untrained_models
from interp.probes.held_out import HeldOut
from interp.probes.selectivity import above_untrained

TASK = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="uniform", values=(0.2, 2.0)))


def model(size: float = 0.1, **fields: object) -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK.to_dict(), **fields})
    weights = size * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=weights[0], Q=weights[1])


def relative_updates(given: LinearTransformer) -> list[float]:
    inputs = TASK.sample(200, 3).inputs(given.spec)
    if given.spec.attention.keys == "causal":
        inputs = (torch.cat(inputs, 1),)
    _, cache = HookedLinearTransformer(given).run_with_cache(*inputs)
    return [
        float(cache[f"blocks.{i}.hook_attn_out"].square().sum() / cache[f"blocks.{i}.hook_resid_pre"].square().sum())
        for i in range(given.layers)
    ]


@pytest.mark.parametrize("fields", [{}, {"residual": False}, {"attention": {"keys": "causal", "scale": "1/n"}}])
def test_untrained_layers_change_their_tokens_as_much(fields: dict[str, object]) -> None:
    given, prompts = model(**fields), TASK.sample(200, 3)
    wanted = relative_updates(given)
    for other in untrained_models(given, prompts, (1, 2)):
        assert other.spec == given.spec and other.P.shape == given.P.shape and other.P.dtype == given.P.dtype
        np.testing.assert_allclose(relative_updates(other), wanted, rtol=1e-9)
        angle = torch.nn.functional.cosine_similarity(other.P.flatten(), given.P.flatten(), dim=0)
        assert abs(float(angle)) < 0.5


def test_untrained_models_are_those_of_their_seeds_and_free_of_the_gauge() -> None:
    given, prompts = model(), TASK.sample(50, 3)
    one, two = untrained_models(given, prompts, (1, 2))
    (again,) = untrained_models(given, prompts, (1,))
    assert torch.equal(one.P, again.P) and torch.equal(one.Q, again.Q) and not torch.equal(one.P, two.P)
    (rescaled,) = untrained_models(replace(given, P=7 * given.P, Q=given.Q / 7), prompts, (1,))
    torch.testing.assert_close(
        rescaled.P[0, 0] @ rescaled.Q[0, 0].T, one.P[0, 0] @ one.Q[0, 0].T, rtol=1e-9, atol=1e-12
    )


def test_a_layer_that_does_nothing_stays_so() -> None:
    given = model()
    P = given.P.clone()
    P[1] = 0.0
    (other,) = untrained_models(replace(given, P=P), TASK.sample(50, 3), (1,))
    assert not other.P[1].any() and bool(other.P[[0, 2]].any())


def test_nobody_keeps_their_own_target() -> None:
    targets = torch.arange(12.0).reshape(2, 3, 2)
    other = shuffled(targets)
    assert not bool((other == targets).any())
    assert torch.equal(other.sort(dim=1).values, targets.sort(dim=1).values)


def errors(shares: torch.Tensor, generator: torch.Generator, groups: int = 60, rows: int = 50) -> HeldOut:
    """Held-out errors of probes that leave these shares of two targets of variance 1 unexplained, streams in front."""
    y = torch.randn(groups, rows, 1, generator=generator, dtype=torch.float64)
    error = shares.sqrt()[None, :, None, None] * y[:, None] * torch.randn(rows, 1, generator=generator).double().sign()
    mean = y.mean(1)
    return HeldOut(
        group=torch.arange(groups),
        count=torch.full((groups,), float(rows), dtype=torch.float64),
        squared_error=error.square().sum(2),
        y_mean=mean,
        yy=(y - mean[:, None]).square().sum(1),
    )


def test_intervals_hold_zero_for_one_more_untrained_model() -> None:
    """The acceptance in simulation: models whose R^2 differ from each other by far more than sampling error."""
    held = 0
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        shares = (-(0.5 + 0.3 * torch.randn(9, generator=generator, dtype=torch.float64)).abs()).exp()
        model, *others = (errors(shares[i : i + 1], torch.Generator().manual_seed(seed)) for i in range(9))
        gap = above_untrained(model, others, slice(None), 0).gap
        assert float(gap.low) <= float(gap.value) <= float(gap.high)
        held += float(gap.low) <= 0 <= float(gap.high)
    assert 0.91 <= held / 300 <= 0.99


def test_a_model_far_above_is_told_apart_and_failed_fits_count_as_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    model = errors(torch.tensor([0.2, 1e-30], dtype=torch.float64), generator)
    shares = [0.9, 0.7, 3.0, 0.8, 1e9]
    others = [errors(torch.tensor([s, 1e-30], dtype=torch.float64), torch.Generator().manual_seed(0)) for s in shares]
    found = above_untrained(model, others, slice(None), 0)
    r2 = 1 - others[0].squared_error[:, 0].sum() / others[0].squared_error[:, 0].sum() * torch.tensor(shares)
    expected = 1 - float((1 - r2.clamp_min(0.0)).log().mean().exp())
    assert float(found.control[0]) == pytest.approx(expected, abs=0.01)
    assert float(found.gap.value[0]) == pytest.approx(0.8 - expected, abs=0.01) and float(found.gap.low[0]) > 0.2
    assert [float(v[1]) for v in (found.gap.low, found.gap.value, found.gap.high)] == pytest.approx([0, 0, 0], abs=1e-9)


def test_untrained_models_that_lost_prompts_are_compared_on_what_is_left() -> None:
    model, other, third = (
        errors(torch.tensor([share], dtype=torch.float64), torch.Generator().manual_seed(0))
        for share in (0.3, 0.5, 0.6)
    )
    kept = torch.arange(60) > 9
    part = HeldOut(**{name: value[kept] for name, value in vars(other).items()})
    found = above_untrained(model, [part, third], slice(None), 0)
    assert bool(found.gap.value.isnan().all())  # two models say nothing of how models differ
    found = above_untrained(model, [part, third, third], slice(None), 0)
    assert 0.1 < float(found.gap.value) < 0.4 and bool(found.gap.low.isfinite().all())
