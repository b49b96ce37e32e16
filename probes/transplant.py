"""Is the implicit weight vector what the network goes on with? Put that of prompt A into prompt B, and see.

After layer l all tokens of prompt B hold y_i^l = a_B y_i - <w_B, x_i>. Two interventions, made through hooks on the
token-by-token forward pass, with (a, w) of the within-prompt probe:

- "weights": y_i^l gets <w_B - w_A, x_i> added in all tokens, context and query, so that they hold w_A in place of w_B;
  all else stays that of B, and the later layers go on from w_A with B's data. Expected is the prediction of the
  transplanted model, computed from the unrolling alone: C_B^l with w_B replaced by w_A, and the layers after l on the
  Gram matrix that this gives. After the last layer it is <w_A, x_t>.
- "state": the context of B becomes that of A after layer l, and the query token what A's unrolling C_A^l makes of it.
  Expected is A's own model of the last layer on B's query. Where the query is one of the keys, A's context alone is not
  A's state, so this is done after the last layer only.

With p, p' the predictions before and after, and p* the expected one, over prompts:

    effect = sum (p' - p)(p* - p) / sum (p* - p)^2,      error = sum (p' - p*)^2 / sum (p* - p)^2

1 and 0 when predictions follow. Controls: B's own w put in its place, which must change nothing, and for "weights" a
random w_R with |w_R - w_B| = |w_A - w_B|. After the last layer its effect is 0. Before, it need not be: layers that
shrink labels by their energy react to any labels that are too large; what tells the two apart there is the error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.gram import GramTrajectory, HeadLayers, forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import Examples
from interp.models.transformer import LinearTransformer
from interp.probes.interventions import Transplant, with_error
from interp.probes.responses import split
from interp.probes.tokens import edited_run
from interp.probes.within import WithinPrompt, within_prompt
from interp.stats.bootstrap import ratio

__all__ = ["transplants"]

NOTHING = 1e-20  # share of the predictions' mean square below which an expected change is rounding
SAME = "skipped, because the implicit weights are the same in all prompts"
UNMOVED = "skipped, because what is transplanted does not reach the prediction"
IN_KEYS = "skipped, because the query is one of the keys, so the context alone is not the state"


def transplants(model: LinearTransformer, prompts: Examples, seed: int) -> tuple[Transplant, ...]:
    """Both interventions after every layer, each prompt getting the weights of the next one.

    Raises UsageError for causal keys, for fewer than 2 prompts, and for tokens that do not determine the weights; a
    clip is no hindrance, but then nothing promises that predictions follow.
    """
    if prompts.count < 2:
        raise UsageError(f"got {prompts.count} prompts, expected 2 or more: each gets the weights of another")
    probed = within_prompt(model, prompts)
    free = int((~probed[0].determined).sum())
    if free:
        raise UsageError(
            f"in {free} of {prompts.count} prompts the tokens leave the implicit weights free, expected "
            f"{model.spec.width} independent tokens or more"
        )
    bench = _Bench.of(model, prompts)
    generator = torch.Generator().manual_seed(seed)
    out = []
    for layer in range(1, model.layers + 1):
        out.append(_weights(bench, probed[layer], generator, seed))
        out.append(_state(bench, layer, seed))
    return tuple(out)


@dataclass(frozen=True, eq=False)
class _Bench:
    """The network, the prompts, and what is known of both from the unrolling."""

    hooked: HookedLinearTransformer
    layers: HeadLayers
    spec: ModelSpec
    context: Float[Tensor, "prompt context D"]
    query: Float[Tensor, "prompt query D"]
    trajectory: GramTrajectory
    cumulative: tuple[Float[Tensor, "prompt D D"], ...]
    before: Float[Tensor, "prompt output"]  # the predictions, nothing changed

    @classmethod
    def of(cls, model: LinearTransformer, prompts: Examples) -> _Bench:
        hooked = HookedLinearTransformer(model)
        context, query = prompts.inputs(model.spec)
        layers, grams = head_layers(model, prompts.context), prompts.grams(model.spec)
        trajectory = forward(layers, grams.gram, grams.query)
        cumulative = [torch.eye(model.spec.width, dtype=context.dtype).expand_as(grams.gram)]
        for T in trajectory.maps:
            cumulative.append(T @ cumulative[-1])
        before = hooked(context, query).flatten(1)
        return cls(hooked, layers, model.spec, context, query, trajectory, tuple(cumulative), before)

    def read(self, tokens: Float[Tensor, "prompt query D"]) -> Float[Tensor, "prompt output"]:
        return self.spec.read(tokens).flatten(1)

    def run(self, layer: int, after: Float[Tensor, "prompt position D"]) -> tuple[Float[Tensor, "prompt output"], int]:
        """The predictions when ``after`` is added to the tokens after ``layer`` layers, and in how many prompts that
        changed them."""
        prediction, fired = edited_run(self.hooked, (self.context, self.query), layer, lambda tokens: tokens + after)
        return prediction.flatten(1), fired

    def expected(self, layer: int, start: Float[Tensor, "prompt D D"]) -> Float[Tensor, "prompt output"]:
        """The predictions of the layers after ``layer`` when ``start`` is what the layers before make of the tokens."""
        rest = replace(self.layers, P=self.layers.P[layer:], Q=self.layers.Q[layer:])
        gram = start @ self.trajectory.grams[0] @ start.mT
        return self.read(forward(rest, gram, self.query @ start.mT).queries[-1])


def _weights(bench: _Bench, probed: WithinPrompt, generator: torch.Generator, seed: int) -> Transplant:
    row = Transplant(layer=probed.layer, kind="weights", prompts=len(bench.before))
    inputs, label = split(bench.spec)
    step = probed.w.roll(-1, 0) - probed.w
    direction = torch.randn(step.shape, generator=generator, dtype=step.dtype)
    length = torch.linalg.vector_norm(step, dim=(-2, -1), keepdim=True)
    random = direction * length / torch.linalg.vector_norm(direction, dim=(-2, -1), keepdim=True)
    tokens = torch.cat([bench.context, bench.query], dim=1)

    def put(change: Float[Tensor, "prompt label input"]) -> tuple[Float[Tensor, "prompt output"], int]:
        after = torch.zeros_like(tokens)
        after[..., label] = -tokens[..., inputs] @ change.mT
        return bench.run(probed.layer, after)

    exact = bench.cumulative[probed.layer]
    labels = tokens @ exact[:, label].mT
    if not float((tokens[..., inputs] @ step.mT).square().sum()) > NOTHING * float(labels.square().sum()):
        return replace(row, reason=SAME)
    start = exact.clone()
    start[:, label[0] : label[-1] + 1, inputs] = exact.roll(-1, 0)[:, label[0] : label[-1] + 1, inputs]
    wanted, own = bench.expected(probed.layer, start), put(torch.zeros_like(step))[0]
    return _measured(row, bench.before, put(step), wanted, own, put(random)[0], seed)


def _state(bench: _Bench, layer: int, seed: int) -> Transplant:
    row = Transplant(layer=layer, kind="state", prompts=len(bench.before))
    depth = len(bench.cumulative) - 1
    if bench.spec.attention.keys == "all" and layer < depth:
        return replace(row, reason=IN_KEYS)
    here = bench.cumulative[layer]

    def put(source: Tensor, context: Tensor) -> tuple[Tensor, int]:
        tokens = torch.cat([context @ source.mT, bench.query @ source.mT], dim=1)
        held = torch.cat([bench.context @ here.mT, bench.query @ here.mT], dim=1)
        return bench.run(layer, tokens - held)

    wanted = bench.read(bench.query @ bench.cumulative[depth].roll(-1, 0).mT)
    found = put(here.roll(-1, 0), bench.context.roll(-1, 0))
    return _measured(row, bench.before, found, wanted, put(here, bench.context)[0], None, seed)


def _measured(
    row: Transplant,
    before: Float[Tensor, "prompt output"],
    edited: tuple[Float[Tensor, "prompt output"], int],
    wanted: Float[Tensor, "prompt output"],
    own: Float[Tensor, "prompt output"],
    random: Float[Tensor, "prompt output"] | None,
    seed: int,
) -> Transplant:
    (found, fired), asked = edited, wanted - before
    size = asked.square().sum(-1)
    if not float(size.sum()) > NOTHING * float(before.square().sum() + wanted.square().sum()):
        return replace(row, reason=UNMOVED)

    def effect(of: Tensor) -> tuple[float | None, tuple[float | None, float | None]]:
        return ratio(((of - before) * asked).sum(-1), size, seed)

    def apart(of: Tensor, other: Tensor) -> float:
        return float((of - other).square().sum() / size.sum())

    return replace(
        row,
        fired=fired,
        **with_error("effect", effect(found)),
        error=apart(found, wanted),
        own=apart(own, before),
        **({} if random is None else with_error("random", effect(random))),
        random_error=None if random is None else apart(random, wanted),
    )
