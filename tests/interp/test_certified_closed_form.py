"""Certificates of simple regression: constructed networks, run from the emitted files."""

from __future__ import annotations

import planting
import pytest
import torch
from planting_simple import linear_steps, random_network, regauged

from interp.certificate import certify, recognize
from interp.models.closed_form import closed_form
from interp.models.skipped import Skipped
from interp.models.tasks import SimpleRegression
from interp.models.token_pass import predict as predicted
from interp.models.transformer import LinearTransformer
from interp.reports.emit import emitted
from interp.results import RecoveredDescent, RecoveredForm

PROMPTS = 512
TASK = SimpleRegression(context=12)


# The constructions are exact in a limit: see interp.papers.closed_form_law.
@pytest.mark.parametrize(
    ("model", "kind", "within"),
    [
        (regauged(closed_form(TASK), 1), RecoveredForm, 1e-3),
        (regauged(closed_form(TASK, "all"), 2), RecoveredForm, 1e-3),
        (linear_steps(TASK), RecoveredDescent, 1e-6),
        (linear_steps(TASK, keys="all"), RecoveredDescent, 1e-6),
    ],
)
def test_constructed_algorithms_are_emitted(model: LinearTransformer, kind: type, within: float) -> None:
    checkpoint = planting.checkpoint(model)
    found = recognize(checkpoint, PROMPTS, 0)
    assert found is not None
    made = certify(found, PROMPTS, None)
    algorithm = made.recovered
    assert isinstance(algorithm, kind)
    if isinstance(algorithm, RecoveredForm):
        assert algorithm.shrunken is (model.spec.attention.keys == "all")
        assert any("read-out has weights" in (entry.skipped or "") for entry in made.disagreements)
    assert made.disagreements[0].q99 is not None and made.disagreements[0].q99 < within
    names: dict[str, object] = {"__name__": "emitted"}
    exec(emitted(made, "torch"), names)
    predict = names["predict"]
    assert callable(predict)
    drawn = TASK.sample(50, 99)
    expected = predicted(model, *drawn.inputs(model.spec))[:, 0, 0]
    mapped = torch.func.vmap(predict)(drawn.x, drawn.y, drawn.x_query)
    torch.testing.assert_close(mapped, expected, rtol=10 * within, atol=10 * within)


def test_what_is_not_recognized_is_not_certified() -> None:
    assert recognize(planting.checkpoint(random_network(TASK, "context", 0)), PROMPTS, 0) is None


def test_variations_are_what_they_are_called() -> None:
    made = {name: v.task for name, v in TASK.variations().items()}
    kinds = {name: kind for name, kind in made.items() if isinstance(kind, SimpleRegression)}
    assert kinds.keys() == made.keys() and kinds["task"] == TASK
    assert (kinds["context x1/2"].context, kinds["context x2"].context) == (6, 24)
    assert (kinds["shift x2"].shift, kinds["spread x2"].spread, kinds["weights x2"].weight_std) == (1.0, 1.0, 2.0)
    assert kinds["noise x2"].noise.values == (0.6,)
    tied = TASK.variations(fixed_context=True)
    assert [name for name, v in tied.items() if isinstance(v.task, Skipped)] == ["context x1/2", "context x2"]
