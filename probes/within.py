"""Within a prompt: what linear model the tokens of one prompt hold of its labels, layer by layer.

    y_i^l = a^l y_i - <w^l, x_i>,      i over the tokens of a prompt, (x_i, y_i) as they enter layer 0

- ``within_prompt`` fits (a^l, w^l) to the activations by least squares, knowing nothing of the weights. Where layers
  are linear it must find the implicit model of the exact unrolling; where they are not, its R^2 says how linear the
  network still is. The query token is one of the rows: its label starts at 0, so (a, w) are determined even where
  labels are noise-free and so a linear function of the inputs.
- ``linearity_r2`` goes the other way: what the unrolling says that the tokens hold, against what they hold.

Source: design 3.7; Vladymyrov et al., arXiv 2402.14180, theorem 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import UsageError
from interp.models.gram import forward, head_layers
from interp.models.specification import ModelSpec
from interp.models.tasks import Examples
from interp.models.transformer import LinearTransformer
from interp.probes.interventions import Interval
from interp.probes.responses import split
from interp.probes.tokens import layer_tokens
from interp.stats.bootstrap import explained

__all__ = ["WithinPrompt", "fit_tokens", "linearity_r2", "within_prompt"]

ROUNDING = 1e-24  # share of the tokens' mean square below which the spread of their labels is rounding
SINGULAR = 1e-10  # singular values of the tokens below this share of the largest leave a direction of (a, w) free
ROUNDED = 1e-13  # coefficients below this share of what labels of their size could give are rounding
DECIDED = 1e-6  # a token that decides its own fitted value but for this share says nothing about the fit


@dataclass(frozen=True, eq=False)
class WithinPrompt:
    """The linear model of every prompt after ``layer`` layers. ``a`` and ``w`` are NaN where the tokens leave them
    free, which ``determined`` says.

    ``r2`` is scored token by token, each predicted from the fit to the others of its prompt, over all prompts; NaN per
    prompt and None over all where there are no more tokens than unknowns, or labels do not vary. ``r2_ci``: its
    interval, over prompts.
    """

    layer: int
    a: Float[Tensor, "prompt label label"]
    w: Float[Tensor, "prompt label input"]
    determined: Bool[Tensor, " prompt"]
    r2_by_prompt: Float[Tensor, " prompt"]
    r2: float | None
    r2_ci: Interval


def _tokens(model: LinearTransformer, prompts: Examples) -> list[Float[Tensor, "prompt position D"]]:
    """By layers run: the context first, then the query. Raises UsageError for causal keys: there every token passes
    through a map of its own, so that a prompt has one row for the d + 1 unknowns of each."""
    if model.spec.attention.keys == "causal":
        raise UsageError(
            "attention.keys is 'causal', expected 'context' or 'all': with causal keys every token has a linear model "
            "of its own, and one token cannot determine it; other queries in its place do (prefix_responses)"
        )
    return layer_tokens(model, prompts)


def within_prompt(model: LinearTransformer, prompts: Examples) -> tuple[WithinPrompt, ...]:
    """The probe before layer 0 and after every layer, for all prompts at once."""
    return fit_tokens(_tokens(model, prompts), model.spec)


def fit_tokens(layers: Sequence[Float[Tensor, "prompt position D"]], spec: ModelSpec) -> tuple[WithinPrompt, ...]:
    """The probe, from all tokens of the prompts before layer 0 and after every layer."""
    first = layers[0]
    left, values, right = torch.linalg.svd(first, full_matrices=False)
    kept = values > SINGULAR * values[:, :1]
    determined = kept.sum(-1) == first.shape[-1]
    left = left * kept[:, None, :]
    inverse = right.mT * torch.where(kept, 1.0 / torch.where(kept, values, 1.0), 0.0)[:, None, :]
    freedom = 1.0 - left.square().sum(-1)  # 1 - h_i, h the leverage of token i
    inputs, label = split(spec)
    out = []
    for layer, tokens in enumerate(layers):
        labels = tokens[..., label]
        coefficients = inverse @ (left.mT @ labels)
        scores = _left_out(labels, first @ coefficients, freedom, float((tokens**2).mean()))
        least = ROUNDED * torch.linalg.vector_norm(labels, dim=(-2, -1)) / values[:, -1]
        coefficients = torch.where(coefficients.abs() > least[:, None, None], coefficients, 0.0)
        coefficients = torch.where(determined[:, None, None], coefficients, torch.nan)
        a, w = coefficients[:, label].mT, -coefficients[:, inputs].mT
        out.append(WithinPrompt(layer, a, w, determined, *scores))
    return tuple(out)


def _left_out(
    labels: Float[Tensor, "prompt position label"],
    fitted: Float[Tensor, "prompt position label"],
    freedom: Float[Tensor, "prompt position"],
    size: float,
) -> tuple[Float[Tensor, " prompt"], float | None, Interval]:
    """R^2 of labels from fits that leave them out, y_i - yhat_i / (1 - h_i): by prompt, and over all."""
    scored = (freedom > DECIDED).to(labels.dtype)
    error = (scored * ((labels - fitted).square().sum(-1) / freedom.clamp_min(DECIDED) ** 2)).sum(-1)
    count = scored.sum(-1, keepdim=True)
    mean = (scored[..., None] * labels).sum(1) / count.clamp_min(1.0)
    spread = (scored * (labels - mean[:, None]).square().sum(-1)).sum(-1)
    scorable = (count[:, 0] > 1) & (spread > ROUNDING * size * count[:, 0])
    by_prompt = torch.where(scorable, 1.0 - error / torch.where(scorable, spread, 1.0), torch.nan)
    return by_prompt, *explained(error[scorable], spread[scorable])


def linearity_r2(model: LinearTransformer, prompts: Examples) -> tuple[float | None, ...]:
    """R^2 of y_i^l ~ a^l y_i - <w^l, x_i> over all context tokens, with (a, w) from the unrolling and y_i^l read from
    the hooked token-by-token forward, before layer 0 and after every layer.

    1 up to rounding for linear layers, whatever the weights: it checks the unrolling, the hooks and the importer at
    once. None where the labels are all the same, or not finite.
    """
    expected, *rest = _tokens(model, prompts)
    grams = prompts.grams(model.spec)
    maps = forward(head_layers(model, prompts.context), grams.gram, grams.query).maps
    _, label = split(model.spec)
    scores: list[float | None] = [1.0]  # before layer 0 the implicit model is the token itself
    for tokens, T in zip(rest, maps, strict=True):
        expected = expected @ T.mT
        tokens = tokens[:, : prompts.context]
        actual = tokens[..., label]
        spread = float(((actual - actual.mean()) ** 2).mean())
        error = float(((actual - expected[:, : prompts.context, label]) ** 2).mean())
        varies = spread > ROUNDING * float((tokens**2).mean())
        scores.append(1.0 - error / spread if varies and math.isfinite(error / spread) else None)
    return tuple(scores)
