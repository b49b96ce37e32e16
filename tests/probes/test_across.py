"""One pass for all probes, against scikit-learn on the activations themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from interp.models.specification import ModelSpec
from interp.models.tasks import KINDS, NoiseLaw, NoisyRegression, find_targets, targets_of
from interp.models.transformer import LinearTransformer
from interp.probes.across import batteries, gather
from interp.probes.activations import Reader, stream
from interp.probes.moments import group_of
from interp.probes.ridge import cross_fit, held_out_groups

TASK = NoisyRegression(dim=3, context=8, noise=NoiseLaw(kind="uniform", values=(0.2, 2.0)))
COUNT, GROUPS, LAYERS = 300, 20, (0, 1, 3)
POSITIONS = (None, 4)


@pytest.fixture(scope="module")
def model() -> LinearTransformer:
    spec = ModelSpec.from_dict({"tokens": [["x", 3], ["y", 1]], "task": TASK.to_dict()})
    weights = 0.08 * torch.randn(2, 3, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return LinearTransformer(spec=spec, P=weights[0], Q=weights[1])


def test_kinds_and_their_targets() -> None:
    token, within, gram = batteries(TASK, targets_of(TASK), POSITIONS)
    assert [b.kind for b in (token, within, gram)] == list(KINDS)
    assert token.widths == {
        "w": 3, "w-ols": 3, "w-ridge": 3, "alpha": 3, "noise": 1, "label": 1, "current": 3, "preconditioned": 3,
        "chebyshev-6": 3,
    }  # fmt: skip
    assert list(within.widths) == ["w", "w-ols", "w-ridge", "alpha"] and list(gram.widths)[-1] == "noise"
    assert token.positions == POSITIONS and gram.positions == (None,)
    (only,) = batteries(TASK, find_targets(TASK, ["label"]), (None,))
    assert only.widths == {"label": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_are_those_of_scikit_learn_on_the_activations(kind: str, model: LinearTransformer) -> None:
    (battery,) = batteries(TASK, targets_of(TASK), POSITIONS, [kind])
    reader = Reader(model, (kind,), POSITIONS)
    found = gather(reader, [battery], LAYERS, stream(TASK, COUNT, 1, 64), COUNT, GROUPS)[kind]
    fit = cross_fit(found, battery.widths)

    whole = [reader.read(prompts) for prompts in stream(TASK, COUNT, 1, 64)]
    drawn = list(stream(TASK, COUNT, 1, 64))
    seen = ~held_out_groups(GROUPS)[group_of(torch.arange(COUNT), COUNT, GROUPS)].numpy()
    cells = battery.positions if kind == "token" else (None,)
    for stream_index, layer in enumerate(LAYERS):
        for cell, position in enumerate(cells):
            X = torch.cat([part.features(kind, layer, position) for part in whole]).numpy()
            for at, target in enumerate(battery.targets):
                values = [target.value(prompts, position) for prompts in drawn]
                Y = torch.cat([v for v in values if v is not None]).numpy()
                where = (stream_index, cell) if kind == "token" else (stream_index,)
                spread = ((X[seen] - X[seen].mean(0)) ** 2).sum() / X.shape[1]
                penalty = float(fit.penalty[(*where, at)]) * spread
                if spread < 1e-12:
                    continue  # implicit weights before the first layer are all zero: nothing to fit
                reference = Ridge(alpha=penalty, solver="svd").fit(X[seen], Y[seen]).coef_
                ours = fit.predictor.coef[(0, *where)][:, fit.targets[target.name]].T.numpy()
                scale = np.abs(reference).max()
                np.testing.assert_allclose(ours, reference.reshape(ours.shape), rtol=1e-8, atol=1e-8 * scale)


def test_chunks_do_not_matter(model: LinearTransformer) -> None:
    """The same prompts in one piece and in many."""
    wanted = batteries(TASK, targets_of(TASK), POSITIONS)
    reader = Reader(model, KINDS, POSITIONS)
    prompts = TASK.sample(COUNT, 4)
    whole = gather(reader, wanted, LAYERS, [prompts], COUNT, GROUPS)
    parts = gather(
        reader, wanted, LAYERS, [prompts[i : i + 37] for i in range(0, COUNT, 37)], COUNT, GROUPS
    )  # fmt: skip
    for kind in KINDS:
        for name in ("count", "x_mean", "xx", "xy", "yy"):
            ours, theirs = getattr(whole[kind], name), getattr(parts[kind], name)
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * float(ours.abs().max()))


def test_shuffled_targets_are_those_of_other_prompts(model: LinearTransformer) -> None:
    wanted = batteries(TASK, find_targets(TASK, ["current"]), (None,))
    reader = Reader(model, KINDS, (None,))
    prompts = [TASK.sample(COUNT, 4)]
    real = gather(reader, wanted, (0,), prompts, COUNT, 1)["token"]
    other = gather(reader, wanted, (0,), prompts, COUNT, 1, shuffle=True)["token"]
    torch.testing.assert_close(real.yy, other.yy)  # the same targets
    assert float(real.xy[0, 0, 0].diagonal().min()) > 0.7 * COUNT  # x and itself
    assert float(other.xy.abs().max()) < 5 * COUNT**0.5  # x and that of another prompt
