"""Published protocols by name: which apply, what their rows hold, and that planted truth is found by the right ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planting import block_scalar_heads, checkpoint, spec_for
from test_probing import dynamics_model

from interp.errors import UsageError
from interp.evidence import published
from interp.evidence.probe_request import ProbeRequest
from interp.evidence.probing import probe_checkpoint
from interp.evidence.published import PROTOCOLS, find_protocols, mesa_scores
from interp.models.tasks import LinearDynamics, NoiseLaw, NoisyRegression, find_targets, targets_of
from interp.models.transformer import LinearTransformer
from interp.probes.pooled import AttentionPooling
from interp.results import ProbeScore

REGRESSION = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="fixed", values=(1.0,)))
DYNAMICS = LinearDynamics(dim=3, context=20)
FAST = {
    f"attention-{readout}": AttentionPooling(readout=readout, projection=16, hidden=16, steps=60, learning_rate=1e-2)
    for readout in ("linear", "mlp")
}


def planted() -> LinearTransformer:
    P, Q = block_scalar_heads(torch.tensor([[-0.01, 0.0, -0.04, 0.0]] * 2, dtype=torch.float64), 3)
    return LinearTransformer(spec=spec_for(3, 8, noise=1.0), P=P, Q=Q)


@pytest.mark.parametrize(
    ("task", "name", "targets", "applicable"),
    [
        (REGRESSION, "mesa", [], "sound, akyurek"),
        (DYNAMICS, "akyurek", [], "sound, mesa"),
        (REGRESSION, "akyrek", [], "sound, akyurek"),
        (REGRESSION, "akyurek", ["label"], "alpha, w-ols, w"),
    ],
)
def test_what_does_not_apply_is_refused(task: Any, name: str, targets: list[str], applicable: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_protocols(targets_of(task), [name], find_targets(task, targets))
    assert repr(name) in str(refused.value) and applicable in str(refused.value)


def test_a_protocol_registers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """From outside the package: it applies to the task whose targets it names, and its rows are those of the report."""
    monkeypatch.setattr(published, "PROTOCOLS", dict(published.PROTOCOLS))
    row = ProbeScore(
        layer=0, target="label", kind="token", r2=0.5, r2_ci=(0.4, 0.6), mse=1.0, control={}, protocol="toy"
    )  # fmt: skip
    published.protocol("toy", targets=("label",), usual=("label",), weaknesses=("it is a toy",))(lambda *_: [row])
    report = probe_checkpoint(checkpoint(planted()), protocols=["toy"], prompts=128)
    assert report.probes == (row,) and report.notes == ("it is a toy",)
    assert [target.name for target in report.targets] == ["label"]
    sound, others = find_protocols(targets_of(REGRESSION), ["toy", "sound"])
    assert sound and [entry.name for entry in others] == ["toy"]


def test_attention_pooling_goes_with_its_controls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "READOUTS", FAST)
    report = probe_checkpoint(checkpoint(planted()), protocols=["akyurek"], layers=(0, 2), prompts=400)
    rows = {(row.target, row.kind, row.layer): row for row in report.probes}
    assert set(rows) == {(t, kind, layer) for t in ("alpha", "w-ols") for kind in FAST for layer in (0, 2)}
    for row in report.probes:
        assert row.protocol == "akyurek" and row.prompts == 400 and row.position is None
        assert row.r2 is not None and row.variance is not None and row.mse is not None and row.mse_held_out is not None
        assert row.r2 == pytest.approx(1 - row.mse_held_out / row.variance)
        assert set(row.selectivity_ci) == {"untrained", "shuffled", "inputs"}
        if row.layer == 0:
            assert row.selectivity["inputs"] == 0 and row.selectivity["untrained"] == pytest.approx(0.0, abs=1e-9)
        if row.kind == "attention-linear":  # odd in the tokens, and the targets are even
            assert row.r2 < 0.1
    assert {t.name for t in report.targets} == {"alpha", "w-ols"} and not report.transplants
    assert any("at chance whatever the network has learned" in note for note in report.notes)
    assert type(report).from_dict(report.to_dict()) == report


def test_the_mesa_protocol_is_scored_in_sample_and_on_what_it_has_not_seen() -> None:
    targets = find_targets(DYNAMICS, PROTOCOLS["mesa"].targets)
    rows = mesa_scores(ProbeRequest(dynamics_model(DYNAMICS), DYNAMICS, targets, (0, 1), (2, 19), 256, 0))
    by = {(row.target, row.position, row.layer): row for row in rows}
    assert {row.target for row in rows} == {"next", "preconditioned-published"}
    last = by["next", 19, 1]
    assert last.mse is not None and last.mse_held_out is not None and last.mse < last.mse_held_out
    assert last.r2 is not None and last.r2_ci[0] is not None and 0.3 < last.r2_ci[0] < last.r2 < 1
    nothing = by["next", 19, 0]  # W is another in every sequence: what is read in sample is chance
    assert nothing.r2 is not None and nothing.r2 < 0.05


def test_one_protocol_alone_and_the_default() -> None:
    task = LinearDynamics(dim=2, context=6)
    model = checkpoint(dynamics_model(task))
    options = {"targets": ["next"], "layers": (1,), "positions": (5,), "prompts": 128}
    alone = probe_checkpoint(model, protocols=["mesa"], **options)
    assert {row.protocol for row in alone.probes} == {"mesa"} and not alone.erasures
    both = probe_checkpoint(model, **options)
    assert {row.protocol for row in both.probes} == {"sound", "mesa"} and both.erasures
