"""Growing a network layer by layer, which is what keeps second-order training out of poor local minima.

Depth by depth, every network kept so far gets an idle layer at every place (same function, new directions to descend),
is minimised on a small sample, and the best few distinct ones go on. A FULL network also starts from the DIAG network
of its depth, disturbed a little: by symmetry a rotation-invariant network has no gradient towards others. At the full
depth the best are polished on ever larger samples, where losses far above the mean count first by their logarithm and
then by their root, at the end by their power 3/4: the rarest prompts, on which a polynomial of high degree explodes,
would drag a network out of its valley if they counted in full, and stay explosive if they counted by the logarithm. A
step that helps them is taken back when the others pay too much for it, and the power 1/4 tried in place of the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.training.journal import Journal
from interp.models.training.levenberg_marquardt import Progress, minimise
from interp.models.training.objective import loss
from interp.models.training.parametrisation import Dense, Parametrisation
from interp.models.training.recipe import Recipe
from interp.models.training.sample import Sample, training_sample
from interp.models.training.trained import Step

__all__ = ["balanced", "search"]

CAP = 30.0  # in units of the loss reached on the sample before
PRICE = 0.05  # what the logarithmic loss may pay, as a share of itself, for a smaller loss on rare prompts
SAME = 2e-3  # relative difference in loss below which two minima on one sample count as one


def search(recipe: Recipe, journal: Journal, watch: Callable[[Step], None]) -> Float[Tensor, "layer parameter"]:
    """The best parameters found; the same recipe gives the same ones, however often the run was interrupted."""
    optimiser = recipe.optimiser
    family = recipe.family()
    scout = recipe.family("diag") if isinstance(family, Dense) else None
    small = training_sample(recipe.task, recipe.spec, optimiser.search_prompts, _seed(optimiser.seed, 1))

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

    def helped(now: Progress, name: str, power: float, sample: Sample, iterations: int) -> Progress | None:
        """``sample`` counts rare prompts by their logarithm. Here by the power; None when the others pay too much."""
        end = descend(family, f"{name}^{power}", Progress(theta=now.theta), sample.tamed(sample.cap, power), iterations)
        fair = loss(family, end.theta, sample) < (1.0 + PRICE) * loss(family, now.theta, sample)
        return end if fair else None

    kept: list[Progress] = []
    scouts: list[Progress] = []
    for depth in range(1, recipe.layers + 1):
        starts = list(_grown(family, kept, depth, optimiser.seed, optimiser.attempts, "grow"))
        if scout is not None and isinstance(family, Dense):
            scouts = best(scout, _grown(scout, scouts, depth, optimiser.seed, optimiser.attempts, "scout"))
            starts += list(_widened(family, scout, scouts, depth, optimiser.seed, optimiser.attempts))
        kept = best(family, iter(starts))
    for stage, (count, iterations) in enumerate(zip(optimiser.prompts, optimiser.iterations, strict=True)):
        cap = CAP * max(min(end.loss for end in kept), 1e-30)
        sample = training_sample(recipe.task, recipe.spec, count, _seed(optimiser.seed, 2 + stage)).tamed(cap, 0.0)
        name = f"polish-{recipe.layers}.{stage}"
        ends = [
            (f"{name}.{i}", descend(family, f"{name}.{i}", Progress(theta=end.theta), sample, iterations))
            for i, end in enumerate(kept)
        ]
        kept = [_distinct(ends, 1)[0][1]]
        last = stage + 1 == len(optimiser.prompts)
        for power in (0.5, 0.75) if last else (0.5,):
            end = helped(kept[0], name, power, sample, iterations)
            if end is None and power == 0.5:
                end = helped(kept[0], name, 0.25, sample, iterations)
            if end is not None:
                kept = [end]
    return kept[0].theta


def _distinct(ends: list[tuple[str, Progress]], keep: int) -> list[tuple[str, Progress]]:
    """The best ``keep`` of them; of those with nearly the same loss only one, for they are the same optimum."""
    out: list[tuple[str, Progress]] = []
    for name, end in sorted(ends, key=lambda pair: pair[1].loss):
        if len(out) < keep and not (out and end.loss < out[-1][1].loss * (1.0 + SAME)):
            out.append((name, end))
    return out


def _seed(*parts: int) -> int:
    """Distinct seeds for distinct purposes of one recipe."""
    value = 0
    for part in parts:
        value = value * 1009 + part + 1
    return value


def _generator(*parts: int) -> torch.Generator:
    return torch.Generator().manual_seed(_seed(*parts))


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


def balanced(P: Float[Tensor, "layer head D D"], Q: Float[Tensor, "layer head D D"]) -> tuple[Tensor, Tensor]:
    """The same network with |P_h| = |Q_h| in every head: P -> k P, Q -> Q / k changes nothing the network computes."""
    size_p, size_q = torch.linalg.matrix_norm(P), torch.linalg.matrix_norm(Q)
    factor = torch.where((size_p > 0) & (size_q > 0), (size_q / size_p.clamp_min(1e-300)).sqrt(), 1.0)[..., None, None]
    return P * factor, Q / factor
