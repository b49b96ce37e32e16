"""Networks along their training, halfway to their block means and as these: known answers, and a training that goes
on where it stopped."""

from __future__ import annotations

import json

import pytest
import torch
from planting import checkpoint

from interp.identify.run import Run
from interp.models.training import Recipe
from interp.papers.mesa import Mesa
from interp.papers.mesa_compression import network_rows
from interp.papers.mesa_training import curve_rows, trained_along
from interp.papers.paper import make_anew

FIELDS = {
    "name": "tiny",
    "task": {"name": "linear_dynamics", "dim": 3, "context": 8},
    "model": {"layers": 2, "heads": 2, "clip": 4.0},
    "optimiser": {
        "stages": [
            {"weights": "block", "steps": 20, "rate": 0.03, "batch": 32},
            {"weights": "products", "steps": 10, "rate": 0.02, "batch": 32},
        ],
        "evaluation_prompts": 64,
    },
}
RECIPE = Recipe.from_dict(FIELDS)


def silent(step: str) -> None:
    pass


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory):
    return trained_along(RECIPE, tmp_path_factory.mktemp("tiny"), 5, silent)


def test_block_scalar_networks_are_their_block_means_and_others_are_not(networks):
    rows = curve_rows("tiny", RECIPE, networks, 128, 0, silent)
    curve = {row["step"]: row for row in rows if "step" in row}
    assert sorted(curve) == [0, 5, 10, 15, 20, 25, 30]
    for step in range(0, 21, 5):
        assert curve[step]["compressed"] == pytest.approx(curve[step]["ours"], rel=1e-9)  # blocks of float32
        assert curve[step]["interpolated"] == pytest.approx(curve[step]["ours"], rel=1e-9)
    last = curve[30]
    assert abs(last["compressed"] / last["ours"] - 1) > 1e-5  # all weights have moved, a little
    assert last["published"] == pytest.approx(last["interpolated"], rel=1e-12)  # the block means are its own
    assert curve[0]["published"] < curve[0]["ours"]  # what has been trained helps what has not
    judged = {row["cell"]: row for row in rows if row["paper"] is not None}
    assert judged["tiny, step 30, block means"]["ours"] == pytest.approx(last["compressed"] / last["ours"])
    layers = [row for row in rows if "layer" in row]
    assert [row["layer"] for row in layers] == [0, 1]
    for row in layers:
        assert 0 < row["outside_Q"] < 1 and 0 < row["outside_P"] < 1


def test_a_training_that_lies_there_is_not_done_again_and_another_is(tmp_path, networks):
    first = trained_along(RECIPE, tmp_path, 10, silent)
    torch.testing.assert_close(first[30].Q, networks[30].Q, rtol=0, atol=0)
    said: list[str] = []
    again = trained_along(RECIPE, tmp_path, 10, said.append)
    assert not said and sorted(again) == [0, 10, 20, 30]
    other = trained_along(RECIPE.with_seed(1), tmp_path, 10, said.append)
    assert said and bool((other[30].Q != first[30].Q).any())


def test_compressions_of_a_block_scalar_network(networks):
    rows = network_rows("tiny", Run.of(checkpoint(networks[20])), 128, 0, silent)
    by = {(row["kind"], row.get("per_head", row.get("alpha"))): row for row in rows}
    for key in (("published", 32), ("interpolated", 0.5), ("interpolated", 0.9), ("refit", 32)):
        assert by[key]["ours"] == pytest.approx(1.0, abs=1e-6)
    assert by["published", 32]["within_bar"] is True and by["interpolated", 0.5]["within_bar"] is True
    assert by["published", 16]["within_bar"] is None and by["published", 16]["paper"] is None
    assert by["published", 4]["ours"] > by["published", 16]["ours"] - 1e-9
    assert by["refit", 4]["numbers"] <= 16 < by["published", 8]["numbers"] <= 32
    assert by["refit", 4]["loss"] < 0.5 * RECIPE.task.sample(2000, 0).target.square().sum(-1).mean()


def test_a_group_is_measured_anew_and_the_others_are_kept(tmp_path):
    out = tmp_path / "mesa.json"
    kept = {"rows": [{"cell": "x", "ours": 1.0, "within_bar": None}], "sequences": 1, "provenance": {}}
    out.write_text(json.dumps({"training": kept, "losses": kept}))
    found = make_anew(Mesa(sequences=64, seed=0), ["losses"], out, silent)
    assert json.loads(out.read_text()) == {**found, "training": kept} and list(found) == ["losses"]
    rows = {row["cell"]: row for row in found["losses"]["rows"]}
    assert rows["ridge, all pairs"]["ours"] < rows["lsa-6"]["ours"] < rows["lsa-2"]["ours"] < rows["gd-1"]["ours"]
    assert found["losses"]["provenance"]["seed"] == 0 and found["losses"]["sequences"] == 64
