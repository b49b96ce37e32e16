"""Outside the training distribution: the prompts that are drawn there, the region of agreement, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import planting
import pytest
import torch

from interp.algebra.gauge import LiveCoordinates
from interp.evidence.question import Answer
from interp.evidence.stress import AGREES, region, stress, stress_axes
from interp.identify.choose import Choice
from interp.identify.estimates import Estimate
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression, Variation
from interp.models.transformer import LinearTransformer
from interp.results import Stress, StressPoint

OMEGA = torch.tensor([[0.0, 0.0, -0.05, 0.0], [0.0, 0.0, -0.04, 0.0]], dtype=torch.float64)


def stressed(
    omega: torch.Tensor, planted: torch.Tensor = OMEGA, operations: float = 1e12, **fields: Any
) -> list[Stress]:
    """The algorithm ``omega`` beside the network ``planted``, at 200 prompts a point where that is affordable."""
    P, Q = planting.block_scalar_heads(planted, 3)
    model = LinearTransformer(spec=planting.spec_for(3, 8, 1.0, **fields), P=P, Q=Q)
    everything = LiveCoordinates(maps=torch.ones(2, 4, 4).bool(), channels=torch.ones(2, 4).bool())
    estimate = Estimate(omega.flatten(), torch.zeros(8), (True,) * 8, ((),) * 8, 0.0)
    fit = planting.omega_fit("diag", model.spec, everything, model.spec.attention.factor(8), estimate)
    run = Run.of(planting.checkpoint(model), 256, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interp.evidence.stress.OPERATIONS", operations)
        patch.setattr("interp.evidence.stress.MOST", 200)
        answer = stress(Choice(run, ((fit.family, fit),), fit, {}), run)
    assert isinstance(answer, Answer)
    return list(answer.fields["evidence.stress"])


def test_an_exact_algorithm_agrees_everywhere() -> None:
    for attention in ({}, {"keys": "all", "scale": "1/n"}):
        for axis in stressed(OMEGA, attention=attention):
            assert axis.agrees == (axis.points[0].value, axis.points[-1].value) and axis.skipped is None
            assert any(point.trained for point in axis.points)
            for point in axis.points:
                assert point.unexplained is not None and point.unexplained < 1e-20
                assert point.network == pytest.approx(point.recovered, rel=1e-9)
                assert point.oracle is not None and point.network is not None
                assert point.oracle < 1.1 * point.network  # with noise: there are 200 prompts
                assert point.prompts == 200 and point.left_out == 0


def test_an_algorithm_that_agrees_in_training_only_parts_from_the_network_outside() -> None:
    """A little omega_yy, which multiplies the labels by 1 + omega_yy lambda: lambda grows with examples and noise."""
    omega = OMEGA.clone()
    omega[:, 3] = 8e-4
    by_name = {axis.name: axis for axis in stressed(omega)}
    for name in ("context", "noise", "scale"):
        axis = by_name[name]
        assert axis.agrees is not None and axis.agrees[1] < axis.points[-1].value
        last = axis.points[-1]
        assert last.unexplained_ci[0] is not None and last.unexplained_ci[0] > AGREES
        assert last.unexplained is not None and last.unexplained_ci[1] is not None
        assert last.unexplained_ci[0] < last.unexplained < last.unexplained_ci[1]


def test_a_wrong_algorithm_agrees_nowhere() -> None:
    for axis in stressed(-OMEGA):
        assert axis.agrees is None and all((p.unexplained or 0.0) > 1 for p in axis.points)


def test_what_is_varied_and_what_is_not() -> None:
    levels = NoiseLaw(kind="choice", values=(1.0, 3.0))
    task = NoisyRegression(dim=3, context=8, noise=levels, covariance=(1.0, 2.0, 3.0))
    found = {name: [(v.value, v.trained, v.task) for v in entries] for name, entries in axes_of(task).items()}
    assert [(v, own) for v, trained, own in found["context"] if trained] == [(8.0, task)]
    assert {v for v, trained, _ in found["noise"] if trained} == {1.0, 3.0}  # the levels, not what lies between them
    for v, _, own in found["noise"]:
        assert own == replace(task, noise=NoiseLaw(kind="fixed", values=(v,)))
    for v, _, own in found["scale"]:
        assert own.covariance == pytest.approx([v**2, 2 * v**2, 3 * v**2])
    for v, trained, own in found["covariance"]:
        assert own.covariance is not None and sum(own.covariance) == pytest.approx(6.0) and trained is (v == 1)
        assert own.covariance[2] / own.covariance[0] == pytest.approx(3 * v)
    silent = NoisyRegression(dim=1, context=1, noise=NoiseLaw(kind="fixed", values=(0.0,)), weight_std=2.0)
    grid = axes_of(silent)
    assert [(v.value, v.trained) for v in grid["noise"]][:2] == [(0.0, True), (0.5, False)]
    assert [v.value for v in grid["context"]] == [1.0, 2.0, 4.0]
    assert [isinstance(v.task, Skipped) for v in grid["covariance"]] == [True]


def axes_of(task: NoisyRegression) -> dict[str, list[Variation]]:
    P, Q = planting.block_scalar_heads(OMEGA, task.dim)
    fields = {**planting.spec_for(task.dim, task.context).to_dict(), "task": task.to_dict()}
    model = LinearTransformer(spec=ModelSpec.from_dict(fields), P=P, Q=Q)
    return stress_axes(Run.of(planting.checkpoint(model), 64))


def point(value: float, upper: float | None, trained: bool = False) -> StressPoint:
    return StressPoint(
        value=value, trained=trained, prompts=1, left_out=0, unexplained=upper, unexplained_ci=(0.0, upper),
        network=None, network_stderr=None, recovered=None, recovered_stderr=None, oracle=None,
    )  # fmt: skip


def test_the_region_is_in_one_piece_with_the_training_prompts() -> None:
    good, bad = AGREES / 2, AGREES * 2
    assert region([point(1.0, bad), point(2.0, good), point(3.0, good, True), point(4.0, bad)]) == (2.0, 3.0)
    assert region([point(1.0, good), point(2.0, bad, True), point(3.0, good)]) is None
    assert region([point(1.0, good, True), point(2.0, None, True), point(3.0, good, True), point(4.0, good)]) == (3, 4)
    assert region([]) is None


def test_prompts_on_which_the_network_diverges_are_left_out_and_counted() -> None:
    """With a clip, loud prompts are no linear map; where nearly all are, there are no figures."""
    noise = next(axis for axis in stressed(OMEGA, clip=6.0) if axis.name == "noise")
    assert noise.points[0].left_out < 50 < noise.points[-1].left_out
    for entry in noise.points:
        assert entry.prompts + entry.left_out == 200
    tight = next(axis for axis in stressed(OMEGA, clip=4.0) if axis.name == "scale").points[-1]
    assert tight.unexplained is None and tight.skipped is not None and "meet the clip" in tight.skipped


def test_networks_that_would_take_too_long_are_skipped_with_the_reason() -> None:
    for axis in stressed(OMEGA, operations=1e5):
        assert axis.points == () and axis.agrees is None and axis.skipped is not None and "too long" in axis.skipped
