"""Certificates of matrix completion: planted EAGLE in every regime, run from the emitted files."""

from __future__ import annotations

import planting
import planting_eagle
import pytest
import torch
from repeats import repeats

from interp.certificate import certify, recognize
from interp.models.gram import forward, head_layers
from interp.models.skipped import Skipped
from interp.models.tasks import MatrixCompletion
from interp.reports.emit import emitted
from interp.results import RecoveredCompletion

PROMPTS = 256


@pytest.mark.parametrize("regime", repeats(reversed(planting_eagle.REGIMES), 1))
def test_planted_eagle_is_emitted(regime: str) -> None:
    model = planting_eagle.plant(regime, seed=1).model
    checkpoint = planting.checkpoint(model)
    found = recognize(checkpoint, PROMPTS, 0)
    assert found is not None
    made = certify(found, PROMPTS, None)
    algorithm = made.recovered
    assert isinstance(algorithm, RecoveredCompletion) and algorithm.algorithm == "eagle"
    assert (bool(algorithm.machines), bool(algorithm.sketches)) == (regime == "machines", regime == "sketch")
    for entry in made.disagreements:
        if entry.skipped is None:
            assert entry.q99 is not None and entry.q99 < 1e-6, entry
    names: dict[str, object] = {"__name__": "emitted"}
    exec(emitted(made, "torch"), names)
    complete = names["complete"]
    assert callable(complete)
    for task in (planting_eagle.small_task(regime), planting_eagle.small_task(regime, context=4, queries=3)):
        drawn = task.sample(4, 99)
        grams = drawn.grams(model.spec)
        tokens = forward(head_layers(model, drawn.context), grams.gram, grams.query).queries[-1]
        network = -tokens[..., task.dim :]
        torch.testing.assert_close(torch.func.vmap(complete)(drawn.A, drawn.B, drawn.C), network, rtol=1e-6, atol=1e-8)


def test_variations_are_what_they_are_called() -> None:
    task = MatrixCompletion.from_dict({"dim": 4, "context": 6, "spectrum": [1.0, 0.5, 0.25], "noise": 0.1})
    made = {name: v.task for name, v in task.variations().items()}
    kinds = {name: kind for name, kind in made.items() if isinstance(kind, MatrixCompletion)}
    assert kinds["task"] == task and kinds.keys() == made.keys()
    assert kinds["noise x2"].noise.values == (0.2,)
    assert (kinds["rows x1/2"].context, kinds["rows x2"].context) == (3, 12)
    torch.testing.assert_close(kinds["entries x1/2"].sample(3, 0).A, 0.5 * task.sample(3, 0).A)
    size = {name: float(kind.sample(20_000, 1).D.square().mean()) for name, kind in kinds.items()}
    for name, rank in (("rank x1/2", 1), ("rank x2", 6), ("flat spectrum", 3)):
        assert len(kinds[name].spectrum) == rank
        assert size[name] == pytest.approx(size["task"], rel=0.15)  # rank 1 has heavy tails
    kernel = MatrixCompletion.from_dict({"dim": 4, "context": 4, "kernel": {"name": "rbf"}})
    assert [name for name, v in kernel.variations().items() if not isinstance(v.task, Skipped)] == ["task"]
