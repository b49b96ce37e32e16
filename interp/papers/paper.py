"""What a reproduced paper offers, and the file that its results are kept in.

A paper is one module of this folder that has ``PAPER``, and ``results/NAME.json`` with what ships of it. The first
paragraph of the module says what is reproduced. Nothing slow is imported here, and a paper not before it is asked for.
"""

from __future__ import annotations

import ast
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.errors import UnreadableFile, UsageError, did_you_mean
from interp.models.atomic import write_atomically

if TYPE_CHECKING:
    from interp.results import Section

__all__ = ["Paper", "Progress", "about", "make_anew", "paper_named", "paper_names", "shipped_results"]

Progress = Callable[[str], None]
Results = Mapping[str, Any]
_FOLDER = resources.files("interp.papers")


class Paper(ABC):
    """``cells`` are what can be made anew, by name. Results hold an entry for each that has been measured."""

    name: str
    title: str  # of the page
    source: str
    cells: tuple[str, ...]

    @abstractmethod
    def measure(self, cell: str, out: Path, progress: Progress) -> Results:
        """The entry of a cell. Long work keeps its records beside ``out``, the file of results, and goes on there."""

    @abstractmethod
    def sections(self, results: Results) -> list[Section]:
        """The paper's figures beside ours, as far as there are results."""

    @abstractmethod
    def document(self, results: Results) -> dict[str, Any]:
        """What the JSON document has of the results."""

    def is_current(self, cell: str, entry: Results) -> bool:
        """Whether a cell with this entry need not be made anew."""
        return False

    def chosen(self, names: str) -> tuple[str, ...]:
        """Cells by their names with commas between, or "all". Raises UsageError for an unknown one."""
        if names == "all" and names not in self.cells:
            return self.cells
        wanted = tuple(name.strip() for name in names.split(",") if name.strip())
        for name in wanted:
            if name not in self.cells:
                raise UsageError(f"there is no cell {name!r} of {self.name}; {did_you_mean(name, self.cells)}")
        return wanted


def paper_names() -> tuple[str, ...]:
    return tuple(sorted(Path(file.name).stem for file in _FOLDER.joinpath("results").iterdir()))


def paper_named(name: str) -> Paper:
    return import_module(f"interp.papers.{_module(name)}").PAPER


def about(name: str) -> str:
    """What the module says of itself in its first paragraph, read without importing it."""
    source = _FOLDER.joinpath(f"{_module(name)}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]


def shipped_results(name: str) -> dict[str, Any]:
    return json.loads(_FOLDER.joinpath(f"results/{name}.json").read_text(encoding="utf-8"))


def make_anew(paper: Paper, cells: Iterable[str], out: Path, progress: Progress) -> dict[str, Any]:
    """The results of these cells. They are kept in ``out`` with those it has already; a cell that is current there is
    not made again. Raises UnreadableFile when ``out`` holds something else."""
    cells = tuple(cells)
    results = _read(paper, out)
    for cell in cells:
        if cell in results and paper.is_current(cell, results[cell]):
            continue
        progress(f"measuring {cell}")
        entry = paper.measure(cell, out, progress)
        results = _read(paper, out) | {cell: entry}  # another process may have added to it meanwhile
        ordered = {name: results[name] for name in paper.cells if name in results}
        write_atomically(out, json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return {cell: results[cell] for cell in cells}


def _read(paper: Paper, out: Path) -> dict[str, Any]:
    if not out.exists():
        return {}
    try:
        results = json.loads(out.read_text(encoding="utf-8"))
        wrong = [cell for cell, entry in results.items() if cell not in paper.cells or not isinstance(entry, dict)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no cell, or has no entry")
    except (OSError, ValueError, AttributeError) as error:
        raise UnreadableFile(
            f"{out} is not a table of results of {paper.name} ({error}); delete it, or give another --out"
        ) from None
    return results


def _module(name: str) -> str:
    return name.replace("-", "_")
