"""A pass over many prompts: memory that does not grow, and what it costs beside the forward passes.

Memory is measured as the peak resident size of processes of their own. Cost is CPU time of reading features, computing
targets and updating moments, and of the forward pass on the same prompts, in turn; the ratios are in the column "extra
info" (see ``test_probe_speed``), and none of them can fail on a slow machine.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch

from interp.checkpoints.opening import open_checkpoint
from interp.models.gram import forward, head_layers
from interp.models.hooked import HookedLinearTransformer
from interp.models.tasks import KINDS, Examples, targets_of, task_of
from interp.probes.across import batteries, gather
from interp.probes.activations import Reader, stream

pytestmark = pytest.mark.slow
PROMPTS, CHUNK, ROUNDS = 32768, 2048, 5

PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from interp.checkpoints.opening import open_checkpoint
from interp.evidence.probing import probe_checkpoint
probe_checkpoint(open_checkpoint("zoo:full-l4-u5"), prompts=int(sys.argv[1]))
sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""


def peak(prompts: int) -> int:
    """Peak resident memory in KiB, of all targets of a model with d = 10, n = 20 and four layers."""
    ended = subprocess.run([sys.executable, "-c", PEAK, str(prompts)], capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_memory_does_not_grow_with_the_number_of_prompts():
    few, many = peak(10_000), peak(1_000_000)
    assert many < 1.1 * few


def test_cost_beside_the_forward_passes(benchmark):
    model = open_checkpoint("zoo:full-l4-u5").model.to(torch.float64)
    task = task_of(model.spec.task)
    chunks = list(stream(task, PROMPTS, 0, CHUNK))
    reader, wanted = Reader(model, KINDS, (None,)), batteries(task, targets_of(task), (None,))
    layers, hooked = head_layers(model, task.context), HookedLinearTransformer(model)

    def probing() -> None:
        gather(reader, wanted, range(model.layers + 1), chunks, PROMPTS, 4)

    def gram_path() -> None:
        for prompts in chunks:
            assert isinstance(prompts, Examples)
            grams = prompts.grams(model.spec)
            forward(layers, grams.gram, grams.query)

    def hooked_path() -> None:
        for prompts in chunks:
            hooked(*prompts.inputs(model.spec))

    rounds = [[seconds(run) for run in (probing, gram_path, hooked_path)] for _ in range(ROUNDS)]
    for name, ratio in (
        ("probes alone to the Gram path", lambda p, g, h: (p - g) / g),
        ("whole pass to the hooked path", lambda p, g, h: p / h),
        ("whole pass to the Gram path", lambda p, g, h: p / g),
    ):
        benchmark.extra_info[name] = round(statistics.median(ratio(*times) for times in rounds), 2)
    benchmark.pedantic(probing, rounds=1)


def seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
