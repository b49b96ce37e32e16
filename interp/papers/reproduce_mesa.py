"""``interp-probe reproduce mesa``: the paper's figures beside ours, group by group."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from interp.cli.running import expect_writable, progress_line, run_command, use_one_thread

__all__ = ["reproduce_mesa"]

UNIT = (
    "losses, training: half the squared error of the next state, mean over positions; compression: ratios to the "
    "network's own; probes: half the squared error in sample"
)
SEQUENCES, SEED = 4096, 20_230_911
TARGETS = {
    "next": "next state",
    "preconditioned": "preconditioned state, exact inverse",
    "preconditioned-published": "preconditioned state, the paper's six steps",
}
Rows = Sequence[Mapping[str, Any]]


def reproduce_mesa(cells: str | None, out: Path, report: str | None, as_json: bool) -> None:
    """``cells``: groups to measure anew, or "all". None: what ships."""
    if report is not None:
        expect_writable("--report", report)
    with progress_line() as progress:
        progress("loading")
        from interp.papers.mesa import GROUPS, measure, shipped_results

        if cells is None:
            found = shipped_results()
        else:
            names = list(GROUPS) if cells == "all" else [name.strip() for name in cells.split(",") if name.strip()]
            expect_writable("--out", out)
            use_one_thread()
            found = measure(names, out, SEQUENCES, SEED, progress)
        if report is not None:
            progress("writing the report")
            from interp.reports.mesa_page import mesa_page

            mesa_page(found, run_command()).write(report)
    table = [{"group": group, **row} for group, part in found.items() for row in part["rows"]]
    if as_json:
        click.echo(json.dumps({"paper": "mesa", "unit": UNIT, "cells": table}, allow_nan=False))
        return
    shown = {"losses": _losses, "compression": _compression, "probes": _probes, "training": _training}
    for group, part in found.items():
        shown[group](part["rows"])
    _summary(table)
    for name, value in (("Results", out if cells is not None else None), ("Report", report)):
        if value is not None:
            click.echo(f"\n{name}: {value}")


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    from rich.console import Console
    from rich.table import Table

    click.echo(title)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if index in left else "right", no_wrap=index not in left)
    for row in rows:
        shown.add_row(*row)
    Console(highlight=False).print(shown)
    click.echo()


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _with_error(value: float | None, stderr: float | None) -> str:
    if value is None:
        return "diverges"
    return f"{value:.4g}" if stderr is None else f"{value:.4g} ± {stderr:.1g}"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 3) + 0.0:.3f}"


def _verdict(row: Mapping[str, Any]) -> str:
    return {True: "yes", False: "no", None: ""}[row["within_bar"]]


def _judged(title: str, rows: Rows) -> None:
    _table(
        title,
        ("", "paper", "ours ± stderr", "ratio ± stderr", "within bar"),
        [
            (
                row["cell"],
                "" if row["paper"] is None else f"{row['paper']:.3g}",
                "no such model ships" if "why" in row else _with_error(row["ours"], row["stderr"]),
                "" if row["ratio"] is None else f"{row['ratio']:.3g} ± {row['ratio_stderr']:.1g}",
                _verdict(row),
            )
            for row in rows
        ],
    )


def _losses(rows: Rows) -> None:
    _judged("Losses: half the squared error of the next state (bar: 3 % above the paper's)", rows)


def _compression(rows: Rows) -> None:
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network]
        by = {(row["kind"], row.get("per_head", row.get("alpha"))): row for row in own}
        sizes = sorted({row["per_head"] for row in own if "per_head" in row}, reverse=True)
        _table(
            f"{network} as block-scalar heads: its loss as a multiple of the network's (bar: 1.05 with 32, paper 1)",
            ("numbers per head", "block means", "fitted again"),
            [
                (
                    str(size),
                    *(
                        _with_error(by[kind, size]["ours"], by[kind, size]["stderr"]) if (kind, size) in by else ""
                        for kind in ("published", "refit")
                    ),
                )
                for size in sizes
            ],
        )
        between = sorted((row for row in own if row["kind"] == "interpolated"), key=lambda row: row["alpha"])
        _table(
            f"{network} between itself (0) and its block means (1), in the products (bar: 1.05 halfway, paper 1)",
            ("", *(f"{row['alpha']:g}" for row in between)),
            [("multiple of its loss", *(_number(row["ours"], 4) for row in between))],
        )


def _probes(rows: Rows) -> None:
    cells = [row for row in rows if "target" in row]
    for network in dict.fromkeys(row["network"] for row in cells):
        for target in dict.fromkeys(row["target"] for row in cells):
            own = {
                (row["position"], row["layer"]): row
                for row in cells
                if row["network"] == network and row["target"] == target
            }
            _probe_tables(network, target, own)
    for row in rows:
        if "why" in row:
            click.echo(f"{row['cell']}: {row['why']}\n")
    claims = [row for row in rows if row.get("claim")]
    for network in dict.fromkeys(row["network"] for row in claims):
        _table(
            f"{network}: what its probes show",
            ("holds", "figure", ""),
            [
                (_verdict(row), _score(row["ours"]), row["cell"].partition(": ")[2])
                for row in claims
                if row["network"] == network
            ],
            left=(0, 2),
        )


def _probe_tables(network: str, target: str, own: Mapping[tuple[int, int], Mapping[str, Any]]) -> None:
    places, layers = sorted({place for place, _ in own}), sorted({layer for _, layer in own})
    after = [str(layer) for layer in layers[1:]]
    last = layers[-1]
    _table(
        f"{network}, {TARGETS[target]}: R² on held-out sequences, by position t and layers run",
        ("t", "inputs", *after, "untrained", "shuffled"),
        [
            (
                str(place),
                *(_score(own[place, layer]["r2"]) for layer in layers),
                _score(own[place, last]["untrained"]),
                _score(own[place, last]["shuffled"]),
            )
            for place in places
        ],
    )
    kinds = [kind for kind in ("paper", "ours") if any(row[kind] is not None for row in own.values())]
    if "ours" not in kinds:
        return
    _table(
        f"{network}, {TARGETS[target]}: error in sample, as published",
        ("t", "", "inputs", *after),
        [
            (
                str(place) if kind == kinds[0] else "",
                kind,
                *(_number(own[place, layer][kind]) for layer in layers),
            )
            for place in places
            for kind in kinds
        ],
    )


def _training(rows: Rows) -> None:
    steps = [row for row in rows if "step" in row]
    name = steps[0]["cell"].partition(",")[0]
    _table(
        f"{name} along its training: its loss, halfway to its block means, as these, halfway to the last (published)",
        ("step", "network", "halfway", "block means", "halfway to the last"),
        [
            (
                str(row["step"]),
                _with_error(row["ours"], row["stderr"]),
                *(_number(row[key], 4) for key in ("interpolated", "compressed", "published")),
            )
            for row in steps
        ],
    )
    judged = [{**row, "cell": row["cell"].rpartition(", ")[2]} for row in rows if row["paper"] is not None]
    _judged("At the end, multiples of its loss (bar: 1.05)", judged)
    _table(
        "One layer alone as block means, and the share of its weights outside them",
        ("layer", "multiple of its loss", "of Q", "of P"),
        [
            (
                str(row["layer"] + 1),
                _with_error(row["ours"], row["stderr"]),
                f"{100 * row['outside_Q']:.0f} %",
                f"{100 * row['outside_P']:.0f} %",
            )
            for row in rows
            if "layer" in row
        ],
    )


def _summary(table: Rows) -> None:
    from interp.reports.reproduction_tables import mesa_sentences

    for sentence in mesa_sentences(table):
        click.echo(sentence)
