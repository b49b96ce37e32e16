"""What omegas are worth, what the layers hold beside them, and what a preconditioner inverts, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from interp.reports.findings import ROUNDING, chosen_family, listed, loss
from interp.reports.noise_findings import layers_named
from interp.reports.numbers import DASH, at_least, estimate, interval, is_finite, number, percent
from interp.results import Analysis, OmegaEffect, Preconditioner, Remainder

__all__ = [
    "BLOCKS",
    "block_share",
    "diverges",
    "drawable",
    "effect_text",
    "error_share",
    "matrix_sentences",
    "omega_finding",
    "preconditioner_finding",
    "remainder_finding",
    "remainder_sentences",
    "where_it_lies",
]

UNSURE = 1 / 3  # standard error relative to the value from which a mean hangs on a few exploding prompts
UNLIKE = 0.9  # relative distance, at most 1, from which two matrices are called unlike
REGULAR = 0.9  # share of the weights from which the omegas are said to describe a layer
NAMES = {"xx": "x ← x", "xy": "x ← y", "yx": "y ← x", "yy": "y ← y"}  # update: destination, source
_OMEGA_FAMILIES = ("gd", "gd++", "diag")
READ = {"xx": "Σ", "xy": "α", "yy": "λ"}  # block of the Gram matrix
BLOCKS = {(ae, bc): f"{name}, read from {gram}" for ae, name in NAMES.items() for bc, gram in READ.items()}


# --- what an omega is worth -----------------------------------------------------------------------------------------


def diverges(analysis: Analysis, value: float | None, stderr: float | None) -> bool:
    """A mean loss beyond that of predicting zero, with an error about as large: a few prompts explode, and more prompts
    would give another number."""
    if not is_finite(value) or value <= 0:
        return False
    null = loss(analysis.evidence.losses, "null")
    ceiling = 0.0 if null is None or null.excess is None else null.excess
    return value > ceiling and (stderr is None or not math.isfinite(stderr) or stderr >= UNSURE * value)


def effect_text(analysis: Analysis, value: float | None, stderr: float | None) -> str:
    if diverges(analysis, value, stderr):
        return f"diverges ({estimate(value, stderr)})"
    return estimate(value, stderr)


def _name(effect: OmegaEffect) -> str:
    return " + ".join(f"ω_{part}" for part in effect.coefficient.split("+"))


def omega_finding(analysis: Analysis) -> str:
    omegas = None if analysis.regression is None else analysis.regression.omegas
    whole = [] if omegas is None else [e for e in omegas.effects if e.layer is None]
    if omegas is None or not whole:
        return "No ω was taken out"
    other = "" if omegas.family == analysis.verdict.algorithm else f" of the {omegas.family} algorithm fitted to it"
    refitted = [e for e in whole if is_finite(e.worth)]
    if not refitted:
        known = sorted((e for e in whole if is_finite(e.zeroed)), key=lambda e: -(e.zeroed or 0.0))
        costs = listed([f"{_name(e)} {effect_text(analysis, e.zeroed, e.zeroed_stderr)}" for e in known], most=5)
        return f"Set to zero in all layers, the others left as they are, the ω{other} cost: {costs or DASH}"
    ranked = sorted(refitted, key=lambda e: -(e.worth or 0.0))
    worths = listed([f"{_name(e)} {effect_text(analysis, e.worth, e.worth_stderr)}" for e in ranked], most=5)
    text = f"What each ω{other} is worth, by the squared error without it and the others refitted: {worths}"
    return text + _exaggeration(analysis, ranked)


def _exaggeration(analysis: Analysis, effects: Sequence[OmegaEffect]) -> str:
    exploding = [_name(e) for e in effects if diverges(analysis, e.zeroed, e.zeroed_stderr)]
    if exploding:
        return f". Zeroing alone exaggerates: without {listed(exploding)} the algorithm diverges"
    pairs = [(e.zeroed, e.zeroed_stderr, e.worth, e.worth_stderr) for e in effects]
    ratios = [zeroed / worth for zeroed, a, worth, b in pairs if _clear(zeroed, a) and _clear(worth, b)]
    if ratios and max(ratios) >= 1.5:
        return f". Zeroing alone would say up to {number(max(ratios), 2)} times as much"
    if ratios and min(ratios) <= 1 / 1.5:
        return f". Zeroing alone would say as little as {number(min(ratios), 2)} times as much"
    return ""


def _clear(value: float | None, stderr: float | None) -> TypeGuard[float]:
    return is_finite(value) and value > 2 * (stderr or 0.0)


# --- what the omegas leave ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The largest block of a remainder."""

    where: str
    share: float


def block_share(entry: Remainder) -> Mapping[tuple[str, str], float]:
    """Share of the remainder's energy by (update, block of the Gram matrix)."""
    return {} if entry.blocks is None else {(ae, bc): entry.blocks.get(ae, {}).get(bc, 0.0) for ae, bc in BLOCKS}


def where_it_lies(entry: Remainder) -> Place | None:
    shares = block_share(entry)
    if not shares:
        return None
    key = max(shares, key=lambda k: shares[k])
    return Place(BLOCKS[key], shares[key])


def remainder_finding(analysis: Analysis) -> str:
    """What share of the weights and of the behaviour the four omegas carry, where they do not carry nearly all."""
    known = [layer for layer in analysis.layers if is_finite(layer.split.block_scalar)]
    if not known:
        return "No layer has weights that reach the output"
    shares = {layer.index: layer.split.block_scalar or 0.0 for layer in known}
    behaviour = _behaviour(analysis)
    irregular = [i for i, share in shares.items() if share < REGULAR]
    if not irregular:
        least = min(shares.values())
        held = (
            f"{at_least(least)} of the weights of every layer" if len(known) > 1 else f"{percent(least)} of the weights"
        )
        return f"The four ω carry {held}{behaviour and ', and ' + behaviour}"
    low, high = (percent(f(shares[i] for i in irregular)) for f in (min, max))
    held = low if low == high else f"{low} to {high}"
    surprising = chosen_family(analysis) is not None and analysis.verdict.algorithm in _OMEGA_FAMILIES
    only, link = ("only ", ", and yet ") if surprising else ("", ", and ")
    return f"The four ω carry {only}{held} of the weights of {layers_named(irregular)}{behaviour and link + behaviour}"


def _diag(analysis: Analysis) -> tuple[float, tuple[float | None, float | None]] | None:
    """Fidelity of the best algorithm that has omegas only: the chosen one, or diag."""
    chosen = chosen_family(analysis)
    names = (chosen.name,) if chosen is not None and chosen.name in _OMEGA_FAMILIES else ("diag",)
    family = next((f for f in analysis.families if f.name in names), None)
    return None if family is None or not is_finite(family.fidelity) else (family.fidelity, family.fidelity_ci)


def _behaviour(analysis: Analysis) -> str:
    known = _diag(analysis)
    return "" if known is None else f"refitted they predict what the network predicts to R² = {interval(*known)}"


def remainder_sentences(analysis: Analysis) -> Iterator[str]:
    """One for every layer of which something is left."""
    shares = {layer.index: layer.split.block_scalar for layer in analysis.layers}
    for entry in () if analysis.regression is None else analysis.regression.remainder:
        place = where_it_lies(entry)
        if place is None or entry.rank is None:
            continue
        yield (
            f"Layer {entry.layer}: the four ω carry {percent(shares.get(entry.layer))} of the weights and, put in its "
            f"place, R² = {interval(entry.omega_fidelity, entry.omega_ci)} of the behaviour. Of what is left, "
            f"{percent(place.share)} is in {place.where}, and its rank is about {number(entry.rank, 2)}."
        )


# --- preconditioners ------------------------------------------------------------------------------------------------


def drawable(entry: Preconditioner) -> bool:
    """Whether the matrix and its errors are square, of numbers: a document may hold anything."""
    dim = len(entry.refit)
    return dim > 0 and all(
        isinstance(matrix, list)
        and len(matrix) == dim
        and all(isinstance(row, list) and len(row) == dim and all(map(_is_entry, row)) for row in matrix)
        for matrix in (entry.refit, entry.refit_stderr)
    )


def _is_entry(value: object) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def error_share(entry: Preconditioner) -> float | None:
    """|standard errors| / |Omega|: the distance that errors alone would make."""
    values = [v for row in entry.refit for v in row]
    errors = [v for row in entry.refit_stderr for v in row]
    if not values or not all(is_finite(v) for v in (*values, *errors)):
        return None
    size, spread = math.hypot(*values), math.hypot(*errors)
    return spread / size if 0 < size < math.inf and spread < math.inf else None


def preconditioner_finding(entries: Sequence[Preconditioner]) -> str:
    inverse = [(e.layer, e.distance.get("inverse covariance"), e.distance.get("identity")) for e in entries]
    known = [(i, a, b) for i, a, b in inverse if is_finite(a) and is_finite(b)]
    if not known:
        alone = [e.distance.get("identity") for e in entries]
        sizes = [d for d in alone if is_finite(d)]
        if sizes and min(sizes) >= UNLIKE:
            return f"The matrix is not like the identity (relative distance {_span(sizes)}, of 1 at most)"
        return (
            f"The matrix differs from a multiple of the identity by {_span(sizes)} of its size"
            if sizes
            else "The distance of the matrix to the identity is not known"
        )
    order = ("inverse covariance", "identity")
    closer = [entry for entry in known if entry[1] < entry[2]]
    farther = [(i, b, a) for i, a, b in known if a >= b]
    if all(min(a, b) >= UNLIKE for _, a, b in known):
        nearest = f"relative distance {_span([min(a, b) for _, a, b in known])}, of 1 at most"
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
        dim = len(entry.refit)
        diagonal = [v for i in range(dim) if is_finite(v := entry.refit[i][i])]
        beside = [abs(v) for i, row in enumerate(entry.refit) for j, v in enumerate(row) if i != j and is_finite(v)]
        if not diagonal:
            continue
        rounding = ROUNDING * max(map(abs, diagonal))
        off = f", off it at most {number(max(beside), 2)} in size" if beside else ""
        off = ", off it nothing but rounding" if beside and max(beside) <= rounding else off
        yield f"Ω of layer {entry.layer}, {dim} x {dim}: {_span(diagonal)} on the diagonal{off}"


def _span(values: Sequence[float]) -> str:
    low, high = number(min(values), 2), number(max(values), 2)
    return low if low == high else f"{low} to {high}"
