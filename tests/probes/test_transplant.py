"""Transplanted implicit weights: predictions follow, controls do not, and what should be skipped is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.errors import UsageError
from interp.models.specification import ModelSpec
from interp.models.tasks import NoisyRegression, RegressionPrompts, task_of
from interp.models.transformer import LinearTransformer
from interp.probes import transplant
from interp.probes.transplant import transplants
from interp.probes.within import within_prompt

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 2]}}


def model(size: float = 0.1, **fields: object) -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK, **fields})
    P, Q = size * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q)


def prompts(count: int = 200, **fields: object) -> RegressionPrompts:
    return task_of({**TASK, **fields}).sample(count, 1)


def of_regression(name: str) -> bool:
    spec = inspect_checkpoint(f"zoo:{name}").spec
    return spec is not None and (spec.task or {}).get("name") == "noisy_regression"


@pytest.mark.parametrize("name", [name for name in zoo_names() if of_regression(name)])
def test_on_every_model_of_the_zoo_predictions_follow(name: str) -> None:
    given = open_checkpoint(f"zoo:{name}").model.to(torch.float64)
    if given.spec.attention.keys == "causal":
        pytest.skip("causal models have no within-prompt probe")
    task = task_of(given.spec.task)
    assert isinstance(task, NoisyRegression)
    rows = transplants(given, task.sample(200, 3), 0)
    assert [(r.layer, r.kind) for r in rows] == [
        (layer, kind) for layer in range(1, given.layers + 1) for kind in ("weights", "state")
    ]
    for row in rows:
        assert row.reason is None and row.effect is not None and row.error is not None and row.effect_ci[0] is not None
        assert row.effect == pytest.approx(1.0, abs=1e-8) and row.error < 1e-16  # the issue asks for 1 %
        assert row.own == pytest.approx(0.0, abs=1e-20)
        assert row.fired == row.prompts == 200
    last = rows[-2]
    assert last.random_ci[0] is not None and last.random_ci[1] is not None
    assert last.random_ci[0] < 0.15 and last.random_ci[1] > -0.15 and abs(last.random or 1.0) < 0.3
    assert all(row.random_error is not None and row.random_error > 0.05 for row in rows if row.kind == "weights")


def test_after_the_last_layer_the_prediction_is_that_of_the_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected prediction by hand: <w_A, x_t> of the prompt that follows."""
    given, drawn = model(), prompts(6)
    seen = []
    original = transplant._Bench.expected

    def spy(self: object, layer: int, start: torch.Tensor) -> torch.Tensor:
        seen.append(original(self, layer, start))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(transplant._Bench, "expected", spy)
    transplants(given, drawn, 0)
    w = within_prompt(given, drawn)[3].w[:, 0].roll(-1, 0)
    torch.testing.assert_close(seen[-1][:, 0], (w * drawn.x_query).sum(-1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fields", [{"residual": False}, {"attention": {"keys": "all", "scale": "1/n"}}])
def test_other_layers_follow_too(fields: dict[str, object]) -> None:
    for row in transplants(model(size=0.5, **fields), prompts(), 0):
        if row.reason is None:
            assert row.effect == pytest.approx(1.0, abs=1e-8) and row.fired == 200
        else:
            assert row.kind == "state" and row.layer < 3 and "query is one of the keys" in row.reason
            assert row.effect is None and row.effect_ci == (None, None)


def test_a_clip_breaks_what_the_unrolling_expects() -> None:
    """The check can fail: where layers are not linear predictions do not follow."""
    rows = transplants(model(size=0.2, clip=1.0), prompts(), 0)
    assert all(row.error is not None and row.error > 0.05 for row in rows if row.kind == "weights" and row.layer < 3)


def test_weights_that_are_the_same_in_all_prompts_are_skipped() -> None:
    """A first layer that leaves the labels alone holds w = 0 for all."""
    given = model()
    P = given.P.clone()
    P[0, :, 3] = 0.0
    rows = transplants(replace(given, P=P), prompts(), 0)
    assert rows[0].reason is not None and "the same in all prompts" in rows[0].reason
    assert rows[2].reason is None


def test_a_label_that_is_never_read_is_skipped() -> None:
    given = model(residual=False)
    P = given.P.clone()
    P[2, :, 3] = 0.0  # the last layer writes no label, and the old one is not kept
    rows = transplants(replace(given, P=P), prompts(), 0)
    assert all(row.reason is not None for row in rows)


def test_bad_input() -> None:
    with pytest.raises(UsageError, match="2 or more"):
        transplants(model(), prompts(1), 0)
    with pytest.raises(UsageError, match="4 independent tokens"):
        transplants(model(), prompts(context=2), 0)
    with pytest.raises(UsageError, match="causal"):
        transplants(model(attention={"keys": "causal"}), prompts(), 0)
