"""Fitting the parameters of an algorithm family to a network by what they do to its predictions.

A family is a set of layers T - r I = s * sum_k theta[l, k] B_k(G), linear in its parameters layer by layer; a parameter
may belong to several layers. With Gamma_l = d prediction / d T^l (``interp.algebra.sensitivity``) and design columns
X[l, k] = <Gamma_l, s B_k(G_l)>:

- ``output_estimate``: within layer l, regress the first-order effect of the network's real update,
  <Gamma_l, T_l - r I>, on the effects of the basis maps, Gamma and G being the network's. One row per prompt and
  output (and layer, where layers share their parameters); prompts are independent, so standard errors are clustered
  by prompt.
- ``refit``: all theta together, so that the family's predictions match the network's (Levenberg-Marquardt). There
  the same columns, with Gamma and G of the family itself, are the Jacobian, summed over the layers of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.basis import Matrices
from interp.algebra.sensitivity import Prompts, Sensitivities, differentiate
from interp.models.gram import LayerMaps, forward
from interp.stats.least_squares import Estimate, least_squares
from interp.stats.levenberg_marquardt import Damping, Evaluated, Progress, Quadratic, Stopping, minimise

__all__ = ["Parametrisation", "count", "estimate_at", "output_estimate", "refit"]

CONVERGED = 1e-24  # unexplained share of the variance at which a fit is exact to rounding
NEARLY = 1e-9  # unexplained share from which a fit goes on to be exact
DAMPING = Damping(growth=4.0, acceleration=1.0, shrink=10.0, least=1e-14, floor=0.0)
MAX_STEPS = 40
FIRST_PROMPTS, FIRST_ROWS_PER_PARAMETER = 256, 16  # size of the part of the prompts that a fit starts on
HOPELESS = 0.3  # unexplained share after the first part at which a family is given up


@runtime_checkable
class Parametrisation(Protocol):
    """A family whose layers are linear in theta, layer by layer."""

    @property
    def places(self) -> tuple[Sequence[int], ...]:
        """Of every layer, which entries of theta are its parameters."""
        ...

    def scaled(self, scale: float) -> Parametrisation:
        """The same family for attention with another factor ``scale``."""
        ...

    def design(self, layer: int, gamma: Matrices, gram: Matrices) -> Float[Tensor, "prompt parameter"]:
        """<gamma, d T_l / d theta_k> at the given Gram matrix."""
        ...

    def build(self, theta: Float[Tensor, " parameter"]) -> LayerMaps: ...


def count(parametrisation: Parametrisation) -> int:
    """How many parameters it has."""
    return len({k for places in parametrisation.places for k in places})


def _design(
    parametrisation: Parametrisation, layer: int, sensed: Sensitivities
) -> Float[Tensor, "prompt output parameter"]:
    """Derivatives of the prediction by the parameters of a layer, through this layer alone."""
    gram = sensed.trajectory.grams[layer]
    return torch.stack([parametrisation.design(layer, g[layer], gram) for g in sensed.gammas], 1)


def output_estimate(parametrisation: Parametrisation, network: LayerMaps, sensed: Sensitivities) -> Estimate:
    """The output-weighted estimate, layer by layer, or of all together where they share parameters. ``sensed`` are the
    network's own sensitivities."""
    places, parts, owned = parametrisation.places, [], []
    shared = count(parametrisation) < sum(map(len, places))
    for layers in [range(len(places))] if shared else [[layer] for layer, own in enumerate(places) if own]:
        owned.append(sorted({k for layer in layers for k in places[layer]}))
        rows, effects = [], []
        for layer in layers:
            update = network.update(layer, sensed.trajectory.grams[layer])
            effect = torch.stack([(g[layer] * update).sum((-1, -2)) for g in sensed.gammas], 1)
            weight = _bounded_influence(layer, sensed)
            row = effect.new_zeros(*effect.shape, len(owned[-1]))
            row[..., [owned[-1].index(k) for k in places[layer]]] = _design(parametrisation, layer, sensed)
            rows.append(weight[..., None] * row)
            effects.append(weight * effect)
        parts.append(least_squares(torch.cat(rows, 1), torch.cat(effects, 1)))
    empty = torch.zeros(0, dtype=sensed.prediction.dtype)
    return Estimate(
        theta=torch.cat([empty, *(p.theta for p in parts)]),
        stderr=torch.cat([empty, *(p.stderr for p in parts)]),
        determined=tuple(d for p in parts for d in p.determined),
        partners=tuple(tuple(own[k] for k in ks) for p, own in zip(parts, owned, strict=True) for ks in p.partners),
        unexplained=float(sum(p.unexplained for p in parts) / max(len(parts), 1)),
    )


def _bounded_influence(layer: int, sensed: Sensitivities) -> Float[Tensor, "prompt output"]:
    """Row weights min(1, c / (|Gamma| |G|)), c the median of |Gamma| |G|.

    Effects are polynomials of high degree in Gaussian data, so a few prompts would outweigh all others, and no standard
    error would hold. |Gamma| |G| bounds every effect of the layer: so weighted, no prompt counts more than a typical
    one. The weights do not look at the residuals, so a network that is of the family is still recovered exactly.
    """
    size = sensed.trajectory.grams[layer].flatten(1).norm(dim=-1)
    bound = torch.stack([g[layer].flatten(1).norm(dim=-1) * size for g in sensed.gammas], 1)
    return (bound.median() / bound.clamp_min(1e-300)).clamp(max=1.0)


def refit(
    parametrisation: Parametrisation,
    prompts: Prompts,
    target: Float[Tensor, "prompt output"],
    starts: Sequence[Float[Tensor, " parameter"]],
    weight: Float[Tensor, " prompt"] | None = None,
) -> Estimate:
    """Minimise sum w^2 (prediction_theta - target)^2 over all layers by Levenberg-Marquardt, from the best of
    ``starts``; w is ``weight`` (None: 1; see ``bounded_weights``).

    The second-best start is tried as well when the first leaves more than 1 % of the variance. A fit that leaves
    most of it on a part of the prompts is hopeless and is not carried on to all of them.
    """
    parameters = count(parametrisation)
    if parameters == 0 or not bool((target != 0).any()):
        return _undetermined(torch.zeros(parameters, dtype=target.dtype))
    weight = torch.ones_like(target[:, 0]) if weight is None else weight
    part = slice(0, max(FIRST_PROMPTS, FIRST_ROWS_PER_PARAMETER * parameters))
    first = _Match(parametrisation, prompts[part], target[part], weight[part])
    nearest, *others = sorted(starts, key=lambda theta: first(theta).value)[:2]
    best = _fitted(first, nearest, tolerance=1e-2)
    if others and best.unexplained >= 0.01:
        best = min(best, _fitted(first, others[0], tolerance=1e-2), key=lambda fit: fit.unexplained)
    if best.unexplained > HOPELESS or prompts.count <= part.stop:
        return best
    return _fitted(_Match(parametrisation, prompts, target, weight), best.theta, tolerance=1e-4)


@dataclass(frozen=True, eq=False)
class _Match:
    """Half of sum w^2 (prediction_theta - target)^2 as an objective."""

    parametrisation: Parametrisation
    prompts: Prompts
    target: Float[Tensor, "prompt output"]
    weight: Float[Tensor, " prompt"]

    def __call__(self, theta: Tensor) -> Evaluated:
        value, left, jacobian = self.at(theta)

        def quadratic() -> Quadratic:
            rows = jacobian().flatten(0, 1)
            return Quadratic(-rows.mT @ left.flatten(), rows.mT @ rows)

        return Evaluated(value if value == value else float("inf"), quadratic)

    def at(self, theta: Tensor) -> tuple[float, Float[Tensor, "prompt output"], Callable[[], Tensor]]:
        """The value, what is left of the target, and the derivatives of the prediction, both weighted."""
        layers = self.parametrisation.build(theta)
        trajectory = forward(layers, self.prompts.gram, self.prompts.query)
        left = self.weight[:, None] * (self.target - self.prompts.read(trajectory.queries[-1]))

        def jacobian() -> Float[Tensor, "prompt output parameter"]:
            sensed = differentiate(layers, trajectory, self.prompts)
            rows = left.new_zeros(*left.shape, len(theta))
            for layer, places in enumerate(self.parametrisation.places):
                rows[..., list(places)] += _design(self.parametrisation, layer, sensed)
            return self.weight[:, None, None] * rows

        return 0.5 * float((left**2).sum()), left, jacobian

    def local(self, theta: Tensor) -> Estimate:
        """How well these numbers are known, and what they leave."""
        power = float(((self.weight[:, None] * self.target) ** 2).sum())
        value, left, jacobian = self.at(theta)
        rows = jacobian()
        if not bool(torch.isfinite(rows).all()):
            return _undetermined(theta)
        return replace(least_squares(rows, left, size=power**0.5), theta=theta, unexplained=2.0 * value / power)


def _fitted(match: _Match, start: Tensor, tolerance: float) -> Estimate:
    """Until a step lowers the cost by less than ``tolerance`` (relative); fits that become exact go on to rounding."""
    power = float(((match.weight[:, None] * match.target) ** 2).sum())
    stopping = Stopping(
        iterations=MAX_STEPS, tolerance=tolerance, zero=0.5 * CONVERGED * power, exact=0.5 * NEARLY * power
    )
    end = minimise(match, Progress(theta=start, damping=1e-3, growth=DAMPING.growth), stopping, DAMPING)
    return replace(match.local(end.theta), steps=end.iteration)


def estimate_at(
    parametrisation: Parametrisation,
    prompts: Prompts,
    target: Float[Tensor, "prompt output"],
    theta: Float[Tensor, " parameter"],
    weight: Float[Tensor, " prompt"],
) -> Estimate:
    """These numbers as ``refit`` would return them, had it ended there."""
    return _Match(parametrisation, prompts, target, weight).local(theta)


def _undetermined(theta: Tensor) -> Estimate:
    count = len(theta)
    return Estimate(theta, torch.full_like(theta, float("nan")), (False,) * count, ((),) * count, 1.0)
