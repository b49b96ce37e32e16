"""The cells of the table: complete, consistent with the recipes that ship, resumable."""

from __future__ import annotations

import dataclasses
import json

import pytest

from interp.errors import UsageError
from interp.models.training import Recipe, load_recipe, recipe_names
from interp.models.training.search import Effort
from interp.papers.paper import make_anew, shipped_results
from interp.papers.versatile import CELLS, PAPER, PUBLISHED, Cell


def test_the_table_is_complete():
    assert len(CELLS) == 210
    assert {len(row) for row in PUBLISHED.values()} == {10}
    cell = CELLS["diag-l4-u5"]
    assert (cell.family, cell.layers, cell.noise, cell.paper) == ("diag", 4, "u5", 0.059)
    assert cell.bar == pytest.approx(0.06395)
    assert CELLS["gdpp-l4-u0"].bar == pytest.approx(3 * 9.91e-5)
    assert CELLS["full-l7-c135"].paper == 0.035


def test_every_cell_has_a_valid_recipe_of_its_name():
    for cell in CELLS.values():
        recipe = cell.recipe()
        assert recipe.name == cell.name
        assert recipe.layers == cell.layers
        assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith(("gdpp-l", "diag-l", "full-l"))])
def test_recipe_files_of_cells_are_the_cells(name):
    assert load_recipe(name) == CELLS[name].recipe()


def test_cells_are_chosen_by_name():
    assert PAPER.chosen("diag-l4-u5, gdpp-l1-u0") == ("diag-l4-u5", "gdpp-l1-u0")
    assert PAPER.chosen("all") == tuple(CELLS)
    with pytest.raises(UsageError, match="diag-l4-u5"):
        PAPER.chosen("diag-l4-u55")


@pytest.fixture
def quick(monkeypatch):
    """Every recipe takes a moment."""
    whole = Cell.recipe

    def recipe(cell):
        effort = Effort(
            attempts=1, keep=1, search_prompts=256, prompts=(512,), iterations=(3,), evaluation_prompts=1000
        )
        return dataclasses.replace(whole(cell), optimiser=effort)

    monkeypatch.setattr(Cell, "recipe", recipe)


def test_cells_are_kept_and_nothing_is_trained_twice(quick, tmp_path):
    column = ("gdpp-l1-c13", "gdpp-l2-c13")
    results = tmp_path / "results.json"
    said = []

    def run(wanted):
        said.clear()
        for path in tmp_path.glob("*.safetensors"):
            path.unlink()
        return make_anew(PAPER, wanted, results, said.append)

    def made():
        return sorted(path.stem for path in tmp_path.glob("*.safetensors"))

    run(column[:1])
    rows = run(column)
    assert made() == ["gdpp-l2-c13"]
    assert said and not any("grow-1" in step for step in said)  # the shallow cell has searched that
    assert run(column) == rows
    assert not made() and not said
    row = rows["gdpp-l2-c13"]
    assert row["paper"] == 0.305
    assert row["adjusted_loss"]["mean"] < rows["gdpp-l1-c13"]["adjusted_loss"]["mean"]
    assert row["wall_seconds"] > 0
    assert Recipe.from_dict(row["recipe"]) == CELLS["gdpp-l2-c13"].recipe()
    assert run(column[1:]) == {"gdpp-l2-c13": row}  # only what was asked for; the file has both
    assert list(json.loads(results.read_text())) == list(column)
    results.write_text(results.read_text().replace('"attempts": 1', '"attempts": 3'))
    run(column[:1])
    assert made() == ["gdpp-l1-c13"]  # its recipe is another


def test_what_ships_belongs_to_the_table():
    shipped = shipped_results("versatile")
    for name, entry in shipped.items():
        assert entry["paper"] == CELLS[name].paper
        assert entry["adjusted_loss"]["prompts"] >= 100_000
        assert entry["wall_seconds"] > 0
    rows = PAPER.document(shipped)["cells"]
    for row in rows:
        entry = shipped[row["cell"]]
        assert row["within_bar"] is (entry["adjusted_loss"]["mean"] <= entry["bar"])
    assert sum(row["within_bar"] for row in rows) == len(rows) - 1 == 63
