"""Label shrinkage and effective steps: the formulas of the paper on planted networks, identities on any."""

from __future__ import annotations

import planting
import pytest
import torch
from torch import Tensor

from interp.evidence.adaptation import Passage, effective_steps, label_shrinkage, residual_energy
from interp.models.gram import HeadLayers, LayerMaps, forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import RegressionPrompts, task_of
from interp.results import Adaptation
from interp.solvers.statistics import RegressionStatistics
from interp.stats.averages import quantile_bins


def planted(omega: list[list[float]], spec: ModelSpec) -> HeadLayers:
    P, Q = planting.block_scalar_heads(torch.tensor(omega, dtype=torch.float64), spec.width - 1)
    return HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)


def through(layers: LayerMaps, drawn: RegressionPrompts, spec: ModelSpec) -> Passage:
    grams = drawn.grams(spec)
    return Passage.of(forward(layers, grams.gram, grams.query), spec)


def sample(spec: ModelSpec, count: int, seed: int = 0) -> tuple[RegressionPrompts, RegressionStatistics]:
    drawn = task_of(spec.task).sample(count, seed)
    return drawn, RegressionStatistics.from_data(drawn.x, drawn.y)


def binned(values: Tensor, by: Tensor) -> list[float]:
    index = quantile_bins(by)
    return [float(values[index == k].mean()) for k in index.unique().tolist()]


OMEGA = [[-0.02, -0.001, -0.04, -0.002], [-0.03, -0.002, -0.05, -0.004], [0.0, 0.0, -0.06, 0.003]]


def test_a_planted_network_shrinks_its_labels_as_its_coefficients_say() -> None:
    spec = planting.spec_for(3, 8, 2.0)
    layers = planted(OMEGA, spec)
    drawn, _ = sample(spec, 300)
    passage = through(layers, drawn, spec)
    found = label_shrinkage(passage, layers, layers, spec, [True] * 3, seed=0)
    assert [row.layer for row in found] == [0, 1, 2]
    for row in found:
        energy = passage.trajectory.grams[row.layer][:, 3, 3]
        expected = binned(1.0 + OMEGA[row.layer][3] * energy, energy)
        assert [b.x for b in row.bins] == pytest.approx(binned(energy, energy), rel=1e-12)
        for values in ("predicted", "observed", "by_weights"):
            assert [getattr(b, values) for b in row.bins] == pytest.approx(expected, rel=1e-12)
        assert row.r2 == pytest.approx(1.0, abs=1e-12) == row.r2_by_weights
    assert [row.layer for row in label_shrinkage(passage, layers, layers, spec, [True, False, True], seed=0)] == [0, 2]


def test_the_factor_is_what_theorem_4_1_multiplies_a_and_w_by() -> None:
    """a' = T_yy a + <T_yx, u> and w' = T_yy w - M^T T_yx, on an unstructured network."""
    model = planting.random_dense(2, 3, 4, size=0.5)
    drawn, _ = sample(model.spec, 50)
    passage = through(head_layers(model, 8), drawn, model.spec)
    for layer, T in enumerate(passage.trajectory.maps):
        now, then = passage.states[layer], passage.states[layer + 1]
        factor, across = T[:, 4, 4], T[:, 4, :4]
        torch.testing.assert_close(then.a[:, 0, 0], factor * now.a[:, 0, 0] + (across * now.u[..., 0]).sum(-1))
        expected = factor[:, None] * now.w[:, 0] - torch.einsum("nji,nj->ni", now.M, across)
        torch.testing.assert_close(then.w[:, 0], expected)


def test_theorem_5_2_shrinks_by_the_ridge_factor_at_both_noise_levels() -> None:
    """x ~ N(0, I/n), layer 0 only omega_yx = -step, layer 1 only omega_yy: for sigma in {1, 3} step (1 + sigma^2 n
    omega_yy) = 1/(1 + sigma^2). Predicted and observed agree exactly; both are the theorem's up to the fluctuations of
    lambda, sqrt(2/n) = 3 % of it, which 1 + omega_yy lambda = 2/11 magnifies five times, and the step of layer 0."""
    context, step, n_omega_yy = 2000, 0.55, -1 / 11
    task = {"name": "noisy_regression", "dim": 3, "context": context, "noise": {"choice": [1, 3]}}
    spec = planting.spec_for(3, context, task=task | {"covariance": [1 / context] * 3})
    layers = planted([[0.0, 0.0, -step, 0.0], [0.0, 0.0, 0.0, n_omega_yy / context]], spec)
    drawn, _ = sample(spec, 400)
    (row,) = label_shrinkage(through(layers, drawn, spec), layers, layers, spec, [False, True], seed=0)
    for b in row.bins:
        assert b.observed == pytest.approx(b.predicted, rel=1e-12)
    for sigma, bins in ((1.0, row.bins[:4]), (3.0, row.bins[-4:])):
        assert sum(step * b.observed for b in bins) / 4 == pytest.approx(1 / (1 + sigma**2), rel=0.1)
    assert row.r2 == pytest.approx(1.0, abs=1e-12)


def test_omega_xy_shortens_the_next_step_as_the_paper_says() -> None:
    """Layer 0 only omega_xy, layer 1 only omega_yx: step = -omega_yx (1 + omega_xy (w^T Sigma w + rho)) along alpha, w
    that of least squares; w^T Sigma w + rho = sum y_i^2. Without omega_xy it is -omega_yx."""
    spec = planting.spec_for(3, 9, 2.0)
    xy, yx = -0.004, -0.05
    layers, bare = (planted([[0.0, value, 0.0, 0.0], [0.0, 0.0, yx, 0.0]], spec) for value in (xy, 0.0))
    drawn, known = sample(spec, 400)
    passage = through(layers, drawn, spec)
    first, second = effective_steps(passage, passage, through(bare, drawn, spec), layers, known, spec, seed=0)
    rho = residual_energy(known)
    step, weight = -yx * (1 + xy * drawn.y.square().sum(-1)), known.alpha.square().sum(-1)
    expected = [t / w for t, w in zip(binned(step * weight, rho), binned(weight, rho), strict=True)]
    for name in ("predicted", "by_weights", "observed"):
        assert [getattr(b, name) for b in second.bins] == pytest.approx(expected, rel=1e-10)
        assert [getattr(b, name) for b in first.bins] == [0.0] * 10
    assert [b.without for b in second.bins] == pytest.approx([-yx] * 10, rel=1e-10)
    assert [b.x for b in second.bins] == pytest.approx(binned(rho, rho), rel=1e-12)
    assert second.r2 == pytest.approx(1.0, abs=1e-10) and first.r2 is None
    # The part that depends on the noise: bins of high residual energy have the shorter step.
    assert second.bins[-1].observed < second.bins[0].observed


def test_the_step_of_lemma_a_1() -> None:
    """-omega_yx (<M g, M g> + <M g, u> (<w_ols, g> + a rho)) / <g, g>, in every layer of a planted network."""
    spec = planting.spec_for(3, 8, 2.0)
    layers = planted(OMEGA, spec)
    drawn, known = sample(spec, 200)
    passage = through(layers, drawn, spec)
    rho = residual_energy(known)
    best = torch.linalg.solve(known.sigma, known.alpha[..., None])[..., 0]
    for row in effective_steps(passage, passage, None, layers, known, spec, seed=0):
        state = passage.states[row.layer]
        u, w, a = state.u[..., 0], state.w[:, 0], state.a[:, 0, 0]
        g = torch.einsum("nij,nj->ni", known.sigma, a[:, None] * best - w)
        pushed = torch.einsum("nij,nj->ni", state.M, g)
        along = (pushed * u).sum(-1) * ((best * g).sum(-1) + a * rho)
        top, bottom = -OMEGA[row.layer][2] * (pushed.square().sum(-1) + along), g.square().sum(-1)
        expected = [t / b for t, b in zip(binned(top, rho), binned(bottom, rho), strict=True)]
        assert [b.observed for b in row.bins] == pytest.approx(expected, rel=1e-9)
        assert {b.without for b in row.bins} == {None}


def test_the_step_is_the_regression_of_the_update_on_the_gradient() -> None:
    """For any network: least squares of w' - T_yy w on g over the prompts of a bin; standard error by the jackknife."""
    model = planting.random_dense(4, 2, 3, size=0.5)
    drawn, known = sample(model.spec, 100)
    layers = head_layers(model, 6)
    passage = through(layers, drawn, model.spec)
    index = quantile_bins(residual_energy(known))
    found = effective_steps(passage, passage, None, layers, known, model.spec, seed=0)
    for row in found:
        now, then = passage.states[row.layer], passage.states[row.layer + 1]
        left = then.w[:, 0] - passage.trajectory.maps[row.layer][:, 3, 3, None] * now.w[:, 0]
        g = now.a[:, 0] * known.alpha - torch.einsum("nij,nj->ni", known.sigma, now.w[:, 0])
        for k, b in enumerate(row.bins):
            rows = torch.nonzero(index == k).flatten()

            def slope(chosen: Tensor, g: Tensor = g, left: Tensor = left) -> float:
                return float(torch.linalg.lstsq(g[chosen].reshape(-1, 1), left[chosen].reshape(-1, 1)).solution)

            assert b.observed == pytest.approx(slope(rows), rel=1e-9)
            each = torch.tensor([slope(rows[rows != row_]) for row_ in rows])
            jackknife = ((len(rows) - 1) / len(rows) * (each - each.mean()).square().sum()).sqrt()
            # Ten prompts: the jackknife is the larger by the leverages it corrects for, up to a factor 2 or so.
            assert b.stderr is not None and 0.3 < b.stderr / float(jackknife) < 1.2


def test_a_prediction_of_another_network_is_told_from_the_truth() -> None:
    spec = planting.spec_for(3, 8, 2.0)
    layers = planted(OMEGA, spec)
    wrong = planted([[-0.02, 0.0, -0.04, 0.002], *OMEGA[1:]], spec)
    drawn, known = sample(spec, 300)
    passage = through(layers, drawn, spec)
    shrinkage: tuple[Adaptation, ...] = label_shrinkage(passage, wrong, layers, spec, [True] * 3, seed=0)
    assert shrinkage[0].r2 is not None and shrinkage[0].r2 < 0  # the sign of omega_yy is turned around
    assert shrinkage[0].r2_by_weights == pytest.approx(1.0)
    step = effective_steps(passage, through(wrong, drawn, spec), None, layers, known, spec, seed=0)
    assert step[1].r2 is not None and step[1].r2 < 0.9 and step[1].r2_by_weights == pytest.approx(1.0)


def test_residual_energy_and_exact_fits() -> None:
    spec = planting.spec_for(3, 8, 2.0)
    drawn, known = sample(spec, 30)
    for x, y, rho in zip(drawn.x, drawn.y, residual_energy(known), strict=True):
        fitted = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
        assert float(rho) == pytest.approx(float((y - x @ fitted).square().sum()), rel=1e-9)
    noiseless = planting.spec_for(3, 8, 0.0)
    layers = planted(OMEGA, noiseless)
    drawn, known = sample(noiseless, 30)
    passage = through(layers, drawn, noiseless)
    assert effective_steps(passage, passage, None, layers, known, noiseless, seed=0) == ()


def test_the_order_of_the_channels_and_the_sign_of_the_readout_do_not_matter() -> None:
    spec = planting.spec_for(3, 8, 2.0)
    swapped = ModelSpec.from_dict(spec.to_dict() | {"tokens": [["y", 1], ["x", 3]], "readout": {"sign": 1}})
    layers, order = planted(OMEGA, spec), [3, 0, 1, 2]
    P, Q = (value[..., order, :][..., order] for value in (layers.P, layers.Q))
    turned = HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0)
    drawn, known = sample(spec, 100)
    here, there = through(layers, drawn, spec), through(turned, drawn, swapped)
    one = effective_steps(here, here, None, layers, known, spec, seed=0)
    other = effective_steps(there, there, None, turned, known, swapped, seed=0)
    for a, b in zip(one, other, strict=True):
        assert [x.observed for x in a.bins] == pytest.approx([x.observed for x in b.bins], rel=1e-10)
    one, other = (
        label_shrinkage(p, m, m, s, [True] * 3, seed=0) for p, m, s in ((here, layers, spec), (there, turned, swapped))
    )
    for a, b in zip(one, other, strict=True):
        assert [x.observed for x in a.bins] == pytest.approx([x.observed for x in b.bins], rel=1e-12)
