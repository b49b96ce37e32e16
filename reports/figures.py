"""Figures of the HTML report, as plotly data and layout.

A figure takes an Analysis and nothing else. Its title is its finding; its numbers are also a table.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from interp.reports import findings
from interp.reports.numbers import DASH, Z95, estimate, is_finite, percent, plain
from interp.reports.plots import (
    Figure,
    Panel,
    Series,
    Table,
    axis,
    error_bars,
    label,
    layer_axis,
    layout,
    lengths,
    log_axis,
    spans_decades,
)
from interp.results import Analysis, Coefficient, Layer, Loss

__all__ = ["figures"]


def figures(analysis: Analysis) -> dict[str, Figure]:
    """All figures that the analysis has numbers for, by name."""
    made = (_coefficients(analysis), _losses(analysis), _depth(analysis), _distances(analysis), _split(analysis))
    return {figure.name: figure for figure in made if figure is not None}


# --- coefficients ---------------------------------------------------------------------------------------------------

_ESTIMATES = (
    Series(key="output", label="output-weighted (headline)", colour="var(--series-1)", symbol="circle"),
    Series(key="weight", label="weight", colour="var(--series-2)", symbol="square-open"),
    Series(key="refit", label="refit", colour="var(--series-3)", symbol="diamond"),
)


def _coefficients(analysis: Analysis) -> Figure | None:
    names = list(dict.fromkeys(symbol for layer in analysis.layers for symbol, _ in _drawn(analysis, layer)))
    panels = [panel for name in names if (panel := _coefficient_panel(analysis, name)) is not None]
    if not analysis.layers:
        return None
    rows = tuple(
        (str(r.layer), r.symbol, r.output, r.weight, r.refit, "; ".join(f"{m.short}: {m.full}" for m in r.remarks))
        for r in findings.coefficient_rows(analysis)
    )
    return Figure(
        name="coefficients",
        finding=findings.coefficient_finding(analysis),
        description="Bars are 95 % intervals. A dead coefficient never reaches the output, so it has no point; a refit "
        "that the data do not determine is left out here and named in the table.",
        panels=tuple(panels),
        legend=_ESTIMATES,
        table=Table(header=("layer", "term", "output ± stderr", "weight", "refit ± stderr", "remark"), rows=rows),
    )


def _drawn(analysis: Analysis, layer: Layer) -> tuple[tuple[str, Coefficient], ...]:
    return findings.coefficients(layer, traces=findings.shows_traces(analysis))


def _coefficient_panel(analysis: Analysis, symbol: str) -> Panel | None:
    points = [(layer.index, c) for layer in analysis.layers for name, c in _drawn(analysis, layer) if name == symbol]
    if not any(_pair(c, series.key) for _, c in points for series in _ESTIMATES):
        return None
    pretty = f"{symbol[0]}<sub>{label(symbol[2:])}</sub>"
    data = []
    for offset, series in zip((-0.16, 0.0, 0.16), _ESTIMATES, strict=True):
        known = [(i, *pair) for i, c in points if (pair := _pair(c, series.key)) is not None]
        colour = series.colour
        spread = [Z95 * (stderr or 0.0) for _, _, stderr in known]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "legendgroup": series.key,
                "name": series.label,
                "x": [i + offset for i, _, _ in known],
                "y": [value for _, value, _ in known],
                **({} if series.key == "weight" else {"error_y": error_bars(spread, spread, colour)}),
                "marker": {"color": colour, "symbol": series.symbol, "size": 9, "line": {"width": 2, "color": colour}},
                "customdata": [f"layer {i}, {series.key}: {estimate(value, stderr)}" for i, value, stderr in known],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    dead = [
        {"x": i, "y": 0.02, "yref": "paper", "yanchor": "bottom", "text": "dead", "showarrow": False}
        | {"font": {"color": "var(--muted)", "size": 12}}
        for i, c in points
        if not c.live
    ]
    layers = layer_axis([i for i, _ in points], "layer")
    plot = layout(layers, axis(f"coefficient {pretty}", zeroline=True), annotations=dead)
    return Panel(name=f"coefficient-{_slug(symbol)}", title=symbol, data=data, layout=plot, height=260)


def _slug(symbol: str) -> str:
    return {"ω": "omega", "τ": "tau"}[symbol[0]] + "-" + "".join(c if c.isalnum() else "-" for c in symbol[2:])


def _pair(c: Coefficient, key: str) -> tuple[float, float | None] | None:
    """Value and standard error of one estimate, None where there is nothing to draw."""
    if key == "refit" and c.undetermined:
        return None
    value, stderr = {
        "output": (c.output, c.stderr),
        "weight": (c.weight, None),
        "refit": (c.refit, c.refit_stderr),
    }[key]
    return None if value is None or not c.live else (value, stderr)


# --- losses ---------------------------------------------------------------------------------------------------------

_LOSS_COLOURS = {"network": "var(--series-1)", "recovered": "var(--series-3)"}
_MSE = "mean squared error"


def _losses(analysis: Analysis) -> Figure | None:
    losses = analysis.evidence.losses
    if not losses:
        return None
    paired = any(is_finite(entry.excess) for entry in losses)
    title = "above the optimum" if paired else _MSE
    known = [
        (entry, value, entry.excess_stderr if paired else entry.stderr)
        for entry in losses
        if is_finite(value := entry.excess if paired else entry.mse) and not (paired and entry.name == "oracle")
    ]
    panels = (_ladder(known, title),) if known else ()
    what = "The mean squared error above that of the best possible prediction on the same prompts" if paired else _MSE
    return Figure(
        name="losses",
        finding=findings.loss_finding(analysis),
        description=f"{what}, on {analysis.evidence.prompts} fresh prompts and in squared units of the label. Bars are "
        "95 % intervals. A triangle at the edge is a value that is not above 0, or too small for the axis.",
        panels=panels,
        legend=(),
        table=Table(
            header=("predictor", "mean squared error ± stderr", "above the optimum ± stderr"),
            rows=tuple(
                (
                    e.label,
                    estimate(e.mse, e.stderr),
                    DASH if e.name == "oracle" else estimate(e.excess, e.excess_stderr),
                )
                for e in losses
            ),
        ),
    )


def _ladder(known: Sequence[tuple[Loss, float, float | None]], title: str) -> Panel:
    """Losses as points in one column, on a log axis when they span decades."""
    largest = max(value for _, value, _ in known)
    above = [value for _, value, _ in known if value > max(findings.ROUNDING * largest, 0.0)]
    log = spans_decades(above)
    edge = min(above, default=1.0) / 2
    low, high = lengths([(value, stderr) for _, value, stderr in known], log=log)
    off = [log and value < edge for _, value, _ in known]
    names = [_wrapped(entry.label) for entry, _, _ in known]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [edge if outside else value for outside, (_, value, _) in zip(off, known, strict=True)],
        "y": names,
        "error_x": error_bars(
            [0.0 if outside else length for outside, length in zip(off, low, strict=True)],
            [0.0 if outside else length for outside, length in zip(off, high, strict=True)],
            "var(--muted)",
        ),
        "marker": {
            "color": [_LOSS_COLOURS.get(entry.name, "var(--muted)") for entry, _, _ in known],
            "symbol": ["triangle-left" if outside else "circle" for outside in off],
            "size": 11,
        },
        "customdata": [f"{label(entry.label)}: {estimate(value, stderr)}" for entry, value, stderr in known],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    plot = layout(
        log_axis(title, above, dense=False) if log else axis(title, rangemode="tozero"),
        axis("", autorange="reversed", categoryorder="array", categoryarray=names),
    )
    return Panel(name="losses", title="", data=[trace], layout=plot, height=_ladder_height(names))


def _loss_axis(values: Sequence[float], *, log: bool) -> dict[str, Any]:
    return log_axis(_MSE, values, dense=True) if log else axis(_MSE, rangemode="tozero")


def _wrapped(text: str) -> str:
    """A tick label in two lines of at most 24 characters, which leave a narrow screen room for the plot. The whole text
    is in the hover and in the table."""
    return "<br>".join(label(line) for line in textwrap.wrap(plain(text), 24, max_lines=2, placeholder="…"))


def _ladder_height(names: Sequence[str]) -> int:
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    return 80 + max(len(names), 2) * (10 + 17 * lines)


def _depth(analysis: Analysis) -> Figure | None:
    read_outs = tuple(enumerate(analysis.evidence.depth_losses))
    known = [(i, entry.mse, entry.stderr) for i, entry in read_outs if is_finite(entry.mse)]
    if not known:
        return None
    log = spans_decades([mse for _, mse, _ in known])
    low, high = lengths([(mse, stderr) for _, mse, stderr in known], log=log)
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [i for i, _, _ in known],
        "y": [mse for _, mse, _ in known],
        "error_y": error_bars(low, high, "var(--series-1)"),
        "line": {"color": "var(--series-1)", "width": 2},
        "marker": {"size": 8},
        "customdata": [f"after {_layers(i)}: {estimate(mse, stderr)}" for i, mse, stderr in known],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    shapes, notes = [], []
    for name, title in (("null", "predict zero"), ("oracle", "optimum")):
        reference = findings.loss(analysis.evidence.losses, name)
        if reference is None or not is_finite(reference.mse) or (log and reference.mse <= 0):
            continue
        line = {"color": "var(--muted)", "dash": "dash", "width": 1.5}
        shapes.append(
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": reference.mse, "y1": reference.mse, "line": line}
        )
        height = math.log10(reference.mse) if log else reference.mse  # annotations on a log axis are placed by exponent
        # The curve falls from the upper line on the left to the lower one on the right: the labels keep clear of it.
        place = (
            {"x": 1, "xanchor": "right", "yanchor": "bottom"}
            if name == "null"
            else {"x": 0, "xanchor": "left", "yanchor": "top"}
        )
        font = {"color": "var(--muted)", "size": 12}
        notes.append({"xref": "paper", "y": height, "text": title, "showarrow": False, "font": font} | place)
    depths = layer_axis([i for i, _, _ in known], "layers run before reading out")
    plot = layout(depths, _loss_axis([mse for _, mse, _ in known], log=log), shapes=shapes, annotations=notes)
    return Figure(
        name="depth",
        finding=findings.depth_finding(analysis),
        description="The prediction is read out after every layer as if it were the last; in squared units of the "
        "label. Bars are 95 % intervals.",
        panels=(Panel(name="depth", title="", data=[trace], layout=plot, height=340),),
        legend=(),
        table=Table(
            header=("layers run", "mean squared error ± stderr", "above the optimum ± stderr"),
            rows=tuple((str(i), estimate(e.mse, e.stderr), estimate(e.excess, e.excess_stderr)) for i, e in read_outs),
        ),
    )


def _layers(count: int) -> str:
    return f"{count} layer" if count == 1 else f"{count} layers"


# --- implicit weights -----------------------------------------------------------------------------------------------

# What a baseline is decides its colour, which of its kind it is its symbol: no two lines differ by colour alone.
_KINDS = (
    (("oracle", "ridge"), "var(--series-1)"),
    (("tunedrr", "adarr", "constrr"), "var(--series-3)"),
    (("ols",), "var(--series-4)"),
    (("gd-1", "gd-2", "gd-4", "gd-8"), "var(--series-2)"),
)
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross")


def _distances(analysis: Analysis) -> Figure | None:
    names = list(dict.fromkeys(name for m in analysis.implicit for name in m.distance))
    if not names:
        return None
    data, legend, dropped = [], [], 0
    for name in names:
        series = _baseline_series(analysis, name, names)
        known = [
            (m.layer, distance, m.distance_stderr.get(name))
            for m in analysis.implicit
            if is_finite(distance := m.distance.get(name))
        ]
        drawn = [(i, d, e) for i, d, e in known if d > 0]
        dropped += len(known) - len(drawn)
        low, high = lengths([(d, e) for _, d, e in drawn], log=True)
        legend.append(series)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "legendgroup": series.key,
                "name": label(series.label),
                "x": [i for i, _, _ in drawn],
                "y": [d for _, d, _ in drawn],
                "error_y": error_bars(low, high, series.colour),
                "line": {"color": series.colour, "width": 2},
                "marker": {"symbol": series.symbol, "size": 8},
                "customdata": [f"{label(series.label)}, after {_layers(i)}: {estimate(d, e)}" for i, d, e in drawn],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    points = [distance for trace in data for distance in trace["y"]]
    depths = layer_axis([m.layer for m in analysis.implicit], "layers run")
    plot = layout(depths, log_axis("relative squared distance", points, dense=True))
    models = sorted(analysis.implicit, key=lambda m: m.layer)
    rows = tuple(
        (findings.baseline_label(analysis, n), *(estimate(m.distance.get(n), m.distance_stderr.get(n)) for m in models))
        for n in names
    )
    zero = f" Distances of 0, which this axis cannot show: {dropped}." if dropped else ""
    return Figure(
        name="distances",
        finding=findings.distance_finding(analysis),
        description="E|w - b|² / E|b|² between the implicit weights w of the network after each layer and the weights "
        f"b of a baseline: 0 is the same, 1 is as far as no weights at all. Bars are 95 % intervals.{zero}",
        panels=(Panel(name="distances", title="", data=data, layout=plot, height=420),) if points else (),
        legend=tuple(legend),
        table=Table(header=("baseline", *(f"after {_layers(m.layer)}" for m in models)), rows=rows),
    )


def _baseline_series(analysis: Analysis, name: str, names: Sequence[str]) -> Series:
    kind, colour = next(((k, c) for k, c in _KINDS if name in k), (tuple(names), "var(--muted)"))
    symbol = _SYMBOLS[[n for n in names if n in kind].index(name) % len(_SYMBOLS)]
    return Series(key=label(name), label=findings.baseline_label(analysis, name), colour=colour, symbol=symbol)


# --- energy ---------------------------------------------------------------------------------------------------------

_PARTS = (
    Series(key="block_scalar", label="block-scalar (the four ω)", colour="var(--series-1)", symbol="square"),
    Series(key="trace", label="trace terms", colour="var(--series-2)", symbol="square"),
    Series(key="residual", label="residual (breaks the symmetry)", colour="var(--series-4)", symbol="square"),
)


def _split(analysis: Analysis) -> Figure | None:
    known = [layer for layer in analysis.layers if layer.split.residual is not None]
    if not known:
        return None
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
        for part in _PARTS
    ]
    plot = layout(
        layer_axis([layer.index for layer in analysis.layers], "layer"),
        axis("share of ‖K‖² (%)", range=[0, 101]),
        barmode="stack",
        bargap=0.6,
    )
    rows = tuple((str(x.index), *(percent(getattr(x.split, part.key)) for part in _PARTS)) for x in analysis.layers)
    return Figure(
        name="split",
        finding=findings.split_finding(analysis),
        description="Energy is the squared size ‖K‖² of K, what the heads of a layer add up to; only its entries that "
        "can reach the output count.",
        panels=(Panel(name="split", title="", data=data, layout=plot, height=250),),
        legend=_PARTS,
        table=Table(header=("layer", *(part.label for part in _PARTS)), rows=rows),
    )
