"""Implicit weights of causal models, prefix by prefix, against sequences that are really run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.tasks import NoiseLaw, NoisyRegression
from interp.models.transformer import LinearTransformer
from interp.probes.activations import Reader
from interp.probes.responses import QUERIES, PrefixResponse, prefix_responses, queries

TASK = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="uniform", values=(0.0, 2.0)))


def model(size: float = 0.15, layers: int = 3, **fields: Any) -> LinearTransformer:
    given = {"attention": {"keys": "causal"}, **fields}
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK.to_dict(), **given})
    P, Q = size * torch.randn(2, layers, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=P, Q=Q)


def descent(step: float = 0.05, layers: int = 2, **fields: Any) -> LinearTransformer:
    """y_i <- y_i - step <alpha, x_i>."""
    given = model(layers=layers, **fields)
    P, Q = torch.zeros(2, layers, 1, 4, 4, dtype=torch.float64)
    Q[:, 0, :3, :3] = torch.eye(3, dtype=torch.float64)
    P[:, 0, 3, 3] = -step
    return LinearTransformer(spec=given.spec, P=P, Q=Q)


def responses(given: LinearTransformer, prefix: int, count: int = 20) -> tuple[list[PrefixResponse], Any, torch.Tensor]:
    prompts = TASK.sample(count, 1)
    _, cache = HookedLinearTransformer(given).run_with_cache(*prompts.inputs(given.spec))
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(given.layers))]
    x = queries(cache[names[0]][:, :-1], given.spec)
    return prefix_responses(given, [cache[n] for n in names], x, prefix), prompts, x


@pytest.mark.parametrize("fields", [{}, {"clip": 1.0}, {"residual": False}])
@pytest.mark.parametrize("prefix", [0, 3, 8])
def test_weights_are_a_fit_to_sequences_with_the_queries_in_place(prefix: int, fields: dict[str, Any]) -> None:
    given = model(**fields)
    found, prompts, x = responses(given, prefix, 4)
    (tokens,) = prompts.inputs(given.spec)
    context, query = tokens[:, :-1], tokens[:, -1:]
    answers = []
    for one in x:
        asked = query.clone()
        asked[:, 0, :3] = one
        sequence = torch.cat([context[:, :prefix], asked, context[:, prefix:]], dim=1)  # as long as it was
        _, cache = HookedLinearTransformer(given).run_with_cache(sequence)
        answers.append([cache[f"blocks.{layer}.hook_resid_post"][:, prefix, 3] for layer in range(3)])
    for layer in range(3):
        labels = torch.stack([entry[layer] for entry in answers], 1)
        expected = torch.linalg.lstsq(x.expand(4, -1, -1), labels[..., None]).solution[..., 0]
        torch.testing.assert_close(found[layer + 1].w, -expected, rtol=1e-9, atol=1e-12)
        left_out = torch.zeros_like(labels)
        for i in range(len(x)):
            rest = [j for j in range(len(x)) if j != i]
            fit = torch.linalg.lstsq(x[rest].expand(4, -1, -1), labels[:, rest, None]).solution[..., 0]
            left_out[:, i] = labels[:, i] - fit @ x[i]
        torch.testing.assert_close(found[layer + 1].error, left_out.square().sum(-1), rtol=1e-7, atol=1e-14)
    assert len(x) == QUERIES * 3


def test_gradient_descent_is_linear_in_every_prefix_and_its_first_step_is_alpha() -> None:
    for prefix in (1, 5, 8):
        found, prompts, _ = responses(descent(), prefix)
        alpha = (prompts.x[:, :prefix].mT @ prompts.y[:, :prefix, None])[..., 0]
        torch.testing.assert_close(found[1].w, 0.05 * alpha)
        # The second step also has the query's own label as a key: of third order in x, and small.
        assert found[1].r2[0] == pytest.approx(1.0, abs=1e-12)
        second = found[2].r2[0]
        assert second is not None and 0.5 < second < 1.0
    nothing, _, _ = responses(descent(), 0)
    assert all(fit.r2 == (None, (None, None)) and not fit.w.any() for fit in nothing)


def test_a_clip_makes_answers_less_linear() -> None:
    free, cut = (responses(descent(layers=1, clip=clip), 8)[0][1].r2 for clip in (None, 0.5))
    assert free[0] == pytest.approx(1.0) and cut[0] is not None and cut[0] < 0.95
    assert cut[1][1] is not None and cut[1][1] < 1.0


def test_the_reader_gives_every_position_its_own() -> None:
    given, prompts = descent(layers=1), TASK.sample(6, 5)
    found = Reader(given, ("within-prompt", "token"), (2, None)).read(prompts)
    alpha = (prompts.x.mT @ prompts.y[..., None])[..., 0]
    torch.testing.assert_close(found.features("within-prompt", 1, None), 0.05 * alpha)
    alpha = (prompts.x[:, :2].mT @ prompts.y[:, :2, None])[..., 0]
    torch.testing.assert_close(found.features("within-prompt", 1, 2), 0.05 * alpha)
