"""The commands of README.md work as printed.

Every command of a ``sh`` block is run, in order and in one empty folder, so a later command can use what an earlier one
wrote. Left out are the installation, which has happened before, and this suite itself. A block whose first line is
```` ```sh slow ```` takes minutes, and runs with --slow. One that starts with ```` ```python NAME ```` or
```` ```toml NAME ```` is a file of the user's, which lies in that folder from the beginning.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"^```sh( slow)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```(?:python|toml) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"(git clone|cd|source|\.|pip|python\S* -m (pip|venv|pytest)|\.ci/run)( .*)?|pytest( --slow)?")


def commands(text: str) -> list[tuple[str, bool]]:
    """The commands of the ``sh`` blocks that are to be run, and whether each is slow."""
    found = []
    for slow, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            parts = [part.strip() for part in re.split(r"&&", re.sub(r"(^|\s)#.*", "", line))]
            kept = " && ".join(part for part in parts if part and not LEFT_OUT.fullmatch(part))
            if kept:
                found.append((kept, bool(slow)))
    return found


def readme_commands() -> list:
    text = README.read_text(encoding="utf-8") if README.is_file() else ""
    return [pytest.param(command, marks=[pytest.mark.slow] * slow, id=command) for command, slow in commands(text)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("readme")
    for name, content in FILE.findall(README.read_text(encoding="utf-8")):
        (made / name).write_text(content, encoding="utf-8")
    return made


@pytest.mark.parametrize("command", readme_commands())
def test_command(command, folder):
    environment = dict(os.environ, PATH=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    environment.pop("PYTHONPATH", None)
    shell = ["sh", "-c", command]
    done = subprocess.run(
        shell, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"


def test_the_readme_shows_the_main_job():
    assert README.is_file(), "README.md is missing"
    text = README.read_text(encoding="utf-8")
    assert any(command.startswith("interp-probe zoo:") for command, _ in commands(text)), "no interp-probe zoo:NAME"
    assert "editable_mode=strict" in text


def test_which_commands_are_run():
    text = """
```sh
git clone https://example.org/interp && cd interp
python -m venv .venv && . .venv/bin/activate
pip install 'torch==2.13.*' && pip install -e . --config-settings editable_mode=strict && interp-probe zoo:a  # first
pip install -e '.[dev]' && pytest && python -m pytest --slow
# a comment
interp-probe zoo:a \\
    --report out.html
```
```python
print("not a command")
```
```sh slow
interp-probe train a
```
"""
    assert commands(text) == [
        ("interp-probe zoo:a", False),
        ("interp-probe zoo:a      --report out.html", False),
        ("interp-probe train a", True),
    ]
