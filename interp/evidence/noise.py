"""In-context regression with noise, measured: what "Linear Transformers are Versatile In-Context Learners" argues.

Vladymyrov et al., arXiv 2402.14180; the modules that compute the parts name the sections.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.algebra.basis import omega_maps
from interp.algebra.linear_prompts import linear_prompts
from interp.algebra.unrolling import implicit_states
from interp.evidence.ablation import omega_effects
from interp.evidence.adaptation import Passage, effective_steps, label_shrinkage
from interp.evidence.momentum import increments, momentum_fits
from interp.evidence.noise_profile import noise_profile
from interp.evidence.question import Answer, question
from interp.evidence.remainder import projected, remainders
from interp.evidence.spectral_filter import spectral_filters
from interp.families.omegas import OmegaFit
from interp.families.parametrisations import BasisParametrisation
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.gram import LayerMaps, forward
from interp.models.skipped import Skipped
from interp.models.tasks import LinearExamples, LinearTask
from interp.results import Regression

__all__ = ["noise"]

OMEGAS = ("xx", "xy", "yx", "yy")
PROFILE_PROMPTS, EFFECT_PROMPTS = 512, 1024  # at most: at every noise level, and to score what is taken out


@question("noise")
def noise(choice: Choice, run: Run) -> Answer | Skipped | None:
    """How the network, its layers and the recovered algorithm (or the closest family) adapt to noise."""
    network, best, diag = run.network, choice.closest, choice.fit_of("diag")
    task = run.task
    if not isinstance(network.held_out.drawn, LinearExamples):
        return None
    if not isinstance(network, SharedKeys):
        return network.skipped
    if not isinstance(task, LinearTask):
        return Skipped("its task does not say the law of its inputs and noise, which it is measured on")
    if not isinstance(best, OmegaFit) or not isinstance(diag, OmegaFit):
        return Skipped("no family of omegas stands beside the network")
    run.progress("measuring how it adapts to noise")
    seeds = [int(s) for s in np.random.SeedSequence(run.seeds.adaptation).generate_state(4)]
    layers, own, spec, live = best.layers, network.layers, run.spec, network.live
    fitted, held_out = network.fitted, network.held_out
    statistics, passing = held_out.drawn.statistics, Passage.of(held_out.trajectory, spec)
    by_weights, _ = projected(own, live, omega_maps(spec))
    counted = best if best.family.name.removeprefix("tied ") in ("gd", "gd++") else diag
    table, kept = _omegas(counted)
    without = _without_xy(best)

    def passage(maps: LayerMaps) -> Passage:
        return Passage.of(forward(maps, held_out.prompts.gram, held_out.prompts.query), spec)

    label = f"{'recovered algorithm' if best.recognized else 'closest family'} ({best.family.title})"
    found = Regression(
        profile=noise_profile(
            own, layers, label, spec, task, run.references.tuned,
            lambda law: linear_prompts(run.model, law.sample(min(PROFILE_PROMPTS, run.prompts // 4), seeds[0])),
        ),
        omegas=omega_effects(
            counted.family.name.removeprefix("tied "), table, kept, task, spec, own.scale,
            min(EFFECT_PROMPTS, run.prompts // 4), seeds[1],
        ),
        shrinkage=label_shrinkage(passing, layers, by_weights, spec, _omegas(diag)[1][:, -1].tolist(), seeds[3]),
        step=effective_steps(
            passing, passage(layers), None if without is None else passage(without), by_weights, statistics, spec,
            seeds[3],
        ),
        momentum=momentum_fits(
            increments(implicit_states(fitted.trajectory, spec), fitted.drawn.statistics),
            increments(passing.states, statistics),
            seeds[3],
        ),
        filters=spectral_filters(
            [-spec.readout.sign * s.w[:, 0] for s in passing.states], statistics, held_out.drawn.sigma, task
        ),
        remainder=remainders(own, spec, live, diag, held_out.prompts, held_out.prediction, seeds[2]),
    )  # fmt: skip
    return Answer(fields={"regression": found})


def _omegas(candidate: OmegaFit) -> tuple[Float[Tensor, "layer 4"], Bool[Tensor, "layer 4"]]:
    """The fitted omegas of a family that has nothing else, and which of them belong to it and have a say."""
    family = candidate.parametrisation
    assert isinstance(family, BasisParametrisation)  # as of gd, gd++ and diag
    places = [OMEGAS.index(m.name) for m in family.maps]
    table, alive = torch.zeros(2, len(family.mask), 4, dtype=torch.float64)
    table[:, places], alive[:, places] = family.table(candidate.fit.theta), family.mask.to(alive.dtype)
    return table, alive > 0


def _without_xy(candidate: OmegaFit) -> LayerMaps | None:
    """The recovered algorithm with omega_xy = 0 in all layers; None when it has none."""
    family = candidate.parametrisation
    names = [m.name for m in family.maps] if isinstance(family, BasisParametrisation) else []
    if not isinstance(family, BasisParametrisation) or "xy" not in names:
        return None
    table = family.table(candidate.fit.theta)
    table[:, names.index("xy")] = 0.0
    return family.build(family.flatten(table))
