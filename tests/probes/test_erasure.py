"""Erasure in closed form: what it must do, that it does no more, and that the network notices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from interp.checkpoints.opening import open_checkpoint
from interp.errors import UsageError
from interp.models.constructions import gradient_step
from interp.models.tasks import LinearDynamics, find_targets, task_of
from interp.probes.erasure import FALSE_POSITIVES, chance, erasures, leace, random_eraser


def correlated(
    rows: int, features: int, targets: int, seed: int, rank: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inner = min(features, rank or features)
    x = normal(rows, inner) @ normal(inner, features) + normal(features)
    return x, x[:, : max(1, features // 2)] @ normal(max(1, features // 2), targets) + normal(rows, targets)


@settings(max_examples=40)
@given(st.integers(2, 7), st.integers(1, 4), st.integers(0, 10**6), st.booleans())
def test_after_erasure_nothing_linear_is_left(features: int, targets: int, seed: int, singular: bool) -> None:
    x, z = correlated(60, features, targets, seed, features - 1 if singular else None)
    eraser = leace(x, z)
    erased = eraser(x)
    cross = (erased - erased.mean(0)).T @ (z - z.mean(0)) / 60
    assert float(cross.abs().max()) < 1e-9 * float(x.std(0).max() * z.std(0).max())
    torch.testing.assert_close(erased.mean(0), x.mean(0))
    torch.testing.assert_close(eraser(erased), erased, rtol=1e-8, atol=1e-8)  # erasing twice is erasing once
    assert eraser.rank <= min(features, targets)


def test_the_change_is_the_smallest_there_is() -> None:
    """Against a numerical optimum over all matrices R with Cov(R x, z) = 0, by penalties that grow."""
    x, z = correlated(200, 3, 1, 4)
    centred, target = (x - x.mean(0)).numpy(), (z - z.mean(0)).numpy()
    covariance, cross = centred.T @ centred / 200, centred.T @ target / 200

    def change(flat: np.ndarray) -> float:
        kept = np.eye(3) - flat.reshape(3, 3)
        return float(np.trace(kept @ covariance @ kept.T))

    constraint = {"type": "eq", "fun": lambda flat: (flat.reshape(3, 3) @ cross).ravel()}
    best = minimize(change, np.eye(3).ravel(), method="SLSQP", constraints=constraint, options={"ftol": 1e-14})
    R = np.eye(3) - leace(x, z).removal.numpy()
    assert change(R.ravel()) == pytest.approx(best.fun, rel=1e-6)
    np.testing.assert_allclose(R, best.x.reshape(3, 3), atol=1e-4)


def test_the_coordinates_do_not_matter() -> None:
    """Erasure is not changed by other coordinates of the target."""
    x, z = correlated(100, 5, 2, 5)
    turned = leace(x, z @ torch.tensor([[2.0, 1.0], [0.0, 3.0]]).double() + 7.0)
    torch.testing.assert_close(leace(x, z).removal, turned.removal, rtol=1e-9, atol=1e-12)


def drawn(law: str, features: int, targets: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """300 rows of x and z without a linear relation, as far from normal as tokens are."""
    generator = torch.Generator().manual_seed(seed)
    x, z = (torch.randn(300, size, generator=generator, dtype=torch.float64) for size in (features, targets))
    if law == "tails":  # t with 3 degrees of freedom
        x = x / torch.randn(3, 300, 1, generator=generator, dtype=torch.float64).square().mean(0).sqrt()
    if law == "sizes":  # z sets the size of x: dependent, and yet uncorrelated
        x = x * z.norm(dim=-1, keepdim=True)
    if law == "label":  # x = (u, <z, u>), as a token holds its label: odd in u, so uncorrelated with z
        x[:, -1] = (x[:, :targets] * z).sum(-1)
    return x, z


@pytest.mark.parametrize("law", ["normal", "tails", "sizes", "label"])
def test_how_often_something_is_erased_where_there_is_nothing(law: str) -> None:
    """In 1 of 100 cases: of 200, 8 or more are expected in 1 of 1000 runs (binomial)."""
    generator = torch.Generator().manual_seed(0)
    taken = 0
    for seed in range(200):
        x, z = drawn(law, 9, 4, seed)
        taken += leace(x, z, chance(x, z, generator)).rank > 0
    assert taken < 8, taken
    assert FALSE_POSITIVES == 0.01


def test_a_weak_relation_is_found_and_only_its_directions_are_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    found = []
    for seed in range(20):
        x, z = drawn("tails", 11, 4, seed)
        z[:, 0] += 0.5 * x[:, 3] / x[:, 3].std()  # a correlation of 0.45 in 300 rows
        found.append(leace(x, z, chance(x, z, generator)).rank)
    assert found.count(1) >= 18, found


def test_a_random_subspace_takes_as_many_directions_of_equal_variance() -> None:
    x, z = correlated(500, 6, 2, 6)
    for eraser in (leace(x, z), random_eraser(x, 2, torch.Generator().manual_seed(0))):
        erased = eraser(x)
        assert torch.linalg.matrix_rank(erased - erased.mean(0), rtol=1e-9) == 4
    left = random_eraser(x, 2, torch.Generator().manual_seed(0))(x)
    assert float(((left - left.mean(0)).T @ (z - z.mean(0))).abs().max()) > 1.0  # it does not erase the target


def test_the_label_of_a_trained_network() -> None:
    """In the last layer of a one-step network the label is all of the prediction: erased, the loss is that of
    predicting zero. Before the first layer the token holds none of it, and nothing is done."""
    model = open_checkpoint("zoo:one-step-1000-tasks").model.to(torch.float64)
    task = task_of(model.spec.task)
    targets = find_targets(task, ["label", "current", "w"])
    rows = erasures(model, targets, task.sample(600, 1), task.sample(400, 2), None, 0)
    by = {(row.target, row.layer): row for row in rows}
    first, last = by["label", 0], by["label", 1]
    assert first.effect is None and first.reason is not None and "nothing linear" in first.reason
    assert last.r2 is not None and last.r2 > 0.8 and last.r2_erased == pytest.approx(0.0, abs=0.02)
    assert last.effect_ci[0] is not None and last.random_ci[1] is not None and last.effect_ci[0] > last.random_ci[1]
    assert last.loss is not None and last.null is not None and last.effect is not None
    assert last.loss + last.effect * last.null == pytest.approx(last.null, rel=0.02)
    assert last.fired == last.prompts == 400 and last.rank == 1
    inputs = by["current", 0]
    assert inputs.r2 == pytest.approx(1.0) and inputs.r2_erased == pytest.approx(0.0, abs=0.02)
    assert inputs.rank == 10  # the whole of x, whatever is erased: the control is as bad
    assert abs(by["current", 1].effect or 1.0) < 0.1  # after the last layer x is no longer read
    assert by["w", 1].effect is None


def test_a_causal_model_at_one_position() -> None:
    """One gradient step reads s_t and writes the prediction: erasing s_t before the layer costs the prediction, after
    the layer nothing. At position 0 nothing is predicted from, and s_{t-1} is 0 for all."""
    task = LinearDynamics.from_dict({"dim": 3, "context": 12})
    model = gradient_step(task, 0.1)
    targets = find_targets(task, ["current", "previous-1"])
    train, test = task.sample(500, 1), task.sample(300, 2)
    by = {(r.target, r.layer): r for r in erasures(model, targets, train, test, 10, 0)}
    low = by["current", 0].effect_ci[0]
    assert low is not None and low > 0.2
    assert by["current", 0].fired == 300 and by["current", 1].reason is None
    (row, *_) = erasures(model, find_targets(task, ["previous-1"]), train, test, 0, 0)
    assert row.reason is not None and "not defined" in row.reason


def test_bad_input() -> None:
    task = LinearDynamics.from_dict({"dim": 3, "context": 5})
    prompts = task.sample(10, 1)
    with pytest.raises(UsageError, match="position is None"):
        erasures(gradient_step(task, 0.1), (), prompts, prompts, None, 0)
