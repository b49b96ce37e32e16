"""Which family explains the network: fit each on one half of the prompts, score it on the other.

Fidelity is the held-out R^2 of a family's predictions against the network's. The smallest family is preferred unless a
larger one that contains it explains materially more than it. All tolerances are the named constants below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.gauge import LiveCoordinates, project
from interp.algebra.structure import SketchMap, find_machines, find_sketch
from interp.algebra.unrolling import label_indices
from interp.families.omegas import FAMILIES, STRUCTURED, BasisFamily, Family, PreconditionedGD, SketchedFamily
from interp.identify.estimates import (
    Estimate,
    Parametrisation,
    Prompts,
    Sensitivities,
    bounded_weights,
    output_estimate,
    predict,
    refit,
)
from interp.models.gram import HeadLayers
from interp.models.specification import ModelSpec
from interp.stats.bootstrap import r_squared

__all__ = ["Candidate", "Score", "bootstrap_fidelity", "choose", "fit_families"]

RECOGNIZED = 0.95  # fidelity from which a family is said to explain the network …
RECOGNIZED_LOWER = 0.90  # … provided the lower end of its interval reaches this
NEGLIGIBLE = 1e-6  # share of the variance below which a smaller family needs no further term
SAID = 0.001  # of the variance: a smaller gain is said to be none
TENFOLD = 10.0  # a larger family that leaves this many times less is the better account even of a small remainder
EXACT = 1e-12  # share of the variance that rounding may leave: the network is the family
ROWS_PER_PARAMETER = 4  # fewest fitted rows per parameter for a family to be tried


@dataclass(frozen=True, kw_only=True)
class Score:
    """Fidelity on held-out prompts with a 95 % bootstrap interval over prompts. None when the network is constant."""

    fidelity: float | None
    interval: tuple[float | None, float | None]

    @property
    def unexplained(self) -> float:
        return float("inf") if self.fidelity is None else 1.0 - self.fidelity

    @property
    def recognized(self) -> bool:
        lower = self.interval[0]
        return (
            self.fidelity is not None
            and lower is not None
            and self.fidelity >= RECOGNIZED
            and lower >= RECOGNIZED_LOWER
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A fitted and scored family; ``skipped`` says why when it was not tried."""

    family: Family
    parametrisation: Parametrisation | None
    output: Estimate | None
    fit: Estimate | None
    prediction: Float[Tensor, "prompt output"] | None  # on the held-out prompts
    score: Score
    skipped: str | None = None

    @property
    def parameters(self) -> int:
        """Numbers that the fit could move, and those that say which subspaces a sketch reads."""
        if self.parametrisation is None:
            return 0
        structure = self.parametrisation.sketch.numbers if isinstance(self.parametrisation, SketchedFamily) else 0
        return sum(self.parametrisation.sizes) + structure


def bootstrap_fidelity(
    prediction: Float[Tensor, "prompt output"],
    reference: Float[Tensor, "prompt output"],
    seed: int,
    weight: Float[Tensor, " prompt"] | None = None,
) -> Score:
    """The R^2 of ``prediction`` for ``reference`` over prompts (see ``interp.stats.bootstrap.r_squared``)."""
    fidelity, interval = r_squared(prediction, reference, weight, seed=seed)
    return Score(fidelity=fidelity, interval=interval)


def fit_families(
    network: HeadLayers,
    spec: ModelSpec,
    live: LiveCoordinates,
    fitted: Prompts,
    sensed: Sensitivities,
    held_out: Prompts,
    reference: Float[Tensor, "prompt output"],
    weight: Float[Tensor, " prompt"],
    seed: int,
    structured: bool = False,
) -> tuple[Candidate, ...]:
    """Fit every family on ``fitted`` (with the network's sensitivities there), score it on ``held_out``, where the
    network predicts ``reference`` and prompts count by ``weight``. In fits, too, no prompt weighs more than
    ``bounded_weights`` lets it. ``structured``: also those in which a layer sees part of x at a time."""
    out: list[Candidate] = []
    fit_weight = bounded_weights(network, sensed)
    for entry in FAMILIES + (STRUCTURED if structured else ()):
        parametrisation, skipped = _parametrise(entry, network, spec, live, fitted, out)
        if parametrisation is None:
            out.append(
                Candidate(
                    family=entry, parametrisation=None, output=None, fit=None, prediction=None,
                    score=Score(fidelity=None, interval=(None, None)), skipped=skipped,
                )
            )  # fmt: skip
            continue
        output = output_estimate(parametrisation, network, sensed)
        starts = [output.theta]
        if isinstance(parametrisation, BasisFamily):
            starts.append(_weight_start(parametrisation, network, spec, live))
        fit = refit(parametrisation, fitted, sensed.prediction, starts, fit_weight)
        prediction = predict(parametrisation.build(fit.theta), held_out)
        score = bootstrap_fidelity(prediction, reference, seed, weight)
        out.append(
            Candidate(
                family=entry,
                parametrisation=parametrisation,
                output=output,
                fit=fit,
                prediction=prediction,
                score=score,
            )
        )
    return tuple(out)


def _parametrise(
    entry: Family, network: HeadLayers, spec: ModelSpec, live: LiveCoordinates, fitted: Prompts, done: list[Candidate]
) -> tuple[Parametrisation | None, str | None]:
    if entry.name == "gd++ (sketched)":
        sketch = find_sketch(network, spec)
        if isinstance(sketch, str):
            return None, f"skipped, because {sketch}"
        return SketchedFamily.of(sketch, spec, live, network.scale), None
    if entry.name == "gd++ (machines)":
        machines = find_machines(network, spec)
        if isinstance(machines, str):
            return None, f"skipped, because {machines}"
        return BasisFamily.on_machines(machines, spec, live, network.scale), None
    if entry.name != "preconditioned-gd":
        return BasisFamily.named(entry.name, spec, live, network.scale), None
    inputs, label = label_indices(spec)
    if len(label) != 1:
        return None, "skipped, because the label is a vector"
    if any(c.family.name == "gd" and c.score.unexplained < EXACT for c in done):
        return None, "skipped, because gd is already exact"
    needed = ROWS_PER_PARAMETER * network.layers * len(inputs) ** 2
    if needed > fitted.count * fitted.outputs:
        return (
            None,
            f"skipped, because its {needed // ROWS_PER_PARAMETER} numbers need {2 * needed} prompts (--prompts)",
        )
    return PreconditionedGD(inputs, label[0], spec.width, network.layers, network.scale, network.residual), None


def _weight_start(
    parametrisation: BasisFamily, network: HeadLayers, spec: ModelSpec, live: LiveCoordinates
) -> Float[Tensor, " parameter"]:
    if isinstance(parametrisation, SketchedFamily):
        table = [
            [m.by_weights(network, layer, spec) for m in maps if isinstance(m, SketchMap)]
            for layer, maps in enumerate(parametrisation.by_layer)
        ]
        return parametrisation.flatten(torch.tensor(table, dtype=torch.float64))
    rows = [
        project(network.P[layer], network.Q[layer], parametrisation.maps, live, layer).coefficients
        for layer in range(network.layers)
    ]
    return parametrisation.flatten(torch.stack(rows))


def choose(candidates: tuple[Candidate, ...]) -> tuple[Candidate | None, Mapping[str, str]]:
    """Climb the lattice from the smallest recognized family, and say of every family why it is or is not the one.

    A step goes to the smallest family that explains materially more than the present one, so each family on the way
    has earned its numbers against the one before, and none that could be climbed to improves on the last.
    """
    ordered = sorted(candidates, key=lambda c: c.parameters)
    path = [c for c in ordered if c.score.recognized][:1]
    while path and (better := next((c for c in ordered if _improves(c, path[-1])), None)) is not None:
        path.append(better)
    chosen = path[-1] if path else None
    return chosen, {c.family.name: _why(c, path) for c in candidates}


def _why(candidate: Candidate, path: list[Candidate]) -> str:
    """Why a candidate is the last of the path, or is not."""
    if candidate.skipped is not None:
        return candidate.skipped
    if not candidate.score.recognized:
        return _too_low(candidate.score)
    if candidate is path[-1]:
        return "the smallest family that explains the network"
    if candidate in path:
        better = path[path.index(candidate) + 1]
        if _cannot_read_all(better):
            return f"here layers read all of x, which those of the network cannot ({better.family.name})"
        return (
            f"{better.family.name} leaves {better.score.unexplained:.2g} of the variance, "
            f"this {candidate.score.unexplained:.2g}"
        )
    below = next((c for c in reversed(path) if c.family.name in candidate.family.contains), None)
    if below is not None and not _improves(candidate, below):
        gain = below.score.unexplained - candidate.score.unexplained
        if gain < SAID:
            return f"explains materially no more than {below.family.name}, which it contains"
        return (
            f"explains {gain:.2g} of the variance more than {below.family.name}, which it contains: under "
            f"{candidate.family.worth:g} is too little for its {candidate.parameters} numbers"
        )
    return f"{path[-1].family.name} has fewer numbers"


def _cannot_read_all(candidate: Candidate) -> bool:
    return isinstance(candidate.parametrisation, SketchedFamily) and candidate.parametrisation.sketch.exact


def _too_low(score: Score) -> str:
    if score.fidelity is None:
        return "fidelity is undefined: the network's prediction is constant or not finite"
    if score.fidelity < RECOGNIZED:
        return f"fidelity below {RECOGNIZED}"
    return f"the interval of its fidelity reaches below {RECOGNIZED_LOWER}"


def _improves(larger: Candidate, smaller: Candidate) -> bool:
    """Whether ``larger`` explains materially more: exactly what the smaller does not; by more than its worth; or
    (families of a few numbers) surely with ten times less left over: a few prompts that outweigh the others must not
    decide between two good accounts. If it does not contain the smaller, by more than its worth and with ten times
    less. What a layer sees of x is read off its weights, not fitted, so it is enough that it surely explains more, or
    that the smaller has layers read all of x, which these cannot."""
    left, leaves = smaller.score.unexplained, larger.score.unexplained
    if not larger.score.recognized or larger.parameters < smaller.parameters:
        return False
    if leaves < EXACT and left > NEGLIGIBLE:
        return True
    if left > NEGLIGIBLE and _cannot_read_all(larger) and not _cannot_read_all(smaller):
        return True
    most, least = larger.score.interval[0], smaller.score.interval[1]
    tenfold = most is not None and least is not None and (1.0 - most) * TENFOLD < 1.0 - least
    surely = most is not None and least is not None and most > least
    worthy = left - leaves > larger.family.worth
    if smaller.family.name not in larger.family.contains:
        return tenfold and worthy
    if larger.family in STRUCTURED and surely and left > NEGLIGIBLE:
        return True
    few = larger.family.name != "preconditioned-gd"
    return (few and left > NEGLIGIBLE and tenfold) or worthy
