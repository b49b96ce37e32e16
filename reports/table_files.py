"""The tables of a result as files: one CSV or Parquet file a table."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from interp.models.atomic import write_atomically

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_tables"]


def write_tables(
    tables: Mapping[str, pd.DataFrame], folder: str | Path, kind: str, checkpoint: str | None = None
) -> list[Path]:
    """Write every table to ``folder``, which is there, each file in one step; ``kind`` is "csv" or "parquet".

    ``checkpoint`` is the first column of every table, so that those of several networks can be put together. Raises
    UsageError when the place cannot be written.
    """
    written = []
    for name, frame in tables.items():
        named = frame
        if checkpoint is not None:
            named = frame.rename(columns={"checkpoint": "given_checkpoint"})
            named.insert(0, "checkpoint", checkpoint)
        path = Path(folder) / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.{kind}"
        if kind == "csv":
            write_atomically(path, named.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace"))
        else:
            buffer = io.BytesIO()
            named.to_parquet(buffer, index=False)
            write_atomically(path, buffer.getvalue())
        written.append(path)
    return written
