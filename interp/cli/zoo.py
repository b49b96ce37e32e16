"""``interp-probe zoo``: what ships."""

from __future__ import annotations

import json

import click

__all__ = ["command"]


@click.command("zoo")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(as_json: bool) -> None:
    """List the trained models that ship with this package; use one as zoo:NAME."""
    from interp.checkpoints.opening import inspect_checkpoint
    from interp.checkpoints.zoo import zoo_names

    entries = {name: inspect_checkpoint(f"zoo:{name}").to_dict() for name in zoo_names()}
    if as_json:
        click.echo(json.dumps(entries, indent=2, ensure_ascii=False))
        return
    for name in entries:
        click.echo(f"zoo:{name}")
