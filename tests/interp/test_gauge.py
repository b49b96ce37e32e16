"""K and its projections do not see the gauge; what is called dead is dead."""

from __future__ import annotations

import planting
import pytest
import torch

from interp.algebra.basis import BasisLayers, omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, live_coordinates, project, regauged, weight_tensor
from interp.errors import LayoutError
from interp.models.gram import HeadLayers, adjoint, forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import task_of

DIM, LAYERS = 3, 3


def setting(seed=0):
    model = planting.random_dense(seed, LAYERS, DIM, size=0.5)
    grams = task_of(model.spec.task).sample(32, seed).grams(model.spec)
    network = head_layers(model, grams.context)
    return model, grams, network, live_coordinates(network, grams.gram, grams.query, [DIM])


def basis_tensors(maps, width):
    out = []
    for basis in maps:
        tensor = torch.zeros(width, width, width, width, dtype=torch.float64)
        for index in basis.entries().tolist():
            tensor[tuple(index)] += 1.0
        out.append(0.5 * (tensor + tensor.transpose(1, 2)))
    return torch.stack(out)


def check_projection(model, live, layer):
    """Against dense least squares with every dead coordinate of K and of the basis set to 0."""
    maps = (*omega_maps(model.spec), *trace_maps(model.spec))
    b = live.channels[layer]
    mask = live.maps[layer][:, None, None, :] * b[None, :, None, None] * b[None, None, :, None]
    K = weight_tensor(model.P[layer], model.Q[layer]) * mask
    found = project(model.P[layer], model.Q[layer], maps, live, layer)
    columns = (basis_tensors(maps, DIM + 1) * mask).flatten(1).T
    alive = columns.abs().amax(0) > 0
    assert torch.equal(~torch.isnan(found.coefficients), alive)
    # gelsd: of several coefficients with the same projection, those of least norm
    expected = torch.linalg.lstsq(columns[:, alive], K.flatten()[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(found.coefficients[alive], expected, rtol=1e-9, atol=1e-13)
    assert found.energy == pytest.approx(float((K**2).sum()), rel=1e-12)
    assert found.explained == pytest.approx(float(((columns[:, alive] @ expected) ** 2).sum()), rel=1e-9, abs=1e-15)


def test_projection_equals_dense_least_squares_on_the_live_coordinates():
    model, _, _, live = setting()
    for layer in range(LAYERS):
        check_projection(model, live, layer)


def test_projection_on_any_pattern_of_live_coordinates():
    """As a network that ignores some of its inputs may have: maps then are live in part."""
    generator = torch.Generator().manual_seed(0)
    model = planting.random_dense(2, 30, DIM)
    maps = torch.rand(30, DIM + 1, DIM + 1, generator=generator) < 0.7
    channels = torch.rand(30, DIM + 1, generator=generator) < 0.8
    for layer in range(30):
        check_projection(model, LiveCoordinates(maps=maps, channels=channels), layer)


def hidden(P, Q):
    """The same network with heads that cancel each other, split, permuted and rescaled."""
    generator = torch.Generator().manual_seed(3)
    silent_P, silent_Q = planting.silent_heads(P, generator)
    return planting.scramble(torch.cat([P, silent_P], 1), torch.cat([Q, silent_Q], 1), 7, generator)


def test_the_weight_tensor_does_not_see_the_gauge():
    model, _, network, _ = setting()
    P, Q = hidden(model.P, model.Q)
    again = regauged(network)
    for layer in range(LAYERS):
        K = weight_tensor(model.P[layer], model.Q[layer])
        assert torch.equal(K, K.transpose(1, 2))
        size = float(K.abs().max())
        torch.testing.assert_close(weight_tensor(P[layer], Q[layer]), K, rtol=0, atol=1e-12 * size)
        torch.testing.assert_close(weight_tensor(again.P[layer], again.Q[layer]), K, rtol=0, atol=1e-14 * size)


def test_projection_does_not_see_the_gauge():
    model, _, _, live = setting()
    P, Q = hidden(model.P, model.Q)
    for layer in range(LAYERS):
        one = project(model.P[layer], model.Q[layer], omega_maps(model.spec), live, layer)
        two = project(P[layer], Q[layer], omega_maps(model.spec), live, layer)
        torch.testing.assert_close(one.coefficients, two.coefficients, rtol=1e-9, atol=1e-12, equal_nan=True)
        assert two.energy == pytest.approx(one.energy, rel=1e-10)


@pytest.mark.parametrize("basis", [*omega_maps(planting.spec_for(3, 5)), *trace_maps(planting.spec_for(3, 5))])
def test_maps_match_their_tensor_and_their_adjoint(basis):
    generator = torch.Generator().manual_seed(0)
    gram = torch.randn(4, 6, 4, generator=generator, dtype=torch.float64)
    gram = gram.mT @ gram
    cotangent = torch.randn(4, 4, 4, generator=generator, dtype=torch.float64)
    update = torch.zeros_like(gram)
    basis.add_update(update, gram, 1.0)
    dense = torch.einsum("abce,nbc->nae", basis_tensors([basis], 4)[0], gram)
    torch.testing.assert_close(update, dense)
    inner = (cotangent * update).sum((-1, -2))
    torch.testing.assert_close(basis.contract(cotangent, gram), inner)
    back = torch.zeros_like(gram)
    basis.add_pullback(back, cotangent, 1.0)
    torch.testing.assert_close((back * gram).sum((-1, -2)), inner)
    torch.testing.assert_close(back, back.mT)


@pytest.mark.parametrize(("tokens", "expected"), [([["x", 3], ["y", 1]], 7), ([["x", 3], ["y", 2]], 8)])
def test_the_basis_is_every_equivariant_map(tokens, expected):
    """The K that rotations and reflections of x (and of y) leave alone form a space of that dimension, and the basis
    spans it. Invariance under a few random elements is invariance under the group they generate, which is dense."""
    spec = ModelSpec.from_dict({"tokens": tokens})
    D, generator = spec.width, torch.Generator().manual_seed(0)

    def orthogonal(size):
        return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0]

    identity = torch.eye(D**4, dtype=torch.float64)
    middle = identity.view(D, D, D, D, -1).transpose(1, 2).reshape(D**4, -1)
    conditions = [identity - middle]  # symmetric in (b, c)
    for _ in range(3):
        R = torch.block_diag(*(orthogonal(c.size) for c in spec.channels))
        R[0] *= -1 if torch.linalg.det(R) > 0 else 1
        conditions.append(torch.kron(torch.kron(R, R), torch.kron(R, R)) - identity)
    stacked = sum(c.T @ c for c in conditions)
    assert int((torch.linalg.eigvalsh(stacked) < 1e-9).sum()) == expected
    tensors = basis_tensors((*omega_maps(spec), *trace_maps(spec)), D).flatten(1)
    assert int(torch.linalg.matrix_rank(tensors)) == len(tensors) == expected
    assert float((tensors @ stacked).abs().max()) < 1e-9


def test_dead_coordinates_are_dead_and_live_ones_are_not():
    _, grams, network, live = setting()
    assert not live.maps[-1][:DIM].any()  # x is not read after the last layer
    base = forward(network, grams.gram, grams.query)
    generator = torch.Generator().manual_seed(5)
    for layer in range(LAYERS):
        for dead in (True, False):
            change = torch.randn(DIM + 1, DIM + 1, generator=generator, dtype=torch.float64)
            change = torch.where(live.maps[layer] != dead, change, 0.0)
            query, gram = grams.query, grams.gram
            for index, T in enumerate(base.maps):
                T = network.residual * torch.eye(DIM + 1, dtype=torch.float64) + network.update(index, gram)
                if index == layer:
                    T = T + 1e-3 * change
                query, gram = query @ T.mT, T @ gram @ T.mT
            moved = float((query - base.queries[-1])[..., DIM].abs().max())
            size = float(base.queries[-1][..., DIM].abs().max())
            assert (moved < 1e-12 * size) is (dead or not change.any()), (layer, dead)  # below is rounding


def test_one_layer_reads_nothing_from_the_label_of_the_query():
    model = planting.random_dense(1, 1, DIM)
    grams = task_of(model.spec.task).sample(16, 0).grams(model.spec)
    live = live_coordinates(head_layers(model, grams.context), grams.gram, grams.query, [DIM])
    expected = torch.zeros(DIM + 1, DIM + 1, dtype=torch.bool)
    expected[DIM, :DIM] = True
    assert bool((live.maps[0] == expected).all())


def test_scores_do_not_see_what_is_in_dead_coordinates():
    """Junk there changes no coefficient, no energy and no prediction."""
    model, grams, network, live = setting()
    P, Q = model.P.clone(), model.Q
    P[-1, :, :DIM] += torch.randn(2, DIM, DIM + 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    maps = (*omega_maps(model.spec), *trace_maps(model.spec))
    clean, dirty = (project(value[-1], Q[-1], maps, live, LAYERS - 1) for value in (model.P, P))
    torch.testing.assert_close(dirty.coefficients, clean.coefficients, rtol=1e-12, atol=0, equal_nan=True)
    assert (dirty.energy, dirty.explained) == pytest.approx((clean.energy, clean.explained), rel=1e-12)
    junk = HeadLayers(P=P, Q=Q, scale=network.scale, residual=network.residual)
    before, after = (forward(n, grams.gram, grams.query).queries[-1][..., DIM] for n in (network, junk))
    torch.testing.assert_close(after, before, rtol=1e-13, atol=0)


def test_every_live_coordinate_moves_the_prediction_by_what_the_derivative_says():
    _, grams, network, live = setting()
    trajectory = forward(network, grams.gram, grams.query)
    seed = torch.zeros_like(grams.query)
    seed[..., DIM] = 1.0
    gammas = adjoint(network, trajectory, seed)
    identity = network.residual * torch.eye(DIM + 1, dtype=torch.float64)

    def predict(layer, change):
        query, gram = grams.query, grams.gram
        for index in range(LAYERS):
            T = identity + network.update(index, gram) + (change if index == layer else 0.0)
            query, gram = query @ T.mT, T @ gram @ T.mT
        return query[:, 0, DIM]

    for layer in range(LAYERS):
        step = 1e-5 * float(trajectory.maps[layer].abs().max())
        for a, e in torch.nonzero(live.maps[layer]).tolist():
            change = torch.zeros(DIM + 1, DIM + 1, dtype=torch.float64)
            change[a, e] = step
            slope = (predict(layer, change) - predict(layer, -change)) / (2 * step)
            scale = float(gammas[layer].abs().max())
            torch.testing.assert_close(slope, gammas[layer][:, a, e], rtol=1e-4, atol=1e-6 * scale)
            assert float(slope.abs().max()) > 0


def test_heads_that_cancel_leave_dead_coordinates_dead():
    """Without omega_yx only the labels' own update is left; what six scrambled heads leave beside it is rounding."""
    model = planting.random_planted(22, subset=("xx",)).model
    dim = model.spec.width - 1
    grams = task_of(model.spec.task).sample(64, 0).grams(model.spec)
    live = live_coordinates(head_layers(model, grams.context), grams.gram, grams.query, [dim])
    expected = torch.zeros(dim + 1, dim + 1, dtype=torch.bool)
    expected[dim, :dim] = True  # the query's label could come from its x, in any layer
    assert bool((live.maps == expected).all())


def test_a_divergent_prompt_hides_no_coordinate():
    model = planting.random_planted(0, layers=2, subset=planting.OMEGAS, largest=4).model
    dim = model.spec.width - 1
    grams = task_of(model.spec.task).sample(32, 0).grams(model.spec)
    network = head_layers(model, grams.context)
    usual = live_coordinates(network, grams.gram, grams.query, [dim])
    gram, query = grams.gram.clone(), grams.query.clone()
    gram[0] *= 1e12
    query[0] *= 1e6
    found = live_coordinates(network, gram, query, [dim])
    assert torch.equal(found.maps, usual.maps) and torch.equal(found.channels, usual.channels)


def test_layers_of_a_recovered_algorithm_are_those_of_its_heads():
    """Update and pullback of BasisLayers against HeadLayers with the same omegas; each pullback against its update."""
    omega = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P, Q = planting.block_scalar_heads(omega, DIM)
    heads = HeadLayers(P=P, Q=Q, scale=0.3, residual=1.0)
    basis = BasisLayers(omega_maps(planting.spec_for(DIM, 5)), omega, 0.3, 1.0)
    generator = torch.Generator().manual_seed(1)
    gram = torch.randn(4, 6, DIM + 1, generator=generator, dtype=torch.float64)
    gram, cotangent = gram.mT @ gram, torch.randn(4, DIM + 1, DIM + 1, generator=generator, dtype=torch.float64)
    for layer in range(2):
        torch.testing.assert_close(basis.update(layer, gram), heads.update(layer, gram))
        back = basis.pullback(layer, cotangent)
        torch.testing.assert_close(back, heads.pullback(layer, cotangent))
        torch.testing.assert_close((back * gram).sum((1, 2)), (cotangent * basis.update(layer, gram)).sum((1, 2)))


def test_omegas_need_one_input_channel():
    for tokens in (["x", 2], ["y", 1], ["z", 2]), (["y", 1],):
        with pytest.raises(LayoutError, match="exactly one input channel beside the label 'y'"):
            omega_maps(ModelSpec.from_dict({"tokens": list(tokens)}))
