"""What an algorithm family is, and what fitting one to a network gives.

A family is a set of algorithms with numbers to be fitted. It registers itself; the analysis fits every registered
family that applies on half of the prompts, scores it on the other half, and prints what it recovers. Nothing else has
to know it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.identify.score import EXACT, NEGLIGIBLE, TENFOLD, Score
from interp.models.skipped import Skipped
from interp.models.tasks import Prompts
from interp.results import RecoveredAlgorithm
from interp.stats.prediction_fits import fit_predictions, standard_errors

if TYPE_CHECKING:
    from interp.identify.course import CourseFit
    from interp.identify.mechanism import Mechanism
    from interp.identify.run import Run

__all__ = ["FAMILIES", "Family", "Fit", "PredictingFamily", "materially_better", "register_family"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A family fitted to a network. ``prediction`` is on the held-out prompts and ``score`` its R^2 against the
    network's; ``predict`` runs the fitted algorithm on any prompts of the task. ``failed`` names the conditions of the
    family, beside the score, that do not hold. ``theta`` is what was fitted, as the family keeps it, and ``stderr`` its
    standard errors."""

    family: Family
    parameters: int
    score: Score
    prediction: Float[Tensor, "prompt output"]
    predict: Callable[[Any], Float[Tensor, "prompt output"]]
    theta: Any = None
    stderr: Any = None
    failed: tuple[str, ...] = ()
    algorithm: str = ""  # what the verdict calls it; empty: as the family says
    also: Mapping[str, tuple[str, Callable[[Any], Tensor]]] = field(default_factory=dict)  # other predictors, labelled

    @property
    def recognized(self) -> bool:
        return self.score.recognized and not self.failed

    @property
    def named(self) -> str:
        return self.algorithm or self.family.algorithm or self.family.title


class Family(ABC):
    """One family. ``contains``: names of the families that are special cases of it; ``worth``: the gain in fidelity
    over a smaller one that it takes to be preferred."""

    name: str
    label: str = ""  # what tables call it, where that is not its name
    algorithm: str = ""  # what the verdict calls it, where that is not its title
    formula: str = ""  # one layer, for people
    contains: frozenset[str] = frozenset()
    worth: float = 0.005
    tied: bool = False  # one set of numbers for all layers
    turn: int = 100  # families are tried in this order, then as they were registered

    @property
    def title(self) -> str:
        return self.label or self.name

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        """What a reader of the verdict should know beside it, in a sentence; ``fits`` are those of all families."""
        return ""

    @abstractmethod
    def applies(self, run: Run) -> Skipped | None:
        """Why the family is not tried on this network; None when it is."""

    @abstractmethod
    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        """Fitted on ``run.network.fitted`` and scored on ``held_out``. ``fits`` are those of families registered
        before."""

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        """Whether this family's fit is to be preferred to a smaller one's; ``end`` as of ``Score.gain``."""
        return materially_better(own, other, end)

    def preferred(self, own: Fit, other: Fit) -> str:
        """Why this family's fit is preferred to the other."""
        return f"{self.title} leaves {own.score.unexplained:.2g} of the variance, this {other.score.unexplained:.2g}"

    def refine(self, fit: Fit, run: Run) -> Fit:
        """The chosen fit, with what is looked at only once it is chosen."""
        return fit

    level: Literal["layer-by-layer", "as-a-whole"] = "as-a-whole"  # what a fit and its conditions alone say
    ascending: str = ""  # the family that has the function of this one where its steps do not all descend

    def course(self, fit: Fit, run: Run) -> CourseFit | None:
        """The family fitted to where the network stands after every layer; None where that is not known."""
        return None

    def mechanism(self, fit: Fit, run: Run) -> Mechanism | None:
        """The family's layers in the network's place; None where that is not known."""
        return None

    def beyond(self, fit: Fit, course: CourseFit, smaller: Fit, run: Run) -> bool:
        """Whether the network surely has a coefficient of this family that ``smaller`` lacks, or, by its weights,
        different ones where ``smaller`` has the same in all layers."""
        return False

    def descends(self, fit: Fit, run: Run, end: int = 0) -> bool:
        """Whether the steps of the fitted algorithm descend, where the family's name says so; ``end``: whether a doubt
        speaks for it (1) or against it (-1)."""
        return True

    def following(self, fit: Fit, course: CourseFit, run: Run) -> Fit:
        """The fit with the numbers of its course."""
        return fit

    @abstractmethod
    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        """The fitted algorithm, complete enough to be run and printed."""


class PredictingFamily(Family):
    """A family that says no more than what it predicts: fitted by least squares on the network's predictions."""

    @abstractmethod
    def starts(self, run: Run) -> Sequence[Float[Tensor, " parameter"]]:
        """Where fits begin; the best one is kept."""

    @abstractmethod
    def predict(self, theta: Float[Tensor, " parameter"], prompts: Prompts) -> Float[Tensor, "prompt output"]:
        """Differentiable in ``theta``."""

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        fitted, held_out = run.network.fitted, run.network.held_out
        theta = fit_predictions(lambda t: self.predict(t, fitted.drawn), fitted.prediction, self.starts(run))
        stderr = standard_errors(lambda t: self.predict(t, fitted.drawn), theta, fitted.prediction)
        prediction, judged = self.predict(theta, held_out.drawn), run.network.judged
        return Fit(
            family=self,
            parameters=len(theta),
            score=judged.score(self.predict(theta, judged.drawn), run.seeds.intervals),
            prediction=prediction,
            predict=lambda prompts: self.predict(theta, prompts),
            theta=theta,
            stderr=stderr,
        )


FAMILIES: dict[str, Family] = {}


def register_family(family: Family) -> Family:
    """Make a family known by its name. Raises UsageError when the name is taken.

    >>> import torch
    >>> from interp import identify, register_family
    >>> from interp.identify.family import PredictingFamily
    >>> class Average(PredictingFamily):
    ...     name = "average"
    ...     formula = "f = theta mean y"
    ...     def applies(self, run):
    ...         return None
    ...     def starts(self, run):
    ...         return [torch.ones(1, dtype=torch.float64)]
    ...     def predict(self, theta, prompts):  # (parameter,) and prompts -> (prompt, output)
    ...         return theta * prompts.y.mean(1, keepdim=True)
    ...     def recovered(self, fit, run):
    ...         raise NotImplementedError("terms of an Update, where it is chosen")
    >>> family = register_family(Average())
    >>> [(f.name, f.chosen) for f in identify("zoo:gdpp-l4-u5", prompts=64).families if f.name == "average"]
    [('average', False)]
    """
    if FAMILIES.get(family.name, family).__class__ is not family.__class__:
        raise UsageError(f"a family of the name {family.name!r} is registered already; give it another")
    FAMILIES[family.name] = family
    return family


def materially_better(larger: Fit, smaller: Fit, end: int = 0) -> bool:
    """Whether ``larger`` explains materially more: exactly what the smaller does not; by more than its worth; or surely
    with ten times less left over: a few prompts that outweigh the others must not decide between two good accounts. If
    it does not contain the smaller, by more than its worth and with ten times less."""
    left, leaves = smaller.score.unexplained, larger.score.unexplained
    if leaves < EXACT and left > NEGLIGIBLE:
        return True
    worthy = larger.score.gain(smaller.score, end) > larger.family.worth
    if smaller.family.name not in larger.family.contains:
        return surely_less(larger.score, smaller.score, TENFOLD) and worthy
    return (left > NEGLIGIBLE and surely_less(larger.score, smaller.score, TENFOLD)) or worthy


def surely_less(larger: Score, smaller: Score, times: float) -> bool:
    """Whether the first leaves so many times less than the second, at the nearer ends of their intervals."""
    most, least = larger.interval[0], smaller.interval[1]
    return most is not None and least is not None and (1.0 - most) * times < 1.0 - least
