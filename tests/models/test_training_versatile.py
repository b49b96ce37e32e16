"""The cells of the table: complete, consistent with the recipes that ship, resumable."""

from __future__ import annotations

import dataclasses

import pytest

from interp.models.errors import UnreadableFile, UsageError
from interp.models.training import Recipe, load_recipe, recipe_names
from interp.models.training.search import Effort
from interp.papers import versatile as module
from interp.papers.versatile import PAPER, Cell, cells, run_cells


def test_the_table_is_complete():
    assert len(cells()) == 210
    assert len({cell.name for cell in cells()}) == 210
    assert {len(row) for row in PAPER.values()} == {10}
    (cell,) = cells(["diag-l4-u5"])
    assert (cell.family, cell.layers, cell.noise, cell.paper) == ("diag", 4, "u5", 0.059)
    assert cell.bar == pytest.approx(0.06395)
    assert cells(["gdpp-l4-u0"])[0].bar == pytest.approx(3 * 9.91e-5)
    assert cells(["full-l7-c135"])[0].paper == 0.035


def test_every_cell_has_a_valid_recipe_of_its_name():
    for cell in cells():
        recipe = cell.recipe()
        assert recipe.name == cell.name
        assert recipe.layers == cell.layers
        assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith(("gdpp-l", "diag-l", "full-l"))])
def test_recipe_files_of_cells_are_the_cells(name):
    assert load_recipe(name) == cells([name])[0].recipe()


def test_a_name_that_is_not_in_the_table():
    with pytest.raises(UsageError, match="diag-l4-u5"):
        cells(["diag-l4-u55"])


class _Quick(Cell):
    """A cell whose recipe takes a moment."""

    def recipe(self) -> Recipe:
        effort = Effort(
            attempts=1, keep=1, search_prompts=256, prompts=(512,), iterations=(3,), evaluation_prompts=1000
        )
        return dataclasses.replace(super().recipe(), optimiser=effort)


def test_run_cells_keeps_its_results_and_does_nothing_twice(tmp_path):
    column = [_Quick(family="gdpp", layers=n, noise="c13") for n in (1, 2)]
    results, made, steps = tmp_path / "results.json", [], []

    def run(wanted):
        made.clear()
        steps.clear()
        return run_cells(
            wanted,
            results,
            keep=lambda cell, trained: made.append((cell.name, trained.model.layers)),
            watch=lambda cell, step: steps.append(step.name),
        )

    run(column[:1])
    rows = run(column)
    assert made == [("gdpp-l2-c13", 2)]
    assert not any(name.startswith("grow-1") for name in steps)  # the shallow cell has searched that
    assert run(column) == rows
    assert not made
    row = rows["gdpp-l2-c13"]
    assert row["paper"] == 0.305
    assert row["adjusted_loss"]["mean"] < rows["gdpp-l1-c13"]["adjusted_loss"]["mean"]
    assert row["wall_seconds"] > 0
    assert Recipe.from_dict(row["recipe"]) == column[1].recipe()


def test_a_changed_recipe_is_trained_again(tmp_path):
    cell, results, made = _Quick(family="gdpp", layers=1, noise="c13"), tmp_path / "results.json", []
    run_cells([cell], results)
    results.write_text(results.read_text().replace('"attempts": 1', '"attempts": 3'))
    run_cells([cell], results, keep=lambda cell, trained: made.append(cell.name))
    assert made == ["gdpp-l1-c13"]


def test_a_damaged_table_of_results_is_refused(tmp_path):
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(UnreadableFile, match="delete it"):
        run_cells([_Quick(family="gdpp", layers=1, noise="c13")], tmp_path / "results.json")


def test_what_ships_belongs_to_the_table():
    for name, row in module.shipped_results().items():
        (cell,) = cells([name])
        assert row["paper"] == cell.paper
        assert row["adjusted_loss"]["prompts"] >= 100_000
        assert row["wall_seconds"] > 0
