"""The distributed EAGLE as real processes that hold their own columns and average C and D, nothing else.

Every process keeps A^mu and B^mu to itself and, in every round, takes part in one all-reduce of (C, D): (d + d') n'
numbers, whatever the number of its columns. ``torch.distributed`` with gloo, on this machine.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from interp.models.errors import UsageError
from interp.solvers.eagle import ETA, GAMMA, Machine

__all__ = ["DistributedRun", "run_processes"]

TIMEOUT = 600  # seconds


@dataclass(frozen=True, eq=False)
class DistributedRun:
    """``D`` as every process ended with it; ``sent`` the bytes that each handed to the all-reduce, in all rounds."""

    D: Float[Tensor, "process query out"]
    rounds: int
    sent: tuple[int, ...]

    def numbers_per_round(self) -> tuple[float, ...]:
        """float64 numbers that each process gave away per round."""
        return tuple(bytes_ / 8 / self.rounds for bytes_ in self.sent)


class _Counted:
    """The one way out of a process, and what went through it."""

    def __init__(self) -> None:
        self.sent = 0

    def mean(self, *blocks: Tensor) -> tuple[Tensor, ...]:
        """The mean over processes of every block, in one all-reduce."""
        flat = torch.cat([block.flatten() for block in blocks])
        self.sent += flat.numel() * flat.element_size()
        dist.all_reduce(flat)
        parts = (flat / dist.get_world_size()).split([block.numel() for block in blocks])
        return tuple(part.view_as(block) for part, block in zip(parts, blocks, strict=True))


def _work(rank: int, size: int, folder: str, rounds: int, eta: float, gamma: float) -> None:
    """One process: reads its own columns and C from a file, and writes what it ends with to another."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    try:
        given = torch.load(f"{folder}/in{rank}", weights_only=True)
        C, machine, line = given["C"], Machine.of(given["A"], given["B"]), _Counted()
        D = C.new_zeros(given["B"].shape[0], C.shape[1])
        for _ in range(rounds):
            C, D = line.mean(*machine.step(C, D, eta, gamma, None))
        torch.save({"D": D, "sent": line.sent}, f"{folder}/out{rank}")
    finally:
        dist.destroy_process_group()


def _ended(workers: Sequence[BaseProcess]) -> list[int | None]:
    """Wait for all; when one fails or time is up, end the others, which would wait for it. Their exit codes."""
    left, deadline = list(workers), time.monotonic() + TIMEOUT
    while left and not any(worker.exitcode for worker in workers) and time.monotonic() < deadline:
        wait([worker.sentinel for worker in left], timeout=1.0)
        left = [worker for worker in left if worker.is_alive()]
    for worker in left:
        worker.terminate()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


def run_processes(
    blocks: Sequence[tuple[Float[Tensor, "d _"], Float[Tensor, "query _"]]],
    C: Float[Tensor, "d out"],
    rounds: int,
    *,
    eta: float = ETA,
    gamma: float = GAMMA,
) -> DistributedRun:
    """Run ``rounds`` rounds, one process for each of ``blocks`` = [(A^mu, B^mu)]. Raises UsageError when one fails."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["interp.solvers.eagle_processes"])
    with tempfile.TemporaryDirectory() as folder:
        for rank, (A, B) in enumerate(blocks):
            torch.save({"A": A.clone(), "B": B.clone(), "C": C}, f"{folder}/in{rank}")
        workers = [
            context.Process(target=_work, args=(rank, len(blocks), folder, rounds, eta, gamma))
            for rank in range(len(blocks))
        ]
        for worker in workers:
            worker.start()
        codes = _ended(workers)
        if any(codes):
            raise UsageError(f"the processes ended with {codes}, expected 0 of each within {TIMEOUT} s")
        results = [torch.load(f"{folder}/out{rank}", weights_only=True) for rank in range(len(blocks))]
    return DistributedRun(
        D=torch.stack([r["D"] for r in results]), rounds=rounds, sent=tuple(int(r["sent"]) for r in results)
    )
