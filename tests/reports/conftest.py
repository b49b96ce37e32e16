"""Analyses of every kind, for the tests of what people see."""

from __future__ import annotations

import pytest
import synthetic_kinds

from interp.results import Analysis

KINDS = tuple(synthetic_kinds.many())


@pytest.fixture(params=KINDS)
def any_analysis(request: pytest.FixtureRequest) -> Analysis:
    """Every kind of analysis in turn."""
    return synthetic_kinds.many()[request.param]
