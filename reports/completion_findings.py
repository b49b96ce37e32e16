"""What a network for matrix completion shows of EAGLE, in sentences and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from interp.reports.numbers import DASH, estimate, interval, number, percent
from interp.results import Completion, ScalingLaw

__all__ = [
    "agreement_finding",
    "agreement_rows",
    "completion_finding",
    "completion_sentences",
    "law_rows",
    "step_sentence",
]


SAME = 1e-6  # of 1: a share of all, but for rounding


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


def law_rows(law: ScalingLaw) -> list[tuple[str, str, str, str]]:
    """Layer, |A|², eta and gamma with their intervals."""
    return [
        (
            str(p.layer),
            number(p.norm),
            DASH if p.eta is None else interval(p.eta, p.eta_ci),
            DASH if p.gamma is None else interval(p.gamma, p.gamma_ci),
        )
        for p in law.points
    ]


def agreement_finding(completion: Completion) -> str:
    known = [row for row in completion.agreement if row.difference is not None]
    if len(known) < len(completion.agreement):
        return "Run in the network's place, the algorithm explodes"
    most = max(known, key=lambda row: row.difference or 0.0)
    if not most.difference:
        return "Run in the network's place, the algorithm has the network's tokens, to rounding"
    return (
        "Run in the network's place, the algorithm is off its tokens by a mean squared entry of "
        f"{estimate(most.difference, most.difference_stderr)} at most, after {most.layer} "
        f"layer{'s' * (most.layer != 1)}"
    )


def agreement_rows(completion: Completion) -> list[tuple[str, str, str, str]]:
    """Layers run, difference of network and algorithm, the same with every layer fitted on its own, error of the
    network's read-out."""
    return [
        (
            str(a.layer),
            estimate(a.difference, a.difference_stderr),
            estimate(a.layerwise, a.layerwise_stderr),
            estimate(a.error, a.error_stderr),
        )
        for a in completion.agreement
    ]


def _written_sentence(completion: Completion) -> Iterator[str]:
    """How much of what layers write of x is read: by later ones, by themselves, by earlier ones."""
    rows = [row for row in completion.sketch[:-1] if row.read_by]  # the last update of x is never read
    if not rows:
        return
    if all(row.read_by[row.layer] > 1 - SAME for row in rows):
        yield "They condition what they read, as in EAGLE (Π′ = Π)"
        return
    ranks = [row.rank for row in completion.sketch]
    later, own, earlier, chance = [], [], [], []
    for row in rows:
        later += row.read_by[row.layer + 1 :]
        own.append(row.read_by[row.layer])
        earlier += row.read_by[: row.layer]
        chance += [max(row.written_rank or 0, rank) / len(row.spectrum) for rank in ranks]
    before = f", earlier ones {percent(mean(earlier))}" if earlier else ""
    ahead = ": they condition columns ahead of their use" if mean(later) > max(mean(own), mean(chance)) else ""
    yield (
        f"What they condition is another part of x (Π′, {_ranks([row.written_rank for row in rows])}), "
        f"where EAGLE has Π′ = Π. On average later layers read {percent(mean(later))} of it, the layer itself "
        f"{percent(mean(own))}{before} ({percent(mean(chance))} for subspaces at random){ahead}"
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
