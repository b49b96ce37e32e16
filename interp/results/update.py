"""What a layer of a recovered algorithm does, as data: which channel moves, by which terms, with which numbers.

Tokens are lists of channels. A layer changes channel c of every token to ``token if kept + sum of terms``. A term is a
product of factors, applied from right to left, times its coefficient. With M_bg = s sum_j e_j[b] e_j[g]^T over the keys
j, all as they enter the layer, the factors are

    token b            channel b of the token itself; stands last
    moment b g         M_bg
    blocks b g         M_bg, its entries within the groups of ``blocks`` alone
    trace b g          tr(M_bg), a number
    products           sum_bge k[a][b][g][e] M_bg e[e], of all channels; k is the coefficient, a the channel that moves
    coefficient        the coefficient, where it is a matrix
    projection b       Pi = S S^T in channel b, S the ``matrix`` [coordinate][column] (None: the identity)
    written b          another projection Pi' = S' S'^T
    mean b             the mean of channel b over the keys; stands last
    deviation b        the token's channel b less that mean; stands last
    slope b g          C / V: the covariance of b and g over the variance of g, of channels of size 1
    fitted b           (1 - h)(n + 1) / n, with h the leverage of the token among the n keys and itself, by channel b
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

FactorName = Literal[
    "token", "moment", "blocks", "trace", "products", "coefficient", "projection", "written", "mean", "deviation",
    "slope", "fitted",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RecoveredCoefficient:
    """A fitted number of the recovered algorithm. ``undetermined``: a reason when the data cannot fix it, else None."""

    value: float
    stderr: float | None = None
    undetermined: str | None = None


@dataclass(frozen=True, kw_only=True)
class RecoveredArray:
    """Numbers that belong together, as nested lists. ``stderr``: of every number, None where the data do not fix it, or
    the largest of all. ``undetermined`` says how many the data do not fix."""

    value: list[Any]
    stderr: float | list[Any] | None = None
    undetermined: str | None = None


@dataclass(frozen=True, kw_only=True)
class Factor:
    name: FactorName
    of: tuple[str, ...] = ()  # channels
    matrix: list[Any] | None = None
    blocks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Term:
    """``sign`` times the coefficient (None: 1) times the product of the factors. ``name`` is that of the coefficient,
    one of its own for every term of a layer, the same in all layers."""

    name: str
    factors: tuple[Factor, ...] = field(metadata={"table": False})
    coefficient: RecoveredCoefficient | RecoveredArray | None = None
    sign: int = 1

    @property
    def number(self) -> float | None:
        """The coefficient, where it is one number."""
        return self.coefficient.value if isinstance(self.coefficient, RecoveredCoefficient) else None

    @property
    def array(self) -> list[Any] | None:
        return self.coefficient.value if isinstance(self.coefficient, RecoveredArray) else None

    @property
    def stderr(self) -> float | None:
        """Of a number, or the largest of an array."""
        errors = _numbers([None if self.coefficient is None else self.coefficient.stderr])
        return max(errors, default=None)

    @property
    def undetermined(self) -> str | None:
        return None if self.coefficient is None else self.coefficient.undetermined

    @property
    def reads_array(self) -> bool:
        """Is the coefficient one of the factors?"""
        return any(factor.name in ("coefficient", "products") for factor in self.factors)


def _numbers(values: list[Any]) -> list[float]:
    flat = [_numbers(value) if isinstance(value, list) else [value] for value in values]
    return [value for row in flat for value in row if value is not None]


@dataclass(frozen=True, kw_only=True)
class Update:
    """``channel`` is the one that moves, None for all of them at once; ``kept``: is the token itself added?"""

    channel: str | None
    terms: tuple[Term, ...]
    kept: bool = True


def _moment(to: str, by: str) -> tuple[str, tuple[Factor, ...]]:
    return to, (Factor(name="moment", of=(to, by)), Factor(name="token", of=(by,)))


def _trace(to: str, of: str) -> tuple[str, tuple[Factor, ...]]:
    return to, (Factor(name="trace", of=(of, of)), Factor(name="token", of=(to,)))


# The channel that moves and the factors, for tokens (x, y).
OMEGAS: Mapping[str, tuple[str, tuple[Factor, ...]]] = {
    "xx": _moment("x", "x"), "xy": _moment("x", "y"), "x:xx": _trace("x", "x"), "x:yy": _trace("x", "y"),
    "yx": _moment("y", "x"), "yy": _moment("y", "y"), "y:xx": _trace("y", "x"), "y:yy": _trace("y", "y"),
}  # fmt: skip


def omega_terms(
    coefficients: Mapping[str, RecoveredCoefficient],
    machines: tuple[tuple[int, ...], ...] = (),
    read: Factor | None = None,
    written: Factor | None = None,
) -> dict[str, list[Term]]:
    """The terms of every channel, of coefficients by name. ``machines``: Sigma has the entries within them alone.
    ``read`` and ``written``: projections of what a layer sees of x, and changes."""
    terms: dict[str, list[Term]] = {"x": [], "y": []}
    for name in (name for name in OMEGAS if name in coefficients):
        channel, factors = OMEGAS[name]
        if machines and name == "xx":
            factors = (Factor(name="blocks", of=("x", "x"), blocks=machines), *factors[1:])
        if read is not None and name in ("xx", "yx"):
            factors = (*factors[:1], read, *factors[1:])
            factors = (written or read, *factors) if name == "xx" else factors
        terms[channel].append(Term(name=name, factors=factors, coefficient=coefficients[name]))
    return terms


def preconditioned(
    to: str,
    by: str,
    matrix: list[Any],
    stderr: list[Any] | None = None,
    name: str = "Omega",
    sign: int = 1,
    first: bool = False,
) -> Term:
    """M_to,by times the matrix times channel ``by``; the matrix ``first`` of the three or second."""
    missing = sum(error is None for row in stderr or [] for error in row)
    why = f"the prompts do not determine {missing} of its numbers" if missing else None
    pair = (Factor(name="moment", of=(to, by)), Factor(name="coefficient"))
    return Term(
        name=name,
        factors=(*(pair[::-1] if first else pair), Factor(name="token", of=(by,))),
        coefficient=RecoveredArray(value=matrix, stderr=stderr, undetermined=why),
        sign=sign,
    )


def moved(terms: Mapping[str, Sequence[Term]], kept: bool) -> tuple[Update, ...]:
    """The updates of one layer; a channel that stays as it is has none."""
    return tuple(Update(channel=c, terms=tuple(t), kept=kept) for c, t in terms.items() if t or not kept)


def shape(layers: Iterable[Sequence[Update]]) -> tuple[Update, ...]:
    """What any of the layers does: of every channel the terms that occur, each as it is where it occurs first."""
    updates: dict[str | None, Update] = {}
    for update in (update for layer in layers for update in layer):
        union = updates.setdefault(update.channel, replace(update, terms=()))
        names = {term.name for term in union.terms}
        more = tuple(term for term in update.terms if term.name not in names)
        updates[update.channel] = replace(union, terms=(*union.terms, *more))
    return tuple(updates.values())
