"""Figures of losses: beside the baselines, after every layer, and against the true noise level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from interp.reports import findings
from interp.reports.baseline_looks import baseline_series, coinciding, names_explained
from interp.reports.loss_findings import depth_finding, loss_finding
from interp.reports.noise_findings import (
    depth_profile_finding,
    is_whole,
    profile_baselines,
    profile_finding,
    recovered_sentence,
    trained_text,
)
from interp.reports.numbers import DASH, estimate, is_finite
from interp.reports.plots import (
    Point,
    axis,
    column_height,
    curve,
    error_bars,
    label,
    layer_axis,
    layout,
    lengths,
    log_axis,
    note,
    ordered_series,
    spans_decades,
    thinned,
    wrapped,
)
from interp.results import Analysis, Figure, Loss, NoiseProfile, Panel, ProfileSeries, Series, Table

__all__ = ["depth_figure", "depth_profile_figure", "loss_figure", "profile_figure"]

_LOSS_COLOURS = {"network": "var(--series-1)", "recovered": "var(--series-3)"}
_MSE = "mean squared error"


def loss_figure(analysis: Analysis) -> Figure | None:
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
        finding=loss_finding(analysis),
        description=f"{what}, on {analysis.evidence.prompts} fresh prompts and in squared units of the label."
        f"{_of_sequences(analysis)} Bars are 95 % intervals. A triangle at the edge is a value that is not above "
        f"0, or too small for the axis.{names_explained(entry.name for entry in losses)}",
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


def _of_sequences(analysis: Analysis) -> str:
    if analysis.sequences is None:
        return ""
    return (
        " The losses of the sequences above are half of it. The optimum is the prediction by the true W of the "
        "sequence, which no network is told."
    )


def _ladder(known: Sequence[tuple[Loss, float, float | None]], title: str) -> Panel:
    """Losses as points in one column, on a log axis when they span decades."""
    largest = max(value for _, value, _ in known)
    above = [value for _, value, _ in known if value > max(findings.ROUNDING * largest, 0.0)]
    log = spans_decades(above)
    edge = min(above, default=1.0) / 2
    low, high = lengths([(value, stderr) for _, value, stderr in known], log=log)
    off = [log and value < edge for _, value, _ in known]
    names = [wrapped(entry.label) for entry, _, _ in known]
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
    x = log_axis(title, above, dense=False, most=3) if log else axis(title, rangemode="tozero")
    if log:
        ends = max(value + more for (_, value, _), more in zip(known, high, strict=True))
        x["range"] = [
            math.log10(edge) - 0.03 * math.log10(ends / edge),
            math.log10(ends) + 0.05 * math.log10(ends / edge),
        ]
    plot = layout(
        x,
        axis("", autorange="reversed", categoryorder="array", categoryarray=names),
    )
    return Panel(name="losses", title="", data=[trace], layout=plot, height=column_height(names))


def _loss_axis(values: Sequence[float], *, log: bool) -> dict[str, Any]:
    return log_axis(_MSE, values, dense=True) if log else axis(_MSE, rangemode="tozero")


def depth_figure(analysis: Analysis) -> Figure | None:
    read_outs = tuple(enumerate(analysis.evidence.depth_losses))
    known = [(i, entry.mse, entry.stderr) for i, entry in read_outs if is_finite(entry.mse)]
    if not known:
        return None
    log = spans_decades([mse for _, mse, _ in known])
    series = Series(key="network", label="the network", colour=_LOSS_COLOURS["network"], symbol="circle")
    points = [Point(i, mse, stderr, f"after {_layers(i)}: {estimate(mse, stderr)}") for i, mse, stderr in known]
    trace = curve(series, points, log=log)
    shapes, notes = [], []
    lowest = findings.ROUNDING * max(mse for _, mse, _ in known)  # what is less is 0, and has no place on a log axis
    for name, title in (("null", "predict zero"), ("oracle", "optimum")):
        reference = findings.loss(analysis.evidence.losses, name)
        if reference is None or not is_finite(reference.mse) or (log and reference.mse < lowest):
            continue
        line = {"color": "var(--muted)", "dash": "dash", "width": 1.5}
        shapes.append(
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": reference.mse, "y1": reference.mse, "line": line}
        )
        height = math.log10(reference.mse) if log else reference.mse  # annotations on a log axis are placed by exponent
        # The curve falls from the upper line on the left to the lower one on the right: the labels keep clear of it,
        # and of the axis below.
        place = (
            {"x": 1, "xanchor": "right", "yanchor": "bottom"}
            if name == "null"
            else {"x": 0, "xanchor": "left", "yanchor": "bottom"}
        )
        notes.append(note(title, xref="paper", y=height, **place))
    depths = layer_axis([i for i, _, _ in known], "layers run before reading out")
    plot = layout(depths, _loss_axis([mse for _, mse, _ in known], log=log), shapes=shapes, annotations=notes)
    return Figure(
        name="depth",
        finding=depth_finding(analysis),
        description="The prediction is read out after every layer as if it were the last; in squared units of the "
        f"label.{_of_sequences(analysis)} Bars are 95 % intervals.",
        panels=(Panel(name="depth", title="", data=[trace], layout=plot, height=340),),
        legend=(),
        table=Table(
            header=("layers run", "mean squared error ± stderr", "above the optimum ± stderr"),
            rows=tuple((str(i), estimate(e.mse, e.stderr), estimate(e.excess, e.excess_stderr)) for i, e in read_outs),
        ),
    )


def _layers(count: int) -> str:
    return f"{count} layer" if count == 1 else f"{count} layers"


# --- against the true noise level -----------------------------------------------------------------------------------

_EXCESS = "excess squared error (label²)"
_HIGHEST = 1e3  # of predicting zero: what is larger is drawn at the edge
_DEEPEST = 1e-6  # of the largest value: what is smaller is drawn at the edge
_MOST_READ_OUTS = 9  # drawn; the table has all
_OWN = {
    "network": Series(key="network", label="the network", colour="var(--series-1)", symbol="circle"),
    "recovered": Series(key="recovered", label="", colour="var(--series-3)", symbol="diamond"),
}


def profile_figure(analysis: Analysis) -> Figure | None:
    """Excess loss of the network, the recovered algorithm and every baseline against the true noise level."""
    profile = None if analysis.regression is None else analysis.regression.profile
    if profile is None or not is_whole(profile):
        return None
    named = {s.name: s for s in profile.series}
    lines = [(_named(_OWN[name], named[name]), named[name]) for name in ("network", "recovered") if name in named]
    others = profile_baselines(profile)
    behind = [(baseline_series(s.name, s.label, [o.name for o in others]), s) for s in others]
    panel, beyond = _profile_panel("profile", profile, behind, lines)
    lines += behind
    return Figure(
        name="profile",
        finding=profile_finding(profile),
        description="Mean squared error above that of the best prediction (ridge with the true noise), in squared "
        f"units of the label; {_counts(profile)} prompts at every noise level, the same inputs and weights at all, not "
        "those of the losses under Evidence: even here means not told apart on these, at 95 %. "
        f"Shaded: {trained_text(profile)}, where the network was trained. Bars are 95 % intervals.{beyond} A ridge of "
        f"one penalty is the best prediction at one noise level, so its curve dips there. "
        f"{recovered_sentence(profile)}",
        panels=(panel,),
        legend=tuple(series for series, _ in lines),
        table=_profile_table(profile, [s for _, s in lines]),
    )


def depth_profile_figure(analysis: Analysis) -> Figure | None:
    """The same for the read-out after every layer."""
    profile = None if analysis.regression is None else analysis.regression.profile
    read_outs = [] if profile is None else [s for s in profile.series if s.name.startswith("layer-")]
    if profile is None or not is_whole(profile) or len(read_outs) < 2:
        return None
    shown = thinned(read_outs, _MOST_READ_OUTS)
    labels = [f"after {_layers(int(s.name.removeprefix('layer-')))}" for s in shown]
    lines = list(zip(ordered_series(labels, "layer-"), shown, strict=True))
    panel, beyond = _profile_panel("profile-depth", profile, [], lines)
    return Figure(
        name="profile-depth",
        finding=depth_profile_finding(profile),
        description="The prediction is read out after every layer as if it were the last; otherwise as in the figure "
        f"beside the baselines. Bars are 95 % intervals.{beyond}",
        panels=(panel,),
        legend=tuple(series for series, _ in lines),
        table=_profile_table(profile, read_outs),
    )


def _named(series: Series, data: ProfileSeries) -> Series:
    return Series(key=series.key, label=data.label, colour=series.colour, symbol=series.symbol)


def _counts(profile: NoiseProfile) -> str:
    low, high = min(profile.prompts), max(profile.prompts)
    return str(low) if low == high else f"{low} to {high}"


def _profile_panel(
    name: str,
    profile: NoiseProfile,
    behind: Sequence[tuple[Series, ProfileSeries]],
    front: Sequence[tuple[Series, ProfileSeries]],
) -> tuple[Panel, str]:
    """The plot, with the series ``behind`` thin, and sentences on what is drawn at its edge or on each other."""
    known = [v for _, data in (*behind, *front) for v in data.excess if is_finite(v)]
    ceiling = _HIGHEST * max(
        (v for s in profile.series if s.name == "null" for v in s.excess if is_finite(v)), default=1
    )
    largest = max((v for v in known if v <= ceiling), default=1.0)
    above = [v for v in known if max(_DEEPEST * largest, 0.0) < v <= ceiling]
    floor = min(above, default=1.0) / 2
    traces, curves = [], {}
    for k, (series, data) in enumerate((*behind, *front)):
        look: dict[str, Any] = {"dash": series.dash, "width": 1.5, "size": 6} if k < len(behind) else {"width": 2.5}
        points = [
            Point(sigma, value, stderr, f"{label(series.label)}, σ = {sigma:.3g}: {estimate(value, stderr)}")
            for sigma, value, stderr in zip(profile.sigma, data.excess, data.stderr, strict=True)
            if is_finite(value)
        ]
        curves[series.label] = [replace(p, y=min(max(p.y, floor), ceiling)) for p in points]  # as drawn
        traces.append(curve(series, points, log=True, floor=floor, ceiling=ceiling, **look))
    y = log_axis(_EXCESS, [*above, floor], dense=False)
    y["range"] = [
        math.log10(floor) - 0.05,
        math.log10(max(ceiling if any(v > ceiling for v in known) else 0, *above, 2 * floor)) + 0.15,
    ]
    x = axis("true noise σ (label units)", zeroline=False)
    shapes, notes = _training(profile)
    off = len(known) - len(above)
    beyond = f" Triangles at the edges are values too small or too large for the axis ({off})." if off else ""
    beyond += coinciding(curves, log=True)
    plot = layout(x, y, shapes=shapes, annotations=notes, margin={"l": 8, "r": 12, "t": 26, "b": 8})
    return Panel(name=name, title="", data=traces, layout=plot, height=420), beyond


def _training(profile: NoiseProfile) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The noise of training: a shaded range, or a line at every level."""
    low, high = profile.trained
    if profile.levels is None and high > low:
        spans = [(low, high)]
    else:
        width = 0.012 * max(profile.sigma)
        spans = [(v - width, v + width) for v in profile.levels or (low,)]
    shapes = [
        {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "x0": a, "x1": b, "layer": "below"}
        | {"fillcolor": "var(--shade)", "line": {"width": 0}}
        for a, b in spans
    ]
    middle = sum(spans[0]) / 2 if len(spans) == 1 else spans[0][1]
    anchor = "center" if len(spans) == 1 and high > low else "left"
    return shapes, [note("trained here", x=middle, xanchor=anchor, yref="paper", y=1, yanchor="bottom")]


def _profile_table(profile: NoiseProfile, series: Sequence[ProfileSeries]) -> Table:
    return Table(
        header=("excess ± stderr", *(f"σ = {sigma:.3g}" for sigma in profile.sigma)),
        rows=tuple((s.label, *(estimate(v, e) for v, e in zip(s.excess, s.stderr, strict=True))) for s in series),
    )
