"""``interp-probe reproduce mesa`` shows what ships, the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_the_shipped_table(call: Run) -> None:
    shown = json.loads(call("reproduce", "mesa", "--json").out)
    rows = {row["cell"]: row for row in shown["cells"]}
    assert {"lsa-1", "lsa-2", "lsa-4", "lsa-6", "gd-1", "prop-2", "ridge"} <= set(rows)
    for name in ("lsa-1", "gd-1", "prop-2"):
        assert rows[name]["within_bar"] is True
        assert abs(rows[name]["ratio"] - rows[name]["ours"] / rows[name]["paper"]) < 1e-12
    text = call("reproduce", "mesa").out
    assert "within the bar" in text and "lsa-2" in text


def test_a_group_that_does_not_exist(call: Run) -> None:
    ended = call("reproduce", "mesa", "--cells", "loss")
    assert ended.code == 2 and "'losses'" in ended.err
