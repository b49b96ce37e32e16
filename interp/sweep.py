"""Many checkpoints, one document each: a file that cannot be analysed does not stop the others, and a sweep that was
interrupted goes on where it stopped."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from interp.checkpoints.locating import SUFFIXES
from interp.checkpoints.reading import Reading
from interp.errors import InterpProbeError, UnreadableFile, UsageError, unforeseen
from interp.results import SweepRow

__all__ = ["Settings", "checkpoints_of", "document_names", "sweep"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every checkpoint of a sweep is analysed with."""

    spec: Reading
    prompts: int
    seed: int


Analyse = Callable[[str, Path, Settings], SweepRow]


def checkpoints_of(sources: Sequence[str]) -> tuple[str, ...]:
    """The checkpoints named: files and zoo names as they are, of a folder all that has the suffix of one, by name: a
    link that leads nowhere or a pipe is a row of its own, with what is wrong with it.

    Raises UsageError for a folder without any, and for one checkpoint named twice.
    """
    found: list[str] = []
    for source in sources:
        folder = Path(source)
        if folder.is_dir():
            files = sorted(str(path) for path in folder.iterdir() if path.name.endswith(SUFFIXES))
            if not files:
                raise UsageError(f"{source} holds no checkpoint, expected files that end in {', '.join(SUFFIXES)}")
            found += files
        else:
            found.append(source)
    for name in found:
        if found.count(name) > 1:
            raise UsageError(f"{name} is given {found.count(name)} times, expected every checkpoint once")
    return tuple(found)


def document_names(checkpoints: Sequence[str]) -> tuple[str, ...]:
    """A file name for each document; where two would be the same the later ones get a number."""
    names: list[str] = []
    for checkpoint in checkpoints:
        stem = re.sub(r"[^\w.-]+", "-", Path(checkpoint.removeprefix("zoo:")).name).removesuffix(".safetensors")
        name, number = f"{stem}.json", 2
        while name in names:
            name, number = f"{stem}-{number}.json", number + 1
        names.append(name)
    return tuple(names)


def sweep(
    checkpoints: Sequence[str], out: Path, settings: Settings, jobs: int, analyse: Analyse
) -> Iterator[tuple[int, SweepRow]]:
    """``analyse(checkpoint, document, settings)`` for every checkpoint, in ``jobs`` processes; yields the index and
    the row of each as it ends."""
    documents = (out / name for name in document_names(checkpoints))
    places = [*zip(checkpoints, documents, strict=True)]
    if jobs == 1:
        yield from ((index, _guarded(analyse, *place, settings)) for index, place in enumerate(places))
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_guarded, analyse, *place, settings): index for index, place in enumerate(places)}
        try:
            for future in as_completed(futures):
                index = futures[future]
                yield index, future.result() if future.exception() is None else _lost(checkpoints[index])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _guarded(analyse: Analyse, checkpoint: str, place: Path, settings: Settings) -> SweepRow:
    try:
        return analyse(checkpoint, place, settings)
    except InterpProbeError as error:
        return SweepRow(checkpoint=checkpoint, error=str(error), exit_code=error.exit_code)
    except Exception as error:  # whatever one file brings about, the others are analysed
        message, code = unforeseen(error)
        return SweepRow(checkpoint=checkpoint, error=message, exit_code=code)


def _lost(checkpoint: str) -> SweepRow:
    """The row of a checkpoint whose process ended without a word: killed, or out of memory."""
    reason = "its process was ended from outside, perhaps for want of memory; analyse it alone, or with --jobs 1"
    return SweepRow(checkpoint=checkpoint, error=f"{checkpoint}: {reason}", exit_code=UnreadableFile.exit_code)
