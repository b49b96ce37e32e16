"""``interp-probe sweep``: many checkpoints, one document each, and a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp import __version__
from interp.checkpoints.reading import Reading
from interp.cli.running import (
    SEED,
    TableFolders,
    expect_folder,
    progress_line,
    reading_options,
    run_command,
    table_options,
    use_one_thread,
    wide_console,
)
from interp.errors import LayoutError, SweepFailed, UnreadableFile
from interp.results import Analysis, SweepRow, to_frame
from interp.sweep import Settings, checkpoints_of, sweep

if TYPE_CHECKING:
    from interp.checkpoints.opening import Checkpoint

__all__ = ["command"]


@click.command("sweep")
@click.argument("checkpoints", nargs=-1, required=True)
@click.option("--out", metavar="FOLDER", required=True, help="One JSON document a checkpoint goes there.")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
@click.option("--prompts", type=int, default=4096, show_default=True, help="For each: half fitted on, half scored on.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Fixes every number of the results.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="How many at a time.")
@table_options
def command(
    checkpoints: tuple[str, ...],
    out: str,
    spec: Reading,
    as_json: bool,
    prompts: int,
    seed: int,
    jobs: int,
    tables: TableFolders,
) -> None:
    """Analyse CHECKPOINTS (paths, folders of them, zoo:NAME), as ``interp-probe CHECKPOINT`` does each.

    A document that FOLDER holds already, of the same file, --spec, settings and version of this tool, is not made
    again. Exit code 5 when one or more checkpoints could not be analysed; the others are.
    """
    names = checkpoints_of(checkpoints)
    folder = expect_folder("--out", out)
    tables.expect()
    settings = Settings(spec=spec, prompts=prompts, seed=seed)
    rows: dict[int, SweepRow] = {}
    with progress_line() as progress:
        progress(f"0 of {len(names)} checkpoints")
        for index, row in sweep(names, folder, settings, jobs, _document):
            rows[index] = row
            progress(f"{len(rows)} of {len(names)} checkpoints; the last was {row.checkpoint}")
    ordered = [rows[index] for index in range(len(names))]
    tables.write(lambda: {"sweep": to_frame(ordered)}, None)
    failed = sum(row.error is not None for row in ordered)
    if as_json:
        fields = {"schema": "interp-probe-sweep/1", "prompts": prompts, "seed": seed}
        click.echo(json.dumps({**fields, "rows": [row.to_dict() for row in ordered]}, allow_nan=False))
    else:
        from interp.reports.sweep_table import print_sweep

        print_sweep(ordered, wide_console())
    if failed:
        raise SweepFailed(f"{failed} of {len(ordered)} checkpoints could not be analysed; see the table")


def _document(checkpoint: str, place: Path, settings: Settings) -> SweepRow:
    """Analyse one checkpoint into ``place``, unless the document there is already that."""
    use_one_thread()
    from interp.analysis import analyse
    from interp.checkpoints.opening import open_checkpoint
    from interp.reports.document import load, write

    opened = open_checkpoint(checkpoint, settings.spec)
    result = None
    if place.is_file():
        try:
            known = load(place)
        except (LayoutError, UnreadableFile):
            known = None  # not ours, or of another version: made again
        if known is not None and _is_of(known, opened, settings):
            result = known
    if result is None:
        result = analyse(opened, settings.prompts, settings.seed, command=run_command())
        write(result, place)
    verdict = result.verdict
    keys = ("algorithm", "recognized", "solves_task", "fidelity", "fidelity_ci")
    shown: dict[str, Any] = {key: getattr(verdict, key) for key in keys}
    return SweepRow(checkpoint=checkpoint, document=str(place), **shown)


def _is_of(known: Analysis, opened: Checkpoint, settings: Settings) -> bool:
    """Whether a document is the whole analysis of a checkpoint with these settings, by this version."""
    expected = {"tool": f"interp-probe {__version__}", "prompts": settings.prompts, "seed": settings.seed}
    same_file = (known.checkpoint.sha256, known.checkpoint.read_by) == (opened.sha256, opened.read_by)
    made = {key: known.provenance.get(key) for key in (*expected, "verdict_only")}
    return same_file and made == {**expected, "verdict_only": False}
