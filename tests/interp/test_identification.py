"""Verdicts: planted algorithms are named, everything else is not."""

from __future__ import annotations

import planting
import pytest
import torch

from interp.analysis import analyse
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

PROMPTS = 512


def check_planted(planted):
    result = analyse(planting.checkpoint(planted.model), PROMPTS)
    assert result.verdict.algorithm == planted.right_verdict, result.families
    for layer, row in zip(result.layers, planted.omega, strict=True):
        for name, value in zip(planting.OMEGAS, row.tolist(), strict=True):
            found = layer.omega[name]
            if not found.live:
                continue
            size = abs(value) or float(row.abs().max())
            assert found.weight is not None and abs(found.weight - value) <= 1e-9 * size
            if found.undetermined is None:
                assert found.output is not None and abs(found.output - value) <= 1e-6 * size
                assert found.refit is not None and abs(found.refit - value) <= 1e-6 * size


@pytest.mark.parametrize("seed", range(12))
def test_planted_networks_are_recovered(seed):
    check_planted(planting.random_planted(seed, subset=planting.SUBSETS[seed % 15], largest=8))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(210))
def test_planted_networks_of_any_size_are_recovered(seed):
    check_planted(planting.random_planted(seed, subset=planting.SUBSETS[seed % 15]))


def check_unrecognized(model):
    result = analyse(planting.checkpoint(model), PROMPTS)
    assert result.verdict.algorithm == "unrecognized", result.families
    assert not result.verdict.recognized


def broken(seed):
    """A planted network whose every weight got noise of the size of its matrix."""
    planted = planting.random_planted(seed, largest=8)
    generator = torch.Generator().manual_seed(seed)
    P, Q = planting.block_scalar_heads(planted.omega, planted.model.spec.width - 1)
    P, Q = planting.disturb(P, Q, 1.0, generator)
    return LinearTransformer(spec=planted.model.spec, P=P, Q=Q)


@pytest.mark.parametrize("seed", range(6))
def test_dense_random_networks_are_not_recognized(seed):
    check_unrecognized(planting.random_dense(seed, 1 + seed % 4, 2 + seed, size=0.4))


@pytest.mark.parametrize("seed", range(6))
def test_networks_with_the_symmetry_broken_are_not_recognized(seed):
    check_unrecognized(broken(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_many_networks_without_structure_are_not_recognized(seed):
    check_unrecognized(planting.random_dense(seed, 1 + seed % 8, 2 + seed % 14, size=(0.3, 0.6, 1.0, 1.5)[seed % 4]))
    check_unrecognized(broken(seed))


@pytest.mark.parametrize("size", [3.0, 1e3])
def test_divergent_networks_get_a_verdict(size):
    check_unrecognized(planting.random_dense(0, 6, 4, size=size))


def test_trace_terms_are_named_equivariant():
    dim, layers = 3, 2
    tau = {
        name: torch.full((layers,), value, dtype=torch.float64) for name, value in (("x:xx", -0.01), ("y:xx", -0.01))
    }
    omega = torch.tensor([[-0.02, -0.002, -0.05, -0.002]] * layers, dtype=torch.float64)
    heads, traces = planting.block_scalar_heads(omega, dim), planting.trace_heads(tau, dim)
    P, Q = (torch.cat(pair, 1) for pair in zip(heads, traces, strict=True))
    result = analyse(planting.checkpoint(LinearTransformer(spec=planting.spec_for(dim, 10), P=P, Q=Q)), PROMPTS)
    assert result.verdict.algorithm == "equivariant"
    assert result.layers[0].trace["x:xx"].refit == pytest.approx(-0.01, rel=1e-6)


def test_a_planted_preconditioner_is_recovered():
    dim, generator = 4, torch.Generator().manual_seed(1)
    root = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    omega = -torch.linalg.inv(root @ root.T + torch.eye(dim, dtype=torch.float64)) / 10
    P, Q = torch.zeros(2, 1, 1, dim + 1, dim + 1, dtype=torch.float64)
    P[..., dim, dim], Q[..., :dim, :dim] = 1.0, omega.T
    P, Q = planting.scramble(P, Q, 3, generator)
    task = {
        "name": "noisy_regression",
        "dim": dim,
        "context": 10,
        "noise": {"fixed": 0.5},
        "covariance": [4, 2, 1, 0.5],
    }
    spec = ModelSpec.from_dict({"tokens": [["x", dim], ["y", 1]], "task": task})
    result = analyse(planting.checkpoint(LinearTransformer(spec=spec, P=P, Q=Q)), PROMPTS)
    assert result.verdict.algorithm == "preconditioned-gd"
    for found in (result.preconditioners[0].weight, result.preconditioners[0].refit):
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), omega, rtol=1e-6, atol=1e-9)
