"""Probes of the next state and of the preconditioned state, by layer and position: two protocols side by side.

``paper`` and ``ours`` are errors by the published protocol (``interp.probes.mesa``): in sample, 256 sequences, the mean
of five seeds. ``r2`` is the probe's on sequences it was not fitted to, beside the same probe on untrained networks and
on the targets of other sequences. Of the preconditioned state there are two: the exact inverse, and the paper's six
steps, which is what the paper probes.

Controls that are networks: one trained on contracting dynamics, where the preconditioned state is said to rise as well
(the next state is in its inputs: eigenvalues of 0.3 to 0.9 make it a near multiple of the state), and one trained on a
single W ("fixed"), where nothing is to be learned in context and it is said to be flat. The preconditioned state in
claims is that of six steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from interp.evidence.probe_request import ProbeRequest
from interp.evidence.probing import probe_model
from interp.evidence.published import mesa_scores
from interp.identify.run import Run
from interp.models.tasks import find_targets
from interp.models.tasks.dynamics_targets import NEXT, PUBLISHED
from interp.papers.comparison import row
from interp.papers.mesa_networks import MISSING, subject_of
from interp.papers.paper import Progress
from interp.results import ProbeScore
from interp.stats.averages import mean_with_error

__all__ = ["EXACT", "NETWORKS", "PLACES", "claims", "network_rows", "probe_rows"]

EXACT = "preconditioned"
TARGETS = (NEXT, EXACT, PUBLISHED)
PLACES = (5, 10, 20, 49)
# By target and position: the inputs, then after each of the six layers.
PAPER: Mapping[str, Mapping[int, tuple[float, ...]]] = {
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
OF_THE_PAPER = "lsa-6"
CONTRACTING, FIXED = "lsa-4-contracting", "lsa-4-fixed"
NETWORKS = (OF_THE_PAPER, "lsa-6-key-40", CONTRACTING, FIXED)
SEEDS = (1, 11, 111, 1111, 11111)
PROMPTS = 2048  # sequences of the held-out scores
CHANCE = 0.05  # a smaller R^2 is chance
FALL = 0.02  # a smaller fall of R^2 from one layer, or position, to the next is none


def probe_rows(seed: int, progress: Progress) -> list[dict[str, Any]]:
    """Of every network that ships, then what they show."""
    rows = []
    for name in NETWORKS:
        subject = subject_of(name)
        if subject is None:
            rows.append(row(f"probes of {name}", None, None, None, None, why=MISSING))
            continue
        rows += network_rows(name, subject, PLACES, PROMPTS, SEEDS, seed, progress)
    return rows + claims(rows)


def network_rows(
    name: str, subject: Run, places: Sequence[int], prompts: int, seeds: Sequence[int], seed: int, progress: Progress
) -> list[dict[str, Any]]:
    """One row for every target, position and number of layers run."""
    model, task = subject.model, subject.task
    request = ProbeRequest(
        model=model, task=task, targets=find_targets(task, TARGETS), layers=range(model.layers + 1),
        positions=tuple(places), prompts=prompts, seed=seed, progress=lambda step: progress(f"{name}: {step}"),
    )  # fmt: skip
    scores, _ = probe_model(request, ("token",))
    published = [target for target in request.targets if target.name in PAPER]
    errors: dict[tuple[str, int | None, int], list[float]] = {}
    for number in seeds:
        progress(f"{name}: probing as published, seed {number}")
        for found in mesa_scores(replace(request, targets=published, seed=number)):
            if found.mse is not None:
                errors.setdefault((found.target, found.position, found.layer), []).append(found.mse / 2)
    return [_row(name, found, errors.get((found.target, found.position, found.layer), [])) for found in scores]


def _row(name: str, found: ProbeScore, errors: Sequence[float]) -> dict[str, Any]:
    ours, stderr = mean_with_error(torch.tensor(errors, dtype=torch.float64))
    curves = PAPER.get(found.target, {}) if name == OF_THE_PAPER else {}
    paper = None if found.position not in curves else curves[found.position or 0][found.layer]
    where = "inputs" if found.layer == 0 else f"layer {found.layer}"
    return row(
        f"{name}: {found.target}, t = {found.position}, {where}", paper, ours, stderr, None,
        network=name, target=found.target, position=found.position, layer=found.layer, r2=found.r2,
        r2_ci=list(found.r2_ci), untrained=found.control["untrained"], shuffled=found.control["shuffled"],
        above_inputs_ci=list(found.selectivity_ci.get("inputs", (None, None))),
    )  # fmt: skip


def claims(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the probes are said to show, held against the held-out scores: ``ours`` is the figure that decides,
    ``within_bar`` whether it holds."""
    scores = {(r["network"], r["target"], r["position"], r["layer"]): r for r in rows if "target" in r}
    return [claim for name in dict.fromkeys(network for network, *_ in scores) for claim in _claims_of(name, scores)]


def _claims_of(name: str, scores: Mapping[tuple[str, str, int, int], Mapping[str, Any]]) -> list[dict[str, Any]]:
    layers = sorted({layer for network, *_, layer in scores if network == name})
    places = sorted({place for network, _, place, _ in scores if network == name})
    out: list[dict[str, Any]] = []

    def r2(target: str, place: int, layer: int) -> float:
        value = scores[name, target, place, layer]["r2"]
        return float("-inf") if value is None else value

    def claim(words: str, figure: float, holds: bool) -> None:
        finite = figure if abs(figure) < float("inf") else None
        made = row(f"{name}: {words}", None, finite, None, None, network=name, claim=True)
        out.append({**made, "within_bar": holds})

    if name not in (FIXED, CONTRACTING):
        for place in places:
            step = _least_step([r2(NEXT, place, layer) for layer in layers])
            low = scores[name, NEXT, place, layers[-1]]["above_inputs_ci"][0]
            rises = step > -FALL and low is not None and low > 0
            claim(f"the next state rises with depth at t = {place} (least step of R²)", step, rises)
        step = _least_step([r2(NEXT, place, layers[-1]) for place in places])
        claim("the next state rises with the position (least step of R²)", step, step > -FALL)
        most = max(r2(NEXT, place, 0) for place in places)
        claim("the next state is not in the inputs (largest R²)", most, most < CHANCE)
        most = max(scores[name, NEXT, place, layer]["untrained"] or 0.0 for place in places for layer in layers)
        claim("nor in untrained networks (largest R²)", most, most < CHANCE)
    if name == FIXED:
        least = min(r2(NEXT, place, 0) for place in places)
        claim("the next state is in the inputs already (least R²)", least, least > 1.0 - CHANCE)
    rises = [max(r2(PUBLISHED, place, layer) for layer in layers) - r2(PUBLISHED, place, 0) for place in places]
    if name == FIXED:
        claim("the preconditioned state is flat (largest rise of R²)", max(rises), max(rises) < CHANCE)
    else:
        claim("the preconditioned state rises from the inputs (least rise of R²)", min(rises), min(rises) > CHANCE)
    strange = max(entry["shuffled"] or 0.0 for key, entry in scores.items() if key[0] == name)
    claim("targets of other sequences are at chance (largest R²)", strange, strange < CHANCE)
    return out


def _least_step(curve: Sequence[float]) -> float:
    """The least change from one value to the next."""
    return min((after - before for before, after in pairwise(curve)), default=0.0)
