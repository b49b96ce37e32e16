"""``interp-probe inspect``: what a file holds, from its header only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from interp.cli.running import expect_readable

if TYPE_CHECKING:
    from interp.checkpoints.opening import Inspection

__all__ = ["command"]


@click.command("inspect")
@click.argument("checkpoint")
@click.option("--spec", metavar="FILE.toml", help="How to read a foreign file, or the name of a built-in layout.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(checkpoint: str, spec: str | None, as_json: bool) -> None:
    """Show what CHECKPOINT (a path or zoo:NAME) holds, from its header only: no weights are read, nothing is run."""
    expect_readable(checkpoint)
    from interp.checkpoints.opening import inspect_checkpoint

    found = inspect_checkpoint(checkpoint, spec)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)


def _print(found: Inspection) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from interp.checkpoints.locating import shown

    console = Console(highlight=False)
    console.print(Text(f"{found.name}: {found.format}, {found.size:,} bytes, sha256 {found.sha256}"), soft_wrap=True)
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    if found.spec is None:
        facts.add_row("layout", Text("not known"))
        facts.add_row("problem", Text(str(found.problem)))
    else:
        spec = found.spec
        attention = f"keys {spec.attention.keys}, scale {spec.attention.scale}"
        facts.add_row("layout", Text(str(found.layout)))
        facts.add_row("size", Text(f"{_count(found.layers, 'layer')}, {_count(found.heads, 'head')}, {found.dtype}"))
        facts.add_row("tokens", Text(", ".join(f"{shown(name)}: {size}" for name, size in spec.tokens)))
        facts.add_row("attention", Text(f"{attention}, {'' if spec.residual else 'no '}residual"))
        if spec.clip is not None:
            facts.add_row("clip", Text(f"activations clipped to ±{spec.clip:g}"))
        facts.add_row("prediction", Text(f"{'-' if spec.readout.sign < 0 else '+'}{shown(spec.readout.channel)}"))
        facts.add_row("task", Text("none stated" if spec.task is None else _json(spec.task)))
        if spec.provenance:
            facts.add_row("provenance", Text(_json(spec.provenance)))
    for note in found.notes:
        facts.add_row("note", Text(note))
    console.print(facts)
    table = Table("tensor", "shape", "dtype", box=None, pad_edge=False, header_style="bold")
    for name, shape, dtype in found.arrays:
        table.add_row(Text(shown(name)), Text(" x ".join(map(str, shape)) or "one number"), Text(dtype))
    console.print()
    console.print(table)


def _json(table: Mapping[str, Any]) -> str:
    return json.dumps(dict(table), ensure_ascii=False)


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
