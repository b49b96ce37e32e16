"""The scikit-learn estimator: the library's own checks, equality with Ridge, pieces."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from interp.probes.estimator import MomentRidge


@parametrize_with_checks([MomentRidge()])
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


def data(outputs: int | None):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 6)) * np.logspace(-1, 1, 6) + 100.0
    y = X @ generator.normal(size=(6, outputs or 1)) + generator.normal(size=(300, outputs or 1)) - 1e3
    return X, y if outputs else y[:, 0]


@pytest.mark.parametrize("outputs", [None, 1, 3])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
def test_coefficients_of_scikit_learns_ridge(outputs, alpha):
    X, y = data(outputs)
    ours, theirs = MomentRidge(alpha=alpha).fit(X, y), Ridge(alpha=alpha).fit(X, y)
    assert ours.coef_.shape == np.shape(theirs.coef_) or outputs == 1
    np.testing.assert_allclose(ours.coef_.ravel(), np.ravel(theirs.coef_), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ours.intercept_, np.ravel(theirs.intercept_) if outputs else theirs.intercept_)
    np.testing.assert_allclose(ours.predict(X).ravel(), theirs.predict(X).ravel(), rtol=1e-9)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-10)


def test_pieces_make_the_whole_and_fit_forgets():
    X, y = data(2)
    whole, pieces = MomentRidge().fit(X, y), MomentRidge()
    pieces.fit(X[:50] * 2.0, y[:50])
    pieces.fit(X[200:], y[200:])
    for start in range(0, 200, 70):
        pieces.partial_fit(X[start : min(start + 70, 200)], y[start : min(start + 70, 200)])
    assert pieces.n_samples_seen_ == 300
    np.testing.assert_allclose(pieces.coef_, whole.coef_, rtol=1e-10, atol=1e-12)


def test_it_works_inside_scikit_learn():
    X, y = data(None)
    scores = cross_val_score(MomentRidge(), X, y, groups=np.arange(300) // 10, cv=GroupKFold(5))
    assert scores.min() > 0.9


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), float("inf"), "1", None])
def test_wrong_alpha(alpha):
    with pytest.raises(ValueError, match="alpha is"):
        MomentRidge(alpha=alpha).fit(*data(1))


def test_wrong_data_leave_the_estimator_as_it_was():
    X, y = data(2)
    estimator = MomentRidge(alpha=0.0).fit(X, y)  # without penalty, the same rows twice change nothing
    before = estimator.coef_.copy()
    with pytest.raises(ValueError, match="outputs of shape"):
        estimator.partial_fit(X, y[:, 0])
    with pytest.raises(ValueError, match="beyond 1e140"):
        estimator.partial_fit(np.full_like(X, 1e200), y)
    estimator.partial_fit(X, y)
    np.testing.assert_allclose(estimator.coef_, before, rtol=1e-9)
    assert estimator.n_samples_seen_ == 600
