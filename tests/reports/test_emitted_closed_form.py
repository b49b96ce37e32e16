"""Emitted files of simple regression against least squares and loops."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import emitting
import numpy as np
import pytest
import torch

from interp.reports.emit import emitted
from interp.results import Certificate, RecoveredDescent, RecoveredForm

CONTEXT = 6


def form(shrunken: bool = False) -> RecoveredForm:
    return RecoveredForm(family="closed-form", equation="", shrunken=shrunken, context=CONTEXT)


def descent(keys: str = "context", conditions: bool = False) -> RecoveredDescent:
    matrices = np.random.default_rng(0).normal(0, 0.2, (2, 2, 2, 2)).round(8)
    if not conditions:
        matrices[:, 1] = 0.0
    return RecoveredDescent(
        family="gd++" if conditions else "preconditioned-gd", equation="", parameters=8, context=CONTEXT, keys=keys,
        x_unit=1.3, y_unit=0.7, steps=tuple(matrices.tolist()),
    )  # fmt: skip


def expected(algorithm: RecoveredForm | RecoveredDescent, x: np.ndarray, y: np.ndarray, u: float) -> float:
    n = len(x)
    if isinstance(algorithm, RecoveredForm):
        if algorithm.shrunken:  # the fit to all points, y = 0 at the query, is 1 - h times that without it
            x, y = np.append(x, u), np.append(y, 0.0)
        line = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), y, rcond=None)[0] @ [1.0, u]
        return float(line * ((n + 1) / n if algorithm.shrunken else 1.0))
    phi = [np.array([1.0, value / algorithm.x_unit]) for value in (*x, u)]
    labels = [*(y / algorithm.y_unit), 0.0]
    kept = range(n if algorithm.keys == "context" else n + 1)
    moved = 0.0
    for A, C in algorithm.steps:
        Sigma = sum(np.outer(phi[i], phi[i]) for i in kept) / len(kept)
        step = np.array(A) @ (sum(labels[i] * phi[i] for i in kept) / len(kept))
        moved += step @ phi[n]
        labels = [label - step @ p for label, p in zip(labels, phi, strict=True)]
        phi = [p + np.array(C) @ Sigma @ p for p in phi]
    return float(algorithm.y_unit * moved)


def certificate(algorithm: RecoveredForm | RecoveredDescent, name: str = "model.safetensors") -> Certificate:
    rows = np.random.default_rng(1).normal(size=(3, CONTEXT + 1, 2)).astype(np.float32).astype(float)
    rows[:, -1, 1] = 0.0
    found = np.array([expected(algorithm, row[:-1, 0], row[:-1, 1], row[-1, 0]) for row in rows])
    return emitting.certificate(algorithm, rows, found, {"name": "simple_regression", "context": CONTEXT}, name)


CASES = [form(), form(True), descent(), descent("all"), descent("context", True), descent("all", True)]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("algorithm", CASES)
def test_the_function_computes_the_algorithm(
    algorithm: RecoveredForm | RecoveredDescent, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = emitted(certificate(algorithm), library)
    made = emitting.load(text)
    convert: Any = np.asarray if library == "numpy" else lambda value: torch.tensor(value, dtype=torch.float64)
    rng = np.random.default_rng(2)
    for n in (CONTEXT, 2, 11):
        x, y, u = rng.normal(size=n), rng.normal(size=n), float(rng.normal())
        found = float(made["predict"](convert(x), convert(y), convert(u)))
        assert found == pytest.approx(expected(algorithm, x, y, u), rel=1e-9, abs=1e-12)
    assert made["check"]()
    assert capsys.readouterr().out.count("apart by 0.25") == 3
    tree = ast.parse(text)
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {
        "base64", "sys", library
    }  # fmt: skip
    assert max(map(len, text.splitlines())) <= 120 and text.isascii() and "\n\n\n\n" not in text


def test_torch_can_be_mapped() -> None:
    x, y, u = (torch.randn(*shape, dtype=torch.float64) for shape in ((4, 6), (4, 6), (4,)))
    for algorithm in CASES:
        predict = emitting.load(emitted(certificate(algorithm), "torch"))["predict"]
        many = torch.func.vmap(predict)(x, y, u)
        torch.testing.assert_close(many, torch.stack([predict(*row) for row in zip(x, y, u, strict=True)]))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_changed_number_is_noticed(library: str, tmp_path: Path) -> None:
    made = descent("all", True)
    emitting.notices_a_changed_number(certificate(made), library, made.steps[0][0][0][0], tmp_path)


@pytest.mark.parametrize("algorithm", CASES)
def test_latex_is_well_formed(algorithm: RecoveredForm | RecoveredDescent) -> None:
    text = emitted(certificate(algorithm, emitting.HOSTILE), "latex")
    emitting.assert_balanced(text)
    assert "0.990 [0.980, 0.995]" in text


@pytest.mark.parametrize("algorithm", [CASES[1], CASES[5]])
def test_latex_compiles(algorithm: RecoveredForm | RecoveredDescent, tmp_path: Path) -> None:
    emitting.compile_latex(emitted(certificate(algorithm, emitting.HOSTILE), "latex"), tmp_path)
