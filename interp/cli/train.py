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
        from interp.models.training import (
            EmbeddedRecipe,
            SequenceRecipe,
            Step,
            load_recipe,
            train,
            train_embedded,
            train_on_sequences,
        )

        plan = load_recipe(recipe)
        if seed is not None:
            plan = plan.with_seed(seed)
        target = Path(out if out is not None else f"{plan.name}.safetensors")
        expect_writable("--out", target, recipe)

        record = target.with_name(f"{target.name}.training")

        def watch(step: Step) -> None:
            progress(f"{step.name}: iteration {step.iteration}, adjusted loss {step.loss:.6g}")

        def follow(stage: int, step: int, loss: float) -> None:
            progress(f"stage {stage}: step {step}, loss {loss:.4g}")

        if isinstance(plan, EmbeddedRecipe):
            use_one_thread()
            made = train_embedded(plan, record=record, watch=lambda s, i, e: progress(f"{s}: {i}, error {e:.4g}"))
            trained, measure, loss, count = made, "relative_error", made.error, {"seeds": len(made.seeds)}
            words = f"mean squared error relative to the target's mean square, {made.prompts} fresh prompts"
        elif not isinstance(plan, SequenceRecipe):
            trained = train(plan, record=record, watch=watch)
            measure, loss, count = "adjusted_loss", trained.adjusted_loss, {"iterations": trained.iterations}
            words = f"half mean squared error above the optimum, {trained.prompts} fresh prompts"
        else:
            use_one_thread()
            trained = train_on_sequences(plan, record=record, watch=follow)
            measure, loss, count = "loss", trained.loss, {"steps": trained.steps}
            words = f"half the squared error of the next state, {trained.prompts} fresh sequences"
        write_checkpoint(trained.model, target)
    if as_json:
        summary = {
            "recipe": plan.to_dict(),
            "checkpoint": str(target),
            measure: loss,
            "stderr": trained.stderr,
            "prompts": trained.prompts,
            **count,
            "seconds": trained.seconds,
        }
        click.echo(json.dumps(summary, indent=2))
        return
    done = ", ".join(f"{value} {name}" for name, value in count.items())
    click.echo(
        f"{target}: {measure.replace('_', ' ')} {loss:.4g} +- {trained.stderr:.2g} ({words}), {done}, "
        f"{trained.seconds:.0f} s"
    )
