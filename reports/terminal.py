"""The verdict in a terminal: the answer first, then how sure it is, then the numbers behind it."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from interp.reports import closed_form_findings as closed
from interp.reports import findings
from interp.reports.behaviour_findings import (
    behaviour_finding,
    last_matches,
    mark_text,
    share_text,
    shift_finding,
    similarity_finding,
    weights_finding,
)
from interp.reports.completion_findings import (
    agreement_rows,
    completion_finding,
    completion_sentences,
    law_rows,
)
from interp.reports.emit.html import coefficient_note
from interp.reports.evidence_findings import evidence_sentences
from interp.reports.loss_findings import family_error, loss_finding
from interp.reports.noise_findings import filter_finding, profile_finding, shrinkage_finding, step_finding
from interp.reports.numbers import DASH, estimate, interval, percent, rounded
from interp.reports.remainder_findings import (
    drawable,
    matrix_sentences,
    omega_finding,
    preconditioner_finding,
    remainder_finding,
    remainder_sentences,
)
from interp.reports.sequence_findings import sequence_parts
from interp.reports.terminal_layout import Columns, items, line, section, show
from interp.results import Analysis, Recovered, Section
from interp.results.notation import PLAIN

__all__ = ["print_analysis", "render_analysis"]

_TONES = {"good": "bold green", "caution": "bold yellow", "bad": "bold red"}
_MOST_COLUMNS = 4  # of a matrix whose entries have standard errors
_MOST_DEPTHS = 6  # columns of the table of distances that fit 80 characters beside the last


def print_analysis(analysis: Analysis, console: Console) -> None:
    """Print the report."""
    show(render_analysis(analysis), console)


def render_analysis(analysis: Analysis) -> RenderableType:
    """The whole report as one rich renderable."""
    if analysis.sequences is not None:
        parts = (
            _verdict(analysis),
            *(_sequence_part(part) for part in sequence_parts(analysis)),
            _families(analysis),
            _notes(analysis),
            _provenance(analysis),
        )
        return Group(*(item for part in parts for item in part))
    parts = (
        _verdict(analysis),
        _algorithm(analysis),
        _closed_form(analysis),
        _coefficients(analysis),
        _eagle(analysis),
        _losses(analysis),
        _families(analysis),
        _evidence(analysis),
        _noise(analysis),
        _split(analysis),
        _implicit(analysis),
        _behaviour(analysis),
        _notes(analysis),
        _provenance(analysis),
    )
    return Group(*(item for part in parts for item in part))


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
            facts.add_row(line(name, "dim"), line(value))
    style = _TONES[tone.tone]
    return (line(tone.words.upper(), style), line(analysis.verdict.summary, style), Text(), facts)


def _sequence_part(part: Section) -> tuple[RenderableType, ...]:
    columns = list(zip(*part.table.rows, strict=True)) or [()]
    wide = max(range(len(columns)), key=lambda k: max(map(len, columns[k]), default=0))
    table = Columns(*((header, "left") for header in part.table.header), wraps=wide)
    for row in part.table.rows:
        table.add(*row)
    return section(part.title, part.finding, table, items(list(part.notes)))


def _algorithm(analysis: Analysis) -> tuple[RenderableType, ...]:
    """The recovered algorithm's own numbers; the table of coefficients below has those of all four omegas."""
    found = analysis.recovered
    if found is None:
        return ()
    numbers = [(layer, term) for layer, term in found.terms() if term.number is not None]
    if not numbers and analysis.preconditioners:
        return _matrices(analysis, found)
    if not numbers:
        return ()
    table = Columns(("layer", "left"), ("", "left"), ("fitted ± stderr", "left"), ("", "left"), wraps=3)
    last = -1
    for layer, term in numbers:
        value = estimate(term.number, term.stderr)
        table.add("" if layer == last else str(layer), PLAIN.symbol(term.name), value, term.undetermined or "")
        last = layer
    return section("The recovered algorithm (layers count from 0)", found.equation, table)


def _matrices(analysis: Analysis, found: Recovered) -> tuple[RenderableType, ...]:
    """The formula of preconditioned gradient descent, with its matrices where a terminal has room for them."""
    where = f"α = s Σ_j y_j x_j, s = {found.scale}; the prediction is {'-' if found.sign < 0 else '+'}y of the query"
    entries = [entry for entry in analysis.preconditioners if drawable(entry)]
    dim = max((len(entry.refit) for entry in entries), default=0)
    notes = [where, *matrix_sentences(entries)]
    table = Columns(("layer", "left"), ("Ω ± stderr", "left"), *(("", "left") for _ in range(dim - 1)))
    for entry in entries if dim <= _MOST_COLUMNS else ():
        for i, (values, errors) in enumerate(zip(entry.refit, entry.refit_stderr, strict=True)):
            cells = [estimate(value, error) for value, error in zip(values, errors, strict=True)]
            table.add("" if i else str(entry.layer), *cells)
    shown = (table,) if entries and dim <= _MOST_COLUMNS else ()
    return section("The recovered algorithm (layers count from 0)", found.equation, *shown, items(notes))


def _closed_form(analysis: Analysis) -> tuple[RenderableType, ...]:
    """The conditions of the closed form, and what the network's parts do."""
    found = analysis.closed_form
    if found is None:
        return ()
    conditions = Columns(*((header, "left") for header in closed.CHECK_HEADER[:3]), wraps=2)
    for name, holds, measured, bar in closed.check_rows(found):
        conditions.add(name, holds, f"{measured} ({bar})", style="" if holds == "yes" else "yellow")
    scales = Columns(("all of", "left"), ("times", "right"), ("fidelity R² [95 %]", "left"), ("outside", "right"))
    for r in found.rescaled:
        scales.add(r.quantity, closed.factor_text(r.factor), interval(r.fidelity, r.fidelity_ci), percent(r.outside))
    slots = Columns(*((header, "left") for header in ("after", *closed.SLOT_HEADER[1:5], "in query")))
    for row in closed.slot_rows(found):
        slots.add(*row)
    heads = Columns(*((h, "left") for h in ("layer", "head", "role", "centring", "numer.", "R²", "denom.", "R²")))
    for row in closed.head_rows(found):
        heads.add(*row)
    return (
        *section(
            "Conditions of the closed form", closed.checks_finding(found), conditions, items(closed.form_lines(found))
        ),
        *section("Where it divides", closed.division_finding(found), items(closed.replacement_lines(found))),
        *section("At other scales", closed.rescaled_finding(found), scales),
        *section(
            "What the slots of the tokens hold",
            closed.slots_finding(found),
            slots,
            items(closed.direction_lines(found)),
        ),
        *section("What the heads do", "Shares of numerator and denominator in the query's row", heads),
    )


def _coefficients(analysis: Analysis) -> tuple[RenderableType, ...]:
    rows = findings.coefficient_rows(analysis)
    if not rows:
        return ()
    table = Columns(
        *((header, "left") for header in ("layer", "", "output ± stderr", "weight", "refit ± stderr", "")), wraps=5
    )
    before = None
    for row in rows:
        short = ", ".join(r.short for r in row.remarks if r.short != row.refit)
        layer = str(row.layer) if row.layer != before else ""
        table.add(layer, row.symbol, row.output, row.weight, row.refit, short, style="" if row.live else "dim")
        before = row.layer
    return section(
        "Coefficients per layer (layers count from 0)",
        findings.coefficient_finding(analysis),
        table,
        items([*([note] if (note := coefficient_note(analysis)) else []), *findings.remark_lines(rows)]),
    )


def _eagle(analysis: Analysis) -> tuple[RenderableType, ...]:
    found = analysis.completion
    if found is None:
        return ()
    parts: list[RenderableType] = []
    law = found.law
    if law is not None:
        steps = Columns(("layer", "left"), ("|A|²", "right"), ("η [95 %]", "left"), ("γ [95 %]", "left"))
        for row in law_rows(law):
            steps.add(*row)
        parts.append(steps)
    beside = Columns(
        ("layers run", "left"), ("network - algorithm", "left"), ("layer by layer", "left"), ("error of D", "left")
    )
    for row in agreement_rows(found):
        beside.add(*row)
    parts += [items(completion_sentences(found)), beside]
    parts.append(
        items(
            [
                "mean squared entries of the tokens; after the last layer of (C, D) alone",
                "layer by layer: the same with the numbers of every layer fitted to what that layer puts out, instead "
                "of all together to the predictions",
            ]
        )
    )
    return section("EAGLE", completion_finding(found), *parts)


def _losses(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.evidence.losses:
        return ()
    table = Columns(("mean squared error", "left"), ("above the optimum", "left"), ("predictor", "left"), wraps=2)
    for entry in analysis.evidence.losses:
        style = "bold" if entry.name in ("network", "recovered") else ""
        excess = DASH if entry.name == "oracle" else estimate(entry.excess, entry.excess_stderr)
        table.add(estimate(entry.mse, entry.stderr), excess, entry.label, style=style)
    notes = ["± is one standard error; all on the same prompts, so the excess over the optimum is the surer number"]
    return section("Losses on fresh prompts", loss_finding(analysis), table, items(notes))


def _families(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.families:
        return ()
    table = Columns(
        ("", "left"), ("family", "left"), ("numbers", "right"), ("fidelity R² [95 %]", "left"), ("mse", "left")
    )
    for row in analysis.families:
        fidelity = interval(row.fidelity, row.fidelity_ci)
        mark, style = ("→", "bold") if row.chosen else ("", "")
        numbers = DASH if row.fidelity is None and not row.parameters else str(row.parameters)
        table.add(mark, row.name, numbers, fidelity, family_error(analysis, row.mse), style=style)
    why = [f"{row.name}: {row.why}" for row in analysis.families if row.why]
    return section("Families, smallest first", findings.family_finding(analysis), table, items(why))


def _evidence(analysis: Analysis) -> tuple[RenderableType, ...]:
    """What the figures of the HTML report are titled with."""
    said = tuple(evidence_sentences(analysis))
    return section("The algorithm in the network's place", "", items(said)) if said else ()


def _split(analysis: Analysis) -> tuple[RenderableType, ...]:
    if not analysis.layers:
        return ()
    table = Columns(("layer", "left"), ("block-scalar (ω)", "right"), ("trace (τ)", "right"), ("residual", "right"))
    for layer in analysis.layers:
        shares = (layer.split.block_scalar, layer.split.trace, layer.split.residual)
        table.add(str(layer.index), *(percent(share) for share in shares))
    left = items(remainder_sentences(analysis))
    return section("Where the weight energy is", remainder_finding(analysis), table, left)


def _noise(analysis: Analysis) -> tuple[RenderableType, ...]:
    """What the figures of the HTML report are titled with."""
    said = [preconditioner_finding(analysis.preconditioners)] if analysis.preconditioners else []
    regression = analysis.regression
    if regression is not None:
        said += [profile_finding(regression.profile), filter_finding(regression.filters)]
        said += [shrinkage_finding(regression.shrinkage)] if regression.shrinkage else []
        said += [step_finding(regression.step)] if regression.step else []
        said += [omega_finding(analysis)]
    return section("How it deals with noise", "", items(said)) if said else ()


def _implicit(analysis: Analysis) -> tuple[RenderableType, ...]:
    names = list(dict.fromkeys(name for m in analysis.implicit for name in m.distance))
    if not names:
        return ()
    *earlier, last = sorted(analysis.implicit, key=lambda m: m.layer)
    shown = earlier[:: -(-len(earlier) // _MOST_DEPTHS) or 1]
    headers = [str(m.layer) for m in (*shown, last)]
    table = Columns(("layers run:", "left"), *((header, "left") for header in headers))
    for name in names:
        # Only the last column has room for its standard error; the others end at the last digit that theirs allows.
        cells = [rounded(m.distance.get(name), m.distance_stderr.get(name)) for m in shown]
        table.add(name, *cells, estimate(last.distance.get(name), last.distance_stderr.get(name)))
    return section(
        "Distance of the implicit weights to baselines",
        findings.distance_finding(analysis),
        table,
        items(["E|w - b|² / E|b|²: 0 is the same weights b, 1 is as far as no weights at all"]),
    )


def _behaviour(analysis: Analysis) -> tuple[RenderableType, ...]:
    found = analysis.behaviour
    if found is None:
        return ()
    table = Columns(*((header, "left") for header in ("after the last layer", "best iterate", "distance [95 %]")))
    last = last_matches(found)
    solvers = {solver.name: solver for solver in found.solvers}
    for name, entry in last.items():
        style = "bold" if name == found.closest else ""
        solver = solvers[name]
        unit = "(penalty)" if solver.unit == "penalty" else "step" if entry.best == 1 else "steps"
        best = f"{mark_text(solver, entry.best)} {unit}"
        table.add(solver.label, best, share_text(entry.distance, entry.distance_ci), style=style)
    said = [text for text in (weights_finding(found), similarity_finding(found), shift_finding(found)) if text]
    title = "As behaviour, beside classical solvers (this does not say what the network is)"
    return section(title, behaviour_finding(found), table, items(said))


def _notes(analysis: Analysis) -> tuple[RenderableType, ...]:
    missing = findings.missing_parts(analysis)
    notes = findings.notes(analysis)
    unsaid = [part for part in missing if not any(part in note.partition(": skipped")[0] for note in notes)]
    text = f"{', '.join(unsaid)}: not in this analysis{'; see the notes' if notes else ''}"
    parts = section("Skipped", text) if unsaid else ()
    return (*parts, *section("Notes", "", items(notes))) if notes else parts


def _provenance(analysis: Analysis) -> tuple[RenderableType, ...]:
    checkpoint, known = analysis.checkpoint, analysis.provenance
    facts = [f"sha256 {checkpoint.sha256[:12]}", f"{checkpoint.layout} layout", checkpoint.dtype]
    facts += [f"{name} {known[name]}" for name in ("prompts", "seed") if known.get(name) is not None]
    facts += [str(known[name]) for name in ("tool", "time", "command") if known.get(name) is not None]
    return (Text(), line(" · ".join(facts), "dim"))
