"""The law that makes gd++ EAGLE: steps that follow the norm of A from layer to layer.

    omega_xx = -eta / |A_l|_2^2 ,      omega_yx = -gamma / |A_l|_2^2                (times the scale)

|A_l| is one number per layer: the largest over a batch of 1024 prompts, as in Lutz et al., arXiv 2509.19702, appendix
B.5, or the mean over prompts, whichever fits. A sketched layer sees |A S|, a machine |A^mu| (the largest counts); the
whole |A| is tried as well. The last omega_xx is never read, and is left out, and so is what the data do not determine.

The largest of a batch has a heavy tail: from batch to batch it varies by a fifth, more in late layers, and a network
has learned from its own batches. So the norm of a layer is the median over fresh batches, and ``scatter`` is by how
much the logarithm of one batch, beside those of its other layers, is off it (from the median absolute deviation).

The law holds when every layer is within a factor ``WITHIN`` of the mean, or ``ERRORS`` standard errors; and when what
it leaves of the sum of squares of the logarithms of the steps over the layers is no more than ``LEFT`` of it, beyond
``SCATTERED`` times what the scatter alone would leave on average. Where the norms hardly change over the layers, as
those of a few sketched layers, a law may hold that leaves more than ``MOST`` of it, if all layers are within that
factor, however large their errors; ``why`` then says that equal steps would fit as well. Steps that are exactly equal
are no law, whatever the norms do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import stdtrit
from torch import Tensor

from interp.algebra.linear_prompts import DIVERGED, gram_prompts
from interp.algebra.unrolling import label_indices
from interp.families.parametrisations import BasisParametrisation, SketchedParametrisation
from interp.models.gram import HeadLayers, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import Task
from interp.results.completion import LawPoint, ScalingLaw
from interp.stats.least_squares import Estimate

__all__ = ["Norms", "batch_norms", "law_sentence", "scaling_laws"]

WITHIN = 1.5  # most that a layer may be off the mean, as a factor
LEFT = 0.2  # share of the steps' sum of squares that the law may leave …
SCATTERED = 3.0  # … beyond this many times the mean of what scatter leaves; the largest of a batch has a heavy tail
MOST = 0.5  # share from which the law says less about the steps than it leaves open
ERRORS = 3.0  # standard errors that a layer may be off instead
CONSTANT = 1e-6  # sum of squares of those logarithms below which the steps are all the same
BATCH, BATCHES = 1024, 16
NORMAL_MAD = 1.4826  # standard deviation of a normal law over its median absolute deviation


@dataclass(frozen=True, eq=False)
class Norms:
    """|A_l|_2^2 by one statistic, in every batch."""

    statistic: str
    square: Float[Tensor, "layer batch"]

    @property
    def typical(self) -> Float[Tensor, " layer"]:
        return self.square.quantile(0.5, dim=1)  # of an even number, the mean of the middle two

    def scatter(self, layers: Sequence[int]) -> Float[Tensor, " chosen"]:
        """Of log |A_l|^2 of one batch: its share that is not common to all of ``layers``."""
        logs = self.square[list(layers)].clamp_min(1e-300).log()
        apart = logs - logs.mean(0)
        middle = apart.quantile(0.5, dim=1, keepdim=True)
        return NORMAL_MAD * (apart - middle).abs().quantile(0.5, dim=1)


def batch_norms(
    network: HeadLayers, task: Task, spec: ModelSpec, family: BasisParametrisation, seed: int
) -> tuple[Norms, ...]:
    """Every statistic, of ``BATCHES`` batches of fresh prompts. Prompts on which the network diverges are left out."""
    views: dict[str, BasisParametrisation | None] = {"": family}
    if family.machine_masks or isinstance(family, SketchedParametrisation):
        views[" whole"] = None
    inputs, _ = label_indices(spec)
    found: dict[str, list[Tensor]] = {}
    for own in np.random.SeedSequence(seed).generate_state(BATCHES).tolist():
        prompts = gram_prompts(task.sample(min(BATCH, task.most_prompts), own), spec)
        grams = forward(network, prompts.gram, prompts.query).grams
        kept = torch.stack([(gram.abs().flatten(1).amax(1) < DIVERGED) for gram in grams]).all(0)
        if not bool(kept.any()):
            continue
        blocks = [gram[kept][:, inputs][:, :, inputs] for gram in grams]
        for name, view in views.items():
            square = torch.stack(
                [torch.linalg.eigvalsh(_seen(view, i, block))[:, -1] for i, block in enumerate(blocks)]
            )
            found.setdefault(f"largest{name}", []).append(square.amax(1))
            found.setdefault(f"mean{name}", []).append(square.mean(1))
    return tuple(Norms(name, torch.stack(rows, 1)) for name, rows in found.items())


def _seen(family: BasisParametrisation | None, layer: int, block: Tensor) -> Tensor:
    """What a layer of a family sees of A^T A; None: all of it."""
    if isinstance(family, SketchedParametrisation):
        block = family.sketch.reads[layer] @ block @ family.sketch.reads[layer]
    for mask in () if family is None else family.machine_masks:
        block = block * mask  # the blocks of the machines: the largest eigenvalue of all is that of one of them
    return block


def scaling_laws(
    family: BasisParametrisation, fit: Estimate, network: HeadLayers, task: Task, spec: ModelSpec, seed: int
) -> tuple[ScalingLaw, ...]:
    """The law by every statistic, for a fitted form of gd++."""
    values, errors = (network.scale * family.table(t) for t in (fit.theta, fit.stderr))
    fixed = torch.tensor(fit.determined) & (fit.stderr < fit.theta.abs())  # False for NaN too
    known = family.table(fixed.double()) > 0
    measured = batch_norms(network, task, spec, family, seed)
    return tuple(_law(norms, values, errors, known, family) for norms in measured)


def law_sentence(law: ScalingLaw) -> str:
    """Whether the steps are those of EAGLE, and how far they are off."""
    if law.holds:
        eta, gamma = (
            f"{value:.2g} [{ci[0]:.2g}, {ci[1]:.2g}]"
            for value, ci in ((law.eta, law.eta_ci), (law.gamma, law.gamma_ci))
        )
        return (
            f"Its steps follow the norm of A from layer to layer, ω_xx = -η/|A|² and ω_yx = -γ/|A|² with η = {eta} and "
            f"γ = {gamma} ({law.statistic} |A|²): {law.why}."
        )
    explained = law.explained or 0.0
    much = f", though the norm explains {100 * explained:.0f} % of how they change" if explained > 0.5 else ""
    return f"It is not EAGLE, whose steps follow the norm of A from layer to layer: {law.why}{much}."


@dataclass(frozen=True, eq=False)
class _Steps:
    """The known coefficients of one name beside the norms of their layers."""

    name: str
    layers: list[int]
    norm: np.ndarray  # |A|^2
    factor: np.ndarray  # eta or gamma
    error: np.ndarray  # of the logarithm of ``factor``: the scatter of the norm, and the coefficient's own

    @property
    def labels(self) -> list[str]:
        return [f"ω_{self.name} of layer {layer}" for layer in self.layers]

    def at(self, layer: int) -> tuple[float | None, tuple[float | None, float | None]]:
        """The factor with its interval."""
        if layer not in self.layers:
            return None, (None, None)
        k = self.layers.index(layer)
        reach = math.exp(1.96 * self.error[k])
        low, high = sorted((float(self.factor[k] / reach), float(self.factor[k] * reach)))
        return float(self.factor[k]), (low, high)

    def mean(self) -> tuple[float, tuple[float, float]]:
        """The geometric mean of two or more layers with its 95 % interval: Student's, from how far they are off it, or
        what the errors of the layers make of it, whichever is wider."""
        logs, n = np.log(self.factor), len(self.layers)
        spread = stdtrit(n - 1, 0.975) * logs.std(ddof=1) / n**0.5
        reach = max(float(spread), 1.96 * float(np.linalg.norm(self.error)) / n)
        middle = float(logs.mean())
        return math.exp(middle), (math.exp(middle - reach), math.exp(middle + reach))


def _law(
    norms: Norms,
    values: Float[Tensor, "layer map"],
    errors: Float[Tensor, "layer map"],
    known: Bool[Tensor, "layer map"],
    family: BasisParametrisation,
) -> ScalingLaw:
    names, typical = [m.name for m in family.maps], norms.typical
    series = []
    for name in ("xx", "yx"):
        k = names.index(name)
        alive = torch.nonzero(known[:, k]).flatten().tolist()
        value, norm = values[alive, k], typical[alive]
        error = (errors[alive, k] / value).square()
        error = (norms.scatter(alive).square() + error).sqrt() if alive else error
        series.append(_Steps(name, alive, norm.numpy(), (-value * norm).numpy(), error.numpy()))
    points = []
    for layer in range(len(values)):
        (eta, eta_ci), (gamma, gamma_ci) = (steps.at(layer) for steps in series)
        norm = float(typical[layer])
        points.append(LawPoint(layer=layer, norm=norm, eta=eta, eta_ci=eta_ci, gamma=gamma, gamma_ci=gamma_ci))
    return _judged(norms.statistic, tuple(points), series)


def _judged(statistic: str, points: tuple[LawPoint, ...], series: Sequence[_Steps]) -> ScalingLaw:
    def law(why: str, holds: bool = False, **figures: Any) -> ScalingLaw:
        unknown = dict.fromkeys(("eta", "gamma", "spread", "explained", "slope", "slope_stderr"))
        fields: dict[str, Any] = {**unknown, "eta_ci": (None, None), "gamma_ci": (None, None), **figures}
        return ScalingLaw(statistic=statistic, points=points, holds=holds, why=why, **fields)

    if min(len(steps.layers) for steps in series) < 2:
        return law("it takes two known steps that condition A, and two that write D, to tell a law from a constant")
    labels = [label for steps in series for label in steps.labels]
    factor, norm, errors = (np.concatenate([getattr(s, name) for s in series]) for name in ("factor", "norm", "error"))
    wrong = np.flatnonzero(~((factor > 0) & (norm > 0)))
    if len(wrong):
        return law(f"{labels[wrong[0]]} is a step in the wrong direction")
    group = np.repeat([0, 1], [len(steps.layers) for steps in series])
    off, raw, inverse = (
        values - np.array([values[group == 0].mean(), values[group == 1].mean()])[group]
        for values in (np.log(factor), np.log(factor / norm), -np.log(norm))
    )
    beyond = np.abs(off) - np.maximum(math.log(WITHIN), ERRORS * errors)
    worst, spread = int(beyond.argmax()), math.exp(float(np.abs(off).max()))
    total, left, across = (float(values @ values) for values in (raw, off, inverse))
    slope, error, free = None, None, len(raw) - 3  # two means and the slope
    if across > CONSTANT:
        slope = float(raw @ inverse) / across
        rest = raw - slope * inverse
        error = (float(rest @ rest) / free / across) ** 0.5 if free > 0 else None
    holds = False
    if total <= CONSTANT:
        why = "all layers take the same steps"
    elif beyond[worst] > 0:
        why = f"{labels[worst]} is off by a factor of {math.exp(abs(off[worst])):.2f}"
    elif left > LEFT * total + SCATTERED * float(errors @ errors) or (left > MOST * total and spread > WITHIN):
        why = f"it leaves {100 * left / total:.0f} % of how the steps change over the layers"
    else:
        holds, why = True, f"no layer is off by more than a factor of {spread:.2f}"
        if left > MOST * total:
            why += ", but |A| changes so little that equal steps would fit as well"
    (eta, eta_ci), (gamma, gamma_ci) = (steps.mean() for steps in series)
    return law(
        why, holds, eta=eta, eta_ci=eta_ci, gamma=gamma, gamma_ci=gamma_ci, spread=spread,
        explained=1.0 - left / total if total > CONSTANT else None, slope=slope, slope_stderr=error,
    )  # fmt: skip
