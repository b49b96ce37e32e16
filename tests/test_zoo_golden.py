"""Every model that ships still runs the algorithm of its golden file."""

from pathlib import Path

import pytest

from interp.checkpoints.zoo import zoo_names

GOLDEN = Path(__file__).parent / "golden" / "zoo"


@pytest.mark.parametrize("name", zoo_names())
def test_zoo_model_runs_the_algorithm_of_its_golden_file(name, recovered_algorithm):
    recovered_algorithm(f"zoo:{name}", GOLDEN / f"{name}.json")


def test_every_golden_file_has_its_model():
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == sorted(zoo_names())
