"""Emitted files: they run alone, compute what the document says, refuse nothing, and no name breaks out of them."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import emitting
import numpy as np
import pytest
import torch
from emitting import HOSTILE, assert_balanced, load

from interp.reports.emit import emitted
from interp.results import Certificate, RecoveredCoefficient, RecoveredLayer, RecoveredOmegas

DIM, CONTEXT = 3, 6
NAMES = {
    "gd": ("yx",),
    "gd++": ("xx", "yx"),
    "diag": ("xx", "xy", "yx", "yy"),
    "equivariant": ("xx", "xy", "yx", "yy", "x:xx", "x:yy", "y:xx"),
}


def recovered(family: str = "diag", **changes: Any) -> RecoveredOmegas:
    """Two layers; the last has no coefficients of x, which never reach the prediction."""
    rng = np.random.default_rng(0)
    layers = []
    for index in range(2):
        if family == "preconditioned-gd":
            matrix = rng.normal(0, 0.05, (DIM, DIM)).tolist()
            errors = [[1e-3] * DIM] * (DIM - 1) + [[None] * DIM]
            layers.append(RecoveredLayer(index=index, coefficients={}, matrix=matrix, matrix_stderr=errors))
            continue
        live = [name for name in NAMES[family] if index == 0 or name.startswith("y")]
        rows = {name: RecoveredCoefficient(value=float(rng.normal(0, 0.03)), stderr=1e-4) for name in live}
        rows["yx"] = dataclasses.replace(rows["yx"], stderr=None, undetermined="the prompts do not determine it")
        layers.append(RecoveredLayer(index=index, coefficients=rows))
    fields = {
        "family": family, "equation": "", "parameters": 9, "dim": DIM, "context": CONTEXT, "keys": "context",
        "scale": "1", "residual": True, "sign": -1, "layers": tuple(layers),
    }  # fmt: skip
    return RecoveredOmegas(**{**fields, **changes})


def expected(algorithm: RecoveredOmegas, tokens: np.ndarray) -> float:
    """The algorithm on the tokens of one prompt as a product of block matrices, T = r I + the update of the table."""
    n = len(tokens) - 1
    s = {"1": 1.0, "1/n": 1 / n, "1/(n+1)": 1 / (n + 1)}.get(algorithm.scale, algorithm.scale)  # type: ignore[call-overload]
    for layer in algorithm.layers:
        keys = tokens[: n if algorithm.keys == "context" else n + 1]
        gram = s * keys.T @ keys
        T = float(algorithm.residual) * np.eye(DIM + 1)
        w = {
            name: layer.coefficients[name].value if name in layer.coefficients else 0.0 for name in NAMES["equivariant"]
        }
        T[:DIM, :DIM] += w["xx"] * gram[:DIM, :DIM]
        T[:DIM, DIM] += w["xy"] * gram[:DIM, DIM]
        T[DIM, :DIM] += w["yx"] * gram[DIM, :DIM]
        T[DIM, DIM] += w["yy"] * gram[DIM, DIM] + w["y:xx"] * np.trace(gram[:DIM, :DIM])
        T[:DIM, :DIM] += (w["x:xx"] * np.trace(gram[:DIM, :DIM]) + w["x:yy"] * gram[DIM, DIM]) * np.eye(DIM)
        if layer.matrix is not None:
            T[DIM, :DIM] += gram[DIM, :DIM] @ np.array(layer.matrix)
        tokens = tokens @ T.T
    return float(algorithm.sign * tokens[-1, DIM])


def certificate(algorithm: RecoveredOmegas, name: str = "model.safetensors") -> Certificate:
    tokens = np.random.default_rng(1).normal(size=(3, CONTEXT + 1, DIM + 1)).astype(np.float32).astype(float)
    tokens[:, -1, -1] = 0.0
    predictions = np.array([expected(algorithm, prompt) for prompt in tokens])
    task = {"name": "noisy_regression", "dim": DIM}
    settings = {"keys": algorithm.keys, "scale": algorithm.scale, "residual": algorithm.residual}
    return emitting.certificate(algorithm, tokens, predictions, task, name, readout_sign=algorithm.sign, **settings)


SETTINGS: list[dict[str, Any]] = [
    {}, {"keys": "all", "scale": "1/(n+1)"}, {"scale": "1/n"}, {"scale": -0.5, "sign": 1}, {"residual": False},
    {"keys": "all", "residual": False, "scale": 2},
]  # fmt: skip
CASES = [*((family, {}) for family in (*NAMES, "preconditioned-gd")), *(("diag", fields) for fields in SETTINGS[1:])]
CASES += [(family, {"residual": False}) for family in ("gd", "preconditioned-gd")]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(("family", "fields"), CASES)
def test_the_function_computes_the_algorithm(
    family: str, fields: dict[str, Any], library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    algorithm = recovered(family, **fields)
    made = load(emitted(certificate(algorithm), library))
    convert = np.asarray if library == "numpy" else torch.tensor
    rng = np.random.default_rng(2)
    for n in (CONTEXT, 1, 11):
        X, y, x_query = rng.normal(size=(n, DIM)), rng.normal(size=n), rng.normal(size=DIM)
        tokens = np.vstack([np.column_stack([X, y]), [*x_query, 0.0]])
        found = made["predict"](convert(X), convert(y), convert(x_query))
        assert float(found) == pytest.approx(expected(algorithm, tokens), rel=1e-12, abs=1e-14)
    assert made["check"]()
    assert capsys.readouterr().out.count("by 0.25 in the rms and 0.25 at most") == 3


def test_numpy_takes_lists_and_does_not_change_its_arguments() -> None:
    made = load(emitted(certificate(recovered()), "numpy"))
    X, y = np.ones((2, DIM)), np.ones(2)
    first = made["predict"](X, y, np.ones(DIM))
    assert (X == 1).all() and (y == 1).all()
    assert made["predict"]([[1, 1, 1], [1, 1, 1]], [1, 1], [1, 1, 1]) == first


def test_torch_can_be_mapped_and_differentiated() -> None:
    made = load(emitted(certificate(recovered()), "torch"))
    X, y, x = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 4, DIM), (5, 4), (5, DIM)))
    many = torch.func.vmap(made["predict"])(X, y, x)
    torch.testing.assert_close(many, torch.stack([made["predict"](*row) for row in zip(X, y, x, strict=True)]))
    gradient = torch.func.grad(lambda q: made["predict"](X[0], y[0], q))(x[0])
    torch.testing.assert_close(gradient @ x[0], many[0])  # the prediction is linear in the query


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_changed_number_is_noticed(library: str, tmp_path: Path) -> None:
    text = emitted(certificate(recovered()), library)
    value = repr(recovered().layers[0].coefficients["xx"].value)
    assert text.count(value) == 1
    path = tmp_path / "changed.py"
    path.write_text(text.replace(value, repr(float(value) * 1.01)), encoding="ascii")
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and "computes NOT the same as when it was written" in done.stdout


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("family", [*NAMES, "preconditioned-gd"])
def test_the_file_is_readable_and_says_what_it_is(family: str, library: str) -> None:
    text = emitted(certificate(recovered(family)), library)
    tree = ast.parse(text)
    said = ast.get_docstring(tree) or ""
    for words in ("model.safetensors", "ab" * 32, "0.990 [0.980, 0.995]", "skipped, because", "seed 3", "clip of +-5"):
        assert words in said
    assert {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} == {
        "predict", "unpack", "check"
    }  # fmt: skip
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {
        "base64", "sys", library
    }  # fmt: skip
    assert max(map(len, text.splitlines())) <= 120 and text.isascii() and text.endswith("\n")
    assert not any(line.endswith(" ") for line in text.splitlines())
    if family != "preconditioned-gd":
        assert '"yx": ' in text and "the prompts do not determine it" in text


def test_names_do_not_break_out() -> None:
    text = emitted(certificate(recovered(), name=HOSTILE), "numpy")
    tree = ast.parse(text)
    assert [type(node).__name__ for node in tree.body].count("Import") == 3  # base64, sys, numpy
    assert text.isascii() and text.isprintable() is False and "\x1b" not in text
    latex = emitted(certificate(recovered(), name=HOSTILE), "latex")
    assert latex.count(r"\end{document}") == 1 and latex.isascii()
    assert_balanced(latex)


@pytest.mark.parametrize("family", [*NAMES, "preconditioned-gd"])
def test_latex_is_well_formed(family: str) -> None:
    text = emitted(certificate(recovered(family)), "latex")
    assert_balanced(text)
    for words in (r"\documentclass", "0.990 [0.980, 0.995]", r"\item[checkpoint]"):
        assert words in text


@pytest.mark.parametrize("family", ["equivariant", "preconditioned-gd", "hostile"])
def test_latex_compiles(family: str, tmp_path: Path) -> None:
    made = (
        certificate(recovered("diag", residual=False), HOSTILE)
        if family == "hostile"
        else certificate(recovered(family))
    )
    emitting.compile_latex(emitted(made, "latex"), tmp_path)
