"""Which family explains a network: run, fit, choose, verdict."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """``from interp import identify`` gives this package once it is loaded, so it is the public function, too."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("interp.api").identify(*args, **options)


sys.modules[__name__].__class__ = _Room
