"""The JSON document: one document, no NaN, and the same Analysis back."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import synthetic_analyses
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.errors import InterpProbeError, LayoutError, UnreadableFile, UsageError
from interp.reports import document
from interp.reports.html import render_report
from interp.results import Analysis


def test_a_document_gives_its_analysis_back(any_analysis: Analysis) -> None:
    text = document.dumps(any_analysis)
    again = document.loads(text)
    # NaN and Inf among the weights become null: compare documents, not weights.
    assert document.dumps(again) == text
    bare = dataclasses.replace(any_analysis, weights=again.weights)
    assert again == bare


def test_one_document_without_nan() -> None:
    text = document.dumps(synthetic_analyses.with_bad_weights())

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    fields = json.loads(text, parse_constant=refuse)
    assert next(iter(fields)) == "schema"
    assert fields["weights"]["Q"][1][0][4][5] is None
    assert text.isascii()
    assert set(fields) >= {"schema", "checkpoint", "task", "layers", "families", "verdict", "evidence", "probes"}


def test_file_round_trip(tmp_path: Path, any_analysis: Analysis) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    document.write(any_analysis, path)
    assert document.dumps(document.load(path)) == document.dumps(any_analysis)
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_report_can_be_rebuilt_from_the_document(any_analysis: Analysis) -> None:
    again = document.loads(document.dumps(any_analysis))
    if any_analysis == again:
        assert render_report(again).text == render_report(any_analysis).text
    else:  # weights that are not finite
        assert "not finite" in render_report(again).text


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        document.write(synthetic_analyses.analysis(), tmp_path / "missing" / "a.json")


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", UnreadableFile, "not JSON"),
        ("hello", UnreadableFile, "not JSON"),
        ("[" * 100_000, UnreadableFile, "not JSON"),
        ('{"schema": NaN}', UnreadableFile, "NaN"),
        (document.dumps(synthetic_analyses.analysis()).replace("10.0231", "1e999"), LayoutError, "mse is inf"),
        ("[1, 2]", LayoutError, "holds a list"),
        ("null", LayoutError, "holds a NoneType"),
        ("{}", LayoutError, "schema is None"),
        ('{"schema": "interp-probe/2"}', LayoutError, "interp-probe/2"),
        ('{"schema": "interp-probe/1"}', LayoutError, "has no checkpoint"),
    ],
)
def test_foreign_text(text: str, error: type[InterpProbeError], match: str) -> None:
    with pytest.raises(error, match=match) as caught:
        document.loads(text, name="a.json")
    assert "a.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_unreadable_file(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"a\.json"):
        document.load(path)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [p for key, entry in items if key != "weights" for p in _places(entry, (*path, key))]


FIELDS = json.loads(document.dumps(synthetic_analyses.everything(layers=2)))
PLACES = _places(FIELDS)
WRONG: tuple[Any, ...] = (None, True, 7, -1.5, "text", [], [1], [[1, 2]], {}, {"a": 1})


@settings(max_examples=40, deadline=None)
@given(place=st.sampled_from(PLACES), wrong=st.sampled_from(WRONG))
def test_a_damaged_document_is_refused_or_rendered(place: tuple[Any, ...], wrong: Any) -> None:
    """Whatever stands in a field, there is a report or one line that says what is wrong: never another exception."""
    damaged = copy.deepcopy(FIELDS)
    target = damaged
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = wrong
    try:
        analysis = document.loads(json.dumps(damaged))
    except InterpProbeError as error:
        assert "\n" not in str(error)
    else:
        assert render_report(analysis).text.endswith("</html>")
