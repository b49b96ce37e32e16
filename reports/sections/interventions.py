"""Interventions: what predictions become when implicit weights are put in place of others, or a target is erased."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interp.reports.numbers import DASH, interval, is_finite, listed, number, several
from interp.reports.plots import axis, charted, curve, label, layer_axis, plot
from interp.reports.probe_scores import depth_text
from interp.reports.registry import section
from interp.reports.tabulate import points, tabulate
from interp.results import (
    Analysis,
    Erasure,
    ImplicitFit,
    Panel,
    ProbeReport,
    Section,
    Series,
    Skipped,
    Transplant,
)

__all__ = ["erasure_finding", "intervention_parts", "linearity_finding", "skipped_checks", "transplant_finding"]

FOLLOWS = 1e-4  # error of predictions that follow within 1 %
EXACT = 1e-9  # 1 - R^2 below it is rounding
_ASIDE = {"weights": -0.06, "state": 0.06, "random": 0.0}  # so that equal effects do not cover each other
_WEIGHTS = Series(key="weights", label="the weights of another prompt", colour="var(--series-1)", symbol="circle")
_STATE = Series(key="state", label="its whole state", colour="var(--series-3)", symbol="diamond")
_STRAY = Series(key="random", label="random weights as far away", colour="var(--series-4)", symbol="x")
_ERASED = Series(key="erased", label="the target erased", colour="var(--series-1)", symbol="circle")
_RANDOM = Series(key="random", label="as many random directions erased", colour="var(--series-4)", symbol="x")


def transplant_finding(rows: Sequence[Transplant]) -> str:
    """After which layers the prediction follows the weights of another prompt, and what that proves."""
    made = [row for row in rows if row.kind == "weights" and row.reason is None and is_finite(row.error)]
    if not made:
        return "No implicit weights could be transplanted"
    followed = [row for row in made if (row.error or 0.0) < FOLLOWS]
    if len(followed) == len(made):
        worst = max(row.error or 0.0 for row in made)
        return (
            f"The network predicts from its implicit weights: given those of another prompt, it predicts what they "
            f"imply, {_depths(made)} (of the change, it misses {number(worst, 1)} at most)"
        )
    others = [row for row in made if row not in followed]
    effects = [f"{depth_text(row.layer)} the effect is {interval(row.effect, row.effect_ci)}" for row in others]
    text = "Predictions do not follow transplanted implicit weights"
    if followed:
        text = f"Predictions follow the implicit weights of another prompt {_depths(followed)}, but not everywhere"
    return f"{text}: {listed(effects, most=4)}, where 1 is expected"


def _depths(rows: Sequence[Transplant]) -> str:
    layers = sorted({row.layer for row in rows})
    if len(layers) > 2 and layers == list(range(layers[0], layers[-1] + 1)):
        return f"after {layers[0]} to {layers[-1]} layers"
    return f"after {listed([str(layer) for layer in layers])} layer{'s' * (layers != [1])}"


def erased_targets(rows: Sequence[Erasure]) -> dict[str, list[Erasure]]:
    """The erasures that were made, by target."""
    made: dict[str, list[Erasure]] = {}
    for row in rows:
        if row.reason is None and is_finite(row.effect):
            made.setdefault(row.target, []).append(row)
    return made


def used(row: Erasure) -> bool:
    """Whether the loss rises by more than with as many random directions erased: the intervals are apart."""
    low, high = row.effect_ci[0], row.random_ci[1]
    return is_finite(low) and is_finite(high) and low > max(high, 0.0)


def erasure_finding(rows: Sequence[Erasure]) -> str:
    """Which decoded targets the prediction needs, and which could be read but are not shown to be used."""
    made = erased_targets(rows)
    if not made:
        return "No target could be erased: the token holds none of them for a linear probe to read"
    needed, idle = [], []
    for target, erasures in made.items():
        worst = max(filter(used, erasures), key=lambda row: row.effect or 0.0, default=None)
        if worst is None:
            idle.append(target)
        else:
            needed.append(
                f"{target} ({interval(worst.effect, worst.effect_ci)} {depth_text(worst.layer)}; as many random "
                f"directions: {interval(worst.random, worst.random_ci)})"
            )
    parts = [f"The prediction needs what is erased, by the loss that is gained: {listed(needed)}"] if needed else []
    parts += [f"To erase {listed(idle)} costs no more than to erase random directions"] if idle else []
    return ". ".join(parts)


def linear(fits: Sequence[ImplicitFit]) -> bool:
    """Whether every figure is 1 to rounding."""
    return all(is_finite(fit.linearity_r2) and fit.linearity_r2 > 1 - EXACT for fit in fits)


def linearity_finding(fits: Sequence[ImplicitFit]) -> str:
    """How linear the labels are in the tokens of their prompt."""
    scored = [fit for fit in fits if is_finite(fit.linearity_r2)]
    if not scored:
        return "How linear the implicit model of a prompt is could not be scored"
    lowest = min(scored, key=lambda fit: fit.linearity_r2 or 0.0)
    if linear(fits):
        return "The implicit model of a prompt is linear wherever it was read: R² is 1 to rounding"
    place = "" if lowest.position is None else f" and the tokens before {lowest.position}"
    return (
        f"The implicit model of a prompt is not exactly linear: R² is lowest {depth_text(lowest.layer)}{place}, "
        f"{interval(lowest.linearity_r2, lowest.linearity_r2_ci)}"
    )


def skipped_checks(result: Analysis | ProbeReport) -> list[str]:
    """The interventions that were not made, those of the same reason together."""
    layers: dict[tuple[str, str], list[str]] = {}
    checks = [(f"transplant of {row.kind}", row.layer, row.reason) for row in result.transplants]
    checks += [(f"erasure of {row.target}", row.layer, row.reason) for row in result.erasures]
    for what, layer, reason in checks:
        if reason is not None:
            layers.setdefault((what, reason), []).append(str(layer))
    return [f"{what} after {', '.join(after)} layers: {reason}" for (what, reason), after in layers.items()]


@section("interventions", title="interventions", where="interventions")
def interventions(analysis: Analysis) -> tuple[Section, ...] | Skipped:
    parts = tuple(intervention_parts((), analysis.transplants, analysis.erasures))
    return parts or Skipped("no intervention was made; interp-probe probe makes them where the task has targets")


def intervention_parts(
    fits: Sequence[ImplicitFit], transplants: Sequence[Transplant], erasures: Sequence[Erasure]
) -> Iterator[Section]:
    """What there is something to say of: how linear implicit models are, and what interventions changed."""
    if fits:
        columns = {
            "layers run": "layer", "tokens before": lambda f: "all" if f.position is None else str(f.position),
            "R² [95 %]": lambda f: f.reason or interval(f.linearity_r2, f.linearity_r2_ci), "fitted to": "rows",
            "prompts": "prompts",
        }  # fmt: skip
        table = tabulate(fits, columns)
        short = None if linear(fits) else table.only("layers run", "tokens before", "R² [95 %]")
        description = (
            "R² of y = a y₀ − ⟨w, x₀⟩ within every prompt, x₀ and y₀ being what a token holds before the "
            "first layer; every token (with causal keys, every query put after the same tokens) is predicted from the "
            "fit to the others. Intervals are over prompts."
        )
        title = "How linear the implicit model is"
        yield charted("linearity", title, linearity_finding(fits), description, [], table, short=short)
    yield from _transplants(transplants)
    yield from _erasures(erasures)


def _transplants(rows: Sequence[Transplant]) -> Iterator[Section]:
    made = [row for row in rows if row.reason is None and is_finite(row.effect)]
    if not made:
        return
    data, legend = [], []
    for series in (_STRAY, _STATE, _WEIGHTS):
        kind, field = ("weights", "random") if series is _STRAY else (series.key, "effect")
        of_kind = [row for row in made if row.kind == kind]
        drawn = points(of_kind, "layer", field, lambda e, said, of=series: f"{of.label}, {depth_text(e.layer)}: {said}")
        if drawn:
            data.append(curve(series, drawn, dash="dash" if series is _STRAY else "solid", aside=_ASIDE[series.key]))
            legend.insert(0, series)
    layers = layer_axis(sorted({row.layer for row in made}), "layers run")
    columns = {
        "layers run": "layer", "what": "kind", "effect [95 %]": "effect", "error": "error:1",
        "random [95 %]": "random", "error of random": "random_error:1",
        "changed": lambda row: f"{row.fired}/{row.prompts}",
    }  # fmt: skip
    title = "Implicit weights of another prompt put in place (transplant)"
    description = (
        "After so many layers the implicit weights of prompt A are put in place of those of prompt B, in "
        "all tokens, and the later layers go on from there. 1: the prediction becomes the one that A's weights imply "
        "with the later layers; 0: it does not change. That they follow proves that the prediction is made from these "
        "weights, and not only that they can be read; it says nothing of how the weights were found. Control: random "
        "weights as far away, whose error, in the table, says that they do not lead where A's do. Changed: in how many "
        "prompts the hook changed the tokens. Bars are 95 % intervals over prompts."
    )
    table, short = tabulate(made, columns | {"the prompt's weights again": "own:2"}), tabulate(made, columns)
    finding, panels = transplant_finding(rows), [plot("transplants", data, layers, axis("effect"), 280)]
    yield charted("transplants", title, finding, description, panels, table, legend=legend, short=short)


def _erasures(rows: Sequence[Erasure]) -> Iterator[Section]:
    by_target = erased_targets(rows)
    if not by_target:
        return
    depths = sorted({row.layer for row in rows})
    panels = [_erased(f"erasures-{k}", entries, depths) for k, entries in enumerate(by_target.values())]
    position = rows[0].position
    place = "the query token" if position is None else f"token {position}"
    columns = {
        "target": "target", "layers run": "layer", "loss gained [95 %]": "effect", "random [95 %]": "random",
        "rank": "rank", "R² [95 %]": "r2", "erased [95 %]": "r2_erased",
        "changed": lambda row: f"{row.fired}/{row.prompts}",
    }  # fmt: skip
    few = {
        "target": "target", "layers run": "layer", "loss gained [95 %]": "effect", "random [95 %]": "random",
        "R²": lambda row: _share(row.r2), "after": lambda row: _share(row.r2_erased), "rank": "rank",
    }  # fmt: skip
    made = [row for entries in by_target.values() for row in entries]
    description = (
        f"After so many layers, {place} loses all that a linear probe reads of the target in it, and as "
        "little else as possible (LEACE, fitted to other prompts); later layers go on with what is left. Loss gained "
        "is in units of the mean square of the answer: 1 is what predicting 0 costs a perfect network. More than for "
        "as many random directions, it proves that the network uses what was erased; a target that is read and not "
        "missed was decoded, but is not shown to be used. Where nothing linear of the target is found at a false "
        "positive rate of 1 %, nothing is erased. Bars are 95 % intervals over prompts."
    )
    table, short, legend = tabulate(made, columns), tabulate(made, few), (_ERASED, _RANDOM)
    title, finding = f"Targets erased from one token ({place})", erasure_finding(rows)
    yield charted("erasures", title, finding, description, panels, table, legend=legend, compact=True, short=short)


def _erased(name: str, entries: Sequence[Erasure], depths: Sequence[int]) -> Panel:
    def of_target(row: Erasure, said: str) -> str:
        where = f"{label(row.target)}, {several(row.rank, 'direction')} {depth_text(row.layer)}"
        return f"{where}: {said}<br>R² {_share(row.r2)}, erased {_share(row.r2_erased)}"

    erased, last = points(entries, "layer", "effect", of_target), entries[-1]
    stray = points(entries, "layer", "random", lambda e, said: f"{e.rank} random, {depth_text(e.layer)}: {said}")
    left = f"{depth_text(last.layer)}: R² {number(last.r2, 2)}, erased {_share(last.r2_erased)}"
    data = [curve(_RANDOM, stray, dash="dash", size=6), curve(_ERASED, erased)]
    x, y = layer_axis(depths, "layers run"), axis("loss gained", rangemode="tozero")
    return plot(name, data, x, y, 220, last.target, left)


def _share(value: float | None) -> str:
    return f"{value:z.2f}" if is_finite(value) else DASH
