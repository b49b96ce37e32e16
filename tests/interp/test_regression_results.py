"""The field ``regression`` of an analysis: when it is there, that it survives JSON, and a few planted ones."""

from __future__ import annotations

import json
from typing import Any

import planting
import pytest
import torch

from interp.analysis import analyse
from interp.evidence.question import QUESTIONS
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.results import Analysis, Regression

PROMPTS = 512  # small networks: enough for the fits, and the rest is quick


@pytest.fixture(autouse=True)
def only_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not at stake here and takes longest is left out; the table of losses is over fewer prompts."""
    monkeypatch.setattr("interp.identify.losses.MOST_PROMPTS", 512)
    monkeypatch.setattr("interp.identify.losses.CHUNK", 512)
    for name in ("behaviour", "probes", "interventions", "stress"):
        monkeypatch.delitem(QUESTIONS, name)


def analysed(omega: list[list[float]], prompts: int = PROMPTS, **fields: Any) -> Analysis:
    P, Q = planting.block_scalar_heads(torch.tensor(omega, dtype=torch.float64), 3)
    model = LinearTransformer(spec=planting.spec_for(3, 8, 2.0, **fields), P=P, Q=Q)
    return analyse(planting.checkpoint(model), prompts=prompts)


def regression(result: Analysis) -> Regression:
    assert result.regression is not None
    return result.regression


DIAG = [[-0.02, -0.001, -0.04, -0.002], [0.0, 0.0, -0.08, -0.002]]


def test_a_planted_diag_network() -> None:
    result = analysed(DIAG)
    found = regression(result)
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert Analysis.from_dict(document) == result
    assert result.verdict.algorithm == "diag" == found.omegas.family

    names = [s.name for s in found.profile.series]
    assert names[:5] == ["network", "recovered", "layer-0", "layer-1", "layer-2"] and "tunedrr" in names
    network, recovered = found.profile.series[:2]
    assert recovered.label == "recovered algorithm (diag)"
    assert recovered.excess == pytest.approx(network.excess, rel=1e-6)
    assert {(e.coefficient, e.layer) for e in found.omegas.effects} >= {("xy", None), ("xy", 0), ("yy", 1)}
    for rows in (found.shrinkage, found.step):
        assert len(rows) == 2
        for row in rows:
            for b in row.bins:
                assert b.predicted == pytest.approx(b.observed, rel=1e-6) == pytest.approx(b.by_weights, rel=1e-6)
    bare = found.step[1].bins[-1]
    assert bare.without is not None and bare.without > 1.05 * bare.predicted  # omega_xy shortens the step
    assert found.shrinkage[0].r2 == found.step[1].r2 == pytest.approx(1.0, abs=1e-6)
    assert [m.layer for m in found.momentum] == [0, 1] == [r.layer for r in found.remainder]
    assert found.momentum[0].step == pytest.approx(0.04, rel=1e-9)
    assert [f.layer for f in found.filters] == [1, 1, 1, 2, 2, 2]


def test_the_same_seed_gives_the_same_figures() -> None:
    assert analysed(DIAG).regression == analysed(DIAG).regression


def test_a_gradient_descent_network_is_judged_by_its_own_omegas() -> None:
    task = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"choice": [3, 1]}}
    found = regression(analysed([[0.0, 0.0, -0.04, 0.0]] * 2, task=task))
    assert found.profile.levels == (1.0, 3.0) == found.profile.trained
    assert [f.noise for f in found.filters] == [(1.0, 1.0), (3.0, 3.0)] * 2
    assert found.omegas.family == "gd" and {e.coefficient for e in found.omegas.effects} == {"yx"}
    assert all(row.r2 is None and {b.observed for b in row.bins} == {1.0} for row in found.shrinkage)


@pytest.mark.parametrize(
    "fields",
    [
        {"attention": {"keys": "all", "scale": "1/n"}},
        {"residual": False},
        {"tokens": [["y", 1], ["x", 3]]},
        {"readout": {"sign": 1}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_kind_of_model_has_one(fields: dict[str, Any]) -> None:
    model = planting.random_dense(1, 2, 3, size=0.5)
    spec = ModelSpec.from_dict(model.spec.to_dict() | fields)
    result = analyse(planting.checkpoint(LinearTransformer(spec=spec, P=model.P, Q=model.Q)), prompts=PROMPTS)
    found = regression(result)
    assert Analysis.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False))) == result
    assert found.profile.series[0].excess[0] is not None
    for row, layer in zip(found.remainder, result.layers, strict=True):
        assert row.energy == pytest.approx(layer.split.residual, abs=1e-12)


def test_families_with_other_terms_are_judged_by_the_four_omegas() -> None:
    """A matrix in place of omega_yx, and trace terms: what is predicted is by the recovered algorithm all the same."""
    spec = planting.spec_for(3, 8, 2.0)
    Q = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    Q[:, 0, :3, :3] = torch.tensor([[0.05, 0.02, 0.0], [0.0, 0.02, 0.01], [0.01, 0.0, 0.08]], dtype=torch.float64)
    P = torch.zeros_like(Q)
    P[:, 0, 3, 3] = -1.0
    traces = planting.trace_heads({"y:xx": torch.tensor([-0.01, -0.01], dtype=torch.float64)}, 3)
    gd = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, -0.04, 0.0]] * 2, dtype=torch.float64), 3)
    both = tuple(torch.cat(pair, 1) for pair in zip(gd, traces, strict=True))
    for heads, verdict in (((P, Q), "preconditioned-gd"), (both, "equivariant")):
        model = LinearTransformer(spec=spec, P=heads[0], Q=heads[1])
        result = analyse(planting.checkpoint(model), prompts=PROMPTS)
        found = regression(result)
        assert (result.verdict.algorithm, found.omegas.family) == (verdict, "diag")
        for row in (*found.shrinkage, *found.step):
            for b in row.bins:
                assert b.predicted == pytest.approx(b.observed, rel=1e-6, abs=1e-9)


def test_where_the_noise_drives_too_many_prompts_into_the_clip_there_is_no_figure() -> None:
    profile = regression(analysed(DIAG, clip=5.0)).profile
    kept = PROMPTS // 4
    assert 0.9 * kept <= profile.prompts[0] and profile.prompts[-1] == 0
    for series in profile.series:
        for count, excess in zip(profile.prompts, series.excess, strict=True):
            assert (excess is None) == (count == 0)


def test_networks_that_predict_nothing_have_none() -> None:
    assert analysed([[0.0, 0.0, 0.0, 0.0]]).regression is None
    diverging = analysed([[0.0, 0.0, 1e40, 0.0]] * 3)
    assert diverging.regression is None and diverging.families == ()


def test_few_prompts_leave_the_refits_out() -> None:
    found = regression(analysed(DIAG, prompts=64))
    assert found.omegas.refitted is None and found.omegas.note is not None and "--prompts" in found.omegas.note
    assert found.omegas.effects[0].zeroed is not None
