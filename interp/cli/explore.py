"""``interp-probe explore``: the weight matrices as one interactive page."""

from __future__ import annotations

import json
from pathlib import Path

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import expect_readable, expect_writable, run_command, verified_reading_options, working

__all__ = ["command", "open_page"]


@click.command("explore")
@click.argument("checkpoints", nargs=-1, required=True, metavar="CHECKPOINT [CHECKPOINT_B | MORE STEPS...]")
@verified_reading_options
@click.option("--out", metavar="OUT.html", default="explorer.html", show_default=True, help="The page to write.")
@click.option("--open", "opened", is_flag=True, help="Open the page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: coefficients, counts, hashes.")
def command(checkpoints: tuple[str, ...], spec: Reading, out: str, opened: bool, as_json: bool) -> None:
    """Write an offline HTML page to look at the weights of a CHECKPOINT (a path or zoo:NAME) cell by cell.

    Two checkpoints are compared (A, B and B - A, aligned up to gauge); three or more are steps of a training. Any
    checkpoint that loads will do: causal, without a task, or with weights that are not finite.
    """
    expect_readable(*checkpoints)
    for checkpoint in checkpoints:
        expect_writable("--out", out, checkpoint)
    with working() as progress:
        from interp.reports.explorer import render_explorer
        from interp.weight_maps import explore

        weight_maps = explore(checkpoints, spec, progress, run_command())
        progress("writing the page")
        page = render_explorer(weight_maps)
        page.write(out)
    if as_json:
        written = {"path": out, "bytes": page.size, "precision": page.thinned}
        click.echo(json.dumps({**weight_maps.to_dict(), "page": written}, allow_nan=False))
    else:
        for note in weight_maps.notes:
            click.echo(f"note: {note}")
        click.echo(f"{out}: {page.size / 1e6:.1f} MB. {page.thinned}")
    if opened:
        open_page(out)


def open_page(path: str) -> None:
    """In the user's browser. A machine without one is told where the page is; the work is done all the same."""
    import webbrowser

    try:
        shown = webbrowser.open(Path(path).resolve().as_uri())
    except (webbrowser.Error, OSError):
        shown = False
    if not shown:
        click.echo(f"interp-probe: found no browser to open {path} with", err=True)
