"""``interp-probe identify``: the verdict without the further evidence."""

from __future__ import annotations

import click

from interp.checkpoints.reading import Reading
from interp.cli.analyse import PROMPTS, analyse_checkpoint
from interp.cli.running import SEED_OPTION, TableFolders, json_option, table_options, verified_reading_options

__all__ = ["command"]


@click.command("identify")
@click.argument("checkpoint")
@verified_reading_options
@json_option(" instead of tables")
@PROMPTS
@SEED_OPTION
@table_options
def command(checkpoint: str, spec: Reading, as_json: bool, prompts: int, seed: int, tables: TableFolders) -> None:
    """Say which algorithm CHECKPOINT runs, as ``interp-probe CHECKPOINT`` does and with the same numbers, without the
    probes, interventions, replaced layers and other evidence that take most of its time."""
    analyse_checkpoint(checkpoint, spec, None, as_json, prompts, seed, tables, verdict_only=True)
