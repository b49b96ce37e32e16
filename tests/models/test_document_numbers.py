"""Numbers of documents: whole numbers of any size, NaN and booleans among them."""

from __future__ import annotations

import pytest

from interp.models.numbers import as_float, is_count, is_number, is_size

HUGE = 10**400  # no float holds it


@pytest.mark.parametrize(
    ("value", "number", "size", "count"),
    [
        (0, True, True, False),
        (3, True, True, True),
        (-2.5, True, False, False),
        (1e150, True, True, False),
        (1e200, True, False, False),
        (HUGE, False, False, True),
        (-HUGE, False, False, False),
        (float("inf"), False, False, False),
        (float("nan"), False, False, False),
        (True, False, False, False),
        ("1", False, False, False),
        (None, False, False, False),
    ],
)
def test_what_counts_as_a_number(value: object, number: bool, size: bool, count: bool) -> None:
    assert (is_number(value), is_size(value), is_count(value)) == (number, size, count)


def test_whole_numbers_become_floats_where_they_can() -> None:
    assert isinstance(as_float(3), float) and as_float(3) == 3
    assert as_float(HUGE) == HUGE and as_float(True) is True and as_float("x") == "x"
