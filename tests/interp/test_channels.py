"""Block-scalar layers taken apart: against the full tensor K, in every gauge, and for planted numbers."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from planting_channels import channel_spec, planted, scrambled

from interp.algebra.channels import block_energy, block_means, block_weights, channel_size, heads_of, project_channels
from interp.algebra.gauge import weight_tensor
from interp.errors import LayoutError
from interp.families.channel_heads import BlockHeads, live_channels, map_effects, sense
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics
from interp.models.token_pass import run

TASK = LinearDynamics(dim=3, context=9)
ALL = torch.ones(4, 4, 4, 4, dtype=torch.bool)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_means_and_kronecker_products_are_inverse():
    means = noise(2, 3, 4, 4)
    torch.testing.assert_close(block_means(block_weights(means, 3), 3), means, rtol=1e-15, atol=0)
    assert torch.equal(block_weights(means[0, 0], 3), torch.kron(means[0, 0], torch.eye(3, dtype=torch.float64)))


def test_the_projection_is_the_least_squares_one_of_the_full_tensor():
    P, Q = noise(2, 12, 12, seed=1), noise(2, 12, 12, seed=2)
    found = project_channels(P, Q, 3, ALL)
    K = weight_tensor(P, Q)
    columns, traces = [], []
    for a, b, g, e in torch.cartesian_prod(*[torch.arange(4)] * 4).tolist():
        unit = [torch.zeros(1, 4, 4, dtype=torch.float64) for _ in range(2)]
        unit[0][0, a, b], unit[1][0, e, g] = 1.0, 1.0
        columns.append(weight_tensor(block_weights(unit[0], 3), block_weights(unit[1], 3)).flatten())
        trace = torch.zeros(4, 3, 4, 3, 4, 3, 4, 3, dtype=torch.float64)
        for i in range(3):
            for j in range(3):
                trace[a, i, b, j, g, j, e, i] += 0.5
                trace[a, i, g, j, b, j, e, i] += 0.5
        traces.append(trace.flatten())
    design = torch.stack(columns, 1)
    k = torch.linalg.lstsq(design, K.flatten()[:, None]).solution[:, 0]
    torch.testing.assert_close(found.k.flatten(), k, rtol=1e-9, atol=1e-11)
    assert found.energy == pytest.approx(float(K.square().sum()), rel=1e-12)
    assert found.block == pytest.approx(float((design @ k).square().sum()), rel=1e-9)
    wide = torch.cat([design, torch.stack(traces, 1)], 1)
    left = torch.linalg.lstsq(wide, K.flatten()[:, None], driver="gelsd").solution[:, 0]
    assert found.explained == pytest.approx(float((wide @ left).square().sum()), rel=1e-9)


@hypothesis.given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3), st.integers(1, 4))
@hypothesis.settings(max_examples=15, deadline=None)
def test_planted_numbers_come_back_from_any_gauge(seed, dim, layers, heads):
    model, k = planted(LinearDynamics(dim=dim, context=6), layers, heads, seed)
    hidden = scrambled(model, seed + 1)
    for layer in range(layers):
        found = project_channels(hidden.P[layer], hidden.Q[layer], dim, ALL)
        torch.testing.assert_close(found.k, k[layer], rtol=0, atol=1e-10)
        assert found.block == pytest.approx(found.energy, rel=1e-9)


def test_a_generic_layer_is_mostly_neither():
    found = project_channels(noise(2, 24, 24, seed=1), noise(2, 24, 24, seed=2), 6, ALL)
    assert found.explained < 0.1 * found.energy
    outside = block_energy(noise(24, 24), 6, ALL[0, 0, 0], ALL[0, 0, 0])
    assert outside is not None and outside > 0.9


def test_few_heads_give_back_k():
    k = torch.einsum("hab,heg->abge", noise(2, 4, 4, seed=3), noise(2, 4, 4, seed=4))
    q, p = heads_of(k)
    assert len(q) == 2
    torch.testing.assert_close(torch.einsum("hab,heg->abge", p, q), k)
    assert len(heads_of(torch.zeros(4, 4, 4, 4, dtype=torch.float64))[0]) == 1


def test_live_channels_are_those_that_carry_something():
    model, _ = planted(TASK, 2, 2, 0)
    live = live_channels(model.spec, model.Q, model.P, TASK.sample(8, 0).inputs(model.spec)[0], 3)
    assert live.read.tolist() == [[False, True, True, True], [True] * 4]  # out starts at 0
    assert live.written.tolist() == [[True] * 4, [True, False, False, False]]  # only out is read after the last layer
    hidden = scrambled(model, 1)
    again = live_channels(model.spec, hidden.Q, hidden.P, TASK.sample(8, 0).inputs(model.spec)[0], 3)
    assert torch.equal(again.read, live.read) and torch.equal(again.written, live.written)


def test_effects_of_maps_are_derivatives_of_the_prediction():
    model, k = planted(TASK, 2, 1, 3, clip=None)
    tokens = TASK.sample(4, 1).inputs(model.spec)[0]
    v = noise(4, 9, 3, seed=5)
    sensed = sense(model.spec, model.Q, model.P, tokens, [v])
    effects = map_effects(sensed.passage[0], sensed.cotangents[0][0], 3)
    heads = BlockHeads.of([heads_of(k[0]), heads_of(k[1])])

    def functional(change: torch.Tensor) -> torch.Tensor:
        moved = BlockHeads.of([heads_of(k[0] + change), heads_of(k[1])])
        Q, P = moved.weights(3)
        return (run(model.spec, {"Q": Q, "P": P}, tokens) * v).sum((1, 2))

    torch.testing.assert_close(heads.k, k)
    for place in ((0, 2, 3, 1), (1, 3, 2, 2), (3, 1, 1, 3)):
        step = torch.zeros_like(k[0])
        step[place] = 1e-6
        slope = (functional(step) - functional(-step)) / 2e-6
        torch.testing.assert_close(effects[(slice(None), *place)], slope, rtol=1e-5, atol=1e-8)


def test_channels_of_different_size_are_refused():
    spec = ModelSpec.from_dict({**channel_spec(TASK).to_dict(), "tokens": [["out", 3], ["state", 4]]})
    with pytest.raises(LayoutError, match="all of one size"):
        channel_size(spec)
