"""The last part of a search: the networks that growing has found, on larger samples.

A deep network is a polynomial of high degree. On a handful of rare prompts it can explode, and they then outweigh all
the others in the mean: one in a million can turn a loss of 0.01 into 1e26. Counted in full they lead the way and drag
a network out of its valley; not counted, they are seen by nobody but the user. So in training a loss far above the
typical one counts by its logarithm, and a rare prompt that was drawn often (see ``interp.models.training.tails``) by
the root of the weight that would make up for it. What comes out is compared by its mean over all but the very rarest
prompts, and the best descends its mean over usual ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.training.objective import adjusted_losses
from interp.models.training.parametrisation import Parametrisation
from interp.models.training.recipe import Recipe, purpose_seed
from interp.models.training.sample import Sample, training_sample
from interp.stats.levenberg_marquardt import Progress

__all__ = ["polish", "usual_mean"]

CAP = 30.0  # above so many times the loss of the search, a prompt's loss is far above the typical one
UNUSUAL = 1e-8  # what is rarer is not descended
RAREST = 1e-9  # what is rarer has no say in the choice
STARTS = 2

Descend = Callable[[str, Progress, Sample, int], Progress]


def usual_mean(losses: Float[Tensor, " prompt"], weight: Float[Tensor, " prompt"], rarest: float = RAREST) -> float:
    """The weighted mean without the largest losses, as far as those have a probability of ``rarest`` together.

    >>> usual_mean(torch.tensor([1.0, 3.0, torch.inf]), torch.tensor([1.0, 1.0, 1e-10]))
    1.333...
    """
    losses, order = losses.nan_to_num(nan=torch.inf, posinf=torch.inf).sort(descending=True)
    weight = weight[order] / len(weight)
    usual = (weight.cumsum(0) > rarest) & (weight > 0)  # 0 * inf is NaN
    return float(weight[usual] @ losses[usual])


def polish(
    recipe: Recipe, family: Parametrisation, kept: list[Progress], descend: Descend
) -> Float[Tensor, "layer parameter"]:
    """The best network that ``descend(name, start, sample, iterations)`` reaches from those ``kept``, best first.

    The first two start on the first sample; the best of them goes on to the others. On each it also descends the plain
    mean over the usual prompts.
    """
    optimiser = recipe.optimiser
    judge = training_sample(recipe.task, recipe.spec, optimiser.evaluation_prompts, purpose_seed(optimiser.seed, 6))
    cap = CAP * max(kept[0].loss, 1e-30)
    starts = [end.theta for end in kept[:STARTS]]
    ends: list[tuple[float, Tensor]] = []

    def compare(theta: Tensor) -> None:
        ends.append((usual_mean(adjusted_losses(family, theta, judge), judge.weight), theta))

    for theta in starts:
        compare(theta)
    for stage, (count, iterations) in enumerate(zip(optimiser.prompts, optimiser.iterations, strict=True)):
        seed = purpose_seed(optimiser.seed, 2 + stage)
        sample, name = training_sample(recipe.task, recipe.spec, count, seed), f"polish-{recipe.layers}.{stage}"
        for i, theta in enumerate(starts):
            compare(descend(f"{name}.{i}", Progress(theta=theta), sample.cautious(cap), iterations).theta)
        usual = sample[sample.weight > UNUSUAL * sample.count]
        compare(descend(f"{name}.usual", Progress(theta=_best(ends)), usual, iterations).theta)
        starts = [_best(ends)]
    return _best(ends)


def _best(ends: list[tuple[float, Tensor]]) -> Tensor:
    return min(ends, key=lambda end: end[0])[1]
