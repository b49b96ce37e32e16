"""The main job: ``interp-probe CHECKPOINT``; ``identify`` is the same without the further evidence."""

from __future__ import annotations

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import (
    REPORT,
    SEED_OPTION,
    TableFolders,
    expect_results,
    json_option,
    print_result,
    prompts_option,
    run_command,
    table_options,
    verified_reading_options,
    working,
    write_results,
)

__all__ = ["PROMPTS", "analyse_checkpoint", "command"]

PROMPTS = prompts_option("How many prompts: half fitted on, half scored on.")


@click.command("analyse")
@click.argument("checkpoint")
@verified_reading_options
@REPORT
@json_option(" instead of tables")
@PROMPTS
@SEED_OPTION
@table_options
def command(
    checkpoint: str, spec: Reading, report: str | None, as_json: bool, prompts: int, seed: int, tables: TableFolders
) -> None:
    """Say which algorithm CHECKPOINT (a path or zoo:NAME) runs, with coefficients, uncertainty and evidence."""
    analyse_checkpoint(checkpoint, spec, report, as_json, prompts, seed, tables, verdict_only=False)


def analyse_checkpoint(
    checkpoint: str,
    spec: Reading,
    report: str | None,
    as_json: bool,
    prompts: int,
    seed: int,
    tables: TableFolders,
    verdict_only: bool,
) -> None:
    """Analyse, write what is wanted, print the result."""
    expect_results(checkpoint, report, tables)
    with working() as progress:
        from interp.analysis import analyse
        from interp.checkpoints.opening import open_checkpoint

        opened = open_checkpoint(checkpoint, spec)
        result = analyse(opened, prompts, seed, progress, command=run_command(), verdict_only=verdict_only)
        write_results(result, report, tables, progress)
    print_result(result, as_json, report)
