"""``interp-probe unroll``: the implicit linear model of every layer, exactly."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import SEED, expect_readable, use_one_thread, verified_reading_options
from interp.errors import LayoutError, UsageError

__all__ = ["command"]


@click.command("unroll")
@click.argument("checkpoint")
@verified_reading_options
@click.option("--prompts", type=click.IntRange(1, 10_000), default=1, show_default=True, help="How many to unroll.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Fixes the prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
def command(checkpoint: str, spec: Reading, prompts: int, seed: int, as_json: bool) -> None:
    """Unroll CHECKPOINT on prompts of its task: x_i^l = M x_i + u y_i and y_i^l = a y_i - <w, x_i> after every layer l.

    Exact, with no probe: the matrices are read off the product of the layers' maps.
    """
    expect_readable(checkpoint)
    use_one_thread()
    import torch

    from interp.algebra.unrolling import implicit_states, unclipped
    from interp.checkpoints.opening import open_checkpoint
    from interp.models.gram import forward, head_layers
    from interp.models.tasks import Examples, Noisy, task_of

    opened = open_checkpoint(checkpoint, spec)
    model = opened.model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    task.fits(model)
    drawn = task.sample(prompts, seed)
    if model.spec.attention.keys == "causal" or not isinstance(drawn, Examples):
        raise LayoutError(
            f"the task is {task.name!r} with attention.keys {model.spec.attention.keys!r}, expected examples and "
            "queries that share their keys: only then is a layer one linear map"
        )
    grams = drawn.grams(model.spec)
    trajectory = forward(head_layers(model, drawn.context), grams.gram, grams.query)
    met = prompts - int(unclipped(model, trajectory, *drawn.inputs(model.spec)).sum())
    if met:
        raise UsageError(f"{met} of {prompts} prompts meet the clip, where no linear map is exact; try another --seed")
    states = implicit_states(trajectory, model.spec)
    if as_json:
        rows = [{name: _plain(getattr(s, name).tolist()) for name in ("M", "u", "w", "a")} for s in states]
        document = {
            "schema": "interp-probe-unroll/1",
            "checkpoint": {"name": opened.name, "sha256": opened.sha256},
            "prompts": prompts,
            "seed": seed,
            "axes": "M prompt input input; u prompt input label; w prompt label input; a prompt label label",
            "layers": rows,
        }
        click.echo(json.dumps(document))
        return
    name, best = drawn.solution
    noise = f", noise level {float(drawn.sigma[0]):.3g}" if isinstance(drawn, Noisy) else ""
    click.echo(f"{opened.name}: prompt 1 of seed {seed}{noise}")
    click.echo(f"{name:<9}" + _row((-model.spec.readout.sign * best[0, :, 0]).tolist()))
    for layer, state in enumerate(states):
        click.echo(f"layer {layer}  " + _row(state.w[0, 0].tolist()) + f"   a = {float(state.a[0, 0, 0]):.4g}")


def _plain(value: Any) -> Any:
    """Nested lists for JSON: what is not a number, in a network that diverges, is null."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if math.isfinite(value) else None


def _row(values: list[float]) -> str:
    return " ".join(f"{v: .3f}" for v in values[:12]) + (" …" if len(values) > 12 else "")
