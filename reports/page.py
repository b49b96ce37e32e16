"""What every page has in common: a file and a frame, templates, and a policy that lets nothing in or out.

The policy lists the page's scripts by their hash and allows no connection, so even a name in a checkpoint that smuggled
markup past the escaping could not run or send.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from interp.models.atomic import write_atomically

__all__ = ["HERE", "Page", "environment", "policy"]

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page that needs nothing else. A notebook shows it in a frame of its own."""

    text: str
    title: str  # of the frame

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._bytes())

    def write(self, path: str | Path) -> None:
        """Write the page in one step. Raises UsageError when the place cannot be written."""
        write_atomically(path, self._bytes())

    def _bytes(self) -> bytes:
        # A file name from a checkpoint may hold bytes that are not UTF-8; they must not stop the page.
        return self.text.encode("utf-8", "replace")

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: 900px; border: 0" srcdoc="{html.escape(self.text)}"></iframe>'
        )


def environment() -> Environment:
    """Templates of this folder; everything put into them is escaped, and nothing may be missing."""
    made = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def policy(scripts: Sequence[str]) -> str:
    """The content security policy of a page with these inline scripts."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
