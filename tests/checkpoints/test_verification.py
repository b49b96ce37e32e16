"""``--verify``: a file that is read otherwise than its network runs is found out, and the slip is named.

The network is written here, in numpy and with loops over the tokens; it shares no code with the package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.reading import Reading
from interp.checkpoints.verification import template
from interp.errors import CheckFailed, LayoutError

LAYERS, HEADS, D, CONTEXT, PROMPTS = 2, 2, 4, 9, 12
RIGHT = {
    "tokens": '[["x", "D-1"], ["y", 1]]',
    "Q": "heads(Wq{l}, 2).T @ heads(Wk{l}, 2)",
    "P": "heads(Wo{l}.T, 2).T @ heads(Wv{l}, 2)",
    "keys": "context",
    "scale": "1/n",
    "residual": "true",
    "loops": "2",
    "sign": "-1",
}
# What is read wrongly, and what the message must name.
WRONG = {
    "sign": ({"sign": "1"}, "read-out -1"),
    "scale 1": ({"scale": "1"}, "scale 1/n"),
    "scale 1/(n+1)": ({"scale": "1/(n+1)"}, "scale 1/n"),
    "keys": ({"keys": "all"}, "keys context"),
    "residual": ({"residual": "false"}, "a residual stream"),
    "Q": ({"Q": "heads(Wk{l}, 2).T @ heads(Wq{l}, 2)"}, "Q transposed"),
    "P": ({"P": "heads(Wv{l}, 2).T @ heads(Wo{l}.T, 2)"}, "P transposed"),
    "Q and P": ({"Q": RIGHT["P"], "P": RIGHT["Q"]}, "Q and P exchanged"),
    "channels": ({"tokens": '[["y", 1], ["x", "D-1"]]'}, "channels in the order x, y"),
    "one head": ({"Q": "Wq{l}.T @ Wk{l}", "P": "Wo{l} @ Wv{l}"}, "2 heads side by side"),
    "interleaved": (
        {
            "Q": "interleaved(Wq{l}, 2).T @ interleaved(Wk{l}, 2)",
            "P": "interleaved(Wo{l}.T, 2).T @ interleaved(Wv{l}, 2)",
        },
        "2 heads side by side, heads(",
    ),
    "once": ({"loops": "1"}, "the stored layers run 2 times"),
    "four times": ({"loops": "4"}, "the stored layers run 2 times"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of weights, and one of the network's own outputs."""
    made, random = tmp_path_factory.mktemp("verify"), np.random.default_rng(0)
    shapes = {"q": (HEADS * D, D), "k": (HEADS * D, D), "v": (HEADS * D, D), "o": (D, HEADS * D)}
    weights = {
        f"W{name}{layer}": random.normal(size=shape).astype(np.float32) / 2
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }
    np.savez(made / "net.npz", **weights)
    inputs = random.normal(size=(PROMPTS, CONTEXT + 1, D))
    inputs[:, -1, -1] = 0
    outputs = np.array([own_output(weights, tokens) for tokens in inputs])
    np.savez(made / "pairs.npz", inputs=inputs, outputs=outputs)
    return made


def own_output(weights: dict[str, np.ndarray[Any, Any]], tokens: np.ndarray[Any, Any]) -> float:
    """Its layers run twice, one head after the other, every token looking at the context."""
    stream = tokens.astype(np.float64)
    for layer in [*range(LAYERS)] * 2:
        q, k, v, o = (weights[f"W{name}{layer}"].astype(np.float64) for name in "qkvo")
        moved = stream.copy()
        for head in range(HEADS):
            rows = slice(head * D, (head + 1) * D)
            for i, token in enumerate(stream):
                for key in stream[:CONTEXT]:
                    moved[i] += (q[rows] @ token) @ (k[rows] @ key) * (o[:, rows] @ (v[rows] @ key)) / CONTEXT
        stream = moved
    return -float(stream[-1, -1])


def reading(folder: Path, name: str, **changed: str) -> Reading:
    said = RIGHT | changed
    (folder / f"{name}.toml").write_text(
        f"""tokens = {said["tokens"]}
residual = {said["residual"]}
loops = {said["loops"]}
[weights]
Q = "{said["Q"]}"
P = "{said["P"]}"
[attention]
keys = "{said["keys"]}"
scale = "{said["scale"]}"
[readout]
channel = "y"
sign = {said["sign"]}
[task]
name = "noisy_regression"
dim = "D-1"
context = {CONTEXT}
noise = {{ uniform = [0, 1] }}
"""
    )
    return Reading(str(folder / f"{name}.toml"), verify=str(folder / "pairs.npz"))


def test_the_right_reading_is_verified(folder: Path) -> None:
    verified = open_checkpoint(folder / "net.npz", reading(folder, "right")).verified
    assert verified is not None and verified.prompts == PROMPTS
    assert verified.error < 1e-12  # both compute in double precision, from the same float32 weights


@pytest.mark.parametrize("name", WRONG)
def test_a_slip_is_named(folder: Path, name: str) -> None:
    changed, expected = WRONG[name]
    with pytest.raises(CheckFailed) as failed:
        open_checkpoint(folder / "net.npz", reading(folder, name.replace("/", "-"), **changed))
    assert "\n" not in str(failed.value)
    assert expected in str(failed.value).split("what has its outputs is")[1]


def test_two_slips_are_named_together(folder: Path) -> None:
    with pytest.raises(CheckFailed) as failed:
        open_checkpoint(folder / "net.npz", reading(folder, "two", sign="1", scale="1"))
    found = str(failed.value).split("what has its outputs is")[1]
    assert "read-out -1" in found and "scale 1/n" in found


def test_another_network_is_no_slip(folder: Path) -> None:
    with np.load(folder / "pairs.npz") as pairs:
        np.savez(folder / "other.npz", inputs=pairs["inputs"], outputs=np.tanh(pairs["outputs"]))
    right = reading(folder, "right")
    with pytest.raises(CheckFailed, match="nearest"):
        open_checkpoint(folder / "net.npz", Reading(right.spec, verify=str(folder / "other.npz")))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros(3)}, "expected inputs and outputs"),
        ({"inputs": np.ones((3, 4)), "outputs": np.ones(3)}, r"shape \(3, 4\)"),
        ({"inputs": np.ones((3, 5, D + 1)), "outputs": np.ones(3)}, f"tokens, {D}"),
        ({"inputs": np.ones((3, 5, D)), "outputs": np.ones(2)}, r"outputs of shape \(2,\)"),
        ({"inputs": np.ones((3, 5, D)), "outputs": np.ones((3, 9))}, r"outputs of shape \(3, 9\)"),
        ({"inputs": np.ones((3, 5, D)), "outputs": np.zeros(3)}, "all 0"),
        ({"inputs": np.full((3, 5, D), np.nan), "outputs": np.ones(3)}, "not finite"),
    ],
)
def test_pairs_of_other_shapes_are_refused(folder: Path, tmp_path: Path, arrays: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(LayoutError, match=said):
        open_checkpoint(folder / "net.npz", Reading(reading(folder, "right").spec, verify=str(tmp_path / "bad.npz")))


@pytest.mark.parametrize("queries", [1, 3])
def test_the_template_runs(folder: Path, tmp_path: Path, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filled in with the network of this file, it makes pairs by which the right reading is verified."""
    right = Reading(reading(folder, "right").spec)
    checkpoint = open_checkpoint(folder / "net.npz", right)
    text = template(checkpoint.model, CONTEXT, queries, "net.npz")
    with np.load(folder / "net.npz") as weights:
        held = dict(weights)

    def network(tokens: Any) -> Any:
        alone = [np.delete(tokens.numpy(), [CONTEXT + other for other in range(queries) if other != q], axis=1)
                 for q in range(queries)]  # fmt: skip
        return np.array([[own_output(held, prompt) for prompt in inputs] for inputs in alone]).T[..., None]

    monkeypatch.chdir(tmp_path)
    exec(text.replace("model = ...", "model = network"), {"network": network})
    verified = open_checkpoint(folder / "net.npz", Reading(right.spec, verify="pairs.npz")).verified
    assert verified is not None and verified.error < 1e-5  # the template hands over float32
