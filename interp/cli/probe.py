"""``interp-probe probe``: what can be read from the activations, layer by layer, with controls."""

from __future__ import annotations

import re

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
from interp.errors import UsageError

__all__ = ["command", "numbers"]


@click.command("probe")
@click.argument("checkpoint")
@click.option(
    "--target", "targets", multiple=True, metavar="NAME", help="What to look for; repeatable. Default: all that apply."
)
@click.option("--layers", metavar="0,2-4", help="Layers run; 0 is the input. Default: all.")
@click.option(
    "--positions", metavar="5,10-12", help="Tokens to probe. Default: the query, or some of a causal model's positions."
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    metavar="NAME",
    help="sound, or as published: akyurek (minutes), mesa; repeatable. Default: sound, and mesa where it applies.",
)
@verified_reading_options
@REPORT
@json_option(" instead of a table")
@prompts_option("How many prompts, in constant memory.")
@SEED_OPTION
@table_options
def command(
    checkpoint: str,
    targets: tuple[str, ...],
    layers: str | None,
    positions: str | None,
    protocols: tuple[str, ...],
    spec: Reading,
    report: str | None,
    as_json: bool,
    prompts: int,
    seed: int,
    tables: TableFolders,
) -> None:
    """Fit linear probes to the activations of CHECKPOINT and score them on prompts they have not seen.

    Beside every score: the same probe on untrained models, on shuffled targets, and on the inputs alone.
    """
    expect_results(checkpoint, report, tables)
    wanted_layers = None if layers is None else numbers("--layers", layers)
    wanted_positions = None if positions is None else numbers("--positions", positions)
    with working() as progress:
        from interp.checkpoints.opening import open_checkpoint
        from interp.evidence.probing import probe_checkpoint

        result = probe_checkpoint(
            open_checkpoint(checkpoint, spec),
            targets=targets,
            layers=wanted_layers,
            positions=wanted_positions,
            prompts=prompts,
            protocols=protocols,
            seed=seed,
            progress=progress,
            command=run_command(),
        )
        write_results(result, report, tables, progress)
    print_result(result, as_json, report)


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers and ranges, "0,2-4", in ascending order. Raises UsageError naming the option."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if match is None or first > last:
            raise UsageError(f"{option} is {text!r}, expected whole numbers and ranges such as 0,2-4")
        found.update(range(first, last + 1))
    return tuple(sorted(found))
