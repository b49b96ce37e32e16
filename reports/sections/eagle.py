"""What a network for matrix completion shows of EAGLE: its steps beside the scaling law, what it conditions, and its
distance to the recovered algorithm by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from interp.reports.numbers import estimate, interval, number, percent, several
from interp.reports.plots import charted, curve, layer_axis, layout, level, log_axis
from interp.reports.registry import section
from interp.reports.tabulate import points, tabulate
from interp.results import Analysis, Completion, LawPoint, Panel, Section, Series

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
    law = completion.law
    if law is None:
        return ""
    said = []
    for name, meaning, values in (
        ("η", "-ω_xx |A|²", [(p.eta, p.eta_ci) for p in law.points if p.eta is not None]),
        ("γ", "-ω_yx |A|²", [(p.gamma, p.gamma_ci) for p in law.points if p.gamma is not None]),
    ):
        if values:
            low, high = min(values), max(values)
            span = interval(*low) if low == high else f"{interval(*low)} to {interval(*high)}"
            said.append(f"{name} = {meaning} is {span}")
    over = "" if len(law.points) < 2 else " over the layers"
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
        f"{estimate(most.difference, most.difference_stderr)} at most, after {most.layer} "
        f"layer{'s' * (most.layer != 1)}"
    )


def _written_sentence(completion: Completion) -> Iterator[str]:
    """How much of what layers write of x is read: by later ones, by themselves, by earlier ones."""
    rows = [row for row in completion.sketch[:-1] if row.read_by]  # the last update of x is never read
    if not rows:
        return
    if all(row.read_by[row.layer] > 1 - SAME for row in rows):
        yield "They condition what they read, as in EAGLE (Π′ = Π)"
        return
    ranks = [row.rank for row in completion.sketch]
    later, itself, earlier, chance = [], [], [], []
    for row in rows:
        later += row.read_by[row.layer + 1 :]
        itself.append(row.read_by[row.layer])
        earlier += row.read_by[: row.layer]
        chance += [max(row.written_rank or 0, rank) / len(row.spectrum) for rank in ranks]
    before = f", earlier ones {percent(mean(earlier))}" if earlier else ""
    ahead = ": they condition columns ahead of their use" if mean(later) > max(mean(itself), mean(chance)) else ""
    yield (
        f"What they condition is another part of x (Π′, {_ranks([row.written_rank for row in rows])}), "
        f"where EAGLE has Π′ = Π. On average later layers read {percent(mean(later))} of it, the layer itself "
        f"{percent(mean(itself))}{before} ({percent(mean(chance))} for subspaces at random){ahead}"
    )


def _share(explained: float | None) -> str:
    return "nothing" if explained is not None and explained <= 0 else percent(explained)


def _ranks(ranks: Sequence[int | None]) -> str:
    return f"of rank {ranks[0]}" if len(set(ranks)) == 1 else f"of ranks {', '.join(map(str, ranks))}"


def completion_sentences(completion: Completion) -> list[str]:
    out = []
    law = completion.law
    if law is not None and law.slope is not None:
        out.append(
            f"log(-ω) rises with log(1/|A|²) by {estimate(law.slope, law.slope_stderr)} over the layers (the law: 1); "
            f"|A|² explains {_share(law.explained)} of how the steps change. The last ω_xx is never read, and is left "
            "out"
        )
    if completion.sketch:
        same = [row.same for row in completion.sketch[1:] if row.same is not None]
        shared = f"; they share {percent(min(same))} or more of the first layer's subspace" if same else ""
        out.append(f"The layers read x through projections Π {_ranks([row.rank for row in completion.sketch])}{shared}")
        out += _written_sentence(completion)
    if completion.machines is not None:
        held = " | ".join(",".join(map(str, block)) for block in completion.machines.inputs)
        sends = completion.machines.numbers
        says = "more than C and D" if sends is None else f"C and D alone, {sends} numbers per round"
        crossing = ", ".join(percent(None if share is None else max(share, 0.0)) for share in completion.machines.cross)
        out.append(
            f"x is held by {len(completion.machines.inputs)} machines ({held}); each sends {says}. Share of the "
            f"weights that would move x between machines, by layer: {crossing}"
        )
    low, high = completion.extraction.fidelity_ci
    if completion.extraction.fidelity is not None and low is not None and high is not None:
        out.append(
            f"The paper's extraction (heads pruned, small weights to 0, the rest at one or two levels) predicts what "
            f"the network predicts to R² = {interval(completion.extraction.fidelity, (low, high))}; it depends on the "
            f"gauge"
        )
    return out


@section("eagle", title="EAGLE", where="eagle")
def eagle(analysis: Analysis) -> Iterator[Section]:
    completion = analysis.completion
    if completion is None:
        return
    sentences = tuple(completion_sentences(completion))
    law = completion.law
    title, finding = "The scaling law", completion_finding(completion)
    if law is None:
        yield Section(name="law", title=title, finding=finding, remarks=sentences)
    else:
        columns = {"layer": "layer", "|A|²": "norm", "η [95 %]": "eta", "γ [95 %]": "gamma"}
        table = tabulate(law.points, columns)
        data, lines, values = [], [], []
        for series in _LAW:
            drawn = points(law.points, "layer", series.key, _step_text, above=0)
            values += [point.y for point in drawn]
            data.append(curve(series, drawn, log=True))
            if (average := getattr(law, series.key)) is not None:
                lines.append(level(average, colour=series.colour, width=1))
        y = log_axis("step times |A|²", values, dense=True)
        plot = layout(layer_axis([p.layer for p in law.points], "layer"), y, shapes=lines)
        description = (
            "Every layer's steps times the squared norm of what the layer sees of A, on a logarithmic "
            "axis: by the law of EAGLE all η are the same (dashed: their mean), and all γ. Bars are 95 % intervals; "
            "the last ω_xx is never read, and steps in the wrong direction have no place here."
        )
        panels = (Panel(name="law", title="", data=data, layout=plot, height=300),) if values else ()
        yield charted("law", title, finding, description, panels, table, legend=_LAW, short=table, remarks=sentences)
    yield from _agreement(completion)


def _step_text(p: LawPoint, step: str) -> str:
    return f"layer {p.layer}: {step} with |A|² = {number(p.norm)}"


def _agreement(completion: Completion) -> Iterator[Section]:
    rows = completion.agreement
    if not rows:
        return
    data, values = [], []
    for series, field in zip(_AGREEMENT, ("error", "difference"), strict=True):
        drawn = points(rows, "layer", field, lambda row, said: f"after {several(row.layer, 'layer')}: {said}", above=0)
        values += [point.y for point in drawn]
        data.append(curve(series, drawn, log=True))
    columns = {"layers run": "layer", "difference ± stderr": "difference"}
    columns |= {"fitted layer by layer": "layerwise", "error of D ± stderr": "error"}
    table = tabulate(rows, columns)
    plot = layout(
        layer_axis([row.layer for row in rows], "layers run"), log_axis("mean squared entry", values, dense=False)
    )
    description = (
        "Mean squared entries, on a logarithmic axis: the error of the network's D read out after every "
        "layer, and the difference of its tokens to those of the recovered algorithm run from the same prompts (after "
        "the last layer, of C and D alone); the table also has it with the numbers of every layer fitted to what that "
        "layer puts out. Bars are 95 % intervals."
    )
    panels = (Panel(name="agreement", title="", data=data, layout=plot, height=340),) if values else ()
    title = "Network and algorithm by layer"
    finding = agreement_finding(completion)
    yield charted("agreement", title, finding, description, panels, table, legend=_AGREEMENT, short=table)
