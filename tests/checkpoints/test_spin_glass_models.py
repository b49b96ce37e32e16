"""The two models published by the authors of the spin-glass paper, where they are present."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.models.gram import forward, head_layers
from interp.models.tasks import task_of

FOLDER = Path(__file__).parents[3] / "shared" / "checkpoints" / "spin-glass"
PROMPTS = 40_000


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the published models do not ship with this repository")
@pytest.mark.parametrize(
    ("name", "expected", "tolerance"),
    # The values of an independent token-by-token evaluation; 5 standard errors of 40 000 prompts (0.0011 and 0.022).
    [("W-2.npy", 0.1172, 0.0055), ("W-1.npy", 2.23, 0.11)],
)
def test_fresh_loss_is_that_of_the_authors(name: str, expected: float, tolerance: float) -> None:
    opened = open_checkpoint(str(FOLDER / name))
    assert (opened.layout, opened.dtype) == ("spin-glass", "float32")
    model = opened.model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    prompts = task.sample(PROMPTS, seed=0)
    grams = prompts.grams(model.spec)
    output = forward(head_layers(model, task.context), grams.gram, grams.query).queries[-1]
    prediction = model.spec.readout.sign * output[..., model.spec.channel("y").indices]
    assert float(((prediction - prompts.target) ** 2).mean()) == pytest.approx(expected, abs=tolerance)
