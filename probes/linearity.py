"""How linear the implicit model is: what the tokens hold, against what the exact unrolling says they hold."""

from __future__ import annotations

import math

from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import RegressionPrompts
from interp.models.transformer import LinearTransformer

__all__ = ["linearity_r2"]

ROUNDING = 1e-24  # share of the tokens' mean square below which the spread of their labels is rounding


def linearity_r2(model: LinearTransformer, prompts: RegressionPrompts) -> tuple[float | None, ...]:
    """R^2 of y_i^l ~ a^l y_i - <w^l, x_i> over all context tokens, with (a, w) from the unrolling and y_i^l read from
    the hooked token-by-token forward, before layer 0 and after every layer.

    1 up to rounding for linear layers, whatever the weights: it checks the unrolling, the hooks and the importer at
    once. None where the labels are all the same, or not finite.
    """
    context, query = prompts.tokens(model.spec)
    names = [f"blocks.{layer}.hook_resid_post" for layer in range(model.layers)]
    _, cache = HookedLinearTransformer(model).run_with_cache(context, query, names_filter=names)
    grams = prompts.grams(model.spec)
    maps = forward(head_layers(model, prompts.context), grams.gram, grams.query).maps
    label = model.spec.channel(model.spec.readout.channel).indices
    scores: list[float | None] = [1.0]  # before layer 0 the implicit model is the token itself
    expected = context
    for name, T in zip(names, maps, strict=True):
        expected = expected @ T.mT
        tokens = cache[name][:, : prompts.context]
        actual = tokens[..., label]
        spread = float(((actual - actual.mean()) ** 2).mean())
        error = float(((actual - expected[..., label]) ** 2).mean())
        known = spread > ROUNDING * float((tokens**2).mean())
        scores.append(1.0 - error / spread if known and math.isfinite(error / spread) else None)
    return tuple(scores)
