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
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from interp.models.atomic import write_atomically
from interp.reports.numbers import percent, plain
from interp.reports.typeset import typeset

__all__ = ["Page", "assets", "rendered"]

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


@cache
def _environment() -> Environment:
    """Templates of this folder; everything put into them is escaped, and nothing may be missing."""
    made = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    made.filters |= {
        "typeset": typeset, "cell": lambda text: typeset(text, powers=False), "percent": percent, "plain": plain,
        "runs": lambda parts: [(half, list(run)) for half, run in groupby(parts, key=lambda part: part.half)],
    }  # fmt: skip
    return made


def assets(scripts: Sequence[str], styles: Sequence[str]) -> tuple[list[str], str]:
    """The texts of plotly.js and of these scripts of this folder, and that of these style sheets."""
    from plotly.offline import get_plotlyjs  # slow to import, and only pages need it

    texts = [(HERE / name).read_text(encoding="utf-8") for name in (*scripts, *styles)]
    return [get_plotlyjs(), *texts[: len(scripts)]], "".join(texts[len(scripts) :])


def rendered(template: str, scripts: Sequence[str], style: str, **values: Any) -> str:
    """A page of this template with its ``assets``."""
    marked = [Markup(script) for script in scripts]
    values |= {"scripts": marked, "style": Markup(style), "policy": policy(scripts)}
    return _environment().get_template(template).render(values)


def policy(scripts: Sequence[str]) -> str:
    """The content security policy of a page with these inline scripts."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )
