"""Block-scalar layers fitted to a causal network: by what each map does to the prediction, and all numbers together.

For one functional f = sum_t <v_t, prediction_t> of a sequence, with V_t = d f / d (update of token t) in layer l,

    d f / d k[a, b, g, e] = s * sum_{j <= t} <V_t[a], e_j[b]> <e_j[g], e_t[e]> ,

so all c^4 derivatives are one product of two (c^2, pairs) matrices. Estimates as in ``interp.identify.estimates``:
"output" is a regression, one row per functional and a cluster per sequence, of the effect of the layer's real update on
those of the maps; the refit minimises the squared difference to the network's predictions in the numbers p_h[a, b],
q_h[e, g] of all layers, by Levenberg-Marquardt steps, with the exact gradient and a curvature from random functionals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from interp.algebra.channels import LiveChannels, block_weights
from interp.models.specification import ModelSpec
from interp.models.token_pass import Record, run
from interp.stats.least_squares import Estimate, least_squares
from interp.stats.levenberg_marquardt import Damping, Evaluated, Progress, Quadratic, Stopping, minimise

__all__ = [
    "BlockHeads",
    "Uncertainty",
    "free_numbers",
    "live_channels",
    "map_effects",
    "output_estimates",
    "refit_heads",
    "sense",
    "uncertainty",
]

GAUGE_ROUNDING = 1e-3  # a number that changes by this much (relative) from one gauge to another is rounding
FUNCTIONALS = 4  # per sequence
CURVATURE = 2  # functionals per sequence behind a step
STEPS = 8  # of Levenberg-Marquardt, at most
SMALL = 1e-2  # a step that lowers the cost by a smaller share is the last
EXACT = 1e-22  # share of the variance that rounding may leave
DAMPING = Damping(growth=6.0, acceleration=1.0, shrink=5.0, least=1e-9, most=1e6)
FLAT = 1e-10  # curvature below this share of the largest is none
LOOSE = 1e-3  # of the largest coefficient of a layer, per unit of a free direction


Tokens = Float[Tensor, "batch pos D"]
Outputs = Float[Tensor, "batch pos output"]
Heads = Float[Tensor, "layer head D D"]


@dataclass(frozen=True, eq=False)
class BlockHeads:
    """A block-scalar network: q, p are (layer, head, c, c)."""

    q: Float[Tensor, "layer head c c"]
    p: Float[Tensor, "layer head c c"]

    def weights(self, size: int) -> tuple[Heads, Heads]:
        """Q and P."""
        return block_weights(self.q, size), block_weights(self.p, size)

    @property
    def numbers(self) -> Float[Tensor, " number"]:
        return torch.cat([self.q.flatten(), self.p.flatten()])

    @property
    def k(self) -> Float[Tensor, "layer c c c c"]:
        return torch.einsum("lhab,lheg->labge", self.p, self.q)

    def predict(self, spec: ModelSpec, tokens: Tokens) -> Outputs:
        Q, P = self.weights(spec.tokens[0][1])
        return run(spec, {"Q": Q, "P": P}, tokens)

    @classmethod
    def of(cls, layers: Sequence[tuple[Tensor, Tensor]]) -> BlockHeads:
        """From (q, p) of every layer, each (head, c, c); heads that some layers lack are 0."""
        q, p = (pad_sequence(list(parts), batch_first=True) for parts in zip(*layers, strict=True))
        return cls(q, p)


@dataclass(frozen=True, eq=False)
class Sensed:
    """The tokens before the first layer and after every layer, the layers' updates (before the scale), and for every
    functional the derivative with respect to each update."""

    passage: list[Tokens]
    updates: list[Tokens]
    cotangents: list[list[Tokens]]  # [layer][functional]


def sense(spec: ModelSpec, Q: Heads, P: Heads, tokens: Tokens, functionals: Sequence[Outputs]) -> Sensed:
    """Run the network, and back from every functional."""
    record = Record("hook_resid_pre", "hook_attn_out", "hook_resid_post")
    read = run(spec, {"Q": Q, "P": P}, tokens.clone().requires_grad_(), at=record)
    updates, after = ([record[f"blocks.{layer}.{name}"] for layer in range(len(Q))] for name in record.wanted[1:])
    passage = [record["blocks.0.hook_resid_pre"], *after]
    scale = spec.attention.factor(tokens.shape[1])
    out: list[list[Tensor]] = [[] for _ in range(len(Q))]
    for index, functional in enumerate(functionals):
        more = index + 1 < len(functionals)
        grads = torch.autograd.grad((read * functional).sum(), after, retain_graph=more, materialize_grads=True)
        for layer, grad in enumerate(grads):
            value = scale * grad
            if spec.clip is not None:  # where a token meets the clip, its update has no say
                value = torch.where(after[layer].detach().abs() < spec.clip, value, 0.0)
            out[layer].append(value)
    return Sensed([x.detach() for x in passage], [update.detach() / (scale or 1.0) for update in updates], out)


def live_channels(spec: ModelSpec, Q: Heads, P: Heads, tokens: Tokens, size: int) -> LiveChannels:
    """Found from the network itself, on a few sequences, in two gauges: what differs between them is rounding."""
    generator = torch.Generator().manual_seed(0)  # any generic functional does; the result is a zero pattern
    width = spec.channel(spec.readout.channel).size
    seed = torch.randn(*tokens.shape[:2], width, generator=generator, dtype=tokens.dtype)
    one = sense(spec, Q, P, tokens, [seed])
    other = sense(spec, Q.flip(1) / 3.0, 3.0 * P.flip(1), tokens, [seed])

    def live(value: Tensor, again: Tensor) -> Bool[Tensor, " c"]:
        value, again = (x.unflatten(-1, (-1, size)).transpose(1, 2).flatten(2) for x in (value, again))
        norm = value.norm(dim=-1)
        change = torch.where(norm > 0, (value - again).norm(dim=-1) / norm, torch.inf)
        return change.nan_to_num(torch.inf).median(0).values < GAUGE_ROUNDING

    return LiveChannels(
        written=torch.stack([live(x[0], y[0]) for x, y in zip(one.cotangents, other.cotangents, strict=True)]),
        read=torch.stack([live(x, y) for x, y in zip(one.passage[:-1], other.passage[:-1], strict=True)]),
    )


def map_effects(tokens: Tokens, cotangent: Tokens, size: int) -> Float[Tensor, "batch c c c c"]:
    """d f / d k[a, b, g, e] of every sequence, the scale being in ``cotangent``."""
    E, V = (x.unflatten(-1, (-1, size)).transpose(1, 2) for x in (tokens, cotangent))  # (batch, c, pos, d)
    # Entries [t, j], kept for j <= t.
    written = torch.einsum("natd,nbjd->nabtj", V, E)
    scores = torch.einsum("netd,ngjd->ngetj", E, E).tril()
    return torch.einsum("nabp,ngep->nabge", written.flatten(-2), scores.flatten(-2))


def output_estimates(sensed: Sensed, live: LiveChannels, size: int) -> list[Estimate | None]:
    """Per layer the live coefficients, in the order of ``live.maps(layer)``; None where there is none."""
    out: list[Estimate | None] = []
    for layer, (tokens, update, cotangents) in enumerate(
        zip(sensed.passage, sensed.updates, sensed.cotangents, strict=False)  # the passage ends with the output
    ):
        mask = live.maps(layer)
        effect = torch.stack([(v * update).sum((1, 2)) for v in cotangents], 1)
        design = torch.stack([map_effects(tokens, v, size)[:, mask] for v in cotangents], 1)
        out.append(least_squares(design, effect) if bool(mask.any()) else None)
    return out


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """``stderr`` of k (sandwich, a cluster per sequence; NaN where the data do not fix the coefficient), and ``cost``:
    what the squared difference gains, to second order, without each number of (q, p), the others as they are, as a
    share of the variance of the predictions."""

    stderr: Float[Tensor, "layer c c c c"]
    cost_q: Float[Tensor, "layer head c c"]
    cost_p: Float[Tensor, "layer head c c"]


Free = tuple[Bool[Tensor, "layer head c c"], Bool[Tensor, "layer head c c"]]  # which of q and of p may move


def free_numbers(live: LiveChannels, heads: int) -> Free:
    """The numbers of (q, p) that have a say."""
    read, written = live.read[:, None, None, :], live.written[:, None, :, None]
    q = (live.read[:, None, :, None] & read).repeat(1, heads, 1, 1)
    return q, (written & read).repeat(1, heads, 1, 1)


def _free(free: Free) -> Bool[Tensor, " number"]:
    return torch.cat([part.flatten() for part in free])


def refit_heads(
    spec: ModelSpec, start: BlockHeads, free: Free, tokens: Tokens, target: Outputs, seed: int, steps: int = STEPS
) -> BlockHeads:
    """Minimise the weighted |prediction - target|^2 over the free numbers; the others are 0."""
    generator = torch.Generator().manual_seed(seed)
    keep, root = _free(free), _influence(target).sqrt()[:, None, None]
    power = float((root * (target - target.mean((0, 1)))).square().sum())

    def heads(theta: Tensor) -> BlockHeads:
        q, p = torch.zeros(len(keep), dtype=theta.dtype).masked_scatter(keep, theta).chunk(2)
        return BlockHeads(q.view_as(start.q), p.view_as(start.p))

    def objective(theta: Tensor) -> Evaluated:
        now = heads(theta)
        residual = root * (now.predict(spec, tokens) - target)
        value = 0.5 * float(residual.square().sum())

        def quadratic() -> Quadratic:
            """The exact gradient, and a curvature from random functionals."""
            functionals = [root * f for f in _functionals(target, CURVATURE, generator)]
            rows, scores = _rows(spec, now, tokens, functionals, root * residual)
            rows = rows[:, keep]
            return Quadratic(scores.sum(0)[keep], rows.T @ rows / CURVATURE)

        return Evaluated(value if value == value else float("inf"), quadratic)

    begun = Progress(theta=start.numbers[keep], damping=1e-3, growth=DAMPING.growth)
    stopping = Stopping(iterations=steps, tolerance=SMALL, zero=0.5 * EXACT * power)
    return heads(minimise(objective, begun, stopping, DAMPING).theta)


def _influence(target: Outputs) -> Float[Tensor, " batch"]:
    """Weights min(1, (median size / size)^2) of sequences: predictions are polynomials of high degree in the states, so
    a few sequences would outweigh all others. They do not look at the residuals."""
    size = target.square().sum((1, 2))
    return (size.median() / size.clamp_min(1e-300)).clamp(max=1.0).nan_to_num(0.0)


def _functionals(like: Tensor, count: int, generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(like.shape, generator=generator, dtype=like.dtype) for _ in range(count)]


def _rows(
    spec: ModelSpec, heads: BlockHeads, tokens: Tokens, functionals: Sequence[Outputs], residual: Outputs
) -> tuple[Float[Tensor, "row number"], Float[Tensor, "batch number"]]:
    """Derivatives in (q, p) of the functionals, one row per functional and sequence, and of half the squared
    residual."""
    size = spec.tokens[0][1]
    sensed = sense(spec, *heads.weights(size), tokens, [*functionals, residual])
    q_rows, p_rows = [], []
    for layer, cotangents in enumerate(sensed.cotangents):
        effects = torch.stack([map_effects(sensed.passage[layer], v, size) for v in cotangents])
        q_rows.append(torch.einsum("fnabge,hab->fnheg", effects, heads.p[layer]).flatten(2))
        p_rows.append(torch.einsum("fnabge,heg->fnhab", effects, heads.q[layer]).flatten(2))
    rows = torch.cat([*q_rows, *p_rows], -1)
    return rows[:-1].flatten(0, 1), rows[-1]


def uncertainty(
    spec: ModelSpec, heads: BlockHeads, free: Free, tokens: Tokens, target: Outputs, seed: int
) -> Uncertainty:
    """At ``heads``, fitted or not."""
    keep = _free(free)
    functionals = _functionals(target, FUNCTIONALS, torch.Generator().manual_seed(seed))
    rows, scores = _rows(spec, heads, tokens, functionals, heads.predict(spec, tokens) - target)
    rows, scores = rows[:, keep], scores[:, keep]
    curvature = rows.T @ rows / FUNCTIONALS
    values, vectors = torch.linalg.eigh(curvature)
    # Directions that do not move the predictions, such as p -> 2 p, q -> q / 2: they do not move k, or k is not fixed.
    fixed = values > FLAT * values.max()
    inverse = (vectors * torch.where(fixed, 1.0 / values.clamp_min(1e-300), 0.0)) @ vectors.T
    shape = heads.q.shape

    def in_k(numbers: Float[Tensor, "row number"]) -> Float[Tensor, "layer c c c c"]:
        """The norm, over the rows, of what these changes of the free numbers do to k."""
        full = numbers.new_zeros(len(numbers), len(keep))
        full[:, keep] = numbers
        dq, dp = (x.reshape(-1, *shape) for x in full.chunk(2, -1))
        dk = torch.einsum("nlhab,lheg->nlabge", dp, heads.q) + torch.einsum("lhab,nlheg->nlabge", heads.p, dq)
        return dk.square().sum(0).sqrt()

    sizes = heads.k.abs().flatten(1).amax(-1)[:, None, None, None, None]
    stderr = torch.where(in_k(vectors.T[~fixed]) > LOOSE * sizes, torch.nan, in_k(scores @ inverse))
    cost = torch.zeros(len(keep), dtype=rows.dtype)
    cost[keep] = heads.numbers[keep] ** 2 * curvature.diagonal()
    cost_q, cost_p = (cost / float((target - target.mean((0, 1))).square().sum())).chunk(2)
    return Uncertainty(stderr, cost_q.view(shape), cost_p.view(shape))
