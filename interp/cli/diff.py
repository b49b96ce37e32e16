"""``interp-probe diff``: two checkpoints, aligned up to gauge."""

from __future__ import annotations

import json
from typing import Any

import click

from interp.checkpoints.reading import Reading
from interp.cli.explore import open_page
from interp.cli.running import expect_readable, expect_writable, reading_options, run_command, wide_console, working
from interp.errors import UsageError

__all__ = ["command"]


@click.command("diff")
@click.argument("a")
@click.argument("b")
@reading_options
@click.option("--out", metavar="OUT.html", help="Also write the page that 'explore A B' writes.")
@click.option("--open", "opened", is_flag=True, help="Open that page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(a: str, b: str, spec: Reading, out: str | None, opened: bool, as_json: bool) -> None:
    """How far B is from A, layer by layer, whatever the order, sign and scale of their heads.

    The distance of a layer is |K_B - K_A| / |K_A| with K[a,b,c,e] = sum_h P_h[a,b] Q_h[e,c], over the
    entries that can reach the prediction: all that a network depends on.
    """
    if opened and out is None:
        raise UsageError("--open has no page to open; add --out OUT.html")
    expect_readable(a, b)
    for checkpoint in (a, b) if out is not None else ():
        expect_writable("--out", out or "", checkpoint)
    with working() as progress:
        from interp.weight_maps import explore

        weight_maps = explore((a, b), spec, progress, run_command())
        if out is not None:
            progress("writing the page")
            from interp.reports.explorer import render_explorer

            render_explorer(weight_maps).write(out)
    difference = weight_maps.difference()
    if as_json:
        click.echo(json.dumps(difference, allow_nan=False))
    else:
        _print(difference)
        if out is not None:
            click.echo(f"\nPage: {out}")
    if opened and out is not None:
        open_page(out)


def _print(difference: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = wide_console()
    a, b = (difference[key]["name"] for key in ("a", "b"))
    console.print(Text(f"A {a}\nB {b}{': the same weights' if difference['same_weights'] else ''}"), soft_wrap=True)
    for note in difference["notes"]:
        console.print(Text(f"note: {note}"))
    table = Table("layer", "|K_B - K_A| / |K_A|", "heads of B for those of A", "coefficients that differ most: A, B")
    for layer in difference["layers"]:
        heads = ", ".join(
            str(head["b"]) + ("" if head["factor"] == 1 else f" (P x {_short(head['factor'])})")
            for head in layer["heads"][:8]
        ) + (", …" if len(layer["heads"]) > 8 else "")
        table.add_row(str(layer["index"]), _short(layer["distance"]), Text(heads), Text(_largest(layer)))
    console.print(table)


def _largest(layer: dict[str, Any]) -> str:
    """The three coefficients whose values are furthest apart."""
    known = [
        (abs(pair["b"] - pair["a"]), name, pair)
        for name, pair in layer["coefficients"].items()
        if pair["a"] is not None and pair["b"] is not None and pair["a"] != pair["b"]
    ]
    known.sort(key=lambda entry: -entry[0])
    return "; ".join(f"{_symbol(name)}: {_short(pair['a'])}, {_short(pair['b'])}" for _, name, pair in known[:3])


def _symbol(name: str) -> str:
    """omega_xx as it is printed everywhere: ω_xx."""
    for word, letter in (("omega_", "ω_"), ("tau_", "τ_")):
        name = letter + name.removeprefix(word) if name.startswith(word) else name
    return name


def _short(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
