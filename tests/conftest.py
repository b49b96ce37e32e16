"""Settings of the whole suite.

One thread: the tensors here are small, so threads cost more than they give, sums come out in the same order on every
machine, and suites that run side by side do not slow each other down. The default dtype stays float32, so that
float64 results cannot hide code that forgets to ask for float64.
"""

from __future__ import annotations

from pathlib import Path

import first_calls
import hypothesis
import pytest
import torch
from quick_files import TESTS, is_quick
from threadpoolctl import threadpool_limits

pytest_plugins = ["interp.pytest_plugin"]  # the installed one is switched off in pyproject.toml, which says why

torch.set_num_threads(1)
threadpool_limits(1)

# A slow or busy machine must not fail a test, so hypothesis measures no times.
hypothesis.settings.register_profile(
    "suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow, which take minutes")


def pytest_sessionstart() -> None:
    """As on the command line. Not earlier: the package must be imported after jaxtyping's hook is in place."""
    from interp.cli.running import keep_freed_memory

    keep_freed_memory()


def pytest_runtest_setup() -> None:
    first_calls.begin()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With -m quick the other files are not even imported."""
    others = collection_path.name.startswith("test_") and not is_quick(collection_path)
    return True if config.getoption("markexpr") == "quick" and collection_path.is_file() and others else None


# Files that take longest, from a profile: they are started first, so that no process ends the suite alone.
FIRST = (
    "test_zoo_golden", "interp/test_course", "interp/test_verdict_only", "interp/test_exploding_prompts", "test_readme",
    "interp/test_identification", "cli/test_main_command", "cli/test_sweep_command",
    "interp/test_completion", "browser/test_report_browser", "interp/test_probing", "cli/test_emit_command",
    "interp/test_closed_form_analysis", "models/test_training_search", "registering/test_registering",
)  # fmt: skip


def place(path: Path) -> int:
    name = path.relative_to(TESTS).with_suffix("").as_posix() if path.is_relative_to(TESTS) else ""
    return FIRST.index(name) if name in FIRST else len(FIRST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.path))
    for item in items:
        if is_quick(item.path):
            item.add_marker(pytest.mark.quick)
    if config.getoption("--slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
