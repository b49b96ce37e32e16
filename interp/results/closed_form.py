"""Simple regression by embedded networks: what the tokens hold, what the heads do, where a division happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interp.results.tables import Tabular


@dataclass(frozen=True, kw_only=True)
class Form:
    """A closed form beside the network, on held-out prompts. ``error``: root mean square difference, relative to the
    root mean square of the form. ``slope``: the network regressed on the form."""

    name: str  # "least-squares" or "shrunken" (by the leverage of the query)
    formula: str
    fidelity: float | None  # R^2 of the form's values against the network's
    fidelity_ci: tuple[float | None, float | None]
    error: float | None
    slope: float | None
    slope_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One entry of the tokens after ``layer`` layers (0: the embedding). ``holds``: "constant", "x", "y", "x - mean",
    "y - mean" or "mixture"; ``r2``: how much of its variance over tokens and prompts that explains; ``sign`` and
    ``scale``: the slot is sign * scale * what it holds, plus a constant."""

    layer: int
    index: int
    holds: str
    sign: int
    scale: float | None
    r2: float | None
    query_r2: float | None  # the same relation, no number fitted anew, in the query's row, where y = 0


@dataclass(frozen=True, kw_only=True)
class Direction:
    """The combination <vector, token> + constant of a token's entries after ``layer`` layers that comes closest to
    ``holds``, over the context's rows, and how well it does in them and, nothing fitted anew, in the query's row.
    Unlike slots these do not depend on the basis that tokens are written in."""

    layer: int
    holds: str  # "x - mean" or "y - mean"
    vector: tuple[float, ...]
    r2: float | None
    query_r2: float | None


@dataclass(frozen=True, kw_only=True)
class HeadRole:
    """What one head contributes in one layer, or (``head`` None) all of them together, which is free of gauge.

    ``centring``: R^2 of what it adds to the rows, explained by the means of x and y over the keys (of all together: R^2
    of the rows after their update, explained by x - mean x and y - mean y); ``numerator`` and
    ``denominator``: its share of the numerator (what the read-out takes from the query's row before LayerNorm) and of
    LayerNorm's standard deviation there; each part's share adds up to 1 with the other heads' and the old token's.
    ``numerator_r2``: its contribution explained by C (u - mean x) + V mean y; ``denominator_r2``: by V.
    """

    layer: int
    head: int | None
    role: str  # "centring", "numerator", "denominator", several joined by " and ", "silent" or "other"
    centring: float | None
    numerator: float | None
    numerator_r2: float | None
    denominator: float | None
    denominator_r2: float | None


@dataclass(frozen=True, kw_only=True)
class DivisionBin:
    """Means over a tenth of the prompts, by V."""

    V: float
    scale: float  # LayerNorm's standard deviation in the query's row
    stderr: float | None


@dataclass(frozen=True, kw_only=True)
class Division:
    """LayerNorm's standard deviation in the query's row (times that of an earlier LayerNorm, where the whole row was
    divided by it) as a power of the variance V of x over the keys, by regression of logarithms over prompts.

    ``variation``: standard deviation of its logarithm. It divides by V where ``r2`` and ``exponent`` are near 1 and it
    varies. ``numerator_r2``, of the last layer: what the read-out takes from that row before LayerNorm, explained by
    C (u - mean x) + V mean y.
    """

    layer: int
    r2: float | None
    exponent: float | None
    exponent_stderr: float | None
    variation: float | None
    numerator_r2: float | None
    bins: tuple[DivisionBin, ...]


@dataclass(frozen=True, kw_only=True)
class Rescaled:
    """Fidelity of the closed form to the network, and of the fitted gradient methods, where all x or all y of every
    prompt are multiplied by ``factor``. ``outside``: share of these prompts whose V (for y: whose mean square of y)
    exceeds, or falls below, all but 2.5 % of those the task makes."""

    quantity: str  # "x" or "y"
    factor: float
    outside: float
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]
    rivals: Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """Fidelity to the network of the network with the LayerNorm of one layer replaced by the best fixed affine map."""

    layer: int
    fidelity: float | None
    fidelity_ci: tuple[float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Check:
    """A condition of the verdict closed-form: all of them must hold."""

    name: str
    passed: bool
    found: str
    bar: str


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Tabular):
    """The evidence for or against the verdict closed-form. ``formula`` is the recovered one; None where the verdict is
    another."""

    formula: str | None
    keys: str
    checks: tuple[Check, ...]
    forms: tuple[Form, ...]  # the closest first
    slots: tuple[Slot, ...]
    directions: tuple[Direction, ...]
    heads: tuple[HeadRole, ...]
    divisions: tuple[Division, ...]
    divides: int | None  # the layer whose LayerNorm divides by V
    rescaled: tuple[Rescaled, ...]
    replacements: tuple[Replacement, ...]
    query_share: float | None  # of the prediction's variance, what is read from the query's row
    weights_left: int  # numbers that are not 0
    weights: int
