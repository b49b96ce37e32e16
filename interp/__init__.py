"""Which algorithm does a linear transformer run? Give it a checkpoint, get a verdict with coefficients and proof."""

from pathlib import Path

__version__ = "0.1.0"

# The rooms (models, checkpoints, probes, reports) are sub-packages of this one but lie beside this folder in a source
# checkout. There, take every module from where it is edited: an editable install is a snapshot of links, which knows
# no file that was added later, and in the repository root the current folder comes before the installed package.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "models" / "specification.py").is_file():
    __path__[:] = [str(_root / "interp"), str(_root)]
