"""What an analysis of a causal model of linear dynamics found, as tables with a sentence each: shared by the terminal
and the HTML report. Losses are half the squared error of the next state, as in the mesa-optimisation paper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from interp.reports.numbers import DASH, at_most, estimate, interval, number, percent
from interp.results import Analysis, Coefficient, MesaObjective, Section, SequenceLoss, Sequences, Table

__all__ = ["half_loss", "sequence_parts", "task_words"]

MOST_MAPS = 8  # of a layer
MOST_NUMBERS = 8  # of the ranking
MOST_PLACES = 5  # columns of positions


def sequence_parts(analysis: Analysis) -> tuple[Section, ...]:
    """All that the analysis has; nothing for models of other tasks."""
    found = analysis.sequences
    if found is None:
        return ()
    parts = (
        _losses(found),
        _gradient_step(found),
        _maps(analysis),
        _compression(found),
        _interpolation(found),
        _objectives(found),
        _ranking(found),
        _heads(analysis),
    )
    return tuple(part for part in parts if part is not None)


def half_loss(found: Sequences, name: str) -> SequenceLoss | None:
    return next((row for row in found.losses if row.name == name and row.loss is not None), None)


def task_words(analysis: Analysis, found: Sequences) -> str:
    """Whether it beats predicting zero, in the paper's loss."""
    network, null, ridge = (half_loss(found, name) for name in ("network", "null", "ridge"))
    answer = "yes" if analysis.verdict.solves_task else "no"
    if network is None:
        return f"{answer} (its loss was not measured)"
    against = [f"{number(null.loss)} for predicting zero"] if null else []
    against += [f"{number(ridge.loss)} for exact ridge"] if ridge else []
    tail = f", against {' and '.join(against)}" if against else ""
    size = estimate(network.loss, network.stderr)
    return f"{answer}: half the squared error {size} on {found.prompts} fresh sequences{tail}"


def _places(found: Sequences) -> list[int]:
    count = len(found.positions)
    if count <= MOST_PLACES:
        return list(range(count))
    return sorted({round(k * (count - 1) / (MOST_PLACES - 1)) for k in range(MOST_PLACES)})


def _losses(found: Sequences) -> Section | None:
    if not found.losses:
        return None
    places = _places(found)
    header = ("predictor", "half the squared error", *(f"t = {found.positions[k]}" for k in places))
    rows = tuple(
        (
            row.label,
            estimate(row.loss, row.stderr),
            *(number(row.by_position[k], 3) if k < len(row.by_position) else DASH for k in places),
        )
        for row in found.losses
    )
    network, ridge, step = (half_loss(found, name) for name in ("network", "ridge", "gd-1"))
    finding = "The network's loss was not measured"
    if network is not None:
        beside = [
            f"{words} {number(row.loss)}"
            for row, words in ((step, "one gradient step"), (ridge, "exact ridge"))
            if row is not None
        ]
        finding = f"The network's loss is {number(network.loss)}" + (f"; {', '.join(beside)}" if beside else "")
    notes = (
        f"± is one standard error over {found.prompts} fresh sequences, the same for all; positions count from 0",
        "proposition 2 of arXiv 2309.05858: gradient steps on states that were preconditioned by learned steps; "
        "without the newest pair: as the authors' code has it, at time t without (s_{t-1}, s_t)",
    )
    return Section(
        name="sequence-losses",
        title="Losses on fresh sequences",
        finding=finding,
        table=Table(header=header, rows=rows),
        notes=notes,
    )


def _gradient_step(found: Sequences) -> Section | None:
    step = found.gradient_step
    if step is None:
        return None
    if step.exact:
        finding = "The network is one step of gradient descent, to rounding"
    elif step.recognized:
        finding = f"Close to one step of gradient descent: R² {interval(step.fidelity, step.fidelity_ci)}"
    else:
        finding = f"Not one step of gradient descent: the nearest has R² {interval(step.fidelity, step.fidelity_ci)}"
    start = "a matrix (in the JSON document)" if step.w0_matrix is not None else estimate(step.w0, step.w0_stderr)
    rows = (
        ("step size η", estimate(step.eta, step.eta_stderr)),
        ("W₀, as a multiple of I", start),
        ("best η for this task, from W₀ = 0", estimate(step.line_search_eta, step.line_search_stderr)),
    )
    return Section(
        name="gradient-step",
        title="As one step of gradient descent, f = (W₀ − η ∇L(W₀)) s",
        finding=finding,
        table=Table(header=("number", "value ± stderr"), rows=rows),
    )


def _size(c: Coefficient) -> float:
    return abs(c.refit if c.refit is not None else c.weight or 0.0)


def _unclear(c: Coefficient) -> bool:
    """Whether the data leave the output-weighted estimate open: it is within two standard errors of 0, and one of them
    exceeds what the other estimates are."""
    if c.output is None or c.stderr is None:
        return c.output is None
    other = max((abs(v) for v in (c.weight, c.refit) if v is not None), default=0.0)
    return c.stderr > other and abs(c.output) < 2 * c.stderr


def _maps(analysis: Analysis) -> Section | None:
    rows, live, shown = [], 0, 0
    for layer in analysis.layers:
        largest = sorted(layer.maps.items(), key=lambda entry: -_size(entry[1]))[:MOST_MAPS]
        live += len(layer.maps)
        shown += len(largest)
        for index, (name, c) in enumerate(largest):
            rows.append(
                (
                    str(layer.index) if not index else "",
                    name,
                    number(c.weight),
                    "not determined" if _unclear(c) else estimate(c.output, c.stderr),
                    estimate(c.refit, c.refit_stderr),
                )
            )
    if not rows:
        return None
    fitted = any(c.refit_stderr is not None for layer in analysis.layers for c in layer.maps.values())
    return Section(
        name="maps",
        title="What each layer adds (layers count from 0)",
        finding=f"The largest {shown} of {live} coefficients that have a say; the JSON document has all",
        table=Table(
            header=("layer", "map", "weight", "output ± stderr", "recovered" + " ± stderr" * fitted), rows=tuple(rows)
        ),
        notes=(
            "out += state <previous, query>: to channel out of token t is added the sum over j ≤ t of state_j times "
            "the inner product of previous_j and query_t; coefficients are sums over heads, the same in every gauge",
            "not determined: other maps of the layer have the same effect on the data, or nearly, for example those of "
            "channels that hold the same; the standard error is then larger than the coefficient",
            *(() if fitted else (_without_error(analysis),)),
        ),
    )


def _without_error(analysis: Analysis) -> str:
    """Why the recovered numbers have no standard error."""
    if analysis.sequences is not None and any(row.kind == "refit" for row in analysis.sequences.compressions):
        return "recovered: refitted; the data do not fix these one by one, so that they have no standard error"
    return "recovered: from the weights alone, so that it has no standard error"


def _kind(kind: str) -> str:
    return {
        "published": "block means, those that matter most kept",
        "weights": "recovered, by weights",
        "refit": "recovered, refitted",
    }.get(kind, kind)


def _compression(found: Sequences) -> Section | None:
    if not found.compressions:
        return None
    rows = tuple(
        (
            f"{row.numbers_per_head:.3g}", str(row.numbers), estimate(row.loss, row.stderr),
            estimate(row.ratio, row.ratio_stderr), interval(row.fidelity, (None, None)), _kind(row.kind),
        )
        for row in found.compressions
    )  # fmt: skip
    whole = next((row for row in found.compressions if row.kind == "published"), None)
    finding = "Networks of fewer numbers in its place"
    if whole is not None and whole.ratio is not None:
        size = estimate(whole.ratio, whole.ratio_stderr)
        finding = f"Its heads' block means, nothing fitted, have {size} times the network's loss"
    return Section(
        name="compression",
        title="Compressed to block-scalar heads",
        finding=finding,
        table=Table(
            header=("per head", "numbers", "loss ± stderr", "ratio ± stderr", "fidelity", "which numbers"), rows=rows
        ),
        notes=(
            "ratio: to the network's loss on the same held-out sequences, another sample than in the table of losses; "
            " numbers: those that have a say",
        ),
    )


def _interpolation(found: Sequences) -> Section | None:
    if not found.interpolation:
        return None
    rows = tuple((f"{row.alpha:g}", estimate(row.loss, row.stderr)) for row in found.interpolation)
    ends = found.interpolation[0].loss, found.interpolation[-1].loss
    between = [row.loss for row in found.interpolation[1:-1]]
    finding = "The loss between the network (0) and its block means (1)"
    if None not in ends and None not in between:
        worst = max(value for value in between if value is not None)
        high = max(value for value in ends if value is not None)
        finding = (
            "No barrier between the network and its block means: the loss in between is never above both ends"
            if worst <= high * (1 + 1e-9)
            else f"Between the network and its block means the loss rises to {number(worst)}"
        )
    return Section(
        name="interpolation",
        title="From the network (0) to its block means (1), in the products Q and P",
        finding=finding,
        table=Table(header=("share of the way", "loss ± stderr"), rows=rows),
    )


def _objectives(found: Sequences) -> Section | None:
    if not found.objectives:
        return None
    places = sorted({row.position for row in found.objectives})
    layers = sorted({row.layer for row in found.objectives})
    known = {(row.layer, row.position): row for row in found.objectives}
    header = ("layers run", *(f"L, t={t}" for t in places), *(f"κ, t={t}" for t in places))
    rows = tuple(
        (
            str(layer),
            *(number(known[layer, t].objective, 3) if (layer, t) in known else DASH for t in places),
            *(number(known[layer, t].condition, 3) if (layer, t) in known else DASH for t in places),
        )
        for layer in layers
    )
    last = places[-1]
    first_row, last_row = known.get((layers[0], last)), known.get((layers[-2] if len(layers) > 1 else 0, last))
    finding = "The mesa-objective of the implicit W, and how well conditioned the query's problem is"
    if first_row is not None and last_row is not None and first_row.condition and last_row.condition:
        finding = (
            f"Before the last layer the condition number of A H is {number(last_row.condition, 2)} at t = {last}, "
            f"that of A {number(first_row.condition, 2)}"
        )
    return Section(
        name="objectives",
        title="Mesa-objective and condition number by layer",
        finding=finding,
        table=Table(header=header, rows=rows),
        notes=(
            "medians over sequences; L: L(W) / L(0) with W the map from s_t to the read-out channel; κ: condition "
            "number of A H, A the sum of s_j s_j^T, H the map from s_t to the channel that the last layer scores with",
            *_objective_rises(known, layers, places),
        ),
    )


def _objective_rises(
    known: Mapping[tuple[int, int], MesaObjective], layers: Sequence[int], places: Sequence[int]
) -> tuple[str, ...]:
    """A word where L rises although the prediction may get better."""
    found = []
    for place in places:
        values = [row.objective for layer in layers if (row := known.get((layer, place))) is not None]
        pairs = [(a, b) for a, b in itertools.pairwise(values) if a is not None and b is not None]
        found += [f"t = {place}"] if any(b > a for a, b in pairs) else []
    if not found:
        return ()
    return (
        f"L rises in some layer ({', '.join(found)}): it is the error of W on the transitions seen so far, not the "
        "error of the prediction, which is under evidence and need not rise with it",
    )


def _ranking(found: Sequences) -> Section | None:
    if not found.ranking:
        return None
    rows = tuple(
        (str(row.layer), str(row.head), row.matrix, row.entry, number(row.value), percent(row.cost))
        for row in found.ranking[:MOST_NUMBERS]
    )
    return Section(
        name="ranking",
        title="The numbers of the recovered heads that matter most",
        finding="What each costs in fidelity when it is set to 0, to second order",
        table=Table(header=("layer", "head", "matrix", "entry", "value", "cost"), rows=rows),
    )


def _heads(analysis: Analysis) -> Section | None:
    rows = [
        (str(layer.index), str(h), percent(head.residual_Q), percent(head.residual_P), percent(head.residual))
        for layer in analysis.layers
        for h, head in enumerate(layer.heads)
    ]
    if not rows:
        return None
    return Section(
        name="heads",
        title="Energy of each head outside block-scalar",
        finding=_outside(analysis),
        table=Table(header=("layer", "head", "of Q", "of P", "of the head"), rows=tuple(rows)),
        notes=("live channels only; a head may be split in parts that are not block-scalar though their sum is",),
    )


def _outside(analysis: Analysis) -> str:
    known = [layer.split.residual for layer in analysis.layers if layer.split.residual is not None]
    if not known:
        return "No layer has weights that have a say"
    return f"Of the layers' gauge-free weights {at_most(max(known))} is neither block-scalar nor a trace"
