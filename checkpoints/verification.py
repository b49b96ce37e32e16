"""Is the network read as it runs? Its own outputs, from the code that trained it, against those of the reading.

They come in an ``.npz`` file: "inputs" (prompt, position, D), the tokens as they enter the first layer, context first
and query last, and "outputs", the predictions at the last positions: (prompt,) or (prompt, query, output).
``template`` writes the lines of Python that make one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.checkpoints.reading import Verified
from interp.checkpoints.scanning import scan
from interp.checkpoints.slips import Slip, slips
from interp.errors import CheckFailed, LayoutError, UsageError, visible
from interp.models.token_pass import run
from interp.models.transformer import LinearTransformer

__all__ = ["Pairs", "read_pairs", "template", "verify"]

# Largest error, of the largest output: some thousand operations in the network's own precision.
AGREES = {"float64": 1e-4, "float32": 1e-4, "float16": 3e-2, "bfloat16": 1e-1}
CHUNK = 256  # prompts at a time
TWO_SLIPS = 8  # prompts, on which readings two slips away are looked for


@dataclass(frozen=True, eq=False)
class Pairs:
    """Inputs, and a network's own outputs at their last positions, in float64."""

    inputs: Float[Tensor, "prompt pos D"]
    outputs: Float[Tensor, "prompt query output"]

    @property
    def largest(self) -> float:
        """The size of the outputs, by which errors are measured."""
        return float(self.outputs.abs().max())

    def error(self, model: LinearTransformer) -> float:
        """The largest difference of a reading's outputs, as a share of the largest output."""
        double, parts = model.to(torch.float64), []
        queries = self.outputs.shape[1]
        context = None if model.spec.attention.keys == "causal" else self.inputs.shape[1] - queries
        with torch.no_grad():
            for inputs in self.inputs.split(CHUNK):
                parts.append(run(double.spec, dict(double.named()), inputs, context)[:, -queries:])
        return float(torch.nan_to_num(torch.cat(parts) - self.outputs, torch.inf).abs().max()) / self.largest


def read_pairs(path: str | os.PathLike[str], model: LinearTransformer) -> Pairs:
    """The pairs of a file, of tokens and outputs as ``model`` has them.

    Raises UnreadableFile for a file that cannot be read, LayoutError for one that holds something else.
    """
    arrays, D = scan(path), model.spec.width
    label = f"--verify {visible(str(path), 300)}"
    if {"inputs", "outputs"} - set(arrays.arrays):
        raise LayoutError(
            f"{label} holds {arrays.seen()}, expected inputs and outputs; interp-probe verify-template CHECKPOINT "
            "writes the Python that makes them"
        )
    loaded = {name: value.double() for name, value in arrays.load(("inputs", "outputs")).items()}
    inputs, outputs = loaded["inputs"], loaded["outputs"]
    size = next(size for name, size in model.spec.tokens if name == model.spec.readout.channel)
    size = 1 if model.spec.readout.flat else size
    if inputs.ndim != 3 or inputs.shape[-1] != D or not len(inputs):
        raise LayoutError(f"{label} has inputs of shape {tuple(inputs.shape)}, expected (prompts, tokens, {D})")
    most = len(inputs) * size * (inputs.shape[1] - (model.spec.attention.keys != "causal"))
    if len(outputs) != len(inputs) or not 0 < outputs.numel() <= most or outputs.numel() % (len(inputs) * size):
        raise LayoutError(
            f"{label} has outputs of shape {tuple(outputs.shape)} for inputs of shape {tuple(inputs.shape)}, expected "
            f"({len(inputs)}, queries, {size}), those at the last positions"
        )
    if not bool(inputs.isfinite().all() and outputs.isfinite().all()) or not bool(outputs.any()):
        raise LayoutError(f"{label} has values that are not finite, or outputs that are all 0, which tell nothing")
    return Pairs(inputs, outputs.reshape(len(inputs), -1, size))


def verify(pairs: Pairs, model: LinearTransformer, dtype: str, readings: Iterable[Slip]) -> Verified:
    """The comparison, where it holds; ``dtype`` is that of the file. Raises CheckFailed where it does not, naming those
    of the ``readings`` one slip away that have the outputs, or else readings two slips away."""
    error = pairs.error(model)
    if error <= AGREES[dtype]:
        return Verified(len(pairs.inputs), error)
    tried = [(slip.words, _error(pairs, slip.model), slip) for slip in readings]
    right = [entry for entry in tried if entry[1] <= AGREES[dtype]]
    if not right:
        few = Pairs(pairs.inputs[:TWO_SLIPS], pairs.outputs[:TWO_SLIPS])
        kinds = list(dict.fromkeys(slip.kind for _, _, slip in tried))
        twice = (
            (f"{slip.words} and {second.words}", second)
            for _, _, slip in tried
            for second in slips(slip.model)
            if kinds.index(second.kind) > kinds.index(slip.kind) and _error(few, second.model) <= AGREES[dtype]
        )
        right = [(words, _error(pairs, slip.model), slip) for words, slip in twice]
        right = [entry for entry in right if entry[1] <= AGREES[dtype]]
    if right:
        named = " or ".join(f"{words} (largest error {error:.1g})" for words, error, _ in right)
        found = f"what has its outputs is {named}"
    elif tried:
        words, nearest, _ = min(tried, key=lambda entry: entry[1])
        found = f"no reading one or two slips away has its outputs; the nearest is {words}, off by {nearest:.1g}"
    else:
        found = "no other reading is possible"
    raise CheckFailed(
        f"the file is not read as its network runs: the outputs differ by up to {error:.2g} of the largest, "
        f"{pairs.largest:.3g}, on {len(pairs.inputs)} prompts; {found}"
    )


def _error(pairs: Pairs, model: LinearTransformer) -> float:
    try:
        return pairs.error(model)
    except UsageError:  # weights for so many tokens, say
        return torch.inf


def template(model: LinearTransformer, context: int, queries: int, arguments: str) -> str:
    """Python that makes the file of pairs in the user's own code. ``context``: tokens before the ``queries``;
    ``arguments``: of the command line that opens the checkpoint."""
    spec, D = model.spec, model.spec.width
    size = dict(spec.tokens)[spec.readout.channel]
    start = sum(size for _, size in spec.tokens[: [name for name, _ in spec.tokens].index(spec.readout.channel)])
    causal = spec.attention.keys == "causal"
    tokens = context if causal else context + queries
    channels = ", ".join(f"{name} ({size})" for name, size in spec.tokens)
    place = f"inputs[:, {context}:, {start}:{start + size}]"
    hidden = "" if causal else f"{place} = 0  # the label of a query is not known\n"
    shape = f"(32, {tokens if causal else queries}, {size})"
    return f'''"""Writes pairs.npz, to check that a network is read as it runs by: interp-probe {arguments}"""

import numpy as np
import torch

# Tokens as they enter the first layer, their channels in the order {channels}.
inputs = np.random.default_rng(0).standard_normal((32, {tokens}, {D})) / 2
{hidden}
model = ...  # YOUR NETWORK, with the weights of the checkpoint loaded
with torch.no_grad():
    outputs = model(torch.tensor(inputs, dtype=torch.float32))  # YOUR FORWARD PASS

# Its predictions at {"every position" if causal else f"the last {queries} position(s)"}: {shape}.
np.savez("pairs.npz", inputs=inputs, outputs=np.asarray(outputs, dtype=float))
# Then: interp-probe {arguments} --verify pairs.npz
'''
