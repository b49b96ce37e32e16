"""The tables of a causal model: no figure is rounded away or capped."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses

from interp.reports.sequence_findings import sequence_parts
from interp.results import Compression, RankedNumber, Sequences

EMPTY = Sequences(
    prompts=64,
    positions=(),
    clipped=0.0,
    live={},
    losses=(),
    compressions=(),
    interpolation=(),
    gradient_step=None,
    ranking=(),
    objectives=(),
)


def row(part: str, **fields: object) -> tuple[str, ...]:
    """The first row of the one table that there is."""
    found = dataclasses.replace(EMPTY, **fields)  # type: ignore[arg-type]  # of any field
    analysis = dataclasses.replace(synthetic_analyses.analysis(), sequences=found, layers=())
    (known,) = (p for p in sequence_parts(analysis) if p.name == part)
    return known.table.rows[0]


@pytest.mark.parametrize(("cost", "text"), [(0.5, "50 %"), (42.0, "4200 %"), (3e4, "3.0e6 %")])
def test_a_cost_is_printed_whatever_its_size(cost: float, text: str) -> None:
    number = RankedNumber(layer=0, head=0, matrix="Q", entry="query · previous", value=1.0, cost=cost)
    assert row("ranking", ranking=(number,))[-1] == text


@pytest.mark.parametrize(("fidelity", "text"), [(0.9999996, "0.99999960"), (1 - 1e-15, "1.0000"), (None, "—")])
def test_a_fidelity_short_of_one_is_not_printed_as_one(fidelity: float | None, text: str) -> None:
    kept = Compression(
        kind="refit", numbers_per_head=4.0, numbers=8, loss=0.1, stderr=0.01, ratio=1.0, ratio_stderr=0.01,
        fidelity=fidelity,
    )  # fmt: skip
    assert row("compression", compressions=(kept,))[4] == text
