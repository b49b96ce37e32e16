"""The figures of "Uncovering mesa-optimization algorithms in Transformers" beside those of the models that ship.

Von Oswald et al., arXiv 2309.05858; the paper's figures are those of the authors' stored results. Three groups:

    losses        of the trained networks and of the comparators, on sequences of their own
    compression   the networks replaced by their heads' block means, and halfway (products averaged): ratios to the loss
                  of the network itself, 1 in the paper ("almost lossless")
    probes        errors of the next-state and preconditioned-state probes of the six-layer network by layer and
                  position, by the published protocol: in sample, 256 sequences, five seeds

The comparator of proposition 2 leaves the newest pair of states out, as the authors' does, with their own constants.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.algorithms.next_state import PUBLISHED_ALPHA, PUBLISHED_BETA, Pairs
from interp.averages import mean_with_error, ratio_with_error
from interp.channels import block_means, block_weights
from interp.checkpoints.opening import open_checkpoint
from interp.checkpoints.zoo import zoo_names
from interp.models.atomic import write_atomically
from interp.models.causal import causal_passage
from interp.models.errors import UnreadableFile, UsageError, did_you_mean
from interp.models.tasks import DynamicsPrompts
from interp.probes.mesa import mesa
from interp.probes.targets import NEXT, PUBLISHED, find_targets, quantities
from interp.provenance import provenance
from interp.sequence_identification import Subject, chunk_of, open_causal, predict_in_chunks

__all__ = ["BAR", "GROUPS", "measure", "shipped_results"]

GROUPS = ("losses", "compression", "probes")
BAR = 1.03  # a loss is reproduced within 3 %, or when it is lower
COMPRESSION_BAR = 1.05
DEPTHS = (1, 2, 4, 6)
STEP = 0.032  # of the paper's comparator
PAPER_LOSSES = {
    "lsa-1": 0.894, "lsa-2": 0.430, "lsa-4": 0.236, "lsa-6": 0.216, "gd-1": 0.900, "prop-2": 0.234, "ridge": 0.2108,
}  # fmt: skip
PLACES = (5, 10, 20, 49)
# By target and position: the inputs, then after each of the six layers.
PAPER_PROBES: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    NEXT: {
        5: (1.533, 0.995, 0.937, 0.882, 0.805, 0.771, 0.748),
        10: (1.531, 0.740, 0.625, 0.471, 0.301, 0.221, 0.148),
        20: (1.526, 0.573, 0.395, 0.181, 0.073, 0.042, 0.015),
        49: (1.535, 0.493, 0.197, 0.043, 0.044, 0.029, 0.0075),
    },
    PUBLISHED: {
        5: (2.75, 1.10, 1.28, 0.664, 0.435, 0.404, 0.404),
        10: (0.398, 0.197, 0.200, 0.092, 0.042, 0.038, 0.038),
        20: (0.0465, 0.0237, 0.0196, 0.0070, 0.0024, 0.0025, 0.0027),
        49: (0.0053, 0.0028, 0.0016, 0.0013, 0.0009, 0.0018, 0.0019),
    },
}
MISSING = "skipped, because no such model ships yet"
PROBED, SEEDS = 256, (1, 11, 111, 1111, 11111)
HELD_OUT = 2048  # sequences of the probe that is scored on others


def measure(
    groups: Iterable[str], out: Path, sequences: int, seed: int, progress: Callable[[str], None] = lambda step: None
) -> dict[str, Any]:
    """The groups asked for, kept in ``out`` with those it already has. Raises UsageError for an unknown group."""
    groups = list(groups)
    for name in groups:
        if name not in GROUPS:
            raise UsageError(f"there is no group {name!r}; {did_you_mean(name, GROUPS)}")
    document = _read(out)
    subjects = {depth: _subject(depth) for depth in DEPTHS if f"lsa-{depth}" in zoo_names()}
    makers = {"losses": _losses, "compression": _compression, "probes": _probes}
    for name in groups:
        document[name] = {
            "rows": makers[name](subjects, sequences, seed, progress),
            "sequences": sequences if name != "probes" else PROBED * len(SEEDS),
            "provenance": {k: v for k, v in provenance(sequences, seed, None).items() if k != "command"},
        }
        write_atomically(out, json.dumps(document, indent=1) + "\n")
    return document


def shipped_results() -> dict[str, Any]:
    """The results that ship with the package, by group."""
    return json.loads((resources.files("interp.models.training") / "results" / "mesa.json").read_text("utf-8"))


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFile(f"{path} is not a table of results ({error}); delete it to start a new one") from None


def _subject(depth: int) -> Subject:
    return open_causal(open_checkpoint(f"zoo:lsa-{depth}"), PROBED)


def _half_errors(prediction: Tensor, drawn: DynamicsPrompts) -> Tensor:
    return 0.5 * (prediction - drawn.target).square().sum(-1).mean(1)


def _row(
    name: str, paper: float | None, ours: float | None, stderr: float | None, bar: float | None, **more: Any
) -> dict[str, Any]:
    ratio = ours / paper if paper is not None and ours is not None else None
    return {
        "cell": name,
        "paper": paper,
        "ours": ours,
        "stderr": stderr,
        "ratio": ratio,
        "ratio_stderr": stderr / paper if paper is not None and stderr is not None else None,
        "within_bar": None if bar is None or ratio is None else ratio <= bar,
        **more,
    }


def _losses(
    subjects: Mapping[int, Subject], sequences: int, seed: int, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    drawn = subjects[1].task.sample(sequences, seed)
    rows = []
    for depth in DEPTHS:
        progress(f"the loss of lsa-{depth}")
        subject = subjects.get(depth)
        if subject is None:
            rows.append(_row(f"lsa-{depth}", PAPER_LOSSES[f"lsa-{depth}"], None, None, BAR, why=MISSING))
            continue
        model = subject.model
        chunk = chunk_of(model, drawn.context)
        prediction = predict_in_chunks(subject.spec, model.Q, model.P, drawn.inputs(subject.spec)[0], chunk)
        mean, stderr = mean_with_error(_half_errors(prediction, drawn))
        rows.append(_row(f"lsa-{depth}", PAPER_LOSSES[f"lsa-{depth}"], mean, stderr, BAR))
    progress("the losses of the comparators")
    parts: dict[str, list[Tensor]] = {}
    alpha, beta = (torch.tensor(values, dtype=torch.float64) for values in (PUBLISHED_ALPHA, PUBLISHED_BETA))
    for start in range(0, sequences, PROBED):
        some = drawn[slice(start, start + PROBED)]
        now, late = Pairs(some.states), Pairs(some.states, lag=1)
        for name, prediction in (
            ("gd-1", now.gradient_step(STEP)),
            ("prop-2", late.richardson(alpha, beta)),
            ("prop-2, all pairs", now.richardson(alpha, beta)),
            ("ridge", late.ridge()),
            ("ridge, all pairs", now.ridge()),
        ):
            parts.setdefault(name, []).append(_half_errors(prediction, some))
    for name, values in parts.items():
        mean, stderr = mean_with_error(torch.cat(values))
        paper = PAPER_LOSSES.get(name)
        rows.append(_row(name, paper, mean, stderr, None if paper is None else BAR))
    return rows


def _compression(
    subjects: Mapping[int, Subject], sequences: int, seed: int, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    rows = []
    for depth, subject in subjects.items():
        progress(f"compressing lsa-{depth}")
        model, spec, size = subject.model, subject.spec, subject.size
        drawn = subject.task.sample(sequences, seed + 1)
        tokens, chunk = drawn.inputs(spec)[0], chunk_of(model, drawn.context)
        Q, P = (block_weights(block_means(value, size), size) for value in (model.Q, model.P))
        own = _half_errors(predict_in_chunks(spec, model.Q, model.P, tokens, chunk), drawn)
        for name, alpha in (("compressed", 1.0), ("interpolated", 0.5)):
            mixed_Q, mixed_P = (1 - alpha) * model.Q + alpha * Q, (1 - alpha) * model.P + alpha * P
            losses = _half_errors(predict_in_chunks(spec, mixed_Q, mixed_P, tokens, chunk), drawn)
            ratio, stderr = ratio_with_error(losses, own)
            loss, _ = mean_with_error(losses)
            rows.append(_row(f"lsa-{depth}, {name}", 1.0, ratio, stderr, COMPRESSION_BAR, loss=loss))
    return rows


def _probes(
    subjects: Mapping[int, Subject], sequences: int, seed: int, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Our six layers; ``r2`` is the probe's on sequences it was not fitted to."""
    subject = subjects.get(6)
    if subject is None:
        return [_row("probes of lsa-6", None, None, None, None, why=MISSING)]
    model, spec, task = subject.model, subject.spec, subject.task
    targets = find_targets(task.name, tuple(PAPER_PROBES))
    found: dict[tuple[str, int, int], list[float]] = {}
    for number in (*SEEDS, None):
        progress("probing lsa-6" if number is None else f"probing lsa-6, seed {number}")
        drawn = task.sample(HELD_OUT if number is None else PROBED, seed if number is None else number)
        with torch.no_grad():
            tokens = drawn.inputs(spec)[0]
            chunks = [causal_passage(spec, model.Q, model.P, x) for x in tokens.split(PROBED)]
        passage = [torch.cat([chunk[layer] for chunk in chunks]) for layer in range(model.layers + 1)]
        known = quantities(drawn, task)
        group = torch.arange(drawn.count) % 64
        for target in targets:
            for place in PLACES:
                values = target.values(known, place)
                assert values is not None  # both targets are defined everywhere
                scores = mesa(
                    torch.stack([state[:, place] for state in passage]), values, group, 64, target.name == PUBLISHED
                )
                for layer in range(model.layers + 1):
                    if number is None:
                        found[target.name, place, ~layer] = [float(scores.sound.r2.value.reshape(-1)[layer])]
                    else:
                        found.setdefault((target.name, place, layer), []).append(float(scores.published[layer]))
    rows = []
    for target, places in PAPER_PROBES.items():
        for place, paper in places.items():
            for layer, value in enumerate(paper):
                errors = torch.tensor(found[target, place, layer], dtype=torch.float64)
                where = "inputs" if layer == 0 else f"layer {layer}"
                rows.append(
                    _row(
                        f"{target}, t = {place}, {where}", value, float(errors.mean()),
                        float(errors.std()) / len(errors) ** 0.5, None, r2=found[target, place, ~layer][0],
                    )
                )  # fmt: skip
    return rows
