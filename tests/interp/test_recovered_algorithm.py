"""The recovered algorithm in the document is complete: it runs from the JSON alone, and is what the network does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import planting
import pytest
import torch
from torch import Tensor

from interp.algebra.gauge import regauged
from interp.algebra.sensitivity import Prompts, predict
from interp.certificate import certify, recognize
from interp.identify.choose import Choice, identify
from interp.identify.run import Run
from interp.models.gram import head_layers
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression, task_of
from interp.models.transformer import LinearTransformer
from interp.results import Certificate, RecoveredOmegas
from interp.results.plain_data import from_plain, to_plain

PROMPTS = 256


def identified(model: LinearTransformer) -> Choice:
    return identify(Run.of(planting.checkpoint(model), PROMPTS))


def recovered(model: LinearTransformer) -> dict[str, Any]:
    """As the JSON document has it."""
    choice = identified(model)
    assert choice.chosen is not None
    return json.loads(json.dumps(to_plain(choice.chosen.family.recovered(choice.chosen, choice.run))))


def run(document: dict[str, Any], X: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> float:
    """The algorithm token by token, with loops, from the words of ``RecoveredOmegas`` alone."""
    xs, ys, n = [*X, x_query], [*y, 0.0], len(X)
    s = {"1": 1.0, "1/n": 1 / n, "1/(n+1)": 1 / (n + 1)}.get(document["scale"], document["scale"])
    for layer in document["layers"]:
        w = {name: c["value"] for name, c in layer["coefficients"].items()}
        keys = range(n if document["keys"] == "context" else n + 1)
        Sigma = s * sum(np.outer(xs[j], xs[j]) for j in keys)
        alpha, lam = s * sum(ys[j] * xs[j] for j in keys), s * sum(ys[j] ** 2 for j in keys)
        new = []
        for x, label in zip(xs, ys, strict=True):
            dx = w.get("xx", 0) * Sigma @ x + w.get("xy", 0) * label * alpha
            dx = dx + (w.get("x:xx", 0) * np.trace(Sigma) + w.get("x:yy", 0) * lam) * x
            dy = w.get("yx", 0) * alpha @ x + (w.get("yy", 0) * lam + w.get("y:xx", 0) * np.trace(Sigma)) * label
            if layer["matrix"] is not None:
                dy = dy + alpha @ np.array(layer["matrix"]) @ x
            new.append((document["residual"] * x + dx, document["residual"] * label + dy))
        xs, ys = [x for x, _ in new], [label for _, label in new]
    return document["sign"] * ys[-1]


def heads(families: str, dim: int, layers: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    if families == "preconditioned-gd":
        P, Q = torch.zeros(2, layers, 1, dim + 1, dim + 1, dtype=torch.float64)
        P[..., dim, dim] = 1.0
        Q[..., :dim, :dim] = -0.05 * (torch.eye(dim) + 0.4 * torch.randn(dim, dim, generator=generator)).double()
    else:
        used = {"gd": "0010", "gd++": "1010", "diag": "1111", "equivariant": "1111"}[families]
        values = torch.tensor([-0.02, -0.002, -0.05, -0.003], dtype=torch.float64)
        P, Q = planting.block_scalar_heads((values * torch.tensor([int(c) for c in used])).repeat(layers, 1), dim)
        if families == "equivariant":
            tau = {"x:xx": -0.01, "x:yy": -0.001, "y:xx": -0.01}
            more = planting.trace_heads({k: torch.full((layers,), v, dtype=torch.float64) for k, v in tau.items()}, dim)
            P, Q = (torch.cat(pair, 1) for pair in zip((P, Q), more, strict=True))
    return planting.scramble(P, Q, P.shape[1] + 1, generator)


SETTINGS: list[dict[str, object]] = [
    {},
    {"attention": {"keys": "all", "scale": "1/(n+1)"}},
    {"attention": {"scale": "1/n"}},
    {"attention": {"scale": -0.5}, "readout": {"channel": "y", "sign": 1}},
    {"residual": False},
    {"tokens": [["y", 1], ["x", 3]]},
]


def planted(name: str, **fields: object) -> LinearTransformer:
    dim = 3
    P, Q = heads(name, dim)
    if "tokens" in fields:
        order = torch.tensor([dim, *range(dim)])
        P, Q = (value[..., order, :][..., order] for value in (P, Q))
    return LinearTransformer(spec=planting.spec_for(dim, 8, **{"noise": 1.0, **fields}), P=P, Q=Q)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *(("diag", fields) for fields in SETTINGS),
        *((name, {}) for name in ("gd", "gd++", "equivariant", "preconditioned-gd")),
        ("preconditioned-gd", SETTINGS[1]),
    ],
)
def test_the_algorithm_runs_from_the_document_alone(name: str, fields: dict[str, object]) -> None:
    model = planted(name, **fields)
    document = recovered(model)
    assert document["family"] == name
    assert from_plain(RecoveredOmegas, document, "recovered").family == name
    for context in (8, 5):  # the scale follows the number of examples
        task = task_of({**(model.spec.task or {}), "context": context})
        drawn = task.sample(5, 99)
        grams = drawn.grams(model.spec)
        label = model.spec.channel("y").start
        expected = predict(
            head_layers(model, context), Prompts(grams.gram, grams.query, (label,), model.spec.readout.sign)
        )
        found = [
            run(document, *map(np.asarray, prompt)) for prompt in zip(drawn.x, drawn.y, drawn.x_query, strict=True)
        ]
        # A fit that is exact leaves at most 1e-12 of the variance, so 1e-6 of the size of a prediction.
        np.testing.assert_allclose(found, expected[:, 0], rtol=1e-6, atol=1e-7)


def test_the_numbers_are_those_of_the_family_not_of_the_four_omegas() -> None:
    """In a deep gd network the fit of all four omegas may leave omega_yx loose; its own family fixes it."""
    omega = torch.tensor([[0, 0, -0.05, 0], [0, 0, -0.03, 0], [0, 0, -0.02, 0]], dtype=torch.float64)
    P, Q = planting.block_scalar_heads(omega, 4)
    document = recovered(LinearTransformer(spec=planting.spec_for(4, 10), P=P, Q=Q))
    assert document["parameters"] == 3
    for layer, row in zip(document["layers"], omega, strict=True):
        assert list(layer["coefficients"]) == ["yx"]
        c = layer["coefficients"]["yx"]
        assert c["value"] == pytest.approx(float(row[2]), rel=1e-9)
        assert c["undetermined"] is None and 0 < c["stderr"] < 1e-9


def test_equations_without_a_residual_stream() -> None:
    assert recovered(planted("diag", residual=False))["equation"] == (
        "x ← ω_xx Σ x + ω_xy y α;  y ← ω_yx ⟨α, x⟩ + ω_yy λ y"
    )
    P, Q = heads("gd", 3, layers=1)
    one = LinearTransformer(spec=planting.spec_for(3, 8, noise=1.0, residual=False), P=P, Q=Q)
    assert recovered(one)["equation"] == "x ← 0;  y ← ω_yx ⟨α, x⟩"


# Certificates --------------------------------------------------------------------------------------------------------


def certificate(model: LinearTransformer) -> Certificate:
    found = recognize(planting.checkpoint(model), PROMPTS, 0)
    assert found is not None
    return certify(found, PROMPTS, None)


def test_variations_are_what_they_are_called() -> None:
    task = NoisyRegression(dim=2, context=5, noise=NoiseLaw(kind="choice", values=(1.0, 3.0)), covariance=(4.0, 1.0))
    kinds = {name: v.task for name, v in task.variations().items() if v.axis is None}
    assert list(kinds) == [
        "task", "noise x2", "context x1/2", "context x2", "inputs x1/2", "inputs x2", "one input x2", "weights x3",
    ]  # fmt: skip
    made = {name: kind for name, kind in kinds.items() if isinstance(kind, NoisyRegression)}
    assert made["task"] == task and made["noise x2"].noise.values == (2.0, 6.0)
    assert (made["context x1/2"].context, made["context x2"].context) == (2, 10)
    torch.testing.assert_close(made["inputs x2"].sample(3, 0).x, 2 * task.sample(3, 0).x)
    torch.testing.assert_close(made["inputs x1/2"].sample(3, 0).x, 0.5 * task.sample(3, 0).x)
    bare = NoisyRegression(dim=2, context=1, noise=NoiseLaw(kind="fixed", values=(0.0,)))
    assert [name for name, v in bare.variations().items() if isinstance(v.task, Skipped)] == [
        "noise x2",
        "context x1/2",
    ]


def test_a_planted_algorithm_agrees_everywhere() -> None:
    found = certificate(planted("diag", **SETTINGS[1]))
    for entry in found.disagreements:
        assert entry.skipped is None and entry.prompts == PROMPTS and entry.left_out == 0
        assert entry.largest is not None and entry.largest < 1e-6
    np.testing.assert_allclose(found.network, found.algorithm, rtol=1e-6)
    assert np.array_equal(np.float32(found.examples), np.float64(found.examples))
    assert np.array(found.examples).shape == (4, 9, 4)


def test_disagreements_are_those_of_the_predictions() -> None:
    """A disturbed network, against predictions computed here from the document and in another gauge."""
    omega = torch.tensor([[-0.02, -0.002, -0.05, -0.003]] * 2, dtype=torch.float64)
    P, Q = planting.disturb(*planting.block_scalar_heads(omega, 3), 0.05, torch.Generator().manual_seed(0))
    model = LinearTransformer(spec=planting.spec_for(3, 8, noise=1.0), P=P, Q=Q)
    found, document = certificate(model), recovered(model)
    for entry in found.disagreements:
        drawn = task_of(entry.task).sample(PROMPTS, entry.seed)
        grams = drawn.grams(model.spec)
        network = predict(regauged(head_layers(model, drawn.context)), Prompts(grams.gram, grams.query, (3,), -1))
        rows = zip(drawn.x, drawn.y, drawn.x_query, strict=True)
        algorithm = np.array([run(document, *map(np.asarray, row)) for row in rows])
        values = network[:, 0].numpy()
        rms = float(np.sqrt((values**2).mean()))
        apart = np.abs(algorithm - values) / rms
        assert entry.rms == pytest.approx(rms, rel=1e-6)
        assert entry.median == pytest.approx(np.quantile(apart, 0.5), rel=1e-6)
        assert entry.q90 == pytest.approx(np.quantile(apart, 0.9), rel=1e-6)
        assert entry.q99 == pytest.approx(np.quantile(apart, 0.99), rel=1e-6)
        assert entry.largest == pytest.approx(apart.max(), rel=1e-6)
        assert entry.r2 == pytest.approx(
            1 - (apart**2).sum() * rms**2 / ((values - values.mean()) ** 2).sum(), rel=1e-6
        )
        low, high = entry.r2_ci
        assert low is not None and high is not None and entry.r2 is not None and low <= entry.r2 <= high
    assert found.disagreements[0].largest is not None and found.disagreements[0].largest > 1e-4


def test_prompts_that_meet_the_clip_are_left_out_and_counted() -> None:
    found = certificate(planted("gd", clip=7.0))
    by_name = {entry.name: entry for entry in found.disagreements}
    assert by_name["inputs x1/2"].left_out == 0
    assert by_name["task"].prompts + by_name["task"].left_out == PROMPTS
    far = by_name["inputs x2"]
    assert far.left_out > 0
    assert (far.skipped is None) is (far.prompts >= 16)
    tight = certificate(planted("gd", clip=9.0)).disagreements[-1]
    assert tight.skipped is None or "meet the clip" in tight.skipped


def test_spec_of_a_certificate_is_plain() -> None:
    document = json.loads(json.dumps(certificate(planted("gd")).to_dict(), allow_nan=False))
    assert document["recovered"]["family"] == "gd" and len(document["disagreements"]) == 8
    assert ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": document["disagreements"][0]["task"]})
