"""Published probing protocols, under their names, so that numbers can be compared: scored as published, and also on
prompts that the fit has not seen, beside controls.

``mse`` of their rows is the published score, in sample; ``r2`` and ``mse_held_out`` are held out. A protocol registers
itself with the targets that it is for, and applies to every task that has one of them; its ``weaknesses`` go with its
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from interp.errors import UsageError
from interp.evidence.interventions import finite_prompts
from interp.evidence.probe_controls import CONTROLS, Controls, score_row
from interp.evidence.probe_request import ProbeRequest
from interp.evidence.question import finite, with_error
from interp.models.tasks import Target
from interp.models.tasks.dynamics_targets import NEXT, PUBLISHED
from interp.models.transformer import LinearTransformer
from interp.probes.activations import Reader
from interp.probes.controls import untrained_models
from interp.probes.held_out import HeldOut
from interp.probes.intervals import score
from interp.probes.mesa import mesa
from interp.probes.moments import group_of
from interp.probes.pooled import AttentionPooling, attention_pooled
from interp.probes.tokens import layer_tokens
from interp.results import ProbeScore

__all__ = ["PROTOCOLS", "SOUND", "Protocol", "akyurek_scores", "find_protocols", "mesa_scores", "protocol"]

SOUND = "sound"  # held out, with controls: no published one
SEQUENCES = 256  # of the mesa paper
PROMPTS, GROUPS = 2048, 128  # of attention pooling
NUMBERS = 2**26  # at most so many numbers of tokens, over layers and models
UNTRAINED = 3  # models: each takes as long as the network itself
READOUTS = {f"attention-{kind}": AttentionPooling(readout=kind) for kind in ("linear", "mlp")}
Scoring = Callable[[ProbeRequest], list[ProbeScore]]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """``scores`` gives the rows. ``usual``: the targets when none are named. ``by_default``: whether the protocol is
    followed when none is named."""

    name: str
    targets: tuple[str, ...]
    usual: tuple[str, ...]
    weaknesses: tuple[str, ...]
    scores: Scoring
    by_default: bool = False

    def chosen(self, targets: Sequence[Target], named: bool) -> list[Target]:
        """Its own among ``targets``; the usual ones when the user has not ``named`` any."""
        return [target for target in targets if target.name in (self.targets if named else self.usual)]


PROTOCOLS: dict[str, Protocol] = {}


def protocol(name: str, **fields: Any) -> Callable[[Scoring], Scoring]:
    """Register a function as the ``scores`` of a protocol with these ``fields``."""

    def register(scores: Scoring) -> Scoring:
        PROTOCOLS[name] = Protocol(name=name, scores=scores, **fields)
        return scores

    return register


def find_protocols(
    known: Sequence[Target], names: Sequence[str], chosen: Sequence[Target] = ()
) -> tuple[bool, tuple[Protocol, ...]]:
    """Whether to score soundly, and the published protocols by name, among those for a task with the targets ``known``;
    by default the sound one, and those that are followed by default. Raises UsageError for one that is unknown, that
    has none of these targets, or none of those that were ``chosen``."""
    having = {target.name for target in known}
    applicable = [entry for entry in PROTOCOLS.values() if having & set(entry.targets)]
    names = names or (SOUND, *(entry.name for entry in applicable if entry.by_default))
    for name in names:
        if name != SOUND and name not in {entry.name for entry in applicable}:
            every = ", ".join((SOUND, *PROTOCOLS))
            why = "has no targets for models of this task" if name in PROTOCOLS else f"is not one of {every}"
            raise UsageError(
                f"protocol {name!r} {why}; protocols that apply: {', '.join((SOUND, *(e.name for e in applicable)))}"
            )
        if name != SOUND and chosen and not PROTOCOLS[name].chosen(chosen, named=True):
            raise UsageError(
                f"protocol {name!r} has none of the targets {', '.join(t.name for t in chosen)}; targets that apply: "
                f"{', '.join(PROTOCOLS[name].targets)}"
            )
    return SOUND in names, tuple(entry for entry in applicable if entry.name in names)


@protocol(
    "akyurek",
    targets=("alpha", "w-ols", "w"),  # w in the released code alone
    usual=("alpha", "w-ols"),
    weaknesses=(
        "protocol akyurek: mean squared error in sample; R² and controls on other prompts. The weights of positions do "
        "not depend on the prompt, tokens and targets keep their units, and the published control, a network trained "
        "with constant w, cannot be had from a checkpoint: untrained models stand in for it",
        "protocol akyurek in linear layers: the pooled token changes its sign with the tokens, X^T y and w_ols do not, "
        "so the linear read-out is at chance whatever the network has learned; the MLP can only use what one weighted "
        "mean of the tokens leaves",
    ),
)
def akyurek_scores(request: ProbeRequest) -> list[ProbeScore]:
    """Attention-pooled probes of the context's tokens, linear and with an MLP, one per layer, target and read-out;
    positions are pooled."""
    model, task, layers = request.model, request.task, request.layers
    read = tuple(sorted({0, *layers}))
    each = (1 + UNTRAINED) * len(read) * task.context * model.spec.width
    seeds = [int(s) for s in np.random.SeedSequence(request.seed).generate_state(3 + UNTRAINED)]
    drawn = finite_prompts(model, task.sample(max(1, min(request.prompts, PROMPTS, NUMBERS // each)), seeds[0]))
    others = untrained_models(model, task.sample(max(2048 // task.context, 8), seeds[1]), seeds[3:])
    inner = [layer for layer in read if layer]  # the inputs of untrained models are the inputs

    def context_tokens(of: LinearTransformer, wanted: Sequence[int]) -> torch.Tensor:
        tokens = layer_tokens(of, drawn)
        return torch.stack([tokens[layer][:, : drawn.context] for layer in wanted])

    tokens = context_tokens(model, read)
    stray = torch.cat([context_tokens(other, inner) for other in others]) if inner else None
    group = group_of(torch.arange(drawn.count), drawn.count, min(GROUPS, drawn.count))
    out = []
    for number, (target, (kind, settings)) in enumerate(product(request.targets, READOUTS.items())):
        request.progress(f"training pooled probes ({number + 1} of {len(request.targets) * len(READOUTS)})")
        value = target.value(drawn, None)
        assert value is not None  # these are defined for every prompt
        real = attention_pooled(tokens, value, group, settings, seeds[2])
        assert real.shuffled is not None  # asked for
        untrained = [real.held_out] * UNTRAINED
        if stray is not None:
            pooled = attention_pooled(stray, value, group, settings, seeds[2], shuffle=False).held_out
            parts = (slice(k * len(inner), (k + 1) * len(inner)) for k in range(UNTRAINED))
            untrained = [_joined(real.held_out, pooled.streams(part)) for part in parts]
        outputs = slice(0, value.shape[1])
        controls = Controls(
            real={kind: real.held_out}, shuffled={kind: real.shuffled}, untrained={kind: untrained}, fewer=None
        )
        found = score(real.held_out, outputs, seeds[2])
        row = score_row(found, controls, kind, outputs, seeds[2])
        row = partial(row, target=target.name, prompts=drawn.count, protocol="akyurek")
        for layer in layers:
            at = read.index(layer)
            out.append(row((at,), layer=layer, mse=finite(real.in_sample[at]), mse_held_out=found.mse.at(at)[0]))
    return out


def _joined(real: HeldOut, layers: HeldOut) -> HeldOut:
    """An untrained model's layers after the inputs, which are those of the network."""
    return replace(layers, squared_error=torch.cat([real.squared_error[:, :1], layers.squared_error], 1))


@protocol(
    "mesa",
    targets=(NEXT, PUBLISHED),
    usual=(NEXT, PUBLISHED),
    weaknesses=(
        f"protocol mesa: least squares without ridge or intercept, its mean squared error (the paper plots half of it) "
        f"in sample on {SEQUENCES} sequences: too low by the share of features, and falling with the position where "
        f"targets shrink, whatever a layer holds. R² is of the same fit to one half, scored on the other",
    ),
    by_default=True,
)
def mesa_scores(request: ProbeRequest) -> list[ProbeScore]:
    """The mesa paper's protocol for its two targets, on as many sequences as in the paper whatever is asked for."""
    drawn, group = request.task.sample(SEQUENCES, request.seed), torch.arange(SEQUENCES)
    activations = Reader(request.model, ("token",), request.positions).read(drawn)
    out = []
    for target, position in product(request.targets, request.positions):
        value = target.value(drawn, position)
        assert value is not None  # both are defined everywhere
        tokens = torch.stack([activations.features("token", layer, position) for layer in request.layers])
        result = mesa(tokens, value, group, SEQUENCES, outliers=target.name == PUBLISHED)
        for at, layer in enumerate(request.layers):
            mse, mse_held_out = (finite(2.0 * value[at]) for value in (result.published, result.unseen))
            out.append(
                ProbeScore(
                    kind="token",
                    control=dict.fromkeys(CONTROLS),
                    protocol="mesa",
                    layer=layer,
                    target=target.name,
                    position=position,
                    prompts=result.prompts,
                    **with_error("r2", result.held_out[at]),
                    mse=mse,
                    mse_held_out=mse_held_out,
                )
            )
    return out
