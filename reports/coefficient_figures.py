"""Figures of what was recovered: the coefficients by three estimates, and the matrices of preconditioned descent."""

from __future__ import annotations

from typing import Any

from interp.reports import findings
from interp.reports.emit.html import coefficient_note
from interp.reports.numbers import DASH, Z95, estimate, is_finite, number
from interp.reports.plots import DIVERGING, axis, error_bars, label, layer_axis, layout, thinned
from interp.reports.remainder_findings import drawable, error_share, preconditioner_finding
from interp.results import Analysis, Coefficient, Figure, Layer, Panel, Preconditioner, Series, Table

__all__ = ["coefficient_figure", "preconditioner_figure"]

_ESTIMATES = (
    Series(key="output", label="output-weighted", colour="var(--series-1)", symbol="circle"),
    Series(key="weight", label="weight", colour="var(--series-2)", symbol="square-open"),
    Series(key="refit", label="refit", colour="var(--series-3)", symbol="diamond"),
)
_TRACES = " A trace term τ_a:bb multiplies the part a of a token by the sum of the squares of b over the keys."
_MOST_MATRICES = 8  # drawn; the table has all


def coefficient_figure(analysis: Analysis) -> Figure | None:
    names = list(dict.fromkeys(symbol for layer in analysis.layers for symbol, _ in _drawn(analysis, layer)))
    panels = [panel for name in names if (panel := _coefficient_panel(analysis, name)) is not None]
    if not analysis.layers:
        return None
    coefficients = findings.coefficient_rows(analysis)
    rows = tuple(
        (str(r.layer), r.symbol, r.output, r.weight, r.refit, "; ".join(f"{m.short}: {m.full}" for m in r.remarks))
        for r in coefficients
    )
    note = coefficient_note(analysis)
    traces = any(row.symbol.startswith("τ") for row in coefficients)
    return Figure(
        name="coefficients",
        finding=findings.coefficient_finding(analysis),
        description="Bars are 95 % intervals. A dead coefficient never reaches the output, so it has no point; a refit "
        "that the data do not determine is left out here and named in the table."
        + (_TRACES if traces else "")
        + (f" {note}." if note else ""),
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


# --- preconditioners ------------------------------------------------------------------------------------------------


def preconditioner_figure(analysis: Analysis) -> Figure | None:
    """The matrix of every layer; None for other algorithms than preconditioned gradient descent."""
    entries = [entry for entry in analysis.preconditioners if drawable(entry)]
    if not entries:
        return None
    references = list(dict.fromkeys(name for entry in entries for name in entry.distance))
    sizes = [share for entry in entries if (share := error_share(entry)) is not None]
    errors = (
        f" Their standard errors alone would make a distance of up to {number(max(sizes), 2)}."
        if sizes and max(sizes) > 1e-9
        else ""
    )
    rows = []
    for entry in entries:
        for i, (values, spread) in enumerate(zip(entry.refit, entry.refit_stderr, strict=True)):
            distances = [number(entry.distance.get(name), 2) if i == 0 else "" for name in references]
            cells = [estimate(value, error) for value, error in zip(values, spread, strict=True)]
            rows.append((f"{entry.layer}, x[{i}]", *distances, *cells))
    dim = len(entries[0].refit)
    return Figure(
        name="preconditioners",
        finding=preconditioner_finding(entries),
        description="Refitted matrices Ω of the step y ← y + ⟨α, Ω x⟩; row: input the gradient comes from, column: "
        "input it is applied to. Colours are centred on 0, with limits of each matrix. Distances are relative, after "
        f"the best scaling.{errors}",
        panels=tuple(_matrix_panel(entry) for entry in thinned(entries, _MOST_MATRICES)),
        legend=(),
        table=Table(
            header=("layer, row", *(f"distance to {name}" for name in references), *(f"x[{j}]" for j in range(dim))),
            rows=tuple(rows),
        ),
        compact=True,
    )


def _matrix_panel(entry: Preconditioner) -> Panel:
    limit = max((abs(v) for row in entry.refit for v in row if is_finite(v)), default=0.0) or 1.0
    hover = [
        [
            f"layer {entry.layer}, Ω[{i}, {j}]: {estimate(v, e)}"
            for j, (v, e) in enumerate(zip(row, errors, strict=True))
        ]
        for i, (row, errors) in enumerate(zip(entry.refit, entry.refit_stderr, strict=True))
    ]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": entry.refit,
        "zmin": -limit,
        "zmax": limit,
        "colorscale": DIVERGING,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}, "nticks": 5, "xpad": 4},
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    known = "; ".join(f"{name} {number(d, 2) if is_finite(d) else DASH}" for name, d in entry.distance.items())
    ticks = thinned(range(len(entry.refit)), 6)
    plot = layout(
        axis("applied to input", tickvals=ticks, showgrid=False, zeroline=False, constrain="domain"),
        axis(
            "gradient from input",
            tickvals=ticks,
            autorange="reversed",
            showgrid=False,
            zeroline=False,
            scaleanchor="x",
            constrain="domain",
        ),
    )
    return Panel(
        name=f"preconditioner-{entry.layer}",
        title=f"layer {entry.layer}",
        subtitle=f"distance: {known}" if known else "",
        data=[trace],
        layout=plot,
        height=300,
    )
