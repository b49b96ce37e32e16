"""Which algorithm does a linear transformer run? Give it a checkpoint, get a verdict with coefficients and proof.

from interp import analyse, render
result = analyse("model.safetensors")
print(result.verdict.summary)
render(result).write("report.html")
"""

from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# The rooms (models, checkpoints, probes, reports) are sub-packages of this one but lie beside this folder in a source
# checkout. There, take every module from where it is edited: an editable install is a snapshot of links, which knows
# no file that was added later, and in the repository root the current folder comes before the installed package.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "models" / "specification.py").is_file():
    __path__[:] = [str(_root / "interp"), str(_root)]

# Imported when they are first used: ``import interp`` takes no time, and the command line's help needs no torch.
_PUBLIC = {
    "Analysis": "interp.results",
    "HookedLinearTransformer": "interp.models.hooked",
    "analyse": "interp.api",
    "emit": "interp.api",
    "explore": "interp.api",
    "identify": "interp.api",
    "open_checkpoint": "interp.api",
    "probe": "interp.api",
    "question": "interp.evidence.question",
    "register_family": "interp.identify.family",
    "register_layer": "interp.models.layers",
    "register_target": "interp.models.tasks",
    "register_task": "interp.models.tasks",
    "render": "interp.api",
    "unroll": "interp.api",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
