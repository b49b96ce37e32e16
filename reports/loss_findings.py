"""What losses on fresh prompts say, in sentences: beside the best possible error, and after every layer."""

from __future__ import annotations

import itertools

from interp.reports.evidence_findings import algorithm
from interp.reports.findings import ROUNDING, listed, loss, loss_number
from interp.reports.numbers import estimate, number, rounded
from interp.results import Analysis, Loss

__all__ = ["depth_finding", "family_error", "loss_finding"]

UNSURE = 0.1  # standard error relative to the value from which it is said beside it


def loss_finding(analysis: Analysis) -> str:
    losses = analysis.evidence.losses
    network, recovered, oracle, null = (loss(losses, name) for name in ("network", "recovered", "oracle", "null"))
    if network is None:
        return "The network's loss was not measured"
    best = f"; the best possible is {loss_number(oracle, null or network)}" if oracle else ""
    if recovered is None:
        zero = f", predicting zero {number(null.mse)}" if null else ""
        return f"The network errs by {number(network.mse)}{zero}{best}"
    what = algorithm(analysis)
    if recovered.excess is not None and network.excess is not None:
        scale = network.excess if null is None or null.mse is None else min(network.excess, null.mse)
        if abs(recovered.excess) < ROUNDING * scale:
            return f"The {what} is the best possible prediction; the network stays {_above(network)} above its error"
        above, beside = (_above(entry) for entry in (recovered, network))
        text = f"The {what} stays {above} above the best possible error, the network {beside}"
        return text + _few_prompts(recovered, network)
    return f"The {what} errs by {number(recovered.mse)}, the network by {number(network.mse)}{best}"


def family_error(analysis: Analysis, mse: float | None) -> str:
    """The mean squared error of a family, or that it is 0 beside predicting zero."""
    null = loss(analysis.evidence.losses, "null")
    beside = null.mse if null is not None and null.mse is not None else 0.0
    return "0 to rounding" if mse is not None and abs(mse) <= ROUNDING * beside else number(mse)


def _above(entry: Loss) -> str:
    """With its standard error where that is not small beside it."""
    unsure = entry.excess_stderr is not None and entry.excess_stderr > UNSURE * abs(entry.excess or 0.0)
    return (estimate if unsure else rounded)(entry.excess, entry.excess_stderr)


def _few_prompts(*entries: Loss) -> str:
    """That a mean hangs on a few prompts, with the means without those; empty when none does."""
    if not any(_hangs_on_few(entry) for entry in entries):
        return ""
    numbers_ = listed([number(entry.trimmed, 3) for entry in entries])
    left = entries[0].left_out
    return (
        f". Here a few prompts decide: without the {left} prompt{'s' * (left != 1)} on which each errs most it is "
        f"{numbers_}"
    )


def _hangs_on_few(entry: Loss) -> bool:
    """Whether the mean is unsure, and moves by half its standard error or more when the worst prompts are left out."""
    if entry.trimmed is None or entry.excess is None or entry.excess_stderr is None:
        return False
    unsure = entry.excess_stderr > UNSURE * abs(entry.excess)
    return unsure and abs(entry.excess - entry.trimmed) > entry.excess_stderr / 2


def depth_finding(analysis: Analysis) -> str:
    values = [entry.mse for entry in analysis.evidence.depth_losses]
    if len(values) < 2 or any(v is None for v in values):
        return "Error of the prediction read out after each layer"
    mses = [v for v in values if v is not None]
    rises = [str(i) for i, (before, after) in enumerate(itertools.pairwise(mses)) if after > before]
    ends = f"from {number(mses[0])} to {number(mses[-1])}"
    if not rises:
        return f"Every layer lowers the error, {ends}"
    who = f"layer {rises[0]} does" if len(rises) == 1 else f"layers {listed(rises)} do"
    return f"The error goes {ends}; {who} not lower it"
