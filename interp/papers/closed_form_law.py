"""How exact the construction is: its error against its scale parameters, and a law fitted to it.

    error^2 = (a / K)^2 + (b / r^2)^2 + (c / G)^2 + (d r / (K G))^2

a: the first LayerNorm is linear to first order in x / K only; b: the numerator has a share of the second standard
deviation, of second order in yhat / r; c and d: the old token beside what is added to it, in the denominator and in the
numerator. The four are fitted to the logarithm of the error on a grid of scales, and scored on points left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import curve_fit

from interp.models.closed_form import closed_form, leverage_corrected
from interp.models.specification import Keys
from interp.models.tasks import SimplePrompts, SimpleRegression
from interp.models.token_pass import predict
from interp.models.transformer import LinearTransformer

__all__ = ["ConstructionError", "Law", "LawPoint", "construction_errors", "fit_law", "law_errors", "law_points"]

TERMS = ("1/K", "1/r^2", "1/G", "r/(K G)")
GRID = {"K": (10.0, 30.0, 100.0, 1e3, 1e4), "r": (10.0, 30.0, 100.0, 1e3, 1e4), "G/r": (1.0, 10.0, 100.0, 1e4, 1e6)}
LARGE = 0.1  # errors beyond which no expansion in small quantities holds; such points are measured, not fitted
PROMPTS = 2000


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    K: float
    r: float
    G: float
    error: float  # root mean square, relative to the root mean square of the closed form


@dataclass(frozen=True, kw_only=True)
class Law:
    """``coefficients`` (a, b, c, d) with standard errors; ``spread``: root mean square of log(error / law) on the half
    of the points left out of a fit to the other half; ``worst``: its largest size, as a factor."""

    keys: str
    coefficients: tuple[float, ...]
    stderr: tuple[float, ...]
    points: int
    spread: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class ConstructionError:
    """The error of one construction at its default scales, with its standard error over prompts."""

    name: str
    context: int
    against: str  # "least-squares" or "shrunken"
    error: float
    stderr: float


def _relative(model: LinearTransformer, drawn: SimplePrompts, against: str) -> tuple[float, float]:
    truth = drawn.least_squares()
    value = truth.prediction if against == "least-squares" else truth.shrunken
    squares = (predict(model, *drawn.inputs(model.spec))[:, 0, 0] - value).square() / value.square().mean()
    mean, spread = float(squares.mean()), float(squares.std()) / len(squares) ** 0.5
    return mean**0.5, 0.5 * spread / mean**0.5 if mean > 0 else 0.0


def construction_errors(contexts: Iterable[int] = (10, 20, 50, 200), seed: int = 0) -> tuple[ConstructionError, ...]:
    """Every construction at its default scales, on ``PROMPTS`` prompts, by the number of examples."""
    out = []
    for context in contexts:
        task = SimpleRegression(context=context)
        drawn = task.sample(PROMPTS, seed)
        for name, model, against in (
            ("context", closed_form(task), "least-squares"),
            ("all", closed_form(task, "all"), "shrunken"),
            ("all", closed_form(task, "all"), "least-squares"),
            ("all, leverage corrected", leverage_corrected(task), "least-squares"),
            ("context, outer skip", closed_form(task, placement="before-skip"), "least-squares"),
        ):
            error, stderr = _relative(model, drawn, against)
            out.append(ConstructionError(name=name, context=context, against=against, error=error, stderr=stderr))
    return tuple(out)


def law_points(keys: Keys, context: int = 20, seed: int = 0) -> tuple[LawPoint, ...]:
    """The error on a grid of scales, against the closed form of these keys."""
    task = SimpleRegression(context=context)
    drawn = task.sample(PROMPTS, seed)
    against = "least-squares" if keys == "context" else "shrunken"
    return tuple(
        LawPoint(K=K, r=r, G=g * r, error=_relative(closed_form(task, keys, K=K, r=r, G=g * r), drawn, against)[0])
        for K, r, g in itertools.product(*GRID.values())
    )


def _terms(points: Sequence[LawPoint]) -> Float[np.ndarray, "point 4"]:
    return np.array([[1 / p.K, 1 / p.r**2, 1 / p.G, p.r / (p.K * p.G)] for p in points])


def law_errors(coefficients: Sequence[float], points: Sequence[LawPoint]) -> list[float]:
    """The error by the law."""
    return np.sqrt(((_terms(points) * np.asarray(coefficients)) ** 2).sum(1)).tolist()


def fit_law(points: Sequence[LawPoint], keys: str) -> Law:
    """Fit the law to every point below ``LARGE``, and to each half of them in turn to score it on the other."""
    kept = [p for p in points if p.error < LARGE]
    log_error, terms = np.log([p.error for p in kept]), _terms(kept)

    def law(terms: np.ndarray, *theta: float) -> np.ndarray:
        return 0.5 * np.log(((terms * np.exp(theta)) ** 2).sum(1))

    def fitted(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return curve_fit(law, terms[rows], log_error[rows], np.zeros(len(TERMS)), method="trf")

    order = np.random.default_rng(0).permutation(len(kept))
    halves = (np.sort(order[::2]), np.sort(order[1::2]))
    off = np.concatenate([law(terms[b], *fitted(a)[0]) - log_error[b] for a, b in (halves, halves[::-1])])
    theta, covariance = fitted(np.arange(len(kept)))
    coefficients = np.exp(theta)
    return Law(
        keys=keys,
        coefficients=tuple(coefficients.tolist()),
        stderr=tuple((coefficients * np.sqrt(np.diag(covariance))).tolist()),
        points=len(kept),
        spread=float(np.sqrt((off**2).mean())),
        worst=float(np.exp(np.abs(off).max())),
    )
