"""Figures of what the weights hold: the shares of the omegas and traces, and what is left layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interp.reports import findings
from interp.reports.numbers import DASH, interval, is_finite, number, percent
from interp.reports.plots import axis, error_bars, layer_axis, layout
from interp.reports.remainder_findings import BLOCKS, block_share, remainder_finding
from interp.results import Analysis, Figure, Panel, Remainder, Series, Table

__all__ = ["remainder_figure", "split_figure"]

_PARTS = (
    Series(key="block_scalar", label="block-scalar (the four ω)", colour="var(--series-1)", symbol="square"),
    Series(key="trace", label="trace terms", colour="var(--series-2)", symbol="square"),
    Series(key="residual", label="residual (breaks the symmetry)", colour="var(--series-4)", symbol="square"),
)


def split_figure(analysis: Analysis) -> Figure | None:
    known = [layer for layer in analysis.layers if layer.split.residual is not None]
    if not known:
        return None
    omegas = any(layer.omega for layer in known)
    parts = _PARTS if omegas else (replace(_PARTS[0], label="block-scalar"), *_PARTS[1:])
    data = [
        {
            "type": "bar",
            "legendgroup": part.key,
            "name": part.label,
            "x": [layer.index for layer in known],
            "y": [100 * (getattr(layer.split, part.key) or 0.0) for layer in known],
            "marker": {"color": part.colour},
            "customdata": [f"layer {x.index}: {percent(getattr(x.split, part.key))} {part.label}" for x in known],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for part in parts
    ]
    plot = layout(
        layer_axis([layer.index for layer in analysis.layers], "layer"),
        axis("share of ‖K‖² (%)", range=[0, 101]),
        barmode="stack",
        bargap=0.6,
    )
    rows = tuple((str(x.index), *(percent(getattr(x.split, part.key)) for part in parts)) for x in analysis.layers)
    return Figure(
        name="split",
        finding=findings.split_finding(analysis),
        description="Energy is the squared size ‖K‖² of K, what the heads of a layer add up to; only its entries that "
        "can reach the output count.",
        panels=(Panel(name="split", title="", data=data, layout=plot, height=250),),
        legend=parts,
        table=Table(header=("layer", *(part.label for part in parts)), rows=rows),
    )


# --- what is left ---------------------------------------------------------------------------------------------------

_WEIGHTS = Series(key="weights", label="share of the weights in the four ω", colour="var(--series-2)", symbol="square")
_OMEGAS = Series(key="omegas", label="behaviour with four ω in its place", colour="var(--series-1)", symbol="circle")
_PROJECTED = Series(
    key="projected", label="behaviour with the rest taken out", colour="var(--series-3)", symbol="diamond"
)
_SECOND = (
    " Second: where the rest lies, by the update it makes (destination ← source) and the part of the Gram matrix that "
    "it reads; the rank is the number of equal directions it amounts to, of 'Gram matrix to update'."
)
_LOWEST = -0.1  # R^2 below it is drawn at the edge
_WORTH_A_ROW = 0.01  # share of a remainder from which a block has a row of its own


def remainder_figure(analysis: Analysis) -> Figure | None:
    """Layer by layer: what share of the weights and of the behaviour the omegas carry, and where the rest lies."""
    entries = () if analysis.regression is None else analysis.regression.remainder
    if not any(is_finite(entry.energy) for entry in entries):
        return None
    panels = [_shares(analysis, entries)]
    blocks = _blocks(entries)
    if blocks is not None:
        panels.append(blocks)
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    rows = tuple(
        (
            str(entry.layer),
            percent(shares.get(entry.layer)),
            interval(entry.omega_fidelity, entry.omega_ci),
            percent(entry.energy),
            interval(entry.projected_fidelity, entry.projected_ci),
            number(entry.rank, 2),
            ", ".join(percent(share) for share in entry.leading or ()) or DASH,
            "; ".join(f"{BLOCKS[key]} {percent(share)}" for key, share in _largest(entry)) or entry.why or DASH,
        )
        for entry in entries
    )
    return Figure(
        name="remainder",
        finding=remainder_finding(analysis),
        description=f"{'T' if blocks is None else 'First: t'}"
        "he share of a layer's weight energy in the four ω, and R² of the predictions against the network's when this "
        "one layer is replaced by four ω with their output-weighted values, or by its weights without what is neither "
        "ω nor trace. Bars are 95 % intervals; a triangle at the lower edge is an R² below "
        f"{_LOWEST}.{'' if blocks is None else _SECOND}",
        panels=tuple(panels),
        legend=(_WEIGHTS, _OMEGAS, _PROJECTED),
        table=Table(
            header=(
                *("layer", "weights in ω", "R², four ω in its place [95 %]", "weights left"),
                *("R², rest taken out [95 %]", "rank", "first five directions", "where it lies"),
            ),
            rows=rows,
        ),
    )


def _largest(entry: Remainder) -> list[tuple[tuple[str, str], float]]:
    shares = sorted(block_share(entry).items(), key=lambda pair: -pair[1])
    return [(key, share) for key, share in shares if share >= _WORTH_A_ROW]


def _shares(analysis: Analysis, entries: tuple[Remainder, ...]) -> Panel:
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    points: dict[str, list[tuple[int, float, tuple[float | None, float | None], str]]] = {
        "weights": [
            (e.layer, share, (None, None), f"layer {e.layer}, weights in the four ω: {percent(share)}")
            for e in entries
            if is_finite(share := shares.get(e.layer))
        ],
        "omegas": [
            (e.layer, r2, e.omega_ci, f"layer {e.layer}, four ω in its place: R² = {interval(r2, e.omega_ci)}")
            for e in entries
            if is_finite(r2 := e.omega_fidelity)
        ],
        "projected": [
            (e.layer, r2, e.projected_ci, f"layer {e.layer}, rest taken out: R² = {interval(r2, e.projected_ci)}")
            for e in entries
            if is_finite(r2 := e.projected_fidelity)
        ],
    }
    traces: list[dict[str, Any]] = []
    for offset, series in zip((-0.16, 0.0, 0.16), (_WEIGHTS, _OMEGAS, _PROJECTED), strict=True):
        known = points[series.key]
        off = [value < _LOWEST for _, value, _, _ in known]
        low, high = [], []
        for outside, (_, value, (bottom, top), _) in zip(off, known, strict=True):
            bounded = is_finite(bottom) and is_finite(top) and not outside
            low.append(value - bottom if bounded and is_finite(bottom) else 0.0)
            high.append(top - value if bounded and is_finite(top) else 0.0)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "legendgroup": series.key,
                "name": series.label,
                "x": [layer + offset for layer, _, _, _ in known],
                "y": [_LOWEST if outside else value for outside, (_, value, _, _) in zip(off, known, strict=True)],
                "error_y": error_bars(low, high, series.colour),
                "marker": {
                    "color": series.colour,
                    "size": 9,
                    "symbol": ["triangle-down" if outside else series.symbol for outside in off],
                },
                "customdata": [text for _, _, _, text in known],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    layers = layer_axis([entry.layer for entry in entries], "layer")
    plot = layout(layers, axis("share, or R²", range=[_LOWEST - 0.05, 1.06]))
    return Panel(name="remainder-shares", title="what the four ω carry", data=traces, layout=plot, height=340)


def _blocks(entries: tuple[Remainder, ...]) -> Panel | None:
    """A heat map: rows are blocks with at least a hundredth of some layer's remainder, columns are layers."""
    shares = {entry.layer: block_share(entry) for entry in entries}
    rows = [key for key in BLOCKS if any(part.get(key, 0.0) >= _WORTH_A_ROW for part in shares.values())]
    if not rows:
        return None
    z = [[shares[e.layer].get(key) for e in entries] for key in rows]
    hover = [[_cell(e, key, shares[e.layer].get(key)) for e in entries] for key in rows]
    wide = len(entries) > 5  # no room for more than the number of the layer, on a narrow screen
    cells = [["" if v is None or v < 0.005 or wide else f"{100 * v:.0f} %" for v in line] for line in z]
    trace = {
        "type": "heatmap",
        "z": z,
        "x": list(range(len(entries))),
        "y": [BLOCKS[key].replace(", read from ", " · ") for key in rows],
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "var(--shade)"], [1, "var(--heat)"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "text": cells,
        "texttemplate": "%{text}",
        "textfont": {"color": "var(--ink)", "size": 12},
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    ticks = [
        str(e.layer) if wide else f"{e.layer}<br>{_short(e.energy)}<br>{'' if e.rank is None else number(e.rank, 2)}"
        for e in entries
    ]
    x = axis(
        "layer" if wide else "layer; share left; rank",
        tickangle=0,
        tickvals=list(range(len(entries))),
        ticktext=ticks,
        showgrid=False,
        zeroline=False,
        ticks="",
    )
    y = axis("update · read from", autorange="reversed", showgrid=False, ticks="")
    height = 150 + 30 * max(len(rows), 3)
    return Panel(name="remainder-blocks", title="where the rest lies", data=[trace], layout=layout(x, y), height=height)


def _cell(entry: Remainder, key: tuple[str, str], share: float | None) -> str:
    rank = "" if entry.rank is None else f"; rank {number(entry.rank, 2)}"
    return f"layer {entry.layer}, {BLOCKS[key]}: {percent(share)} of what is left ({_short(entry.energy)}{rank})"


def _short(share: float | None) -> str:
    """A percentage that fits under a column."""
    if not is_finite(share):
        return DASH
    return "0" if share < 5e-6 else percent(share)
