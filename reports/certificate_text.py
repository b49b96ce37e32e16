"""What all forms of an emitted algorithm say of themselves: where it comes from, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interp.reports.numbers import interval, number
from interp.results import Certificate, Disagreement

__all__ = ["Account", "disagreement_rows", "fitted_numbers", "origin", "scale_text", "sources"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """What the sources say that differs from task to task: where the numbers are from, and what became of a clip
    (what, text; None without one)."""

    fit: str
    clip: tuple[str, str] | None


def origin(certificate: Certificate) -> str:
    """One line: which algorithm of which file."""
    return f"{certificate.recovered.title}: the algorithm that {certificate.checkpoint.name} runs"


def fitted_numbers(certificate: Certificate) -> str:
    """The account of families that are fitted to the predictions on half of the prompts."""
    count = certificate.recovered.parameters
    text = f"{count} number{'' if count == 1 else 's'}"
    return f"{text}, fitted to the network's predictions on {certificate.provenance['prompts'] // 2} prompts"


def scale_text(scale: str | float | int) -> str:
    return scale if isinstance(scale, str) else repr(float(scale))


def sources(certificate: Certificate, account: Account) -> Iterator[tuple[str, str]]:
    """Where it comes from, as (what, text)."""
    known = certificate.provenance
    task = certificate.disagreements[0].task
    yield "checkpoint", f"{certificate.checkpoint.name}, sha256 {certificate.checkpoint.sha256}"
    yield "task", ", ".join(f"{name} {value}" for name, value in task.items())
    yield "fit", account.fit
    yield "made by", f"{known['tool']}, seed {known['seed']}, {known['time']}"
    if account.clip is not None:
        yield account.clip


HEADER = ("prompts", "number", "R^2 [95 %]", "network's rms", "median", "90 %", "99 %", "largest")


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
