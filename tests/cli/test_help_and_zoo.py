"""What a newcomer types first: the help, the version, the list of models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import interp
from interp.checkpoints.zoo import zoo_names
from interp.cli.main import COMMANDS

Run = Callable[..., Any]


def test_help_lists_commands_and_exit_codes(probe: Run) -> None:
    ended = probe("--help")
    assert (ended.code, ended.err) == (0, "")
    for command in COMMANDS:
        assert f"\n  {command} " in ended.out
    words = " ".join(ended.out.split())
    for meaning in ("0 done", "1 a stated check failed", "2 usage", "3 unreadable", "4 layout unknown", "130 interr"):
        assert meaning in words


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["analyse", "--help"], 0),
        (["analyse", "zoo:diag-l4-u5", "--nonsense"], 2),
        (["zoo:diag-l4-u5", "--report", "/proc/report.html"], 2),
        (["zoo:unheard-of"], 2),
        (["missing.safetensors"], 3),
        (["diff", "zoo:diag-l4-u5", "missing.safetensors"], 3),
        (["explore", "zoo:diag-l4-u5", "--out", "/proc/page.html"], 2),
        (["emit", "missing.npz", "--to", "numpy"], 3),
        (["probe", "missing.npz"], 3),
        (["unroll", "missing.npz"], 3),
        (["inspect", "missing.npz"], 3),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_help_and_slips_of_the_pen_import_nothing_slow(
    environment: dict[str, str], arguments: list[str], code: int
) -> None:
    program = (
        "import sys\nfrom interp.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as ended: print(ended.code, sorted({m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, encoding="utf-8")
    ended, loaded = done.stdout.strip().splitlines()[-1].split(maxsplit=1)
    assert int(ended) == code and "'click'" in loaded
    for heavy in ("torch", "plotly", "numpy", "rich", "transformer_lens", "pandas"):
        assert f"'{heavy}'" not in loaded


def test_nothing_typed_shows_the_help(call: Run) -> None:
    ended = call()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: interp-probe CHECKPOINT")


def test_version(call: Run) -> None:
    assert interp.__version__ in call("--version").out


def test_every_command_explains_itself(call: Run) -> None:
    for command in COMMANDS:
        ended = call(command, "--help")
        assert ended.code == 0 and ended.out.startswith(f"Usage: interp-probe {command}")


def test_the_zoo_as_a_table_and_as_one_document(call: Run) -> None:
    ended = call("zoo")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split()[:4] == ["name", "layers", "heads", "noise"]
    row = next(line for line in lines if line.startswith("zoo:diag-l4-u5 "))
    assert row.split()[1:3] == ["4", "1"] and "U(0, 5)" in row and "diag" in row
    assert all(len(line.rstrip()) <= 80 for line in lines)
    found = json.loads(call("zoo", "--json").out)
    assert [model["name"] for model in found["models"]] == [f"zoo:{name}" for name in zoo_names()]
    # options may come before the command too
    assert call("--json", "zoo").out == call("zoo", "--json").out
