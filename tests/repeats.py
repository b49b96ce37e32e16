"""Cases of one test: the first few run always, further seeds and sizes of the same with --slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def repeats(cases: Iterable[Any], first: int) -> list[Any]:
    """`cases` for pytest.mark.parametrize, those after the `first` marked slow."""
    listed = list(cases)
    later = [case if isinstance(case, tuple) else (case,) for case in listed[first:]]
    return listed[:first] + [pytest.param(*case, marks=pytest.mark.slow) for case in later]
