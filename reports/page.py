"""What every page has in common: templates, and a policy that lets nothing in or out.

The policy lists the page's scripts by their hash and allows no connection, so even a name in a checkpoint that smuggled
markup past the escaping could not run or send.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

__all__ = ["HERE", "environment", "policy"]

HERE = Path(__file__).parent


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
