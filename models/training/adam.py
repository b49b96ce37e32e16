"""Adam on fresh batches, from a state that can be gone on from at any step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Moving", "adam", "clip_norm", "half_cosine", "warm_up"]

Objective = Callable[[int, Sequence[Tensor]], Tensor | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Moving:
    """The numbers that move, with Adam's two moments. ``taken``: a batch without a finite gradient is an iteration
    without a step. ``loss`` is that of the last batch, before its step."""

    values: tuple[Tensor, ...]
    first: tuple[Tensor, ...] = ()
    second: tuple[Tensor, ...] = ()
    iteration: int = 0
    taken: int = 0
    loss: float = math.inf

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            if not getattr(self, name):
                object.__setattr__(self, name, tuple(map(torch.zeros_like, self.values)))


def half_cosine(share: float) -> float:
    """From 1 to 0 as ``share`` goes from 0 to 1."""
    return 0.5 * (1.0 + math.cos(math.pi * share))


def warm_up(step: int, steps: int) -> float:
    """From near 0 to 1 in the first ``steps`` steps."""
    return min(1.0, (step + 1) / steps)


def clip_norm(largest: float) -> Callable[[Sequence[Tensor]], bool]:
    """Gradients scaled to a norm of ``largest`` at most, all together; no step where that is not finite."""
    return lambda values: bool(torch.isfinite(torch.nn.utils.clip_grad_norm_(list(values), largest)))


def adam(
    start: Moving,
    objective: Objective,
    *,
    steps: int,
    rate: Callable[[int], float],
    limit: Callable[[Sequence[Tensor]], bool],
    watch: Callable[[Moving], None],
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.0,
) -> Moving:
    """``steps`` iterations in all. ``objective(iteration, values)`` is the loss on the batch of that number (of several
    networks: one number each), or None; ``limit`` changes the gradients and says whether there is a step."""
    now, values = start, [value.clone().requires_grad_() for value in start.values]
    optimiser = torch.optim.AdamW(values, betas=betas, weight_decay=weight_decay)
    for value, first, second in zip(values, start.first, start.second, strict=True):
        step = torch.tensor(float(start.taken))
        optimiser.state[value] = {"step": step, "exp_avg": first.clone(), "exp_avg_sq": second.clone()}
    for iteration in range(start.iteration, steps):
        losses, taken, loss = objective(iteration, values), now.taken, math.inf
        if losses is not None:
            optimiser.zero_grad()
            losses.sum().backward()
            loss = float(losses.detach().min())
            for group in optimiser.param_groups:
                group["lr"] = rate(iteration)
            if limit(values):
                optimiser.step()
                taken += 1
        state = [optimiser.state[value] for value in values]
        now = Moving(  # of copies: an interrupt may come in the middle of the next step, which works in place
            values=tuple(value.detach().clone() for value in values),
            first=tuple(entry["exp_avg"].clone() for entry in state),
            second=tuple(entry["exp_avg_sq"].clone() for entry in state),
            iteration=iteration + 1,
            taken=taken,
            loss=loss,
        )
        watch(now)
    return now
