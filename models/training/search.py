"""Growing a network layer by layer, which is what keeps second-order training out of poor local minima.

Depth by depth, every network kept so far gets an idle layer at every place (same function, new directions to descend),
is minimised on a small sample, and the best few distinct ones go on. A FULL network starts from DIAG networks of its
depth, disturbed a little (by symmetry a rotation-invariant network has no gradient towards others), and from where Adam
comes to from random weights. Without noise a DIAG network starts from GD++ networks of its depth: labels have nothing
to say of noise then, and the best DIAG networks lie near GD++ ones, which have half as many numbers to search. At the
full depth the best are polished (see ``interp.models.training.polishing``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import LayoutError
from interp.models.gram import HeadLayers
from interp.models.rules import COUNT, COUNTS, EVALUATED, SHARE, one_of, ruled
from interp.models.tasks import NoisyRegression
from interp.models.training.adam import Moving
from interp.models.training.fields import Model, Optimiser
from interp.models.training.journal import Journal
from interp.models.training.method import Measure, Method, Outcome, Weights, register_method
from interp.models.training.objective import descend, losses_of, one_core_a_chunk
from interp.models.training.parametrisation import (
    FIXED_HEADS,
    PARAMETRISATIONS,
    Dense,
    Diagonal,
    Parametrisation,
    balanced,
    parametrisation,
)
from interp.models.training.polishing import polish
from interp.models.training.recipe import Recipe, purpose_seed
from interp.models.training.sample import Sample, fresh_sample, training_sample
from interp.models.training.wandering import wander
from interp.stats.levenberg_marquardt import Progress

__all__ = ["Effort", "Growing", "family_of"]

SMALL = 0.02  # standard deviation of random weights: the updates of a layer are then well below its input
SAME = 2e-3  # relative difference in loss below which two minima on one sample count as one


@dataclass(frozen=True, kw_only=True)
class Parametrised(Model):
    """Which weights may move (see ``interp.models.training.parametrisation``)."""

    parametrisation: str = ruled(one_of(PARAMETRISATIONS))
    heads: int | None = ruled(COUNT, optional=True)  # 1, or what the parametrisation needs

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads is None:
            object.__setattr__(self, "heads", FIXED_HEADS.get(self.parametrisation, 1))


@dataclass(frozen=True, kw_only=True)
class Effort(Optimiser):
    """How hard to look. Networks are grown one layer at a time."""

    attempts: int = ruled(COUNT, 2)  # starts for every place a layer can be added: one exact, the others perturbed
    keep: int = ruled(COUNT, 2)  # networks carried on to the next depth
    search_prompts: int = ruled(COUNT, 4096)
    scan_iterations: int = ruled(COUNT, 10)  # from every start; the most promising then get
    search_iterations: int = ruled(COUNT, 50)  # in all
    wander_steps: int = ruled(COUNT, 10_000)  # of Adam, from each of ``attempts`` random starts of a full network
    prompts: tuple[int, ...] = ruled(COUNTS, (32768, 131072))  # samples to polish the best networks on, in turn
    iterations: tuple[int, ...] = ruled(COUNTS, (30, 15))  # at most so many steps on each of them
    tolerance: float = ruled(SHARE, 1e-3)  # a step that gains a smaller fraction is slow; three in a row are the end
    evaluation_prompts: int = ruled(EVALUATED, 200_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.prompts) != len(self.iterations):
            raise LayoutError(
                f"optimiser.prompts has {len(self.prompts)} entries and optimiser.iterations {len(self.iterations)}, "
                "expected one number of iterations for each sample"
            )


def family_of(recipe: Recipe, name: str | None = None, heads: int | None = None) -> Parametrisation:
    """The recipe's parametrisation, or the one of that name and number of heads for the same task."""
    return parametrisation(
        name or recipe.model.parametrisation,
        dim=recipe.task.dim,
        heads=heads or recipe.model.heads,
        scale=recipe.spec.attention.factor(recipe.task.context),
        residual=1.0 if recipe.spec.residual else 0.0,
    )


class Growing(Method):
    """Second-order training on Gram matrices, of networks that are linear in the query but for their own update."""

    model = Parametrised
    described = ("tokens", "attention", "residual", "readout")
    optimiser = Effort
    measure = Measure(
        key="adjusted_loss", unit="half the mean squared error", words="half mean squared error above the optimum"
    )
    remedy = "raise optimiser.prompts or optimiser.attempts"

    def defaults(self, task: NoisyRegression, model: Parametrised) -> dict[str, Any]:
        return {"tokens": [["x", task.dim], ["y", 1]]}

    def fits(self, recipe: Recipe) -> None:
        spec, dim = recipe.spec, recipe.task.dim
        if spec.tokens != (("x", dim), ("y", 1)):
            raise LayoutError(f"model.tokens is {list(spec.tokens)}, expected x: {dim} and y: 1 in this order")
        if spec.readout.channel != "y":
            raise LayoutError(f"model.readout.channel is {spec.readout.channel!r}, expected 'y'")
        if spec.attention.keys == "causal" or spec.clip is not None:
            raise LayoutError(
                "model has causal keys or a clip, expected keys 'context' or 'all' and no clip: "
                "training runs on Gram matrices"
            )
        family_of(recipe)

    def recorded(self, recipe: Recipe) -> dict[str, Any]:
        """All but the name and the number of layers: the search for a deep network contains that for a shallow one."""
        fields = recipe.to_dict()
        del fields["name"], fields["model"]["layers"]
        return fields

    @one_core_a_chunk()
    def search(self, recipe: Recipe, journal: Journal) -> Outcome:
        theta = _searched(recipe, journal)
        P, Q = family_of(recipe).weights(theta)
        if recipe.model.parametrisation in ("diag", "full"):
            P, Q = balanced(P, Q)
        return Outcome(weights={"Q": Q, "P": P}, effort={"iterations": journal.iterations})

    @one_core_a_chunk()
    def losses(self, recipe: Recipe, weights: Weights, seed: int) -> tuple[Float[Tensor, " prompt"], dict[str, Any]]:
        fresh = fresh_sample(recipe.task, recipe.spec, recipe.optimiser.evaluation_prompts, seed)
        family = family_of(recipe)
        layers = HeadLayers(P=weights["P"], Q=weights["Q"], scale=family.scale, residual=family.residual)
        return losses_of(layers, fresh), {}


register_method(NoisyRegression.name, Growing())


def _searched(recipe: Recipe, journal: Journal) -> Float[Tensor, "layer parameter"]:
    optimiser = recipe.optimiser
    family = family_of(recipe)
    small = training_sample(recipe.task, recipe.spec, optimiser.search_prompts, purpose_seed(optimiser.seed, 1))

    def lowered(kind: Parametrisation, name: str, start: Progress, sample: Sample, iterations: int) -> Progress:
        work = partial(descend, kind, sample, iterations=iterations, tolerance=optimiser.tolerance)
        return journal.run(name, start, work)

    def best(kind: Parametrisation, starts: Iterator[tuple[str, Tensor]]) -> list[Progress]:
        """A few steps from everywhere, then the most promising to the end."""
        few = optimiser.scan_iterations
        scanned = [(name, lowered(kind, name, Progress(theta=theta), small, few)) for name, theta in starts]
        front = _distinct(scanned, 2 * optimiser.keep)
        ends = [(name, lowered(kind, f"{name}+", end, small, optimiser.search_iterations)) for name, end in front]
        return [end for _, end in _distinct(ends, optimiser.keep)]

    def grown(kind: Parametrisation, word: str) -> list[Progress]:
        kept: list[Progress] = []
        for depth in range(1, recipe.layers + 1):
            kept = best(kind, _grown(kind, kept, depth, optimiser.seed, optimiser.attempts, word))
        return kept

    if isinstance(family, Dense):
        scout = family_of(recipe, "diag")
        scouts = grown(scout, "scout")
        kept = best(family, _widened(family, scout, scouts, recipe.layers, optimiser.seed, optimiser.attempts))
        kept = sorted([*kept, *_wandered(recipe, family, journal)], key=lambda end: end.loss)
    elif isinstance(family, Diagonal) and family.scores and recipe.task.noise.largest == 0:
        kept = _freed(family, grown(family_of(recipe, "gd++", heads=1), "scout"), recipe.layers, optimiser.seed)
    else:
        kept = grown(family, "grow")
    return polish(recipe, family, kept, lambda name, *rest: lowered(family, name, *rest))


def _wandered(recipe: Recipe, family: Parametrisation, journal: Journal) -> list[Progress]:
    """Networks trained by Adam from small random weights."""
    optimiser = recipe.optimiser
    sample = training_sample(recipe.task, recipe.spec, max(optimiser.prompts), purpose_seed(optimiser.seed, 7))
    ends = []
    for attempt in range(optimiser.attempts):
        seed = purpose_seed(optimiser.seed, 8, attempt)
        generator = torch.Generator().manual_seed(seed)
        theta = SMALL * torch.randn(recipe.layers, family.size, generator=generator, dtype=torch.float64)
        work = partial(wander, family, sample, steps=optimiser.wander_steps, seed=seed)
        end = journal.run(f"wander-{recipe.layers}.{attempt}", Moving(values=(theta.float(),)), work)
        ends.append(Progress(theta=end.values[0].double(), loss=end.loss))
    return ends


def _distinct(ends: list[tuple[str, Progress]], keep: int) -> list[tuple[str, Progress]]:
    """The best ``keep`` of them; of those with nearly the same loss only one, for they are the same optimum."""
    out: list[tuple[str, Progress]] = []
    for name, end in sorted(ends, key=lambda pair: pair[1].loss):
        if len(out) < keep and not (out and end.loss < out[-1][1].loss * (1.0 + SAME)):
            out.append((name, end))
    return out


def _generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(purpose_seed(*parts))


def _noise(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)


def _grown(
    family: Parametrisation, kept: list[Progress], depth: int, seed: int, attempts: int, word: str
) -> Iterator[tuple[str, Tensor]]:
    """Every kept network with an idle layer at every place; further attempts also disturb the layers it had."""
    if not kept:
        for attempt in range(attempts):
            yield f"{word}-1.{attempt}", family.idle(_generator(seed, 3, attempt))[None]
    for (parent, end), place, attempt in product(enumerate(kept), range(depth), range(attempts)):
        generator = _generator(seed, 4, depth, parent, place, attempt)
        disturbed = end.theta * (1.0 + (0.2 if attempt else 0.0) * _noise(end.theta, generator))
        layers = torch.cat([disturbed[:place], family.idle(generator)[None], disturbed[place:]])
        yield f"{word}-{depth}.{parent}.{place}.{attempt}", layers


def _widened(
    family: Dense, scout: Parametrisation, scouts: list[Progress], depth: int, seed: int, attempts: int
) -> Iterator[tuple[str, Tensor]]:
    """The diagonal networks as dense ones, plus noise of 2 % of the largest weight of each matrix."""
    for parent, end in enumerate(scouts):
        weights = balanced(*scout.weights(end.theta))
        for attempt in range(attempts):
            generator = _generator(seed, 5, depth, parent, attempt)
            noisy = [w + 0.02 * w.abs().amax((-1, -2), keepdim=True) * _noise(w, generator) for w in weights]
            yield f"widen-{depth}.{parent}.{attempt}", family.from_weights(*noisy)


def _freed(family: Diagonal, scouts: list[Progress], depth: int, seed: int) -> list[Progress]:
    """The GD++ networks as diagonal ones: p = (omega_xx, omega_yx) and q = (1, 0) in one head, the others idle."""
    out = []
    for parent, end in enumerate(scouts):
        generator = _generator(seed, 9, depth, parent)
        layers = torch.stack([family.idle(generator) for _ in end.theta])
        layers[:, :2], layers[:, 3] = end.theta, 0.0
        out.append(Progress(theta=layers, loss=end.loss))
    return out
