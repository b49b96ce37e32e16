"""The linear model that the tokens of one prompt hold, by least squares and by the exact unrolling."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.algebra.unrolling import ImplicitState, implicit_states
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.errors import UsageError
from interp.models.gram import HeadLayers, forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import RegressionPrompts, task_of
from interp.models.transformer import LinearTransformer
from interp.probes.within import linearity_r2, within_prompt

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 2]}}


def model(seed: int = 0, size: float = 0.05, **fields: object) -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK, **fields})
    P, Q = size * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q)


def prompts(count: int = 20) -> RegressionPrompts:
    return task_of(TASK).sample(count, 1)


@pytest.mark.parametrize(
    "fields", [{}, {"attention": {"keys": "all", "scale": "1/n"}}, {"residual": False}, {"clip": 1e60}]
)
def test_linear_layers_are_linear(fields: dict[str, object]) -> None:
    assert linearity_r2(model(size=0.2, **fields), prompts()) == pytest.approx((1.0,) * 4, abs=1e-12)


def test_a_clip_is_seen_as_not_linear() -> None:
    first, *later = linearity_r2(model(clip=1.0), prompts())
    assert first == 1.0  # before the first layer nothing is clipped
    assert all(score is not None and score < 0.9 for score in later)


def test_another_unrolling_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong map of one layer spoils that layer and those after it, and no layer before."""
    given = model(size=0.2)
    wrong = replace(given, P=torch.cat([given.P[:1], 1.5 * given.P[1:2], given.P[2:]]))

    def other(_: LinearTransformer, context: int) -> HeadLayers:
        return HeadLayers(P=wrong.P, Q=wrong.Q, scale=1.0, residual=1.0)

    monkeypatch.setattr(sys.modules[linearity_r2.__module__], "head_layers", other)
    scores = linearity_r2(given, prompts())
    assert scores[:2] == pytest.approx((1.0, 1.0), abs=1e-12)
    assert all(score is not None and score < 0.999 for score in scores[2:])


def test_labels_that_are_all_the_same_have_no_score() -> None:
    """Without a residual stream and with heads that cancel in the label, labels are rounding after the first layer."""
    given = model(residual=False, size=0.3)
    P = given.P.clone()
    P[0, 1, 3], Q = -P[0, 0, 3] / 3, given.Q.clone()
    Q[0, 1] = 3 * Q[0, 0]
    assert linearity_r2(replace(given, P=P, Q=Q), prompts())[1] is None
    P[0, :, 3] = 0.0
    assert linearity_r2(replace(given, P=P), prompts())[1] is None


def test_what_overflows_has_no_score() -> None:
    scores = linearity_r2(model(size=1e90), prompts())
    assert scores[0] == 1.0 and scores[-1] is None


def implicit(given: LinearTransformer, drawn: RegressionPrompts) -> list[ImplicitState]:
    grams = drawn.grams(given.spec)
    return list(implicit_states(forward(head_layers(given, drawn.context), grams.gram, grams.query), given.spec))


def agrees(found: torch.Tensor, exact: torch.Tensor, tolerance: float = 1e-8) -> bool:
    """Relative to the largest entry: small ones next to it are only as sharp."""
    return float((found - exact).abs().max()) <= tolerance * max(float(exact.abs().max()), 1.0)


def of_regression(name: str) -> bool:
    spec = inspect_checkpoint(f"zoo:{name}").spec
    return spec is not None and (spec.task or {}).get("name") == "noisy_regression"


@pytest.mark.parametrize("name", [name for name in zoo_names() if of_regression(name)])
def test_on_every_model_of_the_zoo_the_probe_is_the_unrolling(name: str) -> None:
    given = open_checkpoint(f"zoo:{name}").model.to(torch.float64)
    drawn = task_of(given.spec.task).sample(64, 5)
    for probed, exact in zip(within_prompt(given, drawn), implicit(given, drawn), strict=True):
        assert bool(probed.determined.all())
        assert agrees(probed.w, exact.w) and agrees(probed.a, exact.a)
        assert probed.r2 == pytest.approx(1.0, abs=1e-10)


def test_the_fit_is_that_of_numpy_and_of_leaving_tokens_out_one_by_one() -> None:
    given, drawn = model(clip=0.5, size=0.1), prompts(3)
    context, query = drawn.inputs(given.spec)
    X = torch.cat([context, query], 1).numpy()
    _, cache = HookedLinearTransformer(given).run_with_cache(context, query)
    for layer, probed in enumerate(within_prompt(given, drawn)[1:]):
        Y = cache[f"blocks.{layer}.hook_resid_post"][..., 3].numpy()
        error = np.zeros_like(Y)
        for n in range(3):
            fit = np.linalg.lstsq(X[n], Y[n], rcond=None)[0]
            np.testing.assert_allclose(torch.cat([-probed.w[n, 0], probed.a[n, 0]]), fit, rtol=1e-10, atol=1e-12)
            for i in range(9):
                others = np.arange(9) != i
                error[n, i] = Y[n, i] - X[n, i] @ np.linalg.lstsq(X[n][others], Y[n][others], rcond=None)[0]
        spread = ((Y - Y.mean(1, keepdims=True)) ** 2).sum(1)
        np.testing.assert_allclose(probed.r2_by_prompt, 1 - (error**2).sum(1) / spread, rtol=1e-9)
        assert probed.r2 == pytest.approx(1 - (error**2).sum() / spread.sum(), rel=1e-9)
        assert probed.r2 is not None and probed.r2 < 0.99  # the clip is seen


def test_without_noise_the_query_makes_the_model_identifiable() -> None:
    drawn = task_of({**TASK, "noise": {"fixed": 0}}).sample(30, 2)
    given = model(size=0.1)
    assert torch.linalg.matrix_rank(drawn.inputs(given.spec)[0]).tolist() == [3] * 30  # of 4 unknowns
    for probed, exact in zip(within_prompt(given, drawn), implicit(given, drawn), strict=True):
        assert bool(probed.determined.all()) and agrees(probed.w, exact.w)


def test_what_too_few_tokens_leave_free_has_no_value() -> None:
    drawn = task_of({**TASK, "context": 2}).sample(5, 2)
    for probed in within_prompt(model(), drawn):
        assert not probed.determined.any() and probed.w.isnan().all() and probed.a.isnan().all()
        assert probed.r2 is None and probed.r2_by_prompt.isnan().all()


def test_as_many_tokens_as_unknowns_determine_the_model_but_have_no_score() -> None:
    drawn = task_of({**TASK, "context": 3}).sample(5, 2)
    given = model()
    for probed, exact in zip(within_prompt(given, drawn), implicit(given, drawn), strict=True):
        assert bool(probed.determined.all()) and agrees(probed.w, exact.w, 1e-7)
        assert probed.r2 is None


def test_causal_models_are_refused() -> None:
    with pytest.raises(UsageError, match="one token cannot determine it"):
        within_prompt(model(attention={"keys": "causal"}), prompts())
