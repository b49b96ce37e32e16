"""Losses and distances beside the classical algorithms, against direct computation."""

from __future__ import annotations

import planting
import pytest
import torch
from torch import Tensor

from interp.evidence.implicit_weights import implicit_models
from interp.identify.losses import affordable_prompts, measure_losses, solves_task, summarise
from interp.identify.run import Run
from interp.models.gram import forward, head_layers
from interp.models.tasks import RegressionPrompts, task_of
from interp.models.transformer import LinearTransformer
from interp.results import ImplicitModel
from interp.solvers.baselines import Baseline
from interp.solvers.statistics import RegressionStatistics

DIM, CONTEXT, STEP = 3, 8, 0.05
TASK = task_of(planting.spec_for(DIM, CONTEXT, noise=1.0).task)


def gd_network(layers: int, sign: int = -1) -> LinearTransformer:
    """``layers`` steps of gradient descent from 0 with step ``STEP``."""
    spec = planting.spec_for(DIM, CONTEXT, readout={"channel": "y", "sign": sign})
    P, Q = planting.block_scalar_heads(torch.tensor([[0.0, 0.0, -STEP, 0.0]] * layers, dtype=torch.float64), DIM)
    if sign == 1:  # y -> -y turns the labels' own sign only, so that the prediction is that of the other read-out
        P[-1, :, DIM, :] = -P[-1, :, DIM, :]
    return LinearTransformer(spec=spec, P=P, Q=Q)


def descent(steps: int) -> Baseline:
    def weights(known: RegressionStatistics) -> Tensor:
        w = torch.zeros_like(known.alpha)
        for _ in range(steps):
            w = w + STEP * (known.alpha - torch.einsum("nij,nj->ni", known.sigma, w))
        return w

    return Baseline(f"gd-{steps}", f"{steps} steps", weights)


def implicit(model: LinearTransformer, prompts: RegressionPrompts, *baselines: Baseline) -> tuple[ImplicitModel, ...]:
    grams = prompts.grams(model.spec)
    trajectory = forward(head_layers(model, CONTEXT), grams.gram, grams.query)
    linearity = [1.0] * (model.layers + 1)
    references = {b.name: b.weights(prompts.statistics)[..., None] for b in baselines}
    references |= {"oracle": TASK.oracle_weights(prompts)[..., None], "true": prompts.w[..., None]}
    return implicit_models(trajectory, model.spec, references, linearity)


def test_gradient_descent_holds_the_weights_of_gradient_descent() -> None:
    """After l layers the network's weights are those of l steps, and at no distance from them."""
    found = implicit(gd_network(3), TASK.sample(50, 0), *(descent(steps) for steps in (1, 2, 3)))
    assert [entry.layer for entry in found] == [0, 1, 2, 3]
    for entry in found[1:]:
        for steps in (1, 2, 3):
            distance = entry.distance[f"gd-{steps}"]
            assert distance is not None
            assert (distance < 1e-25) is (steps == entry.layer)
    assert found[0].distance["gd-1"] == 1.0  # it starts from w = 0
    assert [entry.a for entry in found] == pytest.approx([1.0] * 4)


def test_the_sign_of_the_readout_is_taken_out() -> None:
    (_, found) = implicit(gd_network(1, sign=1), TASK.sample(50, 0), descent(1))
    assert found.distance["gd-1"] == pytest.approx(0.0, abs=1e-25)


def test_distances_are_ratios_of_means() -> None:
    prompts = TASK.sample(60, 3)
    w = STEP * torch.einsum("nci,nc->ni", prompts.x, prompts.y)
    (_, found) = implicit(gd_network(1), prompts)
    for name, other in (("true", prompts.w), ("oracle", TASK.oracle_weights(prompts))):
        expected = float(((w - other) ** 2).sum() / (other**2).sum())
        assert found.distance[name] == pytest.approx(expected, rel=1e-12)
    assert set(found.distance) == set(found.distance_stderr) == {"oracle", "true"}


def test_the_error_of_a_distance_is_that_of_the_bootstrap() -> None:
    prompts = TASK.sample(400, 4)
    (_, found) = implicit(gd_network(1), prompts)
    w = STEP * torch.einsum("nci,nc->ni", prompts.x, prompts.y)
    top, bottom = ((w - prompts.w) ** 2).sum(-1), (prompts.w**2).sum(-1)
    draws = torch.randint(400, (4000, 400), generator=torch.Generator().manual_seed(0))
    ratios = top[draws].mean(1) / bottom[draws].mean(1)
    # 4000 draws know their spread to 1.1 %; the delta method is off by terms of order 1/400.
    assert found.distance_stderr["true"] == pytest.approx(float(ratios.std()), rel=0.05)


def test_a_network_that_overflows_has_no_distance() -> None:
    model = gd_network(2)
    large = LinearTransformer(spec=model.spec, P=1e200 * model.P, Q=model.Q)
    found = implicit(large, TASK.sample(5, 0), descent(1))[-1]
    assert found.distance["gd-1"] is None and found.distance_stderr["gd-1"] is None


def test_losses_are_means_over_fresh_prompts_with_paired_excess(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two chunks, which are no repeats of one another, against the targets drawn here."""
    monkeypatch.setattr("interp.identify.losses.CHUNK", 96)
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)
    drawn: list[RegressionPrompts] = []
    sample = type(TASK).sample

    def watched(task: object, count: int, seed: int) -> RegressionPrompts:
        drawn.append(sample(task, count, seed))
        return drawn[-1]

    run = Run.of(planting.checkpoint(gd_network(1)), 256, 3)
    assert run.network.held_out.drawn.count == 128 and run.references.labels["oracle"]
    monkeypatch.setattr(type(TASK), "sample", watched)
    losses = measure_losses(run, None)
    assert [prompts.count for prompts in drawn] == [96, 32]
    assert not bool(torch.isin(drawn[1].w, drawn[0].w).any())
    target = torch.cat([prompts.target.flatten() for prompts in drawn])
    best = torch.cat([TASK.oracle(prompts).flatten() for prompts in drawn])
    w = torch.cat([STEP * torch.einsum("nci,nc->ni", p.x, p.y) for p in drawn])
    own = (w * torch.cat([p.x_query for p in drawn])).sum(-1)
    squares = {"null": target**2, "oracle": (best - target) ** 2, "network": (own - target) ** 2}
    rows = {row.name: row for row in losses.rows}
    for name, expected in squares.items():
        torch.testing.assert_close(losses.squares[name], expected)
        assert rows[name].mse == pytest.approx(float(expected.mean()))
        assert rows[name].stderr == pytest.approx(float(expected.std()) / 128**0.5)
        # The excess is paired: its error is that of the differences, not of the two losses.
        excess = expected - squares["oracle"]
        assert rows[name].excess == pytest.approx(float(excess.mean()))
        assert rows[name].excess_stderr == pytest.approx(float(excess.std()) / 128**0.5)
    torch.testing.assert_close(losses.squares["layer-0"], squares["null"])


def test_worst_prompts_do_not_decide_the_trimmed_mean() -> None:
    """One prompt in 2000 explodes: the trimmed means stay where they are without it."""
    oracle, network = torch.full((2000,), 0.5, dtype=torch.float64), torch.full((2000,), 1.5, dtype=torch.float64)
    network[7] = 1e6
    row = {r.name: r for r in summarise({"oracle": "o", "network": "n"}, {"oracle": oracle, "network": network})}
    assert row["network"].left_out == 2
    assert row["network"].trimmed == pytest.approx(1.0, rel=1e-12)
    assert row["network"].excess is not None and row["network"].excess > 400


def test_a_loss_that_overflows_is_none() -> None:
    huge = torch.full((10,), float("inf"), dtype=torch.float64)
    (_, network) = summarise({"oracle": "o", "network": "n"}, {"oracle": 0 * torch.ones_like(huge), "network": huge})
    assert (network.mse, network.stderr, network.excess, network.excess_stderr) == (None, None, None, None)


def test_the_classical_panel_predicts_with_the_baselines_and_the_oracle() -> None:
    prompts = TASK.sample(30, 5)
    found = TASK.references(TASK.sample(256, 1), 2, "context")
    baselines = found.tuned
    predicted = found.predict(prompts)
    assert set(found.labels) == set(predicted) == {b.name for b in baselines} | {"oracle"}
    assert bool((predicted["null"] == 0).all())
    torch.testing.assert_close(predicted["oracle"], TASK.oracle(prompts).flatten(1))
    for index in range(30):
        x, y = prompts.x[index], prompts.y[index]
        ols = torch.linalg.lstsq(x, y[:, None], driver="gelsd").solution[:, 0]
        assert float(predicted["ols"][index, 0]) == pytest.approx(float(ols @ prompts.x_query[index]), rel=1e-8)
        penalty = prompts.sigma[index] ** 2  # w has variance 1
        ridge = torch.linalg.solve(x.T @ x + penalty * torch.eye(DIM, dtype=torch.float64), x.T @ y)
        assert float(predicted["oracle"][index, 0]) == pytest.approx(float(ridge @ prompts.x_query[index]), rel=1e-8)


def squares(null: Tensor, network: Tensor, oracle: Tensor) -> dict[str, Tensor]:
    return {"null": null, "network": network, "oracle": oracle}


def test_solving_the_task_is_beating_zero_by_a_share_of_the_possible_and_beyond_doubt() -> None:
    generator = torch.Generator().manual_seed(0)
    null = 1.0 + torch.rand(400, generator=generator, dtype=torch.float64)
    oracle = 0.1 * null

    def verdict(network: Tensor, lost: int = 0) -> tuple[str, float | None]:
        found = solves_task(squares(null, network, oracle), lost)
        return found.answer, found.share

    assert verdict(oracle) == ("yes", pytest.approx(1.0))
    assert verdict(0.5 * null) == ("yes", pytest.approx(0.5 / 0.9))
    assert verdict(0.97 * null) == ("no", pytest.approx(0.03 / 0.9))  # sure, but below 5 % of what is possible
    assert verdict(null) == ("no", 0.0)
    assert verdict(3 * null)[0] == "no"  # worse than predicting zero
    noise = torch.randn(400, generator=generator, dtype=torch.float64)
    doubtful = 0.9 * null + 3.0 * (noise - noise.mean())
    assert verdict(doubtful) == ("undecided", pytest.approx(0.1 / 0.9))  # a gain of 0.15, known to 0.3
    assert verdict(null, lost=400)[0] == "no"


def test_one_exploding_prompt_decides_nothing() -> None:
    null = 1.0 + torch.rand(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    network = 0.5 * null
    for size in (1e3, 1e30, float("inf"), float("nan")):
        network[7] = size
        found = solves_task(squares(null, network, 0.1 * null))
        assert found.answer == "yes" and found.explodes == 1 / 4000
        assert found.explodes_ci[0] < 1 / 4000 < found.explodes_ci[1] < 0.002


def test_a_task_that_cannot_be_solved_is_not_solved() -> None:
    ones = torch.ones(10, dtype=torch.float64)
    found = solves_task(squares(ones, ones, ones))
    assert (found.answer, found.share, found.explodes) == ("no", None, 0.0)


def test_the_table_of_losses_takes_what_is_affordable() -> None:
    assert affordable_prompts(1, 1, 2, 20, least=10) == 65_536
    assert affordable_prompts(64, 64, 1000, 20, least=10) == 10
    middle = affordable_prompts(8, 4, 33, 20, least=10)
    assert 4096 <= middle < 65_536 and middle % 4096 == 0
    assert affordable_prompts(8, 4, 33, 20, least=10**6) == 10**6
