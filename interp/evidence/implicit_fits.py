"""How linear the implicit model of a checkpoint is, layer by layer: the within-prompt probe's own R^2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from interp.evidence.question import with_error
from interp.models.tasks import Prompts
from interp.models.transformer import LinearTransformer
from interp.probes.responses import prefix_responses, queries
from interp.probes.tokens import layer_tokens
from interp.probes.within import fit_tokens
from interp.results import ImplicitFit

__all__ = ["implicit_fits"]

NUMBERS = 2**25  # at most so many numbers of tokens over all layers
PROMPTS = 512
FREE = "skipped, because a prompt has no more tokens than unknowns, or most diverge"
SILENT = "skipped, because all queries are answered by 0, or most diverge"


def implicit_fits(
    model: LinearTransformer, drawn: Prompts, positions: Sequence[int | None], layers: Sequence[int]
) -> tuple[ImplicitFit, ...]:
    """One row per position (of a causal model; else one for the prompt) and per number of layers run, on at most
    PROMPTS of the prompts. Rows without a score say why."""
    each = (drawn.context + 1) * model.spec.width * (model.layers + 1)
    drawn = drawn[: max(1, min(PROMPTS, NUMBERS // each))]
    tokens = layer_tokens(model, drawn)
    if model.spec.attention.keys != "causal":
        rows, why = "tokens", FREE
        found = [(fit.layer, None, (fit.r2, fit.r2_ci)) for fit in fit_tokens(tokens, model.spec)]
    else:
        rows, why = "queries", SILENT
        x = queries(tokens[0][:, : drawn.context], model.spec)
        found = [
            (fit.layer, position, fit.r2)
            for position in positions
            for fit in prefix_responses(model, tokens, x, drawn.context if position is None else position)
        ]
    row = partial(ImplicitFit, rows=rows, prompts=drawn.count)
    return tuple(
        row(layer=layer, position=position, reason=why if r2[0] is None else None, **with_error("linearity_r2", r2))
        for layer, position, r2 in found
        if layer in layers
    )
