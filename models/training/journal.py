"""The record of a training run: an interrupted run goes on where it stopped, and ends with the same weights.

A run is a fixed list of named parts. Each part that has ended is stored under its name, and the one in progress with
everything it needs to go on; a resumed run walks the same list and finds its finished parts here. One safetensors file,
replaced as a whole.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp.models.atomic import write_atomically
from interp.models.errors import UnreadableFile, UsageError
from interp.models.training.method import Step, Watch

__all__ = ["Journal", "Resumable"]

SAVE_EVERY = 10.0  # seconds


@runtime_checkable
class Resumable(Protocol):
    """A dataclass of tensors, tuples of tensors, and numbers: all that its part of a run needs to go on."""

    @property
    def iteration(self) -> int: ...

    @property
    def loss(self) -> float: ...


State = TypeVar("State", bound=Resumable)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Entry:
    """A part of the run, ended or not, and the time it has taken, in whichever process."""

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]
    wall: float = 0.0
    cpu: float = 0.0

    @staticmethod
    def of(state: Any, wall: float = 0.0, cpu: float = 0.0) -> _Entry:
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {}
        for name, value in _fields(state).items():
            if isinstance(value, Tensor):
                tensors[name] = value
            elif isinstance(value, tuple):
                tensors |= {f"{name}.{k}": item for k, item in enumerate(value)}
            else:
                numbers[name] = value
        return _Entry(tensors=tensors, numbers=numbers, wall=wall, cpu=cpu)

    def state(self, like: State) -> State:
        """As an object of the same class."""
        values = {}
        for name, value in _fields(like).items():
            if isinstance(value, Tensor):
                values[name] = self.tensors[name]
            elif isinstance(value, tuple):
                values[name] = tuple(self.tensors[f"{name}.{k}"] for k in range(len(value)))
            else:
                values[name] = self.numbers[name]
        return type(like)(**values)


def _fields(state: Any) -> dict[str, Any]:
    return {entry.name: getattr(state, entry.name) for entry in dataclasses.fields(state)}


class Journal:
    """``identity`` is what has to be the same in every run that goes on from the record; ``path`` None keeps it in
    memory only. ``watch`` sees a step of every state that is noted."""

    def __init__(self, identity: Mapping[str, Any], path: Path | None = None, watch: Watch = lambda step: None) -> None:
        self.path, self.watch = path, watch
        self._identity = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        self._finished: dict[str, _Entry] = {}
        self._current: tuple[str, _Entry] | None = None
        self._used: dict[str, _Entry] = {}
        self._saved = time.monotonic()
        self._started = (time.monotonic(), time.process_time())
        self._inside = (0.0, 0.0)  # wall and CPU seconds that this process spent in parts
        if path is not None and path.exists():
            self._load(path)

    @property
    def iterations(self) -> int:
        """Iterations of all parts of this run; a continued one ("name+") includes those of its beginning."""
        used = {name: entry.numbers.get("iteration", 0) for name, entry in self._used.items()}
        return sum(count for name, count in used.items() if f"{name}+" not in used)

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall and CPU time that this run has cost, whichever process did the work."""
        wall = sum(entry.wall for entry in self._used.values()) + time.monotonic() - self._started[0] - self._inside[0]
        cpu = sum(entry.cpu for entry in self._used.values()) + time.process_time() - self._started[1] - self._inside[1]
        return wall, cpu

    def run(
        self,
        name: str,
        start: State,
        work: Callable[[State, Callable[[State], None]], State],
        shown: Callable[[State], Step | None] | None = None,
    ) -> State:
        """``work(start, note)``, unless the record already holds the end of it, or a later beginning. States that the
        work notes must not change afterwards. ``shown``: what is to be seen of a state."""
        if name not in self._finished:
            resumed = self._current is not None and self._current[0] == name
            before = self._current[1] if resumed and self._current is not None else _Entry.of(start)
            began = (time.monotonic(), time.process_time())

            def entry(state: State) -> _Entry:
                wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
                return _Entry.of(state, before.wall + wall, before.cpu + cpu)

            def note(state: State) -> None:
                self._current = (name, entry(state))
                if time.monotonic() - self._saved > SAVE_EVERY:
                    self.save()
                step = Step(name=name, iteration=state.iteration, loss=state.loss) if shown is None else shown(state)
                if step is not None:
                    self.watch(step)

            self._finished[name] = entry(work(before.state(start), note))
            self._current = None
            spent = (time.monotonic() - began[0], time.process_time() - began[1])
            self._inside = (self._inside[0] + spent[0], self._inside[1] + spent[1])
        self._used[name] = self._finished[name]
        return self._finished[name].state(start)

    def save(self) -> None:
        if self.path is None:
            return
        entries = {f"finished/{name}": entry for name, entry in self._finished.items()}
        if self._current is not None:
            entries[f"current/{self._current[0]}"] = self._current[1]
        tensors = {
            f"{name}/{key}": value.detach().clone().contiguous()
            for name, entry in entries.items()
            for key, value in entry.tensors.items()
        }
        parts = {
            name: {"tensors": list(entry.tensors), "numbers": entry.numbers, "wall": entry.wall, "cpu": entry.cpu}
            for name, entry in entries.items()
        }
        header = json.dumps({"recipe": self._identity, "parts": parts})
        write_atomically(self.path, save(tensors, metadata={"training": header}))
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
                    name: _Entry(**{**part, "tensors": {k: file.get_tensor(f"{name}/{k}") for k in part["tensors"]}})
                    for name, part in header["parts"].items()
                }
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header.get("recipe") != self._identity:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
        for name, entry in entries.items():
            kind, _, key = name.partition("/")
            if kind == "finished":
                self._finished[key] = entry
            else:
                self._current = (key, entry)
