"""Figures of the implicit weights after every layer: beside baselines, by eigen-direction, and as momentum."""

from __future__ import annotations

from interp.reports import findings
from interp.reports.baseline_looks import baseline_series, coinciding
from interp.reports.noise_findings import filter_finding, momentum_finding, noise_text
from interp.reports.numbers import estimate, interval, is_finite, number
from interp.reports.plots import (
    Point,
    axis,
    curve,
    error_bars,
    label,
    layer_axis,
    layout,
    log_axis,
    marks,
    ordered_series,
    spans_decades,
    thinned,
)
from interp.results import Analysis, Figure, Momentum, Panel, Series, SpectralFilter, Table

__all__ = ["distance_figure", "filter_figure", "momentum_figure"]


def distance_figure(analysis: Analysis) -> Figure | None:
    names = list(dict.fromkeys(name for m in analysis.implicit for name in m.distance))
    if not names:
        return None
    data, legend, dropped, curves = [], [], 0, {}
    for name in names:
        series = baseline_series(name, findings.baseline_label(analysis, name), names)
        known = [
            (m.layer, distance, m.distance_stderr.get(name))
            for m in analysis.implicit
            if is_finite(distance := m.distance.get(name))
        ]
        drawn = [(i, d, e) for i, d, e in known if d > 0]
        dropped += len(known) - len(drawn)
        legend.append(series)
        points = [Point(i, d, e, f"{label(series.label)}, after {_layers(i)}: {estimate(d, e)}") for i, d, e in drawn]
        curves[series.label] = points
        data.append(curve(series, points, log=True, dash=series.dash))
    distances = [distance for trace in data for distance in trace["y"]]
    depths = layer_axis([m.layer for m in analysis.implicit], "layers run")
    plot = layout(depths, log_axis("relative squared distance", distances, dense=True))
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
        f"b of a baseline: 0 is the same, 1 is as far as no weights at all. Bars are 95 % intervals."
        f"{coinciding(curves, log=True)}{zero}",
        panels=(Panel(name="distances", title="", data=data, layout=plot, height=420),) if distances else (),
        legend=tuple(legend),
        table=Table(header=("baseline", *(f"after {_layers(m.layer)}" for m in models)), rows=rows),
    )


def _layers(count: int) -> str:
    return f"{count} layer" if count == 1 else f"{count} layers"


# --- what is kept of least squares ----------------------------------------------------------------------------------

_MOST_PANELS = 8  # drawn; the table has all layers


def filter_figure(analysis: Analysis) -> Figure | None:
    """For every layer, what is kept of least squares by eigenvalue, for prompts of each noise, beside ridge's."""
    filters = () if analysis.regression is None else analysis.regression.filters
    layers = sorted({f.layer for f in filters if f.bins})
    if not layers:
        return None
    noises = sorted({f.noise for f in filters})
    legend = ordered_series([f"network, {noise_text(noise)}" for noise in noises], "noise-")
    by_noise = dict(zip(noises, legend, strict=True))
    log = spans_decades([b.eigenvalue for f in filters for b in f.bins])
    panels = []
    for layer in thinned(layers, _MOST_PANELS):
        groups = [f for f in filters if f.layer == layer]
        traces = [trace for f in groups for trace in _filter_traces(f, by_noise[f.noise])]
        title = "eigenvalue of Σ"
        values = [b.eigenvalue for f in groups for b in f.bins]
        x = log_axis(title, values, dense=False) if log else axis(title, rangemode="tozero", zeroline=False)
        panels.append(
            Panel(
                name=f"filter-{layer}",
                title=f"after {_layers(layer)}",
                data=traces,
                layout=layout(x, axis("share kept", zeroline=True, rangemode="tozero")),
                height=270,
            )
        )
    rows = tuple(
        (
            str(f.layer),
            noise_text(f.noise),
            number(b.eigenvalue, 3),
            estimate(b.filter, b.stderr),
            number(b.ridge, 3),
            number(f.r2, 4),
        )
        for f in filters
        for b in f.bins
    )
    return Figure(
        name="filters",
        finding=filter_finding(filters),
        description="Along every eigen-direction of Σ, the share of the least-squares weights that the network's "
        "weights w keep: 1 is least squares, 0 is nothing. Dotted, in the same colour: ridge regression with the true "
        "noise on the same prompts, the best possible. Bars are 95 % intervals.",
        panels=tuple(panels),
        legend=tuple(legend),
        table=Table(header=("layers run", "noise", "eigenvalue", "share kept ± stderr", "ridge", "R²"), rows=rows),
        compact=True,
    )


def _filter_traces(f: SpectralFilter, series: Series) -> list[dict[str, object]]:
    where = noise_text(f.noise)
    kept = [
        Point(
            b.eigenvalue, b.filter, b.stderr, f"{where}, eigenvalue {b.eigenvalue:.3g}: {estimate(b.filter, b.stderr)}"
        )
        for b in f.bins
    ]
    ridge = [
        Point(b.eigenvalue, b.ridge, None, f"ridge, {where}, eigenvalue {b.eigenvalue:.3g}: {number(b.ridge, 3)}")
        for b in f.bins
    ]
    return [curve(series, ridge, dash="dot", marked=False), curve(series, kept)]


# --- momentum -------------------------------------------------------------------------------------------------------

_ACCOUNTS = (
    ("step_r2", Series(key="step", label="w: plain gradient step", colour="var(--series-2)", symbol="square")),
    ("eta_r2", Series(key="eta", label="w: along the momentum u", colour="var(--series-1)", symbol="circle")),
    ("both_r2", Series(key="both", label="w: both together", colour="var(--series-3)", symbol="diamond")),
    ("u_r2", Series(key="u", label="u: decay and gradient", colour="var(--series-4)", symbol="triangle-up")),
)


def momentum_figure(analysis: Analysis) -> Figure | None:
    """R^2 of every account of what a layer does to (u, w); the numbers themselves are in the table."""
    entries = () if analysis.regression is None else analysis.regression.momentum
    present = [(name, series) for name, series in _ACCOUNTS if any(is_finite(getattr(m, name)) for m in entries)]
    if not any(is_finite(m.eta_r2) for m in entries):  # no momentum: both together are the step alone
        present = [(name, series) for name, series in present if name != "both_r2"]
    if not present:
        return None
    traces = []
    lowest = min(v for m in entries for name, _ in present if is_finite(v := getattr(m, name)))
    floor = max(lowest, -0.1)
    middle = (len(present) - 1) / 2
    for k, (name, series) in enumerate(present):
        points = [
            Point(
                m.layer + 0.12 * (k - middle), value, None, f"layer {m.layer}, {series.label}: R² = {_scored(m, name)}"
            )
            for m in entries
            if is_finite(value := getattr(m, name))
        ]
        trace = marks(series, points, floor=floor)
        bars = [_bar(m, name, floor) for m in entries if is_finite(getattr(m, name))]
        trace["error_y"] = error_bars([low for low, _ in bars], [high for _, high in bars], series.colour)
        traces.append(trace)
    plot = layout(
        layer_axis([m.layer for m in entries], "layer"), axis("held-out R²", range=[min(floor, 0) - 0.05, 1.06])
    )
    return Figure(
        name="momentum",
        finding=momentum_finding(entries),
        description="With g the negative gradient of half the squared residuals at the layer's own weights, what the "
        "layer adds to its weights w and to the vector u that it carries beside them is fitted with one number of each "
        "kind for all prompts: w + step g, w - η u (momentum), both, and u - β u + γ g. R² is on prompts that were not "
        "fitted, with 95 % intervals; it says what one number leaves. u after the last layer is never read.",
        panels=(Panel(name="momentum", title="", data=traces, layout=plot, height=300),),
        legend=tuple(series for _, series in present),
        table=Table(
            header=(
                "layer",
                "β ± stderr",
                "γ ± stderr",
                "R² of u [95 %]",
                "η ± stderr",
                "R² [95 %]",
                "step ± stderr",
                "R² [95 %]",
                "R² both [95 %]",
            ),
            rows=tuple(_momentum_row(m) for m in entries),
        ),
    )


def _scored(m: Momentum, name: str) -> str:
    return interval(getattr(m, name), getattr(m, f"{name}_ci"))


def _bar(m: Momentum, name: str, floor: float) -> tuple[float, float]:
    """Lengths of the interval below and above the point; none for a point at the edge."""
    value, (low, high) = getattr(m, name), getattr(m, f"{name}_ci")
    if value < floor or not is_finite(low) or not is_finite(high):
        return 0.0, 0.0
    return value - max(low, floor), high - value


def _momentum_row(m: Momentum) -> tuple[str, ...]:
    return (
        str(m.layer),
        estimate(m.beta, m.beta_stderr),
        estimate(m.gradient, m.gradient_stderr),
        _scored(m, "u_r2"),
        estimate(m.eta, m.eta_stderr),
        _scored(m, "eta_r2"),
        estimate(m.step, m.step_stderr),
        _scored(m, "step_r2"),
        _scored(m, "both_r2"),
    )
