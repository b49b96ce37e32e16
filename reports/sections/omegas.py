"""What every ω is worth to the algorithm, and what a network for noise would lose without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from interp.reports.numbers import DASH, estimate, is_finite, listed, number
from interp.reports.plots import Point, axis, charted, label, log_axis, marks, plot
from interp.reports.registry import section
from interp.reports.sections.losses import loss
from interp.reports.tabulate import tabulate
from interp.results import Analysis, OmegaEffect, Panel, Regression, Section, Series, Skipped

__all__ = ["diverges", "effect_text", "omega_finding"]

UNSURE = 1 / 3  # standard error relative to the value from which a mean hangs on a few exploding prompts
_LEAST = 1e-4  # of the largest value: what is smaller is drawn at the edge
_ZEROED = Series(key="zeroed", label="set to zero", colour="var(--series-2)", symbol="square-open")
_WORTH = Series(key="worth", label="with the others refitted: its worth", colour="var(--series-1)", symbol="circle")


def diverges(analysis: Analysis, value: float | None, stderr: float | None) -> bool:
    """A mean loss beyond that of predicting zero, with an error about as large: a few prompts explode, and more prompts
    would give another number."""
    if not is_finite(value) or value <= 0:
        return False
    null = loss(analysis.evidence.losses, "null")
    ceiling = 0.0 if null is None or null.excess is None else null.excess
    return value > ceiling and (stderr is None or not math.isfinite(stderr) or stderr >= UNSURE * value)


def effect_text(analysis: Analysis, value: float | None, stderr: float | None) -> str:
    text = estimate(value, stderr)
    return f"diverges ({text})" if diverges(analysis, value, stderr) else text


def _name(effect: OmegaEffect) -> str:
    return " + ".join(f"ω_{part}" for part in effect.coefficient.split("+"))


def omega_finding(analysis: Analysis) -> str:
    omegas = None if analysis.regression is None else analysis.regression.omegas
    whole = [] if omegas is None else [e for e in omegas.effects if e.layer is None]
    if omegas is None or not whole:
        return "No ω was taken out"
    other = "" if omegas.family == analysis.verdict.algorithm else f" of the {omegas.family} algorithm fitted to it"
    ranked = sorted((e for e in whole if is_finite(e.worth)), key=lambda e: -(e.worth or 0.0))
    if not ranked:
        costly = sorted((e for e in whole if is_finite(e.zeroed)), key=lambda e: -(e.zeroed or 0.0))
        costs = listed([f"{_name(e)} {effect_text(analysis, e.zeroed, e.zeroed_stderr)}" for e in costly], most=5)
        return f"Set to zero in all layers, the others left as they are, the ω{other} cost: {costs or DASH}"
    worths = listed([f"{_name(e)} {effect_text(analysis, e.worth, e.worth_stderr)}" for e in ranked], most=5)
    text = f"What each ω{other} is worth, by the squared error without it and the others refitted: {worths}"
    return text + _exaggeration(analysis, ranked)


def _exaggeration(analysis: Analysis, effects: Sequence[OmegaEffect]) -> str:
    exploding = [_name(e) for e in effects if diverges(analysis, e.zeroed, e.zeroed_stderr)]
    if exploding:
        return f". Zeroing alone exaggerates: without {listed(exploding)} the algorithm diverges"
    pairs = [(e.zeroed, e.zeroed_stderr, e.worth, e.worth_stderr) for e in effects]
    ratios = [zeroed / worth for zeroed, a, worth, b in pairs if _clear(zeroed, a) and _clear(worth, b)]
    if ratios and max(ratios) >= 1.5:
        return f". Zeroing alone would say up to {number(max(ratios), 2)} times as much"
    if ratios and min(ratios) <= 1 / 1.5:
        return f". Zeroing alone would say as little as {number(min(ratios), 2)} times as much"
    return ""


def _clear(value: float | None, stderr: float | None) -> TypeGuard[float]:
    return is_finite(value) and value > 2 * (stderr or 0.0)


@section("omegas", title="the worth of every ω", where="noise", part="regression")
def omegas(analysis: Analysis, regression: Regression) -> Section | Skipped:
    removed = regression.omegas
    if not any(is_finite(e.zeroed) or is_finite(e.worth) for e in removed.effects):
        return Skipped("the recovered algorithm has no ω that could be taken out")
    groups = {
        "in all layers at once": [e for e in removed.effects if e.layer is None],
        "in one layer": [e for e in removed.effects if e.layer is not None],
    }
    skipped = f" {removed.note[:1].upper()}{removed.note[1:]}." if removed.note else ""
    gain = (
        f" Fitting all of them to the task changes it by {estimate(removed.refitted, removed.refitted_stderr)}; worth "
        "is counted from there."
    )
    description = (
        f"How much the squared error of the {removed.family} algorithm rises when an ω is taken out, on "
        f"{removed.prompts} prompts. Zeroing alone can say more or less than an ω is worth, because the other "
        f"coefficients were fitted together with it: its worth is counted with the others fitted anew."
        f"{gain if is_finite(removed.refitted) else ''} Nothing "
        f"taken out, the error is {estimate(removed.excess, removed.excess_stderr)} above the best possible. Bars are "
        "95 % intervals; triangles at the left are values too small for the axis or not above 0, triangles at the "
        f"right diverge: a few prompts explode, and the mean is no number to rely on.{skipped}"
    )
    columns = {"taken out": _name, "layer": lambda e: "all" if e.layer is None else str(e.layer)} | {
        f"{key} ± stderr": lambda e, k=key: effect_text(analysis, getattr(e, k), getattr(e, f"{k}_stderr"))
        for key in ("zeroed", "refitted", "worth")
    }
    named = enumerate(groups.items())
    panels = [_panel(analysis, f"omegas-{i}", title, effects) for i, (title, effects) in named if effects]
    table = tabulate(removed.effects, columns)
    legend = [s for s in (_ZEROED, _WORTH) if any(is_finite(getattr(e, s.key)) for e in removed.effects)]
    return charted("omegas", "The worth of every ω", omega_finding(analysis), description, panels, table, legend=legend)


def _tick(effect: OmegaEffect) -> str:
    names = " + ".join(f"ω<sub>{label(name)}</sub>" for name in effect.coefficient.split("+"))
    return names if effect.layer is None else f"{names}, layer {effect.layer}"


def _panel(analysis: Analysis, name: str, title: str, effects: Sequence[OmegaEffect]) -> Panel:
    """One row per effect, on a log axis."""
    values = {
        series: [
            (k, e, value, getattr(e, f"{series.key}_stderr"))
            for k, e in enumerate(effects)
            if is_finite(value := getattr(e, series.key))
        ]
        for series in (_ZEROED, _WORTH)
    }
    stable = [v for rows in values.values() for _, _, v, error in rows if v > 0 and not diverges(analysis, v, error)]
    largest = max(stable, default=1.0)
    left, right = min((v for v in stable if v > _LEAST * largest), default=largest) / 2, 3 * largest
    traces = []
    for series, rows in values.items():
        beyond = [diverges(analysis, v, error) for _, _, v, error in rows]
        points = [
            Point(k, 2 * right if far else v, error, f"{_tick(e)}, {series.label}: {effect_text(analysis, v, error)}")
            for far, (k, e, v, error) in zip(beyond, rows, strict=True)
        ]
        if points:
            trace = marks(series, points, log=True, floor=left, ceiling=right, size=10, sideways=True)
            words = {"text": ["diverges " if far else "" for far in beyond], "textposition": "middle left"}
            traces.append(trace | words | {"mode": "markers+text", "textfont": {"color": series.colour, "size": 12}})
    x = log_axis("rise of the squared error (label²)", [left, right], dense=False)
    x["range"] = [math.log10(left) - 0.1, math.log10(right) + 0.1]
    ticks = {"tickvals": list(range(len(effects))), "ticktext": list(map(_tick, effects))}
    y = axis("", range=[len(effects) - 0.5, -0.5], zeroline=False, **ticks)
    return plot(name, traces, x, y, 90 + 28 * max(len(effects), 3), title)
