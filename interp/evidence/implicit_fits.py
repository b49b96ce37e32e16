"""How linear the implicit model of a checkpoint is, layer by layer: the within-prompt probe's own R^2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
    row = partial(ImplicitFit, prompts=drawn.count)
    if model.spec.attention.keys != "causal":
        return tuple(
            row(
                layer=fit.layer, position=None, rows="tokens", linearity_r2=fit.r2, linearity_r2_ci=fit.r2_ci,
                reason=None if fit.r2 is not None else FREE,
            )
            for fit in fit_tokens(tokens, model.spec)
            if fit.layer in layers
        )  # fmt: skip
    x = queries(tokens[0][:, : drawn.context], model.spec)
    out = []
    for position in positions:
        for fit in prefix_responses(model, tokens, x, drawn.context if position is None else position):
            r2, r2_ci = fit.r2
            out.append(
                row(
                    layer=fit.layer, position=position, rows="queries", linearity_r2=r2, linearity_r2_ci=r2_ci,
                    reason=None if r2 is not None else SILENT,
                )
            )  # fmt: skip
    return tuple(fit for fit in out if fit.layer in layers)
