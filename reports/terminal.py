"""The verdict in a terminal: the answer first, then how sure it is, then the numbers behind it.

Readable at 80 columns, and the same words without colour when the output is piped. No number is ever cut: where a line
is too long, text wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from interp.reports import findings
from interp.reports.numbers import DASH, estimate, interval, number, percent, plain, rounded
from interp.results import Analysis

__all__ = ["print_analysis", "render_analysis"]

_TONES = {"good": "bold green", "caution": "bold yellow", "bad": "bold red"}
_MOST_DEPTHS = 6  # columns of the table of distances that fit 80 characters beside the last
_ASCII = {
    **{"ω": "w", "τ": "tau", "α": "alpha", "λ": "lambda", "Σ": "Sigma", "Ω": "Omega"},
    **{"±": "+-", "—": "-", "·": "-", "²": "^2", "→": "->", "←": "<-", "⟨": "<", "⟩": ">", "…": "..."},
}


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print the report. Piped output has no colour and no trailing spaces; where the stream cannot show Greek letters,
    they are spelled out."""
    rendered = render_analysis(analysis)
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
    text = "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
    if not greek:
        text = "".join(_ASCII.get(c, c) for c in text).encode("ascii", "replace").decode("ascii")
    console.file.write(text)


def render_analysis(analysis: Analysis) -> RenderableType:
    """The whole report as one rich renderable."""
    parts = (
        _verdict(analysis),
        _coefficients(analysis),
        _losses(analysis),
        _families(analysis),
        _split(analysis),
        _implicit(analysis),
        _notes(analysis),
        _provenance(analysis),
    )
    return Group(*(item for part in parts for item in part))


class _Columns:
    """A table whose columns keep their numbers on one line for as long as the line is wide enough for that.

    ``wraps`` names the column (if any) whose text gives way first.
    """

    def __init__(self, *columns: tuple[str, str], wraps: int | None = None) -> None:
        self.columns, self.wraps = columns, wraps
        self.rows: list[tuple[Text, ...]] = []

    def add(self, *cells: str, style: str = "") -> None:
        self.rows.append(tuple(_text(cell, style) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        widths = [
            max(cell_len(header), *(cell_len(row[i].plain) for row in self.rows))
            for i, (header, _) in enumerate(self.columns)
            if i != self.wraps
        ]
        room = options.max_width - sum(widths) - 2 * len(self.columns)
        fits = room >= (8 if self.wraps is not None else -2)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for i, (header, justify) in enumerate(self.columns):
            table.add_column(
                Text(header), justify=justify, overflow="fold", no_wrap=fits and i != self.wraps  # type: ignore[arg-type]
            )  # fmt: skip
        for row in self.rows:
            table.add_row(*row)
        yield table


def _text(text: str, style: str = "") -> Text:
    # Text, never a markup string: a name from a file may hold "[red]" or an escape code.
    return Text(plain(text), style=style, overflow="fold")


def _section(title: str, finding: str, *body: RenderableType) -> tuple[RenderableType, ...]:
    head = (Text(), _text(title, "bold"), *([_text(finding)] if finding else []))
    return (*head, *(Padding(item, (0, 0, 0, 2)) for item in body))


def _items(items: Iterable[str]) -> Table:
    """A list whose wrapped lines are indented."""
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for item in items:
        table.add_row(Text("-", "dim"), _text(item, "dim"))
    return table


def _verdict(analysis: Analysis) -> tuple[RenderableType, ...]:
    tone = findings.status(analysis)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in (
        ("checkpoint", analysis.checkpoint.name),
        ("fidelity", findings.fidelity_sentence(analysis)),
        ("solves the task", findings.task_sentence(analysis)),
        ("in words", findings.in_words(analysis)),
    ):
        if value:
            facts.add_row(_text(name, "dim"), _text(value))
    style = _TONES[tone.tone]
    return (_text(tone.words.upper(), style), _text(analysis.verdict.summary, style), Text(), facts)


def _coefficients(analysis: Analysis) -> tuple[RenderableType, ...]:
    rows = findings.coefficient_rows(analysis)
    if not rows:
        return ()
    table = _Columns(
        *((header, "left") for header in ("layer", "", "output ± stderr", "weight", "refit ± stderr", "")), wraps=5
    )
    before = None
    for row in rows:
        short = ", ".join(r.short for r in row.remarks if r.short != row.refit)
        layer = str(row.layer) if row.layer != before else ""
        table.add(layer, row.symbol, row.output, row.weight, row.refit, short, style="" if row.live else "dim")
        before = row.layer
    return _section(
        "Coefficients per layer (layers count from 0)",
        findings.coefficient_finding(analysis),
        table,
        _items(findings.remark_lines(rows)),
    )


def _losses(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.evidence.losses:
        return ()
    table = _Columns(("mean squared error", "left"), ("above the optimum", "left"), ("predictor", "left"), wraps=2)
    for entry in analysis.evidence.losses:
        style = "bold" if entry.name in ("network", "recovered") else ""
        excess = DASH if entry.name == "oracle" else estimate(entry.excess, entry.excess_stderr)
        table.add(estimate(entry.mse, entry.stderr), excess, entry.label, style=style)
    notes = ["± is one standard error; all on the same prompts, so the excess over the optimum is the surer number"]
    return _section("Losses on fresh prompts", findings.loss_finding(analysis), table, _items(notes))


def _families(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.families:
        return ()
    table = _Columns(
        ("", "left"), ("family", "left"), ("numbers", "right"), ("fidelity R² [95 %]", "left"), ("mse", "left")
    )
    for row in analysis.families:
        fidelity = interval(row.fidelity, row.fidelity_ci)
        mark, style = ("→", "bold") if row.chosen else ("", "")
        table.add(mark, row.name, str(row.parameters), fidelity, number(row.mse), style=style)
    why = [f"{row.name}: {row.why}" for row in analysis.families if row.why]
    return _section("Families, smallest first", findings.family_finding(analysis), table, _items(why))


def _split(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.layers:
        return ()
    table = _Columns(("layer", "left"), ("block-scalar (ω)", "right"), ("trace (τ)", "right"), ("residual", "right"))
    for layer in analysis.layers:
        shares = (layer.split.block_scalar, layer.split.trace, layer.split.residual)
        table.add(str(layer.index), *(percent(share) for share in shares))
    return _section("Where the weight energy is", findings.split_finding(analysis), table)


def _implicit(analysis: Analysis) -> tuple[RenderableType, ...]:
    names = list(dict.fromkeys(name for m in analysis.implicit for name in m.distance))
    if not names:
        return ()
    *earlier, last = sorted(analysis.implicit, key=lambda m: m.layer)
    shown = earlier[:: -(-len(earlier) // _MOST_DEPTHS) or 1]
    headers = [str(m.layer) for m in (*shown, last)]
    table = _Columns(("layers run:", "left"), *((header, "left") for header in headers))
    for name in names:
        # Only the last column has room for its standard error; the others end at the last digit that theirs allows.
        cells = [rounded(m.distance.get(name), m.distance_stderr.get(name)) for m in shown]
        table.add(name, *cells, estimate(last.distance.get(name), last.distance_stderr.get(name)))
    return _section(
        "Distance of the implicit weights to baselines",
        findings.distance_finding(analysis),
        table,
        _items(["E|w - b|² / E|b|²: 0 is the same weights b, 1 is as far as no weights at all"]),
    )


def _notes(analysis: Analysis) -> tuple[RenderableType, ...]:
    missing = findings.missing_parts(analysis)
    notes = findings.notes(analysis)
    parts = _section("Skipped", f"{', '.join(missing)}: not in this analysis; the notes say why") if missing else ()
    return (*parts, *_section("Notes", "", _items(notes))) if notes else parts


def _provenance(analysis: Analysis) -> tuple[RenderableType, ...]:
    checkpoint, known = analysis.checkpoint, analysis.provenance
    facts = [f"sha256 {checkpoint.sha256[:12]}", f"{checkpoint.layout} layout", checkpoint.dtype]
    facts += [f"{name} {known[name]}" for name in ("prompts", "seed") if known.get(name) is not None]
    facts += [str(known[name]) for name in ("tool", "time", "command") if known.get(name) is not None]
    return (Text(), _text(" · ".join(facts), "dim"))
