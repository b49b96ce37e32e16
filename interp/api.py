"""The public functions: what ``from interp import …`` offers beside the classes.

Wherever a checkpoint is asked for, a path, ``zoo:NAME`` or an opened ``Checkpoint`` will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath

import torch

from interp.algebra.unrolling import ImplicitState, implicit_states
from interp.analysis import DEFAULT_PROMPTS
from interp.analysis import analyse as _analyse
from interp.certificate import certify, recognize
from interp.checkpoints.opening import Checkpoint
from interp.checkpoints.opening import open_checkpoint as _open_checkpoint
from interp.checkpoints.reading import Reading
from interp.errors import CheckFailed, LayoutError
from interp.evidence.probing import probe_checkpoint
from interp.models.gram import forward, head_layers
from interp.models.tasks import Examples, task_of
from interp.reports.emit import emitted
from interp.reports.explorer import render_explorer
from interp.reports.html import render_report
from interp.reports.page import Page
from interp.results import Analysis, ProbeReport
from interp.weight_maps import explore as _explore

__all__ = ["Source", "analyse", "emit", "explore", "identify", "open_checkpoint", "probe", "render", "unroll"]

Source = str | PathLike[str] | Checkpoint


def open_checkpoint(
    source: Source,
    spec: str | PathLike[str] | None = None,
    ignore: Sequence[str] = (),
    verify: str | PathLike[str] | None = None,
) -> Checkpoint:
    """Read a checkpoint: a path or ``zoo:NAME``. ``spec`` is a TOML description of a file of another layout.
    ``ignore``: patterns, such as "norm*", of arrays that the description leaves out because they do nothing.
    ``verify``: an ``.npz`` file of the network's own "inputs" and "outputs"; the reading must have the same outputs.

    Its ``model`` has Q and P, (layer, head, D, D): a layer moves e_i by s * sum_h sum_j (e_i^T Q_h e_j) P_h e_j.
    Raises UnreadableFile for a damaged or unsafe file, LayoutError where it is not known what the tensors mean,
    UsageError for a name or description that is not there, CheckFailed where the network's own outputs are others.

    >>> from interp import open_checkpoint
    >>> tuple(open_checkpoint("zoo:lsa-1").model.Q.shape)
    (1, 2, 40, 40)
    """
    if isinstance(source, Checkpoint):
        return source
    described, pairs = (None if path is None else fspath(path) for path in (spec, verify))
    return _open_checkpoint(source, Reading(described, tuple(ignore), pairs))


def analyse(checkpoint: Source, prompts: int = DEFAULT_PROMPTS, seed: int = 0) -> Analysis:
    """Which algorithm a network runs, with coefficients, uncertainty and evidence.

    Families are fitted on half of the ``prompts`` and scored on the other by R^2 = 1 - E|f - network|^2 / Var(network);
    the smallest one that explains the network is the verdict. Raises LayoutError when the model and its task do not
    fit, UnreadableFile for weights that are not finite, UsageError for too few prompts.

    >>> from interp import analyse
    >>> result = analyse("zoo:lsa-1", prompts=64)
    >>> result.verdict.recognized, len(result.layers)
    (True, 1)
    """
    return _analyse(open_checkpoint(checkpoint), prompts, seed)


def identify(checkpoint: Source, prompts: int = DEFAULT_PROMPTS, seed: int = 0) -> Analysis:
    """The verdict and what it rests on, without the further evidence. Raises as ``analyse`` does.

    >>> from interp import identify
    >>> result = identify("zoo:gdpp-l4-u5", prompts=64)
    >>> [family.name for family in result.families if family.chosen] == [result.verdict.algorithm]
    True
    """
    return _analyse(open_checkpoint(checkpoint), prompts, seed, verdict_only=True)


def unroll(checkpoint: Source, prompts: int = 1, seed: int = 0) -> tuple[ImplicitState, ...]:
    """The implicit linear model before the first layer and after every layer, x_i^l = M x_i + u y_i and y_i^l = a y_i -
    <w, x_i>, on prompts of the task. Exact, with no probe. Raises LayoutError for layers that share no linear map.

    >>> from interp import unroll
    >>> [tuple(state.w.shape) for state in unroll("zoo:gdpp-l4-u5", prompts=2)]  # (prompt, output, dim)
    [(2, 1, 10), (2, 1, 10), (2, 1, 10), (2, 1, 10), (2, 1, 10)]
    """
    model = open_checkpoint(checkpoint).model.require_finite().to(torch.float64)
    task = task_of(model.spec.task)
    task.fits(model)
    drawn = task.sample(prompts, seed)
    if not isinstance(drawn, Examples):
        raise LayoutError(f"the task is {task.name!r}, expected examples and queries that share their keys")
    grams = drawn.grams(model.spec)
    return implicit_states(forward(head_layers(model, drawn.context), grams.gram, grams.query), model.spec)


def probe(
    checkpoint: Source, targets: Sequence[str] = (), prompts: int = DEFAULT_PROMPTS, seed: int = 0
) -> ProbeReport:
    """What can be read from the activations at every layer, held out, with controls. ``targets`` by name; none: all.

    A probe is ridge regression from activations (prompt, feature) to a target (prompt, size); layer 0 is the input.
    Raises UsageError for a target that the task does not have or too few prompts, LayoutError for a task without any.

    >>> from interp import probe
    >>> report = probe("zoo:gdpp-l4-u5", targets=["label"], prompts=64)
    >>> sorted({score.layer for score in report.probes})
    [0, 1, 2, 3, 4]
    """
    return probe_checkpoint(open_checkpoint(checkpoint), targets=tuple(targets), prompts=prompts, seed=seed)


def emit(checkpoint: Source, to: str = "numpy", prompts: int = DEFAULT_PROMPTS, seed: int = 0) -> str:
    """The recovered algorithm as code or text ("numpy", "torch", "latex", "text", "html"), with its certificate. The
    code maps prompts to predictions and can check itself against the network. Raises CheckFailed when no algorithm is
    recognized, UsageError for a language that is not known.

    >>> from interp import emit
    >>> "def predict(" in emit("zoo:gdpp-l4-u5", prompts=64)
    True
    """
    opened = open_checkpoint(checkpoint)
    choice = recognize(opened, prompts, seed)
    if choice is None:
        raise CheckFailed(f"{opened.name}: no algorithm to emit, the verdict is unrecognized")
    return emitted(certify(choice, prompts, None), to)


def explore(*checkpoints: str | PathLike[str], spec: str | PathLike[str] | None = None) -> Page:
    """An interactive page of the weight matrices; several checkpoints are compared with the first, up to gauge. Raises
    UsageError when they cannot be shown together, and as ``open_checkpoint`` does.

    >>> from interp import explore
    >>> "zoo:lsa-1" in explore("zoo:lsa-1").text
    True
    """
    return render_explorer(_explore([fspath(checkpoint) for checkpoint in checkpoints], spec))


def render(result: Analysis | ProbeReport) -> Page:
    """A result as one offline page; ``.write("report.html")`` keeps it, a notebook shows it. Writing raises
    UsageError for a place that cannot be written.

    >>> from interp import identify, render
    >>> render(identify("zoo:gdpp-l4-u5", prompts=64)).title
    'Report on zoo:gdpp-l4-u5'
    """
    return render_report(result)
