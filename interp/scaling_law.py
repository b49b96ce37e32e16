"""The law that makes gd++ EAGLE: steps that follow the norm of A from layer to layer.

    omega_xx = -eta / |A_l|_2^2 ,      omega_yx = -gamma / |A_l|_2^2                (times the scale)

|A_l| is one number per layer: the largest over a batch of 1024 prompts, as in Lutz et al., arXiv 2509.19702, appendix
B.5, or the mean over prompts, whichever fits. A sketched layer sees |A S|, a machine |A^mu| (the largest counts); the
whole |A| is tried as well. The last omega_xx is never read, and is left out.

The law holds when every layer is within a factor ``WITHIN`` of the mean (or three standard errors, where the largest of
a batch is known no better), and when what it leaves of the variance of the logarithms of the steps over the layers is
at most ``LEFT`` of it, beyond what the norms' own errors explain. Equal steps are no law, whatever the norms do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from interp.families import BasisFamily, SketchedFamily
from interp.identification import Candidate
from interp.models.gram import GramTrajectory
from interp.models.specification import ModelSpec
from interp.results.completion import LawPoint, ScalingLaw
from interp.structure import MachineMap
from interp.unrolling import label_indices

__all__ = ["scaling_laws", "square_norms"]

WITHIN = 1.5  # most that a layer may be off the mean, as a factor
LEFT = 0.2  # most of the variance of the logarithms of the steps that the law may leave
ERRORS = 3.0  # standard errors of a layer's norm that it may be off instead
CONSTANT = 1e-6  # variance of those logarithms below which the steps are all the same
BATCH, DRAWS = 1024, 200


def square_norms(
    trajectory: GramTrajectory, spec: ModelSpec, candidate: Candidate, whole: bool = False
) -> Float[Tensor, "layer prompt"]:
    """|A_l|_2^2 of every prompt, as the layer of the candidate sees A, or the ``whole`` of it."""
    inputs, _ = label_indices(spec)
    family = None if whole else candidate.parametrisation
    masks = [m.mask for m in family.maps if isinstance(m, MachineMap)] if isinstance(family, BasisFamily) else []
    rows = []
    for layer, gram in enumerate(trajectory.grams):
        block = gram[:, inputs][:, :, inputs]
        if isinstance(family, SketchedFamily):
            projector = family.sketch.projectors[layer]
            block = projector @ block @ projector
        for mask in masks:
            block = block * mask  # the blocks of the machines: the largest eigenvalue of all is that of one of them
        rows.append(torch.linalg.eigvalsh(block)[:, -1])
    return torch.stack(rows)


def scaling_laws(
    candidate: Candidate, trajectory: GramTrajectory, spec: ModelSpec, scale: float, seed: int
) -> tuple[ScalingLaw, ...]:
    """The law by every statistic, for a fitted form of gd++ and the prompts of ``trajectory``."""
    family, fit = candidate.parametrisation, candidate.fit
    assert isinstance(family, BasisFamily) and fit is not None
    values, errors = (scale * family.table(t) for t in (fit.theta, fit.stderr.nan_to_num(0.0)))
    norms = {"": square_norms(trajectory, spec, candidate)}
    if candidate.family.name != "gd++":
        norms[" whole"] = square_norms(trajectory, spec, candidate, whole=True)
    generator = torch.Generator().manual_seed(seed)
    count = norms[""].shape[1]
    draws = torch.randint(count, (DRAWS, min(BATCH, count)), generator=generator)
    wobble = torch.randn(DRAWS, *values.shape, generator=generator, dtype=torch.float64)
    out = []
    for what, square in norms.items():
        sampled = square[:, draws]  # layer, draw, prompt
        for statistic, by_draw in (("largest", sampled.amax(-1)), ("mean", sampled.mean(-1))):
            out.append(_law(f"{statistic}{what}", by_draw, values, errors * wobble, family))
    return tuple(out)


def _law(
    statistic: str,
    by_draw: Float[Tensor, "layer draw"],
    values: Float[Tensor, "layer map"],
    noise: Float[Tensor, "draw layer map"],
    family: BasisFamily,
) -> ScalingLaw:
    names = [m.name for m in family.maps]
    typical = by_draw.mean(-1)
    shaken = -(values + noise) * by_draw.mT[:, :, None]  # draw, layer, map
    low, high = torch.quantile(shaken, torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
    series, columns = [], []
    for name in ("xx", "yx"):
        k = names.index(name)
        alive = [layer for layer in range(len(values)) if family.live[layer][k]]
        found = {i: (float(-values[i, k] * typical[i]), (float(low[i, k]), float(high[i, k]))) for i in alive}
        logs = by_draw[alive].clamp_min(1e-300).log()
        # What a layer's norm is uncertain by, beside the others': prompts are the same in all layers.
        error = (logs - logs.mean(0)).std(1) if len(alive) > 1 else logs.new_zeros(len(alive))
        series.append([(float(typical[i]), found[i][0], float(e)) for i, e in zip(alive, error, strict=True)])
        columns.append(found)
    unknown = (None, (None, None))
    points = []
    for layer in range(len(values)):
        (eta, eta_ci), (gamma, gamma_ci) = (column.get(layer, unknown) for column in columns)
        norm = float(typical[layer])
        points.append(LawPoint(layer=layer, norm=norm, eta=eta, eta_ci=eta_ci, gamma=gamma, gamma_ci=gamma_ci))
    return _judged(statistic, points, *series)


_Series = Sequence[tuple[float, float, float]]  # by layer: |A|^2, eta or gamma, error of log |A|^2


def _judged(statistic: str, points: Sequence[LawPoint], eta: _Series, gamma: _Series) -> ScalingLaw:
    def law(why: str, holds: bool = False, **figures: float | None) -> ScalingLaw:
        known = dict.fromkeys(("eta", "gamma", "spread", "explained", "slope", "slope_stderr")) | figures
        return ScalingLaw(statistic=statistic, points=tuple(points), holds=holds, why=why, **known)

    if min(len(eta), len(gamma)) < 2:
        return law("it takes two layers that condition A, and two that write D, to tell a law from a constant")
    if not all(value > 0 and norm > 0 for norm, value, _ in (*eta, *gamma)):
        return law("a layer takes a step in the wrong direction")
    means = [_mean([math.log(value) for _, value, _ in rows]) for rows in (eta, gamma)]
    off, allowed, steps, inverse = [], [], [], []
    for rows, mean in zip((eta, gamma), means, strict=True):
        off += [math.log(value) - mean for _, value, _ in rows]
        allowed += [max(math.log(WITHIN), ERRORS * error) for _, _, error in rows]
        raw, norm = [math.log(v / n) for n, v, _ in rows], [-math.log(n) for n, _, _ in rows]
        steps += [value - _mean(raw) for value in raw]
        inverse += [value - _mean(norm) for value in norm]
    spread = math.exp(max(abs(value) for value in off))
    total, left, across = (sum(value**2 for value in values) for values in (steps, off, inverse))
    uncertain = sum((ERRORS * error) ** 2 for _, _, error in (*eta, *gamma))
    explained = 1.0 - left / total if total > CONSTANT else None
    slope, error, free = None, None, len(steps) - 3  # two means and the slope
    if across > CONSTANT:
        slope = sum(s * n for s, n in zip(steps, inverse, strict=True)) / across
        if free > 0:
            rest = sum((s - slope * n) ** 2 for s, n in zip(steps, inverse, strict=True))
            error = (rest / free / across) ** 0.5
    holds = False
    if any(abs(value) > most for value, most in zip(off, allowed, strict=True)):
        why = f"a layer is off by a factor of {spread:.2f}"
    elif total <= CONSTANT:
        why = "all layers take the same steps"
    elif left > LEFT * total + uncertain:
        why = f"it leaves {left / total:.0%} of how the steps change over the layers"
    else:
        holds, why = True, f"no layer is off by more than a factor of {spread:.2f}"
    return law(
        why, holds, eta=math.exp(means[0]), gamma=math.exp(means[1]), spread=spread, explained=explained, slope=slope,
        slope_stderr=error,
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
