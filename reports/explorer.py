"""The weight explorer as one HTML file that needs nothing else, kept safe as ``interp.reports.page`` says."""

from __future__ import annotations

from dataclasses import dataclass

from interp.reports.explorer_data import page_data
from interp.reports.numbers import plain
from interp.reports.page import Page, assets, rendered
from interp.results.weight_maps import WeightMaps

__all__ = ["ExplorerPage", "render_explorer"]

_SCRIPTS = ("page.js", "heat.js", "explorer_weights.js", "explorer_panels.js", "explorer.js")


@dataclass(frozen=True, kw_only=True)
class ExplorerPage(Page):
    title: str = "Weight explorer"
    thinned: str  # what was done to the numbers, in a sentence


def render_explorer(weight_maps: WeightMaps) -> ExplorerPage:
    """Equal maps give equal pages."""
    scripts, style = assets(_SCRIPTS, ("report.css", "explorer.css"))
    data = page_data(weight_maps, overhead=sum(map(len, (*scripts, style))) + 40_000)
    text = rendered(
        "explorer.html", scripts, style, weight_maps=weight_maps, title=_title(weight_maps), data=data.content,
        thinned=data.words(), exact=not data.bits, facts=_facts(weight_maps),
    )  # fmt: skip
    return ExplorerPage(text=text, thinned=data.words())


def _title(weight_maps: WeightMaps) -> str:
    first, last = weight_maps.checkpoints[0].info.name, weight_maps.checkpoints[-1].info.name
    between = {"single": "", "pair": " and "}.get(weight_maps.kind, " … ")
    return plain(f"{first}{between}{last}" if between else first)


def _facts(weight_maps: WeightMaps) -> list[tuple[str, list[tuple[str, str]]]]:
    """What is shown, checkpoint by checkpoint."""
    facts = []
    for entry in weight_maps.checkpoints:
        counts, info = entry.counts(), entry.info
        residual = "yes" if info.residual else "no"
        rows = [
            ("sha256 of the file", info.sha256),
            ("layout", f"{info.layout}, {info.dtype}"),
            ("network", f"layers: {info.layers}, heads: {info.heads}, numbers: {info.parameters}"),
            ("attention", f"keys: {info.keys}, scale: {info.scale}; residual stream: {residual}"),
            ("prediction", f"{'-' if info.readout_sign < 0 else '+'}{info.readout_channel}"),
            ("activations", "not clipped" if info.clip is None else f"clipped to ±{info.clip:g} after each layer"),
            ("not a number", f"{counts['nan']} NaN, {counts['inf']} infinite of {counts['numbers']}"),
            ("dead cells", f"{counts['dead']}, found by {entry.live_how}"),
        ]
        rows += [("note", note) for note in info.notes]
        facts.append((plain(info.name), [(name, plain(str(value))) for name, value in rows]))
    return facts
