"""``interp-probe reproduce closed-form``: the claims of the paper beside what is measured here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from interp.cli.running import expect_writable, progress_line, run_command, use_one_thread
from interp.models.errors import UsageError, did_you_mean

__all__ = ["reproduce_closed_form"]


def reproduce_closed_form(cells: str | None, out: str, report: str | None, as_json: bool) -> None:
    """``cells``: "context", "all" or both, trained anew; "construction": measured anew. None: what ships."""
    if report is not None:
        expect_writable("--report", report)
    if cells is None:
        from interp.papers.closed_form import shipped_results

        results = shipped_results()
    else:
        results = _measure([name.strip() for name in cells.split(",") if name.strip()], Path(out))
    from interp.papers.closed_form import summary_rows

    if report is not None:
        from interp.reports.law_page import law_page

        law_page(results, summary_rows(results), run_command()).write(report)
    if as_json:
        click.echo(json.dumps({"paper": "closed-form", "table": summary_rows(results), **results}, allow_nan=False))
        return
    _print(summary_rows(results), results)
    for name, value in (("Results", out if cells is not None else None), ("Report", report)):
        if value is not None:
            click.echo(f"\n{name}: {value}")


def _measure(wanted: list[str], out: Path) -> dict[str, Any]:
    with progress_line() as progress:
        progress("loading")
        use_one_thread()
        from interp.checkpoints.canonical import write_checkpoint
        from interp.models.atomic import write_atomically
        from interp.models.training import Step, load_recipe, train
        from interp.papers.closed_form import FORMS, measured_construction, seed_rows, shipped_results

        known = ("construction", *FORMS)
        for name in wanted:
            if name not in known:
                raise UsageError(f"there is no cell {name!r} of closed-form; {did_you_mean(name, known)}")
        expect_writable("--out", out)
        results = json.loads(out.read_text(encoding="utf-8")) if out.exists() else shipped_results()
        for name in wanted:
            if name == "construction":
                progress("measuring the construction")
                results["construction"] = measured_construction()
                continue
            plan = load_recipe(f"closed-form-{name}")

            def watch(step: Step, name: str = name) -> None:
                progress(f"{name}, {step.name}: {step.iteration}, error {step.loss:.4g}")

            trained = train(plan, record=out.with_name(f"{plan.name}.training"), watch=watch)
            write_checkpoint(trained.model, out.with_name(f"{plan.name}.safetensors"))
            progress(f"{name}: the verdict on every seed")
            provenance = {key: trained.model.spec.provenance[key] for key in ("recipe", "versions", "wall_seconds")}
            results["seeds"][name] = {"rows": seed_rows(trained.others, "random"), "provenance": provenance}
            write_atomically(out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        write_atomically(out, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def _print(rows: list[dict[str, str]], results: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from interp.reports.numbers import interval

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what", "paper", "ours"):
        shown.add_column(heading, overflow="fold")
    for row in rows:
        shown.add_row(row["what"], row["paper"], row["ours"])
    console = Console(highlight=False)
    console.print(shown)
    title = "\nSeeds (* began near the construction)"
    seeds = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for heading in ("keys", "seed", "verdict", "fidelity", "conditions that fail"):
        seeds.add_column(heading, overflow="fold", no_wrap=heading == "verdict")
    for form, entry in results["seeds"].items():
        for row in entry["rows"]:
            seeds.add_row(
                form,
                str(row["seed"]) + ("" if row["start"] == "random" else "*"),
                row["verdict"],
                interval(row["fidelity"], (None, None)),
                ", ".join(row["failed"]),
            )
    console.print(seeds)
