"""Emitted files of matrix completion, whole, sketched and on machines, against block matrices."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import emitting
import numpy as np
import pytest
import torch

from interp.reports.emit import emitted
from interp.results import Certificate, RecoveredCoefficient, RecoveredCompletion, RecoveredLayer

DIM, CONTEXT, OUTPUTS, QUERIES = 4, 6, 2, 3
NAMES = ("xx", "xy", "yx", "yy", "x:xx", "x:yy", "y:xx", "y:yy")
MACHINES = ((0, 2), (1, 3))


def recovered(names: tuple[str, ...] = ("xx", "yx"), structure: str = "", **changes: Any) -> RecoveredCompletion:
    rng = np.random.default_rng(0)
    layers = []
    for index in range(2):
        live = [name for name in names if index == 0 or name.startswith("y")]
        rows = {name: RecoveredCoefficient(value=float(rng.normal(0, 0.03)), stderr=1e-4) for name in live}
        layers.append(RecoveredLayer(index=index, coefficients=rows))
    family = {"": "gd++", "machines": "gd++ (machines)", "sketched": "gd++ (sketched)", "apart": "gd++ (sketched)"}[
        structure
    ]
    S, written = (np.linalg.qr(rng.normal(size=(DIM, r)))[0].tolist() for r in (2, 3))
    sketches = (S, None) if structure in ("sketched", "apart") else ()
    fields = {
        "family": family, "equation": "", "parameters": 3, "dim": DIM, "context": CONTEXT, "keys": "context",
        "scale": "1", "residual": True, "sign": -1, "layers": tuple(layers), "outputs": OUTPUTS, "algorithm": "gd++",
        "machines": MACHINES if structure == "machines" else (), "sketches": sketches,
        "written": (written, None) if structure == "apart" else tuple(None for _ in sketches),
    }  # fmt: skip
    return RecoveredCompletion(**{**fields, **changes})


def expected(algorithm: RecoveredCompletion, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The tokens as columns, times one block matrix after the other."""
    n = len(A)
    tokens = np.vstack([np.hstack([A, C]), np.hstack([B, np.zeros((len(B), OUTPUTS))])]).T
    s = {"1": 1.0, "1/n": 1 / n, "1/(n+1)": 1 / (n + 1)}.get(algorithm.scale, algorithm.scale)  # type: ignore[call-overload]
    for index, layer in enumerate(algorithm.layers):
        keys = tokens[:, : n if algorithm.keys == "context" else None]
        G = s * keys @ keys.T
        Sigma, alpha, lam = G[:DIM, :DIM], G[:DIM, DIM:], G[DIM:, DIM:]
        w = {name: layer.coefficients[name].value if name in layer.coefficients else 0.0 for name in NAMES}
        Pi, mask = np.eye(DIM), np.ones((DIM, DIM))
        if algorithm.sketches and algorithm.sketches[index] is not None:
            Pi = np.array(algorithm.sketches[index]) @ np.array(algorithm.sketches[index]).T
        moved = Pi
        if algorithm.written and algorithm.written[index] is not None:
            moved = np.array(algorithm.written[index]) @ np.array(algorithm.written[index]).T
        if algorithm.machines:
            mask = sum(np.outer(*[np.isin(np.arange(DIM), block)] * 2) for block in algorithm.machines) * 1.0
        x, y = tokens[:DIM], tokens[DIM:]
        traces = np.trace(Sigma), np.trace(lam)
        dx = (
            w["xx"] * moved @ (mask * Sigma) @ Pi @ x
            + w["xy"] * alpha @ y
            + (w["x:xx"] * traces[0] + w["x:yy"] * traces[1]) * x
        )
        dy = w["yx"] * alpha.T @ Pi @ x + w["yy"] * lam @ y + (w["y:xx"] * traces[0] + w["y:yy"] * traces[1]) * y
        tokens = algorithm.residual * tokens + np.vstack([dx, dy])
    return algorithm.sign * tokens[DIM:, n:].T


def certificate(algorithm: RecoveredCompletion, name: str = "model.safetensors") -> Certificate:
    shape = (3, CONTEXT + QUERIES, DIM + OUTPUTS)
    tokens = np.random.default_rng(1).normal(size=shape).astype(np.float32).astype(float)
    tokens[:, CONTEXT:, DIM:] = 0.0
    found = [expected(algorithm, t[:CONTEXT, :DIM], t[CONTEXT:, :DIM], t[:CONTEXT, DIM:]) for t in tokens]
    return emitting.certificate(algorithm, tokens, np.array(found), {"name": "matrix_completion", "dim": DIM}, name)


CASES: list[dict[str, Any]] = [
    {}, {"structure": "machines"}, {"structure": "sketched"}, {"names": NAMES},
    {"names": NAMES, "keys": "all", "scale": "1/(n+1)"}, {"names": NAMES, "scale": "1/n", "residual": False},
    {"structure": "apart"}, {"structure": "sketched", "residual": False, "sign": 1}, {"names": ("yx",), "scale": -0.5},
    {"structure": "machines", "keys": "all", "algorithm": "eagle", "eta": 0.9, "eta_ci": (0.4, 2.2),
     "gamma": 1.8, "gamma_ci": (1.5, 2.1)},
]  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("fields", CASES, ids=str)
def test_the_function_computes_the_algorithm(
    fields: dict[str, Any], library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    algorithm = recovered(**fields)
    text = emitted(certificate(algorithm), library)
    made = emitting.load(text)
    convert = np.asarray if library == "numpy" else torch.tensor
    rng = np.random.default_rng(2)
    for n, queries in ((CONTEXT, QUERIES), (1, 1), (11, 2)):
        A, B, C = rng.normal(size=(n, DIM)), rng.normal(size=(queries, DIM)), rng.normal(size=(n, OUTPUTS))
        found = np.asarray(made["complete"](convert(A), convert(B), convert(C)))
        np.testing.assert_allclose(found, expected(algorithm, A, B, C), rtol=1e-11, atol=1e-13)
    assert made["check"]()
    assert capsys.readouterr().out.count("by 0.25 in the rms and 0.25 at most") == 3
    tree = ast.parse(text)
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {
        "base64", "sys", library
    }  # fmt: skip
    assert max(map(len, text.splitlines())) <= 120 and text.isascii()
    assert ("eagle, as gd++ (machines): " in text) is ("eta" in fields)
    assert all(
        (number in " ".join(text.split())) is ("eta" in fields) for number in ("0.9 [0.4, 2.2]", "1.8 [1.5, 2.1]")
    )


def test_torch_can_be_mapped() -> None:
    for structure in ("", "machines", "sketched", "apart"):
        made = emitting.load(emitted(certificate(recovered(structure=structure)), "torch"))
        A, B, C = (torch.randn(5, *s, dtype=torch.float64) for s in ((6, DIM), (3, DIM), (6, OUTPUTS)))
        many = torch.func.vmap(made["complete"])(A, B, C)
        torch.testing.assert_close(many, torch.stack([made["complete"](*row) for row in zip(A, B, C, strict=True)]))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_changed_number_is_noticed(library: str, tmp_path: Path) -> None:
    algorithm = recovered(structure="apart")
    number = algorithm.layers[0].coefficients["xx"].value
    emitting.notices_a_changed_number(certificate(algorithm), library, number, tmp_path)


@pytest.mark.parametrize("fields", CASES, ids=str)
def test_latex_is_well_formed(fields: dict[str, Any]) -> None:
    text = emitted(certificate(recovered(**fields)), "latex")
    emitting.assert_balanced(text)
    assert "0.990 [0.980, 0.995]" in text


@pytest.mark.parametrize("structure", ["machines", "sketched", "apart"])
def test_latex_compiles(structure: str, tmp_path: Path) -> None:
    made = certificate(
        recovered(structure=structure, eta=0.9, eta_ci=(0.4, 2.2), gamma=1.8, gamma_ci=(1.5, 2.1), algorithm="eagle"),
        emitting.HOSTILE,
    )
    emitting.compile_latex(emitted(made, "latex"), tmp_path)
