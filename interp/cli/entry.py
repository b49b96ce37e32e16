"""What ``interp-probe`` starts. Importing the command line takes a moment, in which Ctrl-C is as quiet as later."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Import the command line and run it; an interrupt on the way there ends with exit code 130."""
    try:
        from interp.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interp-probe: interrupted\n")
        sys.exit(130)
    run()
