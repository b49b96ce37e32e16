"""The record of a training run: an interrupted run goes on where it stopped, and ends with the same weights.

A search is a fixed list of minimisations. Each one that has ended is stored under its name, and the one in progress
with everything ``minimise`` needs; a resumed search walks the same list and finds its finished parts here. One
safetensors file, replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError
from interp.models.training.levenberg_marquardt import Progress
from interp.models.training.recipe import Recipe

__all__ = ["Journal"]

SAVE_EVERY = 10.0  # seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class _Entry:
    """A minimisation, ended or not, and the time it has taken, in whichever process."""

    progress: Progress
    wall: float = 0.0
    cpu: float = 0.0


class Journal:
    """``path`` None keeps the record in memory only.

    Neither the name of the recipe nor its number of layers matters to the record: the search for a deep network
    contains the one for a shallow network, so networks of several depths can share a record.
    """

    def __init__(self, recipe: Recipe, path: Path | None) -> None:
        self.path = path
        fields = recipe.to_dict()
        del fields["name"], fields["model"]["layers"]
        self._recipe = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
        self._finished: dict[str, _Entry] = {}
        self._current: tuple[str, _Entry] | None = None
        self._used: dict[str, _Entry] = {}
        self._saved = time.monotonic()
        self._started = (time.monotonic(), time.process_time())
        self._inside = (0.0, 0.0)  # wall and CPU seconds that this process spent in minimisations
        if path is not None and path.exists():
            self._load(path)

    @property
    def iterations(self) -> int:
        """Iterations of all minimisations of this run; a continued one ("name+") includes those of its beginning."""
        return sum(entry.progress.iteration for name, entry in self._used.items() if f"{name}+" not in self._used)

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall and CPU time that this run has cost, whichever process did the work."""
        wall = sum(entry.wall for entry in self._used.values()) + time.monotonic() - self._started[0] - self._inside[0]
        cpu = sum(entry.cpu for entry in self._used.values()) + time.process_time() - self._started[1] - self._inside[1]
        return wall, cpu

    def run(
        self, name: str, start: Progress, minimise: Callable[[Progress, Callable[[Progress], None]], Progress]
    ) -> Progress:
        """``minimise`` from ``start``, unless the record already holds the end of it, or a later beginning."""
        if name not in self._finished:
            known = self._current is not None and self._current[0] == name
            before = self._current[1] if known and self._current is not None else _Entry(progress=start)
            began = (time.monotonic(), time.process_time())

            def entry(now: Progress) -> _Entry:
                wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
                return _Entry(progress=now, wall=before.wall + wall, cpu=before.cpu + cpu)

            def watch(now: Progress) -> None:
                self._current = (name, entry(now))
                if time.monotonic() - self._saved > SAVE_EVERY:
                    self.save()

            self._finished[name] = entry(minimise(before.progress, watch))
            self._current = None
            wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
            self._inside = (self._inside[0] + wall, self._inside[1] + cpu)
        self._used[name] = self._finished[name]
        return self._finished[name].progress

    def save(self) -> None:
        if self.path is None:
            return
        entries = {f"finished/{name}": entry for name, entry in self._finished.items()}
        if self._current is not None:
            entries[f"current/{self._current[0]}"] = self._current[1]
        tensors: dict[str, Tensor] = {}
        for name, entry in entries.items():
            tensors[f"{name}/theta"] = entry.progress.theta.clone()
            tensors[f"{name}/numbers"] = torch.tensor(_numbers(entry), dtype=torch.float64)
        metadata = {"training": json.dumps({"recipe": self._recipe, "order": list(entries)})}
        write_atomically(self.path, save(tensors, metadata=metadata))
        self._saved = time.monotonic()

    def remove(self) -> None:
        """The record is no longer needed."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                entries = {
                    name: _entry(file.get_tensor(f"{name}/theta"), file.get_tensor(f"{name}/numbers"))
                    for name in header["order"]
                }
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header["recipe"] != self._recipe:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
        for name, entry in entries.items():
            kind, _, key = name.partition("/")
            if kind == "finished":
                self._finished[key] = entry
            else:
                self._current = (key, entry)


def _numbers(entry: _Entry) -> list[float]:
    now = entry.progress
    return [*map(float, (now.loss, now.damping, now.growth, now.iteration, now.slow, now.done)), entry.wall, entry.cpu]


def _entry(theta: Tensor, numbers: Tensor) -> _Entry:
    loss, damping, growth, iteration, slow, done, wall, cpu = numbers.tolist()
    progress = Progress(
        theta=theta,
        loss=loss,
        damping=damping,
        growth=growth,
        iteration=int(iteration),
        slow=int(slow),
        done=bool(done),
    )
    return _Entry(progress=progress, wall=wall, cpu=cpu)
