"""The verdict alone: the same verdict as that of the whole analysis, for every task, without the further evidence."""

from __future__ import annotations

from dataclasses import replace

import planting
import planting_eagle
import pytest
import torch
from planting_channels import scrambled

from interp.analysis import analyse
from interp.models.constructions import gradient_step
from interp.models.tasks import LinearDynamics
from interp.models.transformer import LinearTransformer
from interp.results import Analysis

SKIPPED = {"further evidence": "only the verdict was asked for"}


@pytest.fixture(autouse=True)
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


def both(model: LinearTransformer) -> tuple[Analysis, Analysis]:
    short, whole = (analyse(planting.checkpoint(model), 128, 0, verdict_only=only) for only in (True, False))
    assert short.verdict.solves_task == whole.verdict.solves_task
    assert short.evidence.losses == whole.evidence.losses
    assert (short.provenance["verdict_only"], whole.provenance["verdict_only"]) == (True, False)
    return short, whole


def descent(clip: float | None, step: float = 0.03) -> LinearTransformer:
    P, Q = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, -step, 0.0]] * 3, dtype=torch.float64), 3)
    return LinearTransformer(spec=planting.spec_for(3, 12, noise=0.5, clip=clip), P=P, Q=Q)


@pytest.mark.parametrize(("step", "solves"), [(0.03, True), (-0.03, False)])
def test_a_clipped_network_is_said_to_solve_its_task_when_it_does(step: float, solves: bool) -> None:
    short, whole = both(descent(2.0, step))
    assert short.verdict.algorithm == "unrecognized" and short.verdict.solves_task is solves
    assert whole.verdict.algorithm == "unrecognized" and whole.verdict.solves_task is solves
    assert {row.name for row in short.evidence.losses} >= {"null", "network", "oracle"}


def test_a_network_that_diverges_does_not_solve_its_task() -> None:
    model = descent(None)
    short, _ = both(replace(model, P=1e40 * model.P))
    assert not short.verdict.solves_task and "diverge" in short.verdict.summary


def test_a_clipped_network_of_completion_is_measured_too() -> None:
    model = planting_eagle.plant("full", seed=1).model
    short, _ = both(replace(model, spec=replace(model.spec, clip=1.0)))
    assert short.verdict.algorithm == "unrecognized" and short.verdict.solves_task


def test_completion() -> None:
    short, whole = both(planting_eagle.plant("full", seed=1).model)
    assert short.verdict == whole.verdict and short.completion == whole.completion
    assert whole.evidence.swaps and not short.evidence.swaps
    assert short.skipped.items() >= SKIPPED.items() and "further evidence" not in whole.skipped


def test_causal_networks() -> None:
    short, whole = both(scrambled(gradient_step(LinearDynamics(dim=3, context=12), 0.1), 0))
    assert short.verdict == whole.verdict and short.layers == whole.layers
    assert short.sequences is not None and whole.sequences is not None
    assert short.sequences.losses == whole.sequences.losses
    for part in ("compressions", "interpolation", "objectives"):
        assert getattr(whole.sequences, part) and not getattr(short.sequences, part)
    assert whole.probes and not short.probes and short.skipped.items() >= SKIPPED.items()
