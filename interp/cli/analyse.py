"""The main job: ``interp-probe CHECKPOINT``."""

from __future__ import annotations

import shlex
import sys

import click

from interp.cli.running import (
    SEED,
    expect_readable,
    expect_tables,
    expect_writable,
    progress_line,
    table_options,
    use_one_thread,
    write_tables,
)

__all__ = ["command"]


@click.command("analyse")
@click.argument("checkpoint")
@click.option(
    "--spec", metavar="FILE.toml", help="How to read a file of a foreign layout, or the name of a built-in layout."
)
@click.option("--report", metavar="OUT.html", help="Also write one offline HTML file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option(
    "--prompts", type=int, default=4096, show_default=True, help="How many prompts: half fitted on, half scored on."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Fixes every number of the result.")
@table_options
def command(
    checkpoint: str,
    spec: str | None,
    report: str | None,
    as_json: bool,
    prompts: int,
    seed: int,
    csv: str | None,
    parquet: str | None,
) -> None:
    """Say which algorithm CHECKPOINT (a path or zoo:NAME) runs, with coefficients, uncertainty and evidence."""
    expect_readable(checkpoint)
    if report is not None:
        expect_writable("--report", report, checkpoint)
    expect_tables(csv, parquet)
    with progress_line() as progress:
        progress("loading")
        use_one_thread()
        from interp.analysis import analyse
        from interp.checkpoints.opening import open_checkpoint

        opened = open_checkpoint(checkpoint, spec)
        result = analyse(opened, prompts, seed, progress, command=shlex.join(["interp-probe", *sys.argv[1:]]))
        if report is not None:
            progress("writing the report")
            from interp.reports.html import render_report

            render_report(result).write(report)
        write_tables(csv, parquet, result.tables, result.checkpoint.name)
    if as_json:
        from interp.reports.document import dumps

        click.echo(dumps(result))
    else:
        from rich.console import Console

        from interp.reports.terminal import print_analysis

        print_analysis(result, Console())
        if report is not None:
            click.echo(f"\nReport: {report}")
