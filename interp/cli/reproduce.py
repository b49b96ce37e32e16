"""``interp-probe reproduce``: a paper's table, the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from interp.cli.running import expect_writable, progress_line
from interp.models.errors import UsageError

__all__ = ["command"]


@click.command("reproduce")
@click.argument("paper", type=click.Choice(["closed-form", "eagle", "mesa", "versatile"]))
@click.option(
    "--cells",
    metavar="NAMES",
    help="Make these anew, e.g. diag-l4-u5,gdpp-l2-c13, or 'all'. Without it: show what ships.",
)
@click.option("--out", metavar="RESULTS.json", help="Where results are kept [default: PAPER.json].")
@click.option("--report", metavar="OUT.html", help="closed-form, eagle, mesa: also write the curves as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(paper: str, cells: str | None, out: str | None, report: str | None, as_json: bool) -> None:
    """Reproduce the figures of a PAPER: versatile (Vladymyrov et al. 2024, noisy in-context regression, Table 1),
    closed-form (Hagiwara 2026, simple regression by LayerNorm) or mesa (von Oswald et al. 2023, linear dynamics; cells
    are the groups losses, compression and probes, measured on the models that ship, and training, half an hour).

    In versatile a cell is FAMILY-lDEPTH-NOISE: gdpp, diag or full; 1 to 7 layers; u0 to u7 (uniform noise), c13 or c135
    (levels). Cells that the results file already holds are not trained again, an interrupted cell goes on where it
    stopped, and each trained model is written beside the results.

    In eagle (Lutz et al. 2025, matrix completion) it is a part: layers (minutes), iterations, tail, distributed,
    sketched or timing. Those of closed-form are construction (measured, not trained), context and all (twelve seeds
    each).
    """
    out = f"{paper}.json" if out is None else out
    if paper == "closed-form":
        from interp.papers.reproduce_closed_form import reproduce_closed_form

        reproduce_closed_form(cells, out, report, as_json)
        return
    if paper == "eagle":
        from interp.papers.reproduce_eagle import reproduce_eagle

        reproduce_eagle(cells, Path(out), report, as_json)
        return
    if paper == "mesa":
        from interp.papers.reproduce_mesa import reproduce_mesa

        reproduce_mesa(cells, Path(out), report, as_json)
        return
    if report is not None:
        raise UsageError(f"--report is for closed-form, eagle and mesa, expected none for {paper}")
    if cells is None:
        from interp.papers.versatile import shipped_results

        rows = shipped_results()
    else:
        rows = _train(cells, Path(out))
    table = [_row(name, entry) for name, entry in rows.items()]
    if as_json:
        click.echo(
            json.dumps({"paper": paper, "unit": "half the mean squared error above the oracle's", "cells": table})
        )
        return
    _print(table)
    if cells is not None:
        click.echo(f"\nResults: {out}")


def _train(names: str, out: Path) -> dict[str, dict[str, Any]]:
    with progress_line() as progress:
        progress("loading")
        from interp.checkpoints.canonical import write_checkpoint
        from interp.papers.versatile import cells, run_cells

        wanted = cells() if names == "all" else cells(name.strip() for name in names.split(",") if name.strip())
        expect_writable("--out", out)
        rows = run_cells(
            wanted,
            out,
            keep=lambda cell, trained: write_checkpoint(trained.model, out.with_name(f"{cell.name}.safetensors")),
            watch=lambda cell, step: progress(
                f"{cell.name}, {step.name}: iteration {step.iteration}, adjusted loss {step.loss:.4g}"
            ),
        )
    return {cell.name: rows[cell.name] for cell in wanted}


def _row(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    ours = entry["adjusted_loss"]
    return {
        "cell": name,
        "paper": entry["paper"],
        "ours": ours["mean"],
        "stderr": ours["stderr"],
        "ratio": ours["mean"] / entry["paper"],
        "ratio_stderr": ours["stderr"] / entry["paper"],
        "within_bar": ours["mean"] <= entry["bar"],
        "wall_seconds": entry["wall_seconds"],
    }


def _print(table: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(
        box=None, title="Half the mean squared error above the oracle's, on fresh prompts", title_justify="left"
    )
    for heading in ("cell", "paper", "ours ± stderr", "ratio ± stderr", "within bar", "seconds"):
        shown.add_column(heading, justify="left" if heading == "cell" else "right", no_wrap=True)
    for row in table:
        shown.add_row(
            row["cell"],
            f"{row['paper']:.3g}",
            f"{row['ours']:.3g} ± {row['stderr']:.1g}",
            f"{row['ratio']:.3g} ± {row['ratio_stderr']:.1g}",
            "yes" if row["within_bar"] else "no",
            f"{row['wall_seconds']:.0f}",
        )
    Console().print(shown)
    met = sum(row["within_bar"] for row in table)
    click.echo(
        f"\n{met} of {len(table)} cells are within the bar: the paper's figure plus 5 % plus 0.002 (u0: three times)."
    )
