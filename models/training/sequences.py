"""Training of causal models of linear dynamics, by stochastic gradients on fresh sequences.

A run is a list of stages, each a set of weights that may move:

    "block"     p_h, q_h (c x c): P_h = p_h (x) I, Q_h = q_h (x) I for c channels of equal size
    "products"  P_h, Q_h (D x D)
    "factors"   W_Q, W_K, W_V (key x D), W_O (D x key): Q_h = W_Q^T W_K, P_h = W_O W_V, as published

The first starts from small normal numbers, the next from the Q and P that the one before has reached. The loss is the
paper's, half the squared error of the next state, summed over coordinates, averaged over positions and sequences.

Source: von Oswald et al., arXiv 2309.05858, appendix and code (AdamW; every entry of the gradient clipped to +-1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models.causal import causal_passage, causal_prediction
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics

__all__ = ["WEIGHTS", "Moving", "Stage", "fresh_loss", "products", "start", "steps_of"]

WEIGHTS = ("block", "products", "factors")
POOL = 16  # batches drawn at a time
WARM_UP = 50  # steps in which the rate rises from 0, where it falls again later
LAST = 0.01  # share of the rate that is left at the end of a cosine
GRADIENT = 1.0  # largest entry of a gradient


@dataclass(frozen=True, kw_only=True)
class Stage:
    """``rate`` is the largest learning rate: constant, or after a warm-up falling like a cosine. ``layers``: fewer than
    the network's in the end, for a network that is grown (None: all of them)."""

    weights: str
    steps: int
    rate: float
    batch: int = 64
    schedule: str = "cosine"  # "cosine" | "constant"
    weight_decay: float = 0.0
    layers: int | None = None


@dataclass(frozen=True, eq=False)
class Moving:
    """The numbers that a stage moves, with Adam's two moments and the steps made."""

    values: tuple[Tensor, ...]
    first: tuple[Tensor, ...] = field(default=())
    second: tuple[Tensor, ...] = field(default=())
    step: int = 0

    def __post_init__(self) -> None:
        if not self.first:
            object.__setattr__(self, "first", tuple(map(torch.zeros_like, self.values)))
            object.__setattr__(self, "second", tuple(map(torch.zeros_like, self.values)))


def start(
    stage: Stage,
    spec: ModelSpec,
    layers: int,
    heads: int,
    key: int,
    std: float,
    before: tuple[Tensor, Tensor] | None,
    seed: int,
) -> Moving:
    """Where a stage starts: at ``before`` = (Q, P), or at normal numbers of standard deviation ``std``. Layers that
    ``before`` lacks are of such numbers, and come before its last."""
    D, c = spec.width, len(spec.tokens)
    generator = torch.Generator().manual_seed(seed)
    if before is not None:
        values = tuple(value.float().clone() for value in before)
        if stage.weights == "block":  # what is not block-scalar is dropped
            blocks = (value.unflatten(-1, (c, -1)).unflatten(-3, (c, -1)) for value in values)
            values = tuple(block.diagonal(dim1=-3, dim2=-1).mean(-1) for block in blocks)
        missing = layers - values[0].shape[0]
        if missing > 0:
            new = [std * torch.randn(missing, *value.shape[1:], generator=generator) for value in values]
            values = tuple(torch.cat([v[:-1], n, v[-1:]]) for v, n in zip(values, new, strict=True))
        return Moving(values)
    shapes = {
        "block": [(c, c)] * 2, "products": [(D, D)] * 2, "factors": [(key, D)] * 3 + [(D, key)]
    }[stage.weights]  # fmt: skip
    return Moving(tuple(std * torch.randn(layers, heads, *shape, generator=generator) for shape in shapes))


def products(weights: str, spec: ModelSpec, values: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Q and P, (layer, head, D, D), of the numbers that a stage moves."""
    if weights == "factors":
        W_Q, W_K, W_V, W_O = values
        return W_Q.mT @ W_K, W_O @ W_V
    Q, P = values
    if weights == "block":
        identity = torch.eye(spec.tokens[0][1], dtype=Q.dtype)
        Q, P = (torch.einsum("lhab,ij->lhaibj", value, identity).flatten(4).flatten(2, 3) for value in (Q, P))
    return Q, P


def batch_loss(
    spec: ModelSpec, Q: Tensor, P: Tensor, tokens: Float[Tensor, "batch pos D"], target: Float[Tensor, "batch pos dim"]
) -> Tensor:
    error = causal_prediction(spec, causal_passage(spec, Q, P, tokens)[-1]) - target
    return 0.5 * error.square().sum(-1).mean()


def _batches(task: LinearDynamics, spec: ModelSpec, stage: Stage, seed: int, first: int) -> Iterator[tuple]:
    """Batches from number ``first`` on; every pool has a seed of its own, so a resumed run sees the same."""
    pool, tokens, target = -1, torch.empty(0), torch.empty(0)
    for step in range(first, stage.steps):
        if step // POOL != pool:
            pool = step // POOL
            drawn = task.sample(POOL * stage.batch, seed * 1_000_003 + pool)
            tokens, target = drawn.inputs(spec)[0].float(), drawn.target.float()
        at = (step % POOL) * stage.batch
        yield tokens[at : at + stage.batch], target[at : at + stage.batch]


def steps_of(
    stage: Stage, spec: ModelSpec, task: LinearDynamics, now: Moving, seed: int, watch: Callable[[Moving, float], None]
) -> Moving:
    """The stage from ``now`` to its end; ``watch`` sees every state and the loss of its batch before the step."""
    values = [value.clone().requires_grad_() for value in now.values]
    optimiser = torch.optim.AdamW(values, lr=stage.rate, weight_decay=stage.weight_decay)
    for value, first, second in zip(values, now.first, now.second, strict=True):
        optimiser.state[value] = {
            "step": torch.tensor(float(now.step)), "exp_avg": first.clone(), "exp_avg_sq": second.clone()
        }  # fmt: skip
    step = now.step
    for tokens, target in _batches(task, spec, stage, seed, now.step):
        for group in optimiser.param_groups:
            group["lr"] = _rate(stage, step)
        loss = batch_loss(spec, *products(stage.weights, spec, tuple(values)), tokens, target)
        optimiser.zero_grad()
        loss.backward()
        for value in values:
            assert value.grad is not None
            value.grad.clamp_(-GRADIENT, GRADIENT)
        optimiser.step()
        step += 1
        state = [optimiser.state[value] for value in values]
        now = Moving(
            # Copies: an interrupt may come in the middle of the next step, which works in place.
            tuple(value.detach().clone() for value in values),
            tuple(entry["exp_avg"].clone() for entry in state),
            tuple(entry["exp_avg_sq"].clone() for entry in state),
            step,
        )
        watch(now, float(loss.detach()))
    return now


def _rate(stage: Stage, step: int) -> float:
    if stage.schedule == "constant":
        return stage.rate
    fall = 0.5 * (1.0 + math.cos(math.pi * step / stage.steps))
    return stage.rate * min(1.0, (step + 1) / WARM_UP) * (LAST + (1.0 - LAST) * fall)


@torch.no_grad()
def fresh_loss(
    spec: ModelSpec, task: LinearDynamics, Q: Tensor, P: Tensor, count: int, seed: int, chunk: int = 512
) -> tuple[float, float]:
    """The loss on ``count`` fresh sequences in double precision, and its standard error over sequences."""
    parts = []
    for start_at in range(0, count, chunk):
        drawn = task.sample(min(chunk, count - start_at), seed + start_at)
        tokens = causal_passage(spec, Q.double(), P.double(), drawn.inputs(spec)[0])[-1]
        parts.append(0.5 * (causal_prediction(spec, tokens) - drawn.target).square().sum(-1).mean(-1))
    losses = torch.cat(parts)
    return float(losses.mean()), float(losses.std()) / math.sqrt(len(losses))
