"""Emitted files of linear dynamics against loops over tokens and channels."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import Any

import emitting
import numpy as np
import pytest
import torch

from interp.reports.emit import emitted
from interp.results import Certificate, RecoveredHeads, RecoveredStep

DIM, LENGTH = 2, 5
FOUR = {"channels": ("out", "query", "state", "previous"), "contents": ("zero", "current", "current", "previous")}
THREE = {"channels": ("out", "a_b", "c"), "contents": ("start", "current", "previous")}
ONE = {"channels": ("state",), "contents": ("current",)}
MATRIX = [[0.5, 0.1], [-0.2, 0.3]]


def heads(**changes: Any) -> RecoveredHeads:
    fields = {
        "family": "revalg", "equation": "", "parameters": 9, "dim": DIM, "context": LENGTH, "start": 0.0, "scale": "1",
        "residual": True, "clip": 4.0, "sign": 1, "readout": 0, "how": "weights", **FOUR, **changes,
    }  # fmt: skip
    c = len(fields["channels"])
    k = np.random.default_rng(0).normal(0, 0.05, (2, c, c, c, c)).round(8)
    if c > 1:
        k[1, 1:] = 0.0  # nothing but the read-out is read after the last layer
    return RecoveredHeads(layers=tuple(k.tolist()), **fields)


def step(**changes: Any) -> RecoveredStep:
    fields = {
        "family": "gd", "equation": "", "parameters": 2, "dim": DIM, "context": LENGTH, "start": 0.3, "eta": 0.07,
        "eta_stderr": 1e-3, "held": 0.3, "decay": 0.021, **THREE, **changes,
    }  # fmt: skip
    return RecoveredStep(**fields)


def applied(value: Any, vector: np.ndarray) -> np.ndarray:
    return np.array(value) @ vector if isinstance(value, list) else value * vector


def expected(algorithm: RecoveredHeads | RecoveredStep, s: np.ndarray) -> np.ndarray:
    T = len(s)
    if isinstance(algorithm, RecoveredStep):
        rows = []
        for t in range(T):
            A, B = np.zeros((DIM, DIM)), np.zeros((DIM, DIM))
            for j in range(t):
                A, B = A + np.outer(s[j], s[j]), B + np.outer(s[j + 1], s[j])
            rows.append(applied(algorithm.held, s[t]) + algorithm.eta * B @ s[t] - applied(algorithm.decay, A @ s[t]))
        return np.array(rows)
    held = {
        "zero": lambda t: np.zeros(DIM),
        "current": lambda t: s[t],
        "previous": lambda t: s[t - 1] if t else np.zeros(DIM),
        "start": lambda t: applied(algorithm.start, s[t]),
    }
    e = np.array([[held[content](t) for content in algorithm.contents] for t in range(T)])
    factor = {"1": 1.0, "1/n": 1 / T, "1/(n+1)": 1 / (T + 1)}.get(algorithm.scale, algorithm.scale)  # type: ignore[call-overload]
    for layer in algorithm.layers:
        new = e * algorithm.residual
        for t in range(T):
            for j in range(t + 1):
                for a, b, g, x in itertools.product(range(e.shape[1]), repeat=4):
                    new[t, a] += factor * layer[a][b][g][x] * e[j, b] * (e[j, g] @ e[t, x])
        e = new if algorithm.clip is None else np.clip(new, -algorithm.clip, algorithm.clip)
    return algorithm.sign * e[:, algorithm.readout]


def certificate(algorithm: RecoveredHeads | RecoveredStep, name: str = "model.safetensors") -> Certificate:
    states = np.random.default_rng(1).normal(size=(3, LENGTH, DIM)).astype(np.float32).astype(float)
    found = np.array([expected(algorithm, s) for s in states])
    return emitting.certificate(algorithm, states, found, {"name": "linear_dynamics", "dim": DIM}, name)


CASES: list[Any] = [
    heads(), heads(clip=0.4), heads(**THREE, start=0.3, clip=None), heads(**THREE, start=MATRIX, scale="1/n"),
    heads(**ONE, residual=False, scale="1/(n+1)", sign=-1), heads(scale=0.5, how="refit", stderr=(0.1, None)),
    step(), step(held=MATRIX, decay=MATRIX, start=MATRIX), step(held=0.0, decay=MATRIX, eta_stderr=None),
]  # fmt: skip


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("algorithm", CASES)
def test_the_function_computes_the_algorithm(
    algorithm: RecoveredHeads | RecoveredStep, library: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = emitted(certificate(algorithm), library)
    made = emitting.load(text)
    convert = np.asarray if library == "numpy" else torch.tensor
    rng = np.random.default_rng(2)
    for length in (LENGTH, 1, 9):
        states = rng.normal(size=(length, DIM))
        found = np.asarray(made["predict"](convert(states)))
        np.testing.assert_allclose(found, expected(algorithm, states), rtol=1e-11, atol=1e-13)
    assert made["check"]()
    assert capsys.readouterr().out.count("by 0.25 in the rms and 0.25 at most") == 3
    tree = ast.parse(text)
    assert {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names} == {
        "base64", "sys", library
    }  # fmt: skip
    assert max(map(len, text.splitlines())) <= 120 and text.isascii()


def test_torch_can_be_mapped() -> None:
    for algorithm in CASES:
        made = emitting.load(emitted(certificate(algorithm), "torch"))
        states = torch.randn(4, 6, DIM, dtype=torch.float64)
        many = torch.func.vmap(made["predict"])(states)
        torch.testing.assert_close(many, torch.stack([made["predict"](s) for s in states]))


def test_the_clip_is_spoken_of() -> None:
    assert "clipped to +-4 after every layer, as in the network" in emitted(certificate(heads()), "numpy")


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_changed_number_is_noticed(library: str, tmp_path: Path) -> None:
    emitting.notices_a_changed_number(certificate(heads()), library, heads().layers[0][0][1][1][1], tmp_path)
    emitting.notices_a_changed_number(certificate(step()), library, step().eta, tmp_path)


@pytest.mark.parametrize("algorithm", CASES)
def test_latex_is_well_formed(algorithm: RecoveredHeads | RecoveredStep) -> None:
    text = emitted(certificate(algorithm, emitting.HOSTILE), "latex")
    emitting.assert_balanced(text)
    assert "0.990 [0.980, 0.995]" in text


@pytest.mark.parametrize("algorithm", [CASES[3], CASES[5], CASES[7]])
def test_latex_compiles(algorithm: RecoveredHeads | RecoveredStep, tmp_path: Path) -> None:
    emitting.compile_latex(emitted(certificate(algorithm, emitting.HOSTILE), "latex"), tmp_path)
