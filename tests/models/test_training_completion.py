"""Training on matrix completion: it descends, keeps its regime, and goes on where it stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from interp.errors import LayoutError, UnreadableFile, UsageError
from interp.models.gram import HeadLayers, forward
from interp.models.tasks import MatrixCompletion
from interp.models.training import Recipe, Step, load_recipe, train
from interp.models.training import completion as module
from interp.models.training.adam import Moving, adam, clip_norm
from interp.models.training.completion_sample import spread_prompts
from interp.models.training.factored import REGIMES, Regime

FIELDS = {
    "name": "small",
    "task": {"name": "matrix_completion", "dim": 6, "context": 8, "spectrum": {"decay": 0.5, "rank": 3}},
    "model": {"regime": "full", "layers": 2},
    "optimiser": {"steps": 60, "batch": 64, "rate": 0.01, "evaluation_prompts": 2000},
}


SHARED = "sketch, shared"


def recipe(regime: str = "full", **optimiser: object) -> Recipe:
    task = {**FIELDS["task"], **({"machines": 3} if regime == "machines" else {})}
    model: dict[str, object] = {"regime": regime.split(",")[0], "layers": 2}
    if model["regime"] == "sketch":
        model |= {"rank": 2, **({"shared": True} if regime == SHARED else {})}
    fields = {**FIELDS, "task": task, "model": model, "optimiser": {**FIELDS["optimiser"], **optimiser}}
    return Recipe.from_dict(fields)


@pytest.mark.parametrize("regime", [*REGIMES, SHARED])
def test_the_loss_falls_and_the_regime_holds(regime: str) -> None:
    trained = train(recipe(regime, steps=200, initial=0.2))
    mse = trained.model.spec.provenance["mse"]
    assert mse["network"] < 0.8 * mse["predicting zero"] and mse["optimum"] < 1e-20
    assert trained.loss == pytest.approx(0.5 * (mse["network"] - mse["optimum"]), rel=1e-6)
    P, Q = trained.model.P, trained.model.Q
    if regime == "sketch":
        assert int(torch.linalg.matrix_rank(Q[0, 0])) == 2 and int(torch.linalg.matrix_rank(P[0, 0])) == 4
    if regime == SHARED:
        read, written = (K[0, 0, :6, :6] / K[0, 0, :6, :6].norm() for K in (Q, -P))
        torch.testing.assert_close(written, read, rtol=1e-4, atol=1e-6)  # float32
        assert int(torch.linalg.matrix_rank(read, rtol=1e-5)) == 2
    if regime == "machines":
        assert P.shape[1] == 3
        for machine in range(3):
            others = [i for i in range(6) if i // 2 != machine]
            assert not Q[:, machine, others].any() and not Q[:, machine][:, :, others].any()
            assert not P[:, machine][:, :, others].any() and bool(P[:, machine, others].any())


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_EVERY", 10)
    whole, record = train(recipe()), tmp_path / "record"

    def stop(step: Step) -> None:
        if step.iteration == 23:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(), record=record, watch=stop)
    again = train(recipe(), record=record)
    assert not record.exists()
    torch.testing.assert_close(again.model.P, whole.model.P)
    torch.testing.assert_close(again.model.Q, whole.model.Q)


def test_the_shown_loss_begins_with_the_first_batch_that_does_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([None, 4.0, None, 4.0])  # twice what is shown

    def objective(self: object, step: int, trained: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
        loss = next(losses)
        return None if loss is None else loss + 0.0 * trained[0].sum()

    monkeypatch.setattr(module.Training, "objective", objective)
    shown: list[float] = []
    train(recipe(steps=4), watch=lambda step: shown.append(step.loss))
    assert shown[:2] == [float("inf"), 2.0]
    assert shown[2:] == pytest.approx([0.98 * 2 + 0.02 * 20, 0.98 * 2.36 + 0.02 * 2])


def test_records_of_other_recipes_are_refused(tmp_path: Path) -> None:
    record = tmp_path / "record"
    train(recipe(steps=3), record=record, keep_record=True)
    record.write_bytes(b"junk")
    with pytest.raises(UnreadableFile, match="not a training record"):
        train(recipe(), record=record)


def test_a_record_of_another_seed_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "record"
    train(recipe(steps=4), record=record, keep_record=True)
    with pytest.raises(UsageError, match="another recipe"):
        train(recipe(steps=4).with_seed(1), record=record)


@pytest.mark.parametrize("shape", [{}, {"context": 3, "queries": 5}, {"spectrum": [0.2, 2.0, 0.5], "noise": 0.3}])
def test_averages_over_spread_prompts_are_those_of_the_task(shape: dict[str, object]) -> None:
    """Of a mean and of a tail; 5 standard errors of both samples."""
    task = MatrixCompletion.from_dict({**FIELDS["task"], **shape})
    many, plain = 60_000, task.sample(60_000, 5)
    spread, weight = spread_prompts(task, many, 6)
    assert float(weight.max()) <= 2.0
    assert abs(float(weight.mean()) - 1.0) < 5 * float(weight.std()) / many**0.5
    cut = plain.A.square().sum((1, 2)).quantile(0.99)
    for seen, usual in (
        (weight * spread.D.square().mean((1, 2)), plain.D.square().mean((1, 2))),
        (weight * (spread.A.square().sum((1, 2)) > cut), (plain.A.square().sum((1, 2)) > cut).double()),
    ):
        error = (float(seen.var() + usual.var()) / many) ** 0.5
        assert abs(float(seen.mean() - usual.mean())) < 5 * error
    large = (spread.A.square().sum((1, 2)) > cut).double().mean()
    assert float(large) > 0.03  # three times as many as there are


def test_kernel_matrices_are_trained_on_as_they_are() -> None:
    task = MatrixCompletion.from_dict(
        {"name": "matrix_completion", "dim": 5, "context": 5, "kernel": {"name": "rbf", "features": 2, "width": 1.0}}
    )
    prompts, weight = spread_prompts(task, 50, 3)
    torch.testing.assert_close(prompts.A, task.sample(50, 3).A)
    assert bool((weight == 1).all())


@pytest.mark.parametrize("regime", [*REGIMES, SHARED])
def test_the_factored_pass_is_that_of_the_network(regime: str) -> None:
    """Up to float32, whose epsilon of 1e-7 a few hundred terms may multiply."""
    plan = recipe(regime, initial=0.3)
    training = module.Training(plan)
    factors = training.factored.initial(plan.optimiser.initial, 0)
    batch = training.batch(32, 1, 0)
    P, Q = training.factored.weights(factors)
    layers = HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)
    context, query = batch.tokens[:, : batch.context], batch.tokens[:, batch.context :]
    read = -forward(layers, context.mT @ context, query).queries[-1][..., 6:]
    torch.testing.assert_close(
        training.errors(factors, batch), (read - batch.target).square().mean((1, 2)), rtol=1e-4, atol=1e-7
    )


def test_prompts_that_overflow_are_left_out_and_the_calmest_network_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    training = module.Training(recipe(steps=30))
    factors = training.factored.initial(0.1, 0)
    whole = training.batch(64, 0, 0)
    mixed = dataclasses.replace(whole, tokens=whole.tokens.clone())
    mixed.tokens[3] *= 1e20
    monkeypatch.setattr(training, "batch", lambda *_: mixed)

    def step(tokens: float | None = None) -> Moving:
        if tokens is not None:
            mixed.tokens[:] = tokens
        start, options = Moving(values=factors), {"steps": 1, "rate": lambda _: 0.01, "limit": clip_norm(0.1)}
        return adam(start, training.objective, watch=lambda state: None, **options)

    end = step()
    assert 0 < end.loss < 2 and end.taken == 1
    for value, before in zip(end.values, factors, strict=True):
        assert bool(torch.isfinite(value).all()) and not torch.equal(value, before)
    end = step(1e30)
    assert end.loss == float("inf") and (end.iteration, end.taken) == (1, 0)
    assert all(map(torch.equal, end.values, factors))

    kept = training.judged(module.Kept(values=factors, best=(), least=0.5, iteration=30))
    assert kept.least < 0.5 and kept.best is factors
    wild = dataclasses.replace(kept, values=tuple(30.0 * value for value in factors))
    assert training.judged(wild).best is factors and training.judged(wild).least == kept.least
    early = dataclasses.replace(wild, iteration=29, least=float("inf"))
    assert training.judged(early) is early  # asked now and then


@pytest.mark.parametrize("name", ["eagle-full", "eagle-sketch", "eagle-machines"])
def test_shipped_recipes_are_the_papers(name: str) -> None:
    plan = load_recipe(name)
    assert isinstance(plan.model, Regime) and plan.layers == 4
    assert (plan.task.dim, plan.task.context, plan.task.outputs, plan.task.queries) == (18, 18, 2, 2)
    assert plan.task.spectrum == tuple(0.7**i for i in range(1, 11))
    assert Recipe.from_dict(plan.to_dict()) == plan


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("model", {"regime": "wide", "layers": 2}, "'wide'"),
        ("model", {"regime": "sketch", "layers": 2}, "model.rank is None"),
        ("model", {"regime": "full", "layers": 2, "rank": 2}, "model.rank is 2"),
        ("model", {"regime": "sketch", "layers": 2, "rank": 7}, "1 to 6"),
        ("model", {"regime": "sketch", "layers": 2, "rank": True}, "model.rank is True"),
        ("model", {"regime": "full", "layers": 2, "shared": True}, "model.shared is True in regime 'full'"),
        ("model", {"regime": "sketch", "layers": 2, "rank": 2, "shared": 1}, "model.shared is 1"),
        ("model", {"regime": "machines", "layers": 2}, "task.machines is 1"),
        ("model", {"regime": "full", "layers": 0}, "model.layers is 0"),
        ("model", {"regime": "full"}, "no model.layers"),
        ("optimiser", {"rate": -1}, "optimiser.rate"),
        ("optimiser", {"steps": 0}, "optimiser.steps"),
        ("optimiser", {"evaluation_prompts": 1}, "2 or more"),
        ("optimiser", {"clip": float("nan")}, "optimiser.clip"),
        ("optimiser", {"cap": 0}, "optimiser.cap"),
        ("optimiser", {"momentum": 0.9}, "unknown field optimiser.momentum"),
    ],
)
def test_bad_recipes_are_named(part: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Recipe.from_dict({**FIELDS, part: fields})


@pytest.mark.parametrize("part", ["name", "task", "model"])
def test_missing_parts_are_named(part: str) -> None:
    with pytest.raises(LayoutError, match=f"the recipe has no '{part}', expected name"):
        Recipe.from_dict({key: value for key, value in FIELDS.items() if key != part})
