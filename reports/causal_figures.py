"""Figures of causal checks: effects of transplants and erasures by layers run, beside their controls; and how linear
the implicit models are that were transplanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interp.reports.causal_findings import erased_targets, erasure_finding, linearity_finding, transplant_finding
from interp.reports.numbers import DASH, interval, is_finite, number
from interp.reports.plots import Point, axis, curve, error_bars, label, layer_axis, layout
from interp.reports.probe_findings import depth_text
from interp.results import Erasure, Figure, ImplicitFit, Panel, Series, Table, Transplant

__all__ = ["causal_figures"]

_WEIGHTS = Series(key="weights", label="the weights of another prompt", colour="var(--series-1)", symbol="circle")
_STATE = Series(key="state", label="its whole state", colour="var(--series-3)", symbol="diamond")
_STRAY = Series(key="random", label="random weights as far away", colour="var(--series-4)", symbol="x")
_ERASED = Series(key="erased", label="the target erased", colour="var(--series-1)", symbol="circle")
_RANDOM = Series(key="random", label="as many random directions erased", colour="var(--series-4)", symbol="x")

_ASIDE = {"weights": -0.06, "state": 0.06, "random": 0.0}  # so that equal effects do not cover each other

Interval = tuple[float | None, float | None]
Value = tuple[float | int, float | int, Interval, str]  # layers run, effect, its interval, what the pointer says


def causal_figures(
    implicit: Sequence[ImplicitFit], transplants: Sequence[Transplant], erasures: Sequence[Erasure]
) -> tuple[Figure, ...]:
    """Those that there is something to draw for."""
    made = (_linearity(implicit), _transplants(transplants), _erasures(erasures))
    return tuple(figure for figure in made if figure is not None)


def _linearity(fits: Sequence[ImplicitFit]) -> Figure | None:
    if not fits:
        return None
    rows = tuple(
        (
            str(fit.layer),
            _before(fit),
            fit.reason or interval(fit.linearity_r2, fit.linearity_r2_ci),
            fit.rows,
            str(fit.prompts),
        )
        for fit in fits
    )
    return Figure(
        name="linearity",
        finding=linearity_finding(fits),
        description="R² of y = a y₀ − ⟨w, x₀⟩ within every prompt, x₀ and y₀ being what a token holds before the first "
        "layer; every token (with causal keys, every query put after the same tokens) is predicted from the fit to the "
        "others. Intervals are over prompts.",
        panels=(),
        legend=(),
        table=Table(header=("layers run", "tokens before", "R² [95 %]", "fitted to", "prompts"), rows=rows),
    )


def _before(fit: ImplicitFit) -> str:
    return "all" if fit.position is None else str(fit.position)


def _drawn(
    series: Series,
    values: Sequence[tuple[float | int, float | int, Interval, str]],
    *,
    dash: str = "solid",
    size: int = 8,
) -> dict[str, Any]:
    trace = curve(series, [Point(x, y, None, text) for x, y, _, text in values], dash=dash, size=size)
    low = [y - bounds[0] if is_finite(bounds[0]) else 0.0 for _, y, bounds, _ in values]
    high = [bounds[1] - y if is_finite(bounds[1]) else 0.0 for _, y, bounds, _ in values]
    return trace | {"error_y": error_bars(low, high, series.colour)}


def _transplants(rows: Sequence[Transplant]) -> Figure | None:
    made = [row for row in rows if row.reason is None and is_finite(row.effect)]
    if not made:
        return None
    traces, legend = [], []
    for series in (_STRAY, _STATE, _WEIGHTS):
        stray = series is _STRAY
        kept = [row for row in made if row.kind == ("weights" if stray else series.key)]
        values = [
            (
                row.layer + _ASIDE[series.key],
                value,
                bounds,
                f"{series.label}, {depth_text(row.layer)}: {interval(value, bounds)}",
            )
            for row in kept
            for value, bounds in [(row.random, row.random_ci) if stray else (row.effect, row.effect_ci)]
            if is_finite(value)
        ]
        if values:
            traces.append(_drawn(series, values, dash="dash" if stray else "solid", size=8))
            legend.insert(0, series)
    depths = layer_axis(sorted({row.layer for row in made}), "layers run")
    return Figure(
        name="transplants",
        finding=transplant_finding(rows),
        description="After so many layers the implicit weights of prompt A are put in place of those of prompt B, in "
        "all tokens, and the later layers go on from there. 1: the prediction becomes the one that A's weights imply "
        "with the later layers; 0: it does not change. That they follow proves that the prediction is made from these "
        "weights, and not only that they can be read; it says nothing of how the weights were found. Control: random "
        "weights as far away, whose error, in the table, says that they do not lead where A's do. Bars are 95 % "
        "intervals over prompts.",
        panels=(
            Panel(name="transplants", title="", data=traces, layout=layout(depths, axis("effect")), height=280),
        ),
        legend=tuple(legend),
        table=Table(
            header=(
                "layers run", "what", "effect [95 %]", "error", "own weights", "random [95 %]", "error of random",
                "changed",
            ),
            rows=tuple(
                (
                    str(row.layer), row.kind, interval(row.effect, row.effect_ci), number(row.error, 2),
                    number(row.own, 2), interval(row.random, row.random_ci), number(row.random_error, 2),
                    f"{row.fired} of {row.prompts}",
                )
                for row in made
            ),
        ),
    )  # fmt: skip


def _erasures(rows: Sequence[Erasure]) -> Figure | None:
    by_target = erased_targets(rows)
    if not by_target:
        return None
    panels = []
    depths = sorted({row.layer for row in rows})
    for index, (target, own) in enumerate(by_target.items()):
        erased = [(row.layer, row.effect or 0.0, row.effect_ci, f"{label(target)}, {_said(row)}") for row in own]
        random = [
            (
                row.layer, row.random, row.random_ci,
                f"{row.rank} random, {depth_text(row.layer)}: {interval(row.random, row.random_ci)}",
            )
            for row in own
            if is_finite(row.random)
        ]  # fmt: skip
        plot = layout(layer_axis(depths, "layers run"), axis("loss gained", rangemode="tozero"))
        last = own[-1]
        panels.append(
            Panel(
                name=f"erasures-{index}",
                title=target,
                subtitle=f"{depth_text(last.layer)}: R² {number(last.r2, 2)}, erased {_share(last.r2_erased)}",
                data=[_drawn(_RANDOM, random, dash="dash", size=6), _drawn(_ERASED, erased)],
                layout=plot,
                height=220,
            )
        )
    position = rows[0].position
    return Figure(
        name="erasures",
        finding=erasure_finding(rows),
        description=f"After so many layers, {'the query token' if position is None else f'token {position}'} loses all "
        "that a linear probe reads of the target in it, and as little else as possible (LEACE, fitted to other "
        "prompts); later layers go on with what is left. Loss gained is in units of the mean square of the answer: 1 "
        "is what predicting 0 costs a perfect network. More than for as many random directions, it proves that the "
        "network uses what was erased; a target that is read and not missed was decoded, but is not shown to be used. "
        "Where nothing linear of the target is found at a false positive rate of 1 %, nothing is erased. Bars are 95 % "
        "intervals over prompts.",
        panels=tuple(panels),
        legend=(_ERASED, _RANDOM),
        table=Table(
            header=(
                "target", "layers run", "directions", "R² [95 %]", "erased [95 %]", "loss gained [95 %]",
                "random [95 %]", "changed",
            ),
            rows=tuple(
                (
                    row.target, str(row.layer), str(row.rank), interval(row.r2, row.r2_ci),
                    interval(row.r2_erased, row.r2_erased_ci), interval(row.effect, row.effect_ci),
                    interval(row.random, row.random_ci), f"{row.fired} of {row.prompts}",
                )
                for own in by_target.values()
                for row in own
            ),
        ),
        compact=True,
    )  # fmt: skip


def _said(row: Erasure) -> str:
    return (
        f"{row.rank} direction{'s' * (row.rank > 1)} {depth_text(row.layer)}: {interval(row.effect, row.effect_ci)}"
        f"<br>R² {_share(row.r2)}, erased {_share(row.r2_erased)}"
    )


def _share(value: float | None) -> str:
    return f"{value:z.2f}" if is_finite(value) else DASH
