"""What is left outside omegas and traces: planted entries, the full tensor by hand, layers swapped one by one."""

from __future__ import annotations

import itertools

import planting
import pytest
import torch
from torch import Tensor

from interp.algebra.basis import omega_maps, trace_maps
from interp.algebra.gauge import LiveCoordinates, live_coordinates, weight_tensor
from interp.algebra.sensitivity import Prompts, predict, sensitivities
from interp.evidence.remainder import projected, remainder_tensor, remainders
from interp.families.parametrisations import BasisParametrisation
from interp.identify.estimates import output_estimate
from interp.models.gram import HeadLayers, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer
from interp.results import Remainder


def prompts_of(model: LinearTransformer, count: int, seed: int = 0) -> Prompts:
    drawn = task_of(model.spec.task).sample(count, seed).grams(model.spec)
    return Prompts(drawn.gram, drawn.query, (model.spec.width - 1,), -1)


def live_of(model: LinearTransformer, layers: HeadLayers) -> LiveCoordinates:
    some = prompts_of(model, 64, 9)
    return live_coordinates(layers, some.gram, some.query, some.readout)


def described(model: LinearTransformer, count: int = 200) -> tuple[Remainder, ...]:
    layers, prompts = head_layers(model, task_of(model.spec.task).context), prompts_of(model, count)
    live = live_of(model, layers)
    parametrisation = BasisParametrisation.of(planting.OMEGAS, model.spec, live, layers.scale)
    output = output_estimate(parametrisation, layers, sensitivities(layers, prompts))
    diag = planting.omega_fit("diag", model.spec, live, layers.scale, output)
    return remainders(layers, model.spec, live, diag, prompts, predict(layers, prompts), seed=0)


def with_head(
    model: LinearTransformer, layer: int, p: tuple[int, int], q: tuple[int, int], size: float
) -> LinearTransformer:
    """The model with one head more: P and Q zero but for one entry each, at ``p`` and ``q``, in one layer."""
    P, Q = (torch.zeros_like(model.P[:, :1]) for _ in range(2))
    P[layer, 0, p[0], p[1]], Q[layer, 0, q[0], q[1]] = size, 1.0
    return LinearTransformer(spec=model.spec, P=torch.cat([model.P, P], 1), Q=torch.cat([model.Q, Q], 1))


DIAG = [[-0.02, -0.001, -0.04, -0.002], [-0.03, -0.002, -0.05, -0.004]]


def diag(dim: int = 4) -> LinearTransformer:
    P, Q = planting.block_scalar_heads(torch.tensor(DIAG, dtype=torch.float64), dim)
    return LinearTransformer(spec=planting.spec_for(dim, 2 * dim + 1, 2.0), P=P, Q=Q)


@pytest.mark.parametrize(
    ("p", "q", "block", "read"),
    [
        ((0, 1), (2, 3), "xx", "xx"),  # x_0 gains G[1, 3] x_2
        ((0, 4), (2, 3), "xx", "xy"),
        ((0, 4), (2, 4), "xx", "yy"),
        ((0, 1), (4, 3), "xy", "xx"),
        ((4, 1), (2, 3), "yx", "xx"),
        ((4, 4), (2, 3), "yx", "xy"),  # y gains alpha[3] x_2, which no omega does
        ((4, 1), (4, 3), "yy", "xx"),
    ],
)
def test_a_planted_entry_is_found_in_its_block_with_rank_one(
    p: tuple[int, int], q: tuple[int, int], block: str, read: str
) -> None:
    """The entry has no overlap with the omegas and traces, so the remainder is it alone: G[b, c] is read once, or as
    1/2 G[b, c] + 1/2 G[c, b], energy half of the square."""
    size = 0.05
    row = described(with_head(diag(), 0, p, q, size))[0]
    assert row.blocks is not None and row.rank == pytest.approx(1.0, abs=1e-9) and row.why is None
    assert row.leading == pytest.approx([1.0, 0.0, 0.0, 0.0, 0.0], abs=1e-9)
    for name, parts in row.blocks.items():
        for part, share in parts.items():
            assert share == pytest.approx(1.0 if (name, part) == (block, read) else 0.0, abs=1e-12)
    xx, xy, yx, yy = DIAG[0]
    # xx fills d^2 entries (a, a, e, e), of which the d with a = e are diagonal and whole, the others half; so on.
    omegas = xx**2 * (4 + 12 / 2) + xy**2 * 4 / 2 + yx**2 * 4 / 2 + yy**2
    own = size**2 * (1.0 if p[1] == q[1] else 0.5)
    assert row.energy == pytest.approx(own / (own + omegas), rel=1e-9)


def test_independent_entries_add_ranks() -> None:
    model = with_head(with_head(diag(5), 0, (0, 1), (2, 3), 0.05), 0, (5, 2), (1, 4), 0.05)
    row = described(model)[0]
    assert row.rank == pytest.approx(2.0) and row.leading == pytest.approx([0.5, 0.5, 0, 0, 0], abs=1e-9)


def test_every_figure_of_an_unstructured_network_against_the_tensor_written_out() -> None:
    """K entry by entry, projected by dense least squares on all basis tensors, dead coordinates left out."""
    model = planting.random_dense(1, 2, 3, size=0.5)
    layers = head_layers(model, 6)
    live = live_of(model, layers)
    maps = (*omega_maps(model.spec), *trace_maps(model.spec))
    for layer, row in enumerate(described(model)):
        K = weight_tensor(model.P[layer], model.Q[layer])
        alive = torch.zeros_like(K)
        for a, b, c, e in itertools.product(range(4), repeat=4):
            alive[a, b, c, e] = float(live.maps[layer, a, e] and live.channels[layer, b] and live.channels[layer, c])
        columns = []
        for basis in maps:
            tensor = torch.zeros_like(K)
            for a, b, c, e in basis.entries().tolist():
                tensor[a, b, c, e] += 0.5
                tensor[a, c, b, e] += 0.5
            columns.append((tensor * alive).flatten())
        design = torch.stack(columns, 1)
        design = design[:, design.norm(dim=0) > 0]
        target = (K * alive).flatten()
        left = target - design @ torch.linalg.lstsq(design, target[:, None]).solution[:, 0]
        assert row.energy == pytest.approx(float(left.square().sum() / target.square().sum()), rel=1e-9)
        left = left.view_as(K)
        coefficients = projected(layers, live, maps)[0].coefficients[layer]
        found = remainder_tensor(layers, model.spec, live, layer, coefficients)
        torch.testing.assert_close(found, left, rtol=0, atol=1e-12 * float(K.abs().max()))
        singular = torch.linalg.svdvals(left.permute(0, 3, 1, 2).reshape(16, 16)).square()
        assert row.rank == pytest.approx(float(singular.sum() ** 2 / singular.square().sum()), rel=1e-9)
        assert row.leading == pytest.approx((singular[:5] / singular.sum()).tolist(), rel=1e-9)
        shares = _shares(left)
        assert row.blocks is not None
        for block, parts in row.blocks.items():
            for read, share in parts.items():
                assert share == pytest.approx(shares.get((block, read), 0.0), rel=1e-9, abs=1e-15)
        assert sum(sum(parts.values()) for parts in row.blocks.values()) == pytest.approx(1.0, abs=1e-12)


def _shares(K: Tensor) -> dict[tuple[str, str], float]:
    energy, out = K.square(), dict[tuple[str, str], float]()
    for a, b, c, e in itertools.product(range(4), repeat=4):
        block = ("y" if a == 3 else "x") + ("y" if e == 3 else "x")
        read = "".join(sorted(("y" if b == 3 else "x") + ("y" if c == 3 else "x")))
        out[block, read] = out.get((block, read), 0.0) + float(energy[a, b, c, e] / energy.sum())
    return out


def test_gauge_changes_nothing() -> None:
    model = with_head(diag(), 0, (0, 1), (2, 3), 0.05)
    P, Q = planting.scramble(model.P, model.Q, 5, torch.Generator().manual_seed(3))
    for one, other in zip(described(model), described(LinearTransformer(spec=model.spec, P=P, Q=Q)), strict=True):
        assert other.energy == pytest.approx(one.energy, abs=1e-12)
        assert other.projected_fidelity == pytest.approx(one.projected_fidelity, abs=1e-9)
        assert (one.rank is None) == (other.rank is None)
        if one.rank is not None:
            assert other.rank == pytest.approx(one.rank, rel=1e-6)


def test_a_block_scalar_network_has_nothing_left_over_and_survives_every_swap() -> None:
    for row in described(planting.random_planted(4, layers=3, largest=6).model):
        assert row.energy is not None and row.energy < 1e-12
        assert row.blocks is row.rank is row.leading is None and row.why == "nothing is left over"
        assert row.projected_fidelity == pytest.approx(1.0, abs=1e-12)
        assert row.omega_fidelity == pytest.approx(1.0, abs=1e-9)


def test_a_swap_measures_what_the_remainder_of_that_layer_does() -> None:
    """The planted entry is all that is lost, and only from the layer that has it."""
    model = with_head(diag(), 0, (4, 1), (2, 3), 0.05)
    first, second = described(model)
    prompts, clean = prompts_of(model, 200), diag()
    reference, without = predict(head_layers(model, 9), prompts), predict(head_layers(clean, 9), prompts)
    lost = float((without - reference).square().sum() / (reference - reference.mean()).square().sum())
    assert lost > 1e-3 and first.projected_fidelity == pytest.approx(1 - lost, rel=1e-9)
    assert first.projected_ci[0] is not None and first.projected_ci[1] is not None
    assert first.projected_ci[0] < 1 - lost < first.projected_ci[1]
    assert second.projected_fidelity == pytest.approx(1.0, abs=1e-12)
    assert first.omega_fidelity is not None and first.projected_fidelity is not None
    assert first.omega_fidelity > first.projected_fidelity - 0.01  # fitted to what the layer does


def test_wide_networks_and_idle_layers_say_why_there_is_no_tensor() -> None:
    wide = planting.random_dense(7, 1, 33, size=0.3)
    (row,) = described(wide, count=70)
    assert row.blocks is None and row.why is not None and "34^4" in row.why and row.energy is not None
    assert row.projected_fidelity is not None
    silent = planting.random_dense(8, 2, 3, size=0.3)
    silent = LinearTransformer(spec=silent.spec, P=silent.P * torch.tensor([1.0, 0.0]).view(2, 1, 1, 1), Q=silent.Q)
    rows = described(silent)
    assert rows[1].energy is None and str(rows[1].why).startswith("the layer has no say")
    P, Q = diag().P * 1e200, diag().Q / 1e200  # squares of these overflow, and underflow
    for row in described(LinearTransformer(spec=diag().spec, P=P, Q=Q)):
        assert row.energy is None and row.why is not None and row.blocks is None


def test_channels_in_another_order() -> None:
    model = with_head(diag(), 0, (4, 1), (2, 3), 0.05)
    order = [4, 0, 1, 2, 3]
    spec = ModelSpec.from_dict(model.spec.to_dict() | {"tokens": [["y", 1], ["x", 4]]})
    layers = head_layers(model, 9)
    turned = HeadLayers(
        P=layers.P[..., order, :][..., order], Q=layers.Q[..., order, :][..., order], scale=1.0, residual=1.0
    )
    live = live_of(model, layers)
    live_turned = LiveCoordinates(maps=live.maps[:, order][:, :, order], channels=live.channels[:, order])
    tensors = []
    for network, where, mask in ((layers, model.spec, live), (turned, spec, live_turned)):
        coefficients = projected(network, mask, (*omega_maps(where), *trace_maps(where)))[0].coefficients[0]
        tensors.append(remainder_tensor(network, where, mask, 0, coefficients))
    expected = tensors[0][order][:, order][:, :, order][:, :, :, order]
    torch.testing.assert_close(tensors[1], expected, rtol=0, atol=1e-15)
