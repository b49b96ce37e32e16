"""What every form of an emitted algorithm says about itself: terms, conventions, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from interp.reports.numbers import interval, number
from interp.results import Certificate, Disagreement, Recovered

__all__ = ["TERMS", "Term", "disagreement_rows", "names", "origin", "scale_text", "sources", "terms"]


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term of an update: which channel it changes, and its map in plain text, in Python and in LaTeX."""

    channel: str
    plain: str
    python: str  # {np} is the library
    latex: str
    reads: tuple[str, ...]  # the sums over the keys in it


TERMS: Mapping[str, Term] = {
    "xx": Term(channel="x", plain="Sigma x", python="x @ Sigma", latex=r"\Sigma x_i", reads=("Sigma",)),
    "xy": Term(channel="x", plain="y alpha", python="{np}.outer(y, alpha)", latex=r"y_i \alpha", reads=("alpha",)),
    "x:xx": Term(
        channel="x", plain="tr(Sigma) x", python="{np}.trace(Sigma) * x", latex=r"\operatorname{tr}(\Sigma)\, x_i",
        reads=("Sigma",),
    ),
    "x:yy": Term(channel="x", plain="lambda x", python="lam * x", latex=r"\lambda x_i", reads=("lam",)),
    "yx": Term(
        channel="y", plain="<alpha, x>", python="x @ alpha", latex=r"\langle \alpha, x_i \rangle", reads=("alpha",)
    ),
    "yy": Term(channel="y", plain="lambda y", python="lam * y", latex=r"\lambda y_i", reads=("lam",)),
    "y:xx": Term(
        channel="y", plain="tr(Sigma) y", python="{np}.trace(Sigma) * y", latex=r"\operatorname{tr}(\Sigma)\, y_i",
        reads=("Sigma",),
    ),
}  # fmt: skip


def names(recovered: Recovered) -> tuple[str, ...]:
    """The coefficients that any layer has, in the order of ``TERMS``; none for a family of matrices."""
    present = {name for layer in recovered.layers for name in layer.coefficients}
    return tuple(name for name in TERMS if name in present)


def terms(recovered: Recovered, channel: str) -> tuple[str, ...]:
    """The coefficients that change ``channel``."""
    return tuple(name for name in names(recovered) if TERMS[name].channel == channel)


def scale_text(recovered: Recovered) -> str:
    return recovered.scale if isinstance(recovered.scale, str) else repr(float(recovered.scale))


def origin(certificate: Certificate) -> str:
    """One line: which algorithm of which file."""
    return f"{certificate.recovered.family}: the algorithm that {certificate.checkpoint.name} runs"


def sources(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """Where it comes from, as (what, text)."""
    known, recovered = certificate.provenance, certificate.recovered
    task = certificate.disagreements[0].task
    yield "checkpoint", f"{certificate.checkpoint.name}, sha256 {certificate.checkpoint.sha256}"
    yield "task", ", ".join(f"{name} {value}" for name, value in task.items())
    count = f"{recovered.parameters} number{'' if recovered.parameters == 1 else 's'}"
    yield "fit", f"{count}, fitted to the network's predictions on {known['prompts'] // 2} prompts"
    yield "made by", f"{known['tool']}, seed {known['seed']}, {known['time']}"
    if certificate.checkpoint.clip is not None:
        yield (
            "left out",
            f"the network's clip of +-{certificate.checkpoint.clip:g}; prompts that meet it are not counted",
        )


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
