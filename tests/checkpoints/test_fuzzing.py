"""Whatever a file or a description holds: a documented exit code, one line, soon, in bounded memory, nothing run."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import resource
import signal
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import mutations
import pytest

from interp.cli import main as command_line
from interp.errors import InterpProbeError
from interp.golden import read_golden
from interp.models.training import recipe

SECONDS, MEGABYTES = 5, 1000
FIRST, FAST, SLOW = 0, 250, 20_000
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("inspect", "--json"),
    ("inspect",),
    ("unroll", "--json"),
    ("unroll", "--prompts", "3"),
)


@pytest.fixture(autouse=True)
def as_installed() -> Iterator[None]:
    """Without the suite's run-time type checks, which would stop ill-typed input before the package's own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class TooSlow(BaseException):
    """Not an Exception, so that nothing in the package takes it for one of its own."""


def _alarm(*_: object) -> None:
    raise TooSlow


def ended(arguments: list[str]) -> tuple[Any, str, str]:
    """Exit code, stdout and stderr of the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    previous = signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    code: Any = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line.main(arguments)
    except SystemExit as end:
        code = end.code
    except TooSlow:
        code = f"over {SECONDS} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    return code, out.getvalue(), err.getvalue()


def faults(code: Any, out: str, err: str, arguments: list[str]) -> Iterator[str]:
    """What is wrong with the end of a command."""
    if code not in (0, 2, 3, 4):
        yield f"exit code {code}: {err[:300]!r}"
    lines = err.splitlines()
    if code != 0 and (len(lines) != 1 or not lines[0].startswith("interp-probe: ") or out):
        yield f"not one line: {err[:300]!r} {out[:100]!r}"
    if code == 0 and err:
        yield f"stderr at exit code 0: {err[:300]!r}"
    if len(err) > 5000 or not all(line.isprintable() for line in lines):
        yield f"text of the file raw on stderr: {err[:300]!r}"
    if not all(line.isprintable() for line in out.splitlines()) or "\x1b" in out:
        yield "text of the file raw on stdout"
    if code == 0 and "--json" in arguments:
        try:
            json.loads(out, parse_constant=lambda name: pytest.fail(name))
        except ValueError as error:
            yield f"no JSON: {error}"


def fuzz(seeds: range, folder: Path) -> tuple[Counter[Any], list[str]]:
    """How often each exit code came, and what went wrong."""
    mutations.Canary.marker = str(folder / "it-ran")
    codes: Counter[Any] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        given = mutations.made(seed)
        arguments = [*COMMANDS[seed % len(COMMANDS)]]
        arguments[1:1] = given.write(folder)
        try:
            code, out, err = ended(arguments)
        except BaseException:
            wrong.append(f"seed {seed} ({given.kind}): {traceback.format_exc(limit=-3)}")
            continue
        codes[code] += 1
        wrong += [f"seed {seed} ({given.kind}), {arguments[0]}: {fault}" for fault in faults(code, out, err, arguments)]
        if os.path.exists(mutations.Canary.marker):
            wrong.append(f"seed {seed} ({given.kind}): code of the file ran")
            os.rmdir(mutations.Canary.marker)
    return codes, wrong


def test_a_few_hundred_inputs(tmp_path: Path) -> None:
    codes, wrong = fuzz(range(FIRST, FIRST + FAST), tmp_path)
    assert not wrong, "\n".join(wrong[:20])
    assert codes[0] > FAST / 3 and codes[3] and codes[4]  # many get past validation


@pytest.mark.slow
def test_twenty_thousand_inputs(tmp_path: Path) -> None:
    codes, wrong = fuzz(range(FIRST, FIRST + SLOW), tmp_path)
    assert not wrong, f"{len(wrong)} of {SLOW}: " + "\n".join(wrong[:20])
    assert codes[0] > SLOW / 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 < MEGABYTES, sys.platform


def documents() -> dict[str, tuple[list[dict[str, Any]], Callable[[str], object]]]:
    """What else is read, by kind: sound ones, and the reader."""
    folder = Path(recipe.__file__).with_name("recipes")
    recipes = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    zoo = Path(__file__).parents[1] / "golden" / "zoo"
    golden = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(zoo.glob("*.json"))[:4]]
    return {"recipe": (recipes, recipe.load_recipe), "golden": (golden, read_golden)}


@pytest.mark.parametrize("kind", ["recipe", "golden"])
@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.slow)])
def test_recipes_and_golden_files(tmp_path: Path, kind: str, count: int) -> None:
    sound, reader = documents()[kind]
    read = 0
    for seed in range(count):
        rng = random.Random(seed)
        fields = copy.deepcopy(rng.choice(sound))
        for _ in range(rng.choice((0, 1, 1, 2))):
            mutations.disturb(rng, fields)
        text = mutations.toml(fields) if kind == "recipe" else json.dumps(fields)
        if rng.random() < 0.2:
            text = rng.choice(mutations.BYTES)(rng, text.encode()).decode("utf-8", "replace")
        path = tmp_path / "document.toml"
        path.write_text(text, encoding="utf-8")
        try:
            reader(str(path))
            read += 1
        except InterpProbeError as error:
            assert error.exit_code in (2, 3, 4) and str(error).isprintable() and len(str(error)) < 5000
    assert read > count / 6


@pytest.mark.parametrize("what", ["code", "line", "canary"])
def test_the_fuzzer_sees_what_it_looks_for(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(arguments: list[str]) -> None:
        if what == "canary":
            os.mkdir(mutations.Canary.marker)
        if what == "line":
            sys.stderr.write("\x1b[31mraw\n")
        sys.exit({"code": 6}.get(what, 3))

    monkeypatch.setattr(command_line, "main", planted)
    wrong = fuzz(range(1), tmp_path)[1]
    expected = {"code": "exit code 6", "line": "raw on stderr", "canary": "code of the file ran"}
    assert any(expected[what] in fault for fault in wrong)
