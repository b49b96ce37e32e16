"""A small real run of the probes: what they read of the next state rises with depth and position, controls are at
chance, and the claims fail for a network that has learned nothing."""

from __future__ import annotations

import dataclasses

import pytest

from interp.identify.run import Run
from interp.models.tasks.dynamics_targets import NEXT, PUBLISHED
from interp.papers.mesa_networks import subject_of
from interp.papers.mesa_probes import EXACT, FIXED, claims, network_rows
from interp.probes.controls import untrained_models

PLACES = (5, 20)
PROMPTS = 512


def rows_of(name: str, subject: Run, places: tuple[int, ...] = PLACES) -> list:
    return network_rows(name, subject, places, PROMPTS, (1, 11), 0, lambda step: None)


def subject(name: str) -> Run:
    found = subject_of(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rows() -> list:
    return rows_of("lsa-2", subject("lsa-2"))


def test_the_next_state_by_depth_and_position(rows):
    r2 = {(row["target"], row["position"], row["layer"]): row["r2"] for row in rows}
    ci = {(row["target"], row["position"], row["layer"]): row["r2_ci"] for row in rows}
    for place in PLACES:
        for layer in (1, 2):  # more than the intervals of both
            assert ci[NEXT, place, layer][0] > ci[NEXT, place, layer - 1][1]
    assert ci[NEXT, 20, 2][0] > ci[NEXT, 5, 2][1]
    assert ci[PUBLISHED, 20, 1][0] > ci[PUBLISHED, 20, 0][1] and r2[EXACT, 20, 1] < r2[PUBLISHED, 20, 1]


def test_controls_are_at_chance(rows):
    for row in rows:
        assert row["shuffled"] < 0.05
        if row["target"] == NEXT:
            assert row["untrained"] < 0.05 and (row["layer"] or abs(row["r2"]) < 0.05)
    held = {row["cell"]: row["within_bar"] for row in claims(rows)}
    assert held and all(value for name, value in held.items() if "exact" not in name)


def test_both_protocols_side_by_side(rows):
    for row in rows:
        if row["target"] == EXACT:  # the paper probes its six steps
            assert row["ours"] is None
        else:
            assert row["ours"] > 0 and row["stderr"] > 0 and row["paper"] is None
    falling = [row["ours"] for row in rows if (row["target"], row["position"]) == (NEXT, 20)]
    assert falling == sorted(falling, reverse=True)


def test_an_untrained_network_shows_nothing():
    trained = subject("lsa-2")
    model = untrained_models(trained.model, trained.task.sample(64, 0), [5])[0]
    untrained = dataclasses.replace(trained, model=model)
    held = {row["cell"]: row["within_bar"] for row in claims(rows_of("lsa-2", untrained))}
    rises = [value for name, value in held.items() if "rises with depth" in name]
    assert len(rises) == len(PLACES) and not any(rises)


def test_with_one_w_there_is_nothing_to_learn_in_context():
    fixed = rows_of(FIXED, subject(FIXED), (5,))
    inputs = [row["r2"] for row in fixed if row["target"] == NEXT and row["layer"] == 0]
    assert min(inputs) > 0.99
    held = {row["cell"].partition(": ")[2]: row["within_bar"] for row in claims(fixed)}
    flat = [name for name in held if "flat" in name]
    assert len(flat) == 1 and not held[flat[0]]  # unlike the paper's: it rises here too
    assert all(value for name, value in held.items() if name not in flat)
    chance = {**fixed[0], "r2": 0.0}
    broken = claims([chance if row is fixed[0] else row for row in fixed])
    assert not broken[0]["within_bar"] and "in the inputs already" in broken[0]["cell"]
