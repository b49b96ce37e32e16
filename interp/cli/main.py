"""``interp-probe``: the entry point, its sub-commands and its exit codes.

0 done; 1 a stated check failed; 2 usage; 3 unreadable or unsafe file; 4 layout unknown; 5 part of a sweep failed;
6 a fault of this tool; 130 interrupted. Commands are imported when they are called, so that ``--help`` is quick.
"""

from __future__ import annotations

import importlib
import io
import os
import sys

import click

from interp.errors import InterpProbeError, UsageError, did_you_mean, unforeseen, visible

__all__ = ["cli", "main"]

COMMANDS = {
    "analyse": ("interp.cli.analyse", "Say which algorithm a checkpoint runs (the default command)."),
    "check": ("interp.cli.check", "Compare a checkpoint with a golden file; exit code 1 when it moved."),
    "diff": ("interp.cli.diff", "How far one checkpoint is from another, aligned up to gauge."),
    "emit": ("interp.cli.emit", "Write the recovered algorithm as code: numpy, torch or LaTeX."),
    "explore": ("interp.cli.explore", "Write an interactive page of the weight matrices."),
    "identify": ("interp.cli.identify", "The verdict alone: families, coefficients and losses."),
    "inspect": ("interp.cli.inspect", "Show what a file holds, from its header only."),
    "probe": ("interp.cli.probe", "What can be read from the activations, layer by layer, with controls."),
    "reproduce": ("interp.cli.reproduce", "A paper's table, its figures beside ours; trains the cells asked for."),
    "sweep": ("interp.cli.sweep", "Analyse many checkpoints: one document each, and a table."),
    "train": ("interp.cli.train", "Train a model from a recipe."),
    "unroll": ("interp.cli.unroll", "Print the implicit linear model of every layer."),
    "verify-template": ("interp.cli.verify_template", "Write the Python that makes a file for --verify."),
    "zoo": ("interp.cli.zoo", "List the trained models that ship with this package."),
}


class LazyGroup(click.Group):
    """Sub-commands by name; anything else is the checkpoint of ``analyse``. Options may come before either."""

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
        word = next((arg for arg in args if not arg.startswith("-")), "")
        if word in COMMANDS:
            at = args.index(word)
            return word, self.get_command(ctx, word), args[:at] + args[at + 1 :]
        # A first word that looks like no file is a slip of the pen, not a checkpoint.
        if word == args[0] and not any(mark in word for mark in "./\\:") and not os.path.exists(word):
            from interp.checkpoints.zoo import zoo_names

            known = [*COMMANDS, *(f"zoo:{name}" for name in zoo_names())]
            raise UsageError(f"{word!r} is no command and no file; {did_you_mean(word, known)}")
        return "analyse", self.get_command(ctx, "analyse"), args


EPILOG = (
    "Exit codes: 0 done; 1 a stated check failed; 2 usage; 3 unreadable or unsafe file; 4 layout unknown; "
    "5 part of a sweep failed; 6 a fault of this tool; 130 interrupted."
)


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    invoke_without_command=True,
    options_metavar="",
    subcommand_metavar="CHECKPOINT [OPTIONS] | COMMAND [ARGS]",
    context_settings={"help_option_names": ["-h", "--help"], "ignore_unknown_options": True},
)
@click.version_option(package_name="interp-probe", prog_name="interp-probe")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Which algorithm does a linear transformer run?

    interp-probe CHECKPOINT [--spec FILE.toml] [--report OUT.html] [--json] [--prompts N] [--seed S]

    CHECKPOINT is a path or zoo:NAME. See 'interp-probe analyse --help' for its options.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(UsageError.exit_code)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; every error the package raises on purpose is one line and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    try:
        code = cli.main(
            args=_plain(sys.argv[1:] if argv is None else argv), prog_name="interp-probe", standalone_mode=False
        )
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a reader that left or a full disk can still be dealt with
    except InterpProbeError as error:
        code = _failed(str(error), error.exit_code)
    except click.ClickException as error:
        command = getattr(getattr(error, "ctx", None), "command_path", "interp-probe")
        code = _failed(f"{error.format_message().rstrip('.')}; see {command} --help", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _failed("interrupted", 130)
    except (BrokenPipeError, SystemExit):  # SystemExit: click and rich end so when the reader of stdout went away
        _abandon_stdout()
        code = 0
    except OSError as error:
        _abandon_stdout()
        code = _failed(f"stopped by the system: {error}", UsageError.exit_code)
    except Exception as error:
        code = _failed(*unforeseen(error))
    sys.exit(code if isinstance(code, int) else 0)


def _plain(arguments: list[str]) -> list[str]:
    """The arguments with every name that begins with a dash written as ``./-name``: what comes after ``--``, and a file
    that is there and whose name no option can have. click would take it for options."""
    options, end, names = arguments, len(arguments), []
    if "--" in arguments:
        end = arguments.index("--")
        options, names = arguments[:end], arguments[end + 1 :]
    return [
        f"./{word}" if word.startswith("-") and (at >= end or _is_file(word)) else word
        for at, word in enumerate([*options, *names])
    ]


def _is_file(word: str) -> bool:
    return "." in word and "=" not in word and os.path.lexists(word)


def _failed(message: str, code: int) -> int:
    click.echo(f"interp-probe: {visible(' '.join(message.splitlines()), 4000)}", err=True)
    return code


def _abandon_stdout() -> None:
    """What is still in the buffer must not fail again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
