"""The share of the labels that the exact unrolling explains, token by token."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.models.tasks import RegressionPrompts, task_from_dict
from interp.models.transformer import LinearTransformer
from interp.probes.linearity import linearity_r2

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 2]}}


def model(seed: int = 0, size: float = 0.05, **fields: object) -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK, **fields})
    P, Q = size * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q)


def prompts(count: int = 20) -> RegressionPrompts:
    return task_from_dict(TASK).sample(count, 1)


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
