"""What a network for matrix completion shows of EAGLE: its steps beside the scaling law, what it conditions, and its
distance to the recovered algorithm by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from interp.reports.numbers import estimate, interval, number, percent, several
from interp.reports.plots import Point, charted, curve, layer_axis, level, log_axis, plot
from interp.reports.registry import section
from interp.reports.tabulate import points, tabulate
from interp.results import Agreement, Analysis, Completion, LawPoint, Panel, Section, Series

__all__ = ["agreement_finding", "completion_finding", "completion_sentences", "step_sentence"]

SAME = 1e-6  # of 1: a share of all, but for rounding
_AGREEMENT = (
    Series(key="network", label="error of the network's D", colour="var(--series-1)", symbol="circle"),
    Series(key="recovered", label="network - algorithm, all tokens", colour="var(--series-3)", symbol="diamond"),
)
_LAW = (
    Series(key="eta", label="η = -ω_xx |A|²", colour="var(--series-2)", symbol="square"),
    Series(key="gamma", label="γ = -ω_yx |A|²", colour="var(--series-1)", symbol="circle"),
)


def completion_finding(completion: Completion) -> str:
    law = completion.law
    if law is None:
        return "No form of gd++ explains the network, so there is no scaling law to look for"
    verb = "holds" if law.holds else "does not hold"
    return f"The scaling law of EAGLE {verb}, |A|² being the {law.statistic} of the batch: {law.why}"


def step_sentence(completion: Completion) -> str:
    """The least and the largest eta and gamma of the layers, each with its interval; empty without a law."""
    law_points = () if completion.law is None else completion.law.points
    said = []
    for name, meaning, values in (
        ("η", "-ω_xx |A|²", [(p.eta, p.eta_ci) for p in law_points if p.eta is not None]),
        ("γ", "-ω_yx |A|²", [(p.gamma, p.gamma_ci) for p in law_points if p.gamma is not None]),
    ):
        if values:
            low, high = min(values), max(values)
            span = interval(*low) if low == high else f"{interval(*low)} to {interval(*high)}"
            said.append(f"{name} = {meaning} is {span}")
    over = "" if len(law_points) < 2 else " over the layers"
    return f"{' and '.join(said)}{over}; the law of EAGLE asks for one number each" if said else ""


def agreement_finding(completion: Completion) -> str:
    finite = [row for row in completion.agreement if row.difference is not None]
    if len(finite) < len(completion.agreement):
        return "Run in the network's place, the algorithm explodes"
    most = max(finite, key=lambda row: row.difference or 0.0)
    if not most.difference:
        return "Run in the network's place, the algorithm has the network's tokens, to rounding"
    return (
        "Run in the network's place, the algorithm is off its tokens by a mean squared entry of "
        f"{estimate(most.difference, most.difference_stderr)} at most, after {several(most.layer, 'layer')}"
    )


def _written_sentence(completion: Completion) -> Iterator[str]:
    """How much of what layers write of x is read: by later ones, by themselves, by earlier ones."""
    rows = [row for row in completion.sketch[:-1] if row.read_by]  # the last update of x is never read
    if not rows:
        return
    if all(row.read_by[row.layer] > 1 - SAME for row in rows):
        yield "They condition what they read, as in EAGLE (Π′ = Π)"
        return
    later = mean(share for row in rows for share in row.read_by[row.layer + 1 :])
    itself = mean(row.read_by[row.layer] for row in rows)
    earlier = [share for row in rows for share in row.read_by[: row.layer]]
    ranks = [max(row.written_rank or 0, other.rank) / len(row.spectrum) for row in rows for other in completion.sketch]
    before = f", earlier ones {percent(mean(earlier))}" if earlier else ""
    ahead = ": they condition columns ahead of their use" if later > max(itself, mean(ranks)) else ""
    yield (
        f"What they condition is another part of x (Π′, {_ranks([row.written_rank for row in rows])}), "
        f"where EAGLE has Π′ = Π. On average later layers read {percent(later)} of it, the layer itself "
        f"{percent(itself)}{before} ({percent(mean(ranks))} for subspaces at random){ahead}"
    )


def _ranks(ranks: Sequence[int | None]) -> str:
    return f"of rank {ranks[0]}" if len(set(ranks)) == 1 else f"of ranks {', '.join(map(str, ranks))}"


def completion_sentences(completion: Completion) -> list[str]:
    out, law = [], completion.law
    if law is not None and law.slope is not None:
        share = "nothing" if law.explained is not None and law.explained <= 0 else percent(law.explained)
        out.append(
            f"log(-ω) rises with log(1/|A|²) by {estimate(law.slope, law.slope_stderr)} over the layers (the law: 1); "
            f"|A|² explains {share} of how the steps change. The last ω_xx is never read, and is left out"
        )
    if completion.sketch:
        same = [row.same for row in completion.sketch[1:] if row.same is not None]
        shared = f"; they share {percent(min(same))} or more of the first layer's subspace" if same else ""
        out.append(f"The layers read x through projections Π {_ranks([row.rank for row in completion.sketch])}{shared}")
        out += _written_sentence(completion)
    if (machines := completion.machines) is not None:
        held = " | ".join(",".join(map(str, block)) for block in machines.inputs)
        says = (
            "more than C and D" if machines.numbers is None else f"C and D alone, {machines.numbers} numbers per round"
        )
        crossing = ", ".join(percent(None if share is None else max(share, 0.0)) for share in machines.cross)
        out.append(
            f"x is held by {len(machines.inputs)} machines ({held}); each sends {says}. Share of the "
            f"weights that would move x between machines, by layer: {crossing}"
        )
    fidelity, (low, high) = completion.extraction.fidelity, completion.extraction.fidelity_ci
    if fidelity is not None and low is not None and high is not None:
        out.append(
            f"The paper's extraction (heads pruned, small weights to 0, the rest at one or two levels) predicts what "
            f"the network predicts to R² = {interval(fidelity, (low, high))}; it depends on the gauge"
        )
    return out


@section("eagle", title="EAGLE", where="eagle", part="completion")
def eagle(_: Analysis, completion: Completion) -> Iterator[Section]:
    sentences, law = tuple(completion_sentences(completion)), completion.law
    title, finding = "The scaling law", completion_finding(completion)
    if law is None:
        yield Section(name="law", title=title, finding=finding, remarks=sentences)
    else:
        table = tabulate(law.points, {"layer": "layer", "|A|²": "norm", "η [95 %]": "eta", "γ [95 %]": "gamma"})
        drawn = [(s, points(law.points, "layer", s.key, _step_text, above=0)) for s in _LAW]
        lines = [level(at, colour=s.colour, width=1) for s in _LAW if (at := getattr(law, s.key)) is not None]
        panels = _panels("law", drawn, law.points, ("layer", "step times |A|²"), 300, dense=True, shapes=lines)
        description = (
            "Every layer's steps times the squared norm of what the layer sees of A, on a logarithmic "
            "axis: by the law of EAGLE all η are the same (dashed: their mean), and all γ. Bars are 95 % intervals; "
            "the last ω_xx is never read, and steps in the wrong direction have no place here."
        )
        yield charted("law", title, finding, description, panels, table, legend=_LAW, short=table, remarks=sentences)
    if completion.agreement:
        yield _agreement(completion)


def _panels(
    name: str, drawn: Sequence[tuple[Series, list[Point]]], rows: Sequence[LawPoint | Agreement],
    axes: tuple[str, str], height: int, dense: bool, **more: Any,
) -> Iterator[Panel]:  # fmt: skip
    """Series over the layers of the rows, on a logarithmic axis; nothing where there is no point."""
    data = [curve(series, entries, log=True) for series, entries in drawn]
    if values := [y for trace in data for y in trace["y"]]:
        x, y = layer_axis([row.layer for row in rows], axes[0]), log_axis(axes[1], values, dense=dense)
        yield plot(name, data, x, y, height, **more)


def _step_text(p: LawPoint, step: str) -> str:
    return f"layer {p.layer}: {step} with |A|² = {number(p.norm)}"


def _agreement(completion: Completion) -> Section:
    rows, fields = completion.agreement, ("error", "difference")
    drawn = [
        (s, points(rows, "layer", field, lambda row, said: f"after {several(row.layer, 'layer')}: {said}", above=0))
        for s, field in zip(_AGREEMENT, fields, strict=True)
    ]
    panels = _panels("agreement", drawn, rows, ("layers run", "mean squared entry"), 340, dense=False)
    columns = {
        "layers run": "layer", "difference ± stderr": "difference", "fitted layer by layer": "layerwise",
        "error of D ± stderr": "error",
    }  # fmt: skip
    description = (
        "Mean squared entries, on a logarithmic axis: the error of the network's D read out after every "
        "layer, and the difference of its tokens to those of the recovered algorithm run from the same prompts (after "
        "the last layer, of C and D alone); the table also has it with the numbers of every layer fitted to what that "
        "layer puts out. Bars are 95 % intervals."
    )
    title, finding, table = "Network and algorithm by layer", agreement_finding(completion), tabulate(rows, columns)
    return charted("agreement", title, finding, description, panels, table, legend=_AGREEMENT, short=table)
