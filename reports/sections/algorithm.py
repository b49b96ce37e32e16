"""The recovered algorithm: its formula, its numbers, and the matrices of preconditioned descent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from interp.reports.numbers import estimate, is_finite, layers_named, number, rounded, spanned
from interp.reports.plots import DIVERGING, HOVER, axis, charted, plot, thinned
from interp.reports.registry import section
from interp.reports.sections.families import chosen_family, family_finding
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Panel, Preconditioner, Recovered, Section, Table
from interp.results.notation import MOMENTS, PLAIN
from interp.results.update import Term

__all__ = ["matrix_sentences", "preconditioner_finding"]

UNLIKE = 0.9  # relative distance, at most 1, from which two matrices are called unlike
ROUNDING = 1e-12  # of the diagonal: what is smaller is 0 as far as float64 can tell
_MOST_MATRICES = 8  # drawn; the table has all
_MOST_COLUMNS = 4  # of a matrix whose entries have standard errors, in a terminal
_KEYS = {"context": "the context tokens", "all": "all tokens", "causal": "the tokens up to its own"}
_SUMS = {
    "Sigma": "Σ = s ∑_j x_j x_j^T", "alpha": "α = s ∑_j y_j x_j", "lambda": "λ = s ∑_j y_j²",
    "A": "A = ∑_j s_j s_j^T", "B": "B = ∑_j s_j s_{j-1}^T",
}  # fmt: skip
_FACTORS = {
    "blocks": "every machine moves its own part of x by the Σ of that part alone",
    "projection": "every layer reads a projection of x, Π x, of its own",
    "written": "and changes another one, Π′ x",
    "products": "M[b, g] = ∑_j e_j[b] e_j[g]^T, e[a] being channel a of the token",
}


@section("algorithm", title="the recovered algorithm", where="algorithm")
def algorithm(analysis: Analysis) -> Section:
    recovered, form = analysis.recovered, analysis.closed_form
    title = "The update of every layer (layers count from 0)"
    if form is not None and form.formula:
        names = f"{', u the query' * ('u' in form.formula)}{' and h its leverage' * ('h' in form.formula)}"
        over = "with means x̄, ȳ, the variance V of x and its covariance C with y, all over the examples of the prompt"
        notes = (f"{over}{names}; no number in it was fitted",)
        return Section(name="formula", title="Its formula", formula=(form.formula,), notes=notes)
    if recovered is None:
        chosen = chosen_family(analysis)
        finding = f"No formula: {family_finding(analysis)}"
        finding = finding if chosen is None else f"This document does not hold the formula of {chosen.name}"
        return Section(name="formula", title=title, finding=finding)
    numbers = [(layer, term) for layer, term in recovered.terms() if term.number is not None]
    columns = {
        "layer": "0", "": lambda e: PLAIN.symbol(e[1].name), "fitted ± stderr": "1.number:stderr",
        " ": lambda e: e[1].undetermined or "",
    }  # fmt: skip
    return Section(
        name="formula", title=title, formula=tuple(_lines(recovered)),
        table=tabulate(numbers, columns) if numbers else None, notes=tuple(_reading(recovered)),
        remarks=tuple(matrix_sentences([e for e in analysis.preconditioners if drawable(e)])),
    )  # fmt: skip


def _lines(recovered: Recovered) -> Iterator[str]:
    for index, updates in enumerate(recovered.updates):

        def coefficient(term: Term, layer: int = index) -> str:
            if term.number is None:
                return f"{PLAIN.symbol(term.name)}_{layer}"
            return rounded(abs(term.number), term.stderr) + ("^?" if term.undetermined else "")

        texts = [PLAIN.update(update, recovered.sizes, coefficient) for update in updates]
        yield f"layer {index}:  {';  '.join(texts) or 'nothing'}"


def _reading(recovered: Recovered) -> Iterator[str]:
    """What the symbols of the formula mean."""
    factors = [factor for _, term in recovered.terms() for factor in term.factors]
    pairs = {pair for f in factors if len(f.of) == 2 for pair in (f.of, f.of[::-1])}
    named = dict.fromkeys(MOMENTS[pair] for pair in MOMENTS if pair in pairs)
    sums = ", ".join(_SUMS[name] for name in named if name in _SUMS)
    where = f"{sums}, summed over {_KEYS.get(recovered.keys, recovered.keys)} as they enter the layer"
    scale = f", s = {recovered.scale}" if recovered.scale and "s ∑" in where else ""
    query = "every token" if recovered.keys == "causal" else f"the query, whose {recovered.reads} starts at 0"
    sign = "-" if recovered.sign < 0 else ""
    if sums:
        yield f"for every token, with {where}{scale}; the prediction is {sign}{recovered.reads} of {query}"
    special = [text for name, text in _FACTORS.items() if any(factor.name == name for factor in factors)]
    if special:
        yield " ".join(special)
    open_ = any(term.undetermined for _, term in recovered.terms())
    doubt = " A number with a question mark is not determined by the data." * open_
    yield (
        "The numbers are rounded to what their standard errors allow, to 7 digits at most." + doubt + " What never "
        "reaches the output is left out, and so is a channel that stays as it is."
    )


def drawable(entry: Preconditioner) -> bool:
    """Whether the matrix and its errors are square, of numbers: a document may hold anything."""
    dim, rows = len(entry.refit), [*entry.refit, *entry.refit_stderr]
    square = 0 < dim == len(entry.refit_stderr) and all(isinstance(row, list) and len(row) == dim for row in rows)
    return square and all(isinstance(v, int | float | None) and not isinstance(v, bool) for row in rows for v in row)


def error_share(entry: Preconditioner) -> float | None:
    """|standard errors| / |Omega|: the distance that errors alone would make."""
    size, spread = (np.linalg.norm(np.array(rows, dtype=float)) for rows in (entry.refit, entry.refit_stderr))
    return float(spread / size) if 0 < size < math.inf and spread < math.inf else None


def preconditioner_finding(entries: Sequence[Preconditioner]) -> str:
    inverse = [(e.layer, e.distance.get("inverse covariance"), e.distance.get("identity")) for e in entries]
    compared = [(i, a, b) for i, a, b in inverse if is_finite(a) and is_finite(b)]
    if not compared:
        sizes = [d for _, _, d in inverse if is_finite(d)]
        if not sizes:
            return "The distance of the matrix to the identity is not known"
        if min(sizes) >= UNLIKE:
            return f"The matrix is not like the identity (relative distance {_span(sizes)}, of 1 at most)"
        return f"The matrix differs from a multiple of the identity by {_span(sizes)} of its size"
    order = ("inverse covariance", "identity")
    closer = [entry for entry in compared if entry[1] < entry[2]]
    farther = [(i, b, a) for i, a, b in compared if a >= b]
    if all(min(a, b) >= UNLIKE for _, a, b in compared):
        nearest = f"relative distance {_span([min(a, b) for _, a, b in compared])}, of 1 at most"
        return f"The matrix is like neither the identity nor the inverse covariance ({nearest})"
    parts = [
        f"closer to the {near} (relative distance {_span([a for _, a, _ in group])}) than to the {far} "
        f"({_span([b for _, _, b in group])}) in {layers_named([i for i, _, _ in group])}"
        for group, (near, far) in ((closer, order), (farther, order[::-1]))
        if group
    ]
    return f"The matrix is {'; it is '.join(parts)}"


def matrix_sentences(entries: Sequence[Preconditioner]) -> Iterator[str]:
    """What each matrix is like: its diagonal, and what is beside it."""
    for entry in entries:
        matrix = np.array(entry.refit, dtype=float)
        dim, known = len(matrix), np.isfinite(matrix)
        on = np.eye(dim, dtype=bool)
        diagonal, most = matrix[on & known], np.abs(matrix[~on & known]).max(initial=0.0)
        if not diagonal.size:
            continue
        off = f", off it at most {number(most, 2)} in size" if (known & ~on).any() else ""
        off = ", off it nothing but rounding" if off and most <= ROUNDING * np.abs(diagonal).max() else off
        yield f"Ω of layer {entry.layer}, {dim} x {dim}: {_span(diagonal.tolist())} on the diagonal{off}"


def _span(values: Sequence[float]) -> str:
    return spanned([number(min(values), 2), number(max(values), 2)])


@section("preconditioners", title="matrices of preconditioned descent", where="coefficients")
def preconditioners(analysis: Analysis) -> Section | None:
    entries = [entry for entry in analysis.preconditioners if drawable(entry)]
    if not entries:
        return None
    references = list(dict.fromkeys(name for entry in entries for name in entry.distance))
    sizes = [share for entry in entries if (share := error_share(entry)) is not None]
    large = f" Their standard errors alone would make a distance of up to {number(max(sizes, default=0), 2)}."
    rows = []
    for entry in entries:
        for i, (values, spread) in enumerate(zip(entry.refit, entry.refit_stderr, strict=True)):
            distances = [number(entry.distance.get(name), 2) if i == 0 else "" for name in references]
            rows.append((f"{entry.layer}, x[{i}]", *distances, *map(estimate, values, spread)))
    names = [f"x[{j}]" for j in range(len(entries[0].refit))]
    table = Table(header=("layer, row", *(f"distance to {name}" for name in references), *names), rows=tuple(rows))
    short = table.only("layer, row", *names) if len(names) <= _MOST_COLUMNS else None
    description = (
        "Refitted matrices Ω of the step y ← y + ⟨α, Ω x⟩; row: input the gradient comes from, column: "
        "input it is applied to. Colours are centred on 0, with limits of each matrix. Distances are relative, after "
        f"the best scaling.{large if max(sizes, default=0) > 1e-9 else ''}"
    )
    panels = [_matrix(entry) for entry in thinned(entries, _MOST_MATRICES)]
    title, finding = "Matrices of preconditioned descent", preconditioner_finding(entries)
    return charted("preconditioners", title, finding, description, panels, table, compact=True, short=short)


def _matrix(entry: Preconditioner) -> Panel:
    limit = max((abs(v) for row in entry.refit for v in row if is_finite(v)), default=0.0) or 1.0
    hover = [
        [f"layer {entry.layer}, Ω[{i}, {j}]: {estimate(*pair)}" for j, pair in enumerate(zip(row, errors, strict=True))]
        for i, (row, errors) in enumerate(zip(entry.refit, entry.refit_stderr, strict=True))
    ]
    trace = {
        "type": "heatmap", "z": entry.refit, "zmin": -limit, "zmax": limit, "colorscale": DIVERGING,
        "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}, "nticks": 5, "xpad": 4},
        "customdata": hover, "hovertemplate": HOVER,
    }  # fmt: skip
    distances = "; ".join(f"{name} {number(d, 2)}" for name, d in entry.distance.items())
    places = thinned(range(len(entry.refit)), 6)
    ticks = {"tickvals": places, "showgrid": False, "zeroline": False, "constrain": "domain"}
    x = axis("applied to input", **ticks)
    y = axis("gradient from input", autorange="reversed", scaleanchor="x", **ticks)
    said = f"distance: {distances}" if distances else ""
    return plot(f"preconditioner-{entry.layer}", [trace], x, y, 300, f"layer {entry.layer}", said)
