"""The type checker of the suite: beartype on the first calls of every function in every test.

jaxtyping binds and checks the arguments of every call anew. Where a test calls a function thousands of times that
doubles its time and finds nothing that the first calls did not, so a function is let run unchecked from its
CALLS-th call on, until the next test begins.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import FunctionType
from typing import Any

from beartype import beartype

CALLS = 20

_calls: Counter[tuple[str, str]] = Counter()
_unchecked: list[FunctionType] = []


def first_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """beartype's check of `function`, the signature that jaxtyping copies from a function of the package."""
    checked = beartype(function)
    name = function.__module__, function.__qualname__

    @functools.wraps(checked)
    def counted(*args: Any, **kwargs: Any) -> Any:
        _calls[name] += 1
        if _calls[name] == 2 * CALLS:  # arguments are checked before the call, and again with what it returns
            _leave_unchecked(*name)
        return checked(*args, **kwargs)

    return counted


def begin() -> None:
    """Check every function again, as at the start of a test."""
    _calls.clear()
    while _unchecked:
        _unchecked.pop().__dict__.pop("__no_type_check__", None)


def _leave_unchecked(module: str, qualname: str) -> None:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    # Methods and properties hold the checked function; so do decorators, which keep it as __wrapped__.
    for inside in ("__func__", "fget", "func"):
        found = getattr(found, inside, None) or found
    while found is not None:
        if isinstance(found, FunctionType):
            found.__dict__["__no_type_check__"] = True
            _unchecked.append(found)
        found = getattr(found, "__wrapped__", None)
