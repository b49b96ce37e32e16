"""How well a causal network, and what was recovered from it, predict the next state, beside classical solvers.

Losses are half the squared error, summed over coordinates, averaged over positions (von Oswald et al., arXiv
2309.05858); all predictors on the same fresh sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.channels import block_weights, channel_size
from interp.evidence.question import with_error
from interp.evidence.sparse_heads import costs, dearest
from interp.families.block_scalar import BlockScalarFit, run_heads
from interp.families.channel_heads import BlockHeads, Uncertainty, free_numbers
from interp.identify.losses import Losses
from interp.identify.networks import SequenceHalf
from interp.identify.networks.causal_sequences import predict_in_chunks
from interp.identify.run import Run
from interp.models.specification import ModelSpec
from interp.models.token_pass import states
from interp.models.transformer import LinearTransformer
from interp.results import Compression, Interpolated, MesaObjective, RankedNumber, SequenceLoss
from interp.solvers.next_state import Pairs
from interp.stats.averages import mean_with_error, ratio_with_error

__all__ = ["blends", "compressions", "half_losses", "objectives", "ranked", "shown_positions"]

KEPT = (1.0, 0.5, 0.25, 0.125)  # shares of a head's numbers in the table of compressions
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_RANKED = 24
OBJECTIVE_SEQUENCES = 128


def shown_positions(context: int) -> tuple[int, ...]:
    """Few positions, dense where a sequence is short."""
    wanted = (0, 1, 2, 5, 10, 20, 30, 49, 99, 199, context - 1)
    return tuple(sorted({place for place in wanted if place < context}))


def half_losses(losses: Losses, positions: Sequence[int]) -> tuple[SequenceLoss, ...]:
    """Half of the errors, by position; without the read-outs after single layers."""
    rows = []
    for name, label in losses.labels.items():
        if name.startswith("layer-"):
            continue
        errors = 0.5 * losses.errors[name]
        loss = with_error("loss", mean_with_error(errors.mean(1)), "stderr")
        at = tuple(mean_with_error(errors[:, place])[0] for place in positions)
        rows.append(SequenceLoss(name=name, label=label, by_position=at, **loss))
    return tuple(sorted(rows, key=lambda row: -row.loss if row.loss is not None else float("-inf")))


def compressions(run: Run, fit: BlockScalarFit) -> tuple[Compression, ...]:
    """The network replaced by the published block means, all of them and those that cost most on the fitted sequences,
    and by the recovered heads; on the held-out sequences."""
    fitted, half, published = run.network.fitted, run.network.held_out, fit.published
    assert isinstance(fitted, SequenceHalf) and isinstance(half, SequenceHalf)  # as of every such fit
    target = half.drawn.target
    own = 0.5 * (half.outputs - target).square().sum(-1).mean(1)
    many, each = run.model.layers * run.model.heads, 2 * published.q.shape[-1] ** 2
    free = free_numbers(fit.live, run.model.heads)
    priced = costs(run.spec, published, free, fitted, run.seeds.adaptation)
    entries = []
    for share in KEPT:
        few, _ = dearest(published, priced, round(share * each * many))
        entries.append(("published", few.heads, few.numbers, each * share))
    entries.append((fit.how, fit.heads, fit.parameters, fit.parameters / many))
    out = []
    for kind, candidate, count, per_head in entries:
        prediction = run_heads(run.spec, candidate, half.drawn)
        losses = 0.5 * (prediction - target).square().sum(-1).mean(1)
        left = half.unexplained(prediction)
        out.append(
            Compression(
                kind=kind,
                numbers_per_head=per_head,
                numbers=count,
                **with_error("loss", mean_with_error(losses), "stderr"),
                **with_error("ratio", ratio_with_error(losses, own), "ratio_stderr"),
                fidelity=1.0 - left if left < float("inf") else None,
            )
        )
    return tuple(out)


def blends(run: Run, fit: BlockScalarFit) -> tuple[Interpolated, ...]:
    """The loss along (1 - alpha) network + alpha block means, in the products Q and P of every head."""
    model, half = run.model, run.network.held_out
    assert isinstance(half, SequenceHalf)
    Q, P = (block_weights(value, channel_size(run.spec)) for value in (fit.published.q, fit.published.p))
    rows = []
    for alpha in ALPHAS:
        mixed_Q, mixed_P = (1.0 - alpha) * model.Q + alpha * Q, (1.0 - alpha) * model.P + alpha * P
        prediction = predict_in_chunks(run.spec, mixed_Q, mixed_P, half.tokens)
        losses = 0.5 * (prediction - half.drawn.target).square().sum(-1).mean(1)
        rows.append(Interpolated(alpha=alpha, **with_error("loss", mean_with_error(losses), "stderr")))
    return tuple(rows)


def ranked(spec: ModelSpec, heads: BlockHeads, priced: Uncertainty) -> tuple[RankedNumber, ...]:
    """The numbers that cost most to do without, dearest first."""
    names = [name for name, _ in spec.tokens]
    entries = []
    for matrix, each, values, join in (("Q", priced.cost_q, heads.q, "·"), ("P", priced.cost_p, heads.p, "<-")):
        for place in torch.nonzero(each > 0).tolist():
            layer, head, row, column = place
            cost, value = float(each[tuple(place)]), float(values[tuple(place)])
            entry = f"{names[row]} {join} {names[column]}"
            entries.append(RankedNumber(layer=layer, head=head, matrix=matrix, entry=entry, value=value, cost=cost))
    return tuple(sorted(entries, key=lambda entry: -entry.cost)[:MOST_RANKED])


@torch.no_grad()
def objectives(
    model: LinearTransformer, half: SequenceHalf, query: int, positions: Sequence[int]
) -> tuple[MesaObjective, ...]:
    """The mesa-objective of the implicit W and the condition number of A_t H_t after every layer. ``query``: the
    channel that the read-out layer scores with."""
    spec = model.spec
    drawn = half.drawn[:OBJECTIVE_SEQUENCES]
    tokens = half.tokens[:OBJECTIVE_SEQUENCES]
    pairs = Pairs(drawn.states)
    contents = drawn.task.contents(len(spec.tokens)) or ()
    d = drawn.states.shape[2]
    # e_t^0 as a map of s_t: current channels hold s_t itself, start channels W_0 s_t.
    start = torch.zeros(spec.width, d, dtype=tokens.dtype)
    for k, name in enumerate(contents):
        if name in ("current", "start"):
            start[k * d : (k + 1) * d] = torch.eye(d) if name == "current" else drawn.task.start_matrix()
    out, q = spec.channel(spec.readout.channel).indices, slice(query * d, (query + 1) * d)
    passage = states(replace(spec, clip=None), dict(model.named()), tokens)
    rows = []
    for place in positions:
        A, B = pairs.A[:, place], pairs.B[:, place]
        spread = drawn.states[:, 1 : place + 1].square().sum((1, 2))  # 2 L_t(0)
        if place < 2:
            continue
        maps = start.expand(len(tokens), -1, -1)
        for layer in range(model.layers + 1):
            if layer:
                before = passage[layer - 1][:, : place + 1]
                G = before.mT @ before
                scale = spec.attention.factor(tokens.shape[1])
                update = torch.einsum("hab,nbc,hec->nae", model.P[layer - 1], G, model.Q[layer - 1])
                maps = (maps if spec.residual else 0.0 * maps) + scale * update @ maps
            W, H = spec.readout.sign * maps[:, out], maps[:, q]
            # 2 L_t(W) = |Y|^2 - 2 tr(W B^T) + tr(W A W^T)
            value = spread - 2.0 * (W * B).sum((1, 2)) + ((W @ A) * W).sum((1, 2))
            singular = torch.linalg.svdvals(A @ H)
            condition = singular[:, 0] / singular[:, -1].clamp_min(1e-300)
            medians = {"objective": _median(value / spread), "condition": _median(condition)}
            rows.append(MesaObjective(layer=layer, position=place, **medians))
    return tuple(rows)


def _median(values: Float[Tensor, " sequence"]) -> float | None:
    value = float(values.median())
    return value if abs(value) < 1e15 else None
