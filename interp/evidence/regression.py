"""In-context regression with noise, measured: what "Linear Transformers are Versatile In-Context Learners" argues.

Vladymyrov et al., arXiv 2402.14180; the modules that compute the parts name the sections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import omega_maps
from interp.algebra.gauge import LiveCoordinates
from interp.algebra.unrolling import implicit_states
from interp.evidence.ablation import omega_effects
from interp.evidence.adaptation import Passage, effective_steps, label_shrinkage
from interp.evidence.momentum import increments, momentum_fits
from interp.evidence.noise_profile import noise_profile
from interp.evidence.remainder import projected, remainders
from interp.evidence.spectral_filter import spectral_filters
from interp.families.omegas import BasisFamily
from interp.identify.identification import Candidate
from interp.identify.identified import Half
from interp.models.gram import HeadLayers, LayerMaps, forward
from interp.models.specification import ModelSpec
from interp.models.tasks import NoisyRegression, RegressionPrompts
from interp.results import Regression
from interp.solvers.baselines import Baseline
from interp.solvers.statistics import RegressionStatistics

__all__ = ["describe_regression"]

OMEGAS = ("xx", "xy", "yx", "yy")
PROFILE_PROMPTS, EFFECT_PROMPTS = 512, 1024  # at most: at every noise level, and to score what is taken out


def describe_regression(
    network: HeadLayers,
    spec: ModelSpec,
    task: NoisyRegression,
    live: LiveCoordinates,
    candidates: Sequence[Candidate],
    best: tuple[Candidate, str],
    baselines: Sequence[Baseline],
    halves: tuple[Half, Half],
    draw: Callable[[NoisyRegression, int, int], RegressionPrompts],
    prompts: int,
    seed: int,
) -> Regression:
    """All of it for one network. ``best`` is the recovered algorithm (or the closest family) and its label, ``halves``
    the prompts that were fitted and held out, ``draw(task, count, seed)`` gives more of them."""
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(4)]
    recovered, label = best
    assert recovered.parametrisation is not None and recovered.fit is not None  # a scored candidate has both
    layers = recovered.parametrisation.build(recovered.fit.theta)
    fitted, held_out = halves
    known, network_passage = _known(held_out), Passage.of(held_out.trajectory, spec)
    reference = held_out.prompts.read(held_out.trajectory.queries[-1])
    by_weights, _ = projected(network, live, omega_maps(spec))
    diag = next(c for c in candidates if c.family.name == "diag")
    counted = recovered if recovered.family.name in ("gd", "gd++") else diag
    table, kept = _omegas(counted)

    without = _without_xy(recovered)

    def passage(maps: LayerMaps) -> Passage:
        return Passage.of(forward(maps, held_out.prompts.gram, held_out.prompts.query), spec)

    return Regression(
        profile=noise_profile(
            network, layers, label, spec, task, baselines,
            lambda law: draw(law, min(PROFILE_PROMPTS, prompts // 4), seeds[0]),
        ),
        omegas=omega_effects(
            counted.family.name, table, kept, task, spec, network.scale, min(EFFECT_PROMPTS, prompts // 4), seeds[1]
        ),
        shrinkage=label_shrinkage(network_passage, layers, by_weights, spec, _live(diag, "yy"), seeds[3]),
        step=effective_steps(
            network_passage, passage(layers), None if without is None else passage(without), by_weights, known, spec,
            seeds[3],
        ),
        momentum=momentum_fits(
            increments(implicit_states(fitted.trajectory, spec), _known(fitted)),
            increments(network_passage.states, known),
            seeds[3],
        ),
        filters=spectral_filters(
            [-spec.readout.sign * s.w[:, 0] for s in network_passage.states], known, held_out.drawn.sigma, task
        ),
        remainder=remainders(network, spec, live, diag, held_out.prompts, reference, seeds[2]),
    )  # fmt: skip


def _known(half: Half) -> RegressionStatistics:
    assert isinstance(half.drawn, RegressionPrompts)
    return RegressionStatistics.from_data(half.drawn.x, half.drawn.y)


def _family(candidate: Candidate) -> BasisFamily | None:
    return candidate.parametrisation if isinstance(candidate.parametrisation, BasisFamily) else None


def _omegas(candidate: Candidate) -> tuple[Float[Tensor, "layer 4"], Tensor]:
    """The fitted omegas of a family that has nothing else, and which of them belong to it and have a say."""
    family = _family(candidate)
    assert family is not None and candidate.fit is not None
    values = dict(zip((m.name for m in family.maps), family.table(candidate.fit.theta).T, strict=True))
    alive = dict(zip((m.name for m in family.maps), family.mask.T, strict=True))
    nothing = torch.zeros(len(family.mask), dtype=torch.float64)
    table = torch.stack([values.get(name, nothing) for name in OMEGAS], -1)
    return table, torch.stack([alive.get(name, nothing > 0) for name in OMEGAS], -1)


def _live(candidate: Candidate, name: str) -> list[bool]:
    family = _family(candidate)
    assert family is not None
    return family.mask[:, [m.name for m in family.maps].index(name)].tolist()


def _without_xy(candidate: Candidate) -> LayerMaps | None:
    """The recovered algorithm with omega_xy = 0 in all layers; None when it has none."""
    family = _family(candidate)
    names = [] if family is None else [m.name for m in family.maps]
    if family is None or candidate.fit is None or "xy" not in names:
        return None
    table = family.table(candidate.fit.theta)
    table[:, names.index("xy")] = 0.0
    return family.build(family.flatten(table))
