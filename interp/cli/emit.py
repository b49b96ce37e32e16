"""``interp-probe emit``: the recovered algorithm as code, with its certificate."""

from __future__ import annotations

import json
import shlex

import click

from interp.checkpoints.reading import Reading
from interp.cli.running import (
    SEED_OPTION,
    expect_readable,
    expect_writable,
    prompts_option,
    run_command,
    verified_reading_options,
    working,
)
from interp.errors import CheckFailed
from interp.reports.emit import LANGUAGES, emitted

__all__ = ["command"]


@click.command("emit")
@click.argument("checkpoint")
@click.option("--to", "form", type=click.Choice(list(LANGUAGES)), required=True, help="What to write.")
@click.option("--out", metavar="FILE", help="Where to write it [default: to standard output].")
@verified_reading_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: the certificate, and the text.")
@prompts_option("To identify on, and of every kind in the certificate (of linear dynamics at most 512).")
@SEED_OPTION
def command(checkpoint: str, form: str, out: str | None, spec: Reading, as_json: bool, prompts: int, seed: int) -> None:
    """Write the algorithm that CHECKPOINT runs as a function that needs nothing of this package: of (X, y, x_query) for
    regression, of (A, B, C) for matrix completion, of the states so far for linear dynamics.

    It carries a certificate: how far it is from the network on fresh prompts of the task and outside of it. Running an
    emitted Python file checks it. Exit code 1 when no family is recognized, so that there is nothing to write.
    """
    expect_readable(checkpoint)
    if out is not None:
        expect_writable("--out", out, checkpoint)
    with working() as progress:
        from interp.certificate import certify, recognize
        from interp.checkpoints.opening import open_checkpoint
        from interp.models.atomic import write_atomically

        opened = open_checkpoint(checkpoint, spec)
        found = recognize(opened, prompts, seed, progress)
        if found is None:
            raise CheckFailed(
                f"{opened.name}: no algorithm to emit, the verdict is unrecognized; "
                f"see interp-probe {shlex.quote(checkpoint)}"
            )
        progress("comparing the algorithm with the network")
        certificate = certify(found, prompts, run_command())
        text = emitted(certificate, form)
        if out is not None:
            write_atomically(out, text)
    if as_json:
        fields = {"schema": "interp-probe-emit/1", "to": form, "certificate": certificate.to_dict(), "text": text}
        click.echo(json.dumps(fields, allow_nan=False))
    elif out is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{out}: {certificate.recovered.title} of {opened.name}, for {form}")
