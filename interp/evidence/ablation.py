"""What each omega is worth: the loss without it, as the others are, and with the others fitted anew.

Zeroing alone exaggerates, because the other coefficients were trained with it: often most of the loss comes back when
they are refitted (arXiv 2402.14180 argues for omega_xy and omega_yy from theory only; these are the measurements). So
every coefficient, in all layers and in each alone, is taken out of the recovered algorithm both ways.

Refitting minimises the task's own loss, from the best of a few starts: the coefficients as they are, all of them
shrunk (a network that lost its counterweight explodes), and the constrained Gauss-Newton step away from the full set.
The loss of a deep network hangs on rare prompts with a large Gram matrix, in the fit even more than in the score, so
prompts are drawn with odds 1/2 + 1/2 |G|^2 / mean |G|^2 and weighted back. What a refit gains is a lower bound: it has
few prompts and takes few steps, and may still explode on a prompt rarer than those (the standard error then shows it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.evidence.question import with_error
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearTask
from interp.models.training.objective import adjusted_losses, descend, linearise, loss
from interp.models.training.parametrisation import Diagonal
from interp.models.training.sample import Sample
from interp.results import OmegaEffect, OmegaEffects
from interp.stats.averages import mean_with_error
from interp.stats.levenberg_marquardt import Progress, Quadratic

__all__ = ["Full", "KeptOmegas", "compensated", "heavy_sample", "omega_effects", "refitted"]

NAMES = ("xx", "xy", "yx", "yy")
Cut = tuple[tuple[str, ...], int | None]  # which omegas are taken out, and of which layer (None: of all)
POOL = 16  # prompts drawn for every one that is kept
BATCH = 128  # prompts kept at a time
SHRUNK = (1.0, 0.7, 0.5)
DAMPING = (1e-2, 1e-1)  # of the Gauss-Newton starts, relative to the diagonal
STEPS, TOLERANCE = 6, 2e-2  # of the refit: at most, and the relative gain of two steps that ends it
ROWS_PER_PARAMETER = 16  # fewest prompts per coefficient for a refit
OPERATIONS = 2.5e10  # floating point operations that the refits may take, about 4 s


class KeptOmegas(Diagonal):
    """The four omegas of every layer, those with ``kept`` = 0 held at zero."""

    def __init__(self, kept: Float[Tensor, "layer 4"], dim: int, scale: float, residual: float) -> None:
        super().__init__(dim, scale, residual, heads=2, scores=False)
        self.kept = kept

    def omegas(self, theta: Float[Tensor, "layer 4"]) -> Float[Tensor, "layer 4"]:
        return theta * self.kept

    def slopes(self, theta: Float[Tensor, "layer 4"]) -> Float[Tensor, "layer 4 4"]:
        return torch.diag_embed(self.kept)

    def without(self, names: tuple[str, ...], layer: int | None) -> KeptOmegas:
        kept = self.kept.clone()
        kept[slice(None) if layer is None else layer, [NAMES.index(name) for name in names]] = 0.0
        return KeptOmegas(kept, self.dim, self.scale, self.residual)


def heavy_sample(task: LinearTask, spec: ModelSpec, count: int, seed: int) -> Sample:
    """``count`` prompts with large Gram matrices drawn more often, weighted so that means are those of the task."""
    spec = replace(spec, tokens=(("x", task.dim), ("y", 1)))  # the order that the training objective reads
    parts, batch = [], max(1, min(BATCH, task.most_prompts // POOL))
    seeds = np.random.SeedSequence(seed).generate_state(2 * -(-count // batch)).reshape(-1, 2).tolist()
    for start, (draw, choice) in zip(range(0, count, batch), seeds, strict=True):
        size = min(batch, count - start)
        pool = task.sample(POOL * size, draw)
        energy = pool.grams(spec).gram.square().sum((-1, -2))
        odds = 0.5 + 0.5 * energy / energy.mean()
        index = torch.multinomial(odds, size, replacement=True, generator=torch.Generator().manual_seed(choice))
        drawn = pool[index]
        grams = drawn.grams(spec)
        parts.append((grams.gram, grams.query, task.oracle_weights(drawn), odds.mean() / odds[index]))
    gram, query, oracle, weight = (torch.cat(column) for column in zip(*parts, strict=True))
    variances = torch.ones(task.dim) if task.covariance is None else torch.tensor(task.covariance)
    closed = spec.attention.keys == "context"
    return Sample(gram, query, oracle, weight, variances.to(gram.dtype), spec.readout.sign, closed)


@dataclass(frozen=True, eq=False)
class Full:
    """All coefficients as recovered, with the quadratic model of the loss around them."""

    family: KeptOmegas
    table: Float[Tensor, "layer 4"]
    sample: Sample
    local: Quadratic


def refitted(full: Full, family: KeptOmegas) -> Float[Tensor, "layer 4"]:
    """The coefficients of ``family`` with the least loss that a few damped Gauss-Newton steps find."""
    starts = [*(factor * full.table * family.kept for factor in SHRUNK), *compensated(full, family)]
    before, start = min(((loss(family, theta, full.sample), theta) for theta in starts), key=lambda pair: pair[0])
    now = Progress(theta=start)
    while now.iteration < STEPS and not now.done:
        now = descend(family, full.sample, now, iterations=now.iteration + 2, tolerance=0.0)
        if before - now.loss < TOLERANCE * before:
            break
        before = now.loss
    return now.theta


def compensated(full: Full, family: KeptOmegas) -> Iterator[Float[Tensor, "layer 4"]]:
    """Steps of the kept coefficients that make up for the lost ones to second order of the loss: with H and b its
    (Gauss-Newton) matrix and gradient, H_kk step = -b_k + H_kl theta_l."""
    H, b, theta = full.local.curvature, full.local.gradient, full.table.flatten()
    counts = H.diagonal() > 0
    k, lost = counts & (family.kept.flatten() > 0), counts & (family.kept.flatten() == 0)
    if not bool(k.any()):
        return
    root = H.diagonal()[k].sqrt()
    scaled, right = H[k][:, k] / root / root[:, None], (H[k][:, lost] @ theta[lost] - b[k]) / root
    for damping in DAMPING:
        step = torch.linalg.solve(scaled + damping * torch.eye(len(root), dtype=root.dtype), right) / root
        moved = theta * family.kept.flatten()
        moved[k] += step
        yield moved.view_as(full.table)


def omega_effects(
    name: str,
    table: Float[Tensor, "layer 4"],
    kept: Bool[Tensor, "layer 4"],
    task: LinearTask,
    spec: ModelSpec,
    scale: float,
    prompts: int,
    seed: int,
) -> OmegaEffects:
    """Effects on the excess loss of taking omegas out of the algorithm with the coefficients ``table``.

    ``kept`` says which belong to the algorithm and have a say. Scored on ``prompts`` prompts, refitted on half as
    many others, unless that is too few for the coefficients or takes more than ``OPERATIONS``.
    """
    family = KeptOmegas(kept.to(table.dtype), task.dim, scale, float(spec.residual))
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(2)]
    score, fit = heavy_sample(task, spec, prompts, seeds[0]), heavy_sample(task, spec, prompts // 2, seeds[1])

    def excess(family: KeptOmegas, theta: Tensor) -> Float[Tensor, " prompt"]:
        return 2.0 * score.weight * adjusted_losses(family, theta, score)  # the adjusted loss is half of it

    full = Full(family, table, fit, linearise(family, table, fit))
    before = excess(family, table)
    cuts = list(_cuts(kept))
    refits, note = _allowed(fit, kept, cuts)
    best = excess(family, refitted(full, family)) if refits else None
    effects = []
    for names, layer in cuts:
        cut = family.without(names, layer)
        after = excess(cut, refitted(full, cut)) if (names, layer) in refits else None
        effects.append(
            OmegaEffect(
                **_paired("zeroed", excess(cut, table), before),
                **_paired("refitted", after, before),
                **_paired("worth", after, best),
                coefficient="+".join(names),
                layer=layer,
            )
        )
    return OmegaEffects(
        family=name,
        prompts=score.count,
        **with_error("excess", mean_with_error(before), "excess_stderr"),
        **_paired("refitted", best, before),
        effects=tuple(effects),
        note=note,
    )


def _allowed(fit: Sample, kept: Bool[Tensor, "layer 4"], cuts: list[Cut]) -> tuple[list[Cut], str | None]:
    """Which cuts are followed by a refit: all, those in all layers at once, or none; and why not all."""
    coefficients = int(kept.sum())
    if fit.count < ROWS_PER_PARAMETER * coefficients:
        return [], f"not refitted: {fit.count} prompts are too few for {coefficients} coefficients (--prompts)"
    each = (STEPS + 2) * fit.count * len(kept) * 32 * fit.gram.shape[-1] ** 3
    if each * (len(cuts) + 1) <= OPERATIONS:
        return cuts, None
    whole = [cut for cut in cuts if cut[1] is None]
    if each * (len(whole) + 1) <= OPERATIONS:
        return whole, "single layers are not refitted, because that would take too long"
    return [], "not refitted, because that would take too long"


def _cuts(kept: Bool[Tensor, "layer 4"]) -> Iterator[Cut]:
    """What is taken out: each coefficient in all layers, xy and yy together, each coefficient of each layer."""
    present = [name for name, column in zip(NAMES, kept.T, strict=True) if bool(column.any())]
    for name in present:
        yield (name,), None
    if {"xy", "yy"} <= set(present):
        yield ("xy", "yy"), None
    for layer, row in enumerate(kept.tolist()):
        for name, alive in zip(NAMES, row, strict=True):
            if alive and len(kept) > 1:
                yield (name,), layer


def _paired(name: str, after: Tensor | None, before: Tensor | None) -> dict[str, float | None]:
    gain = (None, None) if after is None or before is None else mean_with_error(after - before)
    return with_error(name, gain, f"{name}_stderr")
