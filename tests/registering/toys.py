"""The five toys, known to the package for as long as a context lasts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace

import interp.analysis  # noqa: F401 - the package registers its own first
from interp.evidence.question import QUESTIONS
from interp.identify.family import FAMILIES
from interp.models.layers import LAYERS
from interp.models.tasks import TASKS
from interp.models.tasks.targets import REGISTERED

__all__ = ["MODULES", "REGISTRIES", "registered"]

REGISTRIES = (TASKS, LAYERS, FAMILIES, REGISTERED, QUESTIONS)
MODULES = ("toy_task", "toy_layer", "toy_family", "toy_target", "toy_question")


@contextmanager
def registered() -> Iterator[SimpleNamespace]:
    """Import the toys, which registers them; afterwards the registries are as they were."""
    before = [dict(registry) for registry in REGISTRIES]
    try:
        yield SimpleNamespace(**{name: import_module(name) for name in MODULES})
    finally:
        for registry, entries in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(entries)
        for name in MODULES:
            sys.modules.pop(name, None)
