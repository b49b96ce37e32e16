"""Growing a network layer by layer, which is what keeps second-order training out of poor local minima.

Depth by depth, every network kept so far gets an idle layer at every place (same function, new directions to descend),
is minimised on a small sample, and the best few distinct ones go on. A FULL network starts from DIAG networks of its
depth, disturbed a little (by symmetry a rotation-invariant network has no gradient towards others), and from where Adam
comes to from random weights. Without noise a DIAG network starts from GD++ networks of its depth: labels have nothing
to say of noise then, and the best DIAG networks lie near GD++ ones, which have half as many numbers to search. At the
full depth the best are polished (see ``interp.models.training.polishing``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.training.journal import Journal
from interp.models.training.levenberg_marquardt import Progress, minimise
from interp.models.training.parametrisation import Dense, Diagonal, Parametrisation
from interp.models.training.polishing import polish
from interp.models.training.recipe import Recipe, purpose_seed
from interp.models.training.sample import Sample, training_sample
from interp.models.training.trained import Step
from interp.models.training.wandering import wander

__all__ = ["balanced", "search"]

SMALL = 0.02  # standard deviation of random weights: the updates of a layer are then well below its input
SAME = 2e-3  # relative difference in loss below which two minima on one sample count as one


def search(recipe: Recipe, journal: Journal, watch: Callable[[Step], None]) -> Float[Tensor, "layer parameter"]:
    """The best parameters found; the same recipe gives the same ones, however often the run was interrupted."""
    optimiser = recipe.optimiser
    family = recipe.family()
    small = training_sample(recipe.task, recipe.spec, optimiser.search_prompts, purpose_seed(optimiser.seed, 1))

    def descend(kind: Parametrisation, name: str, start: Progress, sample: Sample, iterations: int) -> Progress:
        def run(progress: Progress, note: Callable[[Progress], None]) -> Progress:
            def both(now: Progress) -> None:
                note(now)
                watch(Step(name=name, iteration=now.iteration, loss=now.loss))

            return minimise(kind, sample, progress, iterations=iterations, tolerance=optimiser.tolerance, watch=both)

        return journal.run(name, start, run)

    def best(kind: Parametrisation, starts: Iterator[tuple[str, Tensor]]) -> list[Progress]:
        """A few steps from everywhere, then the most promising to the end."""
        scanned = [
            (name, descend(kind, name, Progress(theta=theta), small, optimiser.scan_iterations))
            for name, theta in starts
        ]
        front = _distinct(scanned, 2 * optimiser.keep)
        ends = [(name, descend(kind, f"{name}+", end, small, optimiser.search_iterations)) for name, end in front]
        return [end for _, end in _distinct(ends, optimiser.keep)]

    def grown(kind: Parametrisation, word: str) -> list[Progress]:
        kept: list[Progress] = []
        for depth in range(1, recipe.layers + 1):
            kept = best(kind, _grown(kind, kept, depth, optimiser.seed, optimiser.attempts, word))
        return kept

    if isinstance(family, Dense):
        scout = recipe.family("diag")
        scouts = grown(scout, "scout")
        kept = best(family, _widened(family, scout, scouts, recipe.layers, optimiser.seed, optimiser.attempts))
        kept = sorted([*kept, *_wandered(recipe, family, journal, watch)], key=lambda end: end.loss)
    elif isinstance(family, Diagonal) and recipe.task.noise.largest == 0:
        kept = _freed(family, grown(recipe.family("gd++", heads=1), "scout"), recipe.layers, optimiser.seed)
    else:
        kept = grown(family, "grow")
    return polish(recipe, kept, lambda name, *rest: descend(family, name, *rest))


def _wandered(
    recipe: Recipe, family: Parametrisation, journal: Journal, watch: Callable[[Step], None]
) -> list[Progress]:
    """Networks trained by Adam from small random weights."""
    optimiser = recipe.optimiser
    sample = training_sample(recipe.task, recipe.spec, max(optimiser.prompts), purpose_seed(optimiser.seed, 7))
    ends = []
    for attempt in range(optimiser.attempts):
        name, seed = f"wander-{recipe.layers}.{attempt}", purpose_seed(optimiser.seed, 8, attempt)
        generator = torch.Generator().manual_seed(seed)
        theta = SMALL * torch.randn(recipe.layers, family.size, generator=generator, dtype=torch.float64)

        def run(progress: Progress, note: Callable[[Progress], None], name: str = name, seed: int = seed) -> Progress:
            def both(now: Progress) -> None:
                note(now)
                watch(Step(name=name, iteration=now.iteration, loss=now.loss))

            return wander(family, sample, progress, steps=optimiser.wander_steps, seed=seed, watch=both)

        ends.append(journal.run(name, Progress(theta=theta), run))
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


def _grown(
    family: Parametrisation, kept: list[Progress], depth: int, seed: int, attempts: int, word: str
) -> Iterator[tuple[str, Tensor]]:
    """Every kept network with an idle layer at every place; further attempts also disturb the layers it had."""
    if not kept:
        for attempt in range(attempts):
            yield f"{word}-1.{attempt}", family.idle(_generator(seed, 3, attempt))[None]
    for parent, theta in enumerate(end.theta for end in kept):
        for place in range(depth):
            for attempt in range(attempts):
                generator = _generator(seed, 4, depth, parent, place, attempt)
                disturbed = theta * (
                    1.0 + (0.2 if attempt else 0.0) * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
                )
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
            noisy = [
                w
                + 0.02 * w.abs().amax((-1, -2), keepdim=True) * torch.randn(w.shape, generator=generator, dtype=w.dtype)
                for w in weights
            ]
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


def balanced(P: Float[Tensor, "layer head D D"], Q: Float[Tensor, "layer head D D"]) -> tuple[Tensor, Tensor]:
    """The same network with |P_h| = |Q_h| in every head: P -> k P, Q -> Q / k changes nothing the network computes."""
    size_p, size_q = torch.linalg.matrix_norm(P), torch.linalg.matrix_norm(Q)
    factor = torch.where((size_p > 0) & (size_q > 0), (size_q / size_p.clamp_min(1e-300)).sqrt(), 1.0)[..., None, None]
    return P * factor, Q / factor
