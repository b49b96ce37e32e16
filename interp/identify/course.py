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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.identify.estimates import CONVERGED, DAMPING, NEARLY, Parametrisation
from interp.identify.score import EXPLODED
from interp.models.gram import GramTrajectory, LayerMaps, forward
from interp.stats.averages import mean_with_error
from interp.stats.bootstrap import Interval, bootstrap, error_and_bound
from interp.stats.least_squares import Estimate, least_squares
from interp.stats.levenberg_marquardt import Evaluated, Progress, Quadratic, Stopping, minimise

__all__ = ["Course", "CourseFit", "affordable", "course_of", "follow"]

BOUND = 2.0  # times the median: the size of a read-out from which a prompt counts less
FLOOR = 0.01  # of the largest layer's mean square: a read-out that hardly moves is judged by this
ANCHOR = 1e-3  # of the curvature of a coefficient alone: the pull of the weights
MAX_STEPS = 40
OPERATIONS = 1e9  # floating point operations of all tangents once through the layers, about a second
FEWEST, MOST = 64, 512  # prompts of a fit
CHUNK = 2048  # prompts that are followed at a time
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

    def factor(self, layer: int) -> Float[Tensor, "prompt 1 1"]:
        """By which an error after this layer is multiplied."""
        return self.weight[layer][:, None, None] / self.scale[layer] ** 0.5

    def first(self, count: int) -> Course:
        cut = tuple(tuple(part[:count] for part in parts) for parts in (self.readouts, self.weight))
        return replace(self, gram=self.gram[:count], readouts=cut[0], weight=cut[1])


def course_of(
    network: LayerMaps, gram: Float[Tensor, "prompt D D"], inputs: Sequence[int], label: Sequence[int]
) -> Course:
    """The course of a network over prompts of these Gram matrices; ``inputs`` and ``label`` are the coordinates of
    a token."""
    readouts = tuple(_readouts(network, gram, inputs, label))
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
    95 % interval; ``left`` is what every prompt adds to 1 - R^2, times their number. ``fit``: its numbers by the
    trajectory estimate, None where it is followed with those it has."""

    fit: Estimate | None = None
    r2: tuple[float, ...]
    intervals: tuple[Interval, ...]
    left: Float[Tensor, "layer prompt"]

    @property
    def worst(self) -> float:
        return min(self.r2)

    def gain(self, other: CourseFit, end: int) -> float:
        """How much higher the R^2 is than another's (0), each at its worst layer, or two standard errors below (-1) or
        above (1) of the difference on the same prompts."""
        one, two = (fit.left[min(range(len(fit.r2)), key=lambda layer: fit.r2[layer])] for fit in (self, other))
        value, error = self.worst - other.worst, mean_with_error(two - one)[1] or 0.0
        return value + 2 * end * error


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
    curvature = match.at(end.theta)[2]().flatten(1).square().sum(1) * (network.prompts / part.prompts)
    match = _Match(parametrisation, network, starts[0], ANCHOR * curvature)
    start = min((starts[0], end.theta), key=lambda theta: match(theta).value)
    end = minimise(match, Progress(theta=start, damping=1e-3, growth=DAMPING.growth), stopping, DAMPING)
    value, left, jacobian = match.at(end.theta)
    local = least_squares(jacobian().flatten(2).permute(1, 2, 0), left.flatten(1), size=power**0.5)
    fit = Estimate(
        end.theta, local.stderr, local.determined, local.partners, 2 * value / max(power, 1e-300), end.iteration
    )
    followed = _readouts(parametrisation.build(end.theta), held_out.gram, held_out.inputs, held_out.label)
    left = torch.stack([_left(held_out, layer, w) for layer, w in enumerate(followed)])
    found = bootstrap(lambda e, n: 1.0 - e / n[:, None], left.T, torch.ones_like(left[0]), seed=seed)
    scores = [found.at(layer) for layer in range(len(left))]
    r2 = tuple(float("-inf") if value is None else value for value, _ in scores)
    return CourseFit(fit=fit, r2=r2, intervals=tuple(ends for _, ends in scores), left=left)


def _left(held_out: Course, layer: int, followed: Tensor) -> Float[Tensor, " prompt"]:
    weight, scale = held_out.weight[layer], held_out.scale[layer]
    error, bound = error_and_bound(followed.flatten(1), held_out.readouts[layer].flatten(1), weight, EXPLODED)
    return torch.minimum(error, bound) / scale


def _passage(layers: LayerMaps, gram: Float[Tensor, "prompt D D"], inputs: Sequence[int]) -> GramTrajectory:
    """The pass of tokens with a 1 in one input each."""
    units = torch.eye(gram.shape[-1], dtype=gram.dtype)[list(inputs)]
    return forward(layers, gram, units.expand(gram.shape[0], -1, -1))


def _readouts(
    layers: LayerMaps, gram: Float[Tensor, "prompt D D"], inputs: Sequence[int], label: Sequence[int]
) -> list[Float[Tensor, "prompt label input"]]:
    """After every layer."""
    parts = [_read(_passage(layers, part, inputs), label) for part in gram.split(CHUNK)]
    return [torch.cat(layer) for layer in zip(*parts, strict=True)]


def _read(passage: GramTrajectory, label: Sequence[int]) -> list[Float[Tensor, "prompt label input"]]:
    return [tokens[..., list(label)].mT for tokens in passage.queries[1:]]


@dataclass(frozen=True, eq=False)
class _Match:
    """Half of the sum above, as an objective, with a pull towards an anchor."""

    parametrisation: Parametrisation
    target: Course
    anchor: Float[Tensor, " parameter"]
    pull: Float[Tensor, " parameter"]

    def __call__(self, theta: Tensor) -> Evaluated:
        value, left, jacobian = self.at(theta)

        def quadratic() -> Quadratic:
            rows, back = jacobian().flatten(1), self.pull * (theta - self.anchor)
            return Quadratic(back - rows @ left.flatten(), rows @ rows.mT + torch.diag(self.pull))

        return Evaluated(value if value == value else float("inf"), quadratic)

    def at(self, theta: Tensor) -> tuple[float, Float[Tensor, "prompt layer label input"], Callable[[], Tensor]]:
        """The value, what is left of the read-outs, and their derivatives, both weighted."""
        layers, target = self.parametrisation.build(theta), self.target
        passage = _passage(layers, target.gram, target.inputs)
        own = _read(passage, target.label)
        left = torch.stack([target.factor(k) * (w - own[k]) for k, w in enumerate(target.readouts)], 1)
        value = 0.5 * float(left.square().sum() + (self.pull * (theta - self.anchor).square()).sum())
        return value, left, lambda: _tangents(self.parametrisation, layers, passage, target)


def _tangents(
    parametrisation: Parametrisation, layers: LayerMaps, passage: GramTrajectory, target: Course
) -> Float[Tensor, "parameter prompt layer label input"]:
    """Derivatives of the weighted read-outs after every layer by every number of ``parametrisation``."""
    sizes, parameters = parametrisation.sizes, sum(parametrisation.sizes)
    first, gram = passage.queries[0].mT, passage.grams[0]
    out = gram.new_zeros(parameters, target.prompts, len(sizes), len(target.label), len(target.inputs))
    known, one = 0, torch.eye(parameters, dtype=gram.dtype)
    moved_state, moved_gram = first.new_zeros(0, *first.shape), gram.new_zeros(0, *gram.shape)
    for layer, size in enumerate(sizes):
        T, G, C = passage.maps[layer], passage.grams[layer], passage.queries[layer].mT
        own = [parametrisation.build(one[known + k]).update(layer, G)[None] for k in range(size)]
        moved_map = torch.cat([layers.update(layer, moved_gram.flatten(0, 1)).view_as(moved_gram), *own])
        moved_state = torch.cat([moved_state, moved_map.new_zeros(size, *C.shape)])
        moved_gram = torch.cat([moved_gram, moved_map.new_zeros(size, *G.shape)])
        moved_state = moved_map @ C + T @ moved_state
        turned = moved_map @ G @ T.mT
        moved_gram = turned + turned.mT + T @ moved_gram @ T.mT
        known += size
        out[:known, :, layer] = target.factor(layer) * moved_state[:, :, list(target.label)]
    return out
