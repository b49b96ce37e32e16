"""How a layer adapts to the prompt: predicted from the coefficients, and observed in the network.

Label shrinkage. By theorem 4.1, a' = T_yy a + <T_yx, u> and w' = T_yy w - M^T T_yx: one factor, T_yy, multiplies the
label and the weights so far. Block-scalar layers make it

    T_yy = 1 + s omega_yy lambda^l ,      lambda^l = sum_i (y_i^l)^2 ,

so that omega_yy < 0 shrinks more where the labels have more energy.

Effective step. What is left of the update, w' - T_yy w = -M^T T_yx, is compared with the negative gradient
g = a alpha - Sigma w of half the squared residuals: step = <-M^T T_yx, g> / <g, g>. By lemma A.1 block-scalar layers
make it

    step = -s omega_yx (<M g, M g> + <M g, u> (<w_ols, g> + a rho)) / <g, g> ,      rho = sum_i r_i^2 ,

with r the residuals of least squares, and omega_xy is what fills u. If layer 0 has omega_xy alone and layer 1 omega_yx
alone, this is the paper's -omega_yx (1 + omega_xy (w_ols^T Sigma w_ols + rho)): shorter steps under more noise.

Both are predicted twice. By the recovered algorithm: the shrinkage at the network's own lambda^l, the step by running
it in the network's place. And by the omegas of the layer's own weights, at the network's own tokens. Source: Vladymyrov
et al., arXiv 2402.14180, theorem 4.1, lemma A.1 and sections 5.2, 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.unrolling import ImplicitState, implicit_states, label_indices
from interp.evidence.question import with_error
from interp.models.gram import GramTrajectory, LayerMaps
from interp.models.specification import ModelSpec
from interp.results import Adaptation, AdaptationBin
from interp.solvers.ridge import ols
from interp.solvers.statistics import RegressionStatistics
from interp.stats.averages import mean_with_error, quantile_bins, ratio_with_error
from interp.stats.bootstrap import Interval, share_explained

__all__ = ["Passage", "effective_steps", "gradient", "label_shrinkage", "residual_energy"]

NOISELESS = 1e-9  # residual energy below this share of the label energy is rounding


@dataclass(frozen=True, eq=False)
class Passage:
    """Prompts on their way through layers: the maps, and the implicit model before every layer and after the last."""

    trajectory: GramTrajectory
    states: tuple[ImplicitState, ...]

    @classmethod
    def of(cls, trajectory: GramTrajectory, spec: ModelSpec) -> Passage:
        return cls(trajectory, implicit_states(trajectory, spec))


def label_shrinkage(
    network: Passage, recovered: LayerMaps, by_weights: LayerMaps, spec: ModelSpec, live: Sequence[bool], seed: int
) -> tuple[Adaptation, ...]:
    """The factor T_yy of every layer in which it has a say (``live``), against the label energy of the layer."""
    (label,) = label_indices(spec)[1]
    out = []
    for layer, (T, gram) in enumerate(zip(network.trajectory.maps, network.trajectory.grams, strict=True)):
        if not live[layer]:
            continue
        energy, observed = gram[:, label, label], T[:, label, label]
        predicted, local = (
            layers.residual + layers.update(layer, gram)[:, label, label] for layers in (recovered, by_weights)
        )
        index, bins = quantile_bins(energy), []
        for k in index.unique().tolist():
            inside = index == k
            mean, error = mean_with_error(observed[inside])
            if mean is not None:
                x, value, own = (float(values[inside].mean()) for values in (energy, predicted, local))
                bins.append(AdaptationBin(x=x, predicted=value, by_weights=own, observed=mean, stderr=error))
        r2, r2_by_weights = (share_explained(observed, values, seed=seed) for values in (predicted, local))
        scores = with_error("r2", r2) | with_error("r2_by_weights", r2_by_weights)
        out.append(Adaptation(layer=layer, bins=tuple(bins), **scores))
    return tuple(out)


def gradient(state: ImplicitState, known: RegressionStatistics) -> Float[Tensor, "prompt dim"]:
    """g = a alpha - Sigma w, the negative gradient of 1/2 sum_i (a y_i - <w, x_i>)^2."""
    return state.a[:, 0] * known.alpha - torch.einsum("nij,nj->ni", known.sigma, state.w[:, 0])


def residual_energy(known: RegressionStatistics) -> Float[Tensor, " prompt"]:
    """rho = sum of the squared residuals of least squares."""
    return (known.lambda_ - (known.alpha * ols(known.sigma, known.alpha)).sum(-1)).clamp_min(0.0)


def effective_steps(
    network: Passage,
    recovered: Passage,
    without: Passage | None,
    by_weights: LayerMaps,
    known: RegressionStatistics,
    spec: ModelSpec,
    seed: int,
) -> tuple[Adaptation, ...]:
    """The step of every layer against the residual energy: none when the contexts are fitted exactly.

    ``recovered`` is the recovered algorithm in the network's place, ``without`` the same with omega_xy = 0. A bin shows
    the regression over its prompts, and R^2 weights each by <g, g>, so that prompts already solved do not count.
    """
    rho = residual_energy(known)
    if float(rho.mean()) < NOISELESS * float(known.lambda_.mean()):
        return ()
    index = quantile_bins(rho)
    out = []
    for layer in range(len(network.trajectory.maps)):
        observed = _Step.of(network, layer, network.trajectory.maps[layer], known, spec)
        local = _Step.of(network, layer, by_weights.update(layer, network.trajectory.grams[layer]), known, spec)
        predicted = _Step.of(recovered, layer, recovered.trajectory.maps[layer], known, spec)
        bare = None if without is None else _Step.of(without, layer, without.trajectory.maps[layer], known, spec)
        bins = []
        for k in index.unique().tolist():
            inside = index == k
            (step, error), (value, _), (own, _) = (part.over(inside) for part in (observed, predicted, local))
            if step is not None and value is not None and own is not None:
                x, other = float(rho[inside].mean()), None if bare is None else bare.over(inside)[0]
                made = AdaptationBin(x=x, predicted=value, by_weights=own, observed=step, stderr=error, without=other)
                bins.append(made)
        r2, r2_by_weights = (observed.explained_by(other, seed) for other in (predicted, local))
        scores = with_error("r2", r2) | with_error("r2_by_weights", r2_by_weights)
        out.append(Adaptation(layer=layer, bins=tuple(bins), **scores))
    return tuple(out)


@dataclass(frozen=True, eq=False)
class _Step:
    """The regression of -M^T T_yx on g, prompt by prompt."""

    top: Float[Tensor, " prompt"]
    bottom: Float[Tensor, " prompt"]

    @classmethod
    def of(cls, passage: Passage, layer: int, T: Tensor, known: RegressionStatistics, spec: ModelSpec) -> _Step:
        inputs, (label,) = label_indices(spec)
        state = passage.states[layer]
        g = gradient(state, known)
        pushed = torch.einsum("nij,nj->ni", state.M, g)
        return cls(-(T[:, label, inputs] * pushed).sum(-1), g.square().sum(-1))

    def over(self, inside: Tensor) -> tuple[float | None, float | None]:
        return ratio_with_error(self.top[inside], self.bottom[inside])

    def explained_by(self, other: _Step, seed: int) -> tuple[float | None, Interval]:
        kept = (self.bottom > 0) & (other.bottom > 0)
        ratio, guess = (self.top / self.bottom)[kept], (other.top / other.bottom)[kept]
        return share_explained(ratio, guess, self.bottom[kept], seed=seed)
