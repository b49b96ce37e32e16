"""What counts as a number in the fields of a checkpoint or recipe."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

__all__ = ["as_float", "is_count", "is_number", "is_size"]

LARGEST = 1e150  # of a size: variances are made of its square


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a finite number. A whole number of a document can be larger than any float, where comparisons work
    and conversions do not."""
    largest = sys.float_info.max
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def is_size(value: object) -> TypeGuard[int | float]:
    """Whether it is a number from 0 to 1e150, so that its square is finite, too."""
    return is_number(value) and 0 <= value <= LARGEST


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number of 1 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def as_float(value: Any) -> Any:
    """Whole numbers of a document as floats; anything else as it is, for the checks to refuse."""
    return float(value) if isinstance(value, int) and is_number(value) else value
