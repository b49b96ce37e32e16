"""What the explorer shows, against planted networks, the full tensor K and derivatives of the forward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.algebra.gauge import weight_tensor
from interp.checkpoints.canonical import write_checkpoint
from interp.errors import UsageError
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.results.weight_maps import CheckpointMaps
from interp.weight_maps import explore

OMEGA = {"xx": -0.02, "xy": -0.003, "yx": -0.05, "yy": -0.004}
TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 1]}}
SPEC = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK})
Write = Callable[..., str]


def planted(layers: int = 2) -> LinearTransformer:
    """Head 0 reads x, head 1 reads y; the omegas of every layer are OMEGA."""

    def diagonal(x: float, y: float) -> torch.Tensor:
        return torch.diag(torch.tensor([x, x, x, y], dtype=torch.float64))

    Q = torch.stack([diagonal(1, 0), diagonal(0, 1)])
    P = torch.stack([diagonal(OMEGA["xx"], OMEGA["yx"]), diagonal(OMEGA["xy"], OMEGA["yy"])])
    return LinearTransformer(spec=SPEC, Q=torch.stack([Q] * layers), P=torch.stack([P] * layers))


def scrambled(seed: int = 0, layers: int = 2, heads: int = 2, spec: ModelSpec = SPEC) -> LinearTransformer:
    generator = torch.Generator().manual_seed(seed)
    Q, P = torch.randn(2, layers, heads, spec.width, spec.width, generator=generator, dtype=torch.float64) * 0.1
    return LinearTransformer(spec=spec, Q=Q, P=P)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(model: LinearTransformer, name: str = "model") -> str:
        path = tmp_path / f"{name}.safetensors"
        write_checkpoint(model, path)
        return str(path)

    return to


def only(reference: str) -> CheckpointMaps:
    return explore([reference]).checkpoints[0]


def test_planted_omegas_are_found_and_nothing_is_left(write: Write) -> None:
    weight_maps = explore([write(planted())])
    entry = weight_maps.checkpoints[0]
    found = dict(zip([c.name for c in weight_maps.coefficients], entry.coefficients[0], strict=True))
    for name, value in OMEGA.items():
        assert found[f"omega_{name}"] == pytest.approx(value, rel=1e-12)
    assert all(abs(found[name]) < 1e-15 for name in found if name.startswith("tau"))
    np.testing.assert_allclose(entry.shares, [[1, 0, 0], [1, 0, 0]], atol=1e-12)
    assert entry.maps["left"][0].max() < 1e-8
    blocks = entry.maps["copy"][0]
    np.testing.assert_allclose(blocks[:3, 3], OMEGA["xy"])
    np.testing.assert_allclose(blocks[3, :3], OMEGA["yx"])
    np.testing.assert_allclose(blocks[:3, :3], OMEGA["xx"])


def test_maps_are_derivatives_of_the_layers_map(write: Write) -> None:
    """T is linear in G, so one step of a difference is exact."""
    model = scrambled()
    entry = only(write(model))
    layers = HeadLayers(P=model.P, Q=model.Q, scale=1.0, residual=0.0)
    for a, e in ((0, 2), (3, 1), (2, 2)):
        gram = torch.zeros(1, 4, 4, dtype=torch.float64)
        gram[0, a, e] = gram[0, e, a] = 1.0
        assert entry.maps["copy"][1][a, e] == pytest.approx(float(layers.update(1, gram)[0, a, e]), rel=1e-12)
        gram = torch.zeros(1, 4, 4, dtype=torch.float64)
        gram[0, e, e] = 1.0
        assert entry.maps["trace"][1][a, e] == pytest.approx(float(layers.update(1, gram)[0, a, a]), rel=1e-12)


def test_what_is_left_is_the_tensor_without_its_projection(write: Write) -> None:
    model = scrambled(1, layers=1, heads=3)
    weight_maps = explore([write(model)])
    entry = weight_maps.checkpoints[0]
    K = weight_tensor(model.P[0], model.Q[0]).numpy()
    channel = {0: slice(0, 3), 1: slice(3, 4)}
    for coefficient, value in zip(weight_maps.coefficients, entry.coefficients[0], strict=True):
        if np.isnan(value):
            continue  # dead in the last layer
        basis = np.zeros((4, 4, 4, 4))
        for a in range(4)[channel[coefficient.row]]:
            for e in range(4)[channel[coefficient.key_row if coefficient.trace else coefficient.column]]:
                if coefficient.trace:
                    basis[a, e, e, a] = 1.0
                else:
                    basis[a, a, e, e] = 1.0
        K = K - value * 0.5 * (basis + basis.transpose(0, 2, 1, 3))
    np.testing.assert_allclose(entry.maps["left"][0], np.sqrt((K**2).sum((1, 2))), rtol=1e-9, atol=1e-12)


def test_gauge_free_means_free_of_gauge(write: Write) -> None:
    model = scrambled(2)
    turned = dataclasses.replace(model, P=-3 * model.P.flip(1), Q=model.Q.flip(1) / -3)
    one, other = only(write(model)), only(write(turned, "turned"))
    for name in one.maps:
        np.testing.assert_allclose(one.maps[name], other.maps[name], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(one.coefficients, other.coefficients, rtol=1e-9, atol=1e-15)
    assert not np.allclose(one.scalars["P"], other.scalars["P"])


def test_two_gauges_of_one_network_align_to_nothing(write: Write) -> None:
    model = scrambled(3)
    turned = dataclasses.replace(model, P=-3 * model.P.flip(1), Q=model.Q.flip(1) / -3)
    difference = explore([write(model), write(turned, "turned")]).difference()
    for layer in difference["layers"]:
        assert layer["distance"] < 1e-12
        assert [head["b"] for head in layer["heads"]] == [1, 0]
        assert all(head["factor"] == pytest.approx(-1 / 3) and head["distance"] < 1e-12 for head in layer["heads"])
    changed = dataclasses.replace(model, P=1.1 * model.P)  # the negative control
    assert explore([write(model), write(changed, "changed")]).difference()["layers"][0]["distance"] == pytest.approx(
        0.1
    )


def test_dead_cells_do_not_move_the_prediction_and_live_ones_do(write: Write) -> None:
    """Against the network itself: every cell is changed in turn."""
    from interp.models.gram import forward, head_layers
    from interp.models.tasks import task_of

    model = scrambled(4)
    entry = only(write(model))
    grams = task_of(TASK).sample(3, 9).grams(SPEC)

    def predict(changed: LinearTransformer) -> torch.Tensor:
        return forward(head_layers(changed, 8), grams.gram, grams.query).queries[-1][..., 3]

    before = predict(model)
    assert entry.dead("P")[1].any() and not entry.dead("P")[0].all()
    for name in ("Q", "P"):
        dead = entry.dead(name)
        for layer in range(2):
            for r in range(4):
                for c in range(4):
                    weights = getattr(model, name).clone()
                    weights[layer, 0, r, c] += 0.5
                    moved = float((predict(dataclasses.replace(model, **{name: weights})) - before).abs().max())
                    assert (moved < 1e-14) == dead[layer, r, c], (name, layer, r, c, moved)


def test_without_a_task_dead_cells_come_from_the_zeros(write: Write) -> None:
    spec = ModelSpec.from_dict(
        {
            "tokens": [["s", 2], ["t", 2], ["u", 2]],
            "attention": {"keys": "causal"},
            "readout": {"channel": "s", "sign": 1},
        }
    )
    model = scrambled(5, spec=spec)
    entry = only(write(model))
    assert "whatever the tokens are" in entry.live_how
    dead = entry.dead("P")[1]
    assert dead[2:].all() and not dead[:2].any()  # the last layer: only s is read out
    weight_maps = explore([write(model)])
    p, q = entry.scalars["P"][0], entry.scalars["Q"][0]
    assert p[1, 0, 1] == pytest.approx(float(torch.trace(model.P[0, 1, :2, 2:4])) / 2)
    values = dict(zip([c.name for c in weight_maps.coefficients], entry.coefficients[0], strict=True))
    assert values["omega_s<-t,t.s"] == pytest.approx(float((p[:, 0, 1] * q[:, 1, 0]).sum()))


def test_weights_that_are_not_finite_are_counted_and_stop_nothing(write: Write) -> None:
    model = scrambled(6)
    model.Q[0, 1, 2, 3], model.P[1, 0, 0, 0], model.P[1, 0, 1, 1] = float("nan"), float("inf"), -float("inf")
    weight_maps = explore([write(model), write(scrambled(7), "other")])
    entry = weight_maps.checkpoints[0]
    counts = entry.counts()
    assert (counts["nan"], counts["inf"]) == (1, 2)
    assert np.isnan(entry.coefficients).all() and np.isnan(entry.spectra["Q"][0, 1]).all()
    assert np.isfinite(entry.spectra["Q"][0, 0]).all()
    assert weight_maps.difference()["layers"][0]["distance"] is None


def test_weights_are_kept_as_the_file_has_them(write: Write) -> None:
    single = scrambled(8).to(torch.float32)
    entry = only(write(single))
    assert entry.Q.dtype == np.float32 and np.array_equal(entry.Q, single.Q.numpy())
    half = scrambled(8).to(torch.bfloat16)
    assert np.array_equal(only(write(half, "half")).P, half.P.float().numpy())


def test_spectra_are_singular_values(write: Write) -> None:
    model = scrambled(9)
    entry = only(write(model))
    np.testing.assert_allclose(entry.spectra["P"][1, 0], np.linalg.svd(model.P[1, 0].numpy(), compute_uv=False))
    planted_entry = only(write(planted(), "planted"))
    np.testing.assert_allclose(planted_entry.spectra["P.rest"], 0, atol=1e-15)  # block-scalar: no rest


def test_training_steps_are_ordered_and_copies_flagged(write: Write) -> None:
    references = [write(scrambled(seed), f"step_{step}") for step, seed in ((100, 1), (5, 2), (20, 1))]
    weight_maps = explore(references)
    assert weight_maps.kind == "steps"
    assert [entry.step for entry in weight_maps.checkpoints] == [5, 20, 100]
    assert [entry.same_as for entry in weight_maps.checkpoints] == [None, None, 1]
    assert any("step_100.safetensors holds the same weights as step_20.safetensors" in n for n in weight_maps.notes)
    unnamed = explore([*references, write(scrambled(3), "final")])
    assert [entry.step for entry in unnamed.checkpoints] == [None] * 4
    assert any("final" in note for note in unnamed.notes)


def test_too_many_steps_are_left_out_openly(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.weight_maps.MOST_NUMBERS", 3 * 128)
    weight_maps = explore([write(scrambled(step), f"step_{step}") for step in range(7)])
    assert [entry.step for entry in weight_maps.checkpoints] == [0, 3, 6]
    assert weight_maps.notes[0].startswith("4 of 7 checkpoints are left out")


def test_checkpoints_without_common_cells_are_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r"layers 2, but other\.safetensors 3"):
        explore([write(scrambled(0)), write(scrambled(0, layers=3), "other")])
    wider = ModelSpec.from_dict({"tokens": [["x", 4], ["y", 1]]})
    with pytest.raises(UsageError, match=r"'x': 3, 'y': 1.*'x': 4"):
        explore([write(scrambled(0)), write(scrambled(0, spec=wider), "other")])
    weight_maps = explore([write(scrambled(0, heads=1)), write(scrambled(0, heads=3), "more")])
    assert weight_maps.checkpoints[0].heads == 3 and any("heads differ" in note for note in weight_maps.notes)
