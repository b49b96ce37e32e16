"""Figures of how layers adapt to the prompt, and of what every omega is worth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from interp.reports.noise_findings import shrinkage_finding, step_finding
from interp.reports.numbers import estimate, interval, is_finite, number
from interp.reports.plots import Point, axis, curve, error_bars, label, layout, lengths, log_axis, marks, thinned
from interp.reports.remainder_findings import diverges, effect_text, omega_finding
from interp.results import Adaptation, AdaptationBin, Analysis, Figure, OmegaEffect, Panel, Series, Table

__all__ = ["omega_figure", "shrinkage_figure", "step_figure", "varies"]

_OBSERVED = Series(key="observed", label="the network", colour="var(--series-1)", symbol="circle")
_WEIGHTS = Series(key="weights", label="predicted by the layer's own weights", colour="var(--series-2)", symbol="dash")
_WITHOUT = Series(key="without", label="predicted with ω_xy = 0", colour="var(--series-4)", symbol="dot")
_MOST_PANELS = 8  # drawn; the table has all layers
_SENSELESS = -10  # R² below it says no more than that the prediction is far off
_REACH = 1.5  # of what the network's factor spans: predictions farther from it are outside the plot
_CONSTANT = 1e-9  # relative spread below which a factor is the same for all prompts


def _recovered(analysis: Analysis) -> Series:
    what = "recovered algorithm" if analysis.verdict.recognized else "closest family"
    return Series(key="recovered", label=f"predicted by the {what}", colour="var(--series-3)", symbol="line")


def varies(entries: Sequence[Adaptation]) -> bool:
    """Does any layer treat prompts differently?"""
    for entry in entries:
        values = [b.observed for b in entry.bins]
        if values and max(values) - min(values) > _CONSTANT * max(abs(v) for v in values):
            return True
    return False


def shrinkage_figure(analysis: Analysis) -> Figure | None:
    entries = () if analysis.regression is None else analysis.regression.shrinkage
    if not varies(entries):
        return None
    return _adaptation(
        analysis,
        "shrinkage",
        entries,
        shrinkage_finding(entries),
        "The factor by which a layer multiplies the labels and the weights so far, against the label energy λ of the "
        "prompt as it enters the layer; 1 + ω_yy λ for a layer of four ω. Each point is a tenth of the prompts.",
        ("label energy λ (label²)", "factor on the label"),
    )


def step_figure(analysis: Analysis) -> Figure | None:
    entries = () if analysis.regression is None else analysis.regression.step
    if not any(entry.bins for entry in entries):
        return None
    return _adaptation(
        analysis,
        "step",
        entries,
        step_finding(entries),
        "The size of a layer's step along the negative gradient, against the squared residuals of least squares: what "
        "noise leaves in the context. ω_xy is what can make the step depend on it. Each point is a tenth of the "
        "prompts.",
        ("residual energy (label²)", "step"),
    )


def _adaptation(
    analysis: Analysis,
    name: str,
    entries: Sequence[Adaptation],
    finding: str,
    description: str,
    axes: tuple[str, str],
) -> Figure:
    recovered = _recovered(analysis)
    without = any(b.without is not None for entry in entries for b in entry.bins)
    predictions: list[tuple[Series, Callable[[AdaptationBin], float | None], str]] = [
        (recovered, lambda b: b.predicted, "solid"),
        (_WEIGHTS, lambda b: b.by_weights, "dash"),
    ]
    if without:
        predictions.append((_WITHOUT, lambda b: b.without, "dot"))
    panels = []
    for entry in thinned([e for e in entries if e.bins], _MOST_PANELS):
        where = f"layer {entry.layer}"
        traces = []
        for series, read, dash in predictions:
            points = [
                Point(b.x, v, None, f"{where}, {series.label}: {number(v, 3)}")
                for b in entry.bins
                if (v := read(b)) is not None
            ]
            traces.append(curve(series, points, dash=dash, marked=False))
        seen = [Point(b.x, b.observed, b.stderr, f"{where}: {estimate(b.observed, b.stderr)}") for b in entry.bins]
        traces.append(marks(_OBSERVED, seen))
        scores = [("algorithm", entry.r2, entry.r2_ci), ("weights", entry.r2_by_weights, entry.r2_by_weights_ci)]
        known = ", ".join(f"{what} {_score(r2, bounds)}" for what, r2, bounds in scores if is_finite(r2))
        panels.append(
            Panel(
                name=f"{name}-{entry.layer}",
                title=where,
                subtitle=f"R²: {known}" if known else "the same for all prompts",
                data=traces,
                layout=layout(
                    axis(axes[0], rangemode="tozero", zeroline=False),
                    axis(axes[1], **_visible(traces[:-1], traces[-1])),
                ),
                height=270,
            )
        )
    header = ("layer", axes[0], f"{axes[1]} ± stderr", "recovered", "own weights", *(("ω_xy = 0",) if without else ()))
    rows = tuple(
        (
            str(entry.layer),
            number(b.x),
            estimate(b.observed, b.stderr),
            number(b.predicted),
            number(b.by_weights),
            *((number(b.without),) if without else ()),
        )
        for entry in entries
        for b in entry.bins
    )
    return Figure(
        name=name,
        finding=finding,
        description=f"{description} Bars and brackets are 95 % intervals; R² is over prompts, and negative where the "
        "mean would predict better. The axes are those of the network: a prediction may leave the plot.",
        panels=tuple(panels),
        legend=(_OBSERVED, *(series for series, _, _ in predictions)),
        table=Table(header=header, rows=rows),
        compact=True,
    )


def _score(r2: float, bounds: tuple[float | None, float | None]) -> str:
    return interval(r2, bounds) if r2 >= _SENSELESS else f"far off (below {_SENSELESS:.0f})"


def _visible(predicted: Sequence[dict[str, Any]], observed: dict[str, Any]) -> dict[str, Any]:
    """Limits of an axis on which what the network does is seen, and a factor that never changes looks like one. A
    prediction that is far off leaves the plot."""
    bars = observed.get("error_y", {"array": [0.0], "arrayminus": [0.0]})
    low = min(v - b for v, b in itertools.zip_longest(observed["y"], bars["arrayminus"], fillvalue=0.0))
    high = max(v + b for v, b in itertools.zip_longest(observed["y"], bars["array"], fillvalue=0.0))
    middle, spread = (high + low) / 2, high - low
    values = [v for trace in predicted for v in trace["y"]]
    if max([spread, *(abs(v - middle) for v in values)]) <= 1e-6 * abs(middle):
        half = 0.1 * abs(middle) or 0.1
        return {"range": [middle - half, middle + half]}
    reach = _REACH * max(spread, 0.01 * abs(middle))
    near = [v for v in values if low - reach <= v <= high + reach]
    if len(near) == len(values):
        return {}
    low, high = min([low, *near]), max([high, *near])
    return {"range": [low - 0.08 * (high - low), high + 0.08 * (high - low)]}


# --- what an omega is worth -----------------------------------------------------------------------------------------

_ZEROED = Series(key="zeroed", label="set to zero", colour="var(--series-2)", symbol="square-open")
_WORTH = Series(key="worth", label="with the others refitted: its worth", colour="var(--series-1)", symbol="circle")
_LEAST = 1e-4  # of the largest value: what is smaller is drawn at the edge


def omega_figure(analysis: Analysis) -> Figure | None:
    omegas = None if analysis.regression is None else analysis.regression.omegas
    if omegas is None or not any(is_finite(e.zeroed) or is_finite(e.worth) for e in omegas.effects):
        return None
    groups = [
        ("in all layers at once", [e for e in omegas.effects if e.layer is None]),
        ("in one layer", [e for e in omegas.effects if e.layer is not None]),
    ]
    panels = [_effects(analysis, f"omegas-{i}", title, effects) for i, (title, effects) in enumerate(groups) if effects]
    legend = tuple(
        series for series in (_ZEROED, _WORTH) if any(is_finite(getattr(e, series.key)) for e in omegas.effects)
    )
    skipped = f" {omegas.note[:1].upper()}{omegas.note[1:]}." if omegas.note else ""
    gain = (
        f" Fitting all of them to the task changes it by {estimate(omegas.refitted, omegas.refitted_stderr)}; worth is "
        "counted from there."
        if is_finite(omegas.refitted)
        else ""
    )
    return Figure(
        name="omegas",
        finding=omega_finding(analysis),
        description=f"How much the squared error of the {omegas.family} algorithm rises when an ω is taken out, on "
        f"{omegas.prompts} prompts. Zeroing alone can say more or less than an ω is worth, because the other "
        f"coefficients were fitted together with it: its worth is counted with the others fitted anew.{gain} Nothing "
        f"taken out, the error is {estimate(omegas.excess, omegas.excess_stderr)} above the best possible. Bars are "
        "95 % intervals; triangles at the left are values too small for the axis or not above 0, triangles at the "
        f"right diverge: a few prompts explode, and the mean is no number to rely on.{skipped}",
        panels=tuple(panels),
        legend=legend,
        table=Table(
            header=("taken out", "layer", "zeroed ± stderr", "refitted ± stderr", "worth ± stderr"),
            rows=tuple(
                (
                    _plain(e),
                    "all" if e.layer is None else str(e.layer),
                    effect_text(analysis, e.zeroed, e.zeroed_stderr),
                    effect_text(analysis, e.refitted, e.refitted_stderr),
                    effect_text(analysis, e.worth, e.worth_stderr),
                )
                for e in omegas.effects
            ),
        ),
    )


def _plain(effect: OmegaEffect) -> str:
    return " + ".join(f"ω_{name}" for name in effect.coefficient.split("+"))


def _tick(effect: OmegaEffect) -> str:
    names = " + ".join(f"ω<sub>{label(name)}</sub>" for name in effect.coefficient.split("+"))
    return names if effect.layer is None else f"{names}, layer {effect.layer}"


def _effects(analysis: Analysis, name: str, title: str, effects: Sequence[OmegaEffect]) -> Panel:
    """One row per effect, on a log axis."""
    pairs = [(e, s, getattr(e, s.key), getattr(e, f"{s.key}_stderr")) for e in effects for s in (_ZEROED, _WORTH)]
    known = [(e, s, v, error) for e, s, v, error in pairs if is_finite(v)]
    finite = [v for _, _, v, error in known if v > 0 and not diverges(analysis, v, error)]
    largest = max(finite, default=1.0)
    above = [v for v in finite if v > _LEAST * largest]
    left, right = min(above, default=largest) / 2, 3 * largest
    traces: list[dict[str, Any]] = []
    for series in (_ZEROED, _WORTH):
        own = [(e, v, error) for e, s, v, error in known if s is series]
        if not own:
            continue
        beyond = [diverges(analysis, v, error) for _, v, error in own]
        below = [v < left for _, v, _ in own]
        low, high = lengths([(v, error) for _, v, error in own], log=True)
        edge = [a or b for a, b in zip(beyond, below, strict=True)]
        shapes = zip(beyond, below, strict=True)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "text": ["diverges " if a else "" for a in beyond],
                "textposition": "middle left",
                "textfont": {"color": series.colour, "size": 12},
                "legendgroup": series.key,
                "name": series.label,
                "x": [right if a else left if b else v for (_, v, _), a, b in zip(own, beyond, below, strict=True)],
                "y": [_tick(e) for e, _, _ in own],
                "error_x": error_bars(
                    [0.0 if e else v for v, e in zip(low, edge, strict=True)],
                    [0.0 if e else v for v, e in zip(high, edge, strict=True)],
                    series.colour,
                ),
                "marker": {
                    "color": series.colour,
                    "size": 10,
                    "symbol": ["triangle-right" if a else "triangle-left" if b else series.symbol for a, b in shapes],
                    "line": {"width": 2, "color": series.colour},
                },
                "customdata": [f"{_tick(e)}, {series.label}: {effect_text(analysis, v, error)}" for e, v, error in own],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    rows = [_tick(e) for e in effects]
    x = log_axis("rise of the squared error (label²)", [left, right], dense=False)
    x["range"] = [math.log10(left) - 0.1, math.log10(right) + 0.1]
    y = axis("", autorange="reversed", categoryorder="array", categoryarray=rows)
    return Panel(name=name, title=title, data=traces, layout=layout(x, y), height=90 + 28 * max(len(rows), 3))
