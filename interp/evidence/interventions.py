"""What follows when activations are changed: implicit weights transplanted, and decoded targets erased."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from interp.algebra.linear_prompts import DIVERGED
from interp.errors import UsageError
from interp.evidence.probe_request import ProbeRequest
from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import Examples, Prompts
from interp.models.transformer import LinearTransformer
from interp.probes.activations import query_tokens
from interp.probes.erasure import erasures
from interp.probes.interventions import Erasure, Transplant
from interp.probes.tokens import token_hooks
from interp.probes.transplant import transplants

__all__ = ["finite_prompts", "intervene", "operations"]

PROMPTS, FEWEST = 512, 64  # that interventions are scored on: as many as OPERATIONS allow
FITTED = 2048  # prompts that erasers are fitted to
OPERATIONS = 2e11
NUMBERS = 2**26  # at most so many attention scores at a time


def intervene(
    request: ProbeRequest, budget: float = OPERATIONS
) -> tuple[tuple[Transplant, ...], tuple[Erasure, ...], tuple[str, ...]]:
    """Transplants and erasures on at most as many prompts as asked for, as about ``budget`` floating-point operations
    allow, and notes on what was skipped.

    Erasures are of the targets that token probes look for, in the token whose prediction is scored: the query where
    the task has one, else the last of the positions.
    """
    model, task, prompts = request.model, request.task, request.prompts
    seeds = [int(s) for s in np.random.SeedSequence(request.seed).generate_state(3)]
    erasable = [target for target in request.targets if "token" in target.kinds]
    runs = 2 * max(1, len(erasable)) * (model.layers + 1)
    held = int(NUMBERS / (model.heads * (task.context + 1) ** 2))
    affordable = min(int(budget / (runs * operations(model, task.context))), held)
    if affordable < FEWEST:
        return (), (), ("interventions: skipped, because they would take too long; name fewer targets with --target",)
    train = finite_prompts(model, task.sample(min(FITTED, prompts, held), seeds[0]))
    test = finite_prompts(model, task.sample(min(PROMPTS, prompts, affordable), seeds[1]))
    if min(train.count, test.count) < FEWEST // 2:
        return (), (), ("interventions: skipped, because most prompts diverge",)
    notes = []
    moved: tuple[Transplant, ...] = ()
    if model.spec.attention.keys == "causal":
        notes.append(
            "transplants: skipped, because in a causal model every token has implicit weights of its own, which one "
            "token cannot determine"
        )
    elif model.spec.no_map is not None:
        notes.append(f"transplants: {model.spec.no_map}")
    elif isinstance(test, Examples):
        try:
            moved = transplants(model, test, seeds[2])
        except UsageError as error:
            notes.append(f"transplants: skipped, because {error}")
        if model.spec.clip is not None:
            notes.append("transplants: where tokens meet the clip, nothing promises that predictions follow")
    position = None if query_tokens(task, model.spec) else request.positions[-1]
    erased = erasures(model, erasable, train, test, position, seeds[2])
    kept = tuple(row for row in moved if row.layer in request.layers)
    return kept, tuple(row for row in erased if row.layer in request.layers), tuple(notes)


def finite_prompts(model: LinearTransformer, prompts: Prompts) -> Prompts:
    """The prompts that do not diverge."""
    sizes: list[Tensor] = []

    def measure(tokens: Tensor, *, hook: object) -> None:
        sizes.append(tokens.abs().flatten(1).amax(-1))

    hooks = [(name, measure) for name in token_hooks(model.layers)[1:]]
    HookedLinearTransformer(model).run_with_hooks(*prompts.inputs(model.spec), fwd_hooks=hooks)
    return prompts[(torch.stack(sizes) < DIVERGED).all(0)]  # False for NaN too


def operations(model: LinearTransformer, context: int, maps: bool = False) -> float:
    """Floating-point operations of one forward pass of one prompt, roughly; ``maps``: as one map per layer."""
    tokens, D = context + 1, model.spec.width
    if maps:
        return 4.0 * model.layers * (model.heads + 2) * D**3
    return 4.0 * model.layers * model.heads * (tokens * D**2 + tokens**2 * D)
