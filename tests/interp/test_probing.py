"""Probes of whole networks: what is known to be there is found, and what cannot be there is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planting import block_scalar_heads, checkpoint, spec_for

from interp.checkpoints.opening import open_checkpoint
from interp.errors import LayoutError, UsageError
from interp.evidence.probe_request import ProbeRequest
from interp.evidence.probing import default_probes, probe_checkpoint, probe_model
from interp.models.tasks import (
    KINDS,
    LinearDynamics,
    MatrixCompletion,
    NoiseLaw,
    NoisyRegression,
    Target,
    find_targets,
    register_target,
    targets,
    targets_of,
    task_of,
)
from interp.models.transformer import LinearTransformer
from interp.probes.activations import query_tokens
from interp.probes.controls import untrained_models
from interp.reports.document import dumps
from interp.reports.html import render_report
from interp.results import ProbeReport, ProbeScore

TASK = NoisyRegression(dim=4, context=12, noise=NoiseLaw(kind="uniform", values=(0.0, 2.0)))


def planted(layers: int = 3, **fields: Any) -> LinearTransformer:
    """GD++ with steps that solve the task."""
    omega = torch.tensor([[-0.01, 0.0, -0.04, 0.0]] * layers, dtype=torch.float64)
    P, Q = block_scalar_heads(omega, 4)
    return LinearTransformer(spec=spec_for(4, 12, noise=2.0, **fields), P=P, Q=Q)


def scores(model: LinearTransformer, *names: str, task: Any = TASK, prompts: int = 2048, **options: Any) -> Any:
    wanted = find_targets(task, names) if names else targets_of(task)
    layers, positions = options.pop("layers", range(model.layers + 1)), options.pop("positions", None)
    positions = positions or ((None,) if query_tokens(task, model.spec) else (1, 2, 5, 10, task.context - 1))
    request = ProbeRequest(model, task, wanted, layers, positions, prompts, options.pop("seed", 0))
    found, notes = probe_model(request, **options)
    return {(s.target, s.kind, s.layer, s.position): s for s in found if s.protocol == "sound"}, notes


def excludes_zero(score: ProbeScore, control: str = "untrained") -> bool:
    low, high = score.selectivity_ci[control]
    assert low is not None and high is not None
    return low > 0 or high < 0


def test_w_is_above_untrained_models_in_a_network_that_computes_it_and_not_in_an_untrained_one() -> None:
    model = planted()
    found, _ = scores(model, "w", kinds=("within-prompt",))
    last = found["w", "within-prompt", 3, None]
    assert last.r2 is not None and last.r2 > 0.75 and excludes_zero(last)
    for seed in (101, 102, 103):
        (other,) = untrained_models(model, TASK.sample(200, 1), (seed,))
        nothing, _ = scores(other, "w", kinds=("within-prompt",), prompts=1024)
        assert not any(excludes_zero(score) for score in nothing.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diag-l4-u5", "gdpp-l4-u5", "full-l4-u5", "full-l4-c13"])
def test_w_in_the_trained_models_that_ship_and_in_untrained_ones(name: str) -> None:
    model = open_checkpoint(f"zoo:{name}").model.to(torch.float64)
    task = task_of(model.spec.task)
    found, _ = scores(model, "w", task=task, kinds=("within-prompt",))
    assert excludes_zero(found["w", "within-prompt", model.layers, None])
    held = []
    for (other,) in (untrained_models(model, task.sample(200, 1), (seed,)) for seed in range(100, 110)):
        nothing, _ = scores(other, "w", task=task, kinds=("within-prompt",))
        held.append(excludes_zero(nothing["w", "within-prompt", model.layers, None]))
    assert sum(held) <= 2  # 1 in 20 is expected


def test_what_is_exactly_there_scores_one_and_what_symmetry_forbids_scores_nothing() -> None:
    found, notes = scores(planted(), positions=None)
    assert notes == ()
    for layer in range(4):
        for target in ("w", "w-ols", "w-ridge", "alpha", "noise"):
            chance = found[target, "token", layer, None]
            assert chance.r2 is not None and abs(chance.r2) < 0.02 and not excludes_zero(chance)
    assert found["current", "token", 0, None].r2 == pytest.approx(1.0, abs=1e-9)
    assert found["alpha", "gram", 0, None].r2 == pytest.approx(1.0, abs=1e-9)
    first = found["alpha", "within-prompt", 1, None]  # w^1 = 0.04 alpha
    assert first.r2 == pytest.approx(1.0, abs=1e-9) and excludes_zero(first)
    assert found["label", "token", 3, None].r2 > 0.7  # type: ignore[operator]


def test_fields_of_a_score() -> None:
    found, _ = scores(planted(), "label", "current")
    for (target, _, layer, _), score in found.items():
        assert score.r2 is not None and score.variance is not None and score.mse is not None
        assert score.r2 == pytest.approx(1 - score.mse / score.variance, abs=1e-9)
        assert score.variance == pytest.approx(4.0, rel=0.2)  # of <w, x>, and of x: d coordinates of variance 1
        assert set(score.control) == set(score.selectivity) == {"untrained", "shuffled", "inputs"}
        low, high = score.r2_ci
        assert low is not None and high is not None and low <= score.r2 <= high
        assert abs(score.control["shuffled"] or 0.0) < 0.05 and score.prompts == 2048 and score.penalty is not None
        inputs = found[target, "token", 0, None]
        assert score.control["inputs"] == pytest.approx(inputs.r2, abs=0.05)
        if layer == 0:
            assert score.selectivity["inputs"] == 0.0 and score.selectivity_ci["untrained"] == (0.0, 0.0)


def test_layers_positions_and_seeds() -> None:
    model = planted()
    found, _ = scores(model, "label", "current", layers=(2, 3), positions=(0, 5), prompts=256)
    assert {key[2:] for key in found} == {(layer, position) for layer in (2, 3) for position in (0, 5)}
    again, _ = scores(model, "label", "current", layers=(2, 3), positions=(0, 5), prompts=256)
    other, _ = scores(model, "label", "current", layers=(2, 3), positions=(0, 5), prompts=256, seed=1)
    assert found == again and found != other


def test_a_target_that_is_not_defined_at_a_position_has_no_score_there() -> None:
    task = LinearDynamics(dim=3, context=8)
    found, _ = scores(dynamics_model(task), "previous-1", task=task, layers=(1,), positions=(0, 5), prompts=256)
    nothing_before = found["previous-1", "token", 1, 0]
    assert nothing_before.r2 is None and nothing_before.reason is not None and "not defined" in nothing_before.reason
    assert nothing_before.selectivity == {} and nothing_before.control["inputs"] is None
    assert found["previous-1", "token", 1, 5].r2 is not None


@pytest.mark.parametrize("fields", [{"clip": 1e6}, {"attention": {"keys": "causal"}}, {"attention": {"keys": "all"}}])
def test_other_networks_of_the_task(fields: dict[str, Any]) -> None:
    found, notes = scores(planted(**fields), "w", "label", prompts=128)
    assert {kind for _, kind, _, _ in found} == set(KINDS) and not notes
    assert all(score.r2 is not None for score in found.values())


def test_a_clip_that_never_cuts_changes_no_score() -> None:
    free, cut = (scores(planted(clip=clip), "w", kinds=("within-prompt",), prompts=256)[0] for clip in (None, 1e6))
    for key, score in free.items():
        assert cut[key].r2 == pytest.approx(score.r2, abs=1e-8), key


def test_a_clipped_model_with_too_few_tokens_has_no_implicit_weights() -> None:
    task = replace(TASK, context=4)
    found, notes = scores(planted(clip=1e6), "w", task=task, prompts=128)
    assert {kind for _, kind, _, _ in found} == {"token", "gram"}
    assert "skipped, because the 5 tokens of a prompt leave 5 unknowns free" in notes[0]


def test_a_causal_model_by_prefix() -> None:
    """w^1 = 0.04 alpha of the tokens so far: exact for alpha, and more like w the more tokens there are."""
    model = planted(layers=1, attention={"keys": "causal"})
    found, _ = scores(model, "w", "alpha", kinds=("within-prompt",), positions=(2, 6, 11), prompts=1024)
    assert {key[3] for key in found} == {2, 6, 11}
    for position in (2, 6, 11):
        assert found["alpha", "within-prompt", 1, position].r2 == pytest.approx(1.0, abs=1e-9)
    growing = [found["w", "within-prompt", 1, position].r2 for position in (2, 6, 11)]
    assert growing == sorted(growing) and growing[-1] > growing[0] + 0.2
    assert excludes_zero(found["w", "within-prompt", 1, 11])


def test_prompts_that_diverge_are_counted_and_a_network_that_always_does_has_no_score() -> None:
    diverging = planted()
    found, notes = scores(replace(diverging, P=diverging.P * 1e80), "w", "label", prompts=128)
    last = found["label", "token", 3, None]
    assert last.r2 is None and last.reason is not None and "128 of 128 prompts diverge" in last.reason
    assert any("diverge" in note for note in notes)


def test_a_constant_target_has_no_score() -> None:
    task = replace(TASK, noise=NoiseLaw(kind="fixed", values=(1.0,)))
    found, _ = scores(planted(), "noise", task=task, prompts=128)
    assert all(s.r2 is None and "same for all prompts" in str(s.reason) for s in found.values())


def dynamics_model(task: LinearDynamics, step: float = 0.05) -> LinearTransformer:
    """Proposition 1 of the mesa paper: the first channel of s_t becomes step * sum_t' s_t' s_{t'-1}^T s_t."""
    d = task.dim
    P = torch.zeros(1, 1, 4 * d, 4 * d, dtype=torch.float64)
    Q = P.clone()
    Q[0, 0, d : 2 * d, 3 * d :] = torch.eye(d)
    P[0, 0, :d, 2 * d : 3 * d] = step * torch.eye(d)
    spec = spec_for(d, task.context).to_dict() | {
        "tokens": [[name, d] for name in ("next", "state", "value", "previous")],
        "attention": {"keys": "causal"},
        "readout": {"channel": "next", "sign": 1},
        "task": task.to_dict(),
    }
    return LinearTransformer(spec=type(spec_for(1, 1)).from_dict(spec), P=P, Q=Q)


def test_a_causal_model_of_sequences() -> None:
    task = LinearDynamics(dim=3, context=20)
    model = dynamics_model(task)
    found, notes = scores(model, task=task, prompts=512)
    positions = sorted({key[3] for key in found})
    assert positions == [1, 2, 5, 10, 19]
    assert all("controls" in note or "skipped, because no target of" in note for note in notes)
    step = found["next", "token", 1, 19]
    assert step.r2 is not None and step.r2 > 0.5 and excludes_zero(step) and excludes_zero(step, "inputs")
    assert abs(found["next", "token", 0, 19].r2 or 0.0) < 0.1  # s_{t+1} = W s_t, and W is another in every sequence
    assert found["previous-1", "token", 0, 19].r2 == pytest.approx(1.0, abs=1e-6)
    assert found["preconditioned", "token", 1, 5].r2 is not None


def test_the_report_goes_through_json() -> None:
    report = probe_checkpoint(checkpoint(planted()), targets=["w", "chebyshev-2"], prompts=128)
    assert [t.name for t in report.targets] == ["w", "chebyshev-2"]
    assert [fit.linearity_r2 for fit in report.implicit] == [pytest.approx(1.0, abs=1e-12)] * 4
    assert ProbeReport.from_dict(report.to_dict()) == report
    assert dumps(report).startswith('{\n"schema": "interp-probe/1"')


def test_a_target_registered_from_outside_is_probed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call makes it known: by default and by name it is in the result, in the document and on the page."""
    monkeypatch.setattr(targets, "REGISTERED", {})
    energy = Target(
        name="energy",
        formula="|y|^2",
        source="this test",
        expectation="in the second moments, exactly",
        value=lambda prompts, position: prompts.y.square().sum(-1, keepdim=True),
        kinds=("gram", "token"),
        needs=("y",),
    )
    with pytest.raises(UsageError, match="'energy'"):
        probe_checkpoint(checkpoint(planted()), targets=["energy"], prompts=128)
    register_target(energy)
    report = probe_checkpoint(checkpoint(planted()), targets=["energy"], layers=(0,), prompts=256)
    by = {score.kind: score for score in report.probes}
    assert by["gram"].r2 == pytest.approx(1.0, abs=1e-6)
    token = by["token"].r2
    assert token is not None and token < 0.1
    assert [target.name for target in report.targets] == ["energy"]
    assert {row.target for row in report.erasures} == {"energy"}
    assert '"energy"' in dumps(report) and "energy" in render_report(report).text
    assert not any(target is energy for target in targets_of(LinearDynamics(dim=3, context=8)))


def test_a_task_without_targets_is_refused() -> None:
    task = MatrixCompletion(dim=4, context=6)
    spec = spec_for(4, 6).to_dict() | {"task": task.to_dict()}
    model = planted()
    with pytest.raises(LayoutError, match="register_target"):
        probe_checkpoint(checkpoint(replace(model, spec=type(model.spec).from_dict(spec))))


def test_the_default_probes_are_those_that_the_task_names() -> None:
    rows, note = default_probes(planted(), TASK, 128, 0)
    assert note is None and [(row.kind, row.target) for row in rows if row.layer == 0] == [
        ("within-prompt", "w"),
        ("within-prompt", "w-ridge"),
        ("token", "w"),
        ("token", "w-ridge"),
        ("token", "label"),
        ("token", "preconditioned"),
    ]
    task = LinearDynamics(dim=3, context=8)
    rows, note = default_probes(dynamics_model(task), task, 128, 0)
    assert note is None and {row.position for row in rows} == {5}
    assert {row.target for row in rows} == {"next", "preconditioned", "preconditioned-published"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": ["next"]}, ["'next'", "w-ols"]),
        ({"layers": [4]}, ["1 to 3"]),
        ({"layers": []}, ["layers"]),
        ({"positions": [12]}, ["0 to 11"]),
        ({"prompts": 10}, ["64"]),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        probe_checkpoint(checkpoint(planted()), **options)
    for word in words:
        assert word in str(refused.value)


def test_more_numbers_than_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.evidence.probing.MOMENT_NUMBERS", 1000)
    with pytest.raises(UsageError, match="--layers"):
        probe_checkpoint(checkpoint(planted()), prompts=64)


def test_controls_on_fewer_prompts_are_compared_with_the_network_on_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every difference is that of the two figures beside it, and nothing was gained before the first layer."""
    model = planted()
    whole, _ = scores(model, "label", "noise", kinds=("token",), prompts=2048)
    assert all(score.paired_prompts is None for score in whole.values())
    monkeypatch.setattr("interp.evidence.probing.CONTROL_OPERATIONS", 1.0)
    found, notes = scores(model, "label", "noise", kinds=("token",), prompts=2048)
    assert "controls, and the differences to them: on 384 prompts" in notes[0]
    for key, score in found.items():
        assert score.paired_prompts == 384 and score.r2 == whole[key].r2
        assert score.paired_r2 is not None and score.paired_r2 != score.r2
        for name in ("inputs", "shuffled"):
            other = score.control[name]
            assert other is not None
            assert score.selectivity[name] == pytest.approx(score.paired_r2 - other, abs=1e-12)
        untrained = score.control["untrained"]
        assert untrained is not None
        assert score.selectivity["untrained"] == pytest.approx(max(score.paired_r2, 0.0) - untrained, abs=1e-12)
        if score.layer == 0:
            assert score.paired_r2 == score.control["inputs"]
