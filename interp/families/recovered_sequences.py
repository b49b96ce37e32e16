"""What was recovered from causal sequences as a thing that can be run: block-scalar heads, or one gradient step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.families.channel_heads import free_numbers, uncertainty
from interp.identify.family import Fit
from interp.identify.networks import SequenceHalf
from interp.identify.run import Run
from interp.models.specification import ModelSpec
from interp.models.tasks import StatesTask
from interp.results import RecoveredHeads, RecoveredStep

if TYPE_CHECKING:
    from interp.families.block_scalar import BlockScalarFit

__all__ = ["recovered_heads", "recovered_step"]

SENSED = 256  # sequences behind the standard errors
DIGITS = 10  # of a coefficient


def _shared(spec: ModelSpec, task: StatesTask) -> dict[str, Any]:
    contents = task.contents(len(spec.tokens)) or ()
    if not bool(task.start_matrix().any()):
        contents = tuple("zero" if content == "start" else content for content in contents)
    return {
        "dim": task.dim,
        "context": task.context,
        "channels": tuple(name for name, _ in spec.tokens),
        "contents": contents,
        "start": [list(row) for row in task.start] if isinstance(task.start, tuple) else float(task.start),
    }


def _readout(run: Run) -> int:
    return [name for name, _ in run.spec.tokens].index(run.spec.readout.channel)


def recovered_heads(fit: BlockScalarFit, run: Run) -> RecoveredHeads:
    spec, task, fitted = run.spec, run.task, run.network.fitted
    assert isinstance(fitted, SequenceHalf) and isinstance(task, StatesTask)  # it was fitted to one, of states
    live = torch.stack([fit.live.maps(layer) for layer in range(len(fit.heads.q))])
    k = torch.where(live, fit.heads.k, 0.0)
    stderr: tuple[float | None, ...] = ()
    if fit.how == "refit":
        free, few = free_numbers(fit.live, fit.heads.q.shape[1]), fitted[slice(0, SENSED)]
        errors = uncertainty(spec, fit.heads, free, few.tokens, few.outputs, run.seeds.adaptation).stderr
        most = torch.where(live, errors, 0.0).flatten(1).amax(1).tolist()
        stderr = tuple(None if value != value else value for value in most)
    return RecoveredHeads(
        **_shared(spec, task),
        family="revalg",
        parameters=fit.parameters,
        scale=spec.attention.scale,
        residual=spec.residual,
        clip=spec.clip,
        sign=spec.readout.sign,
        readout=_readout(run),
        how=fit.how,
        fit="weights" if fit.how == "weights" else "predictions",
        layers=tuple(_rounded(layer.tolist()) for layer in k),
        stderr=stderr,
    )


def _rounded(value: Any) -> Any:
    return [_rounded(entry) for entry in value] if isinstance(value, list) else float(f"{value:.{DIGITS}g}")


def recovered_step(fit: Fit, run: Run) -> RecoveredStep:
    step, sign, task = fit.theta, run.spec.readout.sign, run.task
    assert isinstance(task, StatesTask)  # as of every such step
    shared = _shared(run.spec, task)
    starts = shared["contents"][_readout(run)] == "start"
    held = sign * task.start_matrix() if starts else torch.zeros(task.dim, task.dim, dtype=torch.float64)
    return RecoveredStep(
        **shared,
        family="gd",
        parameters=fit.parameters,
        eta=step.eta,
        eta_stderr=step.eta_stderr if step.eta_stderr == step.eta_stderr else None,
        held=held.tolist() if isinstance(task.start, tuple) and starts else float(held[0, 0]),
        decay=(sign * step.eta * step.w0).tolist() if isinstance(step.w0, Tensor) else sign * step.eta * step.w0,
    )
