"""Layer kinds, one file each. A file in this folder is found by itself; a class from elsewhere registers itself."""

import importlib
import pkgutil

from interp.models.layers.embedding import Embedding
from interp.models.layers.layernorm import LayerNorm, Placement
from interp.models.layers.linear_attention import SCALES, AttentionSpec, HeadLayers, Keys
from interp.models.layers.readout import Readout
from interp.models.layers.registry import LAYERS, At, Layer, Shape, Site, Stage, register_layer

__all__ = [
    "LAYERS",
    "SCALES",
    "At",
    "AttentionSpec",
    "Embedding",
    "HeadLayers",
    "Keys",
    "Layer",
    "LayerNorm",
    "Placement",
    "Readout",
    "Shape",
    "Site",
    "Stage",
    "register_layer",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
