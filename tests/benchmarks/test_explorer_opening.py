"""What a large checkpoint's page costs Chromium beside a page that holds plotly and one curve.

Processor seconds of the page's process, both pages in one run; the ratio of the medians over rounds is in the
column "extra info" (``pytest tests/benchmarks --slow -n0``). The file's size has a bound; the time is only reported.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from interp.checkpoints.canonical import write_checkpoint
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer
from interp.reports.explorer import render_explorer
from interp.weight_maps import explore

pytestmark = pytest.mark.slow
LAYERS, HEADS, DIM, ROUNDS = 32, 8, 127, 5
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def written(folder: Path) -> tuple[Path, Path]:
    """The page of a network of 128 channels, and the page with plotly alone."""
    from plotly.offline import get_plotlyjs

    task = {"name": "noisy_regression", "dim": DIM, "context": 64, "noise": {"uniform": [0, 1]}}
    spec = ModelSpec.from_dict({"tokens": [["x", DIM], ["y", 1]], "task": task})
    size = (2, LAYERS, HEADS, DIM + 1, DIM + 1)
    Q, P = 0.01 * torch.randn(size, generator=torch.Generator().manual_seed(0))
    write_checkpoint(LinearTransformer(spec=spec, Q=Q, P=P), folder / "large.safetensors")
    render_explorer(explore([str(folder / "large.safetensors")])).write(folder / "large.html")
    (folder / "plain.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><div id="heat"></div><script>{get_plotlyjs()}</script>'
        '<script>Plotly.newPlot("heat", [{ y: [1, 2, 3] }])</script>',
        encoding="utf-8",
    )
    return folder / "large.html", folder / "plain.html"


def opening(playwright: Any, page: Path) -> float:
    """Processor seconds from a fresh browser to the first plot."""
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    context = browser.new_context(offline=True)
    opened = context.new_page()
    meter = context.new_cdp_session(opened)
    meter.send("Performance.enable")
    opened.goto(page.as_uri())
    opened.locator("#heat .main-svg").first.wait_for(state="attached")
    metrics = {entry["name"]: entry["value"] for entry in meter.send("Performance.getMetrics")["metrics"]}
    browser.close()
    return metrics["ProcessTime"]


def test_a_large_page_opens(benchmark: Any, tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install -e .[test])")
    large, plain = written(tmp_path)
    assert large.stat().st_size <= 25_000_000
    with sync_api.sync_playwright() as playwright:
        base = [opening(playwright, plain) for _ in range(ROUNDS)]
        taken: list[float] = []
        benchmark.pedantic(lambda: taken.append(opening(playwright, large)), rounds=ROUNDS)
    benchmark.extra_info |= {
        "CPU seconds": round(statistics.median(taken), 2),
        "times a page with plotly alone": round(statistics.median(taken) / statistics.median(base), 2),
    }
