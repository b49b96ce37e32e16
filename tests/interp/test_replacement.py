"""Layers replaced by those of an algorithm: exact where it is the network's own, costly where it is not."""

from __future__ import annotations

import planting
import pytest
import torch

from interp.algebra.gauge import LiveCoordinates, live_coordinates, weight_tensor
from interp.algebra.linear_prompts import gram_prompts
from interp.algebra.mixing import IdleLayers, MixedLayers, swapped
from interp.algebra.sensitivity import Prompts, predict
from interp.evidence.absorption import TensorLayers, absorption
from interp.evidence.replacement import Bench, affordable, interpolation, layer_swaps
from interp.families.parametrisations import BasisParametrisation
from interp.models.gram import HeadLayers, forward, head_layers
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer
from interp.results import Outcome

OMEGA = torch.tensor(
    [[-0.02, -0.001, -0.04, -0.002], [-0.03, -0.002, -0.05, -0.004], [0.0, 0.0, -0.06, -0.002]], dtype=torch.float64
)


def network_of(omega: torch.Tensor, heads: int = 5) -> LinearTransformer:
    """A block-scalar network, its heads split, permuted and rescaled."""
    P, Q = planting.block_scalar_heads(omega, 4)
    P, Q = planting.scramble(P, Q, heads, torch.Generator().manual_seed(1))
    return LinearTransformer(spec=planting.spec_for(4, 9, 1.0), P=P, Q=Q)


def algorithm(model: LinearTransformer, omega: torch.Tensor) -> BasisParametrisation:
    everything = LiveCoordinates(maps=torch.ones(len(omega), 5, 5).bool(), channels=torch.ones(len(omega), 5).bool())
    return BasisParametrisation.of(planting.OMEGAS, model.spec, everything, 1.0)


def bench_of(model: LinearTransformer, count: int = 200) -> Bench:
    drawn = task_of(model.spec.task).sample(count, 3)
    return Bench.of(head_layers(model, 9), gram_prompts(drawn, model.spec), drawn.target.flatten(1), seed=0)


def unchanged(outcome: Outcome) -> bool:
    assert outcome.fidelity is not None and outcome.change is not None
    return outcome.fidelity > 1 - 1e-15 and abs(outcome.change) < 1e-12


def test_the_networks_own_algorithm_changes_nothing_whatever_the_gauge() -> None:
    model = network_of(OMEGA)
    recovered = algorithm(model, OMEGA).build(OMEGA.flatten())
    network, bench = head_layers(model, 9), bench_of(model)
    for swap in layer_swaps(network, recovered, bench):
        assert unchanged(swap.swapped)
        # The control: leaving a layer out is not the same as replacing it.
        assert swap.idle.fidelity is not None and swap.idle.fidelity < 0.99
        assert swap.idle.change is not None and swap.idle.change_stderr is not None
        assert swap.idle.change > 3 * swap.idle.change_stderr
    path = interpolation(network, recovered, bench)
    assert [p.share for p in path.points] == pytest.approx([k / 10 for k in range(11)])
    assert all(unchanged(p.mixed) for p in path.points)
    assert path.barrier == pytest.approx(0.0, abs=1e-12)
    changes = [p.idle.change for p in path.points if p.idle.change is not None]
    assert len(changes) == 11 and changes[0] == 0.0 and changes == sorted(changes)
    assert path.points[-1].idle.mse == pytest.approx(float(bench.target.square().mean()))  # it predicts 0


def test_a_wrong_algorithm_is_found_out_in_the_layer_that_is_wrong() -> None:
    model, wrong = network_of(OMEGA), OMEGA.clone()
    wrong[1, 2] *= -1.0
    recovered = algorithm(model, wrong).build(wrong.flatten())
    network, bench = head_layers(model, 9), bench_of(model)
    first, second, third = layer_swaps(network, recovered, bench)
    assert unchanged(first.swapped) and unchanged(third.swapped)
    found = second.swapped
    assert found.change is not None and found.change_stderr is not None and found.mse is not None
    assert found.change > 5 * found.change_stderr
    # By hand: the network that has this layer in place of its own.
    swapped_in = OMEGA.clone()
    swapped_in[1] = wrong[1]
    other = bench_of(network_of(swapped_in))
    assert found.mse == pytest.approx(float(other.squares(other.reference).mean()), rel=1e-9)
    assert found.fidelity_ci[0] is not None and found.fidelity is not None and found.fidelity_ci[1] is not None
    assert found.fidelity_ci[0] < found.fidelity < found.fidelity_ci[1] < 0.95
    ends = interpolation(network, recovered, bench).points
    assert ends[-1].mixed.mse == pytest.approx(found.mse, rel=1e-9)
    assert ends[0].mixed.mse is not None and ends[0].mixed.mse < found.mse


def test_a_barrier_is_what_rises_above_the_line_between_the_ends() -> None:
    """omega and -omega in the last layer, whose sign the target cannot tell when the path passes through 0."""
    model = network_of(torch.tensor([[0.0, 0.0, -0.05, 0.0]], dtype=torch.float64), heads=1)
    network, bench = head_layers(model, 9), bench_of(model)
    twice = HeadLayers(P=3 * network.P, Q=network.Q, scale=1.0, residual=1.0)
    path = interpolation(network, twice, bench)
    values = [p.mixed.mse for p in path.points]
    assert None not in values
    line = [values[0] + (values[-1] - values[0]) * p.share for p in path.points]  # type: ignore[operator]
    expected = max(v - at for v, at in zip(values, line, strict=True))  # type: ignore[operator]
    assert path.barrier == pytest.approx(expected, abs=1e-12)  # a parabola lies below its chord: there is none
    assert path.barrier == 0.0 and min(v - at for v, at in zip(values, line, strict=True)) < -0.01  # type: ignore[operator]


def test_what_overflows_has_no_figures() -> None:
    model = network_of(OMEGA)
    network = head_layers(model, 9)
    large = HeadLayers(P=1e120 * network.P, Q=network.Q, scale=1.0, residual=1.0)
    path = interpolation(network, large, bench_of(model, 50))
    assert path.barrier is None and path.points[-1].mixed.mse is None and path.points[-1].mixed.fidelity is None
    assert path.points[0].mixed.mse is not None


def test_mixed_layers_are_those_of_the_mixed_heads() -> None:
    """In the products: half of the heads of one and half of the other, side by side."""
    one, other = (head_layers(planting.random_dense(seed, 3, 3), 6) for seed in (5, 6))
    drawn = task_of(planting.spec_for(3, 6).task).sample(20, 0)
    prompts = gram_prompts(drawn, planting.spec_for(3, 6))
    mixed = MixedLayers(one, other, (0.25,) * 3)
    heads = HeadLayers(P=torch.cat([0.75 * one.P, 0.25 * other.P], 1), Q=torch.cat([one.Q, other.Q], 1), scale=1.0,
                       residual=1.0)  # fmt: skip
    P, Q = one.P.clone(), one.Q.clone()
    P[1], Q[1] = other.P[1], other.Q[1]
    pairs = [
        (mixed, heads, 1e-13),
        (swapped(one, other, 1), HeadLayers(P=P, Q=Q, scale=1.0, residual=1.0), 0.0),
        (IdleLayers(3, 1.0), HeadLayers(P=0 * P, Q=Q, scale=1.0, residual=1.0), 0.0),
    ]
    for ours, theirs, tolerance in pairs:
        here, there = (forward(layers, prompts.gram, prompts.query).queries[-1] for layers in (ours, theirs))
        torch.testing.assert_close(here, there, rtol=tolerance, atol=tolerance)
        for layer in range(3):
            here, there = (layers.pullback(layer, prompts.gram) for layers in (ours, theirs))
            torch.testing.assert_close(here, there, rtol=tolerance, atol=tolerance)
        assert (ours.layers, ours.residual) == (3, 1.0)


def test_prompts_that_a_large_network_can_be_tried_on_are_fewer() -> None:
    assert affordable(7, 2, 11) > 900 > affordable(32, 8, 33) >= 64 == affordable(32, 8, 129)


# --- what must be added to the omegas and traces --------------------------------------------------------------------


def absorbed(model: LinearTransformer) -> list[tuple[int, float]]:
    network, bench = head_layers(model, 9), bench_of(model)
    live = live_coordinates(network, bench.prompts.gram, bench.prompts.query, bench.prompts.readout)
    rows = absorption(network, model.spec, live, bench.prompts, bench.reference, seed=0)
    return [(row.directions, row.fidelity or 0.0) for row in rows]


def test_a_planted_head_of_rank_one_is_absorbed_by_one_direction() -> None:
    model = network_of(OMEGA)
    P, Q = (torch.zeros_like(model.P[:, :1]) for _ in range(2))
    P[0, 0, 4, 1], Q[0, 0, 2, 3] = 0.2, 1.0
    rows = absorbed(LinearTransformer(spec=model.spec, P=torch.cat([model.P, P], 1), Q=torch.cat([model.Q, Q], 1)))
    assert [k for k, _ in rows] == [0, 1] and rows[0][1] < 0.999 and rows[1][1] == pytest.approx(1.0, abs=1e-12)


def test_what_is_spread_over_all_directions_needs_them_all() -> None:
    rows = absorbed(planting.random_dense(3, 2, 4, size=0.3))
    assert rows[0][1] < 0.5 and rows[-1][1] > 0.999 and rows[-1][0] >= 8
    assert absorbed(network_of(OMEGA)) == []  # nothing is left over


def test_layers_by_their_tensors_are_the_layers() -> None:
    model = planting.random_dense(4, 2, 3)
    network = head_layers(model, 6)
    K = torch.stack([weight_tensor(P, Q) for P, Q in zip(network.P, network.Q, strict=True)])
    layers = TensorLayers(K, network.scale, network.residual)
    drawn = task_of(model.spec.task).sample(20, 0)
    prompts: Prompts = gram_prompts(drawn, model.spec)
    torch.testing.assert_close(predict(layers, prompts), predict(network, prompts), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layers.pullback(1, prompts.gram), network.pullback(1, prompts.gram), rtol=1e-12, atol=0)
