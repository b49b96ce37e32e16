"""Numbers as text: what is printed can be read back, and agrees with the number as far as its uncertainty says."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.reports.numbers import DASH, estimate, interval, number, percent, plain, rounded

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)
ERRORS = st.floats(min_value=1e-12, max_value=1e12)


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (-0.01534, 0.00021, "-0.0153 ± 0.0002"),
        (-0.00035, 1.2e-5, "(-3.50 ± 0.12)e-4"),
        (3.2e-6, 4e-7, "(3.2 ± 0.4)e-6"),
        (12.3456, 0.0098, "12.346 ± 0.010"),
        (-0.0153, 2e-11, "-0.01530000 ± 2e-11"),
        (0.001, 123.0, "0 ± 123"),
        (-0.001, 123.0, "0 ± 123"),
        (5.0, None, "5.000"),
        (0.3, 0.0, "0.3000 to rounding"),
        (None, 0.1, DASH),
        (math.nan, 0.1, DASH),
        (1.0, math.inf, "1.000"),
    ],
)
def test_estimate_shows_the_digits_that_its_error_allows(value: float | None, stderr: float | None, text: str) -> None:
    assert estimate(value, stderr) == text


@given(value=FINITE, stderr=ERRORS)
def test_estimate_can_be_read_back(value: float, stderr: float) -> None:
    text = estimate(value, stderr)
    scaled = re.fullmatch(r"\((\S+) ± (\S+)\)e(-?\d+)", text)
    if scaled:
        shown, error = (float(scaled[i]) * 10.0 ** int(scaled[3]) for i in (1, 2))
    else:
        shown, error = map(float, text.split(" ± "))
    # The last digit shown is at least half a unit below the error's first digit, or the seventh significant digit.
    assert abs(shown - value) <= max(0.51 * stderr, 1e-6 * abs(value))
    assert error == pytest.approx(stderr, rel=0.51)


@given(value=FINITE, stderr=ERRORS)
def test_rounded_is_the_value_of_the_estimate(value: float, stderr: float) -> None:
    text, whole = rounded(value, stderr), estimate(value, stderr)
    assert whole.startswith("(") or whole.split(" ± ")[0] == text
    assert abs(float(text) - value) <= max(0.51 * stderr, 1e-6 * abs(value))


@given(value=FINITE, digits=st.integers(1, 7))
def test_number_keeps_its_digits(value: float, digits: int) -> None:
    assert float(number(value, digits)) == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits), abs=0)


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (0.99987, (0.99981, 0.99992), "0.99987 [0.99981, 0.99992]"),
        (1 - 1e-9, (1 - 2e-9, 1 - 1e-10), "0.9999999990 [0.9999999980, 0.9999999999]"),
        (0.9999996, (None, None), "0.99999960"),
        (0.5, (None, 0.6), "0.5000"),
        (1.0, (1.0, 1.0), "1 to rounding"),
        (1.0 + 1e-15, (1.0, 1.0 + 2e-15), "1 to rounding"),
        (1.0 - 1e-15, (None, None), "1.0000"),
        (3.2, (3.0, 3.4), "3.2 [3.0, 3.4]"),
        (1.02, (1.01, 1.03), "1.020 [1.010, 1.030]"),
        (3.2, (3.2, 3.2), "3.200 [3.200, 3.200]"),
        (1.0, (0.9, 1.0), "1.00 [0.90, 1.00]"),
        (0.5, (0.5, 0.5), "0.5000 [0.5000, 0.5000]"),
        (None, (0.0, 1.0), DASH),
    ],
)
def test_interval(value: float | None, bounds: tuple[float | None, float | None], text: str) -> None:
    assert interval(value, bounds) == text


@given(share=st.floats(0, 1))
def test_percent_never_rounds_to_all_or_nothing(share: float) -> None:
    text = percent(share)
    assert (text == "0 %") == (share == 0)
    assert (text == "100 %") == (share == 1)


def test_plain_text_has_no_control_characters() -> None:
    assert plain("a\x1b[31mb\n\u202ec\udcff") == r"a\x1b[31mb \u202ec\udcff"
