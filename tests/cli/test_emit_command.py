"""``interp-probe emit``: files that reproduce the network where nothing but numpy is installed."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.models.gram import forward, head_layers
from interp.models.tasks import CompletionPrompts, DynamicsPrompts, SimplePrompts, task_of
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer

Run = Callable[..., Any]
UNRECOGNIZED = ("memorised-10-tasks", "lsa-4-fixed")
ALIKE = ("diag-l7-u5", "full-l4-c13")  # of the kinds of diag-l4-u5 and full-l4-u5
PROMPTS = "1024"


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with numpy, and without anything else that is installed here."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    here = Path(np.__file__).parent
    for place in (here, here.with_name("numpy.libs")):
        if place.exists():
            (packages / place.name).symlink_to(place)
    python = str(folder / "bin" / "python")
    code = "import numpy, importlib.util as u; print([n for n in ('torch', 'interp', 'scipy') if u.find_spec(n)])"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, encoding="utf-8")
    assert done.stdout.strip() == "[]", done
    return python


def predictions(python: str, path: Path, *arguments: np.ndarray) -> np.ndarray:
    """What the emitted function says of every prompt, in a process of its own that can import numpy only."""
    np.savez(path.with_suffix(".npz"), *arguments)
    code = (
        "import runpy, sys, numpy as np; made = runpy.run_path(sys.argv[1]);"
        "import runpy, sys, numpy as np; made = runpy.run_path(sys.argv[1]); d = np.load(sys.argv[2]);"
        "f = made.get('predict') or made['complete'];"
        "np.save(sys.argv[3], [f(*row) for row in zip(*(d[n] for n in d.files))])"
    )
    out = path.with_suffix(".npy")
    subprocess.run([python, "-I", "-c", code, str(path), str(path.with_suffix(".npz")), str(out)], check=True)
    return np.load(out)


def asked(model: LinearTransformer, drawn: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The arguments of the emitted function on some prompts, and what the network predicts for them."""
    spec = model.spec
    if isinstance(drawn, DynamicsPrompts):
        return (drawn.states[:, :-1],), predict(model, *drawn.inputs(spec))
    if isinstance(drawn, SimplePrompts):
        return (drawn.x, drawn.y, drawn.x_query), predict(model, *drawn.inputs(spec))[:, 0, 0]
    grams = drawn.grams(spec)
    tokens = forward(head_layers(model, drawn.context), grams.gram, grams.query).queries[-1]
    label = spec.readout.sign * tokens[..., spec.channel("y").indices]
    if isinstance(drawn, CompletionPrompts):
        return (drawn.A, drawn.B, drawn.C), label
    return (drawn.x, drawn.y, drawn.x_query), label[:, 0, 0]


def zoo_models() -> Iterator[Any]:
    """Those that are recognized. Slow are all but regression, which have tests of what they emit elsewhere
    (``tests/interp/test_certified_*``, ``tests/reports/test_emitted_*``), and two of regression that differ from others
    in size or noise law only."""
    for name in zoo_names():
        spec = inspect_checkpoint(f"zoo:{name}").spec
        slow = spec is None or spec.task is None or spec.task["name"] != "noisy_regression"
        if name not in UNRECOGNIZED:
            yield pytest.param(name, marks=pytest.mark.slow if slow or name in ALIKE else ())


@pytest.mark.parametrize("name", list(zoo_models()))
def test_zoo_models_are_reproduced_with_the_fidelity_of_the_certificate(
    name: str, call: Run, bare_python: str, tmp_path: Path
) -> None:
    ended = call("emit", f"zoo:{name}", "--to", "numpy", "--json", "--prompts", PROMPTS)
    assert ended.code == 0 and ended.err == ""
    document = json.loads(ended.out)
    assert (document["schema"], document["to"]) == ("interp-probe-emit/1", "numpy")
    path = tmp_path / "algorithm.py"
    path.write_text(document["text"], encoding="ascii")
    checked = subprocess.run([bare_python, "-I", str(path)], capture_output=True, encoding="utf-8")
    assert checked.returncode == 0 and "This file computes the same as when it was written" in checked.stdout, checked

    model = open_checkpoint(f"zoo:{name}").model
    model = model.to(torch.float64)
    for entry in document["certificate"]["disagreements"][:4]:
        if entry["skipped"] is not None:
            continue
        drawn = task_of(entry["task"]).sample(400, 123_456)  # prompts that nobody has seen
        arguments, expected = asked(model, drawn)
        network = expected.numpy()
        found = predictions(bare_python, path, *(value.numpy() for value in arguments))
        unexplained = ((found - network) ** 2).sum() / ((network - network.mean(0)) ** 2).sum()
        if entry["name"] == "task":  # elsewhere a single prompt that explodes can decide it
            # Two samples of a heavy-tailed share: within a factor of three, or rounding on both sides.
            assert unexplained <= max(3 * (1 - entry["r2"]), 1e-12)
        apart = np.abs(found - network) / entry["rms"]
        assert np.median(apart) <= max(1.5 * entry["median"], 1e-9)


def test_an_emitted_file_names_its_checkpoint(call: Run, tiny: str, tmp_path: Path) -> None:
    out = tmp_path / "algorithm.py"
    ended = call("emit", tiny, "--to", "torch", "--out", str(out), "--prompts", "128")
    assert (ended.code, ended.err) == (0, "") and ended.out.startswith(f"{out}: diag of tiny.safetensors")
    assert open_checkpoint(tiny).sha256 in out.read_text(encoding="ascii")
    done = subprocess.run([sys.executable, "-I", str(out)], capture_output=True, encoding="utf-8")
    shown = [line for line in done.stdout.splitlines() if line.startswith("the network ")]
    assert done.returncode == 0 and len(shown) == 4
    assert (
        call("emit", tiny, "--to", "torch", "--prompts", "128").out.splitlines()[4:9]
        == (out.read_text(encoding="ascii").splitlines()[4:9])
    )


def refused(ended: Any, code: int, *words: str) -> None:
    assert (ended.code, ended.out, ended.err.count("\n")) == (code, "", 1), ended
    for word in words:
        assert word in ended.err


def test_what_is_not_recognized_is_not_emitted(call: Run, tmp_path: Path) -> None:
    out = tmp_path / "algorithm.py"
    ended = call("emit", "zoo:memorised-10-tasks", "--to", "numpy", "--prompts", "512", "--out", str(out))
    refused(ended, 1, "unrecognized", "no algorithm to emit")
    assert not out.exists()


def test_bad_usage(call: Run, tiny: str, tmp_path: Path) -> None:
    refused(call("emit", tiny), 2, "--to")
    refused(call("emit", tiny, "--to", "fortran"), 2, "fortran")
    refused(call("emit", tiny, "--to", "numpy", "--out", tiny), 2, "being read")
    refused(call("emit", tiny, "--to", "numpy", "--out", str(tmp_path / "none" / "a.py")), 2, "does not exist")
    refused(call("emit", tiny, "--to", "numpy", "--prompts", "3"), 2, "64 or more")
    refused(call("emit", str(tmp_path / "missing"), "--to", "numpy"), 3, "No such file")
