"""How reports are laid out in a terminal: columns of numbers, sections, and what a stream without Greek letters gets.

Readable at 80 columns, and the same words without colour when the output is piped. No number is ever cut: where a line
is too long, text wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from interp.reports.numbers import plain

__all__ = ["Columns", "items", "line", "section", "show"]

_ASCII = {
    "ω": "w", "τ": "tau", "α": "alpha", "λ": "lambda", "Σ": "Sigma", "Ω": "Omega", "σ": "sigma", "β": "beta",
    "γ": "gamma", "η": "eta", "κ": "kappa", "μ": "mu", "Π": "Pi", "φ": "phi", "∇": "grad ", "∑": "sum",
    "ŷ": "yhat", "ȳ": "ybar", "\u0304": "bar", "ᵀ": "^T",
    "₀": "0", "⁺": "^+", "²": "^2", "−": "-", "±": "+-", "—": "-", "·": "-", "→": "->",
    "←": "<-", "⟨": "<", "⟩": ">", "…": "...", "≤": "<=", "“": '"', "”": '"',
}  # fmt: skip


def show(rendered: RenderableType, console: Console) -> None:
    """Print. Piped output has no colour and no trailing spaces; where the stream cannot show Greek letters, they are
    spelled out."""
    try:
        "".join(_ASCII).encode(console.encoding)
        greek = True
    except (UnicodeEncodeError, LookupError):
        greek = False
    if greek and console.is_terminal:
        console.print(rendered)
        return
    with console.capture() as capture:
        console.print(rendered)
    text = "".join(f"{row.rstrip()}\n" for row in capture.get().splitlines())
    if not greek:
        text = "".join(_ASCII.get(c, c) for c in text).encode("ascii", "replace").decode("ascii")
    console.file.write(text)


class Columns:
    """A table whose columns keep their numbers on one line for as long as the line is wide enough for that.

    ``wraps`` names the column (if any) whose text gives way first.
    """

    def __init__(self, *columns: str, wraps: int | None = None) -> None:
        self.columns, self.wraps = columns, wraps
        self.rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str, style: str = "") -> None:
        self.rows.append(tuple(line(cell, style) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        widths = [
            max(cell_len(header), *(cell_len(row[i].plain) for row in self.rows))
            for i, header in enumerate(self.columns)
            if i != self.wraps
        ]
        room = options.max_width - sum(widths) - 2 * len(self.columns)
        fits = room >= (8 if self.wraps is not None else -2)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for i, header in enumerate(self.columns):
            table.add_column(Text(header), overflow="fold", no_wrap=fits and i != self.wraps)
        for row in self.rows:
            table.add_row(*row)
        yield table


def line(text: str, style: str = "") -> Text:
    # Text, never a markup string: a name from a file may hold "[red]" or an escape code.
    return Text(plain(text), style=style, overflow="fold")


def section(title: str, finding: str, *body: RenderableType) -> tuple[RenderableType, ...]:
    head = (Text(), line(title, "bold"), *([line(finding)] if finding else []))
    return (*head, *(Padding(item, (0, 0, 0, 2)) for item in body))


def items(entries: Iterable[str]) -> Table:
    """A list whose wrapped lines are indented."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for entry in entries:
        table.add_row(Text("-", "dim"), line(entry, "dim"))
    return table
