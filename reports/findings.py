"""What the numbers of an Analysis say, in sentences: shared by the terminal and the HTML report.

Every sentence about the network is computed from its numbers, so the title of a figure cannot contradict the figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from interp.reports.numbers import DASH, Z95, at_least, at_most, estimate, interval, is_finite, number, percent
from interp.reports.sequence_findings import task_words
from interp.results import Analysis, Coefficient, Family, Layer, Loss

__all__ = [
    "DEAD",
    "ROUNDING",
    "ZERO",
    "CoefficientRow",
    "Remark",
    "Status",
    "baseline_label",
    "chosen_family",
    "coefficient_finding",
    "coefficient_rows",
    "coefficients",
    "distance_finding",
    "family_finding",
    "fidelity_sentence",
    "in_words",
    "listed",
    "loss",
    "loss_number",
    "missing_parts",
    "notes",
    "remark_lines",
    "remarks",
    "shows_traces",
    "split_finding",
    "status",
    "task_sentence",
    "unexplained_sentence",
]

_MEANING = {
    "gd": "Every layer takes one step of gradient descent on the squared error of the examples in the prompt.",
    "gd++": "Every layer takes one step of gradient descent on the examples in the prompt and also transforms the "
    "inputs (ω_xx), which evens out their variances so that later steps converge faster.",
    "eagle": "Every layer takes a gradient step on the visible blocks and conditions them (ω_xx), with steps that "
    "follow the norm of A.",
    "diag": "Gradient descent that transforms its inputs (ω_xx), with two more terms: ω_xy moves inputs along the "
    "labels and ω_yy rescales labels by their energy. Both let the step adapt to how noisy the prompt is.",
    "equivariant": "Every layer treats all directions of the input alike: the four ω terms and the trace terms.",
    "preconditioned-gd": "Every layer takes a gradient step that is multiplied by a fixed matrix: some directions of "
    "the input are learned faster than others.",
    "closed-form": "It computes the least-squares line of the examples in the prompt in one go: means, then a "
    "covariance and a variance by attention, then their ratio by LayerNorm, the only division that it has.",
    "revalg": "Every head copies a whole channel of earlier tokens, a state say, weighted by the inner product of two "
    "whole channels: one number per pair of channels in place of a matrix. Causal networks of this form can learn in "
    "context how the states move, by gradient steps on the states so far, preconditioned or not.",
    "unrecognized": "None of the known algorithm families predicts what this network predicts.",
}

_REFERENCES = {  # that the loss ladder need not have
    "true": "the true w of the prompt",
    "gd-1": "one gradient step",
    "nystrom": "least squares on the visible blocks (Nyström)",
}
DEAD = "never reaches the output, so nothing is claimed about it"
ZERO = "the output estimate is not distinguishable from 0 at 95 %"
DETAILS = "the JSON document has against what each trades off"
MOST_DETAILS = 4  # more remarks of one kind are too many to read
FAR = 10  # the largest estimate of a coefficient beside the smallest, from which its value is open
ROUNDING = 1e-12  # a loss this many times smaller than another is 0 as far as float64 can tell


@dataclass(frozen=True, kw_only=True)
class Status:
    """The verdict in two or three words; the tone picks a colour, and no colour stands without its words."""

    tone: Literal["good", "caution", "bad"]
    words: str


def status(analysis: Analysis) -> Status:
    verdict = analysis.verdict
    if not verdict.solves_task:
        return Status(tone="bad", words="does not solve the task")
    if not verdict.recognized:
        return Status(tone="caution", words="not recognized")
    return Status(tone="good", words=f"recognized: {verdict.algorithm}")


def chosen_family(analysis: Analysis) -> Family | None:
    return next((f for f in analysis.families if f.chosen), None)


def loss(losses: Iterable[Loss], name: str) -> Loss | None:
    return next((entry for entry in losses if entry.name == name and entry.mse is not None), None)


def baseline_label(analysis: Analysis, name: str) -> str:
    """A baseline's name for people, where the loss ladder has one."""
    other = _REFERENCES.get(name, name)
    return next((entry.label for entry in analysis.evidence.losses if entry.name == name), other)


def notes(analysis: Analysis) -> tuple[str, ...]:
    """What was done to the file and what was skipped, each once."""
    return tuple(dict.fromkeys((*analysis.checkpoint.notes, *analysis.evidence.notes)))


def missing_parts(analysis: Analysis) -> tuple[str, ...]:
    """The parts of the report that the analysis has nothing for."""
    parts = {
        "coefficients": analysis.layers,
        "losses": analysis.evidence.losses,
        "families": analysis.families,
        "implicit weights": analysis.implicit or analysis.sequences is not None,
    }
    return tuple(name for name, entries in parts.items() if not entries)


# --- verdict ------------------------------------------------------------------------------------------------------


def in_words(analysis: Analysis) -> str:
    """What the algorithm does, for a reader who has never seen its name; empty when nothing is known."""
    name = analysis.verdict.algorithm
    if name == "unrecognized" and all(f.fidelity is None for f in analysis.families):
        return ""
    if name == "unrecognized" and analysis.closed_form is not None:
        return "No known algorithm meets all conditions; they are listed below, with what was found."
    return _MEANING.get(name, "")


def fidelity_sentence(analysis: Analysis) -> str:
    verdict = analysis.verdict
    if verdict.fidelity is None:
        return "not measured"
    lo, hi = verdict.fidelity_ci
    sure = "the 95 % interval in brackets" if lo is not None and hi is not None else "no interval"
    value, count = interval(verdict.fidelity, verdict.fidelity_ci), analysis.evidence.held_out
    prompts = f"{'' if count is None else f'{count} '}prompts that were not fitted"
    who = f"the {_stand_in(analysis)} predicts what the network predicts"
    if "rounding" in value:
        return f"on {prompts} {who}, to rounding (R² = 1)"
    return f"on {prompts} {who} to R² = {value} (1 is perfect; {sure})"


def unexplained_sentence(analysis: Analysis) -> str:
    """What the algorithm does not predict; empty when it was not measured."""
    verdict = analysis.verdict
    if verdict.fidelity is None:
        return ""
    left = percent(1 - verdict.fidelity)
    who = f"The {_stand_in(analysis)} leaves"
    if "rounding" in interval(verdict.fidelity, verdict.fidelity_ci):
        return f"{who} nothing of the network's predictions unexplained, to rounding"
    return f"{who} {left.replace('<', 'less than')} of the variance of the network's predictions unexplained"


def _stand_in(analysis: Analysis) -> str:
    return "recovered algorithm" if analysis.verdict.recognized else "closest family"


def task_sentence(analysis: Analysis) -> str:
    """Whether it beats predicting zero, with the losses that say so."""
    if analysis.sequences is not None:
        return task_words(analysis, analysis.sequences)
    losses = analysis.evidence.losses
    network, null, oracle = (loss(losses, name) for name in ("network", "null", "oracle"))
    answer = "yes" if analysis.verdict.solves_task else "no"
    if network is None:
        return f"{answer} (its loss was not measured)"
    against = [f"{number(null.mse)} for predicting zero"] if null else []
    against += [f"{loss_number(oracle, null or network)} for the best possible"] if oracle else []
    tail = f", against {' and '.join(against)}" if against else ""
    error, count = estimate(network.mse, network.stderr), analysis.evidence.prompts
    return f"{answer}: mean squared error {error} on {count} fresh prompts{tail}"


def loss_number(entry: Loss, beside: Loss) -> str:
    """A loss, or that it is zero as far as float64 can tell beside another."""
    if entry.mse is not None and beside.mse is not None and entry.mse < ROUNDING * beside.mse:
        return "0 to rounding"
    return number(entry.mse)


# --- coefficients -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remark:
    """What a reader must know before believing the numbers of a row, in a word or two and in full."""

    short: str
    full: str


@dataclass(frozen=True, kw_only=True)
class CoefficientRow:
    """One row of the coefficients table, as text."""

    layer: int
    symbol: str
    output: str
    weight: str
    refit: str
    remarks: tuple[Remark, ...]
    live: bool


def coefficients(layer: Layer, *, traces: bool) -> tuple[tuple[str, Coefficient], ...]:
    """(symbol, coefficient) pairs of a layer; the first index of a symbol is the destination."""
    pairs = [(f"ω_{name}", c) for name, c in layer.omega.items()]
    if traces:
        pairs += [(f"τ_{name}", c) for name, c in layer.trace.items()]
    return tuple(pairs)


def _clear(value: float | None, stderr: float | None) -> bool:
    """Is the value distinguishable from zero at 95 %?"""
    return value is not None and value != 0 and (stderr is None or abs(value) > Z95 * stderr)


def remarks(c: Coefficient) -> tuple[Remark, ...]:
    if not c.live:
        return (Remark("dead", DEAD),)
    out = []
    if c.undetermined:
        out.append(Remark("undetermined", c.undetermined))
    if c.output is not None and c.stderr is not None and not _clear(c.output, c.stderr):
        out.append(Remark("0 within error", ZERO))
    named = [("weight", c.weight, c.stderr), ("output", c.output, c.stderr)]
    if not c.undetermined:
        named.append(("refit", c.refit, c.refit_stderr))
    sure = {name: value for name, value, stderr in named if value is not None and _clear(value, stderr)}
    positive, negative = [n for n, v in sure.items() if v > 0], [n for n, v in sure.items() if v < 0]
    if positive and negative:
        out.append(Remark("signs disagree", f"{listed(positive)} above 0, {listed(negative)} below"))
    elif len(sure) > 1 and (ratio := max(map(abs, sure.values())) / min(map(abs, sure.values()))) > 2:
        apart = "estimates far apart" if ratio > FAR else "estimates differ"
        out.append(Remark(apart, f"the largest estimate is {number(ratio, 2)} times the smallest"))
    return tuple(out)


def shows_traces(analysis: Analysis) -> bool:
    """Trace terms are part of the answer when the family has them, and part of the question when no family fits."""
    return analysis.verdict.algorithm in ("equivariant", "unrecognized")


def coefficient_rows(analysis: Analysis) -> tuple[CoefficientRow, ...]:
    traces, rows = shows_traces(analysis), []
    for layer in analysis.layers:
        for symbol, c in coefficients(layer, traces=traces):
            refit = "undetermined" if c.undetermined else estimate(c.refit, c.refit_stderr)
            output = "undetermined" if c.undetermined and c.stderr is None else estimate(c.output, c.stderr)
            rows.append(
                CoefficientRow(
                    layer=layer.index,
                    symbol=symbol,
                    output=output if c.live else DASH,
                    weight=number(c.weight) if c.live else DASH,
                    refit=refit if c.live else DASH,
                    remarks=remarks(c),
                    live=c.live,
                )
            )
    return tuple(rows)


def remark_lines(rows: Iterable[CoefficientRow]) -> tuple[str, ...]:
    """Every remark once, with the coefficients that it is about; where many differ only in what comes after the first
    semicolon, as one."""
    where: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for remark in row.remarks:
            said, _, details = remark.full.partition("; ")
            where.setdefault((remark.short, said), []).append((details, f"{row.symbol} of layer {row.layer}"))
    out = []
    for (short, said), found in where.items():
        kinds = list(dict.fromkeys(details for details, _ in found))
        if len(kinds) > MOST_DETAILS:
            found = [(DETAILS, place) for _, place in found]
            kinds = [DETAILS]
        for details in kinds:
            full = f"{said}; {details}" if details else said
            places = listed([place for known, place in found if known == details])
            out.append(f"{short}: {full}" if full == DEAD else f"{places}, {short}: {full}")
    return tuple(out)


def coefficient_finding(analysis: Analysis) -> str:
    live = [
        (layer.index, symbol, c)
        for layer in analysis.layers
        for symbol, c in coefficients(layer, traces=False)
        if c.live
    ]
    measured = [entry for entry in live if entry[2].output is not None and entry[2].stderr is not None]
    if not measured:
        return f"No coefficient was measured ({len(live)} reach the output)"
    clear = [entry for entry in measured if _clear(entry[2].output, entry[2].stderr)]
    opposed = [
        f"{symbol} of layer {index}"
        for index, symbol, c in live
        if any(r.short == "signs disagree" for r in remarks(c))
    ]
    text = f"{len(clear)} of {len(measured)} coefficients that reach the output differ from 0 at 95 %"
    return text + (f"; the estimates disagree in sign for {listed(opposed)}" if opposed else "")


def listed(items: Sequence[str], most: int = 3) -> str:
    """``a, b and c``; beyond ``most`` items the rest are counted."""
    shown = list(items[:most]) + ([f"{len(items) - most} more"] if len(items) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# --- evidence -----------------------------------------------------------------------------------------------------


def distance_finding(analysis: Analysis) -> str:
    last = max(analysis.implicit, key=lambda m: m.layer, default=None)
    known = {} if last is None else {name: d for name, d in last.distance.items() if d is not None}
    if last is None or not known:
        return "The distance of the implicit weights to the baselines was not measured"
    name = min(known, key=lambda n: known[n])
    stderr = last.distance_stderr.get(name)
    if known[name] + Z95 * (stderr or 0.0) >= 1:  # weights of 0 are at 1 from every baseline
        which = f"the nearest, {baseline_label(analysis, name)}," if len(known) > 1 else baseline_label(analysis, name)
        return (
            f"After the last layer the network's implicit weights are like those of no baseline: no weights at all are "
            f"as near or nearer; {which} is at a relative squared distance of {estimate(known[name], stderr)}"
        )
    return (
        f"After the last layer the network's implicit weights are closest to {baseline_label(analysis, name)}: "
        f"relative squared distance {estimate(known[name], stderr)}"
    )


def split_finding(analysis: Analysis) -> str:
    known = [layer for layer in analysis.layers if is_finite(layer.split.block_scalar)]
    if not known:
        return "No layer has weights that reach the output"
    least = min(known, key=lambda layer: layer.split.block_scalar or 0.0)
    what = "block-scalar maps account" if analysis.sequences is not None else "the four ω account"
    broken = percent(least.split.residual)
    if len(known) == 1:
        share = percent(least.split.block_scalar)
        subject = f"{what[0].upper()}{what[1:]}"
        return f"{subject} for {share} of the weights of the layer; {broken} breaks the rotation symmetry"
    if (least.split.block_scalar or 0.0) < 0.9:
        return (
            f"Layer {least.index} is the least regular: {what} for {percent(least.split.block_scalar)} of "
            f"its weights, and {broken} breaks the rotation symmetry"
        )
    most = at_most(max(layer.split.residual or 0.0 for layer in known))
    return (
        f"{what[0].upper()}{what[1:]} for {at_least(least.split.block_scalar)} of the weights of every layer; "
        f"{most} breaks the rotation symmetry"
    )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def family_finding(analysis: Analysis) -> str:
    chosen = chosen_family(analysis)
    if chosen is not None:
        count = _count(chosen.parameters, "number") if chosen.parameters else "no fitted number"
        return f"The family {chosen.name} explains the network with {count}"
    scored = [f for f in analysis.families if f.fidelity is not None]
    if not scored:
        return "No family was scored"
    best = max(scored, key=lambda f: f.fidelity or 0.0)
    if (best.fidelity or 0.0) <= 0:
        return f"No family explains the network: none predicts better than a constant (R² {number(best.fidelity)})"
    return f"No family explains the network; the nearest, {best.name}, reaches R² {number(best.fidelity)}"
