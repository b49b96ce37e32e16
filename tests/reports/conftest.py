"""Analyses of every kind, for the tests of what people see."""

from __future__ import annotations

import pytest
import synthetic_analyses

from interp.results import Analysis

KINDS = tuple(synthetic_analyses.many())


@pytest.fixture(params=KINDS)
def any_analysis(request: pytest.FixtureRequest) -> Analysis:
    """Every kind of analysis in turn."""
    return synthetic_analyses.many()[request.param]
