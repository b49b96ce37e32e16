"""The record of a training run: an interrupted run goes on where it stopped, and ends with the same weights.

A search is a fixed list of minimisations. Each one that has ended is stored under its name, and the one in progress
with everything ``minimise`` needs; a resumed search walks the same list and finds its finished parts here. One
safetensors file, replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from interp.models.errors import UnreadableFile, UsageError
from interp.models.training.levenberg_marquardt import Progress
from interp.models.training.recipe import Recipe

__all__ = ["Journal"]

SAVE_EVERY = 10.0  # seconds


class Journal:
    """``path`` None keeps the record in memory only."""

    def __init__(self, recipe: Recipe, path: Path | None) -> None:
        self.path = path
        self._recipe = hashlib.sha256(json.dumps(recipe.to_dict(), sort_keys=True).encode()).hexdigest()
        self._finished: dict[str, Progress] = {}
        self._current: tuple[str, Progress] | None = None
        self._before = 0.0  # seconds spent by earlier processes
        self._started = self._saved = time.monotonic()
        if path is not None and path.exists():
            self._load(path)

    @property
    def seconds(self) -> float:
        """Wall time spent, interruptions left out."""
        return self._before + time.monotonic() - self._started

    @property
    def iterations(self) -> int:
        """Iterations of all minimisations, of which a continued one ("name+") counts those of its beginning."""
        names = self._finished
        return sum(progress.iteration for name, progress in names.items() if f"{name}+" not in names)

    def run(
        self, name: str, start: Progress, minimise: Callable[[Progress, Callable[[Progress], None]], Progress]
    ) -> Progress:
        """``minimise`` from ``start``, unless the record already holds the end of it, or a later beginning."""
        if name in self._finished:
            return self._finished[name]
        progress = start
        if self._current is not None and self._current[0] == name:
            progress = self._current[1]

        def watch(now: Progress) -> None:
            self._current = (name, now)
            if time.monotonic() - self._saved > SAVE_EVERY:
                self.save()

        self._finished[name] = minimise(progress, watch)
        self._current = None
        return self._finished[name]

    def save(self) -> None:
        if self.path is None:
            return
        entries = {f"finished/{name}": progress for name, progress in self._finished.items()}
        if self._current is not None:
            entries[f"current/{self._current[0]}"] = self._current[1]
        tensors: dict[str, Tensor] = {}
        for name, progress in entries.items():
            tensors[f"{name}/theta"] = progress.theta.clone()
            numbers = [
                progress.loss,
                progress.damping,
                progress.growth,
                progress.iteration,
                progress.slow,
                progress.done,
            ]
            tensors[f"{name}/numbers"] = torch.tensor(numbers, dtype=torch.float64)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        metadata = {"training": json.dumps({"recipe": self._recipe, "seconds": self.seconds, "order": list(entries)})}
        try:
            save_file(tensors, str(temporary), metadata=metadata)
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """The run has ended: the record is no longer needed."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                entries = {
                    name: _progress(file.get_tensor(f"{name}/theta"), file.get_tensor(f"{name}/numbers"))
                    for name in header["order"]
                }
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header["recipe"] != self._recipe:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
        self._before = float(header["seconds"])
        for name, progress in entries.items():
            kind, _, key = name.partition("/")
            if kind == "finished":
                self._finished[key] = progress
            else:
                self._current = (key, progress)


def _progress(theta: Tensor, numbers: Tensor) -> Progress:
    loss, damping, growth, iteration, slow, done = numbers.tolist()
    return Progress(
        theta=theta,
        loss=loss,
        damping=damping,
        growth=growth,
        iteration=int(iteration),
        slow=int(slow),
        done=bool(done),
    )
