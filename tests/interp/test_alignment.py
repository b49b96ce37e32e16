"""Gauge: norms and distances against the full tensor K, heads paired and rescaled, canonical forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.algebra.alignment import align, canonical, tensor_product_norms, weight_distance
from interp.algebra.gauge import weight_tensor

EVERYTHING = np.ones((4, 4), dtype=bool), np.ones(4, dtype=bool)


def heads(seed: int, count: int = 3, D: int = 4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, D, D)), generator.normal(size=(count, D, D))


def tensor(P: np.ndarray, Q: np.ndarray) -> np.ndarray:
    return weight_tensor(torch.from_numpy(P), torch.from_numpy(Q)).numpy()


def test_norms_are_those_of_the_full_tensor() -> None:
    P, Q = heads(0)
    np.testing.assert_allclose(tensor_product_norms(P, Q), (tensor(P, Q) ** 2).sum((1, 2)), rtol=1e-12)


def test_the_distance_is_that_of_the_full_tensor_over_live_entries() -> None:
    (P, Q), (to_P, to_Q) = heads(1), heads(2)
    a, b = tensor(P, Q), tensor(to_P, to_Q)
    whole = weight_distance(P, Q, to_P, to_Q, *EVERYTHING)
    assert whole == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-10)
    maps, channels = np.arange(16).reshape(4, 4) % 3 == 0, np.array([True, False, True, True])
    live = np.einsum("ae,b,c->abce", maps, channels, channels)
    part = weight_distance(P, Q, to_P, to_Q, maps, channels)
    assert part == pytest.approx(np.linalg.norm((a - b)[live]) / np.linalg.norm(b[live]), rel=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.permutations(range(3)),
    st.lists(st.sampled_from([-7.0, -1.0, 0.01, 3.0]), min_size=3, max_size=3),
)
def test_a_network_in_another_gauge_is_brought_back(seed: int, order: list[int], scales: list[float]) -> None:
    P, Q = heads(seed)
    k = np.array(scales)[:, None, None]
    other_P, other_Q = (k * P)[order], (Q / k)[order]
    found, factor = align(other_P, other_Q, P, Q)
    np.testing.assert_array_equal(np.asarray(order)[found], np.arange(3))
    # Rounding of k and of its quotient, times a few for the root.
    np.testing.assert_allclose(factor[:, None, None] * other_P[found], P, rtol=1e-12)
    np.testing.assert_allclose(other_Q[found] / factor[:, None, None], Q, rtol=1e-12)
    assert weight_distance(other_P, other_Q, P, Q, *EVERYTHING) < 1e-12


def test_the_factor_is_the_best_there_is() -> None:
    (P, Q), (to_P, to_Q) = heads(3, count=1), heads(4, count=1)
    to_P, to_Q = P + 0.3 * to_P, Q + 0.3 * to_Q
    _, (factor,) = align(5.0 * P, Q / 5.0, to_P, to_Q)

    def error(k: float) -> float:
        p, q = 5.0 * P * k, Q / 5.0 / k
        return float(((p - to_P) ** 2).sum() / (to_P**2).sum() + ((q - to_Q) ** 2).sum() / (to_Q**2).sum())

    scan = np.concatenate([np.linspace(-2, -0.01, 4000), np.linspace(0.01, 2, 4000)])
    assert error(factor) <= min(map(error, scan)) + 1e-12


def test_equal_layers_keep_everything_and_differ_by_nothing() -> None:
    P, Q = heads(5)
    P[2], Q[2] = P[0], Q[0]  # two heads alike
    order, factor = align(P, Q, P.copy(), Q.copy())
    np.testing.assert_array_equal(order, np.arange(3))
    np.testing.assert_array_equal(factor, np.ones(3))
    assert weight_distance(P, Q, P, Q, *EVERYTHING) == 0.0


def test_heads_without_a_scale_keep_theirs() -> None:
    P, Q = heads(6)
    P[1] = 0.0
    assert align(P, Q, *heads(7))[1][align(P, Q, *heads(7))[0] == 1] == 1.0
    Q[0, 0, 0] = np.nan
    np.testing.assert_array_equal(align(P, Q, *heads(7))[1], np.ones(3))
    assert np.isnan(weight_distance(P, Q, np.zeros_like(P), np.zeros_like(Q), *EVERYTHING))
    order, factor = canonical(P, Q)
    assert sorted(order.tolist()) == [0, 1, 2] and order[0] == 2  # the only head with two finite matrices
    np.testing.assert_array_equal(factor[1:], [1.0, 1.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_canonical_form_does_not_depend_on_the_gauge(seed: int) -> None:
    P, Q = heads(seed)
    k = np.array([-3.0, 0.2, 11.0])[:, None, None]
    forms = []
    for p, q in ((P, Q), ((k * P)[[2, 0, 1]], (Q / k)[[2, 0, 1]])):
        order, factor = canonical(p, q)
        forms.append((factor[:, None, None] * p[order], q[order] / factor[:, None, None]))
    for one, other in zip(*forms, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    p, q = forms[0]
    np.testing.assert_allclose(np.linalg.norm(p, axis=(1, 2)), np.linalg.norm(q, axis=(1, 2)))
    assert (np.diff(np.linalg.norm(p, axis=(1, 2))) <= 0).all()
    assert all(m.flat[np.abs(m).argmax()] > 0 for m in q)
