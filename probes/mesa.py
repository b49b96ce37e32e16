"""The published protocol of the mesa paper, so that numbers can be compared with it, beside the sound one.

Von Oswald et al., "Uncovering mesa-optimization algorithms in Transformers" (arXiv 2309.05858, methods and code):
least squares without intercept or ridge from the token e_t to the target, for every layer and position, scored on the
batch it was fitted to by

    sum over prompts and outputs of (yhat - y)^2 / (2 B),      B = 256 prompts in the paper.

For the preconditioned inputs, prompts whose target is long, |y| above the mean by two standard deviations or more, are
left out first. What is wrong with it: with D = 40 features and 256 prompts an error in sample is well below the error
on new prompts; and targets that shrink with t make the error fall whatever the layer holds, which R^2 does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import UsageError
from interp.probes.intervals import Scores, score
from interp.probes.moments import Moments
from interp.probes.ridge import cross_fit
from interp.stats.bootstrap import explained

__all__ = ["LONGEST", "MesaScores", "mesa"]

LONGEST = 2.0  # standard deviations of |y| above its mean


@dataclass(frozen=True, eq=False)
class MesaScores:
    """``published``: the loss in sample of the ``prompts`` kept, ``filtered`` prompts having been left out as outliers.
    ``unseen``: the loss of the same fit to every second of them on the others, and ``held_out`` its R^2 with interval,
    layer by layer. ``sound``: ridge on one half of all prompts, scored on the other. ``dropped`` were not finite."""

    published: Float[Tensor, " *layers"]
    unseen: Float[Tensor, " *layers"]
    held_out: list[tuple[float | None, tuple[float | None, float | None]]]
    sound: Scores
    prompts: int
    filtered: int
    dropped: int


def mesa(
    tokens: Float[Tensor, "*layers prompt D"],
    target: Float[Tensor, "prompt output"],
    group: Int[Tensor, " prompt"],
    groups: int,
    outliers: bool,
    seed: int = 0,
) -> MesaScores:
    """Both protocols on one batch at one position. ``outliers``: leave long targets out of the published one, as the
    paper does for preconditioned inputs. Raises UsageError when no prompt is left."""
    tokens, target = tokens.double(), target.double()
    moments = Moments.zeros(groups, tokens.shape[-1], target.shape[-1], tuple(tokens.shape[:-2]))
    moments.update(tokens, target, group)
    sound = score(cross_fit(moments, {"target": target.shape[-1]}).held_out, seed=seed)

    finite = tokens.isfinite().all(-1).reshape(-1, len(target)).all(0) & target.isfinite().all(-1)
    tokens, target = tokens[..., finite, :], target[finite]
    kept = torch.ones(len(target), dtype=torch.bool)
    if outliers:
        length = target.norm(dim=-1)
        deviation = length.std(correction=0)
        kept = (length - length.mean() < LONGEST * deviation) | (deviation == 0)
    if not bool(kept.any()):
        raise UsageError(f"none of {len(finite)} prompts is left after those that are not finite or too long")
    X, Y = tokens[..., kept, :], target[kept].expand(*tokens.shape[:-2], -1, -1)
    others = Y[..., 1::2, :]
    missed = _errors(X[..., ::2, :], Y[..., ::2, :], X[..., 1::2, :], others)
    spread = (others - others.mean(-2, keepdim=True)).square().sum(-1)
    return MesaScores(
        published=_errors(X, Y, X, Y).mean(-1) / 2,
        unseen=missed.mean(-1) / 2,
        held_out=[
            explained(error, size, seed) if len(error) else (None, (None, None))
            for error, size in zip(missed.flatten(0, -2), spread.flatten(0, -2), strict=True)
        ],
        sound=sound,
        prompts=int(kept.sum()),
        filtered=int((~kept).sum()),
        dropped=int((~finite).sum()),
    )


def _errors(
    X: Float[Tensor, "*layers row D"],
    Y: Float[Tensor, "*layers row output"],
    others: Float[Tensor, "*layers other D"],
    answers: Float[Tensor, "*layers other output"],
) -> Float[Tensor, "*layers other"]:
    """Squared errors on other rows of the least-squares fit to these, of least norm whatever the rank."""
    coef = torch.linalg.lstsq(X, Y, driver="gelsd").solution
    return (others @ coef - answers).square().sum(-1)
