"""Published probing protocols, under their names, so that numbers can be compared: scored as published, and also on
prompts that the fit has not seen, beside controls.

``mse`` of their rows is the published score, in sample; ``r2`` and ``mse_held_out`` are held out. What is wrong with a
protocol is said in ``WEAKNESSES``, which go with its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from interp.evidence.interventions import finite_prompts
from interp.models.errors import UsageError
from interp.models.tasks import LinearDynamics, NoisyRegression, RegressionPrompts
from interp.models.transformer import LinearTransformer
from interp.probes.activations import Reader, Task
from interp.probes.controls import untrained_models
from interp.probes.held_out import HeldOut
from interp.probes.intervals import score
from interp.probes.mesa import mesa
from interp.probes.moments import group_of
from interp.probes.pooled import AttentionPooling, attention_pooled, context_tokens
from interp.probes.quantities import DynamicsQuantities
from interp.probes.selectivity import above, above_untrained
from interp.probes.targets import NEXT, PUBLISHED, Target, find_targets, quantities
from interp.results import ProbeScore

__all__ = [
    "PROTOCOLS",
    "SOUND",
    "WEAKNESSES",
    "akyurek_scores",
    "default_protocols",
    "find_protocols",
    "mesa_scores",
    "published_scores",
]

SOUND, MESA, AKYUREK = "sound", "mesa", "akyurek"
PROTOCOLS = {NoisyRegression.name: (SOUND, AKYUREK), LinearDynamics.name: (SOUND, MESA)}  # by task
TARGETS = {MESA: (NEXT, PUBLISHED), AKYUREK: ("alpha", "w-ols", "w")}  # w in the released code alone
SEQUENCES = 256  # of the mesa paper
PROMPTS, GROUPS = 2048, 128  # of attention pooling
NUMBERS = 2**26  # at most so many numbers of tokens, over layers and models
UNTRAINED = 3  # models: each takes as long as the network itself
READOUTS = {
    "attention-linear": AttentionPooling(readout="linear"),
    "attention-mlp": AttentionPooling(readout="mlp"),
}
CONTROLS = ("untrained", "shuffled", "inputs")
WEAKNESSES = {
    MESA: (
        f"protocol mesa: least squares without ridge or intercept, its mean squared error (the paper plots half of it) "
        f"in sample on {SEQUENCES} sequences: too low by the share of features, and falling with the position where "
        f"targets shrink, whatever a layer holds. R² is of the same fit to one half, scored on the other",
    ),
    AKYUREK: (
        "protocol akyurek: mean squared error in sample; R² and controls on other prompts. The weights of positions do "
        "not depend on the prompt, tokens and targets keep their units, and the published control, a network trained "
        "with constant w, cannot be had from a checkpoint: untrained models stand in for it",
        "protocol akyurek in linear layers: the pooled token changes its sign with the tokens, X^T y and w_ols do not, "
        "so the linear read-out is at chance whatever the network has learned; the MLP can only use what one weighted "
        "mean of the tokens leaves",
    ),
}


def default_protocols(task: str) -> tuple[str, ...]:
    """The sound one, and the mesa paper's for its task; attention pooling takes minutes."""
    return (SOUND, MESA) if task == LinearDynamics.name else (SOUND,)


def find_protocols(task: str, names: Sequence[str], targets: Sequence[Target]) -> tuple[str, ...]:
    """Protocols by name, in their order. Raises UsageError for one that is unknown, that is not for models of this
    task, or for none of ``targets``, when they were chosen."""
    known = PROTOCOLS[task]
    for name in names:
        if name not in known:
            every = dict.fromkeys(p for ps in PROTOCOLS.values() for p in ps)
            why = f"is not for models of {task}" if name in every else f"is not one of {', '.join(every)}"
            raise UsageError(f"protocol {name!r} {why}; protocols that apply: {', '.join(known)}")
        if name != SOUND and targets and not any(t.name in TARGETS[name] for t in targets):
            raise UsageError(
                f"protocol {name!r} has none of the targets {', '.join(t.name for t in targets)}; targets that apply: "
                f"{', '.join(TARGETS[name])}"
            )
    return tuple(name for name in known if name in names)


def published_scores(
    model: LinearTransformer,
    task: Task,
    targets: Sequence[Target],
    positions: Sequence[int | None],
    layers: Sequence[int],
    prompts: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[ProbeScore]:
    """The rows of the published protocol for models of this task, for those of ``targets`` that are its own; for the
    paper's when none were chosen."""
    own = TARGETS[MESA if isinstance(task, LinearDynamics) else AKYUREK]
    kept = [target for target in targets if target.name in own] or find_targets(task.name, own[:2])
    if isinstance(task, LinearDynamics):
        return mesa_scores(model, task, kept, positions, layers, seed)
    return akyurek_scores(model, task, kept, layers, prompts, seed, progress)


def mesa_scores(
    model: LinearTransformer,
    task: LinearDynamics,
    targets: Sequence[Target],
    positions: Sequence[int | None],
    layers: Sequence[int],
    seed: int,
) -> list[ProbeScore]:
    """The mesa paper's protocol for its two targets."""
    prompts = task.sample(SEQUENCES, seed)
    found = Reader(model, ("token",), tuple(positions)).read(prompts)
    known, group = DynamicsQuantities(prompts), torch.arange(SEQUENCES)
    out = []
    for target, position in product(targets, positions):
        value = target.values(known, position)
        assert value is not None  # both are defined everywhere
        tokens = torch.stack([found.features("token", layer, position) for layer in layers])
        result = mesa(tokens, value, group, SEQUENCES, outliers=target.name == PUBLISHED)
        for at, layer in enumerate(layers):
            r2, r2_ci = result.held_out[at]
            out.append(
                ProbeScore(
                    layer=layer, target=target.name, kind="token", position=position, r2=r2, r2_ci=r2_ci,
                    mse=_known(2.0 * result.published[at]), control=dict.fromkeys(CONTROLS), prompts=result.prompts,
                    protocol=MESA, mse_held_out=_known(2.0 * result.unseen[at]),
                )
            )  # fmt: skip
    return out


def akyurek_scores(
    model: LinearTransformer,
    task: NoisyRegression,
    targets: Sequence[Target],
    layers: Sequence[int],
    prompts: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[ProbeScore]:
    """Attention-pooled probes of the context's tokens, linear and with an MLP, one per layer, target and read-out."""
    read = tuple(sorted({0, *layers}))
    each = (1 + UNTRAINED) * len(read) * task.context * model.spec.width
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(3 + UNTRAINED)]
    drawn = finite_prompts(model, task.sample(max(1, min(prompts, PROMPTS, NUMBERS // each)), seeds[0]))
    assert isinstance(drawn, RegressionPrompts)
    others = untrained_models(model, task.sample(max(2048 // task.context, 8), seeds[1]), seeds[3:])
    inner = [layer for layer in read if layer]  # the inputs of untrained models are the inputs
    tokens, stray = context_tokens(model, drawn)[list(read)], [context_tokens(o, drawn)[inner] for o in others]
    group = group_of(torch.arange(drawn.count), drawn.count, min(GROUPS, drawn.count))
    known, out = quantities(drawn, task), []
    for number, (target, (kind, settings)) in enumerate(product(targets, READOUTS.items())):
        progress(f"training pooled probes ({number + 1} of {len(targets) * len(READOUTS)})")
        value = target.values(known, None)
        assert value is not None  # these are defined for every prompt
        real = attention_pooled(tokens, value, group, settings, seeds[2])
        assert real.shuffled is not None  # asked for
        untrained = [real.held_out] * UNTRAINED
        if inner:
            pooled = attention_pooled(torch.cat(stray), value, group, settings, seeds[2], shuffle=False).held_out
            parts = (slice(k * len(inner), (k + 1) * len(inner)) for k in range(UNTRAINED))
            untrained = [_joined(real.held_out, pooled.streams(part)) for part in parts]
        outputs = slice(0, value.shape[1])
        found = score(real.held_out, outputs, seeds[2])
        first = replace(real.held_out, squared_error=real.held_out.squared_error[:, :1].expand_as(
            real.held_out.squared_error
        ))  # fmt: skip
        compared = {
            "untrained": above_untrained(real.held_out, untrained, outputs, seeds[2]),
            "shuffled": above(real.held_out, real.shuffled, outputs, seeds[2]),
            "inputs": above(real.held_out, first, outputs, seeds[2]),
        }
        assert real.in_sample is not None  # attention pooling has it
        for layer in layers:
            at = read.index(layer)
            r2, r2_ci = found.r2.at(at)
            gaps = {name: entry.gap.at(at) for name, entry in compared.items()}
            out.append(
                ProbeScore(
                    layer=layer,
                    target=target.name,
                    kind=kind,
                    r2=r2,
                    r2_ci=r2_ci,
                    mse=_known(real.in_sample[at]),
                    mse_held_out=found.mse.at(at)[0],
                    variance=_known(found.variance[at]),
                    control={name: _known(entry.control[at]) for name, entry in compared.items()},
                    selectivity={name: gap for name, (gap, _) in gaps.items()},
                    selectivity_ci={name: ci for name, (_, ci) in gaps.items()},
                    prompts=drawn.count,
                    protocol=AKYUREK,
                )
            )
    return out


def _joined(real: HeldOut, layers: HeldOut) -> HeldOut:
    """An untrained model's layers after the inputs, which are those of the network."""
    return replace(layers, squared_error=torch.cat([real.squared_error[:, :1], layers.squared_error], 1))


def _known(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
