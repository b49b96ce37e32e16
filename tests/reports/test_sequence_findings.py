"""The tables of a causal model: no figure is rounded away or capped."""

from __future__ import annotations

import dataclasses

import pytest
import synthetic_analyses
from shown import sequence_parts

from interp.results import Analysis, Coefficient, Compression, MesaObjective, RankedNumber, Section, Sequences

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


def of(found: Sequences, part: str, base: Analysis | None = None) -> Section:
    base = base or dataclasses.replace(synthetic_analyses.analysis(), layers=())
    (known,) = (p for p in sequence_parts(dataclasses.replace(base, sequences=found)) if p.name == part)
    return known


def row(part: str, **fields: object) -> tuple[str, ...]:
    """The first row of the one table that there is."""
    return of(dataclasses.replace(EMPTY, **fields), part).table.rows[0]  # type: ignore[arg-type]  # of any field


def with_maps(**maps: Coefficient) -> Analysis:
    base = synthetic_analyses.analysis()
    return dataclasses.replace(base, layers=(dataclasses.replace(base.layers[0], maps=maps),))


def coefficient(output: float, stderr: float, refit_stderr: float | None = None) -> Coefficient:
    return Coefficient(
        weight=0.013, output=output, stderr=stderr, refit=0.014, refit_stderr=refit_stderr, live=True, undetermined=None
    )


@pytest.mark.parametrize(
    ("output", "stderr", "text"),
    [
        (-7.0, 79.0, "not determined"),  # channels that hold nearly the same
        (63.0, 49.0, "not determined"),
        (-0.5, 0.8, "not determined"),
        (-2.0, 0.1, "-2.00 ± 0.10"),  # far from the other estimates, and surely so
        (0.013, 0.009, "0.013 ± 0.009"),
    ],
)
def test_an_estimate_that_the_data_leave_open_is_no_number(output: float, stderr: float, text: str) -> None:
    part = of(EMPTY, "maps", with_maps(a=coefficient(output, stderr)))
    assert part.table.rows[0][3] == text


def test_a_column_names_a_standard_error_only_where_there_is_one() -> None:
    bare = of(EMPTY, "maps", with_maps(a=coefficient(0.01, 0.001)))
    assert bare.table.header[-1] == "recovered" and "from the weights alone" in bare.notes[-1]
    refitted = Compression(
        kind="refit", numbers_per_head=9.0, numbers=9, loss=0.4, stderr=0.1, ratio=1.0, ratio_stderr=0.1, fidelity=0.9
    )
    loose = of(dataclasses.replace(EMPTY, compressions=(refitted,)), "maps", with_maps(a=coefficient(0.01, 0.001)))
    assert loose.notes[-1].startswith("recovered: refitted; the data do not fix these")
    fitted = of(EMPTY, "maps", with_maps(a=coefficient(0.01, 0.001, 0.002)))
    assert fitted.table.header[-1] == "recovered ± stderr" and fitted.table.rows[0][-1] == "0.014 ± 0.002"


def test_block_means_have_their_error_and_their_sample() -> None:
    kept = Compression(
        kind="published", numbers_per_head=32.0, numbers=164, loss=0.42, stderr=0.01, ratio=0.963, ratio_stderr=0.03,
        fidelity=0.99,
    )  # fmt: skip
    part = of(dataclasses.replace(EMPTY, compressions=(kept,)), "compression")
    assert "have 0.96 ± 0.03 times the network's loss" in part.finding
    assert "another sample than in the table of losses" in part.notes[0]


def test_an_objective_that_rises_is_told_from_the_error_of_the_prediction() -> None:
    def rows(*values: float) -> tuple[MesaObjective, ...]:
        return tuple(MesaObjective(layer=i, position=49, objective=v, condition=10.0) for i, v in enumerate(values))

    rising = of(dataclasses.replace(EMPTY, objectives=rows(1.0, 0.1, 0.4)), "objectives")
    assert any("L rises in some layer (t = 49)" in note for note in rising.notes)
    falling = of(dataclasses.replace(EMPTY, objectives=rows(1.0, 0.4, 0.1)), "objectives")
    assert not any("rises" in note for note in falling.notes)


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
