"""``interp-probe verify-template``: Python that asks a network for its own outputs, for ``--verify``."""

from __future__ import annotations

import shlex

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import expect_readable, expect_writable, reading_options

__all__ = ["command"]


@click.command("verify-template")
@click.argument("checkpoint")
@reading_options
@click.option("--out", metavar="FILE.py", help="Where to write it, instead of to the terminal.")
def command(checkpoint: str, spec: Reading, out: str | None) -> None:
    """Write the few lines of Python that make the file for --verify CHECKPOINT in your own code."""
    expect_readable(checkpoint)
    if out is not None:
        expect_writable("--out", out, checkpoint)
    from interp.checkpoints.opening import open_checkpoint
    from interp.checkpoints.verification import template
    from interp.models.atomic import write_atomically
    from interp.models.tasks import task_of

    model = open_checkpoint(checkpoint, spec).model
    task = task_of(model.spec.task)
    task.fits(model)
    tokens = [given.shape[1] for given in task.sample(1, 0).inputs(model.spec)]
    arguments = [
        checkpoint,
        *(["--spec", spec.spec] if spec.spec else []),
        *(f"--ignore={said}" for said in spec.ignore),
    ]
    text = template(model, tokens[0], tokens[1] if len(tokens) > 1 else 0, shlex.join(arguments))
    if out is None:
        click.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
