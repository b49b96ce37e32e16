"""Every model that ships still runs the algorithm of its golden file.

A new model gets one with ``interp-probe check zoo:NAME --golden tests/golden/zoo/NAME.json --update --prompts 1024``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interp.checkpoints.zoo import zoo_names

GOLDEN = Path(__file__).parent / "golden" / "zoo"


LARGE = (
    "eagle-sketch-l12",
    "eagle-sketch-shared",
    "lsa-4-contracting",
    "lsa-4-fixed",
    "lsa-6-key-40",
    # Of a kind with others that are run: lsa-4, and full-l4-u5.
    "lsa-6",
    "full-l4-c13",
)  # up to a minute each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in zoo_names()]
)
def test_zoo_model_runs_the_algorithm_of_its_golden_file(
    name: str, recovered_algorithm: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the losses a golden file keeps one thing, that the task is solved or not: a few prompts say so.
    monkeypatch.setattr("interp.identify.losses.OPERATIONS", 0.0)
    recovered_algorithm(f"zoo:{name}", GOLDEN / f"{name}.json")


def test_every_golden_file_has_its_model() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == sorted(zoo_names())
