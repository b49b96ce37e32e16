"""Networks whose trajectories are known exactly against classical solvers, and networks that are like none of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from planting import block_scalar_heads, random_dense, spec_for

from interp.evidence.behaviour import describe_behaviour, implicit_weights
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.results import Behaviour, Match
from interp.results.plain_data import from_plain, to_plain
from interp.solvers.gradient_descent import gradient_descent, gradient_descent_gain
from interp.solvers.statistics import RegressionStatistics
from interp.solvers.trajectories import tuned_trajectories
from interp.solvers.tuning import TuningSet

TASK = NoisyRegression(dim=4, context=16, noise=NoiseLaw(kind="uniform", values=(0.0, 1.0)))


def network(*omegas: tuple[float, float, float, float], **fields: Any) -> LinearTransformer:
    P, Q = block_scalar_heads(torch.tensor(omegas, dtype=torch.float64), 4)
    return LinearTransformer(spec=spec_for(4, 16, noise=1.0, **fields), P=P, Q=Q)


def descent(layers: int = 4, step: float = 0.03, **fields: Any) -> LinearTransformer:
    return network(*[(0.0, 0.0, -step, 0.0)] * layers, **fields)


def compared(model: LinearTransformer, task: NoisyRegression = TASK) -> Behaviour:
    found = describe_behaviour(model, task, 0)
    assert isinstance(found, Behaviour), found
    return found


def matches(found: Behaviour, solver: str) -> list[Match]:
    return [entry for entry in found.matches if entry.solver == solver]


def test_gradient_descent_is_matched_layer_by_layer_at_its_own_step() -> None:
    found = compared(descent())
    (gd,) = (solver for solver in found.solvers if solver.name == "gd")
    assert gd.parameters["step"] == pytest.approx(0.03, rel=1e-3) and found.closest is not None
    for entry in matches(found, "gd"):
        assert entry.best == entry.layer and entry.best_ci == (entry.layer, entry.layer)
        assert entry.distance == pytest.approx(0.0, abs=1e-5) and entry.at_budget == entry.distance
        assert entry.similarity == pytest.approx(1.0, abs=1e-4)
    assert gd.sensitivity == pytest.approx(0.0, abs=1e-5)  # the query is no key: dp/dx is w
    for shift in found.shifts:
        assert shift.disagreement["gd"] == pytest.approx(0.0, abs=1e-4) or shift.name == "context x2", shift
    assert found.closest == "gd" and "momentum" in found.alike  # momentum 0 is gradient descent
    away = {m.solver: m.distance for m in found.matches if m.layer == 1 and m.solver in ("cg", "newton-schulz")}
    assert all(distance is not None and distance > 0.02 for distance in away.values())


def test_gdpp_is_matched_by_gdpp_and_by_no_other_as_well() -> None:
    found = compared(network((-0.012, 0, -0.03, 0), (-0.012, 0, -0.03, 0), (0, 0, -0.04, 0)))
    last = {m.solver: m for m in found.matches if m.layer == 3}
    assert last["gd++"].best == 3 and last["gd++"].distance is not None and last["gd++"].distance < 1e-4
    assert found.closest == "gd++"
    others = [m.distance for name, m in last.items() if name != "gd++"]
    assert all(distance is not None and distance > 3 * last["gd++"].distance for distance in others)


def test_a_step_of_another_size_in_every_layer_shows_in_the_trajectory() -> None:
    """The end is near gradient descent of one step size; layer by layer it is not."""
    found = compared(network((0, 0, -0.05, 0), (0, 0, -0.01, 0), (0, 0, -0.03, 0)))
    first, *_, last = matches(found, "gd")
    assert last.distance is not None and first.distance is not None and last.distance < 0.01 < first.distance


@pytest.mark.parametrize("seed", [0, 1])
def test_a_network_without_structure_is_like_none(seed: int) -> None:
    model = replace(random_dense(seed, 3, 4), spec=spec_for(4, 16, noise=1.0))
    found = describe_behaviour(model, TASK, 0)
    assert isinstance(found, str) or (found.closest is None and found.alike == ())


def test_clipped_networks_are_compared_by_what_their_tokens_hold() -> None:
    clipped = compared(descent(clip=50.0))  # never met
    assert clipped.weights == "tokens" and [m.best for m in matches(clipped, "gd")] == [1, 2, 3, 4]
    assert clipped.linearity_r2[-1] == pytest.approx(1.0) and clipped.closest is not None
    cut = compared(descent(clip=1.0))
    assert cut.linearity_r2[-1] is not None and cut.linearity_r2[-1] < 0.95


def test_implicit_weights_are_the_iterates() -> None:
    prompts = TASK.sample(20, 1)
    known = RegressionStatistics.from_data(prompts.x, prompts.y)
    expected = gradient_descent(known.sigma, known.alpha, [0.03] * 4)
    for fields in ({}, {"clip": 1e6}):
        found = implicit_weights(descent(**fields), prompts)
        for w, iterate in zip(found.w, expected, strict=True):
            torch.testing.assert_close(w, iterate, rtol=1e-8, atol=1e-9)


def test_sensitivity_sees_the_query_among_the_keys() -> None:
    found = compared(descent(layers=2, attention={"keys": "all"}))
    (gd,) = (solver for solver in found.solvers if solver.name == "gd")
    assert gd.sensitivity is not None and gd.sensitivity > 0.01


def test_why_there_is_nothing() -> None:
    assert "are 0" in str(describe_behaviour(network((-0.01, 0, 0, 0)), TASK, 0))
    short = replace(TASK, context=4)
    assert "clipped" in str(describe_behaviour(descent(clip=1.0), short, 0))
    assert "diverge" in str(describe_behaviour(descent(layers=12, step=1e8), TASK, 0))


def test_the_result_goes_through_json_and_is_the_same_again() -> None:
    found = compared(descent(layers=2))
    assert from_plain(Behaviour, to_plain(found), "behaviour") == found == compared(descent(layers=2))


def test_tuned_trajectories_reach_what_they_are_tuned_to() -> None:
    prompts = TASK.sample(200, 3)
    known = RegressionStatistics.from_data(prompts.x, prompts.y)
    target = gradient_descent(known.sigma, known.alpha, [0.04] * 4, 0.3)[-1]
    found = {t.name: t for t in tuned_trajectories(TuningSet(known, target), 4)}
    momentum = found["momentum"]
    assert momentum.parameters["step"] == pytest.approx(0.04, rel=0.01)
    assert momentum.parameters["momentum"] == pytest.approx(0.3, abs=0.01)
    gain = gradient_descent_gain(known.spectrum.values, [0.04] * 4, 0.3)
    torch.testing.assert_close(known.spectrum.filtered(gain, known.alpha), target)
    for trajectory in found.values():
        iterates = trajectory.iterates(known)
        assert iterates.shape == (len(trajectory.marks), 200, 4)
        assert list(trajectory.marks) == sorted(trajectory.marks, reverse=trajectory.unit == "penalty")
