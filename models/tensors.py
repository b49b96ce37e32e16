"""``Tensor`` for the annotations of modules that a file's header is read with, which must not import torch.

Where torch is there already (as in tests, which check annotations while they run) it is torch's own.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__all__ = ["Tensor"]

if TYPE_CHECKING or "torch" in sys.modules:
    from torch import Tensor
else:
    Tensor = Any
