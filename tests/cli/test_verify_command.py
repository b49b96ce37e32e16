"""``--verify`` and ``verify-template`` at the command line: what is said, and the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.checkpoints.opening import open_checkpoint

Run = Callable[..., Any]
CHECKPOINT = "zoo:diag-l4-u5"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of inputs and outputs by name; those of "right" are the network's, computed here from its weights."""
    model, folder = open_checkpoint(CHECKPOINT).model, tmp_path_factory.mktemp("pairs")
    tokens = inputs = np.random.default_rng(0).standard_normal((6, 12, model.spec.width)) / 3
    inputs[:, -1, -1] = 0
    for Q, P in zip(model.Q.double().numpy(), model.P.double().numpy(), strict=True):
        keys = tokens[:, :-1]
        tokens = tokens + np.einsum("pia,hab,pjb,pjc,hdc->pid", tokens, Q, keys, keys, P, optimize=True)
    outputs = model.spec.readout.sign * tokens[:, -1, -1]
    for name, factor in (("right", 1.0), ("opposite", -1.0)):
        np.savez(folder / f"{name}.npz", inputs=inputs, outputs=factor * outputs)
    return {name: str(folder / f"{name}.npz") for name in ("right", "opposite")}


def test_what_agrees_is_said(call: Run, pairs: dict[str, str]) -> None:
    ended = call("identify", CHECKPOINT, "--prompts", "64", "--verify", pairs["right"])
    assert ended.code == 0
    assert "verified:" in ended.out


def test_another_network_is_refused_in_one_line(probe: Run, pairs: dict[str, str]) -> None:
    ended = probe(CHECKPOINT, "--verify", pairs["opposite"])
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1 and "read-out" in ended.err


def test_a_file_that_is_not_there(call: Run) -> None:
    ended = call("unroll", CHECKPOINT, "--verify", "missing.npz")
    assert ended.code == 3 and "missing.npz" in ended.err


def test_the_template_is_python_and_names_the_command(call: Run, tmp_path: Path) -> None:
    printed = call("verify-template", CHECKPOINT)
    assert (printed.code, printed.err) == (0, "")
    compile(printed.out, "template", "exec")
    assert f"interp-probe {CHECKPOINT} --verify pairs.npz" in printed.out
    written = call("verify-template", CHECKPOINT, "--out", str(tmp_path / "pairs.py"))
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "pairs.py").read_text(encoding="utf-8") == printed.out
