"""revalg: block-scalar heads, P_h = p_h (x) I and Q_h = q_h (x) I on tokens of channels of one size (RevAlg-d).

    e_t[a] <- e_t[a] + s sum_{b, g, e} k[a, b, g, e] sum_{j <= t} e_j[b] <e_j[g], e_t[e]>,   k = sum_h p_h[a,b] q_h[e,g]

Source: von Oswald et al., arXiv 2309.05858. The numbers are those of the weights' projection where that explains the
network, else refitted to its predictions. Fidelity is that of what the network adds to its input, so that tokens that
start with a good guess (W_0 s_t) explain nothing by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.channels import (
    ChannelProjection,
    LiveChannels,
    block_means,
    block_weights,
    channel_size,
    heads_of,
    project_channels,
)
from interp.errors import LayoutError
from interp.families.channel_heads import BlockHeads, free_numbers, live_channels, refit_heads
from interp.families.gradient_step import GradientStep, step_sentence
from interp.families.recovered_sequences import recovered_heads
from interp.identify.course import CourseFit
from interp.identify.family import Family, Fit, register_family
from interp.identify.networks import CausalSequences
from interp.identify.networks.causal_sequences import predict_in_chunks
from interp.identify.run import Run
from interp.identify.score import EXACT, NEGLIGIBLE, bootstrap_fidelity
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import Prompts
from interp.results import RecoveredAlgorithm

__all__ = ["BlockScalarFit", "run_heads"]

FEW = 64  # sequences enough for a zero pattern
REFITTED = 256  # sequences that the numbers of the heads are fitted to
FOLLOWED = 512  # sequences on which it is followed layer by layer
ENOUGH = 0.01  # share of the variance that needs no refit


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockScalarFit(Fit):
    """``heads`` run in the network's place; ``how`` they were found ("weights" or "refit"). ``published`` are the block
    means of the network's own heads."""

    live: LiveChannels
    projections: tuple[ChannelProjection, ...]
    heads: BlockHeads
    how: str
    published: BlockHeads


def run_heads(spec: ModelSpec, heads: BlockHeads, prompts: Prompts) -> Float[Tensor, "sequence pos dim"]:
    """The predictions of a block-scalar network."""
    Q, P = (block_weights(value, channel_size(spec)) for value in (heads.q, heads.p))
    return predict_in_chunks(spec, Q, P, *prompts.inputs(spec))


def _predictions(spec: ModelSpec, heads: BlockHeads, prompts: Prompts) -> Float[Tensor, "sequence output"]:
    return run_heads(spec, heads, prompts).flatten(1)


class BlockScalarFamily(Family):
    name = "revalg"
    contains = frozenset({"gradient step"})
    turn = 4
    formula = "e[a] ← e[a] + Σ k[a, b, g, e] Σ_j e_j[b] ⟨e_j[g], e[e]⟩, block-scalar heads,"

    def applies(self, run: Run) -> Skipped | None:
        if not isinstance(run.network, CausalSequences):
            return run.network.skipped or Skipped("its tokens are no causal sequence")
        try:
            channel_size(run.spec)
        except LayoutError as error:
            return Skipped(str(error))
        return None

    def fit(self, run: Run, fits: Sequence[Fit]) -> Fit | Skipped:
        network, model, spec = run.network, run.model, run.spec
        assert isinstance(network, CausalSequences)  # it applies
        size, fitted = channel_size(spec), network.fitted
        live = live_channels(spec, model.Q, model.P, fitted.tokens[:FEW], size)
        projections = tuple(
            project_channels(P, Q, size, live.maps(layer))
            for layer, (P, Q) in enumerate(zip(model.P, model.Q, strict=True))
        )
        published = BlockHeads(block_means(model.Q, size), block_means(model.P, size))
        heads, how = BlockHeads.of([heads_of(projection.k) for projection in projections]), "weights"
        free = free_numbers(live, model.heads)
        counted = int(free[0].sum() + free[1].sum())
        numbers = min(int(sum(live.maps(layer).sum() for layer in range(model.layers))), counted)
        if fitted.unexplained(run_heads(spec, heads, fitted.drawn)) > ENOUGH:
            # Fitted to some of the sequences, and kept if it is better on the others of this half.
            count = min(REFITTED, fitted.drawn.count // 2)
            first, others = fitted[slice(0, count)], fitted[slice(count, None)]
            refit = refit_heads(spec, published, free, first.tokens, first.outputs, run.seeds.intervals)
            left = [others.unexplained(run_heads(spec, found, others.drawn)) for found in (refit, heads)]
            if left[0] < left[1]:
                heads, how, numbers = refit, "refit", counted
        held_out = network.held_out
        prediction = _predictions(spec, heads, held_out.drawn)
        return BlockScalarFit(
            family=self,
            parameters=numbers,
            score=held_out.score(prediction, run.seeds.intervals),
            prediction=prediction,
            predict=partial(_predictions, spec, heads),
            also={"published": ("block means of each head (published)", partial(_predictions, spec, published))},
            live=live,
            projections=projections,
            heads=heads,
            how=how,
            published=published,
        )

    def course(self, fit: Fit, run: Run) -> CourseFit | None:
        """Its heads in the network's place, with the numbers that they have: what the tokens add to their guess after
        every layer, at all positions."""
        network = run.network
        assert isinstance(fit, BlockScalarFit) and isinstance(network, CausalSequences)
        if not run.model.layers > 1:
            return None
        drawn = network.held_out.drawn[slice(0, FOLLOWED)]
        Q, P = fit.heads.weights(channel_size(run.spec))
        alone = replace(network, model=replace(run.model, Q=Q, P=P))
        own, its = network.readouts(drawn), alone.readouts(drawn)
        names = [f"layer-{layer + 1}" for layer in range(run.model.layers)]
        added = [(its[name] - own["layer-0"], own[name] - own["layer-0"]) for name in names]
        scores = [bootstrap_fidelity(mine, network, run.seeds.intervals) for mine, network in added]
        if any(score.fidelity is None for score in scores):
            return None
        left = [(mine - real).square().sum(1) / (real - real.mean(0)).square().sum() for mine, real in added]
        return CourseFit(
            r2=tuple(score.fidelity or 0.0 for score in scores), intervals=tuple(s.interval for s in scores),
            left=len(left[0]) * torch.stack(left),
        )  # fmt: skip

    def remark(self, fit: Fit, fits: Sequence[Fit]) -> str:
        steps = [other for other in fits if isinstance(other.family, GradientStep) and other.recognized]
        step = next((s for s in steps if s.score.unexplained < EXACT), steps[0] if steps else None)
        return "" if step is None else step_sentence(step)

    def improves(self, own: Fit, other: Fit, end: int = 0) -> bool:
        """It contains the step of gradient descent, and has the further terms of a network that is not one exactly."""
        return not (other.score.unexplained < EXACT and own.score.unexplained > NEGLIGIBLE)

    def preferred(self, own: Fit, other: Fit) -> str:
        return "close to one step of gradient descent; revalg, which contains it, has the network's further terms"

    def recovered(self, fit: Fit, run: Run) -> RecoveredAlgorithm:
        assert isinstance(fit, BlockScalarFit)  # what ``fit`` returns
        return recovered_heads(fit, run)


register_family(BlockScalarFamily())
