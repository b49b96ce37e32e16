"""``interp-probe inspect``: what a file holds, from its header only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import expect_readable, reading_options, wide_console
from interp.errors import visible
from interp.results.plain_data import to_plain

if TYPE_CHECKING:
    from interp.checkpoints.opening import Inspection
    from interp.models.specification import ModelSpec

__all__ = ["command"]


@click.command("inspect")
@click.argument("checkpoint")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def command(checkpoint: str, spec: Reading, as_json: bool) -> None:
    """Show what CHECKPOINT (a path or zoo:NAME) holds, from its header only: no weights are read, nothing is run."""
    expect_readable(checkpoint)
    from interp.checkpoints.opening import inspect_checkpoint

    found = inspect_checkpoint(checkpoint, spec)
    if as_json:
        click.echo(json.dumps(to_plain(found.to_dict()), indent=2, allow_nan=False))
    else:
        _print(found)


def _print(found: Inspection) -> None:
    from rich.table import Table
    from rich.text import Text

    console = wide_console()
    console.print(Text(f"{found.name}: {found.format}, {found.size:,} bytes, sha256 {found.sha256}"), soft_wrap=True)
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("layout", Text(found.layout or "not known"))
    if found.spec is not None:
        size = f"{_count(found.layers, 'layer')}, {_count(found.heads, 'head')}, {found.dtype}"
        for name, value in {"size": size, **_facts(found.spec)}.items():
            facts.add_row(name, Text(value))
    if found.problem is not None:
        facts.add_row("problem", Text(found.problem))
    for note in found.notes:
        facts.add_row("note", Text(note))
    console.print(facts)
    unused = {entry.name: entry for entry in found.unused}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("tensor", "shape", "dtype", *(("not used, looks like",) if unused else ())):
        table.add_column(heading, overflow="fold")
    rows = [*found.arrays, *((u.name, u.info.shape, u.info.dtype) for u in found.unused)]
    for name, shape, dtype in dict.fromkeys(rows):
        cells = [visible(name), " x ".join(map(str, shape)) or "one number", dtype]
        table.add_row(*map(Text, [*cells, unused[name].looks_like if name in unused else ""][: len(table.columns)]))
    console.print()
    console.print(table)


def _facts(spec: ModelSpec) -> dict[str, str]:
    attention = f"keys {spec.attention.keys}, scale {spec.attention.scale}"
    facts = {
        "tokens": ", ".join(f"{visible(name)}: {size}" for name, size in spec.tokens),
        "attention": f"{attention}, {'' if spec.residual else 'no '}residual",
        "clip": "" if spec.clip is None else f"activations clipped to ±{spec.clip:g}",
        "prediction": f"{'-' if spec.readout.sign < 0 else '+'}{visible(spec.readout.channel)}",
        "task": "none stated" if spec.task is None else _json(spec.task),
        "provenance": _json(spec.provenance) if spec.provenance else "",
    }
    return {name: value for name, value in facts.items() if value}


def _json(table: Mapping[str, Any]) -> str:
    return visible(json.dumps(to_plain(dict(table)), ensure_ascii=False), 4000)


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
