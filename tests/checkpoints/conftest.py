from __future__ import annotations

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def as_installed() -> Iterator[None]:
    """Without the suite's run-time type checks, which would stop ill-typed input before the package's own errors do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
