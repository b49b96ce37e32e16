"""Training of embedded networks: derivatives, a polish that repairs a disturbed construction, pruning, records."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from interp.errors import LayoutError, UsageError
from interp.models.closed_form import closed_form
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import LayerNorm
from interp.models.tasks import SimpleRegression
from interp.models.training import Recipe, Step, load_recipe, train
from interp.models.training.adam import Moving
from interp.models.training.embedded import ManySeeds, initial, moved
from interp.models.training.run import EVALUATION_SEED
from interp.models.training.sparse import Shapes, polish, prune, relative_error
from interp.stats.levenberg_marquardt import Progress

TASK = SimpleRegression(context=6)
FIELDS = {
    "name": "tiny",
    "task": {"name": "simple_regression", "context": 6},
    "model": {"layers": 2, "heads": 2, "width": 4},
    "optimiser": {
        "seeds": 2, "steps": 12, "batch": 16, "polish_prompts": 128, "polish_iterations": 4, "prune_iterations": 1,
        "evaluation_prompts": 256,
    },
}  # fmt: skip


def planted() -> tuple[Shapes, Tensor]:
    model = closed_form(TASK, K=30.0, r=30.0, G=300.0)
    shapes = Shapes(model.spec, TASK, 2, 2)
    named = dict(model.named())
    return shapes, torch.cat([named[name].flatten() for name in shapes.sizes])


def test_the_vector_of_weights_is_the_network() -> None:
    shapes, theta = planted()
    prompts = TASK.sample(20, 0)
    model = closed_form(TASK, K=30.0, r=30.0, G=300.0)
    expected = HookedLinearTransformer(model)(*prompts.inputs(model.spec)).flatten()
    torch.testing.assert_close(shapes.predict(theta, torch.cat(prompts.inputs(shapes.spec), 1)), expected)
    assert len(shapes.penalised) == len(theta) == model.parameters
    assert int(shapes.penalised.sum()) == len(theta) - 1


def test_a_polish_repairs_a_disturbed_construction() -> None:
    shapes, theta = planted()
    generator = torch.Generator().manual_seed(0)
    disturbed = theta * (1 + 0.05 * torch.randn(len(theta), generator=generator, dtype=theta.dtype))
    fitted, fresh = TASK.sample(512, 1), TASK.sample(512, 2)
    before = relative_error(shapes, disturbed, fresh)
    after = relative_error(
        shapes, polish(shapes, fitted, Progress(theta=disturbed), l1=0.0, iterations=25).theta, fresh
    )
    assert after < 0.2 * before
    shrunk = polish(shapes, fitted, Progress(theta=theta), l1=1e-3, iterations=10).theta
    assert float(shrunk.abs().sum()) < float(theta.abs().sum())


def test_pruning_takes_out_what_is_not_needed() -> None:
    shapes, theta = planted()
    generator = torch.Generator().manual_seed(1)
    junk = theta + 1e-4 * torch.randn(len(theta), generator=generator, dtype=theta.dtype)
    fitted, checked = TASK.sample(400, 1), TASK.sample(400, 2)
    left: list[Progress] = []
    pruned = prune(shapes, junk, fitted, checked, Progress(theta=junk), left.append, iterations=2)
    counts = [int((now.theta != 0).sum()) for now in left]
    assert counts[-1] < 0.7 * len(theta) and counts == sorted(counts, reverse=True)
    assert relative_error(shapes, pruned.theta, checked) <= 1.25 * relative_error(shapes, junk, checked)
    resumed = prune(shapes, junk, fitted, checked, left[-2], iterations=2)  # goes on from any round
    assert torch.equal(resumed.theta, pruned.theta) and torch.equal(left[-1].theta, pruned.theta)


def test_pruning_ends_where_every_weight_may_go() -> None:
    shapes = Shapes.of(Recipe.from_dict(FIELDS))
    fitted, checked = TASK.sample(50, 1), TASK.sample(50, 2)
    rounds: list[int] = []

    def watch(now: Progress) -> None:
        rounds.append(int((now.theta != 0).sum()))
        assert len(rounds) <= 200, "it goes on without weights"

    nothing = torch.zeros(len(shapes.penalised), dtype=torch.float64)  # has an error of 1, and the bar is above it
    assert not prune(shapes, nothing, fitted, checked, Progress(theta=nothing), watch, iterations=0).theta.any()
    nothing[-1] = 1e-3
    assert not prune(shapes, nothing, fitted, checked, Progress(theta=nothing), watch, iterations=0).theta.any()
    assert rounds == [0]


def test_a_seed_that_overflows_stands_still_and_the_others_move() -> None:
    shapes, theta = planted()
    start = torch.stack([torch.full_like(theta, 1e25), initial(shapes, 0.5, 1, 0)[0]])
    plan = ManySeeds(steps=3, rate=0.01, batch=8, l1=0.0)
    end = moved(shapes, plan, Moving(values=(start.float(),)), lambda state: None).values[0]
    assert torch.equal(end[0], start[0].float()) and not torch.equal(end[1], start[1].float())
    assert bool(end.isfinite().all())


def test_a_run_that_was_interrupted_ends_with_the_same_weights(tmp_path: Path) -> None:
    recipe = Recipe.from_dict(FIELDS)
    straight = train(recipe)

    class Stop(Exception):
        pass

    def stop(step: Step) -> None:
        if step.name == "polish 1.0" and step.iteration == 2:
            raise Stop

    record = tmp_path / "tiny.training"
    with pytest.raises(Stop):
        train(recipe, record=record, watch=stop)
    assert record.exists()
    seen: list[tuple[str, int]] = []
    resumed = train(recipe, record=record, watch=lambda step: seen.append((step.name, step.iteration)))
    assert not record.exists() and seen[0] == ("polish 1.1", 1)  # nothing is done twice
    expected = dict(straight.model.named())
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.named())
    assert resumed.effort == {"seeds": 2} and len(resumed.others) == 2
    fresh = TASK.sample(256, EVALUATION_SEED)  # which nothing was fitted to or chosen on
    shapes = Shapes.of(recipe)
    provenance = resumed.model.spec.provenance
    assert [entry["seed"] for entry in provenance["seeds"]] == [0, 1]
    for model in resumed.others:
        named, facts = dict(model.named()), model.spec.provenance
        theta = torch.cat([named[name].flatten() for name in shapes.sizes])
        score = facts["relative_error"]
        assert score["mean"] == pytest.approx(relative_error(shapes, theta, fresh), rel=1e-9) and score["stderr"] > 0
        stated = provenance["seeds"][facts["seed"]]
        assert (stated["relative_error"], stated["stderr"]) == (score["mean"], score["stderr"])
    assert provenance["seed"] == resumed.others[0].spec.provenance["seed"] and provenance["start"] == "random"
    with pytest.raises(Stop):
        train(recipe, record=record, watch=stop)
    with pytest.raises(UsageError, match="another recipe or seed"):
        train(recipe.with_seed(5), record=record)


def test_seeds_differ_and_layernorm_starts_as_it_is() -> None:
    shapes, _ = planted()
    first, second = initial(shapes, 0.5, 2, 0)
    assert not torch.equal(first, second)
    recipe = Recipe.from_dict({**FIELDS, "model": {"layernorm": {"affine": True}}})
    weights = Shapes.of(recipe)
    found = weights.weights(initial(weights, 0.5, 1, 0)[0])
    assert bool((found["layernorm.gain"] == 1).all()) and bool((found["layernorm.bias"] == 0).all())


@pytest.mark.parametrize("name", ["closed-form-context", "closed-form-all"])
def test_shipped_recipes_say_what_they_are(name: str) -> None:
    recipe = load_recipe(name)
    assert isinstance(recipe.optimiser, ManySeeds)
    assert recipe.spec.find(LayerNorm) == LayerNorm() and recipe.spec.stream == 4
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_whole_numbers_stand_for_real_ones() -> None:
    whole, real = (Recipe.from_dict({**FIELDS, "optimiser": {"l1": zero}}) for zero in (0, 0.0))
    assert whole.optimiser.l1 == 0 and repr(whole) == repr(real)


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("optimiser", {"seeds": 0}, "optimiser.seeds"),
        ("optimiser", {"l1": -1.0}, "optimiser.l1"),
        ("optimiser", {"rate": float("inf")}, "optimiser.rate"),
        ("optimiser", {"evaluation_prompts": 1}, "2 or more"),
        ("optimiser", {"speed": 1}, "unknown field optimiser.speed"),
        ("model", {"layers": 0}, "model.layers"),
        ("model", {"width": 0}, "model.width is 0"),
        ("task", {"name": "simple_regression", "context": 1}, "2 or more"),
    ],
)
def test_bad_recipes_are_refused(part: str, change: dict, said: str) -> None:
    with pytest.raises(LayoutError, match=said):
        Recipe.from_dict({**FIELDS, part: change})
