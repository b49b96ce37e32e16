"""How a command runs: progress on stderr, only when that is a terminal; on one thread; into files it can write."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.checkpoints.reading import Reading
from interp.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from interp.results import Analysis, ProbeReport

__all__ = [
    "REPORT",
    "SEED",
    "SEED_OPTION",
    "TableFolders",
    "expect_folder",
    "expect_readable",
    "expect_results",
    "expect_writable",
    "json_option",
    "keep_freed_memory",
    "print_result",
    "progress_line",
    "prompts_option",
    "reading_options",
    "run_command",
    "table_options",
    "use_one_thread",
    "verified_reading_options",
    "wide_console",
    "working",
    "write_results",
]

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
KEPT_BLOCK, KEPT_MEMORY = 2**28, 2**30  # bytes
NO_WIDTH = 100_000  # columns
SEED = click.IntRange(0, 2**32 - 1)  # what every generator takes


@contextmanager
def working() -> Iterator[Callable[[str], None]]:
    """The progress line of a command that computes, on one thread."""
    with progress_line() as progress:
        progress("loading")
        use_one_thread()
        yield progress


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A spinner with the current step; calls do nothing when stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(step)


def wide_console() -> Console:
    """Where results are printed. A file or a pipe has no width: nothing is cut or folded there."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else NO_WIDTH)


def run_command() -> str:
    """The command as it was given."""
    return shlex.join(["interp-probe", *sys.argv[1:]])


def expect_readable(*checkpoints: str) -> None:
    """Refuse checkpoints that are not there before anything slow is imported. Raises as ``open_checkpoint`` does."""
    from interp.checkpoints.locating import beginning, locate

    for checkpoint in checkpoints:
        beginning(locate(checkpoint)[1])


def expect_writable(option: str, path: str | Path, source: str | None = None) -> None:
    """Refuse a place that cannot be written, or is the very file that is read, before the work and not after it.

    Raises UsageError.
    """
    try:
        target = Path(path).resolve()
        folder = target.parent
        if not folder.is_dir():
            problem = f"the folder {folder} does not exist; create it first"
        elif target.exists() and not target.is_file():
            problem = "it is a folder or a device, expected a file name"
        elif (reason := _refusal(folder)) is not None:
            problem = f"the folder {folder} may not be written to ({reason}); choose another"
        elif source is not None and target.is_file() and Path(source).exists() and target.samefile(source):
            problem = "it is the file that is being read; choose another name"
        else:
            return
    except (OSError, ValueError) as error:  # a name that no file can have
        problem = f"it is no usable file name ({error})"
    raise UsageError(f"cannot write {option} {path}: {problem}")


def expect_folder(option: str, path: str | Path) -> Path:
    """Make a folder, or refuse one that nothing can be written to, before the work and not after it.

    Raises UsageError.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = _refusal(folder)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason is not None:
        raise UsageError(f"cannot write to the folder {option} {path}: {reason}; choose another")
    return folder


SPEC_OPTION = click.option(
    "--spec", metavar="FILE.toml", help="How to read a file of a foreign layout, or the name of a built-in layout."
)
IGNORE_OPTION = click.option(
    "--ignore",
    multiple=True,
    metavar="PATTERN",
    help="Arrays that may be left out, such as 'norm*'; repeatable.",
)


VERIFY_OPTION = click.option(
    "--verify",
    metavar="PAIRS.npz",
    help="Inputs and the network's own outputs, to check the reading; see verify-template.",
)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --spec and --ignore of a command that reads checkpoints, which gets them as ``spec``."""

    @functools.wraps(command)
    def with_reading(*, spec: str | None, ignore: tuple[str, ...], verify: str | None = None, **rest: Any) -> Any:
        return command(spec=Reading(spec, ignore, verify), **rest)

    return SPEC_OPTION(IGNORE_OPTION(with_reading))


def verified_reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those, and --verify."""
    return VERIFY_OPTION(reading_options(command))


REPORT = click.option("--report", metavar="OUT.html", help="Also write one offline HTML file.")
SEED_OPTION = click.option("--seed", type=SEED, default=0, show_default=True, help="Fixes every number of the result.")


def prompts_option(words: str) -> Decorator:
    return click.option("--prompts", type=int, default=4096, show_default=True, help=words)


def json_option(instead: str) -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help=f"Print one JSON document{instead}.")


@dataclass(frozen=True)
class TableFolders:
    """Where the tables of a result are wanted, by kind of file."""

    folders: Mapping[str, str]

    def expect(self) -> None:
        """Make the folders, or refuse what cannot be written, before the work. Raises UsageError."""
        if "parquet" in self.folders and importlib.util.find_spec("pyarrow") is None:
            raise UsageError("--parquet needs pyarrow, which is not installed; pip install pyarrow, or write --csv")
        for kind, folder in self.folders.items():
            expect_folder(f"--{kind}", folder)

    def write(self, tables: Callable[[], Mapping[str, pd.DataFrame]], checkpoint: str | None) -> None:
        """Write them; where none are wanted they are not even made."""
        if self.folders:
            from interp.reports.table_files import write_tables

            made = tables()
            for kind, folder in self.folders.items():
                write_tables(made, folder, kind, checkpoint)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --csv and --parquet of a command with tables, which gets them as ``tables``."""

    @functools.wraps(command)
    def with_tables(*, csv: str | None, parquet: str | None, **rest: Any) -> Any:
        given = {"csv": csv, "parquet": parquet}
        return command(tables=TableFolders({kind: folder for kind, folder in given.items() if folder}), **rest)

    parquet = click.option("--parquet", metavar="DIR", help="The same as Parquet files.")
    csv = click.option("--csv", metavar="DIR", help="Also write every table to a CSV file of its own in this folder.")
    return csv(parquet(with_tables))


def expect_results(checkpoint: str, report: str | None, tables: TableFolders) -> None:
    """Refuse what cannot be read or written before anything slow is imported. Raises UsageError, UnreadableFile."""
    expect_readable(checkpoint)
    if report is not None:
        expect_writable("--report", report, checkpoint)
    tables.expect()


def write_results(
    result: Analysis | ProbeReport, report: str | None, tables: TableFolders, progress: Callable[[str], None]
) -> None:
    """The page and the tables that are wanted."""
    if report is not None:
        progress("writing the report")
        from interp.reports.html import render_report

        render_report(result).write(report)
    tables.write(result.tables, result.checkpoint.name)


def print_result(result: Analysis | ProbeReport, as_json: bool, report: str | None) -> None:
    """The JSON document or the tables, and where the report is."""
    if as_json:
        from interp.reports.document import dumps

        click.echo(dumps(result))
        return
    from interp.reports.terminal import print_analysis, print_probes
    from interp.results import Analysis

    if isinstance(result, Analysis):
        print_analysis(result, wide_console())
    else:
        print_probes(result, wide_console())
    if report is not None:
        click.echo(f"\nReport: {report}")


def _refusal(folder: Path) -> str | None:
    """Why no file can be made in a folder. Asked by making one: what permissions say does not hold for the superuser,
    on file systems of the kernel, or on media that are full or read only."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".interp-", dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def use_one_thread() -> None:
    """Batches of small matrices gain little from a second thread, and lose tenfold when the cores are shared."""
    import numpy  # noqa: F401 - its own linear algebra must be there to be limited
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Have the C library hand freed memory to the next tensor. By default glibc returns blocks above 32 MB to the
    system at once, and getting them back, zeroed page by page, takes up to half of the time of an analysis."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK)
        mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY)
