"""The user presses Ctrl-C, the reader of a pipe leaves, the disk is full, the terminal is watched."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_an_interrupt_leaves_nothing_half_written(
    command: str, environment: dict[str, str], tiny: str, tmp_path: Path
) -> None:
    """stderr is a terminal here, so the command says on it what it is doing: the analysis is under way for certain."""
    folder = tmp_path / "out"
    folder.mkdir()
    ours, theirs = pty.openpty()
    # More prompts than could be analysed before the signal comes.
    line = [command, tiny, "--json", "--prompts", "400000", "--report", str(folder / "report.html")]
    process = subprocess.Popen(
        line,
        env={**environment, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        # A shell that runs the suite in the background has its children ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    seen = b""
    while b"running the network" not in seen:
        seen += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # Linux reports a closed terminal so
        pass
    os.close(ours)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert out == b""
    assert b"interp-probe: interrupted" in seen and b"Traceback" not in seen
    assert list(folder.iterdir()) == []


def test_an_interrupt_while_the_command_line_is_imported(
    command: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Ctrl-C as the first library is imported, which a library of that name stands for."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = subprocess.run(
        [command, "--help"], env={**environment, "PYTHONPATH": str(tmp_path)}, capture_output=True, encoding="utf-8"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interp-probe: interrupted\n")


@pytest.mark.parametrize("arguments", [["--help"], ["zoo"]])
def test_a_reader_that_leaves(arguments: list[str], command: str, environment: dict[str, str]) -> None:
    process = subprocess.Popen([command, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()  # as ``| true`` does
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full to write to")
@pytest.mark.parametrize("arguments", [["--help"], ["zoo"]])
def test_a_full_disk_is_one_line(arguments: list[str], command: str, environment: dict[str, str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [command, *arguments], env=environment, stdout=full, stderr=subprocess.PIPE, encoding="utf-8"
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "space" in done.stderr
