"""Foreign files through descriptions, and opening by reference."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from interp.checkpoints.canonical import write_checkpoint
from interp.checkpoints.importing import builtin_layouts
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.checkpoints.zoo import zoo_names, zoo_path
from interp.errors import InterpProbeError, LayoutError, UnreadableFile, UsageError
from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import task_of
from interp.models.transformer import LinearTransformer

SPEC = """
tokens = [["x", "D-1"], ["y", 1]]
[weights]
Q = "{Q}"
P = "{P}"
[attention]
scale = "1/n"
[task]
name = "noisy_regression"
dim = "D-1"
context = 20
noise = {{ uniform = [0, 5] }}
"""


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def spec_file(folder: Path, Q: str = "W.T", P: str = "I", extra: str = "") -> str:
    path = folder / "spec.toml"
    path.write_text(extra + SPEC.format(Q=Q, P=P), encoding="utf-8")
    return str(path)


def save(path: Path, **tensors: torch.Tensor) -> str:
    safetensors.torch.save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    return str(path)


# built-in layouts ----------------------------------------------------------------------------------------------------


def test_every_built_in_layout_says_what_it_is_for() -> None:
    assert set(builtin_layouts()) == {"ahn", "spin-glass"}
    for layout in builtin_layouts().values():
        assert layout.description and layout.tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_spin_glass_by_its_own_formula(tmp_path: Path, dtype: torch.dtype) -> None:
    """Against the authors' convention, written out: tokens in columns, out = (Z Z^T) W Z / (N+1)."""
    W = random(4, 4, dtype=dtype)
    np.save(tmp_path / "W.npy", W.numpy())
    opened = open_checkpoint(str(tmp_path / "W.npy"))
    assert (opened.layout, opened.dtype, opened.model.Q.dtype) == ("spin-glass", str(dtype)[6:], dtype)
    assert any("assumed" in note and "--spec" in note for note in opened.notes)
    model = opened.model.to(torch.float64)
    task = task_of(model.spec.task)
    assert (task.dim, task.context, task.weight_std) == (3, 100, pytest.approx(3**-0.5))
    prompts = task.sample(5, seed=1)
    grams = prompts.grams(model.spec)
    ours = forward(head_layers(model, task.context), grams.gram, grams.query).queries[-1][:, 0, -1]
    for i in range(5):
        Z = torch.zeros(4, 101, dtype=torch.float64)
        Z[:3, :100], Z[3, :100], Z[:3, 100] = prompts.x[i].T, prompts.y[i], prompts.x_query[i]
        theirs = (Z @ Z.T @ W.double() @ Z / 101)[-1, -1]
        torch.testing.assert_close(model.spec.readout.sign * ours[i], theirs, rtol=1e-12, atol=1e-12)


def test_ahn_by_its_own_formula(tmp_path: Path) -> None:
    """Against the authors' convention, written out: Z + (Z Q Z^T) M (Z P^T) / N, then minus the last entry."""
    allparam = random(3, 2, 2, 4, 4, dtype=torch.float64)
    torch.save({"allparam": torch.nn.Parameter(allparam)}, tmp_path / "model.pt")
    opened = open_checkpoint(str(tmp_path / "model.pt"))
    assert opened.layout == "ahn"
    model = opened.model
    assert (model.layers, model.heads, dict(model.spec.tokens)) == (3, 2, {"x": 4, "y": 1})
    task = task_of(model.spec.task)
    prompts = task.sample(4, seed=1)
    grams = prompts.grams(model.spec)
    ours = forward(head_layers(model, task.context), grams.gram, grams.query).queries[-1][:, 0, -1]
    mask = torch.eye(21, dtype=torch.float64)
    mask[-1, -1] = 0
    for i in range(4):
        Z = torch.zeros(21, 5, dtype=torch.float64)
        Z[:20, :4], Z[:20, 4], Z[20, :4] = prompts.x[i], prompts.y[i], prompts.x_query[i]
        for layer in range(3):
            update = torch.zeros_like(Z)
            for P, Q in allparam[layer]:
                P, Q = torch.block_diag(P, torch.ones(1, 1)), torch.block_diag(Q, torch.zeros(1, 1))
                update += (Z @ Q.double() @ Z.T) @ mask @ (Z @ P.double().T) / 20
            Z = Z + update
        torch.testing.assert_close(model.spec.readout.sign * ours[i], -Z[-1, -1], rtol=1e-10, atol=1e-10)


def test_a_built_in_layout_by_name(tmp_path: Path) -> None:
    path = save(tmp_path / "m", W=random(3, 3), extra=random(5))
    with pytest.raises(LayoutError, match="not known"):
        open_checkpoint(path)
    opened = open_checkpoint(path, "spin-glass")
    assert opened.layout == "spin-glass"
    assert not any("assumed" in note for note in opened.notes)
    with pytest.raises(LayoutError, match=r"'ahn' is for floating-point allparam \(L, H, 2, d, d\).*holds W float32"):
        open_checkpoint(path, "ahn")


@pytest.mark.parametrize(
    "tensors",
    [
        {"A": random(3, 4), "B": random(7)},
        {"W": random(3, 4)},
        {"W": random(3, 3).int()},
        {"W": random(3, 3), "V": random(3, 3)},
        {"allparam": random(2, 1, 3, 4, 4)},
        {"allparam": random(2, 1, 2, 4, 4), "gamma_param": random(2)},
        {"Q": random(2, 1, 3, 3), "P": random(2, 1, 3, 3)},
    ],
)
def test_an_unknown_layout_says_what_was_seen_and_what_to_supply(
    tmp_path: Path, tensors: dict[str, torch.Tensor]
) -> None:
    path = save(tmp_path / "m", **tensors)
    with pytest.raises(LayoutError) as caught:
        open_checkpoint(path)
    text = str(caught.value)
    assert caught.value.exit_code == 4 and "\n" not in text
    for name, value in tensors.items():
        assert f"{name} {str(value.dtype)[6:]} {tuple(value.shape)}" in text
    assert "--spec FILE.toml" in text and "ahn, spin-glass" in text
    found = inspect_checkpoint(path)
    assert found.problem == text and found.layout is None and found.spec is None


# descriptions --------------------------------------------------------------------------------------------------------


def test_separate_factors_by_layer_and_head(tmp_path: Path) -> None:
    factors = {}
    for place, (a, b) in enumerate((a, b) for a in range(3) for b in range(2)):
        for offset, (name, shape) in enumerate({"q": (2, 4), "k": (2, 4), "v": (2, 4), "o": (4, 2)}.items()):
            factors[f"layers.{a}.{b}.{name}"] = random(*shape, seed=4 * place + offset)
    spec = spec_file(tmp_path, "layers.{l}.{h}.q.T @ layers.{l}.{h}.k", "layers.{l}.{h}.o @ layers.{l}.{h}.v")
    opened = open_checkpoint(save(tmp_path / "m", **factors), spec)
    assert (opened.layout, opened.dtype) == ("spec file", "float32")
    for a in range(3):
        for b in range(2):
            q, k, v, o = (factors[f"layers.{a}.{b}.{n}"].double() for n in "qkvo")
            torch.testing.assert_close(opened.model.Q[a, b], q.T @ k, rtol=1e-14, atol=1e-14)
            torch.testing.assert_close(opened.model.P[a, b], o @ v, rtol=1e-14, atol=1e-14)
    # Products of float32 factors do not fit float32, so they are not rounded to it, and that is said.
    assert opened.model.Q.dtype == torch.float64
    assert any("kept in float64" in note for note in opened.notes)


def test_what_loses_nothing_stays_in_the_files_dtype(tmp_path: Path) -> None:
    W = random(3, 3, dtype=torch.bfloat16)
    W[0, 1] = float("nan")
    opened = open_checkpoint(save(tmp_path / "m", W=W), spec_file(tmp_path, "-W.T", "0.5 * I"))
    assert opened.model.Q.dtype == torch.bfloat16
    assert torch.equal(opened.model.Q[0, 0].nan_to_num(9), -W.T.nan_to_num(-9))
    assert torch.equal(opened.model.P[0, 0], 0.5 * torch.eye(3, dtype=torch.bfloat16))
    with pytest.raises(UnreadableFile, match="1 of 9 values of Q are NaN"):
        opened.model.require_finite()


def test_a_layer_shared_by_all_is_repeated(tmp_path: Path) -> None:
    path = save(tmp_path / "m", Q=random(5, 2, 3, 3), P=random(3, 3))
    model = open_checkpoint(path, spec_file(tmp_path, "Q", "P")).model
    assert model.P.shape == (5, 2, 3, 3)
    assert torch.equal(model.P[4, 1], random(3, 3))


def test_a_description_is_checked_against_its_own_tensors(tmp_path: Path) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text(SPEC.format(Q="W", P="I") + '[tensors]\nW = ["D", "D"]\nscale = [1]\n')
    assert open_checkpoint(save(tmp_path / "a", W=random(3, 3), scale=random(1)), str(spec)).model.heads == 1
    with pytest.raises(LayoutError, match=r"scale \(1\)"):
        open_checkpoint(save(tmp_path / "b", W=random(3, 3)), str(spec))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SPEC.format(Q="w.T", P="I"), "'w', which the file does not hold; known: A, W"),
        (SPEC.format(Q="W", P="A"), r"weights.Q gives \(1, 1, 3, 3\) and weights.P gives \(1, 1, 3, 2\)"),
        (SPEC.format(Q="I", P="I"), "names a tensor"),
        (SPEC.format(Q="W @", P="I"), r"weights.Q = 'W @': it ends too early"),
        (SPEC.format(Q="W", P="I").replace("D-1", "D-7"), "size -4"),
        (SPEC.format(Q="W", P="I").replace('"D-1"', '"D/2"'), "size 1.5"),
        (SPEC.format(Q="W", P="I").replace('"D-1"', "7"), "add up to D = 8"),
        (SPEC.format(Q="W", P="I").replace("1/n", "1/N"), "attention.scale is '1/N'"),
        (SPEC.format(Q="W", P="I").replace("scale", "scael"), "did you mean 'scale'"),
        ("residul = true\n" + SPEC.format(Q="W", P="I"), "did you mean 'residual'"),
        (SPEC.format(Q="W", P="I").replace("tokens", "#"), "has no tokens"),
        (SPEC.format(Q="W", P="I").replace("[weights]", "[weight]"), r"no \[weights\] table"),
        (SPEC.format(Q="W", P="I").replace("P =", "R ="), "expected expressions Q and P"),
        (SPEC.format(Q="W", P="I").replace('"W"', "3"), "expected expressions Q and P"),
        ("tensors = 3\n" + SPEC.format(Q="W", P="I"), "tensors is 3"),
        ("a = [1, 2", "not a TOML description"),
        ("", r"it holds nothing"),
        ("task = 3", r"no \[weights\] table"),
        ("[task]\nname = 'noisy_regression'", "is not known"),
    ],
)
def test_descriptions_that_make_no_model(tmp_path: Path, text: str, message: str) -> None:
    path = save(tmp_path / "m", W=random(3, 3), A=random(3, 2))
    spec = tmp_path / "s.toml"
    spec.write_text(text, encoding="utf-8")
    with pytest.raises(LayoutError, match=message) as caught:
        open_checkpoint(path, str(spec))
    assert "\n" not in str(caught.value)
    with pytest.raises(LayoutError, match=message):
        inspect_checkpoint(path, str(spec))


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, UsageError, "no such file and no such built-in layout; did you mean 'spin-glass'"),
        ("folder", UnreadableFile, "Is a directory"),
        (b"\xff\xfe", LayoutError, "not a TOML description"),
        (b"a = " + b"[" * 5000, LayoutError, "not a TOML description"),
        (b"#" * 1_000_001, LayoutError, "larger than"),
    ],
)
def test_specs_that_are_no_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, error: type[InterpProbeError], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(tmp_path / "m", W=random(3, 3))
    spec = Path("spin-glas")
    if content == "folder":
        spec.mkdir()
    elif content is not None:
        spec.write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        open_checkpoint(path, str(spec))
    assert "\n" not in str(caught.value)


# the task alone ------------------------------------------------------------------------------------------------------

TASK = '[task]\nname = "noisy_regression"\ndim = "D-1"\ncontext = 7\nnoise = { fixed = 2 }\n'


def canonical(path: Path, task: dict[str, Any] | None) -> str:
    spec = ModelSpec(tokens=(("x", 2), ("y", 1)), task=task)
    write_checkpoint(LinearTransformer(spec=spec, Q=random(1, 1, 3, 3), P=random(1, 1, 3, 3)), path)
    return str(path)


def test_a_spec_sets_the_task_of_a_canonical_file(tmp_path: Path) -> None:
    spec = tmp_path / "task.toml"
    spec.write_text(TASK)
    expected = {"name": "noisy_regression", "dim": 2, "context": 7, "noise": {"fixed": 2}}
    for task, said in ((None, f"the task is that of {spec}"), ({"name": "x"}, "not the file's own")):
        path = canonical(tmp_path / "m", task)
        opened = open_checkpoint(path, str(spec))
        assert opened.model.spec.task == expected
        assert opened.layout == "canonical"
        assert said in opened.notes[0]
        assert inspect_checkpoint(path, str(spec)).spec == opened.model.spec
        assert open_checkpoint(path).model.spec.task == task
    assert torch.equal(opened.model.Q, random(1, 1, 3, 3))


def test_a_spec_sets_the_task_of_a_detected_layout(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(TASK)
    opened = open_checkpoint(save(tmp_path / "m", W=random(3, 3)), str(tmp_path / "task.toml"))
    assert opened.layout == "spin-glass"
    assert task_of(opened.model.spec.task).context == 7


def test_a_canonical_file_states_its_own_layout(tmp_path: Path) -> None:
    path = canonical(tmp_path / "m", None)
    for spec in ("spin-glass", spec_file(tmp_path, "Q", "P")):
        with pytest.raises(LayoutError, match=r"states its own layout.*\[task\] alone"):
            open_checkpoint(path, spec)


# references ----------------------------------------------------------------------------------------------------------


def test_zoo_models_open(tmp_path: Path) -> None:
    for name in zoo_names():
        opened = open_checkpoint(f"zoo:{name}")
        assert (opened.name, opened.layout) == (f"zoo:{name}", "canonical")
        opened.model.require_finite()
        task_of(opened.model.spec.task)
        found = inspect_checkpoint(f"zoo:{name}")
        most = 400_000 if opened.model.spec.attention.keys == "causal" else 100_000  # those have tokens of 40 numbers
        assert found.sha256 == opened.sha256 and found.size < most
        assert zoo_path(name).is_file()


def test_a_name_that_is_not_in_the_zoo(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the zoo has no model 'nonsense'"):
        open_checkpoint("zoo:nonsense")
    for name in zoo_names():
        with pytest.raises(UsageError, match=re.escape(f"did you mean '{name}'")):
            zoo_path(f"{name}x")
        with pytest.raises(UnreadableFile, match=re.escape(f"did you mean zoo:{name}?")):
            open_checkpoint(name)


def test_the_record_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run 3.npy"
    np.save(path, random(3, 3).numpy())
    opened, found = open_checkpoint(str(path)), inspect_checkpoint(str(path))
    assert opened.name == found.name == "run 3.npy"
    assert opened.sha256 == found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.to_dict()["arrays"] == [{"name": "W", "shape": [3, 3], "dtype": "float32"}]
    assert (found.layers, found.heads, found.dtype, found.layout) == (1, 1, "float32", "spin-glass")
    assert found.spec == opened.model.spec
