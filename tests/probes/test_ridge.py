"""Ridge from moments against scikit-learn on the rows themselves: coefficients, choice of lambda, held-out errors."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, Ridge

from interp.errors import UsageError
from interp.probes.held_out import HeldOut
from interp.probes.moments import Moments, group_of
from interp.probes.ridge import PENALTIES, cross_fit, held_out_groups, ridge

TARGETS = {"clear": 1, "noisy": 2}


def clustered(seed: int, sequences: int = 60, tokens: int = 4, features: int = 5, streams: int = 2, groups: int = 20):
    """Rows that share a part within a sequence; target "clear" is linear in stream 0, "noisy" mostly noise."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    common = normal(streams, sequences, 1, features).expand(-1, -1, tokens, -1)
    X = (common + normal(streams, sequences, tokens, features)).reshape(streams, -1, features)
    X = X * torch.logspace(-2, 1, features, dtype=torch.float64) + 7.0
    clear = X[0] @ normal(features, 1)
    noisy = X[0] @ normal(features, 2) * 0.05 + normal(sequences, 1, 2).expand(-1, tokens, -1).reshape(-1, 2)
    group = group_of(torch.arange(sequences).repeat_interleave(tokens), sequences, groups)
    return X, torch.cat([clear, noisy], dim=-1) - 3.0, group


def moments_of(X: torch.Tensor, Y: torch.Tensor, group: torch.Tensor, groups: int = 20) -> Moments:
    moments = Moments.zeros(groups, X.shape[-1], Y.shape[-1], tuple(X.shape[:-2]))
    moments.update(X, Y, group)
    return moments


@pytest.mark.parametrize("alpha", [1e-6, 1e-2, 1.0, 1e3])
def test_equal_to_scikit_learn_on_the_rows(alpha):
    X, Y, _ = clustered(0)
    fitted = ridge(moments_of(X, Y, torch.zeros(len(Y), dtype=torch.int64), groups=1), alpha)
    for stream in range(2):
        # The svd solver works on the rows, not on their sums of squares, so it shares no rounding with ours.
        expected = Ridge(alpha=alpha, solver="svd").fit(X[stream].numpy(), Y.numpy())
        np.testing.assert_allclose(fitted.coef[0, stream].T.numpy(), expected.coef_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(fitted(X, 0)[stream].numpy(), expected.predict(X[stream].numpy()), rtol=1e-8)


def test_without_penalty_directions_without_spread_get_no_coefficient():
    X, Y, group = clustered(1, streams=1)
    X = torch.cat([X, X[..., :2] * 2.0, torch.full_like(X[..., :1], 4.0)], dim=-1)  # collinear, and constant
    fitted = ridge(moments_of(X, Y, group * 0, groups=1), 0.0)
    expected = LinearRegression().fit(X[0].numpy(), Y.numpy())  # scipy's lstsq: the solution of least norm
    np.testing.assert_allclose(fitted.coef[0, 0].T.numpy(), expected.coef_, rtol=1e-6, atol=1e-8)


def brute_force(X, Y, group, folds, penalties) -> tuple[float, np.ndarray]:
    """Cross-validation on the rows by scikit-learn: the chosen lambda, and the squared errors on the odd groups."""
    seen = group % 2 == 0
    fold = group // 2 % folds

    def fit(rows, penalty):
        alpha = penalty * ((X[rows] - X[rows].mean(0)) ** 2).sum() / X.shape[1]
        return Ridge(alpha=alpha, solver="svd").fit(X[rows], Y[rows])

    def misses(model, rows):
        return (model.predict(X[rows]).reshape(rows.sum(), -1) - Y[rows]) ** 2

    total = [
        sum(misses(fit(seen & (fold != k), penalty), seen & (fold == k)).sum() for k in range(folds))
        for penalty in penalties
    ]
    chosen = penalties[int(np.argmin(total))]
    return chosen, misses(fit(seen, chosen), ~seen)


def test_cross_validation_equals_brute_force():
    X, Y, group = clustered(2)
    penalties = (1e2, 1.0, 1e-2, 1e-4, 1e-8)
    fit = cross_fit(moments_of(X, Y, group), TARGETS, folds=4, penalties=penalties)
    assert fit.targets == {"clear": slice(0, 1), "noisy": slice(1, 3)}
    assert fit.held_out.group.tolist() == list(range(1, 20, 2))
    for stream in range(2):
        for index, columns in enumerate(fit.targets.values()):
            y = Y[:, columns].numpy()
            chosen, errors = brute_force(X[stream].numpy(), y, group.numpy(), 4, penalties)
            assert float(fit.penalty[stream, index]) == chosen
            by_group = np.zeros((20, y.shape[1]))
            np.add.at(by_group, group[group % 2 == 1].numpy(), errors)
            got = fit.held_out.squared_error[:, stream, columns]
            np.testing.assert_allclose(got, by_group[1::2], rtol=1e-6, atol=1e-9)
    assert fit.penalty[0, 0] < 1e-6 < fit.penalty[1, 0]  # the grid is used: clear only in stream 0


@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=10)
def test_held_out_data_never_move_a_fit(seed):
    """Whatever replaces the held-out half, the fit and its lambda stay the same to the last bit; the score does not."""
    X, Y, group = clustered(seed)
    before = cross_fit(moments_of(X, Y, group), TARGETS)
    generator = torch.Generator().manual_seed(seed + 1)
    apart = held_out_groups(20)[group]
    X, Y = X.clone(), Y.clone()
    X[:, apart] = 50.0 * torch.randn(X[:, apart].shape, generator=generator, dtype=torch.float64)
    Y[apart] = X[1, apart][:, :3] * 9.0
    after = cross_fit(moments_of(X, Y, group), TARGETS)
    for name in ("x_mean", "y_mean", "coef"):
        assert torch.equal(getattr(before.predictor, name), getattr(after.predictor, name)), name
    assert torch.equal(before.penalty, after.penalty)
    assert bool((before.held_out.squared_error != after.held_out.squared_error).all())


def test_fitted_data_do_move_it():
    X, Y, group = clustered(9)
    before = cross_fit(moments_of(X, Y, group), TARGETS)
    Y[group == 0] *= 1.5
    after = cross_fit(moments_of(X, Y, group), TARGETS)
    assert bool((before.predictor.coef != after.predictor.coef).any())


def test_errors_from_moments_are_those_of_the_predictions():
    X, Y, group = clustered(3)
    fit = cross_fit(moments_of(X, Y, group), TARGETS)
    apart = held_out_groups(20)[group]
    direct = HeldOut.of_predictions(fit.predictor(X[:, apart]), Y[apart], group[apart])
    for name in ("group", "count", "squared_error", "y_mean", "yy"):
        torch.testing.assert_close(getattr(fit.held_out, name), getattr(direct, name), rtol=1e-9, atol=1e-10)


def test_orthonormal_basis_units_and_origin_do_not_matter():
    X, Y, group = clustered(4)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    reference = cross_fit(moments_of(X, Y, group), TARGETS)
    moved = cross_fit(moments_of(1e3 * X @ turn - 40.0, Y + 5.0, group), TARGETS)
    assert torch.equal(moved.penalty, reference.penalty)
    torch.testing.assert_close(moved.held_out.squared_error, reference.held_out.squared_error, rtol=1e-6, atol=1e-10)


def test_groups_without_rows_and_dead_features():
    X, Y, group = clustered(5, groups=15)
    X[1] = 2.5  # a stream that says nothing: the best prediction is the mean of the fitted half
    fit = cross_fit(moments_of(X, Y, group), TARGETS)
    assert fit.held_out.group.tolist() == list(range(1, 15, 2)) and bool((fit.held_out.count > 0).all())
    assert bool((fit.predictor.coef[:, 1] == 0).all())
    assert fit.penalty[1].min() == PENALTIES[0]
    assert bool(fit.held_out.squared_error.isfinite().all())


def test_too_few_groups_for_the_folds():
    with pytest.raises(UsageError, match="20 of 20 groups of sequences hold data, expected 22 or more for 11 folds"):
        cross_fit(moments_of(*clustered(6)), TARGETS, folds=11)
