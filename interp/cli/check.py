"""``interp-probe check``: does a checkpoint still run the algorithm of its golden file?"""

from __future__ import annotations

import json

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import SEED, expect_readable, expect_writable, run_command, verified_reading_options, working
from interp.errors import CheckFailed, UsageError, visible

__all__ = ["command"]


@click.command("check")
@click.argument("checkpoint")
@click.option("--golden", required=True, metavar="FILE", help="The golden JSON file.")
@click.option("--update", is_flag=True, help="Write the golden file from this checkpoint instead of comparing.")
@verified_reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--prompts", type=int, help="How many prompts (with --update; else those of the golden file).")
@click.option("--seed", type=SEED, help="Seed (with --update; else that of the golden file).")
def command(
    checkpoint: str, golden: str, update: bool, spec: Reading, as_json: bool, prompts: int | None, seed: int | None
) -> None:
    """Compare the verdict, the coefficients and the fidelity of CHECKPOINT with a golden file.

    Exit code 1 and one line for everything that moved: which coefficient, from what to what, by how many standard
    errors.
    """
    if not update and (prompts is not None or seed is not None):
        raise UsageError("--prompts and --seed come from the golden file; give them with --update only")
    expect_readable(checkpoint)
    if update:
        expect_writable("--golden", golden, checkpoint)
    with working() as progress:
        from interp.checkpoints.opening import open_checkpoint
        from interp.golden import compare_with_golden, update_golden
        from interp.results.plain_data import to_plain

        opened = open_checkpoint(checkpoint, spec)
        line = run_command()
        if update:
            result, moved = update_golden(opened, golden, prompts or 4096, seed or 0, progress, line), []
        else:
            result, moved = compare_with_golden(opened, golden, progress, line)
    status = "updated" if update else "moved" if moved else "unchanged"
    if as_json:
        document = {"golden": golden, "checkpoint": result.checkpoint.name, "status": status}
        document |= {"moved": [str(entry) for entry in moved], "differences": to_plain(moved)}
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(f"{result.checkpoint.name}: {status} ({result.verdict.algorithm}; {golden})")
        for entry in moved:
            click.echo(f"  {visible(str(entry))}")
    if moved:
        raise CheckFailed(
            f"{len(moved)} figure{'s' * (len(moved) > 1)} moved from {golden}; if intended, run again with --update"
        )
