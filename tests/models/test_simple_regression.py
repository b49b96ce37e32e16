"""The task of one input and an intercept: least squares against numpy, and the leave-one-out identity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.errors import LayoutError, UsageError
from interp.models.specification import ModelSpec, Readout
from interp.models.tasks import SimpleRegression, task_of
from interp.models.transformer import LinearTransformer

FIELDS = {"name": "simple_regression", "context": 20}


def flat_model(tokens: int) -> LinearTransformer:
    """A model with read-out weights for so many tokens."""
    spec = ModelSpec(tokens=(("1", 1), ("x", 1), ("y", 1)), readout=Readout(flat=True))
    tensors = {"readout.weight": torch.zeros(tokens, 3), "readout.bias": torch.zeros(1)}
    return LinearTransformer(spec=spec, Q=torch.zeros(1, 1, 3, 3), P=torch.zeros(1, 1, 3, 3), tensors=tensors)


HUGE = 10**400  # a whole number that no float holds


def test_the_target_is_what_numpy_fits() -> None:
    prompts = SimpleRegression(context=9).sample(50, 3)
    for b in range(prompts.count):
        line = np.polyfit(prompts.x[b].numpy(), prompts.y[b].numpy(), 1)
        expected = np.polyval(line, float(prompts.x_query[b]))
        assert float(prompts.target[b]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_adding_the_query_with_label_0_shrinks_the_fit_there_by_1_minus_h() -> None:
    prompts = SimpleRegression(context=7).sample(40, 5)
    found = prompts.least_squares()
    for b in range(prompts.count):
        x = np.append(prompts.x[b].numpy(), float(prompts.x_query[b]))
        design = np.stack([np.ones_like(x), x], 1)
        hat = design @ np.linalg.pinv(design)
        fitted = float((hat @ np.append(prompts.y[b].numpy(), 0.0))[-1])
        assert float(found.leverage[b]) == pytest.approx(hat[-1, -1], rel=1e-9)
        assert float(found.shrunken[b]) == pytest.approx(fitted * 8 / 7, rel=1e-8, abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.floats(-50, 50).filter(lambda c: abs(c) > 1e-2), st.floats(-50, 50).filter(lambda c: abs(c) > 1e-2))
def test_least_squares_ignores_the_scale_of_x_and_follows_that_of_y(cx: float, cy: float) -> None:
    task = SimpleRegression(context=12)
    plain = task.sample(20, 0).least_squares()
    scaled = replace(task, x_scale=cx, y_scale=cy).sample(20, 0).least_squares()
    for name in ("prediction", "shrunken"):
        expected = cy * getattr(plain, name)
        torch.testing.assert_close(getattr(scaled, name), expected, rtol=1e-9, atol=1e-9 * abs(cy))


def test_tokens_are_one_x_y_and_the_query_has_no_label() -> None:
    task = SimpleRegression(context=5)
    prompts = task.sample(3, 1)
    context, query = prompts.inputs(ModelSpec(tokens=(("1", 1), ("x", 1), ("y", 1))))
    assert context.shape == (3, 5, 3) and query.shape == (3, 1, 3)
    torch.testing.assert_close(context[..., 1], prompts.x)
    assert bool((context[..., 0] == 1).all()) and bool((query[..., 2] == 0).all())
    with pytest.raises(LayoutError, match="in this order"):
        prompts.inputs(ModelSpec(tokens=(("x", 1), ("y", 1))))


def test_the_same_seed_gives_the_same_prompts_and_fields_survive_a_round_trip() -> None:
    task = SimpleRegression(context=6, spread=1.0, shift=0.0)
    assert task_of(task.to_dict()) == task
    assert torch.equal(task.sample(4, 7).y, task.sample(4, 7).y)
    assert not torch.equal(task.sample(4, 7).y, task.sample(4, 8).y)
    assert task.sample(4, 7)[1:3].count == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": 1}, "2 or more"),
        ({"context": 0}, "task.context"),
        ({"spread": -1}, "task.spread"),
        ({"shift": float("nan")}, "task.shift"),
        ({"weight_std": 0}, "positive"),
        ({"weight_std": 1e200}, "task.weight_std"),
        ({"noise": {"choice": [0.1, HUGE]}}, "task.noise"),
        ({"noise": {"gamma": 1}}, "task.noise"),
        ({"dim": 3}, "unknown field task.dim"),
    ],
)
def test_bad_fields_are_named(change: dict, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        task_of({**FIELDS, **change})


def test_what_it_refuses() -> None:
    with pytest.raises(UsageError, match="expected 1 or more"):
        SimpleRegression(context=20).sample(0, 0)
    with pytest.raises(UsageError, match=f"expected {SimpleRegression(context=20).most_prompts} or fewer"):
        SimpleRegression(context=20).sample(10**9, 0)
    with pytest.raises(LayoutError, match=r"a single prompt of task\.context 1000000000000 takes"):
        SimpleRegression(context=10**12).sample(1, 0)
    with pytest.raises(LayoutError, match="no 'context'"):
        task_of({"name": "simple_regression"})
    with pytest.raises(LayoutError, match="has 20 rows, expected 21"):
        SimpleRegression(context=20).fits(flat_model(20))
