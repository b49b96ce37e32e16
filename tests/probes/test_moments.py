"""Moments against the data themselves: any chunks, any order, large means, bad rows, files."""

from __future__ import annotations

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

from interp.probes.moments import Moments, group_of

GROUPS, FEATURES, OUTPUTS = 6, 3, 2


def rows(seed: int, count: int, streams=(), cells=()):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(*streams, *cells, count, FEATURES, generator=generator, dtype=torch.float64)
    Y = (
        torch.randn(*cells, count, OUTPUTS, generator=generator, dtype=torch.float64)
        + 0.5 * X[(0,) * len(streams)][..., :2]
    )
    group = torch.randint(0, GROUPS, (count,), generator=generator)
    return 3.0 + X, Y - 1.0, group


def of(X, Y, group, streams=(), cells=()) -> Moments:
    moments = Moments.zeros(GROUPS, FEATURES, OUTPUTS, streams, cells)
    moments.update(X, Y, group)
    return moments


def directly(X, Y) -> dict[str, np.ndarray]:
    """The definitions, by numpy, for the rows of one group, stream and cell."""
    x, y = np.asarray(X), np.asarray(Y)
    if not len(x):
        x, y = np.zeros((1, x.shape[1])), np.zeros((1, y.shape[1]))
    dx, dy = x - x.mean(0), y - y.mean(0)
    return {"x_mean": x.mean(0), "y_mean": y.mean(0), "xx": dx.T @ dx, "xy": dx.T @ dy, "yy": (dy**2).sum(0)}


def assert_same(left: Moments, right: Moments, rtol: float = 1e-11) -> None:
    for name, value in vars(left).items():
        torch.testing.assert_close(
            value, getattr(right, name), rtol=rtol, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
        )


@hypothesis.given(seed=st.integers(0, 2**32), count=st.integers(0, 60))
@hypothesis.settings(max_examples=30)
def test_definitions(seed, count):
    X, Y, group = rows(seed, count)
    moments = of(X, Y, group)
    for g in range(GROUPS):
        inside = group == g
        assert moments.count[g] == inside.sum()
        for name, expected in directly(X[inside], Y[inside]).items():
            np.testing.assert_allclose(getattr(moments, name)[g], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("streams", "cells"), [((4,), ()), ((), (5,)), ((4,), (5,)), ((2, 3), (5, 2))])
def test_streams_and_cells_are_separate_regressions(streams, cells):
    X, Y, group = rows(1, 50, streams, cells)
    moments = of(X, Y, group, streams, cells)
    for stream in np.ndindex(streams):
        for cell in np.ndindex(cells):
            alone = of(X[stream + cell], Y[cell], group)
            for name in ("x_mean", "xx", "xy"):
                got = getattr(moments, name)[(slice(None), *stream, *cell)]
                torch.testing.assert_close(got, getattr(alone, name), rtol=1e-12, atol=1e-12)
            for name in ("y_mean", "yy"):
                got = getattr(moments, name)[(slice(None), *cell)]
                torch.testing.assert_close(got, getattr(alone, name), rtol=1e-12, atol=1e-12)


@hypothesis.given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 80), max_size=4))
@hypothesis.settings(max_examples=25)
def test_neither_chunks_nor_shards_nor_order_change_the_moments(seed, cuts):
    X, Y, group = rows(seed, 80, (2,), (3,))
    whole = of(X, Y, group, (2,), (3,))
    edges = [0, *sorted(cuts), 80]
    chunked, merged = (of(X[:, :, :0], Y[:, :0], group[:0], (2,), (3,)) for _ in range(2))
    for lo, hi in itertools.pairwise(edges):
        chunked.update(X[:, :, lo:hi], Y[:, lo:hi], group[lo:hi])
        merged.merge(of(X[:, :, lo:hi], Y[:, lo:hi], group[lo:hi], (2,), (3,)))
    assert_same(chunked, whole)
    assert_same(merged, whole)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(seed))
    assert_same(of(X[:, :, order], Y[:, order], group[order], (2,), (3,)), whole)


def test_many_features():
    generator = torch.Generator().manual_seed(9)
    X = torch.randn(2, 3, 90, 40, generator=generator, dtype=torch.float64)
    Y = torch.randn(3, 90, 2, generator=generator, dtype=torch.float64)
    moments = Moments.zeros(1, 40, 2, (2,), (3,))
    moments.update(X, Y, torch.zeros(90, dtype=torch.int64))
    for stream, cell in np.ndindex(2, 3):
        expected = directly(X[stream, cell], Y[cell])
        np.testing.assert_allclose(moments.xx[0, stream, cell], expected["xx"], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(moments.xy[0, stream, cell], expected["xy"], rtol=1e-11, atol=1e-11)


def test_a_mean_of_1e8_spreads_costs_no_more_digits_than_the_data_have():
    """Values near 1e8 carry spreads of 1 to about 1e-8: sums of squares that were not centred would have no digit."""
    X, Y, group = rows(3, 3000)
    far = of(X + 1e8, Y - 1e8, group)
    near = of((X + 1e8) - 1e8, (Y - 1e8) + 1e8, group)
    for name in ("xx", "xy", "yy"):
        torch.testing.assert_close(getattr(far, name), getattr(near, name), rtol=1e-6, atol=1e-4)
    together = torch.ones(1, GROUPS)
    torch.testing.assert_close(far.pooled(together).xx, near.pooled(together).xx, rtol=1e-6, atol=1e-4)


@hypothesis.given(seed=st.integers(0, 2**32))
@hypothesis.settings(max_examples=15)
def test_unions_of_groups_are_the_moments_of_their_rows(seed):
    X, Y, group = rows(seed, 40, (2,), (3,))
    membership = torch.randint(0, 2, (4, GROUPS), generator=torch.Generator().manual_seed(seed + 1))
    unions = of(X, Y, group, (2,), (3,)).pooled(membership.double())
    for u, chosen in enumerate(membership.bool()):
        inside = chosen[group]
        expected = Moments.zeros(1, FEATURES, OUTPUTS, (2,), (3,))
        expected.update(X[:, :, inside], Y[:, inside], torch.zeros(int(inside.sum()), dtype=torch.int64))
        for name in vars(expected):
            torch.testing.assert_close(getattr(unions, name)[u], getattr(expected, name)[0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e200, -3e140])
@pytest.mark.parametrize("where", ["X", "Y"])
@pytest.mark.parametrize("alone", [True, False])
def test_rows_that_diverge_are_left_out_everywhere_and_counted(bad, where, alone):
    X, Y, group = rows(4, 30, (2,), (3,))
    group = torch.arange(30) if alone else group
    moments = Moments.zeros(30, FEATURES, OUTPUTS, (2,), (3,))
    expected = Moments.zeros(30, FEATURES, OUTPUTS, (2,), (3,))
    kept = torch.arange(30) != 7
    expected.update(X[:, :, kept], Y[:, kept], group[kept])
    if where == "X":
        X[1, 2, 7, 0] = bad
    else:
        Y[2, 7, 1] = bad
    moments.update(X, Y, group)
    assert moments.dropped[group[7]] == 1 and moments.dropped.sum() == 1
    expected.dropped = moments.dropped
    assert_same(moments, expected)


def test_float32_activations_are_added_up_in_float64():
    X, Y, group = rows(5, 200)
    single = of(X.float(), Y.float(), group)
    assert_same(single, of(X.float().double(), Y.float().double(), group), rtol=1e-14)


@hypothesis.given(sequences=st.integers(1, 300), share=st.floats(0, 1))
def test_groups_are_contiguous_and_even(sequences, share):
    groups = max(1, int(share * sequences))
    group = group_of(torch.arange(sequences), sequences, groups)
    sizes = torch.bincount(group, minlength=groups)
    assert bool((group.diff() >= 0).all()) and len(sizes) == groups
    assert int(sizes.max()) - int(sizes.min()) <= 1
