"""The explorer's page as text: numbers that come back, thinning that is said, names that are harmless, nothing asked
of the network."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from interp.reports import explorer_data
from interp.reports.explorer import render_explorer
from interp.reports.explorer_data import page_data
from interp.results import CheckpointInfo
from interp.results.weight_maps import LAYER_MAPS, CheckpointMaps, Gauge, MapCoefficient, WeightMaps


def checkpoint_maps(
    Q: np.ndarray, P: np.ndarray, tokens: Sequence[tuple[str, int]], name: str = "a.safetensors", **more: Any
) -> CheckpointMaps:
    layers, heads, D = Q.shape[:3]
    C = len(tokens)
    gauge = Gauge(order=np.tile(np.arange(heads), (layers, 1)), factor=np.ones((layers, heads)))
    info = CheckpointInfo(
        name=name, sha256="ab" * 32, layout="canonical", dtype=str(Q.dtype), tokens=tuple(tokens), keys="context",
        scale="1", residual=True, clip=None, readout_channel=tokens[-1][0], readout_sign=-1, layers=layers, heads=heads,
        parameters=2 * Q.size,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "info": info,
        "step": None,
        "weights_sha256": "cd" * 32,
        "same_as": None,
        "Q": Q,
        "P": P,
        "maps": {key: np.zeros((layers, D, D)) for key in LAYER_MAPS},
        "scalars": {key: np.zeros((layers, heads, C, C)) for key in "QP"},
        "spectra": {
            **{key: np.zeros((layers, heads, D)) for key in ("Q", "P", "Q.rest", "P.rest")},
            **{key: np.zeros((layers, D)) for key in LAYER_MAPS},
        },
        "canonical": gauge,
        "coefficients": np.zeros((layers, 1)),
        "shares": np.full((layers, 3), np.nan),
        "live_maps": np.ones((layers, D, D), dtype=bool),
        "live_channels": np.ones((layers, D), dtype=bool),
        "live_how": "derivatives",
        "to_first": None,
        "difference_spectra": {},
        "distance": np.zeros(layers),
        "head_distance": np.zeros((layers, heads)),
    }
    return CheckpointMaps(**fields | more)


def weight_maps(*entries: CheckpointMaps, tokens: Sequence[tuple[str, int]], notes: tuple[str, ...] = ()) -> WeightMaps:
    coefficient = MapCoefficient(name="omega_xx", row=0, key_row=0, key_column=0, column=0)
    return WeightMaps(
        checkpoints=entries,
        tokens=tuple(tokens),
        coefficients=(coefficient,),
        notes=notes,
        command="interp-probe explore",
    )


def random(seed: int, shape: tuple[int, ...], dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


TOKENS = (("x", 5), ("y", 1))
SHAPE = (2, 2, 6, 6)


def decoded(content: dict[str, Any], name: str, k: int) -> np.ndarray:
    """What the page's script makes of one matrix, written apart from both."""
    weights, bits, n = content["checkpoints"][0]["weights"][name], content["bits"], content["width"]
    raw = base64.b64decode(weights["data"][k])
    if not bits:
        return np.frombuffer(raw, f"<f{weights['size']}").reshape(n, n)
    whole = int.from_bytes(raw, "little")
    out = []
    for i in range(n * n):
        code = (whole >> (i * bits)) & (2**bits - 1)
        code -= 2**bits if code >= 2 ** (bits - 1) else 0
        special = {2 ** (bits - 1) - 1: np.inf, 1 - 2 ** (bits - 1): -np.inf, -(2 ** (bits - 1)): np.nan}
        out.append(special.get(code, code * weights["scale"][k]))
    return np.array(out).reshape(n, n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_pages_hold_the_files_numbers_exactly(dtype: type) -> None:
    Q, P = random(0, SHAPE, dtype), random(1, SHAPE, dtype)
    Q[0, 1, 2, 3], P[1, 0, 0, 0], P[1, 0, 1, 1] = np.nan, np.inf, -0.0
    data = page_data(weight_maps(checkpoint_maps(Q, P, TOKENS), tokens=TOKENS), overhead=0)
    assert (data.bits, data.group, data.error, data.words()) == (
        0,
        1,
        0.0,
        "All numbers are exact, but singular values, which have 7 digits.",
    )
    for name, matrix in (("Q", Q), ("P", P)):
        for k in range(4):
            np.testing.assert_array_equal(decoded(data.content, name, k), matrix.reshape(-1, 6, 6)[k])
    assert data.content["names"] == ["x[0]", "x[1]", "x[2]", "x[3]", "x[4]", "y"]
    assert data.content["starts"] == [0, 5]


@pytest.mark.parametrize("bits", [16, 13, 11, 8])
def test_larger_pages_say_how_far_their_numbers_are_off(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    Q, P = random(2, SHAPE), 1e-30 * random(3, SHAPE)
    Q[0, 0, 1, 2], Q[0, 0, 3, 3], P[0, 0, 0, 0] = np.inf, -np.inf, np.nan
    P[1, 1] = 0.0
    monkeypatch.setattr(explorer_data, "SMALL", 0)
    monkeypatch.setattr(explorer_data, "_BITS", (bits,))
    data = page_data(weight_maps(checkpoint_maps(Q, P, TOKENS), tokens=TOKENS), overhead=0)
    assert (data.bits, data.group) == (bits, 1)
    worst = 0.0
    for name, matrix in (("Q", Q), ("P", P)):
        for k, truth in enumerate(matrix.reshape(-1, 6, 6)):
            found = decoded(data.content, name, k)
            finite = np.isfinite(truth)
            np.testing.assert_array_equal(found[~finite], truth[~finite])
            largest = np.abs(truth[finite]).max()
            off = np.abs(found[finite] - truth[finite]).max()
            assert off <= data.error * (1 + 1e-9) and off <= data.relative * largest * (1 + 1e-9)
            assert np.abs(found[finite]).max() == pytest.approx(largest)
            worst = max(worst, off)
    assert worst == pytest.approx(data.error)
    assert 0 < data.relative <= 0.5 / (2 ** (bits - 1) - 2) * (1 + 1e-9)
    assert f"numbers of {bits} bits" in data.words() and "≈" in data.words()


def test_the_largest_pages_show_means_of_cells_within_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    Q = random(4, (1, 1, 6, 6))
    monkeypatch.setattr(explorer_data, "SMALL", 0)
    monkeypatch.setattr(explorer_data, "LARGE", 0)
    live = np.zeros((1, 6, 6), dtype=bool)
    live[0, 5, 2] = True
    entry = checkpoint_maps(Q, Q.copy(), TOKENS, live_maps=live)
    data = page_data(weight_maps(entry, tokens=TOKENS), overhead=0)
    assert (data.group, data.content["names"]) == (2, ["x[0–1]", "x[2–3]", "x[4]", "y"])
    found = decoded(data.content, "Q", 0)
    assert found[0, 1] == pytest.approx(Q[0, 0, :2, 2:4].mean(), abs=data.error)
    assert found[2, 3] == pytest.approx(Q[0, 0, 4, 5], abs=data.error)
    assert "mean of up to 2 x 2" in data.words()
    flags = np.frombuffer(base64.b64decode(data.content["checkpoints"][0]["live"]["maps"]), np.uint8)
    alive = np.unpackbits(flags, bitorder="little")[:16].reshape(4, 4)
    assert alive.sum() == 1 and alive[3, 1] == 1


def test_the_size_asked_for_is_that_of_32_layers_8_heads_128_channels() -> None:
    """On zeros, of which the page keeps as many bits as of anything else."""
    shape, tokens = (32, 8, 128, 128), (("x", 127), ("y", 1))
    weights = np.zeros(shape, dtype=np.float32)
    page = render_explorer(weight_maps(checkpoint_maps(weights, weights, tokens), tokens=tokens))
    assert page.size <= 25e6
    assert "11 bits" in page.thinned


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}\x1b[31m\u202e\udcff"


def test_names_from_files_are_text_and_nothing_else() -> None:
    tokens = ((HOSTILE, 2), ("</script><b>y</b>", 1))
    weights = random(5, (1, 1, 3, 3))
    page = render_explorer(
        weight_maps(checkpoint_maps(weights, weights, tokens, name=HOSTILE), tokens=tokens, notes=(HOSTILE,))
    )
    outside = re.sub(r"<script.*?</script>", "", page.text, flags=re.DOTALL)
    assert "alert(1)" in html.unescape(outside)
    for danger in ("<script>alert", "<img", "<b>y", "\x1b", "\u202e"):
        assert danger not in outside
    assert "{{ 7 * 7 }}" in outside
    data = json.loads(re.search(r'id="explorer-data">(.*?)</script>', page.text, re.DOTALL)[1])  # type: ignore[index]
    assert data["tokens"][1][0] == "</script><b>y</b>"


def test_the_page_stands_alone() -> None:
    weights = random(6, SHAPE)
    shown = weight_maps(checkpoint_maps(weights, weights, TOKENS), tokens=TOKENS)
    page = render_explorer(shown)
    assert page.text == render_explorer(shown).text
    markup = re.sub(r"<script>.*?</script>", "", page.text, flags=re.DOTALL)
    assert "http" not in markup.replace("http-equiv", "") and "src=" not in markup and "url(" not in markup
    assert "connect-src 'none'" in html.unescape(markup)
    framed = page._repr_html_()
    assert framed.startswith("<iframe") and framed.count("<") == 2
    inner = re.search(r'srcdoc="(.*)"></iframe>$', framed, re.DOTALL)
    assert inner is not None and html.unescape(inner[1]) == page.text
