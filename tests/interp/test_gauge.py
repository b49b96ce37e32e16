"""K and its projections do not see the gauge; what is called dead is dead."""

from __future__ import annotations

import planting
import pytest
import torch

from interp.basis import omega_maps, trace_maps
from interp.gauge import live_coordinates, project, weight_tensor
from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import task_from_dict

DIM, LAYERS = 3, 3


def setting(seed=0):
    model = planting.random_dense(seed, LAYERS, DIM, size=0.5)
    grams = task_from_dict(model.spec.task).sample(32, seed).grams(model.spec)
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


def test_projection_equals_dense_least_squares_on_the_live_coordinates():
    model, _, _, live = setting()
    maps = (*omega_maps(model.spec), *trace_maps(model.spec))
    for layer in range(LAYERS):
        K = weight_tensor(model.P[layer], model.Q[layer]) * live.maps[layer][:, None, None, :]
        found = project(model.P[layer], model.Q[layer], maps, live, layer)
        columns = (basis_tensors(maps, DIM + 1) * live.maps[layer][:, None, None, :]).flatten(1).T
        expected = torch.linalg.lstsq(columns, K.flatten()[:, None], driver="gelsd").solution[:, 0]
        alive = ~torch.isnan(found.coefficients)
        torch.testing.assert_close(found.coefficients[alive], expected[alive], rtol=1e-10, atol=1e-14)
        assert found.energy == pytest.approx(float((K**2).sum()), rel=1e-12)
        assert found.explained == pytest.approx(float(((columns @ expected) ** 2).sum()), rel=1e-10)


def test_projection_does_not_see_the_gauge():
    model, _, _, live = setting()
    P, Q = planting.scramble(model.P, model.Q, 5, torch.Generator().manual_seed(3))
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
    grams = task_from_dict(model.spec.task).sample(16, 0).grams(model.spec)
    live = live_coordinates(head_layers(model, grams.context), grams.gram, grams.query, [DIM])
    expected = torch.zeros(DIM + 1, DIM + 1, dtype=torch.bool)
    expected[DIM, :DIM] = True
    assert bool((live.maps[0] == expected).all())
