"""One analysis on its way: the network of a checkpoint in float64, its task, and the prompts that both are seen on.

What is costly is computed when it is first asked for, and once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from interp.checkpoints.opening import Checkpoint
from interp.errors import UsageError
from interp.identify.networks import NETWORKS, Network, TokenNetwork
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import References, Task, task_of
from interp.models.transformer import LinearTransformer

__all__ = ["DEFAULT_PROMPTS", "FEWEST_PROMPTS", "Run", "Seeds"]

DEFAULT_PROMPTS = 4096
FEWEST_PROMPTS = 64


@dataclass(frozen=True)
class Seeds:
    """Seeds for all that is drawn, derived from one; a new one at the end changes no other."""

    fitted: int
    held_out: int
    intervals: int
    tuning: int
    losses: int
    adaptation: int
    probes: int
    certificate: int
    replacement: int
    behaviour: int
    judged: int

    @classmethod
    def of(cls, seed: int) -> Seeds:
        return cls(*(int(s) for s in np.random.SeedSequence(seed).generate_state(11)))


@dataclass(frozen=True, eq=False)
class Run:
    """``brief``: only the verdict was asked for. ``progress`` is told what is being done."""

    checkpoint: Checkpoint
    model: LinearTransformer
    task: Task
    prompts: int
    seed: int
    brief: bool = False
    progress: Callable[[str], None] = lambda step: None

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        prompts: int = DEFAULT_PROMPTS,
        seed: int = 0,
        progress: Callable[[str], None] = lambda step: None,
        brief: bool = False,
    ) -> Run:
        """Raises LayoutError when the model and its task do not fit, UnreadableFile for weights that are not finite,
        UsageError for too few prompts."""
        model = checkpoint.model.require_finite().to(torch.float64).without_vanishing_heads()
        task = task_of(model.spec.task)
        task.fits(model)
        if prompts < FEWEST_PROMPTS:
            raise UsageError(
                f"asked for {prompts} prompts, expected {FEWEST_PROMPTS} or more: half are fitted on, half scored on"
            )
        return cls(checkpoint, model, task, prompts, seed, brief, progress)

    @property
    def spec(self) -> ModelSpec:
        return self.model.spec

    @cached_property
    def seeds(self) -> Seeds:
        return Seeds.of(self.seed)

    @cached_property
    def network(self) -> Network:
        """The network as the first kind of pass that describes it; where none does, token by token."""
        self.progress("running the network")
        reason, seeds = None, (self.seeds.fitted, self.seeds.held_out, self.seeds.judged)
        for kind in NETWORKS:
            network = kind.of(self.model, self.task, self.prompts, seeds)
            if not isinstance(network, Skipped):
                return network
            if reason is None or self.spec.attention.keys == "causal":  # the last kind is the one for causal keys
                reason = network
        return TokenNetwork.of(self.model, self.task, self.prompts, seeds, reason)

    @cached_property
    def references(self) -> References:
        """What the network stands beside, tuned on prompts of its own."""
        tuning = self.task.sample(min(self.prompts, self.task.most_prompts), self.seeds.tuning)
        return self.task.references(tuning, self.model.layers, self.spec.attention.keys)
