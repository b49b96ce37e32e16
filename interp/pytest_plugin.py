"""A pytest fixture that fails when a checkpoint no longer runs the algorithm of its golden file.

    def test_my_model(recovered_algorithm):
        recovered_algorithm("runs/model.safetensors", "golden/model.json")

``pytest --update-golden`` writes the golden files instead of comparing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["recovered_algorithm"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interp-probe")
    group.addoption("--update-golden", action="store_true", help="write golden files of recovered algorithms anew")


@pytest.fixture
def recovered_algorithm(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``recovered_algorithm(checkpoint, golden, spec=None)`` compares, and fails naming every figure that moved."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(checkpoint: str | Path, golden: str | Path, spec: str | Path | None = None) -> None:
        import torch

        from interp.checkpoints.opening import open_checkpoint
        from interp.errors import InterpProbeError
        from interp.golden import compare_with_golden, update_golden

        failure = ""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as on the command line: small matrices gain nothing from a second one
        try:
            opened = open_checkpoint(str(checkpoint), spec)
            if update:
                update_golden(opened, golden)
            elif moved := compare_with_golden(opened, golden)[1]:
                failure = f"{checkpoint} no longer runs the algorithm of {golden}:\n  " + "\n  ".join(map(str, moved))
        except InterpProbeError as error:
            failure = str(error)
        finally:
            torch.set_num_threads(threads)
        if failure:
            pytest.fail(failure, pytrace=False)

    return compare
