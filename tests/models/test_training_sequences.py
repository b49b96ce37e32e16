"""Training of causal models: it finds the one-layer optimum, resumes to the same weights, and refuses what is wrong."""

from __future__ import annotations

import copy

import pytest
import torch

from interp.errors import InterpProbeError, LayoutError, UsageError
from interp.models.constructions import gradient_step
from interp.models.training import Recipe, Step, load_recipe, recipe_names, train
from interp.models.training.sequences import Staged, products, start

SMALL = {
    "name": "small",
    "task": {"name": "linear_dynamics", "dim": 3, "context": 8},
    "model": {"layers": 1, "heads": 2, "clip": 4.0},
    "optimiser": {
        "stages": [
            {"weights": "block", "steps": 120, "rate": 0.05, "batch": 64},
            {"weights": "products", "steps": 20, "rate": 1e-3, "batch": 64},
        ],
        "evaluation_prompts": 2000,
    },
}
CAUSAL = [name for name in recipe_names() if isinstance(load_recipe(name).optimiser, Staged)]


def recipe(**optimiser: object) -> Recipe:
    fields = copy.deepcopy(SMALL)
    fields["optimiser"].update(optimiser)
    return Recipe.from_dict(fields)


def test_recipes_of_all_four_depths_ship_and_round_trip():
    assert {"lsa-1", "lsa-2", "lsa-4", "lsa-6"} <= set(CAUSAL)
    for name in CAUSAL:
        found = load_recipe(name)
        assert found.name == name and Recipe.from_dict(found.to_dict()) == found


def test_one_layer_reaches_a_step_of_gradient_descent():
    plan = recipe()
    trained = train(plan)
    steps = (gradient_step(plan.task, float(eta)) for eta in torch.linspace(0.1, 0.6, 11))
    best = min(float(plan.method.losses(plan, dict(model.named()), 5)[0].mean()) for model in steps)
    assert trained.loss < best + 3 * trained.stderr  # it has further terms, and may do better
    assert trained.model.spec.provenance["loss"]["mean"] == trained.loss
    assert trained.effort == {"steps": 140} and trained.prompts == 2000


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path):
    plan, record = recipe(), tmp_path / "run.training"
    whole = train(plan)

    pending = [("stage 0", 37), ("stage 1", 5)]
    seen: list[tuple[str, int]] = []

    def stop(step: Step) -> None:
        seen.append((step.name, step.iteration))
        if (step.name, step.iteration) == pending[0]:
            raise KeyboardInterrupt

    while pending:
        with pytest.raises(KeyboardInterrupt):
            train(plan, record=record, watch=stop)
        assert record.exists()
        del pending[0]
    resumed = train(plan, record=record, watch=lambda step: seen.append((step.name, step.iteration)))
    assert seen == [(f"stage {k}", i) for k, steps in enumerate((120, 20)) for i in range(steps + 1)]  # nothing twice
    assert torch.equal(resumed.model.Q, whole.model.Q) and torch.equal(resumed.model.P, whole.model.P)
    assert not record.exists()


def test_the_record_of_another_recipe_is_refused(tmp_path):
    record = tmp_path / "run.training"

    def stop(step: Step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(), record=record, watch=stop)
    with pytest.raises(UsageError, match="another recipe"):
        train(recipe(seed=1), record=record)


def one_stage(weights: str, layers: int, heads: int, std: float) -> Recipe:
    fields = copy.deepcopy(SMALL)
    fields["model"] |= {"layers": layers, "heads": heads, "key": 5}
    fields["optimiser"] |= {"stages": [{"weights": weights, "steps": 1, "rate": 1.0}], "initial_std": std}
    return Recipe.from_dict(fields)


def test_products_of_every_kind_of_weights():
    spec = recipe().spec
    for weights, shapes in (("block", [(4, 4)] * 2), ("products", [(12, 12)] * 2), ("factors", [(5, 12)] * 3)):
        values = start(one_stage(weights, 2, 3, 0.1), 0, None).values
        assert [tuple(value.shape[2:]) for value in values][: len(shapes)] == shapes
        Q, P = products(weights, spec, values)
        assert Q.shape == P.shape == (2, 3, 12, 12)
    q, p = start(one_stage("block", 1, 1, 0.1), 0, None).values
    Q, P = products("block", spec, (q, p))
    assert torch.equal(Q[0, 0], torch.kron(q[0, 0], torch.eye(3)))
    W_Q, W_K, W_V, W_O = start(one_stage("factors", 1, 1, 0.1), 0, None).values
    Q, P = products("factors", spec, (W_Q, W_K, W_V, W_O))
    torch.testing.assert_close(Q[0, 0], W_Q[0, 0].T @ W_K[0, 0])
    torch.testing.assert_close(P[0, 0], W_O[0, 0] @ W_V[0, 0])


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        ("optimiser", 3, "expected a table"),
        ("optimiser.stages", [], "one stage or more"),
        ("optimiser.stages", 3, "a list of one stage"),
        ("optimiser.stages", [3], r"optimiser.stages\[0\] is 3"),
        ("optimiser.stages", [{"weights": "block", "steps": 3}], r"no optimiser.stages\[0\].rate"),
        ("optimiser.stages", [{"weights": "block", "step": 3}], r"optimiser.stages\[0\].step; did you mean 'steps'"),
        ("optimiser.stages", [{"weights": "blocks", "steps": 3, "rate": 1.0}], "'block'"),
        ("optimiser.stages", [{"weights": "block", "steps": 0, "rate": 1.0}], "1 or more"),
        ("optimiser.stages", [{"weights": "block", "steps": 3, "rate": -1.0}], "positive"),
        ("optimiser.stages", [{"weights": "block", "steps": 3, "rate": 1.0, "schedule": "cos"}], "'cosine'"),
        ("optimiser.stages", [{"weights": "factors", "steps": 3, "rate": 1.0}] * 2, 'expected "products"'),
        ("optimiser.seed", -1, "2.32"),
        ("optimiser.evaluation_prompts", 1, "2 or more"),
        ("optimiser.initial_std", float("inf"), "positive"),
        ("task", "lsa", "task is 'lsa', expected a table"),
        ("model.layers", 0, "1 or more"),
        ("model.attention", {"keys": "context"}, "expected 'causal'"),
        ("model.tokens", [["out", 3], ["state", 3]], "makes tokens of"),
        ("nmae", "x", "'nmae'"),
        ("name", "", "expected a word"),
    ],
)
def test_mistakes_have_one_line_messages(path, value, hint):
    fields = copy.deepcopy(SMALL)
    *tables, key = path.split(".")
    table = fields
    for name in tables:
        table = table[name]
    table[key] = value
    with pytest.raises(LayoutError, match=hint) as caught:
        Recipe.from_dict(fields)
    assert isinstance(caught.value, InterpProbeError) and "\n" not in str(caught.value)


def test_a_network_is_grown_before_its_last_layer_and_projected_on_blocks():
    generator = torch.Generator().manual_seed(0)
    Q, P = (torch.randn(2, 1, 12, 12, generator=generator) for _ in range(2))
    q, p = start(one_stage("block", 4, 1, 1e-3), 0, (Q, P)).values
    assert q.shape == p.shape == (4, 1, 4, 4)
    for layer, before in ((0, 0), (3, 1)):
        for value, whole in ((q, Q), (p, P)):
            means = whole[before, 0].reshape(4, 3, 4, 3).diagonal(dim1=1, dim2=3).mean(-1)
            torch.testing.assert_close(value[layer, 0], means)
    assert float(q[1:3].abs().max()) < 0.01


def test_stages_never_lose_layers():
    stage = {"weights": "block", "steps": 3, "rate": 1.0}
    with pytest.raises(LayoutError, match="never fewer"):
        recipe(stages=[{**stage, "layers": 2}, stage])
