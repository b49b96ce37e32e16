"""``interp-probe zoo``: what ships."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from interp.cli.running import progress_line, wide_console

if TYPE_CHECKING:
    from interp.checkpoints.opening import Inspection

__all__ = ["command"]


@click.command("zoo")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def command(as_json: bool) -> None:
    """List the trained models that ship with this package; use one as zoo:NAME."""
    with progress_line() as progress:
        progress("loading")
        from interp.checkpoints.opening import inspect_checkpoint
        from interp.checkpoints.zoo import zoo_names

        models = [inspect_checkpoint(f"zoo:{name}") for name in zoo_names()]
    if as_json:
        click.echo(json.dumps({"schema": "interp-probe-zoo/1", "models": [m.to_dict() for m in models]}, indent=2))
    else:
        _print(models)


LEGEND = (
    "weights        what was trained: the two omegas of GD++ (gd++), diagonal P and Q\n"
    "               (diag), all of P and Q (full), or Q alone with P = I (merged);\n"
    "               of low rank (sketch), or one head per machine (machines); of\n"
    "               causal models: what the last stage of training moved\n"
    "loss           half the mean squared error above the best possible one; of\n"
    "               causal models half the squared error of the next state\n\n"
    "Next: interp-probe zoo:NAME"
)


def _print(models: list[Inspection]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("name", "layers", "heads", "noise", "weights", "loss"):
        table.add_column(header, no_wrap=True)
    for model in models:
        if model.spec is not None:
            recipe, loss = _training(model.spec.provenance)
            table.add_row(model.name, str(model.layers), str(model.heads), _noise(model.spec.task), recipe, loss)
    wide_console().print(table)
    click.echo(f"\n{LEGEND}")


def _noise(task: Mapping[str, Any] | None) -> str:
    """The law of the noise level: U(0, 5), {1, 3} or 0."""
    noise = (task or {}).get("noise", {})
    if "uniform" in noise:
        return "U({:g}, {:g})".format(*noise["uniform"])
    if "choice" in noise:
        return "{" + ", ".join(f"{level:g}" for level in noise["choice"]) + "}"
    return f"{noise['fixed']:g}" if "fixed" in noise else ""


def _training(provenance: Mapping[str, Any]) -> tuple[str, str]:
    """What was trained and what loss it came to, as far as the file says."""
    recipe, loss = provenance.get("recipe"), provenance.get("adjusted_loss", provenance.get("loss"))
    stages = recipe["optimiser"].get("stages") if recipe else None
    named = stages[-1]["weights"] if stages else ""
    return (
        recipe["model"].get("parametrisation", recipe["model"].get("regime", named)) if recipe else "",
        f"{loss['mean']:.3g} ± {loss['stderr']:.1g}" if loss else "",
    )
