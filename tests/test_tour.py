"""The tour runs from its first cell to its last, and is kept without outputs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "reports" / "tour.ipynb"
CELLS = json.loads(TOUR.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_the_tour_runs(tmp_path: Path) -> None:
    """In a process of its own, as a person would run it, with warnings as errors in the tour's own code."""
    script = tmp_path / "tour.py"
    script.write_text("\n\n".join(CODE), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-W", "error:::__main__", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("by the activations") == 4


def test_the_tour_is_kept_without_outputs() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in CELLS if cell["cell_type"] == "code")
    assert all(ast.parse(source) for source in CODE)
