"""One offline page: the construction's error against its scales, and the fitted law."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.reports.html import render_figures
from interp.reports.numbers import number
from interp.reports.page import Page
from interp.reports.plots import Figure, Panel, Point, Table, curve, layout, log_axis, marks, ordered_series

__all__ = ["law_figures", "law_page"]


def law_page(results: Mapping[str, Any]) -> Page:
    return render_figures("Closed-form simple regression: the construction", law_figures(results))


def law_figures(results: Mapping[str, Any]) -> tuple[Figure, ...]:
    """A figure for each form of the sums."""
    return tuple(
        _figure(law, results["construction"]["points"][law["keys"]]) for law in results["construction"]["laws"]
    )


def _law(law: Mapping[str, Any], K: float, r: float, G: float) -> float:
    a, b, c, d = law["coefficients"]
    return ((a / K) ** 2 + (b / r**2) ** 2 + (c / G) ** 2 + (d * r / (K * G)) ** 2) ** 0.5


def _figure(law: Mapping[str, Any], points: list[Mapping[str, Any]]) -> Figure:
    keys, panels, legend = law["keys"], [], []
    ks, rs = sorted({p["K"] for p in points}), sorted({p["r"] for p in points})
    ratio = max(p["G"] / p["r"] for p in points)
    legend = ordered_series([f"r = {number(r, 1)}" for r in rs], f"{keys}-r-")
    data = []
    for series, r in zip(legend, rs, strict=True):
        rows = [p for p in points if p["r"] == r and abs(p["G"] / r - ratio) < 1e-6 * ratio]
        rows.sort(key=lambda p: p["K"])
        measured = [Point(p["K"], p["error"], None, f"K = {number(p['K'], 1)}: {number(p['error'], 2)}") for p in rows]
        fitted = [Point(p["K"], _law(law, p["K"], r, p["G"]), None, "the law") for p in rows]
        data += [marks(series, measured, log=True), curve(series, fitted, log=True, marked=False, dash="dot")]
    drawn = [y for trace in data for y in trace["y"]]
    panels.append(
        Panel(
            name=f"law-{keys}",
            title="",
            data=data,
            layout=layout(log_axis("K", ks, dense=False), log_axis("relative error", drawn, dense=False)),
            height=420,
        )
    )
    values = ", ".join(
        f"{name} = {v:.2g} ± {e:.1g}" for name, v, e in zip("abcd", law["coefficients"], law["stderr"], strict=True)
    )
    return Figure(
        name=f"law-{keys}",
        finding=f"Keys {keys}: error² = (a/K)² + (b/r²)² + (c/G)² + (d r/(K G))² with {values}",
        description="K is the scale of a token beside its x and y (large: the first LayerNorm is linear), r what V is "
        "multiplied by in the second (large: V dominates what it divides by), G how far the update outweighs the old "
        "token. "
        f"Root mean square error relative to the closed form's own size, on 2000 prompts of 20 examples, "
        f"with G / r = {number(ratio, 1)}; marks are measured, dotted lines the law. On points left out of the fit the "
        f"law is off by {100 * law['spread']:.0f} % (root mean square of the logarithm), at worst "
        f"{law['worst']:.2g} times.",
        panels=tuple(panels),
        legend=tuple(legend),
        table=Table(
            header=("K", "r", "G", "error", "law"),
            rows=tuple(
                (
                    *(number(p[name], 2) for name in ("K", "r", "G")),
                    number(p["error"], 3),
                    number(_law(law, p["K"], p["r"], p["G"]), 3),
                )
                for p in points
            ),
        ),
    )
