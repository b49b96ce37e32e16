"""A section of a report: a finding, and the figure and the table that show it.

Sections are data. ``interp.reports`` prints them on a page, in a terminal and in JSON; questions that come from outside
the package answer with one. Their text may hold symbols, which a page sets as such and a terminal as they stand:
``ω_xx``, ``w_k`` and ``s_{t-1}`` have subscripts, ``S^T`` and ``(A)^-1`` an exponent, ``3e-18`` is a power of ten and
``<x, y>`` an inner product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Figure", "Panel", "Section", "Series", "Table"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a header, as people read them. ``marked`` are the rows that stand out."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[int, ...] = ()

    def only(self, *names: str) -> Table:
        """The columns of these names, for places that have no room for all."""
        places = [self.header.index(name) for name in names]
        return Table(header=names, rows=tuple(tuple(row[k] for k in places) for row in self.rows), marked=self.marked)

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd  # slow to import

        return pd.DataFrame(list(self.rows), columns=list(self.header))


@dataclass(frozen=True, kw_only=True)
class Series:
    """One entry of a legend: ``key`` is the legend group of its traces."""

    key: str
    label: str
    colour: str
    symbol: str
    dash: str = "solid"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot: plotly traces and layout. ``name`` is unique in the page; ``title`` is empty when the figure has one
    panel. Colours may be custom properties of the page's style sheet, "var(--series-1)"."""

    name: str
    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int
    subtitle: str = ""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """``description`` says what is drawn: axes, bars, what is left out. ``table`` has the numbers that are drawn."""

    name: str
    finding: str
    description: str
    panels: tuple[Panel, ...]
    legend: tuple[Series, ...]
    table: Table
    compact: bool = False  # many small panels side by side
    short: str = ""  # what the contents of a page call it
    scale: tuple[str, str] | None = None  # what the two ends of a map's colours stand for


@dataclass(frozen=True, kw_only=True)
class Section:
    """``title`` names the question, ``finding`` answers it in one sentence, ``notes`` say how to read the answer.

    ``formula`` has the lines of an algorithm, and ``remarks`` are further sentences of the answer. A page shows the
    figure with all its numbers, or the table where there is none; a terminal shows the table, so beside a figure it has
    what is most worth reading. ``parts`` are sections within this one. ``half``: on a wide page the next one that is
    half as wide stands beside it.
    """

    name: str
    title: str
    finding: str = ""
    figure: Figure | None = None
    table: Table | None = None
    notes: tuple[str, ...] = ()
    formula: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    parts: tuple[Section, ...] = ()
    short: str = ""  # what the contents of a page call it
    half: bool = False
