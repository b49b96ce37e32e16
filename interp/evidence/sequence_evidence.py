"""How well a causal network, and what was recovered from it, predict the next state, beside classical solvers.

Losses are half the squared error, summed over coordinates, averaged over positions (von Oswald et al., arXiv
2309.05858); all predictors on the same fresh sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.algebra.channels import LiveChannels, block_weights
from interp.algebra.linear_prompts import DIVERGED
from interp.evidence.sparse_heads import costs, dearest
from interp.families.channel_heads import BlockHeads, Uncertainty, free_numbers
from interp.identify.sequence_identification import Half, Subject, chunk_of, predict_in_chunks
from interp.models.specification import ModelSpec
from interp.models.tasks import DynamicsPrompts
from interp.models.token_pass import states
from interp.models.transformer import LinearTransformer
from interp.results import Compression, Interpolated, MesaObjective, RankedNumber, SequenceLoss
from interp.solvers.next_state import Pairs, line_search, tune_richardson
from interp.stats.averages import mean_with_error, ratio_with_error

__all__ = [
    "Comparators",
    "blends",
    "compressions",
    "objectives",
    "ranked",
    "sequence_errors",
    "shown_positions",
    "summarised",
    "tuned_comparators",
]

STEPS = 6  # of proposition 2, as in the paper
TUNED = 512  # sequences that comparators are tuned on
KEPT = (1.0, 0.5, 0.25, 0.125)  # shares of a head's numbers in the table of compressions
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_RANKED = 24
OBJECTIVE_SEQUENCES = 128


@dataclass(frozen=True, eq=False)
class Comparators:
    """Classical solvers with what was tuned for the task."""

    eta: float
    eta_stderr: float
    alpha: Float[Tensor, " step"]
    beta: Float[Tensor, " step"]
    lagged_alpha: Float[Tensor, " step"]
    lagged_beta: Float[Tensor, " step"]

    def predict(self, drawn: DynamicsPrompts) -> dict[str, Float[Tensor, "sequence pos dim"]]:
        now, late = Pairs(drawn.states), Pairs(drawn.states, lag=1)
        true = torch.einsum("nij,ntj->nti", drawn.W, now.current).clamp(-drawn.task.limit, drawn.task.limit)
        return {
            "null": torch.zeros_like(true),
            "gd-1": now.gradient_step(self.eta),
            "prop-2-lagged": late.richardson(self.lagged_alpha, self.lagged_beta),
            "prop-2": now.richardson(self.alpha, self.beta),
            "ridge-lagged": late.ridge(),
            "ridge": now.ridge(),
            "oracle": true,
        }

    @property
    def labels(self) -> Mapping[str, str]:
        steps = len(self.alpha)
        return {
            "null": "predicting zero",
            "gd-1": f"one step of gradient descent, best step {self.eta:.4g}",
            "prop-2-lagged": f"proposition 2, {steps} learned steps, without the newest pair",
            "prop-2": f"proposition 2, {steps} learned steps",
            "ridge-lagged": "exact ridge without the newest pair",
            "ridge": "exact ridge",
            "oracle": "the true W of the sequence",
        }


def tuned_comparators(half: Half) -> Comparators:
    """Tuned on at most ``TUNED`` sequences of ``half``."""
    states = half.drawn.states[:TUNED]
    now, late = Pairs(states), Pairs(states, lag=1)
    search = line_search(now)
    return Comparators(search.eta, search.stderr, *tune_richardson(now, STEPS), *tune_richardson(late, STEPS))


@torch.no_grad()
def sequence_errors(
    subject: Subject, comparators: Comparators, others: Mapping[str, BlockHeads], drawn: DynamicsPrompts
) -> dict[str, Float[Tensor, "sequence pos"]]:
    """Half the squared error of the network ("network"), of its read-out after every layer ("layer-l"), of block-scalar
    networks and of the comparators. Sequences on which the network diverges are left out of all."""
    model, spec = subject.model, subject.spec
    parts: dict[str, list[Tensor]] = {}
    chunk = chunk_of(model, drawn.context)
    for start in range(0, drawn.count, chunk):
        some = drawn[slice(start, start + chunk)]
        tokens = some.inputs(spec)[0]
        passage = states(spec, dict(model.named()), tokens)
        finite = (passage[-1].abs() < DIVERGED).flatten(1).all(1)
        predictions = {f"layer-{layer}": spec.read(value) for layer, value in enumerate(passage)}
        predictions["network"] = predictions[f"layer-{model.layers}"]
        for name, heads in others.items():
            Q, P = (block_weights(value, subject.size) for value in (heads.q, heads.p))
            predictions[name] = predict_in_chunks(spec, Q, P, tokens, max(1, chunk * model.heads // Q.shape[1]))
        predictions |= comparators.predict(some)
        for name, value in predictions.items():
            error = 0.5 * (value - some.target).square().sum(-1)
            parts.setdefault(name, []).append(error[finite])
    return {name: torch.cat(values) for name, values in parts.items()}


def shown_positions(context: int) -> tuple[int, ...]:
    """Few positions, dense where a sequence is short."""
    wanted = (0, 1, 2, 5, 10, 20, 30, 49, 99, 199, context - 1)
    return tuple(sorted({place for place in wanted if place < context}))


def summarised(
    errors: Mapping[str, Float[Tensor, "sequence pos"]], labels: Mapping[str, str], positions: Sequence[int]
) -> tuple[SequenceLoss, ...]:
    rows = []
    for name, label in labels.items():
        mean, stderr = mean_with_error(errors[name].mean(1))
        at = tuple(mean_with_error(errors[name][:, place])[0] for place in positions)
        rows.append(SequenceLoss(name=name, label=label, loss=mean, stderr=stderr, by_position=at))
    return tuple(sorted(rows, key=lambda row: -row.loss if row.loss is not None else float("-inf")))


def compressions(
    subject: Subject,
    fitted: Half,
    half: Half,
    live: LiveChannels,
    published: BlockHeads,
    recovered: tuple[str, BlockHeads, int],
    seed: int,
) -> tuple[Compression, ...]:
    """The network replaced by the published block means, all of them and those that cost most on ``fitted``, and by the
    recovered heads; on the sequences of ``half``."""
    target, network = half.drawn.target, half.prediction
    own = 0.5 * (network - target).square().sum(-1).mean(1)
    many, each = subject.model.layers * subject.model.heads, 2 * published.q.shape[-1] ** 2
    known = costs(subject, published, free_numbers(live, subject.model.heads), fitted, seed)
    entries = []
    for share in KEPT:
        few, _ = dearest(published, known, round(share * each * many))
        entries.append(("published", few.heads, few.numbers, each * share))
    how, heads, numbers = recovered
    entries.append((how, heads, numbers, numbers / many))
    out = []
    for kind, candidate, count, per_head in entries:
        Q, P = (block_weights(value, subject.size) for value in (candidate.q, candidate.p))
        chunk = max(1, chunk_of(subject.model, half.drawn.context) * subject.model.heads // Q.shape[1])
        prediction = predict_in_chunks(subject.spec, Q, P, half.tokens, chunk)
        losses = 0.5 * (prediction - target).square().sum(-1).mean(1)
        loss, stderr = mean_with_error(losses)
        ratio, ratio_stderr = ratio_with_error(losses, own)
        left = half.unexplained(prediction)
        out.append(
            Compression(
                kind=kind, numbers_per_head=per_head, numbers=count, loss=loss, stderr=stderr, ratio=ratio,
                ratio_stderr=ratio_stderr, fidelity=1.0 - left if left < float("inf") else None,
            )
        )  # fmt: skip
    return tuple(out)


def blends(
    subject: Subject, half: Half, published: BlockHeads, alphas: Sequence[float] = ALPHAS
) -> tuple[Interpolated, ...]:
    """The loss along (1 - alpha) network + alpha block means, in the products Q and P of every head."""
    model = subject.model
    Q, P = (block_weights(value, subject.size) for value in (published.q, published.p))
    rows = []
    for alpha in alphas:
        mixed_Q, mixed_P = (1.0 - alpha) * model.Q + alpha * Q, (1.0 - alpha) * model.P + alpha * P
        chunk = chunk_of(model, half.drawn.context)
        prediction = predict_in_chunks(subject.spec, mixed_Q, mixed_P, half.tokens, chunk)
        loss, stderr = mean_with_error(0.5 * (prediction - half.drawn.target).square().sum(-1).mean(1))
        rows.append(Interpolated(alpha=alpha, loss=loss, stderr=stderr))
    return tuple(rows)


def ranked(spec: ModelSpec, heads: BlockHeads, known: Uncertainty) -> tuple[RankedNumber, ...]:
    """The numbers that cost most to do without, dearest first."""
    names = [name for name, _ in spec.tokens]
    entries = []
    for matrix, each, values, join in (("Q", known.cost_q, heads.q, "·"), ("P", known.cost_p, heads.p, "<-")):
        for place in torch.nonzero(each > 0).tolist():
            layer, head, row, column = place
            cost, value = float(each[tuple(place)]), float(values[tuple(place)])
            entry = f"{names[row]} {join} {names[column]}"
            entries.append(RankedNumber(layer=layer, head=head, matrix=matrix, entry=entry, value=value, cost=cost))
    return tuple(sorted(entries, key=lambda entry: -entry.cost)[:MOST_RANKED])


@torch.no_grad()
def objectives(model: LinearTransformer, half: Half, query: int, positions: Sequence[int]) -> tuple[MesaObjective, ...]:
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
                update = sum(
                    (p @ G @ qq.T for p, qq in zip(model.P[layer - 1], model.Q[layer - 1], strict=True)),
                    torch.zeros_like(G),
                )
                maps = (maps if spec.residual else 0.0 * maps) + scale * update @ maps
            W, H = spec.readout.sign * maps[:, out], maps[:, q]
            # 2 L_t(W) = |Y|^2 - 2 tr(W B^T) + tr(W A W^T)
            value = spread - 2.0 * (W * B).sum((1, 2)) + ((W @ A) * W).sum((1, 2))
            singular = torch.linalg.svdvals(A @ H)
            condition = singular[:, 0] / singular[:, -1].clamp_min(1e-300)
            rows.append(
                MesaObjective(
                    layer=layer, position=place, objective=_median(value / spread), condition=_median(condition)
                )
            )
    return tuple(rows)


def _median(values: Float[Tensor, " sequence"]) -> float | None:
    value = float(values.median())
    return value if abs(value) < 1e15 else None
