"""What an analysis of a causal model of linear dynamics found. Losses are half the squared error of the next state, as
in the mesa-optimisation paper."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from interp.reports.numbers import at_most, estimate, interval, number
from interp.reports.plots import thinned
from interp.reports.registry import section
from interp.reports.tabulate import tabulate
from interp.results import Analysis, Coefficient, MesaObjective, Section, SequenceLoss, Sequences, Table

__all__ = ["half_loss"]

MOST_MAPS = 8  # of a layer
MOST_NUMBERS = 8  # of the ranking
MOST_PLACES = 5  # columns of positions
_KINDS = {
    "published": "block means, those that matter most kept",
    "weights": "recovered, by weights",
    "refit": "recovered, refitted",
}


def half_loss(sequences: Sequences, name: str) -> SequenceLoss | None:
    return next((row for row in sequences.losses if row.name == name and row.loss is not None), None)


@section("sequences", title="what it does with a sequence", where="sequences", part="sequences")
def sequences(analysis: Analysis, entry: Sequences) -> Iterator[Section]:
    yield from _losses(entry)
    yield from _gradient_step(entry)
    yield from _maps(analysis)
    yield from _compression(entry)
    yield from _interpolation(entry)
    yield from _objectives(entry)
    if entry.ranking:
        title = "The numbers of the recovered heads that matter most"
        finding = "What each costs in fidelity when it is set to 0, to second order"
        columns = {name: name for name in ("layer", "head", "matrix", "entry", "value")} | {"cost": "cost:%"}
        table = tabulate(entry.ranking[:MOST_NUMBERS], columns)
        yield Section(name="ranking", title=title, finding=finding, table=table)
    yield from _heads(analysis)


def _losses(sequences: Sequences) -> Iterator[Section]:
    if not sequences.losses:
        return
    columns: dict[str, Any] = {"predictor": "label", "half the squared error": "loss:stderr"}
    for k in thinned(range(len(sequences.positions)), MOST_PLACES):
        at = f"t = {sequences.positions[k]}"
        columns[at] = lambda row, k=k: number(dict(enumerate(row.by_position)).get(k), 3)
    network, ridge, step = (half_loss(sequences, name) for name in ("network", "ridge", "gd-1"))
    finding = "The network's loss was not measured"
    if network is not None:
        others = ((step, "one gradient step"), (ridge, "exact ridge"))
        beside = [f"{words} {number(row.loss)}" for row, words in others if row is not None]
        finding = f"The network's loss is {number(network.loss)}" + (f"; {', '.join(beside)}" if beside else "")
    table = tabulate(sequences.losses, columns, marked=lambda row: row.name in ("network", "recovered"))
    notes = (
        f"± is one standard error over {sequences.prompts} fresh sequences, the same for all",
        "proposition 2 of arXiv 2309.05858: gradient steps on states that were preconditioned by learned steps; "
        "without the newest pair: as the authors' code has it, at time t without (s_{t-1}, s_t)",
    )
    yield Section(name="sequence-losses", title="Losses on fresh sequences", finding=finding, table=table, notes=notes)


def _gradient_step(sequences: Sequences) -> Iterator[Section]:
    step = sequences.gradient_step
    if step is None:
        return
    fidelity = interval(step.fidelity, step.fidelity_ci)
    if step.exact:
        finding = "The network is one step of gradient descent, to rounding"
    elif step.recognized:
        finding = f"Close to one step of gradient descent: R² {fidelity}"
    else:
        finding = f"Not one step of gradient descent: the nearest has R² {fidelity}"
    start = "a matrix (in the JSON document)" if step.w0_matrix is not None else estimate(step.w0, step.w0_stderr)
    rows = (
        ("step size η", estimate(step.eta, step.eta_stderr)),
        ("W₀, as a multiple of I", start),
        ("best η for this task, from W₀ = 0", estimate(step.line_search_eta, step.line_search_stderr)),
    )
    table = Table(header=("number", "value ± stderr"), rows=rows)
    title = "As one step of gradient descent, f = (W₀ − η ∇L(W₀)) s"
    yield Section(name="gradient-step", title=title, finding=finding, table=table)


def _size(c: Coefficient) -> float:
    return abs(c.refit if c.refit is not None else c.weight or 0.0)


def _unclear(c: Coefficient) -> bool:
    """Whether the data leave the output-weighted estimate open: it is within two standard errors of 0, and one of them
    exceeds what the other estimates are."""
    if c.output is None or c.stderr is None:
        return c.output is None
    other = max((abs(v) for v in (c.weight, c.refit) if v is not None), default=0.0)
    return c.stderr > other and abs(c.output) < 2 * c.stderr


def _maps(analysis: Analysis) -> Iterator[Section]:
    entries = [
        (layer.index, name, c)
        for layer in analysis.layers
        for name, c in sorted(layer.maps.items(), key=lambda entry: -_size(entry[1]))[:MOST_MAPS]
    ]
    if not entries:
        return
    fitted = any(c.refit_stderr is not None for layer in analysis.layers for c in layer.maps.values())
    columns = {
        "layer": "0", "map": lambda e: e[1], "weight": "2.weight:4",
        "output ± stderr": lambda e: "not determined" if _unclear(e[2]) else estimate(e[2].output, e[2].stderr),
        "recovered" + " ± stderr" * fitted: "2.refit",
    }  # fmt: skip
    live = sum(len(layer.maps) for layer in analysis.layers)
    title = "What each layer adds (layers count from 0)"
    finding = f"The largest {len(entries)} of {live} coefficients that have a say; the JSON document has all"
    notes = (
        "out += state <previous, query>: to channel out of token t is added the sum over j ≤ t of state_j times "
        "the inner product of previous_j and query_t; coefficients are sums over heads, the same in every gauge",
        "not determined: other maps of the layer have the same effect on the data, or nearly, for example those of "
        "channels that hold the same; the standard error is then larger than the coefficient",
        *(() if fitted else (_without_error(analysis),)),
    )
    yield Section(name="maps", title=title, finding=finding, table=tabulate(entries, columns), notes=notes)


def _without_error(analysis: Analysis) -> str:
    """Why the recovered numbers have no standard error."""
    if analysis.sequences is not None and any(row.kind == "refit" for row in analysis.sequences.compressions):
        return "recovered: refitted; the data do not fix these one by one, so that they have no standard error"
    return "recovered: from the weights alone, so that it has no standard error"


def _compression(sequences: Sequences) -> Iterator[Section]:
    if not sequences.compressions:
        return
    whole = next((row for row in sequences.compressions if row.kind == "published"), None)
    finding = "Networks of fewer numbers in its place"
    if whole is not None and whole.ratio is not None:
        size = estimate(whole.ratio, whole.ratio_stderr)
        finding = f"Its heads' block means, nothing fitted, have {size} times the network's loss"
    columns = {
        "per head": "numbers_per_head:3", "numbers": "numbers", "loss ± stderr": "loss:stderr",
        "ratio ± stderr": "ratio", "fidelity": lambda row: interval(row.fidelity, (None, None)),
        "which numbers": lambda row: _KINDS.get(row.kind, row.kind),
    }  # fmt: skip
    notes = (
        "ratio: to the network's loss on the same held-out sequences, another sample than in the table of losses; "
        "numbers: those that have a say",
    )
    title, table = "Compressed to block-scalar heads", tabulate(sequences.compressions, columns)
    yield Section(name="compression", title=title, finding=finding, table=table, notes=notes)


def _interpolation(sequences: Sequences) -> Iterator[Section]:
    path = sequences.interpolation
    if not path:
        return
    losses = [row.loss for row in path if row.loss is not None]
    finding = "The loss between the network (0) and its block means (1)"
    if len(losses) == len(path) > 2:
        worst, high = max(losses[1:-1]), max(losses[0], losses[-1])
        finding = f"Between the network and its block means the loss rises to {number(worst)}"
        if worst <= high * (1 + 1e-9):
            finding = "No barrier between the network and its block means: the loss in between is never above both ends"
    columns = {"share of the way": lambda row: f"{row.alpha:g}", "loss ± stderr": "loss:stderr"}
    title = "From the network (0) to its block means (1), in the products Q and P"
    yield Section(name="block-path", title=title, finding=finding, table=tabulate(path, columns))


def _objectives(sequences: Sequences) -> Iterator[Section]:
    if not sequences.objectives:
        return
    rows = {(row.layer, row.position): row for row in sequences.objectives}
    layers, places = (sorted(set(keys)) for keys in zip(*rows, strict=True))
    columns: dict[str, Any] = {"layers run": str}
    for symbol, field in (("L", "objective"), ("κ", "condition")):
        for t in places:
            values = {layer: getattr(row, field) for (layer, position), row in rows.items() if position == t}
            columns[f"{symbol}, t={t}"] = lambda layer, values=values: number(values.get(layer), 3)
    last = places[-1]
    first_row, last_row = rows.get((layers[0], last)), rows.get((layers[-2] if len(layers) > 1 else 0, last))
    finding = "The mesa-objective of the implicit W, and how well conditioned the query's problem is"
    if first_row is not None and last_row is not None and first_row.condition and last_row.condition:
        finding = (
            f"Before the last layer the condition number of A H is {number(last_row.condition, 2)} at t = {last}, "
            f"that of A {number(first_row.condition, 2)}"
        )
    title = "Mesa-objective and condition number by layer"
    notes = (
        "medians over sequences; L: L(W) / L(0) with W the map from s_t to the read-out channel; κ: condition "
        "number of A H, A the sum of s_j s_j^T, H the map from s_t to the channel that the last layer scores with",
        *_objective_rises(rows, layers, places),
    )
    yield Section(name="objectives", title=title, finding=finding, table=tabulate(layers, columns), notes=notes)


def _objective_rises(
    rows: Mapping[tuple[int, int], MesaObjective], layers: Sequence[int], places: Sequence[int]
) -> Iterator[str]:
    """A word where L rises although the prediction may get better."""
    rising = []
    for place in places:
        values = [row.objective for layer in layers if (row := rows.get((layer, place))) is not None]
        if any(a is not None and b is not None and b > a for a, b in itertools.pairwise(values)):
            rising.append(f"t = {place}")
    if rising:
        yield (
            f"L rises in some layer ({', '.join(rising)}): it is the error of W on the transitions seen so far, not "
            "the error of the prediction, which is under evidence and need not rise with it"
        )


def _heads(analysis: Analysis) -> Iterator[Section]:
    heads = [(layer.index, h, head) for layer in analysis.layers for h, head in enumerate(layer.heads)]
    if not heads:
        return
    residuals = [layer.split.residual for layer in analysis.layers if layer.split.residual is not None]
    finding = "No layer has weights that have a say"
    if residuals:
        finding = f"Of the layers' gauge-free weights {at_most(max(residuals))} is neither block-scalar nor a trace"
    columns = {
        "layer": "0", "head": "1", "of Q": "2.residual_Q:%", "of P": "2.residual_P:%", "of the head": "2.residual:%",
    }  # fmt: skip
    notes = ("live channels only; a head may be split in parts that are not block-scalar though their sum is",)
    title, table = "Energy of each head outside block-scalar", tabulate(heads, columns)
    yield Section(name="sequence-heads", title=title, finding=finding, table=table, notes=notes)
