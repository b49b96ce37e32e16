"""Least squares: its standard errors, and what the data do not determine."""

from __future__ import annotations

import torch

from interp.stats.least_squares import least_squares


def test_standard_errors_are_those_of_hc3():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 1, 3, generator=generator, dtype=torch.float64)
    y = X[..., 0] + X[..., 1].abs() * torch.randn(40, 1, generator=generator, dtype=torch.float64)
    found = least_squares(X, y)
    x, inverse = X[:, 0], torch.linalg.inv(X[:, 0].T @ X[:, 0])
    theta = inverse @ x.T @ y[:, 0]
    meat = torch.zeros(3, 3, dtype=torch.float64)
    for row, target in zip(x, y[:, 0], strict=True):
        residual = (target - row @ theta) / (1 - row @ inverse @ row)
        meat += residual**2 * torch.outer(row, row)
    torch.testing.assert_close(found.theta, theta)
    torch.testing.assert_close(found.stderr, (inverse @ meat @ inverse).diagonal().sqrt(), rtol=1e-9, atol=1e-12)


def test_collinear_parameters_are_not_determined_and_name_each_other():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 1, 2, generator=generator, dtype=torch.float64)
    design = torch.cat([x, x[..., :1]], -1)
    found = least_squares(design, x.sum(-1))
    assert found.determined == (False, True, False)
    assert found.partners[0] == (2,)
    assert found.partners[2] == (0,)


def test_fewer_rows_than_parameters_determine_nothing_in_general():
    design = torch.randn(2, 1, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert least_squares(design, design.sum(-1)).determined == (False, False, False)
    design[..., 2] = 0.0  # what has no effect is not determined; two rows do for the other two
    assert least_squares(design, design.sum(-1)).determined == (True, True, False)


def test_errors_are_clustered_by_prompt():
    """Two outputs with the same residual are one observation, not two."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(400, 1, 2, generator=generator, dtype=torch.float64)
    y = X.sum(-1) + torch.randn(400, 1, generator=generator, dtype=torch.float64)
    once = least_squares(X, y)
    twice = least_squares(X.repeat(1, 2, 1), y.repeat(1, 2))
    torch.testing.assert_close(twice.theta, once.theta)
    torch.testing.assert_close(twice.stderr, once.stderr, rtol=0.02, atol=0)  # leverages are halved, no more
