"""What the tests of all emitted files share: certificates of algorithms, files run and checked, LaTeX checked."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.reports.emit import emitted
from interp.results import Certificate, CheckpointInfo, Disagreement, RecoveredAlgorithm

HOSTILE = '"""\nimport os; os.abort()\n\\end{document} \\input{x} $ % & # _ ^ ~ {} é \x1b[31m'


def certificate(
    algorithm: RecoveredAlgorithm,
    prompts: np.ndarray,
    predictions: np.ndarray,
    task: dict[str, Any],
    name: str = "model.safetensors",
    **checkpoint: Any,
) -> Certificate:
    """Of a network that predicts 0.25 more than the algorithm."""
    figures = {"r2": 0.99, "r2_ci": (0.98, 0.995), "rms": 1.5, "median": 1e-3, "q90": 0.01, "q99": 0.02, "largest": 0.1}
    nothing = {**dict.fromkeys(figures), "r2_ci": (None, None)}
    kind = {"name": "task", "task": task, "seed": 7, "left_out": 0}
    settings = {"keys": "context", "scale": "1", "residual": True, "readout_sign": -1} | checkpoint
    return Certificate(
        checkpoint=CheckpointInfo(
            name=name, sha256="ab" * 32, layout="canonical", dtype="float64", tokens=(("x", 3), ("y", 1)), clip=5.0,
            readout_channel="y", layers=2, heads=1, parameters=64, **settings,
        ),
        provenance={"prompts": 512, "seed": 3, "tool": "interp-probe 0", "time": "today"},
        recovered=algorithm,
        disagreements=(
            Disagreement(label="as trained", prompts=512, **kind, **figures),  # type: ignore[arg-type]
            Disagreement(label="louder", prompts=0, **kind, **nothing, skipped="skipped, because of % it"),  # type: ignore[arg-type]
        ),
        examples=prompts.tolist(),
        network=(predictions + 0.25).tolist(),
        algorithm=predictions.tolist(),
    )  # fmt: skip


def load(text: str) -> dict[str, Any]:
    """The names of an emitted file, as if it were imported."""
    names: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(text, "emitted.py", "exec"), names)
    return names


def notices_a_changed_number(made: Certificate, library: str, number: float, folder: Path) -> None:
    text = emitted(made, library)
    assert text.count(repr(number)) == 1
    path = folder / "changed.py"
    path.write_text(text.replace(repr(number), repr(number * 1.01)), encoding="ascii")
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, encoding="utf-8")
    assert done.returncode == 1 and "computes NOT the same as when it was written" in done.stdout, done


def assert_balanced(text: str) -> None:
    """Braces and environments are closed in the order they are opened, and no alignment is ragged."""
    stack: list[str] = []
    for match in re.finditer(r"\\begin\{(\w+\*?)\}|\\end\{(\w+\*?)\}", text):
        if match[1]:
            stack.append(match[1])
        else:
            assert stack.pop() == match[2]
    assert not stack
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def compile_latex(text: str, folder: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine (texlive-latex-base)")
    (folder / "algorithm.tex").write_text(text, encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "algorithm.tex"],
        cwd=folder, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "algorithm.pdf").stat().st_size > 0
