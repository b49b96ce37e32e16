"""``interp-probe train``: a recipe in, a canonical checkpoint out."""

from __future__ import annotations

import json
from pathlib import Path

import click

from interp.cli.running import SEED, expect_writable, progress_line, use_one_thread

__all__ = ["command"]


@click.command("train")
@click.argument("recipe")
@click.option("--out", metavar="OUT.safetensors", help="Where to write the checkpoint [default: NAME.safetensors].")
@click.option("--seed", type=SEED, help="Replaces the seed of the recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a sentence.")
def command(recipe: str, out: str | None, seed: int | None, as_json: bool) -> None:
    """Train a model by RECIPE, a TOML file or the name of a shipped recipe.

    An interrupted run loses nothing: its state lies beside the checkpoint, and the same command goes on from it and
    ends with the same weights.
    """
    with progress_line() as progress:
        progress("loading")
        from interp.checkpoints.canonical import write_checkpoint
        from interp.models.training import Step, load_recipe, train

        plan = load_recipe(recipe)
        if seed is not None:
            plan = plan.with_seed(seed)
        target = Path(out if out is not None else f"{plan.name}.safetensors")
        expect_writable("--out", target, recipe)

        record = target.with_name(f"{target.name}.training")

        def watch(step: Step) -> None:
            progress(f"{step.name}: iteration {step.iteration}, loss {step.loss:.6g}")

        use_one_thread()
        trained = train(plan, record=record, watch=watch)
        write_checkpoint(trained.model, target)
    measure = trained.measure
    if as_json:
        summary = {
            "recipe": plan.to_dict(),
            "checkpoint": str(target),
            measure.key: trained.loss,
            "stderr": trained.stderr,
            "prompts": trained.prompts,
            **trained.effort,
            "seconds": trained.seconds,
        }
        click.echo(json.dumps(summary, indent=2))
        return
    done = ", ".join(f"{value} {name}" for name, value in trained.effort.items())
    click.echo(
        f"{target}: {measure.key.replace('_', ' ')} {trained.loss:.4g} +- {trained.stderr:.2g} ({measure.words}, "
        f"{trained.prompts} fresh {plan.task.words.prompt}s), {done}, {trained.seconds:.0f} s"
    )
