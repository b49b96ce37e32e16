"""Pages of the explorer, the networks they show, and what a reader does with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

TASK = {"name": "noisy_regression", "dim": 3, "context": 8, "noise": {"uniform": [0, 1]}}
SPEC = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK})
NAMES = ["x[0]", "x[1]", "x[2]", "y"]
HOSTILE = ModelSpec.from_dict(
    {
        "tokens": [["<script>alert(1)</script>", 3], ["<b>s</b>", 3], ["=1+1", 1]],
        "attention": {"keys": "causal"},
        "readout": {"channel": "<b>s</b>", "sign": 1},
    }
)


def network(seed: int, layers: int = 3, heads: int = 2, spec: ModelSpec = SPEC) -> LinearTransformer:
    generator = torch.Generator().manual_seed(seed)
    Q, P = torch.randn(2, layers, heads, spec.width, spec.width, generator=generator, dtype=torch.float64) * 0.1
    return LinearTransformer(spec=spec, Q=Q, P=P)


def regauged(model: LinearTransformer) -> LinearTransformer:
    return dataclasses.replace(model, P=-2 * model.P.flip(1), Q=model.Q.flip(1) / -2)


@dataclasses.dataclass
class Explorer:
    page: Any
    url: str
    requests: list[str]
    complaints: list[str]

    def elsewhere(self) -> list[str]:
        """Requests for anything but the page itself."""
        return [url for url in self.requests if url.split("#")[0] != self.url]

    def settled(self) -> None:
        """Waits for the parts of the page that are made after the map."""
        self.page.locator("html[data-ready=yes]").wait_for(state="attached")

    def text(self, selector: str) -> str:
        self.settled()
        return " ".join(self.page.locator(selector).first.text_content().split())

    def choose(self, name: str, value: str) -> None:
        self.page.locator(f"#{name}").select_option(value)
        self.settled()

    def slide(self, name: str, *keys: str) -> None:
        self.page.locator(f"#{name}").focus()
        for key in keys:
            self.page.keyboard.press(key)
        self.settled()

    def place(self, row: int, column: int) -> list[float]:
        self.page.locator("#heat").scroll_into_view_if_needed()
        return self.page.evaluate(
            """([r, c]) => {
                const plot = document.getElementById("heat"), box = plot.getBoundingClientRect();
                const { xaxis, yaxis } = plot._fullLayout;
                return [box.x + xaxis._offset + xaxis.d2p(c), box.y + yaxis._offset + yaxis.d2p(r)];
            }""",
            [row, column],
        )

    def hover(self, row: int, column: int) -> list[str]:
        """The lines of the text beside the pointer."""
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(150)  # plotly answers the pointer with a delay
        self.page.mouse.move(*self.place(row, column))
        self.page.locator("#heat .hoverlayer .hovertext").first.wait_for()
        lines = self.page.locator("#heat .hoverlayer .hovertext tspan.line")
        found = lines.all_text_contents() or [self.page.locator("#heat .hoverlayer .hovertext").text_content()]
        return [" ".join(line.split()) for line in found]

    def value(self, row: int, column: int) -> float:
        return float(self.hover(row, column)[0].split(" = ")[1].replace("Infinity", "inf"))

    def map(self) -> np.ndarray:
        shown = self.page.evaluate("document.getElementById('heat').data[0].z")
        return np.array([[np.nan if v is None else v for v in row] for row in shown])

    def address(self) -> dict[str, str]:
        fragment = self.page.evaluate("location.hash").lstrip("#")
        return dict(part.split("=") for part in fragment.split("&"))


Open = Callable[..., Explorer]
PATIENCE = 120_000  # milliseconds: how long a busy machine may take for what an idle one does at once


def comes_to(page: Any, expression: str, wanted: Any) -> Any:
    """What the expression gives once it is ``wanted``, or after all patience."""
    shown = page.evaluate(expression)
    for _ in range(PATIENCE // 200):
        if shown == wanted:
            break
        page.wait_for_timeout(200)
        shown = page.evaluate(expression)
    return shown


def opened_page(browser: Any, path: Path, fragment: str, width: int = 1280, scheme: str = "light") -> Explorer:
    """A page from file://, offline, every request and complaint noted."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    context.set_default_timeout(PATIENCE)
    opened = Explorer(context.new_page(), path.as_uri(), [], [])

    def route(handler: Any) -> None:
        opened.requests.append(handler.request.url)
        if handler.request.url.split("#")[0] == opened.url:
            handler.continue_()
        else:
            handler.abort()

    opened.page.route("**/*", route)
    opened.page.on("console", lambda m: opened.complaints.append(f"{m.type}: {m.text}"))
    opened.page.on("pageerror", lambda error: opened.complaints.append(f"error: {error}"))
    opened.page.on("dialog", lambda d: (opened.complaints.append(f"dialog: {d.message}"), d.dismiss()))
    opened.page.goto(f"{opened.url}#{fragment}")
    opened.page.locator("html[data-ready=yes]").wait_for(state="attached")
    return opened


CLIPPED = """() => [...document.querySelectorAll(".plot")].flatMap((plot) => {
    const box = plot.getBoundingClientRect();
    return [...plot.querySelectorAll("svg.main-svg text")]
        .filter((text) => text.textContent && !text.closest(".modebar"))
        .map((text) => [text.textContent, text.getBoundingClientRect()])
        .filter(([, r]) => r.width && (r.left < box.left - 1 || r.right > box.right + 1
                                       || r.top < box.top - 1 || r.bottom > box.bottom + 1))
        .map(([text]) => `${plot.id}: ${text}`);
})"""
