"""Fitting the parameters of an algorithm family to a network by what they do to its predictions.

A family is a set of layers T - r I = s * sum_k theta[l, k] B_k(G), linear in its parameters layer by layer. With
Gamma_l = d prediction / d T^l (``models.gram.adjoint``) and design columns X[l, k] = <Gamma_l, s B_k(G_l)>:

- ``output_estimate``: within layer l, regress the first-order effect of the network's real update,
  <Gamma_l, T_l - r I>, on the effects of the basis maps, Gamma and G being the network's. One row per prompt and
  output; prompts are independent, so standard errors are clustered by prompt.
- ``refit``: all theta together, so that the family's predictions match the network's (Levenberg-Marquardt). There
  the same columns, with Gamma and G of the family itself, are the Jacobian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.gram import GramTrajectory, LayerMaps, adjoint, forward

__all__ = [
    "LARGEST",
    "Estimate",
    "Parametrisation",
    "Prompts",
    "Sensitivities",
    "bounded_weights",
    "least_squares",
    "output_estimate",
    "predict",
    "refit",
    "sensitivities",
]

ROUNDING = 1e-13  # relative rounding error of a prediction or derivative in float64, a few layers deep
COLLINEAR = 1e-7  # a direction of theta that changes the predictions this little (relative) is not determined
CONVERGED = 1e-24  # unexplained share of the variance at which a fit is exact to rounding
MAX_STEPS = 40
FIRST_PROMPTS, FIRST_ROWS_PER_PARAMETER = 256, 16  # size of the part of the prompts that a fit starts on
LARGEST = 30.0  # times its median over prompts: the size of a prediction, and how far weights move it
HOPELESS = 0.3  # unexplained share after the first part at which a family is given up


@runtime_checkable
class Parametrisation(Protocol):
    """A family whose layers are linear in theta, layer by layer."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many parameters each layer has."""
        ...

    def design(
        self, layer: int, gamma: Float[Tensor, "prompt D D"], gram: Float[Tensor, "prompt D D"]
    ) -> Float[Tensor, "prompt parameter"]:
        """<gamma, d T_l / d theta_k> at the given Gram matrix."""
        ...

    def build(self, theta: Float[Tensor, " parameter"]) -> LayerMaps: ...


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts for a fit: Gram matrices, query tokens, and which token coordinates are read (with which sign)."""

    gram: Float[Tensor, "prompt D D"]
    query: Float[Tensor, "prompt query D"]
    readout: tuple[int, ...]
    sign: int

    def __getitem__(self, index: slice) -> Prompts:
        return Prompts(self.gram[index], self.query[index], self.readout, self.sign)

    @property
    def count(self) -> int:
        return self.gram.shape[0]

    @property
    def outputs(self) -> int:
        return self.query.shape[1] * len(self.readout)

    def read(self, tokens: Float[Tensor, "prompt query D"]) -> Float[Tensor, "prompt output"]:
        return self.sign * tokens[..., list(self.readout)].flatten(1)


def predict(layers: LayerMaps, prompts: Prompts) -> Float[Tensor, "prompt output"]:
    return prompts.read(forward(layers, prompts.gram, prompts.query).queries[-1])


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """Predictions with their derivatives: ``gammas[o][l]`` is d prediction_o / d T^l, one matrix per prompt."""

    prediction: Float[Tensor, "prompt output"]
    trajectory: GramTrajectory
    gammas: tuple[tuple[Float[Tensor, "prompt D D"], ...], ...]


def sensitivities(layers: LayerMaps, prompts: Prompts) -> Sensitivities:
    return _differentiate(layers, forward(layers, prompts.gram, prompts.query), prompts)


def _differentiate(layers: LayerMaps, trajectory: GramTrajectory, prompts: Prompts) -> Sensitivities:
    gammas = []
    for query in range(prompts.query.shape[1]):
        for coordinate in prompts.readout:
            seed = torch.zeros_like(prompts.query)
            seed[:, query, coordinate] = prompts.sign
            gammas.append(tuple(adjoint(layers, trajectory, seed)))
    return Sensitivities(prompts.read(trajectory.queries[-1]), trajectory, tuple(gammas))


@dataclass(frozen=True, eq=False)
class Estimate:
    """Fitted parameters, with standard errors clustered by prompt.

    ``determined[k]`` is False when the data do not fix parameter k; ``partners[k]`` then names the parameters along
    which it trades off (indices into theta). ``unexplained`` is the share of the variance left on the fitted prompts.
    """

    theta: Float[Tensor, " parameter"]
    stderr: Float[Tensor, " parameter"]
    determined: tuple[bool, ...]
    partners: tuple[tuple[int, ...], ...]
    unexplained: float
    steps: int = 0


def _design(
    parametrisation: Parametrisation, layer: int, sensed: Sensitivities
) -> Float[Tensor, "prompt output parameter"]:
    gram = sensed.trajectory.grams[layer]
    return torch.stack([parametrisation.design(layer, g[layer], gram) for g in sensed.gammas], 1)


def output_estimate(parametrisation: Parametrisation, network: LayerMaps, sensed: Sensitivities) -> Estimate:
    """The output-weighted estimate, layer by layer. ``sensed`` are the network's own sensitivities."""
    parts = []
    for layer, size in enumerate(parametrisation.sizes):
        if size == 0:
            continue
        update = network.update(layer, sensed.trajectory.grams[layer])
        effect = torch.stack([(g[layer] * update).sum((-1, -2)) for g in sensed.gammas], 1)
        weight = _bounded_influence(layer, sensed)
        parts.append(least_squares(weight[..., None] * _design(parametrisation, layer, sensed), weight * effect))
    offsets = [sum(p.theta.numel() for p in parts[:i]) for i in range(len(parts))]
    empty = torch.zeros(0, dtype=sensed.prediction.dtype)
    return Estimate(
        theta=torch.cat([empty, *(p.theta for p in parts)]),
        stderr=torch.cat([empty, *(p.stderr for p in parts)]),
        determined=tuple(d for p in parts for d in p.determined),
        partners=tuple(tuple(k + o for k in ks) for p, o in zip(parts, offsets, strict=True) for ks in p.partners),
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


def least_squares(
    design: Float[Tensor, "prompt output parameter"],
    response: Float[Tensor, "prompt output"],
    size: float | None = None,
) -> Estimate:
    """Least squares without intercept; sandwich covariance with one cluster per prompt, residuals inflated by their
    leverage (HC3 for one output per prompt), so that it stays honest with heavy tails and few prompts.

    ``size`` is the norm of the numbers whose rounding is in ``response`` (None: its own), for a response that is a
    difference."""
    rows, flat = design.flatten(0, 1), response.flatten()
    norms = rows.norm(dim=0)
    scale = torch.where(norms > 0, norms, 1.0)
    U, S, Vh = torch.linalg.svd(rows / scale, full_matrices=False)
    kept = COLLINEAR * S.max().clamp_min(1e-300) < S
    inverse = torch.where(kept, 1.0 / torch.where(kept, S, 1.0), 0.0)
    theta = (Vh.mT * inverse) @ (U.mT @ flat) / scale
    residual = flat - rows @ theta
    leverage = (U[:, kept] ** 2).sum(-1).clamp(max=1 - 1e-6)
    score = ((residual / (1 - leverage))[:, None] * U).unflatten(0, design.shape[:2]).sum(1)
    root = (Vh.mT * inverse) @ score.mT / scale[:, None]
    # What is fitted exactly is still only known to rounding.
    floor = ROUNDING * (float(flat.norm()) if size is None else size) * ((Vh.mT * inverse) ** 2).sum(-1).sqrt() / scale
    stderr = (root**2).sum(-1).sqrt() + floor
    determined, partners = _determined(Vh[kept], norms)
    power = float((flat**2).sum())
    return Estimate(theta, stderr, determined, partners, float((residual**2).sum()) / power if power > 0 else 0.0)


def _determined(
    kept: Float[Tensor, "direction parameter"], norms: Float[Tensor, " parameter"]
) -> tuple[tuple[bool, ...], tuple[tuple[int, ...], ...]]:
    """Which parameters have no part in a direction that the data leave free, and the others of that direction.

    The rows of ``kept`` are the directions that the data fix. Of the free ones, the unit vector with most of parameter
    k is column k of the projector on them, scaled.
    """
    free = torch.eye(len(norms), dtype=kept.dtype) - kept.mT @ kept
    share = free.diagonal().clamp_min(0.0).sqrt()
    determined = tuple(bool(ok) for ok in (share < 0.01) & (norms > 0))
    partners = []
    for k, ok in enumerate(determined):
        shares = free[:, k].abs() / share[k].clamp_min(1e-300)
        partners.append(() if ok else tuple(int(j) for j in torch.nonzero(shares > 0.1).flatten() if int(j) != k))
    return determined, tuple(partners)


def bounded_weights(network: LayerMaps, sensed: Sensitivities) -> Float[Tensor, " prompt"]:
    """min(1, 30 m(p) / |p|, 30 m(k) / k): p the network's prediction, k^2 = sum_l |Gamma_l|^2 |T_l - r I|^2, m the
    median over prompts. ``sensed`` are the network's own sensitivities.

    k is what a change of its layers by one part, each in its worst direction, does to the prediction. A deep network
    can explode on one prompt in a hundred, where its last digit of a weight moves more than all else is. Unweighted
    squares would be of that prompt alone. Nearly all weights are 1, and none looks at a residual.
    """
    sizes, reach = sensed.prediction.norm(dim=1), torch.zeros_like(sensed.prediction[:, 0])
    for layer, gram in enumerate(sensed.trajectory.grams):
        size = network.update(layer, gram).flatten(1).norm(dim=-1)
        for gammas in sensed.gammas:
            reach = torch.hypot(reach, gammas[layer].flatten(1).norm(dim=-1) * size)
    return torch.minimum(_bounded(sizes), _bounded(reach))


def _bounded(sizes: Float[Tensor, " prompt"]) -> Float[Tensor, " prompt"]:
    typical = sizes.median()
    if not bool(typical > 0):
        return torch.ones_like(sizes)
    return (LARGEST * typical / sizes.clamp_min(1e-300)).clamp(max=1.0)


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
    parameters = sum(parametrisation.sizes)
    if parameters == 0 or not bool((target != 0).any()):
        nothing = torch.zeros(parameters, dtype=target.dtype)
        return Estimate(nothing, nothing * float("nan"), (False,) * parameters, ((),) * parameters, 1.0)
    weight = torch.ones_like(target[:, 0]) if weight is None else weight
    part = slice(0, max(FIRST_PROMPTS, FIRST_ROWS_PER_PARAMETER * parameters))
    first = parametrisation, prompts[part], target[part], weight[part]
    best: Estimate | None = None
    for start in sorted(starts, key=lambda theta: _Fit.at(*first, theta).cost)[:2]:
        candidate = _levenberg_marquardt(*first, start, tolerance=1e-2)
        if best is None or candidate.unexplained < best.unexplained:
            best = candidate
        if best.unexplained < 0.01:
            break
    assert best is not None  # there is at least one start
    if best.unexplained > HOPELESS or prompts.count <= part.stop:
        return best
    return _levenberg_marquardt(parametrisation, prompts, target, weight, best.theta, tolerance=1e-4)


@dataclass(frozen=True, eq=False)
class _Fit:
    """A point of the minimisation: the forward pass there, and what it leaves, every prompt times its weight."""

    theta: Tensor
    layers: LayerMaps
    trajectory: GramTrajectory
    residual: Float[Tensor, "prompt output"]
    cost: float

    @classmethod
    def at(
        cls, parametrisation: Parametrisation, prompts: Prompts, target: Tensor, weight: Tensor, theta: Tensor
    ) -> _Fit:
        layers = parametrisation.build(theta)
        trajectory = forward(layers, prompts.gram, prompts.query)
        residual = weight[:, None] * (target - prompts.read(trajectory.queries[-1]))
        cost = float((residual**2).sum())
        return cls(theta, layers, trajectory, residual, cost if cost == cost else float("inf"))

    def jacobian(
        self, parametrisation: Parametrisation, prompts: Prompts, weight: Float[Tensor, " prompt"]
    ) -> Float[Tensor, "prompt output parameter"]:
        sensed = _differentiate(self.layers, self.trajectory, prompts)
        rows = torch.cat([_design(parametrisation, layer, sensed) for layer in range(len(parametrisation.sizes))], -1)
        return weight[:, None, None] * rows


def _levenberg_marquardt(
    parametrisation: Parametrisation, prompts: Prompts, target: Tensor, weight: Tensor, start: Tensor, tolerance: float
) -> Estimate:
    """Until a step lowers the cost by less than ``tolerance`` (relative); fits that become exact go on to rounding."""
    power = float(((weight[:, None] * target) ** 2).sum())
    point, damping, steps, done = _Fit.at(parametrisation, prompts, target, weight, start), 1e-3, 0, False
    while True:
        jacobian = point.jacobian(parametrisation, prompts, weight)
        usable = bool(torch.isfinite(jacobian).all())
        if done or not usable or steps == MAX_STEPS or not point.cost > CONVERGED * power:
            break
        rows = jacobian.flatten(0, 1)
        scale = rows.norm(dim=0).clamp_min(1e-300)
        normal, gradient = (rows / scale).mT @ (rows / scale), (rows / scale).mT @ point.residual.flatten()
        following = point
        while damping < 1e8 and not following.cost < point.cost:
            step = torch.linalg.solve(normal + damping * torch.eye(len(scale), dtype=rows.dtype), gradient) / scale
            following = _Fit.at(parametrisation, prompts, target, weight, point.theta + step)
            damping = max(damping / 10, 1e-14) if following.cost < point.cost else damping * 4
        steps += 1
        exact = following.cost < 1e-9 * power
        done = not following.cost < point.cost * (1.0 if exact else 1.0 - tolerance)
        point = following if following.cost < point.cost else point
    if not usable:
        unknown = torch.full_like(point.theta, float("nan"))
        return Estimate(point.theta, unknown, (False,) * len(unknown), ((),) * len(unknown), 1.0, steps)
    local = least_squares(jacobian, point.residual, size=power**0.5)
    return Estimate(point.theta, local.stderr, local.determined, local.partners, point.cost / power, steps)
