"""Certificates of causal models: planted algorithms of linear dynamics, run from the emitted files."""

from __future__ import annotations

import planting
import pytest
import torch
from planting_channels import planted, scrambled

from interp.algebra.channels import heads_of
from interp.certificate import certify, recognize
from interp.families.channel_heads import BlockHeads
from interp.models.constructions import gradient_step
from interp.models.skipped import Skipped
from interp.models.specification import ModelSpec
from interp.models.tasks import LinearDynamics
from interp.models.token_pass import run, states
from interp.models.transformer import LinearTransformer
from interp.reports.emit import emitted
from interp.results import RecoveredHeads, RecoveredStep

SEQUENCES = 128
W_0 = ((0.5, 0.1, 0.0), (-0.2, 0.3, 0.4), (0.1, 0.0, -0.5))


def network(model: LinearTransformer, tokens: torch.Tensor) -> torch.Tensor:
    return run(model.spec, dict(model.named()), tokens)


CASES = [
    (planted(LinearDynamics(dim=3, context=10, dynamics="contracting"), 2, 3, 4)[0], RecoveredHeads),
    (planted(LinearDynamics(dim=3, context=8, start=0.4), 3, 2, 1, clip=1.0)[0], RecoveredHeads),
    (planted(LinearDynamics(dim=2, context=8, dynamics="fixed", teacher=3), 1, 2, 2)[0], RecoveredHeads),
    (gradient_step(LinearDynamics(dim=3, context=12, start=W_0), 0.05), RecoveredStep),
]


@pytest.mark.parametrize(("model", "kind"), CASES)
def test_planted_algorithms_are_emitted(model: LinearTransformer, kind: type) -> None:
    model = scrambled(model, 7)
    checkpoint = planting.checkpoint(model)
    found = recognize(checkpoint, SEQUENCES, 0)
    assert found is not None
    made = certify(found, SEQUENCES, None)
    assert isinstance(made.recovered, kind)
    for entry in made.disagreements:
        if entry.skipped is None:
            assert entry.q99 is not None and entry.q99 < 1e-6, entry
            assert entry.r2 == pytest.approx(1.0, abs=1e-9)
    names: dict[str, object] = {"__name__": "emitted"}
    exec(emitted(made, "torch"), names)
    predict = names["predict"]
    assert callable(predict)
    task = LinearDynamics.from_dict(model.spec.task or {})
    drawn = task.sample(4, 99)
    expected = network(model, drawn.inputs(model.spec)[0])
    torch.testing.assert_close(torch.func.vmap(predict)(drawn.states[:, :-1]), expected, rtol=1e-6, atol=1e-8)


def by_maps(spec: ModelSpec, k: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The block-scalar network without heads: e_i[a] += s sum_bge k[a, b, g, e] sum_j e_j[b] <e_j[g], e_i[e]>."""
    e = tokens.unflatten(-1, (k.shape[-1], spec.tokens[0][1])).transpose(1, 2)  # (sequence, c, pos, d)
    for layer in k:
        scores = torch.einsum("netd,ngjd->ngetj", e, e).tril()
        mixed = torch.einsum("abge,ngetj->nabtj", layer, scores)
        e = e + spec.attention.factor(tokens.shape[1]) * torch.einsum("nabtj,nbjd->natd", mixed, e)
        e = e if spec.clip is None else e.clamp(-spec.clip, spec.clip)
    return spec.read(e.transpose(1, 2).flatten(2))


def test_maps_predict_what_their_heads_do() -> None:
    """Where tokens meet the clip, too."""
    task = LinearDynamics(dim=3, context=9)
    model, k = planted(task, 3, 4, 5, clip=0.5, strength=0.6)
    tokens = task.sample(20, 0).inputs(model.spec)[0]
    assert float((states(model.spec, dict(model.named()), tokens)[-1].abs() >= 0.5).double().mean()) > 0.01
    torch.testing.assert_close(by_maps(model.spec, k, tokens), network(model, tokens))
    fewest = BlockHeads.of([heads_of(layer) for layer in k])
    torch.testing.assert_close(fewest.predict(model.spec, tokens), network(model, tokens))
    heads = BlockHeads(model.Q[..., ::3, ::3], model.P[..., ::3, ::3])
    torch.testing.assert_close(heads.k, k)


def test_variations_are_what_they_are_called() -> None:
    task = LinearDynamics(dim=2, context=9, dynamics="fixed", teacher=4)
    made = {name: v.task for name, v in task.variations().items()}
    kinds = {name: kind for name, kind in made.items() if isinstance(kind, LinearDynamics)}
    assert kinds.keys() == made.keys() and kinds["task"] == task
    assert kinds["noise x2"].noise.values == (0.02,)
    assert (kinds["length x1/2"].context, kinds["length x2"].context) == (4, 18)
    torch.testing.assert_close(kinds["start x2"].sample(3, 0).states[:, 0], 2 * task.sample(3, 0).states[:, 0])
    assert [kinds[f"dynamics {name}"].dynamics for name in ("orthogonal", "contracting")] == [
        "orthogonal",
        "contracting",
    ]
    short = LinearDynamics(dim=2, context=1).variations()
    assert isinstance(short["length x1/2"].task, Skipped) and "dynamics orthogonal" not in short
