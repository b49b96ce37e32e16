"""``interp-probe identify``: the verdict without the further evidence."""

from __future__ import annotations

import shlex
import sys

import click

from interp.cli.running import (
    SEED,
    expect_readable,
    expect_tables,
    progress_line,
    table_options,
    use_one_thread,
    write_tables,
)

__all__ = ["command"]


@click.command("identify")
@click.argument("checkpoint")
@click.option("--spec", metavar="FILE.toml", help="How to read a file of a foreign layout.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option(
    "--prompts", type=int, default=4096, show_default=True, help="How many prompts: half fitted on, half scored on."
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Fixes every number of the result.")
@table_options
def command(
    checkpoint: str,
    spec: str | None,
    as_json: bool,
    prompts: int,
    seed: int,
    csv: str | None,
    parquet: str | None,
) -> None:
    """Say which algorithm CHECKPOINT runs, as ``interp-probe CHECKPOINT`` does and with the same numbers, without the
    probes, interventions, replaced layers and other evidence that take most of its time."""
    expect_readable(checkpoint)
    expect_tables(csv, parquet)
    with progress_line() as progress:
        progress("loading")
        use_one_thread()
        from interp.analysis import analyse
        from interp.checkpoints.opening import open_checkpoint

        opened = open_checkpoint(checkpoint, spec)
        line = shlex.join(["interp-probe", *sys.argv[1:]])
        result = analyse(opened, prompts, seed, progress, command=line, verdict_only=True)
        write_tables(csv, parquet, result.tables, result.checkpoint.name)
    if as_json:
        from interp.reports.document import dumps

        click.echo(dumps(result))
    else:
        from rich.console import Console

        from interp.reports.terminal import print_analysis

        print_analysis(result, Console())
