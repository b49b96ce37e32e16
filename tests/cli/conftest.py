"""The command line under test: as a fresh process, or called in this one where a process would add nothing."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from interp.checkpoints.canonical import write_checkpoint
from interp.cli.main import main
from interp.evidence.question import QUESTIONS
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

OMEGA = {"xx": (-0.02, -0.01), "xy": (-0.003, 0.002), "yx": (-0.05, -0.08), "yy": (-0.004, -0.005)}  # by layer


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def command() -> str:
    """The console script of the environment that runs the tests."""
    found = shutil.which("interp-probe", path=sysconfig.get_path("scripts"))
    assert found, "interp-probe is not installed beside this Python; install the package first"
    return found


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    ours = ("PYTHONPATH", "PYTHONIOENCODING", "PYTHONUNBUFFERED")  # of who runs the tests, not of who uses the command
    return {name: value for name, value in os.environ.items() if name not in ours}


@pytest.fixture
def probe(command: str, environment: dict[str, str], tmp_path: Path) -> Callable[..., Ended]:
    """``probe(*arguments)`` runs the installed command as a process of its own, in the folder of the test."""

    def run(*arguments: str) -> Ended:
        done = subprocess.run(
            [command, *arguments],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """``call(*arguments)`` runs the same entry point in this process."""

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out, captured.err)

    return run


@pytest.fixture
def few_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, losses over as many prompts as are scored, and not 65 536: for tests that read no digit of them.
    The document of the command as a process has the full table."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, analyses without the parts that take longest and have tests of their own, and with losses over
    few prompts: for tests of what a command does with its files."""
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)
    for name in ("behaviour", "probes", "interventions", "stress"):
        monkeypatch.delitem(QUESTIONS, name)


def _diagonal(x: float, y: float) -> Tensor:
    return torch.diag(torch.tensor([x, x, x, y], dtype=torch.float64))


@pytest.fixture(scope="session")
def model() -> LinearTransformer:
    """d = 3, two layers, the omegas above: head 0 reads x (Q = diag(I, 0)), head 1 reads y."""
    Q = torch.stack([torch.stack([_diagonal(1, 0), _diagonal(0, 1)])] * 2)
    rows = [{name: values[layer] for name, values in OMEGA.items()} for layer in range(2)]
    P = torch.stack([torch.stack([_diagonal(r["xx"], r["yx"]), _diagonal(r["xy"], r["yy"])]) for r in rows])
    task = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 1]}}
    return LinearTransformer(spec=ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": task}), Q=Q, P=P)


@pytest.fixture
def tiny(model: LinearTransformer, tmp_path: Path) -> str:
    path = tmp_path / "tiny.safetensors"
    write_checkpoint(model, path)
    return str(path)


@pytest.fixture
def variant(model: LinearTransformer, tmp_path: Path) -> Callable[..., str]:
    """``variant(keys="causal")``: the tiny model with other fields of its description, or other weights, in a file."""

    def write(**changes: object) -> str:
        weights = {name: changes.pop(name) for name in ("Q", "P") if name in changes}
        spec = dataclasses.replace(model.spec, **changes)  # type: ignore[arg-type]
        path = tmp_path / "variant.safetensors"
        write_checkpoint(dataclasses.replace(model, spec=spec, **weights), path)  # type: ignore[arg-type]
        return str(path)

    return write
