"""Interventions on a model as a whole: which are made, on how many prompts, and what is said of the others."""

from __future__ import annotations

import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.evidence.interventions import intervene
from interp.evidence.probe_request import ProbeRequest
from interp.models.constructions import gradient_step
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics, Task, find_targets, task_of
from interp.models.transformer import LinearTransformer
from interp.reports.document import dumps

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 2]}}


def regression(size: float = 0.1, **fields: object) -> tuple[LinearTransformer, Task]:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": {**TASK, **fields}})
    P, Q = size * torch.randn(2, 2, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q), task_of(spec.task)


def test_a_trained_model_passes_both_checks() -> None:
    model = open_checkpoint("zoo:one-step-1000-tasks").model.to(torch.float64)
    task = task_of(model.spec.task)
    targets = find_targets(task, ["w", "label"])
    moved, erased, notes = intervene(ProbeRequest(model, task, targets, (0, 1), (None,), 300, 0))
    assert [(row.layer, row.kind) for row in moved] == [(1, "weights"), (1, "state")]
    assert all(row.effect == pytest.approx(1.0, abs=1e-8) and row.prompts == 300 for row in moved)
    assert {(row.target, row.layer) for row in erased} == {("w", 0), ("w", 1), ("label", 0), ("label", 1)}
    assert not notes
    again, _, _ = intervene(ProbeRequest(model, task, targets, (1,), (None,), 300, 0))
    assert again == moved


def test_a_causal_model_has_erasures_alone() -> None:
    task = LinearDynamics.from_dict({"dim": 3, "context": 10})
    moved, erased, notes = intervene(
        ProbeRequest(gradient_step(task, 0.1), task, find_targets(task, ["current"]), (0, 1), (4, 8), 200, 0)
    )
    assert not moved and {row.position for row in erased} == {8}
    assert len(notes) == 1 and "every token has implicit weights of its own" in notes[0]


def test_what_cannot_be_checked_is_said() -> None:
    model, task = regression(context=2)
    targets = find_targets(task, ["label"])
    moved, erased, notes = intervene(ProbeRequest(model, task, targets, (1,), (None,), 200, 0))
    assert not moved and len(erased) == 1 and "leave the implicit weights free" in notes[0]
    wild, task = regression(size=1e40)
    assert intervene(ProbeRequest(wild, task, targets, (1,), (None,), 200, 0))[2] == (
        "interventions: skipped, because most prompts diverge",
    )
    long, task = regression(context=2000)
    assert "too long" in intervene(ProbeRequest(long, task, targets, (1,), (None,), 200, 0))[2][0]


def test_the_command_reports_them() -> None:
    from interp.evidence.probing import probe_checkpoint

    report = probe_checkpoint(open_checkpoint("zoo:one-step-1000-tasks"), targets=["label"], prompts=384)
    assert {row.kind for row in report.transplants} == {"weights", "state"} and report.erasures
    assert type(report).from_dict(report.to_dict()) == report
    assert '"transplants"' in dumps(report)
