"""Recipes: what ships is valid, a round trip changes nothing, and each mistake gets its own one-line message."""

from __future__ import annotations

import copy
import tomllib

import pytest

from interp.errors import InterpProbeError, LayoutError, UnreadableFile, UsageError
from interp.models.training import Recipe, load_recipe, recipe_names

GOOD = {
    "name": "small",
    "task": {"name": "noisy_regression", "dim": 3, "context": 6, "noise": {"fixed": 1}},
    "model": {"parametrisation": "diag", "layers": 2},
    "optimiser": {"attempts": 1, "prompts": [64], "iterations": [3]},
}


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid_and_named_after_their_file(name):
    assert load_recipe(name).name == name


def test_round_trip():
    recipe = Recipe.from_dict(GOOD)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert recipe.with_seed(5).optimiser.seed == 5


def changed(path: str, value: object) -> dict:
    out = copy.deepcopy(GOOD)
    *tables, key = path.split(".")
    table = out
    for name in tables:
        table = table[name]
    table[key] = value
    return out


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("nmae", "x", "'nmae'"),
        ("name", "", "expected a word"),
        ("model", 3, "expected a table"),
        ("model.layer", 3, "'layers'"),
        ("model.layers", 0, "1 or more"),
        ("model.layers", True, "1 or more"),
        ("model.parametrisation", "diagonal", "'diag'"),
        ("model.heads", 0, "1 or more"),
        ("model.tokens", [["y", 1], ["x", 3]], "in this order"),
        ("model.attention", {"keys": "causal"}, "causal"),
        ("model.readout", {"channel": "x"}, "expected 'y'"),
        ("task.dim", -1, "task.dim"),
        ("task.noise", {"unifrom": [0, 1]}, "'uniform'"),
        ("task", 3, "task is 3, expected a table"),
        ("optimiser.attempts", 0, "1 or more"),
        ("optimiser.evaluation_prompts", 1, "optimiser.evaluation_prompts is 1, expected a whole number of 2 or more"),
        ("optimiser.seed", -1, "from 0 to 2.32"),
        ("optimiser.seed", 2**32, "from 0 to 2.32"),
        ("optimiser.prompts", [64, 64], "one number of iterations for each"),
        ("optimiser.prompts", 64, "a list"),
        ("optimiser.iterations", [0], "1 or more"),
        ("optimiser.tolerance", 2.0, "between 0 and 1"),
        ("optimiser.learning_rate", 2.0, "optimiser.learning_rate; known"),
        ("optimiser.promts", [1], "'prompts'"),
    ],
)
def test_a_mistake_gets_its_own_message(path, value, hint):
    with pytest.raises(LayoutError, match=hint) as caught:
        Recipe.from_dict(changed(path, value))
    assert "\n" not in str(caught.value)


def test_heads_that_a_parametrisation_cannot_have():
    fields = changed("model.parametrisation", "gd++")
    fields["model"]["heads"] = 2
    with pytest.raises(LayoutError, match="expected 1"):
        Recipe.from_dict(fields)


def test_missing_parts():
    for key in ("name", "task", "model"):
        with pytest.raises(LayoutError, match=key):
            Recipe.from_dict({k: v for k, v in GOOD.items() if k != key})
    with pytest.raises(LayoutError, match=r"model\.layers"):
        Recipe.from_dict(changed("model", {"parametrisation": "diag"}))


@pytest.mark.parametrize(
    ("source", "kind", "hint"),
    [
        ("nowhere.toml", UsageError, "no recipe file"),
        ("diag-l4-u6", UsageError, "diag-l4-u5"),
        ("broken.toml", UnreadableFile, "not valid TOML"),
        ("binary.toml", UnreadableFile, "cannot be read as text"),
        ("digits.toml", UnreadableFile, "not valid TOML"),
        (".", UnreadableFile, "cannot be read"),
    ],
)
def test_files_that_are_no_recipes(tmp_path, monkeypatch, source, kind, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.toml").write_text("name = ")
    (tmp_path / "digits.toml").write_text(f"name = {'9' * 5000}")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(kind, match=hint):
        load_recipe(source)


def test_a_recipe_file(tmp_path):
    text = 'name = "x"\n[task]\nname = "noisy_regression"\ndim = 2\ncontext = 4\nnoise = { fixed = 0 }\n'
    text += '[model]\nparametrisation = "free"\nlayers = 1\n'
    (tmp_path / "x.toml").write_text(text)
    recipe = load_recipe(str(tmp_path / "x.toml"))
    assert recipe.model.heads == 2
    assert recipe == Recipe.from_dict(tomllib.loads(text))
    assert issubclass(LayoutError, InterpProbeError)
