"""One offline page of the mesa paper's curves: losses along training, probes by layer, compressed networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from interp.reports.findings import listed
from interp.reports.html import render_figures
from interp.reports.numbers import number
from interp.reports.page import Page
from interp.reports.plots import Point, axis, curve, layer_axis, layout, log_axis, ordered_series
from interp.reports.reproduction_tables import claims_table, judged_table, mesa_sentences
from interp.results import Figure, Panel, Section, Table

__all__ = ["mesa_figures", "mesa_page"]

Rows = Sequence[Mapping[str, Any]]
TARGETS = {
    "next": "the next state",
    "preconditioned-published": "the preconditioned state, six steps",
    "preconditioned": "the preconditioned state, exact inverse",
}
ALONG = {
    "ours": "the network",
    "interpolated": "halfway to its block means",
    "compressed": "its block means",
    "published": "halfway to the last block means, as published",
}
KINDS = {"published": "block means, those that cost most kept", "refit": "fitted again"}
LEAST = -0.05  # of R^2 that is drawn


SOURCE = "von Oswald et al., arXiv 2309.05858"


def mesa_page(results: Mapping[str, Mapping[str, Any]], command: str | None = None) -> Page:
    rows = [row for part in results.values() for row in part["rows"]]
    judged = [row for row in rows if row["within_bar"] is not None and not row.get("claim")]
    claims = [row for row in rows if row.get("claim")]
    parts = (
        [Section(name="bars", title="The paper's figures", finding="", table=judged_table(judged))] if judged else []
    )
    if claims:
        parts.append(Section(name="claims", title="Claims about probes", finding="", table=claims_table(claims)))
    recorded = next((part["provenance"] for part in results.values() if "provenance" in part), {})
    return render_figures(
        "Mesa-optimisation: losses, probes and compressed networks",
        mesa_figures(results),
        source=SOURCE,
        found=list(mesa_sentences(rows)),
        parts=parts,
        command=command,
        recorded={"measured with": recorded},
    )


def mesa_figures(results: Mapping[str, Mapping[str, Any]]) -> tuple[Figure, ...]:
    """Those that there are numbers for."""
    made = []
    if "training" in results:
        made.append(_training(results["training"]["rows"]))
    probed = [row for row in results.get("probes", {}).get("rows", ()) if "target" in row]
    made += [
        _probes(name, [row for row in probed if row["network"] == name])
        for name in dict.fromkeys(row["network"] for row in probed)
    ]
    if "compression" in results:
        made.append(_compression([row for row in results["compression"]["rows"] if "per_head" in row]))
    return tuple(made)


def _training(rows: Rows) -> Figure:
    steps = [row for row in rows if "step" in row]
    legend, data, drawn = ordered_series(list(ALONG.values()), "along-"), [], []
    for series, key in zip(legend, ALONG, strict=True):
        points = [
            Point(row["step"], row[key], row["stderr"] if key == "ours" else None, f"{row['step']}: {row[key]:.4g}")
            for row in steps
            if row[key] is not None
        ]
        drawn += [point.y for point in points]
        data.append(curve(series, points, log=True, size=6))
    losses = log_axis("half the squared error of the next state, log", drawn, dense=True)
    if drawn and max(drawn) < 10 * min(drawn):  # within a decade 1, 2, 5 leave too few labels
        marks = [k * 10.0**p for p in range(-6, 7) for k in (1, 1.5, 2, 3, 5, 7)]
        losses |= {"tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}
    ratios = [row for row in rows if row["within_bar"] is not None]
    ends = ", ".join(f"{row['cell'].rpartition(', ')[2]} {number(row['ours'], 3)}" for row in ratios)
    return Figure(
        name="training",
        short="Along training",
        finding=f"At the end of the training, multiples of the network's loss: {ends}",
        description="Six layers with keys of size 40, trained as published, on the same fresh sequences at every step; "
        "block means are 32 numbers per head, nothing fitted. Bars are 95 % intervals.",
        panels=(
            Panel(
                name="training", title="", data=data, height=440,
                layout=layout(axis("training step", zeroline=False), losses),
            ),
        ),
        legend=tuple(legend),
        table=Table(
            header=("step", *ALONG.values()),
            rows=tuple((str(row["step"]), *(number(row[key], 4) for key in ALONG)) for row in steps),
        ),
    )  # fmt: skip


def _probes(name: str, rows: Rows) -> Figure:
    places = sorted({row["position"] for row in rows})
    layers = sorted({row["layer"] for row in rows})
    legend = ordered_series([f"t = {place}" for place in places], f"{name}-t-")
    targets = [target for target in TARGETS if any(row["target"] == target for row in rows)]
    panels = []
    for target in targets:
        data = []
        for series, place in zip(legend, places, strict=True):
            own = [row for row in rows if row["target"] == target and row["position"] == place]
            data.append(curve(series, [_point(row, series.label) for row in own if row["r2"] is not None]))
        panels.append(
            Panel(
                name=f"{name}-{target}",
                title=TARGETS[target],
                data=data,
                layout=layout(layer_axis(layers, "layers run"), axis("R²", range=[LEAST, 1.05])),
                height=320,
            )
        )
    last = {row["position"]: row["r2"] for row in rows if row["target"] == "next" and row["layer"] == layers[-1]}
    reached = ", ".join(f"{number(last[place], 2)} at t = {place}" for place in places if place in last)
    return Figure(
        name=f"probes-{name}",
        short=f"Probes of {name}",
        finding=f"{name}: R² of the next state after all layers is {reached}",
        description="R² of a linear probe of one token, on sequences it was not fitted to, by layers run (0: the "
        "inputs) and position t. Bars are 95 % intervals. The table has beside it the same probe on untrained networks "
        "and on the targets of other sequences, and the error by the published protocol, in sample.",
        panels=tuple(panels),
        legend=tuple(legend),
        table=Table(
            header=("target", "t", "layers run", "R²", "untrained", "shuffled", "error in sample", "the paper's"),
            rows=tuple(
                (
                    TARGETS[row["target"]],
                    str(row["position"]),
                    str(row["layer"]),
                    *(number(row[key], 3) for key in ("r2", "untrained", "shuffled", "ours", "paper")),
                )
                for row in rows
            ),
        ),
    )


def _point(row: Mapping[str, Any], where: str) -> Point:
    low, high = row["r2_ci"]
    stderr = None if low is None or high is None else (high - low) / (2 * 1.96)
    return Point(row["layer"], row["r2"], stderr, f"{where}, {row['layer']} layers run: {row['r2']:.3f}")


def _compression_finding(rows: Rows) -> str:
    """What the smallest and the whole block means cost, over the networks."""
    told = []
    for kind, words in KINDS.items():
        sizes = sorted({row["per_head"] for row in rows if row["kind"] == kind and row["ours"] is not None})
        for size in dict.fromkeys((sizes[-1], sizes[0])) if sizes else ():
            own = [r["ours"] for r in rows if (r["kind"], r["per_head"]) == (kind, size) and r["ours"] is not None]
            span = number(own[0], 3) if len(own) == 1 else f"{number(min(own), 3)} to {number(max(own), 3)}"
            told.append(f"{span} with {size} per head ({words})")
    return (
        f"Times the network's loss with fewer numbers in its place: {listed(told, most=4)}"
        if told
        else ("No network of fewer numbers was measured")
    )


def _compression(rows: Rows) -> Figure:
    names = list(dict.fromkeys(row["network"] for row in rows))
    sizes = sorted({row["per_head"] for row in rows})
    legend = ordered_series(list(KINDS.values()), "compression-")
    drawn = [row["ours"] for row in rows if row["ours"] is not None]
    ends = [math.log10(0.8 * min(drawn)), math.log10(1.25 * max(drawn))] if drawn else None  # the same in all panels
    panels = []
    for name in names:
        data = []
        for series, kind in zip(legend, KINDS, strict=True):
            points = [
                Point(row["per_head"], row["ours"], row["stderr"], f"{row['per_head']} per head: {row['ours']:.4g}")
                for row in rows
                if row["network"] == name and row["kind"] == kind and row["ours"] is not None
            ]
            data.append(curve(series, points, log=True))
        across = axis("numbers per head", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes])
        ratios = log_axis("multiple of its loss", drawn, dense=True) | {"range": ends}
        panels.append(
            Panel(name=f"compression-{name}", title=name, data=data, layout=layout(across, ratios), height=300)
        )
    return Figure(
        name="compression",
        short="Fewer numbers",
        finding=_compression_finding(rows),
        description="The loss as a multiple of the network's own on the same fresh sequences, on logarithmic axes: its "
        "heads' block means, of which those that cost most are kept, and the same numbers fitted again to what the "
        "network predicts. Bars are 95 % intervals.",
        panels=tuple(panels),
        legend=tuple(legend),
        table=Table(
            header=("network", "", "per head", "numbers", "multiple of its loss", "± standard error"),
            rows=tuple(
                (
                    row["network"],
                    KINDS[row["kind"]],
                    str(row["per_head"]),
                    str(row["numbers"]),
                    number(row["ours"], 4),
                    number(row["stderr"], 1),
                )
                for row in rows
            ),
        ),
    )
