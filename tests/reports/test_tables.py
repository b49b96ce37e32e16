"""Every table of a result as a DataFrame, and as files that read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic_analyses
import synthetic_closed_form
import synthetic_kinds
import synthetic_probes

from interp.errors import UsageError
from interp.reports.table_files import write_tables
from interp.results import Analysis, SweepRow, to_frame
from interp.results.section import Section, Table
from interp.results.tables import tables_of


def tables_within(value: Any) -> Iterator[tuple[Any, ...]]:
    """Every non-empty tuple of dataclasses that a result holds, however deep."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.metadata.get("table", True):
                yield from tables_within(getattr(value, field.name))
    elif isinstance(value, dict):
        for entry in value.values():
            yield from tables_within(entry)
    elif isinstance(value, tuple):
        if value and all(dataclasses.is_dataclass(entry) for entry in value):
            yield value
        for entry in value:
            yield from tables_within(entry)


def test_no_row_of_a_result_is_lost(any_analysis: Analysis) -> None:
    frames = any_analysis.tables()
    kinds: dict[type, int] = {}
    for rows in tables_within(any_analysis):
        kinds[type(rows[0])] = kinds.get(type(rows[0]), 0) + len(rows)
    assert sum(len(frame) for frame in frames.values()) >= sum(kinds.values())
    for frame in frames.values():
        assert len(frame) and frame.columns.is_unique
    if any_analysis.families:
        assert frames["families"]["name"].tolist() == [family.name for family in any_analysis.families]


def test_coefficients_stand_beside_their_layer() -> None:
    made = synthetic_analyses.analysis()
    frame = made.to_frame("coefficients")
    omegas = frame[frame["kind"] == "omega"]
    assert len(omegas) == 4 * len(made.layers)
    for layer in made.layers:
        for name, coefficient in layer.omega.items():
            (row,) = omegas[(omegas["layer"] == layer.index) & (omegas["name"] == name)].to_dict("records")
            assert row["live"] == coefficient.live
            for estimate in ("weight", "output", "stderr", "refit"):
                value = getattr(coefficient, estimate)
                assert pd.isna(row[estimate]) if value is None else row[estimate] == value


def test_intervals_are_two_columns_and_what_is_not_known_is_missing() -> None:
    made = synthetic_analyses.analysis()
    scored = [family for family in made.families if family.fidelity is not None]
    unscored = dataclasses.replace(scored[0], fidelity=None, fidelity_ci=(None, None), name="unscored")
    frame = to_frame((*scored, unscored))
    assert frame["fidelity_low"].tolist()[:-1] == [family.fidelity_ci[0] for family in scored]
    assert frame["fidelity_high"].tolist()[:-1] == [family.fidelity_ci[1] for family in scored]
    assert frame["fidelity"].dtype == "float64" and frame.iloc[-1][["fidelity", "fidelity_low"]].isna().all()
    assert frame["parameters"].dtype == "Int64" and frame["chosen"].dtype == "boolean"


def test_rows_within_rows_say_which_row_they_belong_to() -> None:
    made = synthetic_kinds.everything()
    stress = made.evidence.to_frame("stress_points")
    assert stress["name"].tolist() == [s.name for s in made.evidence.stress for _ in s.points]
    assert made.regression is not None
    profile = made.regression.to_frame("profile_series_by_sigma")
    for series in made.regression.profile.series:
        rows = profile[profile["name"] == series.name]
        assert rows["sigma"].tolist() == list(made.regression.profile.sigma)
        assert rows["excess"].tolist() == pytest.approx(
            [float("nan") if v is None else v for v in series.excess], nan_ok=True
        )
    assert made.behaviour is not None
    shifts = made.behaviour.to_frame("shifts")
    first = made.behaviour.shifts[0]
    for solver, interval in first.disagreement_ci.items():
        assert (shifts[f"disagreement_{solver}_low"][0], shifts[f"disagreement_{solver}_high"][0]) == interval


def test_closed_forms_completion_and_probes_have_their_tables() -> None:
    closed = synthetic_closed_form.analysed(synthetic_analyses.analysis()).tables()
    assert {"closed_form_checks", "closed_form_heads", "closed_form_divisions_bins", "closed_form_rescaled"} <= set(
        closed
    )
    assert set(closed["closed_form_divisions_bins"]) >= {"layer", "V", "scale", "stderr"}
    completion = synthetic_kinds.everything().tables()
    assert set(completion["completion_laws_points"]) >= {"statistic", "layer", "eta_low", "gamma_high"}
    report = synthetic_probes.report(synthetic_probes.at_the_query())
    scores = report.to_frame("probes")
    assert len(scores) == len(report.probes)
    assert scores["control_shuffled"].tolist() == [score.control["shuffled"] for score in report.probes]


def test_matrices_are_tables_of_their_cells() -> None:
    made = synthetic_analyses.preconditioned()
    cells = made.to_frame("preconditioners_weight")
    for entry in made.preconditioners:
        for i, row in enumerate(entry.weight):
            mine = cells[(cells["layer"] == entry.layer) & (cells["axis_0"] == i)]
            assert mine["value"].tolist() == list(row)


def test_the_recovered_algorithm_is_a_table_of_its_terms() -> None:
    made = synthetic_analyses.analysis()
    assert made.recovered is not None
    terms = made.to_frame("recovered_updates_terms")
    wanted = [
        (layer, update.channel, term.name, term.number)
        for layer, updates in enumerate(made.recovered.updates)
        for update in updates
        for term in update.terms
    ]
    columns = [terms[name] for name in ("update", "channel", "name", "coefficient_value")]
    assert list(zip(*columns, strict=True)) == wanted


def test_answers_from_outside_are_tables_too() -> None:
    table = Table(header=("layer", "share"), rows=(("0", "1 %"), ("1", "2 %")))
    part = Section(name="part", title="Part", table=table)
    section = Section(name="tails", title="Tails", table=table, parts=(part, Section(name="words", title="Words")))
    made = dataclasses.replace(synthetic_analyses.analysis(), answers={"tails": section}).tables()
    assert made["answers_tails"]["share"].tolist() == ["1 %", "2 %"]
    assert "answers_tails_part" in made and "answers_tails_words" not in made


def test_a_table_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no table 'familys'.*families"):
        synthetic_analyses.analysis().to_frame("familys")


def test_a_class_of_ones_own_is_a_result_too() -> None:
    """Parts of a row are its columns, mappings of numbers as well; one that is told apart by nothing is numbered."""

    @dataclass(frozen=True)
    class Inner:
        value: float

    @dataclass(frozen=True)
    class Row:
        part: Inner
        by_name: dict[str, int]
        inner: tuple[Inner, ...]

    @dataclass(frozen=True)
    class Result:
        rows: tuple[Row, ...]
        named: dict[str, Inner]

    made = tables_of(Result((Row(Inner(1.0), {"a": 2}, (Inner(3.0), Inner(4.0))),), {"x": Inner(5.0)}))
    assert made["rows"].to_dict("records") == [{"index": 0, "part_value": 1.0, "by_name_a": 2}]
    assert made["rows_inner"].to_dict("list") == {"row": [0, 0], "index": [0, 1], "value": [3.0, 4.0]}
    assert made["named"].to_dict("records") == [{"name": "x", "value": 5.0}]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_read_back_as_they_were(any_analysis: Analysis, kind: str, tmp_path: Path) -> None:
    frames = any_analysis.tables()
    written = write_tables(frames, tmp_path, kind, checkpoint="zoo:x")
    assert sorted(path.stem for path in written) == sorted(frames)
    assert sorted(tmp_path.iterdir()) == sorted(written)
    for path in written:
        read = pd.read_csv(path) if kind == "csv" else pd.read_parquet(path)
        frame = frames[path.stem]
        assert read.columns[0] == "checkpoint" and set(read["checkpoint"]) == {"zoo:x"}
        assert list(read.columns[1:]) == list(frame.columns)
        for name in frame.columns:
            if frame[name].dtype == "float64":
                pd.testing.assert_series_equal(read[name].astype("float64"), frame[name], rtol=1e-12)


def test_rows_of_a_sweep_are_a_table() -> None:
    rows = [SweepRow(checkpoint="a", fidelity=0.5, fidelity_ci=(0.4, 0.6)), SweepRow(checkpoint="b", error="no")]
    frame = to_frame(rows)
    assert frame["fidelity_low"].tolist()[0] == 0.4 and frame["fidelity_high"].isna().tolist() == [False, True]
    assert frame["error"].isna().tolist() == [True, False]
