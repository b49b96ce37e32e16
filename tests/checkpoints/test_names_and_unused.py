"""Names are found however a trainer wraps them, and what a description leaves unused is listed or refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from containers import SPEC, layer_arrays, tensors, torch_bytes

from interp.checkpoints.locating import beginning
from interp.checkpoints.opening import inspect_checkpoint, open_checkpoint
from interp.checkpoints.reading import Reading
from interp.errors import LayoutError, UnreadableFile
from interp.models.specification import ModelSpec

ARRAYS = layer_arrays()
PREFIXES = ["", "module.", "_orig_mod.", "_forward_module.", "_fsdp_wrapped_module.", "module._orig_mod.", "model."]


def described(folder: Path, prefix: str = "", **changes: str) -> str:
    text = SPEC.replace("layers.{l}", f"{prefix}layers.{{l}}")
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "spec.toml").write_text(text)
    return str(folder / "spec.toml")


def stored(folder: Path, content: Any) -> Path:
    (folder / "f.pt").write_bytes(torch_bytes(content))
    return folder / "f.pt"


def named(prefix: str = "", within: str = "") -> dict[str, torch.Tensor]:
    return {prefix + k.replace(".W", f".{within}W"): v for k, v in tensors(ARRAYS).items()}


def reference(folder: Path) -> torch.Tensor:
    (folder / "plain").mkdir(exist_ok=True)
    return open_checkpoint(stored(folder / "plain", named()), described(folder / "plain")).model.Q


@pytest.mark.parametrize("within", ["", "_orig_mod.", "module.", "_fsdp_wrapped_module."])
@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("wrapper", [(), ("state_dict",), ("state", "model"), ("model_state_dict",), ("ema", "module")])
def test_plain_names_and_the_files_own_mean_the_same(
    tmp_path: Path, wrapper: tuple[str, ...], prefix: str, within: str
) -> None:
    content: dict[str, Any] = {**named(prefix, within), "n_averaged": torch.tensor(3), "total": torch.tensor(0.5)}
    for key in reversed(wrapper):
        content = {key: content, "epoch": 3, "optimizer": {"state": {0: {"exp_avg": torch.ones(2, 2)}}}}
    path = stored(tmp_path, content)
    own = ".".join(wrapper) + ("." if wrapper else "") + prefix
    names = ["", own, prefix]
    for name in dict.fromkeys(names):
        for inner in dict.fromkeys(("", within)):
            spec = described(tmp_path, name, **{".W_": f".{inner}W_"})
            if (name, inner) in {("", ""), (own, within), (prefix, within)}:
                assert torch.equal(open_checkpoint(path, spec).model.Q, reference(tmp_path))


def test_the_files_own_names_come_first(tmp_path: Path) -> None:
    """Two networks, one within the other's prefix."""
    other = {f"module.{k}": v + 1 for k, v in tensors(ARRAYS).items()}
    path = stored(tmp_path, {**named(), **other})
    with pytest.raises(LayoutError, match="does not use"):
        open_checkpoint(path, described(tmp_path))
    opened = open_checkpoint(path, Reading(described(tmp_path), ("module.*",)))
    assert torch.equal(opened.model.Q, reference(tmp_path))


def test_an_error_says_what_was_dropped(tmp_path: Path) -> None:
    path = stored(tmp_path, {"state_dict": named("model."), "epoch": 1})
    with pytest.raises(LayoutError, match=r"read the entry 'state_dict'.*dropped the prefix 'model\.'"):
        open_checkpoint(path, described(tmp_path, "net."))


# unused -------------------------------------------------------------------------------------------------------------


MISREAD = {
    "layers.0.norm1.weight": (torch.ones(4), "norm"),
    "layers.0.ln_1.weight": (torch.ones(4), "norm"),
    "ln_f.bias": (torch.ones(4), "norm"),
    "layers.0.mlp.c_fc.weight": (torch.ones(4, 8), "MLP"),
    "layers.0.ffn.0.weight": (torch.ones(4, 8), "MLP"),
    "layers.1.linear1.weight": (torch.ones(8, 4), "MLP"),
    "layers.0.W_q.bias": (torch.ones(4), "bias"),
    "layers.1.attn.q_proj.bias": (torch.ones(4), "bias"),
    "pred_head.weight": (torch.ones(1, 4), "read-out"),
    "lm_head.weight": (torch.ones(1, 4), "read-out"),
    "_read_out.weight": (torch.ones(1, 4), "read-out"),
    "embed.weight": (torch.ones(4, 4), "embedding"),
    "_read_in.weight": (torch.ones(4, 4), "embedding"),
    "wpe.weight": (torch.ones(10, 4), "embedding"),
    "layers.0.W_extra.weight": (torch.ones(4, 4), "weights"),
    "gamma_param": (torch.ones(2, 3), "weights"),
}
HARMLESS = {
    "layers.0.W_q.bias": (torch.zeros(4), "bias"),
    "layers.0.mask": (torch.ones(20, 20), "mask"),
    "attn.causal": (torch.ones(20, 20, dtype=torch.bool), "mask"),
    "position_ids": (torch.arange(20), "mask"),
    "n_averaged": (torch.tensor(3), "scalar"),
    "lr": (torch.tensor(0.1), "scalar"),
    "train_losses": (torch.ones(50), "record"),
    "loss_history": (torch.ones(50), "record"),
    "rng_state": (torch.ones(50, dtype=torch.uint8), "no weights"),
    "optimizer.state.0.exp_avg": (torch.ones(4, 4), "optimiser state"),
    "extra": (torch.ones(3), "other"),
}


@pytest.mark.parametrize("name", MISREAD)
def test_what_a_linear_analysis_would_misread_is_refused_by_name(tmp_path: Path, name: str) -> None:
    value, looks = MISREAD[name]
    path, spec = stored(tmp_path, {**named(), name: value}), described(tmp_path)
    with pytest.raises(LayoutError) as caught:
        open_checkpoint(path, spec)
    assert name in str(caught.value) and f"({looks})" in str(caught.value) and "--ignore" in str(caught.value)
    opened = open_checkpoint(path, Reading(spec, (name,)))
    assert [(entry.name, entry.looks_like) for entry in opened.unused] == [(name, looks)]
    assert any(name in note for note in opened.notes)
    inspected = inspect_checkpoint(path, spec)
    assert [entry.name for entry in inspected.unused] == [name]


@pytest.mark.parametrize("name", HARMLESS)
def test_no_right_reading_is_accused(tmp_path: Path, name: str) -> None:
    value, looks = HARMLESS[name]
    opened = open_checkpoint(stored(tmp_path, {**named(), name: value}), described(tmp_path))
    (entry,) = opened.unused
    assert entry.name == name and entry.looks_like.startswith(looks)


def test_a_layer_that_is_not_read(tmp_path: Path) -> None:
    spec = described(tmp_path, **{"{l}": "0"})
    with pytest.raises(LayoutError, match=r"layers\.1\.W_q"):
        open_checkpoint(stored(tmp_path, named()), spec)


def test_values_that_are_not_read(tmp_path: Path) -> None:
    spec = described(tmp_path, **{'"layers.{l}.W_o @ layers.{l}.W_v"': '"I"'})
    with pytest.raises(LayoutError, match=r"layers\.0\.W_v .*\(attention\)"):
        open_checkpoint(stored(tmp_path, named()), spec)


@pytest.mark.parametrize(
    "said",
    [
        {"model_type": "softmax"},
        {"attention": "Softmax"},
        {"args": {"attn_fn": "relu"}},
        {"activation": "exp"},
        {"config": {"use_softmax": True}},
        {"config": {"layer_norm": True}},
        {"arch": "gpt2"},
        {"n_heads": 4},
        {"config": {"num_layers": 6}},
        {"n_loops": 4},
        {"causal": True},
    ],
)
def test_what_the_file_says_of_its_network(tmp_path: Path, said: dict[str, Any]) -> None:
    path, spec = stored(tmp_path, {"model_state_dict": named(), **said}), described(tmp_path)
    with pytest.raises(LayoutError, match="the file says that"):
        open_checkpoint(path, spec)
    name = next(iter(said)) if not isinstance(next(iter(said.values())), dict) else f"{next(iter(said))}.*"
    open_checkpoint(path, Reading(spec, (name,)))


@pytest.mark.parametrize(
    "said",
    [
        {"model_type": "linear"},
        {"attention": "linear attention without softmax"},
        {"config": {"use_softmax": False, "n_heads": 1, "n_layers": 2, "n_loops": 1, "causal": False}},
        {"optimizer_name": "adam", "loss": "mse", "seed": 7, "n_steps": 4, "heads_of_state": "none"},
        {"activation": "identity"},
    ],
)
def test_what_the_file_says_truly(tmp_path: Path, said: dict[str, Any]) -> None:
    open_checkpoint(stored(tmp_path, {"model_state_dict": named(), **said}), described(tmp_path))


def test_a_canonical_file_says_all_itself() -> None:
    assert open_checkpoint("zoo:lsa-1").unused == ()
    assert isinstance(inspect_checkpoint("zoo:lsa-1").spec, ModelSpec)


# other files --------------------------------------------------------------------------------------------------------


def tar(folder: Path) -> bytes:
    (folder / "in").mkdir()
    (folder / "in" / "w.pt").write_bytes(b"1")
    return Path(shutil.make_archive(str(folder / "t"), "tar", folder / "in")).read_bytes()


WRONG = {
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
    "web page": b"\n<!DOCTYPE html>\n<html lang='en'><title>weights.pt</title>",
    "unpack it": tar,
    "bunzip2": b"BZh91AY&SY",
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(100),
    "GGUF": b"GGUF" + bytes(100),
    "notebook": b'{"cells": [], "nbformat": 4}',
    "--spec as TOML": b'{"n_layers": 3, "d": 5}',
    "this file with --spec": SPEC.encode(),
    "Python source": b"import torch\n\nclass Model: pass\n",
    "text": b"epoch,loss\n1,2\n",
    "none of the formats": bytes(range(128, 256)) * 3,
}


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_common_wrong_files_get_a_clause_of_help(tmp_path: Path, words: str, suffix: str) -> None:
    content = WRONG[words]
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content(tmp_path) if callable(content) else content)
    with pytest.raises(UnreadableFile, match=words) as caught:
        open_checkpoint(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("address", ["https://huggingface.co/a/b/resolve/main/w.pt", "hf://a/b", "s3://a/w.pt"])
def test_an_address_is_never_fetched(address: str) -> None:
    with pytest.raises(UnreadableFile, match="download"):
        open_checkpoint(address)


def test_a_folder_names_the_checkpoint_inside(tmp_path: Path) -> None:
    stored(tmp_path, named())
    with pytest.raises(UnreadableFile, match=r"did you mean .*f\.pt"):
        beginning(tmp_path)
    safetensors.numpy.save_file({"W": np.eye(2)}, tmp_path / "other.safetensors")
    with pytest.raises(UnreadableFile, match=r"f\.pt, other\.safetensors"):
        beginning(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(UnreadableFile, match=r"did you mean .*index\.json"):
        beginning(tmp_path)
    (tmp_path / "none").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnreadableFile, match="link that leads nowhere"):
        beginning(tmp_path / "none")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UnreadableFile, match="cannot be opened"):
        beginning(tmp_path / "loop")


def test_a_lone_factor_is_no_merged_matrix(tmp_path: Path) -> None:
    for name in ("W_q", "key", "run3_Wv", "layer0.query", "value"):
        np.save(tmp_path / f"{name}.npy", np.eye(4))
        with pytest.raises(LayoutError, match="not known"):
            open_checkpoint(tmp_path / f"{name}.npy")
    for name in ("W", "merged", "network", "kq"):
        np.save(tmp_path / f"{name}.npy", np.eye(4))
        assert open_checkpoint(tmp_path / f"{name}.npy").layout == "spin-glass"
