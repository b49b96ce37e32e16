"""Where a result comes from: the file, the seeds, the versions, the machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch

from interp import __version__
from interp.checkpoints.opening import Checkpoint
from interp.models.transformer import LinearTransformer
from interp.results import CheckpointInfo, Weights

__all__ = ["checkpoint_info", "provenance", "recorded_weights"]

WEIGHTS_LIMIT = 200_000  # numbers of Q and P beyond which a document leaves the matrices out
LIBRARIES = ("torch", "numpy", "scipy", "transformer-lens", "safetensors", "plotly")


def checkpoint_info(checkpoint: Checkpoint) -> CheckpointInfo:
    model, spec = checkpoint.model, checkpoint.model.spec
    return CheckpointInfo(
        name=checkpoint.name,
        sha256=checkpoint.sha256,
        layout=checkpoint.layout,
        dtype=checkpoint.dtype,
        tokens=spec.tokens,
        keys=spec.attention.keys,
        scale=spec.attention.scale,
        residual=spec.residual,
        clip=spec.clip,
        readout_channel=spec.readout.channel,
        readout_sign=spec.readout.sign,
        layers=model.layers,
        heads=model.heads,
        parameters=model.parameters,
        loops=spec.loops,
        added={layer.name: layer.to_dict() for layer in spec.added},
        notes=checkpoint.notes,
        read_by=checkpoint.read_by,
        unused={entry.name: entry.looks_like for entry in checkpoint.unused},
    )


def provenance(prompts: int, seed: int, command: str | None, verdict_only: bool = False) -> Mapping[str, Any]:
    """Everything needed to run the analysis again; ``prompts`` and ``seed`` fix every number of it. ``verdict_only``:
    evidence beyond the verdict was left out."""
    return {
        "tool": f"interp-probe {__version__}",
        "command": command,
        "prompts": prompts,
        "seed": seed,
        "verdict_only": verdict_only,
        "analysis_dtype": "float64",
        "device": "cpu",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def recorded_weights(model: LinearTransformer) -> Weights:
    numbers = model.Q.numel() + model.P.numel()
    if numbers > WEIGHTS_LIMIT:
        return Weights(Q=None, P=None, why=f"left out: {numbers} numbers, more than {WEIGHTS_LIMIT}")
    return Weights(Q=model.Q.tolist(), P=model.P.tolist())
