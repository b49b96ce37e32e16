"""What all forms of an emitted algorithm say of themselves: where it comes from, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from interp.reports.numbers import interval, number
from interp.results import Certificate, Disagreement, Recovered

__all__ = ["HEADING", "disagreement_rows", "origin", "scale_text", "sources", "trust"]


HEADING = "|algorithm - network| on fresh prompts, in units of the root mean square of the network's predictions there"
HEADER = ("prompts", "number", "R^2 [95 %]", "network's rms", "median", "90 %", "99 %", "largest")
FITS = {
    "predictions": "{numbers}, fitted to the network's predictions on {half} prompts",
    "weights": "{numbers}, the network's own by its weights; nothing is fitted",
    "none": "the formula has no numbers; nothing is fitted",
}


def origin(certificate: Certificate) -> str:
    """One line: which algorithm of which file."""
    return f"{certificate.recovered.title}: the algorithm that {certificate.checkpoint.name} runs"


def scale_text(scale: str | float | int) -> str:
    return scale if isinstance(scale, str) else repr(float(scale))


def sources(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Where it comes from, as (what, text)."""
    made, recovered = certificate.provenance, certificate.recovered
    task = certificate.disagreements[0].task
    yield "checkpoint", f"{certificate.checkpoint.name}, sha256 {certificate.checkpoint.sha256}"
    yield "task", ", ".join(f"{name} {value}" for name, value in task.items())
    count = f"{recovered.parameters} number{'s' * (recovered.parameters != 1)}"
    yield "fit", FITS[recovered.fit].format(numbers=count, half=made["prompts"] // 2) + _structure(recovered)
    yield "made by", f"{made['tool']}, seed {made['seed']}, {made['time']}"
    clip = certificate.checkpoint.clip
    if recovered.clip is not None:
        yield "clip", f"tokens are clipped to +-{recovered.clip:g} after every layer, as in the network"
    elif clip is not None:
        counted = "count" if recovered.keys == "causal" else "are not counted"
        yield "left out", f"the network's clip of +-{clip:g}; prompts that meet it {counted}"


def _structure(recovered: Recovered) -> str:
    names = {factor.name for _, term in recovered.terms() for factor in term.factors}
    return "; what every layer sees of x is read off the weights" * bool(names & {"blocks", "projection"})


def disagreement_rows(certificate: Certificate) -> tuple[tuple[str, ...], ...]:
    """The table of disagreements as text, header first; a row that was skipped has its reason in the third cell."""
    return (HEADER, *(_row(entry) for entry in certificate.disagreements))


def _row(entry: Disagreement) -> tuple[str, ...]:
    if entry.skipped is not None:
        return (entry.label, str(entry.prompts), entry.skipped)
    sizes = (entry.median, entry.q90, entry.q99, entry.largest)
    seed = f"{entry.label} (seed {entry.seed})"
    cells = (number(entry.rms, 3), *(number(value, 2) for value in sizes))
    return (seed, str(entry.prompts), interval(entry.r2, entry.r2_ci), *cells)


def trust(certificate: Certificate) -> str:
    """The first row of the table in a sentence."""
    entry = certificate.disagreements[0]
    if entry.skipped is not None or entry.rms is None or entry.median is None or entry.q99 is None:
        return f"How far the algorithm is from the network on its task: {entry.skipped or 'not measured'}."
    half, most = (number(q * entry.rms, 2) for q in (entry.median, entry.q99))
    agreed = f"R^2 = {interval(entry.r2, entry.r2_ci)}"
    return (
        f"On {entry.prompts} prompts of the task it agrees with the network to {agreed}: half of the predictions are "
        f"within {half} of the network's, 99 % within {most} (predictions have an rms of {number(entry.rms, 3)})."
    )
