"""The course of a network: where it stands after every layer, and a family fitted to that (the trajectory estimate).

After layer l a prompt's read-out is a linear map W^l of a token's input: the label coordinate of a token that enters as
(x, 0) is W^l x = -<w^l, x>, with w^l the implicit weights (``interp.algebra.unrolling``). A family with numbers theta,
T_l - r I = s sum_k theta[l, k] B_k(G), has a course of its own, and theta is fitted to all layers at once:

    min over theta   sum_l  sum_prompts  b_l^2 |W^l_theta - W^l|^2 / max(E|W^l|^2, FLOOR max_m E|W^m|^2)

b_l = min(1, BOUND m / |W^l|), m the median of |W^l| over prompts, so no prompt outweighs the others. The fit starts at
the weights' own numbers theta_0. After a first fit to a part of the prompts ANCHOR sum_k h_k (theta_k - theta_0k)^2 is
added, h_k the curvature there: along directions that the data leave open (two steps that trade off) it stays near the
weights, and elsewhere ANCHOR is too small to matter. It knows what the output alone does not: which step comes when.

With tangents in forward mode: an entry of theta in layer l moves T_l by s B_k(G), and every later layer by its update
of the moved Gram matrix, which is linear in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identify.estimates import CONVERGED, DAMPING, NEARLY, Parametrisation
from interp.models.gram import LayerMaps
from interp.stats.bootstrap import Interval, bootstrap
from interp.stats.least_squares import Estimate, least_squares
from interp.stats.levenberg_marquardt import Progress, Quadratic, Stopping, minimise

__all__ = ["Course", "CourseFit", "affordable", "course_of", "follow"]

BOUND = 2.0  # times the median: the size of a read-out from which a prompt counts less
FLOOR = 0.01  # of the largest layer's mean square: a read-out that hardly moves is judged by this
ANCHOR = 1e-3  # of the curvature of a coefficient alone: the pull of the weights
MAX_STEPS = 40
OPERATIONS = 1e9  # floating point operations of all tangents once through the layers, about a second
FEWEST, MOST = 64, 512  # prompts of a fit
ROWS_PER_PARAMETER = 4


@dataclass(frozen=True, eq=False)
class Course:
    """``readouts[l]`` is W^{l+1}, the read-out after layer l, of every prompt; ``scale[l]`` what an error there is
    measured against, and ``weight[l]`` how much each prompt counts."""

    gram: Float[Tensor, "prompt D D"]
    inputs: tuple[int, ...]
    label: tuple[int, ...]
    readouts: tuple[Float[Tensor, "prompt label input"], ...]
    weight: tuple[Float[Tensor, " prompt"], ...]
    scale: tuple[float, ...]

    @property
    def prompts(self) -> int:
        return len(self.gram)

    def first(self, count: int) -> Course:
        cut = tuple(tuple(part[:count] for part in parts) for parts in (self.readouts, self.weight))
        return replace(self, gram=self.gram[:count], readouts=cut[0], weight=cut[1])

    @property
    def moves(self) -> bool:
        """Does the read-out move at all?"""
        return max(self.scale) > 0


def course_of(
    network: LayerMaps, gram: Float[Tensor, "prompt D D"], inputs: Sequence[int], label: Sequence[int]
) -> Course:
    """The course of a network over prompts of these Gram matrices; ``inputs`` and ``label`` are the coordinates of
    a token."""
    readouts = tuple(_readouts(_passed(network, gram, inputs)[0], label))
    sizes = [w.flatten(1).norm(dim=1) for w in readouts]
    weight = tuple((BOUND * s.median() / s.clamp_min(1e-300)).clamp(max=1.0) for s in sizes)
    power = [float((b * s).square().mean()) for b, s in zip(weight, sizes, strict=True)]
    scale = tuple(max(p, FLOOR * max(power)) for p in power)
    return Course(gram, tuple(inputs), tuple(label), readouts, weight, scale)


def affordable(parametrisation: Parametrisation, width: int, prompts: int) -> int:
    """How many prompts a fit is made on; 0 when they are too few for its numbers."""
    parameters, layers = sum(parametrisation.sizes), len(parametrisation.sizes)
    each = 6.0 * max(parameters, 1) * max(layers, 1) / 2 * width**3
    count = min(prompts, MOST, max(FEWEST, int(OPERATIONS / each)))
    return count if count * layers * width >= ROWS_PER_PARAMETER * parameters else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class CourseFit:
    """After every layer the R^2 of a family's read-outs for the network's on prompts that were not fitted, each with a
    95 % interval; ``fit``: its numbers by the trajectory estimate, None where it is followed with those it has."""

    fit: Estimate | None = None
    r2: tuple[float, ...]
    intervals: tuple[Interval, ...]

    @property
    def worst(self) -> float:
        return min(self.r2)


def follow(
    parametrisation: Parametrisation, network: Course, held_out: Course, starts: Sequence[Tensor], seed: int
) -> CourseFit:
    """Fit ``parametrisation`` to the course of a network from the best of ``starts``, the first of which are the
    weights' own numbers, and score it on ``held_out``."""
    power = sum(
        float((b[:, None, None] * w).square().sum()) / s
        for b, w, s in zip(network.weight, network.readouts, network.scale, strict=True)
    )
    stopping = Stopping(iterations=MAX_STEPS, tolerance=1e-3, zero=0.5 * CONVERGED * power, exact=0.5 * NEARLY * power)
    part = network.first(max(FEWEST, network.prompts // 4))
    free = torch.zeros_like(starts[0])
    match = _Match(parametrisation, part, starts[0], free)
    start = min(starts, key=lambda theta: match(theta).value)
    end = minimise(match, Progress(theta=start, damping=1e-3, growth=DAMPING.growth), stopping, DAMPING)
    curvature = match(end.theta).jacobian.flatten(1).square().sum(1) * (network.prompts / part.prompts)
    match = _Match(parametrisation, network, starts[0], ANCHOR * curvature)
    start = min((starts[0], end.theta), key=lambda theta: match(theta).value)
    end = minimise(match, Progress(theta=start, damping=1e-3, growth=DAMPING.growth), stopping, DAMPING)
    point = match(end.theta)
    rows = point.jacobian.flatten(2).permute(1, 2, 0)
    local = least_squares(rows, point.residual.flatten(1), size=power**0.5)
    fit = Estimate(
        end.theta, local.stderr, local.determined, local.partners, 2 * point.value / max(power, 1e-300), end.iteration
    )
    followed = _readouts(_passed(parametrisation.build(end.theta), held_out.gram, held_out.inputs)[0], held_out.label)
    scores = [_explained(held_out, layer, w, seed) for layer, w in enumerate(followed)]
    return CourseFit(fit=fit, r2=tuple(s[0] for s in scores), intervals=tuple(s[1] for s in scores))


def _explained(held_out: Course, layer: int, followed: Tensor, seed: int) -> tuple[float, Interval]:
    weight, scale = held_out.weight[layer], held_out.scale[layer]
    error = (weight[:, None] * (followed - held_out.readouts[layer]).flatten(1)).square().sum(1) / scale
    if not bool(error.isfinite().all()):
        return float("-inf"), (None, None)
    value, interval = bootstrap(lambda e, n: 1.0 - e / n, error, torch.ones_like(error), seed=seed).at()
    return float("-inf") if value is None else value, interval


def _passed(
    layers: LayerMaps, gram: Float[Tensor, "prompt D D"], inputs: Sequence[int]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """What enters as x after 0, 1, ..., L layers, one column for every input; the Gram matrix before every layer, and
    the maps T."""
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype)
    states = [identity[:, list(inputs)].expand(gram.shape[0], -1, -1)]
    grams, maps = [], []
    for layer in range(layers.layers):
        T = layers.residual * identity + layers.update(layer, gram)
        grams.append(gram)
        maps.append(T)
        states.append(T @ states[-1])
        gram = T @ gram @ T.mT
    return states, grams, maps


def _readouts(states: Sequence[Tensor], label: Sequence[int]) -> list[Tensor]:
    return [state[:, list(label)] for state in states[1:]]


@dataclass(frozen=True, eq=False)
class _Match:
    """Half of the sum above, as an objective, with a pull towards an anchor."""

    parametrisation: Parametrisation
    target: Course
    anchor: Float[Tensor, " parameter"]
    pull: Float[Tensor, " parameter"]

    def __call__(self, theta: Tensor) -> _Point:
        layers, target = self.parametrisation.build(theta), self.target
        passed = _passed(layers, target.gram, target.inputs)
        left = [
            b[:, None, None] / s**0.5 * (w - own)
            for b, s, w, own in zip(
                target.weight, target.scale, target.readouts, _readouts(passed[0], target.label), strict=True
            )
        ]
        residual = torch.stack(left, 1)
        value = 0.5 * float(residual.square().sum() + (self.pull * (theta - self.anchor).square()).sum())
        return _Point(self, theta, layers, passed, residual, value if value == value else float("inf"))


@dataclass(frozen=True, eq=False)
class _Point:
    match: _Match
    theta: Float[Tensor, " parameter"]
    layers: LayerMaps
    passed: tuple[list[Tensor], list[Tensor], list[Tensor]]
    residual: Float[Tensor, "prompt layer label input"]
    value: float

    @cached_property
    def jacobian(self) -> Float[Tensor, "parameter prompt layer label input"]:
        return _tangents(self.match.parametrisation, self.layers, self.passed, self.match.target)

    def quadratic(self) -> Quadratic:
        rows, pull = self.jacobian.flatten(1), self.match.pull
        back = pull * (self.theta - self.match.anchor)
        return Quadratic(back - rows @ self.residual.flatten(), rows @ rows.mT + torch.diag(pull))


def _tangents(
    parametrisation: Parametrisation, layers: LayerMaps, passed: tuple[list[Tensor], ...], target: Course
) -> Float[Tensor, "parameter prompt layer label input"]:
    """Derivatives of the weighted read-outs after every layer by every number of ``parametrisation``, where what
    follows a layer are ``layers``, passed as ``passed`` says."""
    (states, grams, maps), sizes = passed, parametrisation.sizes
    prompts, parameters = states[0].shape[0], sum(sizes)
    shape = parameters, prompts, len(sizes), len(target.label), len(target.inputs)
    out = torch.zeros(shape, dtype=states[0].dtype)
    known, one = 0, torch.eye(parameters, dtype=states[0].dtype)
    moved_state, moved_gram = (part.new_zeros(0, *part.shape) for part in (states[0], grams[0]))
    for layer, size in enumerate(sizes):
        T, G, C = maps[layer], grams[layer], states[layer]
        own = [parametrisation.build(one[known + k]).update(layer, G)[None] for k in range(size)]
        moved_map = torch.cat([layers.update(layer, moved_gram.flatten(0, 1)).view_as(moved_gram), *own])
        moved_state = torch.cat([moved_state, moved_map.new_zeros(size, *C.shape)])
        moved_gram = torch.cat([moved_gram, moved_map.new_zeros(size, *G.shape)])
        moved_state = moved_map @ C + T @ moved_state
        turned = moved_map @ G @ T.mT
        moved_gram = turned + turned.mT + T @ moved_gram @ T.mT
        known += size
        factor = target.weight[layer][:, None, None] / target.scale[layer] ** 0.5
        out[:known, :, layer] = factor * moved_state[:, :, list(target.label)]
    return out
