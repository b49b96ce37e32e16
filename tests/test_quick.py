"""``pytest -m quick`` has something of every folder of tests, and all that it names is there."""

from __future__ import annotations

import pytest
from quick_files import QUICK, TESTS


def test_every_quick_file_is_there() -> None:
    assert [name for name in sorted(QUICK) if not (TESTS / f"{name}.py").is_file()] == []


def test_every_room_has_quick_tests() -> None:
    # Pages in a browser, coverage over many networks and benchmarks take their time.
    folders = {path.parent.name for path in TESTS.glob("*/test_*.py")} - {"browser", "benchmarks", "statistics"}
    assert folders == {name.partition("/")[0] for name in QUICK if "/" in name}


def test_this_file_is_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("quick") is not None
