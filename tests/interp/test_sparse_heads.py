"""Block-scalar heads of few numbers: planted ones are found among many, and what counts is the cost, not the size."""

from __future__ import annotations

import pytest
import torch
from planting import checkpoint
from planting_channels import channel_spec

from interp.algebra.channels import block_weights
from interp.evidence.sparse_heads import costs, dearest, refitted
from interp.families.channel_heads import BlockHeads, free_numbers, live_channels
from interp.identify.networks import SequenceHalf
from interp.identify.run import Run
from interp.models.tasks import LinearDynamics
from interp.models.transformer import LinearTransformer

TASK = LinearDynamics(dim=3, context=12)
PLACES = [  # (layer, head, matrix, row, column) of the numbers that carry the network
    (0, 0, "q", 1, 3), (0, 0, "p", 1, 3), (0, 1, "q", 2, 3), (0, 1, "p", 1, 2), (1, 0, "q", 1, 3), (1, 0, "p", 0, 2),
    (1, 1, "q", 2, 3), (1, 1, "p", 0, 3),
]  # fmt: skip


def sparse() -> tuple[Run, BlockHeads, SequenceHalf]:
    """Eight numbers that count, on others that are tiny; and one, of a channel that is 0, larger than all."""
    generator = torch.Generator().manual_seed(0)
    parts = {m: 1e-4 * torch.randn(2, 2, 4, 4, generator=generator, dtype=torch.float64) for m in "qp"}
    for number, (layer, head, matrix, row, column) in enumerate(PLACES):
        parts[matrix][layer, head, row, column] = 0.12 + 0.02 * number
    parts["q"][0, 0, 0, 0] = 5.0  # "out" is 0 before the first layer
    heads = BlockHeads(parts["q"], parts["p"])
    Q, P = (block_weights(value, TASK.dim) for value in (heads.q, heads.p))
    run = Run.of(checkpoint(LinearTransformer(spec=channel_spec(TASK), Q=Q, P=P)))
    half, lost = SequenceHalf.of(run.model, TASK.sample(96, 1))
    assert not lost
    return run, heads, half


def free_of(run: Run, half: SequenceHalf):
    live = live_channels(run.spec, run.model.Q, run.model.P, half.tokens[:32], TASK.dim)
    return free_numbers(live, run.model.heads)


def test_the_numbers_that_carry_the_network_are_the_dearest():
    run, heads, half = sparse()
    few, kept = dearest(heads, costs(run.spec, heads, free_of(run, half), half, 0), len(PLACES))
    found = {
        (layer, head, matrix, row, column)
        for matrix, mask in zip("qp", kept, strict=True)
        for layer, head, row, column in torch.nonzero(mask).tolist()
    }
    assert found == set(PLACES) and few.numbers == len(PLACES)
    assert half.unexplained(few.heads.predict(run.spec, half.tokens)) < 1e-3
    every, _ = dearest(heads, costs(run.spec, heads, free_of(run, half), half, 0), 10_000)
    assert every.heads.q[0, 0, 0, 0] == 0.0  # it has no say, so it costs nothing and is never kept


def test_a_cost_is_what_doing_without_costs():
    run, heads, half = sparse()
    known = costs(run.spec, heads, free_of(run, half), half, 0)
    spread = float((half.outputs - half.outputs.mean((0, 1))).square().sum())
    for layer, head, matrix, row, column in PLACES[-2:]:  # of the last layer: there the second order is all
        q, p = heads.q.clone(), heads.p.clone()
        {"q": q, "p": p}[matrix][layer, head, row, column] = 0.0
        error = half.outputs - BlockHeads(q, p).predict(run.spec, half.tokens)
        expected = {"q": known.cost_q, "p": known.cost_p}[matrix][layer, head, row, column]
        # The curvature is of FUNCTIONALS random functionals of 64 sequences: a tenth, about.
        assert float(error.square().sum()) / spread == pytest.approx(float(expected), rel=0.5)


def test_what_is_left_is_fitted_again():
    run, heads, half = sparse()
    wrong = BlockHeads(1.2 * heads.q, 0.9 * heads.p)  # a start from which the costs find the same numbers
    ladder = dict(refitted(run, wrong, free_of(run, half), half, (32, 2), 0))
    assert list(ladder) == [32, 2] and ladder[2].numbers == len(PLACES) and ladder[32].numbers > 40
    other, _ = SequenceHalf.of(run.model, TASK.sample(64, 2))
    assert other.unexplained(wrong.predict(run.spec, other.tokens)) > 5e-3
    for size, bound in ((32, 1e-4), (2, 1e-3)):  # after 8 steps; the tiny numbers are beyond two per head
        assert other.unexplained(ladder[size].heads.predict(run.spec, other.tokens)) < bound
