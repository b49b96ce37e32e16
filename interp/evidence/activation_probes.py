"""What can be read from the activations of a network, and what follows when it is changed."""

from __future__ import annotations

from interp.evidence.interventions import intervene
from interp.evidence.probe_request import ProbeRequest
from interp.evidence.probing import default_probes
from interp.evidence.question import Answer, question
from interp.identify.choose import Choice
from interp.identify.networks import SharedKeys
from interp.identify.run import Run
from interp.models.skipped import Skipped
from interp.models.tasks import targets_of

__all__ = ["interventions", "probes"]

PROBE_PROMPTS = 2048  # at most
OPERATIONS = 2e10  # floating-point operations of the interventions, some seconds


@question("probes")
def probes(choice: Choice, run: Run) -> Answer | Skipped | None:
    """A few probes, with their controls."""
    if not run.spec.has_channels:
        return run.network.skipped
    if not any(target.usual for target in targets_of(run.task)):
        return None
    run.progress("probing activations")
    rows, note = default_probes(run.model, run.task, min(run.prompts, PROBE_PROMPTS), run.seeds.probes)
    return Answer(fields={"probes": rows}, notes=() if note is None else (note,))


@question("interventions")
def interventions(choice: Choice, run: Run) -> Answer | Skipped | None:
    """Implicit weights transplanted, and decoded targets erased."""
    if not isinstance(run.network, SharedKeys):
        return run.network.skipped
    # What the query token of a network of linear layers can hold.
    erased = tuple(target for target in targets_of(run.task) if target.usual == ("token",))
    if not erased:
        return None
    run.progress("intervening")
    layers, count = range(run.model.layers + 1), min(run.prompts, PROBE_PROMPTS)
    request = ProbeRequest(run.model, run.task, erased, layers, (None,), count, run.seeds.probes)
    moved, erasures, notes = intervene(request, budget=OPERATIONS)
    return Answer(fields={"transplants": moved, "erasures": erasures}, notes=notes)
