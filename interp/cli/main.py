"""``interp-probe``: the entry point, its sub-commands and its exit codes.

0 done; 1 a stated check failed; 2 usage; 3 unreadable or unsafe file; 4 layout unknown; 5 part of a sweep failed;
130 interrupted. Commands are imported when they are called, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from interp.models.errors import InterpProbeError, did_you_mean

__all__ = ["cli", "main"]

COMMANDS = {
    "analyse": ("interp.cli.analyse", "Say which algorithm a checkpoint runs (the default command)."),
    "check": ("interp.cli.check", "Compare a checkpoint with a golden file; exit code 1 when it moved."),
    "inspect": ("interp.cli.inspect", "Show what a file holds, from its header only."),
    "train": ("interp.cli.train", "Train a model from a recipe."),
    "unroll": ("interp.cli.unroll", "Print the implicit linear model of every layer."),
    "zoo": ("interp.cli.zoo", "List the trained models that ship with this package."),
}


class LazyGroup(click.Group):
    """Sub-commands by name; anything else in front is a checkpoint for ``analyse``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(COMMANDS[cmd_name][0]).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in COMMANDS:
            return super().resolve_command(ctx, args)
        # A word that is no file but nearly a command is a slip of the pen, not a checkpoint.
        looks_like_file = os.path.exists(args[0]) or any(mark in args[0] for mark in "./\\:")
        if not looks_like_file:
            ctx.fail(f"no command and no file {args[0]!r}; {did_you_mean(args[0], COMMANDS)}")
        return "analyse", self.get_command(ctx, "analyse"), args


EPILOG = (
    "Exit codes: 0 done; 1 a stated check failed; 2 usage; 3 unreadable or unsafe file; 4 layout unknown; "
    "5 part of a sweep failed; 130 interrupted."
)


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
    subcommand_metavar="CHECKPOINT [OPTIONS] | COMMAND [ARGS]...",
)
@click.version_option(package_name="interp-probe", prog_name="interp-probe")
def cli() -> None:
    """Which algorithm does a linear transformer run?

    interp-probe CHECKPOINT [--spec FILE.toml] [--report OUT.html] [--json] [--prompts N] [--seed S]

    CHECKPOINT is a path or zoo:NAME. See 'interp-probe analyse --help' for its options.
    """


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every error the package raises on purpose is one line and an exit code."""
    try:
        code = cli.main(args=argv, standalone_mode=False)
    except InterpProbeError as error:
        click.echo(f"interp-probe: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"interp-probe: {error.format_message()}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interp-probe: interrupted", err=True)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
