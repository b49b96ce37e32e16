"""The commands beside the main one: unroll, check and train."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.checkpoints.opening import open_checkpoint
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer

FEW = "128"
Run = Callable[..., Any]


def test_unroll_follows_the_recursion(call: Run, tiny: str, model: LinearTransformer) -> None:
    """(M, u, a, w) after every layer, against the recursion of the versatile paper, lemma A.1, written out here:
    with [[A, b], [c^T, d]] = sum_h P_h G Q_h^T, M <- (I + A) M - b w^T, u <- (I + A) u + a b, w <- (1 + d) w - M^T c,
    a <- (1 + d) a + <c, u>."""
    ended = call("unroll", tiny, "--prompts", "2", "--seed", "3", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["schema"] == "interp-probe-unroll/1" and (found["prompts"], found["seed"]) == (2, 3)
    prompts = task_of(model.spec.task).sample(2, 3)
    for i in range(2):
        tokens = np.concatenate([prompts.x[i].numpy(), prompts.y[i].numpy()[:, None]], axis=1)
        M, u, w, a = np.eye(3), np.zeros(3), np.zeros(3), 1.0
        for layer, state in enumerate(found["layers"]):
            for name, value in (("M", M), ("u", u[:, None]), ("w", w[None]), ("a", [[a]])):
                np.testing.assert_allclose(state[name][i], value, rtol=1e-10, atol=1e-12)
            if layer == model.layers:
                break
            gram = tokens.T @ tokens
            update = sum(
                P @ gram @ Q.T for P, Q in zip(model.P[layer].numpy(), model.Q[layer].numpy(), strict=True)
            )  # fmt: skip
            tokens = tokens + tokens @ update.T
            A, b, c, d = update[:3, :3], update[:3, 3], update[3, :3], update[3, 3]
            M, u, w, a = (
                (np.eye(3) + A) @ M - np.outer(b, w),
                (np.eye(3) + A) @ u + a * b,
                (1 + d) * w - M.T @ c,
                (1 + d) * a + c @ u,
            )


def test_unroll_in_words(call: Run, tiny: str) -> None:
    ended = call("unroll", tiny)
    assert (ended.code, ended.err) == (0, "")
    assert "layer 2" in ended.out and "true w" in ended.out


def test_unroll_of_a_network_that_diverges_has_no_nan(call: Run, variant: Run, model: LinearTransformer) -> None:
    ended = call("unroll", variant(P=model.P * 1e200), "--json")
    assert ended.code == 0
    json.loads(ended.out, parse_constant=lambda constant: pytest.fail(f"the document holds {constant}"))


def test_check_names_the_coefficient_that_moved(
    few_losses: None, probe: Run, call: Run, tiny: str, variant: Run, model: Any
) -> None:
    golden = str(Path(tiny).with_name("golden.json"))
    missing = call("check", tiny, "--golden", golden)
    assert (missing.code, missing.out) == (3, "") and "--update" in missing.err
    written = call("check", tiny, "--golden", golden, "--update", "--prompts", FEW)
    assert (written.code, written.err) == (0, "") and "updated (diag;" in written.out
    same = call("check", tiny, "--golden", golden, "--json")
    assert same.code == 0 and json.loads(same.out) == {
        "golden": golden,
        "checkpoint": "tiny.safetensors",
        "status": "unchanged",
        "moved": [],
        "differences": [],
    }
    P = model.P.clone()
    P[1, 0, 3, 3] *= 1.5  # omega_yx of the last layer
    moved = probe("check", variant(P=P), "--golden", golden)
    assert moved.code == 1
    assert "layer 1, omega_yx: -0.08 -> -0.12" in moved.out
    assert moved.err.count("\n") == 1 and "--update" in moved.err
    listed = json.loads(call("check", variant(P=P), "--golden", golden, "--json").out)
    assert listed["status"] == "moved" and any(line.startswith("layer 1, omega_yx") for line in listed["moved"])


RECIPE = """
name = "small"
[task]
name = "noisy_regression"
dim = 2
context = 6
noise = { uniform = [0, 1] }
[model]
parametrisation = "gd++"
layers = 1
[optimiser]
attempts = 1
keep = 1
search_prompts = 256
scan_iterations = 2
search_iterations = 4
prompts = [256]
iterations = [2]
evaluation_prompts = 1000
"""


def test_train_a_small_network_and_name_it(few_losses: None, probe: Run, call: Run, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE, encoding="utf-8")
    ended = probe("train", "small.toml", "--json")
    assert (ended.code, ended.err) == (0, "")
    summary = json.loads(ended.out)
    assert summary["checkpoint"] == "small.safetensors" and summary["adjusted_loss"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.safetensors", "small.toml"]
    trained = str(tmp_path / "small.safetensors")
    assert open_checkpoint(trained).model.spec.provenance["recipe"]["name"] == "small"
    found = json.loads(call(trained, "--json", "--prompts", FEW).out)
    assert found["verdict"]["algorithm"] == "gd"  # with one layer nothing reads the x that GD++ would transform
    again = str(tmp_path / "again.safetensors")
    assert "adjusted loss" in call("train", str(tmp_path / "small.toml"), "--out", again).out
    assert np.array_equal(open_checkpoint(again).model.P, open_checkpoint(trained).model.P)  # same seed, same weights
