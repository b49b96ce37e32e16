"""One offline page: the construction's error against its scales, and the fitted law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interp.reports.findings import listed
from interp.reports.html import render_figures
from interp.reports.numbers import number
from interp.reports.page import Page
from interp.reports.plots import Point, curve, layout, log_axis, marks, ordered_series
from interp.reports.reproduction_tables import seeds_table
from interp.results import Figure, Panel, Section, Table

__all__ = ["law_figures", "law_page"]


SOURCE = "Hagiwara, arXiv 2607.15819"
_KEYS = {"context": "keys: the examples", "all": "keys: the examples and the query"}


def law_page(results: Mapping[str, Any], summary: Sequence[Mapping[str, str]] = (), command: str | None = None) -> Page:
    """``summary``: the claims of the paper beside what is measured."""
    claims = Table(
        header=("what", "the paper's", "ours"), rows=tuple((row["what"], row["paper"], row["ours"]) for row in summary)
    )
    parts = [Section(name="claims", title="Claims", finding="", table=claims)] if summary else []
    seeds = results.get("seeds", {})
    if seeds:
        parts.append(Section(name="seeds", title="Seeds", finding=_seeds_finding(seeds), table=seeds_table(seeds)))
    return render_figures(
        "Closed-form simple regression: the construction and trained networks",
        law_figures(results),
        source=SOURCE,
        found=[_seeds_finding(seeds)] if seeds else [],
        parts=parts,
        command=command,
        recorded={f"seeds, keys {k}": {"versions": v["provenance"].get("versions")} for k, v in seeds.items()},
    )


def _seeds_finding(seeds: Mapping[str, Any]) -> str:
    """How many of the seeds that began at random find the closed form."""
    told = []
    for keys, entry in seeds.items():
        own = [row["verdict"] for row in entry["rows"] if row["start"] == "random"]
        told.append(f"{own.count('closed-form')} of {len(own)} seeds with {_KEYS.get(keys, keys)}")
    return f"From random weights training finds the closed form in {listed(told)}"


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
        short=f"Law, {_KEYS.get(keys, keys)}",
        finding=f"With {_KEYS.get(keys, keys)}, error² = (a/K)² + (b/r²)² + (c/G)² + (d r/(K G))² with {values}",
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
