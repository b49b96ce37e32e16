"""What ``from interp import …`` offers: every name has a docstring with an example, and every example is run."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

import interp
import interp.analysis  # registers the package's own
from interp.evidence.question import QUESTIONS
from interp.identify.family import FAMILIES
from interp.models.layers import LAYERS
from interp.models.tasks import TASKS
from interp.models.tasks.targets import REGISTERED

NAMES = {
    "Analysis", "HookedLinearTransformer", "analyse", "emit", "explore", "identify", "open_checkpoint", "probe",
    "question", "register_family", "register_layer", "register_target", "register_task", "render", "unroll",
}  # fmt: skip


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """What an example registers is gone after it."""
    kept = [(registry, dict(registry)) for registry in (QUESTIONS, FAMILIES, LAYERS, TASKS, REGISTERED)]
    yield
    for registry, entries in kept:
        registry.clear()
        registry.update(entries)


def examples(name: str) -> list[doctest.Example]:
    thing = getattr(import_module(interp._PUBLIC[name]), name)
    return doctest.DocTestParser().get_examples(thing.__doc__ or "")


def test_the_public_names() -> None:
    assert set(interp.__all__) == NAMES and set(interp.__all__) <= set(dir(interp))
    with pytest.raises(AttributeError, match="no attribute 'analyze'"):
        _ = interp.analyze


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_has_an_example_that_runs(name: str) -> None:
    found = examples(name)
    assert any(example.want for example in found), f"{name} has no example with a result in its docstring"
    assert any(f"import {name}" in e.source or f", {name}" in e.source for e in found), "it imports what it shows"
    test = doctest.DocTest(found, {}, name, None, None, None)
    report: list[str] = []
    assert not doctest.DocTestRunner(verbose=False).run(test, out=report.append).failed, "".join(report)


def test_an_example_that_is_wrong_fails() -> None:
    test = doctest.DocTest(doctest.DocTestParser().get_examples(">>> 1 + 1\n3"), {}, "wrong", None, None, None)
    assert doctest.DocTestRunner(verbose=False).run(test, out=lambda text: None).failed == 1


def test_identify_is_a_function_whatever_was_imported_before() -> None:
    """There is a sub-package of that name."""
    import interp.identify.choose
    from interp import analyse, identify

    assert callable(analyse) and callable(identify) and callable(interp.identify)


def test_importing_the_package_imports_nothing_slow() -> None:
    code = "import interp, sys; sys.exit(bool({'torch', 'plotly', 'pandas', 'transformer_lens'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL).returncode == 0
