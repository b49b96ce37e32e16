"""Closed-form networks are named closed-form, however they are hidden; gradient descent never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from planting import checkpoint
from planting_simple import (
    keeping_ones,
    linear_steps,
    permutation,
    random_network,
    regauged,
    rotated,
    two_steps,
)
from repeats import repeats

from interp.analysis import analyse
from interp.errors import LayoutError, UsageError
from interp.families.closed_form_anatomy import directions, divisions, head_roles, rows_of, slots
from interp.families.passage import passage_of
from interp.models.closed_form import closed_form, leverage_corrected
from interp.models.tasks import SimpleRegression
from interp.models.token_pass import predict
from interp.results import Analysis
from interp.solvers.line_descent import METHODS, POLYNOMIAL, fit_descent

TASK = SimpleRegression(context=12)
FEW = 512  # prompts: enough for the evidence, and quick


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses on few prompts, gradient methods from one start: no verdict here hangs on more."""
    monkeypatch.setattr("interp.identify.networks.token_network.MOST_LOSSES", 512)
    monkeypatch.setattr("interp.solvers.line_descent.STARTS", 1)
    monkeypatch.setattr("interp.solvers.line_descent.EVALUATIONS", 40)


def analysed(model: Any, seed: int = 0) -> Analysis:
    return analyse(checkpoint(model), FEW, seed)


CLOSED: dict[str, Callable[[], Any]] = {
    "context": lambda: closed_form(TASK),
    "all": lambda: closed_form(TASK, "all"),
    "outer skip": lambda: closed_form(TASK, placement="before-skip"),
    "corrected": lambda: leverage_corrected(TASK),
    "small scales": lambda: closed_form(TASK, K=30.0, r=100.0, G=1e4),
    "large scales": lambda: closed_form(TASK, "all", K=1e5, r=1e5, G=1e8),
    "permuted": lambda: rotated(closed_form(TASK), permutation(1)),
    "flipped": lambda: rotated(closed_form(TASK), -torch.eye(4, dtype=torch.float64)),
    "rotated": lambda: rotated(closed_form(TASK), keeping_ones(2)),
    "scrambled": lambda: regauged(rotated(closed_form(TASK, "all"), keeping_ones(3)), 4),
    "40 examples": lambda: closed_form(SimpleRegression(context=40)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_planted_closed_form_is_named(name: str) -> None:
    result = analysed(CLOSED[name]())
    found = result.closed_form
    assert found is not None
    assert result.verdict.algorithm == "closed-form", [c for c in found.checks if not c.passed]
    assert result.verdict.recognized and result.verdict.solves_task
    assert found.divides == 1 and found.formula is not None
    shrunken = name in ("all", "large scales", "scrambled")
    assert ("(1 − h)" in found.formula) is shrunken
    assert [row.name for row in result.families if row.chosen] == [f"closed-form{' (shrunken)' * shrunken}"]


GRADIENT: dict[str, tuple[Callable[[], Any], str]] = {
    "layernorm, hidden": (lambda: regauged(rotated(two_steps(TASK), keeping_ones(5)), 6), "gd"),
    "linear, all": (lambda: linear_steps(TASK, keys="all"), "gd"),
    "linear, three steps": (lambda: linear_steps(TASK, (0.1, 0.08, 0.05)), "gd"),
    "layernorm": (lambda: two_steps(TASK), "gd"),
    "layernorm, all": (lambda: two_steps(TASK, keys="all"), "gd"),
    "linear": (lambda: linear_steps(TASK), "gd"),
    "linear, one step": (lambda: linear_steps(TASK, (0.1,)), "gd"),
}


@pytest.mark.parametrize("name", repeats(GRADIENT, 3))
def test_gradient_steps_are_never_named_closed_form(name: str) -> None:
    build, right = GRADIENT[name]
    result = analysed(build())
    assert result.verdict.algorithm == right, result.verdict.summary
    assert result.closed_form is not None and result.closed_form.formula is None
    failed = {check.name for check in result.closed_form.checks if not check.passed}
    assert {"agreement", "nearer than gradient steps", "division", "LayerNorm is needed"} <= failed


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_network_is_nothing(seed: int) -> None:
    result = analysed(random_network(TASK, "all" if seed else "context", seed))
    assert result.verdict.algorithm == "unrecognized" and not result.verdict.recognized


def test_a_narrow_task_where_two_steps_suffice_is_still_told_apart() -> None:
    # x of one scale and no shift: two gradient steps come close to least squares, and must not be called it.
    task = SimpleRegression(context=60, spread=0.0, shift=0.0)
    assert analysed(two_steps(task, (0.9, 0.9))).verdict.algorithm != "closed-form"


def test_slots_roles_and_division_of_the_construction() -> None:
    model = closed_form(TASK)
    drawn = TASK.sample(400, 0)
    passage, rows, weights = passage_of(model, drawn), rows_of(drawn, "context"), dict(model.named())
    held = {(s.layer, s.index): s for s in slots(passage, rows)}
    assert [held[1, i].holds for i in range(4)] == ["constant", "x - mean", "y - mean", "constant"]
    assert [held[0, i].holds for i in range(3)] == ["constant", "x", "y"]
    assert [held[1, i].sign for i in range(4)] == [1, 1, 1, -1]
    assert held[1, 1].scale == pytest.approx(2**0.5 / 1e4, rel=1e-3)
    assert held[1, 2].query_r2 == pytest.approx(1.0, abs=1e-4)  # the query's row holds - mean y
    roles = {(h.layer, h.head): h.role for h in head_roles(passage, rows, model.spec, weights)}
    assert roles == {
        (0, 0): "centring",
        (0, 1): "silent",
        (0, None): "centring",
        (1, 0): "numerator",
        (1, 1): "denominator",
        (1, None): "numerator and denominator",
    }
    found, divides = divisions(passage, rows, model.spec, weights)
    assert divides == 1 and found[1].exponent == pytest.approx(1.0, abs=1e-3)
    assert (found[0].variation or 0) < 1e-2 and found[1].numerator_r2 == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("seed", [1, 2])
def test_permuted_and_flipped_slots_are_found_again(seed: int) -> None:
    R = -permutation(seed)
    model = regauged(rotated(closed_form(TASK), R), seed)
    drawn = TASK.sample(400, 0)
    passage, rows = passage_of(model, drawn), rows_of(drawn, "context")
    after = [s for s in slots(passage, rows) if s.layer == 1]
    order = R.abs().argmax(1).tolist()
    names = ["constant", "x - mean", "y - mean", "constant"]
    assert [s.holds for s in after] == [names[i] for i in order]
    assert all(s.sign == -1 for s in after if s.holds in ("x - mean", "y - mean"))
    roles = sorted(h.role for h in head_roles(passage, rows, model.spec, dict(model.named())) if h.head is not None)
    assert roles == ["centring", "denominator", "numerator", "silent"]


def test_directions_do_not_depend_on_the_basis() -> None:
    drawn = TASK.sample(400, 0)
    rows = rows_of(drawn, "context")
    for model in (closed_form(TASK), rotated(closed_form(TASK), keeping_ones(3))):
        found = directions(passage_of(model, drawn), rows)
        assert [d.holds for d in found] == ["x - mean", "y - mean"]
        assert all((d.r2 or 0) > 0.9999 and (d.query_r2 or 0) > 0.9999 for d in found)
    steps = two_steps(TASK)
    found = directions(passage_of(steps, drawn), rows)
    assert all((d.r2 or 0) < 0.99 for d in found)  # gradient descent takes no mean from x


def test_the_parts_of_numerator_and_denominator_add_up() -> None:
    model = random_network(TASK, "all", 3)
    drawn = TASK.sample(300, 0)
    passage, rows = passage_of(model, drawn), rows_of(drawn, "all")
    heads = [
        h for h in head_roles(passage, rows, model.spec, dict(model.named())) if h.layer == 1 and h.head is not None
    ]
    entry = passage.layers[1]
    z = entry.mid[:, -1]
    centred, old = z - z.mean(-1, keepdim=True), entry.before[:, -1]
    common = passage.layers[0].scale[:, -1]
    skip = float((common * (centred * old).sum(-1) / (4 * entry.scale[:, -1])).sum())
    whole = float((common * entry.scale[:, -1]).sum())
    assert sum(h.denominator or 0.0 for h in heads) + skip / whole == pytest.approx(1.0, abs=1e-9)


def test_fitted_gradient_methods_recover_planted_ones_exactly() -> None:
    drawn, fresh = TASK.sample(500, 0), TASK.sample(500, 1)
    model = linear_steps(TASK, (0.15, 0.1))
    network = [predict(model, *p.inputs(model.spec))[:, 0, 0] for p in (drawn, fresh)]
    for name in (*METHODS, POLYNOMIAL):
        rival = fit_descent(drawn, "context", network[0], 2, 0, name)
        error = float((rival.predict(fresh) - network[1]).square().sum() / network[1].square().sum())
        assert error < 1e-6, rival.name  # all contain gd; 40 evaluations leave the larger ones at 1e-8


def test_what_cannot_be_analysed_is_refused() -> None:
    from dataclasses import replace

    model = closed_form(TASK)
    other = {"name": "noisy_regression", "dim": 1, "context": 12, "noise": {"fixed": 0}}
    with pytest.raises(LayoutError, match="the task needs x: 1 and y: 1"):
        analysed(replace(model, spec=replace(model.spec, task=other)))
    with pytest.raises(LayoutError, match="names no task"):
        analysed(replace(model, spec=replace(model.spec, task=None)))
    with pytest.raises(LayoutError, match="has 13 rows, expected 21"):
        analysed(replace(model, spec=replace(model.spec, task={"name": "simple_regression", "context": 20})))
    with pytest.raises(UsageError, match="expected 64 or more"):
        analyse(checkpoint(model), 63)


def test_the_document_comes_back() -> None:
    result = analysed(closed_form(TASK, "all"))
    assert Analysis.from_dict(result.to_dict()) == result
