from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from toys import registered


@pytest.fixture(scope="module")
def toys() -> Iterator[SimpleNamespace]:
    with registered() as modules:
        yield modules
