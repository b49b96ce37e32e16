"""The record of a training run: an interrupted run goes on where it stopped, and ends with the same weights.

A run is a fixed list of named parts. Each part that has ended is stored under its name, and the one in progress with
everything it needs to go on; a resumed run walks the same list and finds its finished parts here. One safetensors file,
replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interp.errors import UnreadableFile, UsageError
from interp.models.atomic import write_atomically
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


@dataclass(frozen=True, eq=False)
class _Entry:
    """A part of the run, ended or not: its state by the names of tensors and numbers, and the wall and CPU seconds it
    has taken, in whichever process."""

    state: Mapping[str, Any]
    spent: Float[np.ndarray, " 2"]

    @classmethod
    def of(cls, state: Resumable, spent: Float[np.ndarray, " 2"]) -> _Entry:
        named: dict[str, Any] = {}
        for name, value in vars(state).items():
            named |= {f"{name}.{k}": v for k, v in enumerate(value)} if isinstance(value, tuple) else {name: value}
        return cls(named, spent)

    def like(self, example: State) -> State:
        """The state, as an object of the same class."""
        values = {
            name: tuple(self.state[f"{name}.{k}"] for k in range(len(value)))
            if isinstance(value, tuple)
            else self.state[name]
            for name, value in vars(example).items()
        }
        return type(example)(**values)


def _clock() -> Float[np.ndarray, " 2"]:
    return np.array([time.monotonic(), time.process_time()])


class Journal:
    """``identity`` is what has to be the same in every run that goes on from the record; ``path`` None keeps it in
    memory only. ``watch`` sees a step of every state that is noted."""

    def __init__(self, identity: Mapping[str, Any], path: Path | None = None, watch: Watch = lambda step: None) -> None:
        self.path, self.watch = path, watch
        self._identity = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        self._finished: dict[str, _Entry] = {}
        self._current: dict[str, _Entry] = {}  # the part in progress, if there is one
        self._used: dict[str, _Entry] = {}
        self._saved = time.monotonic()
        self._started, self._inside = _clock(), np.zeros(2)  # ``_inside`` the parts that this process has done
        if path is not None and path.exists():
            self._load(path)

    @property
    def iterations(self) -> int:
        """Iterations of all parts of this run; a continued one ("name+") includes those of its beginning."""
        used = {name: entry.state["iteration"] for name, entry in self._used.items()}
        return sum(count for name, count in used.items() if f"{name}+" not in used)

    @property
    def seconds(self) -> tuple[float, float]:
        """Wall and CPU time that this run has cost, whichever process did the work."""
        wall, cpu = sum((entry.spent for entry in self._used.values()), _clock() - self._started - self._inside)
        return float(wall), float(cpu)

    def run(self, name: str, start: State, work: Callable[[State, Callable[[State], None]], State]) -> State:
        """``work(start, note)``, unless the record already holds the end of it, or a later beginning. States that the
        work notes must not change afterwards."""
        if name not in self._finished:
            before = self._current.get(name, _Entry.of(start, np.zeros(2)))
            began = _clock()

            def note(state: State) -> None:
                self._current = {name: _Entry.of(state, before.spent + _clock() - began)}
                if time.monotonic() - self._saved > SAVE_EVERY:
                    self.save()
                self.watch(Step(name=name, iteration=state.iteration, loss=state.loss, state=state))

            end = work(before.like(start), note)
            spent = _clock() - began
            self._finished[name], self._current = _Entry.of(end, before.spent + spent), {}
            self._inside += spent
        self._used[name] = self._finished[name]
        return self._finished[name].like(start)

    def save(self) -> None:
        if self.path is None:
            return
        tensors: dict[str, Tensor] = {}
        header: dict[str, Any] = {"recipe": self._identity, "finished": {}, "current": {}}
        for kind, entries in (("finished", self._finished), ("current", self._current)):
            for name, entry in entries.items():
                held = {key: value for key, value in entry.state.items() if isinstance(value, Tensor)}
                tensors |= {f"{name}/{key}": value.detach().clone().contiguous() for key, value in held.items()}
                numbers = {key: value for key, value in entry.state.items() if key not in held}
                header[kind][name] = {"tensors": list(held), "numbers": numbers, "spent": entry.spent.tolist()}
        write_atomically(self.path, save(tensors, metadata={"training": json.dumps(header)}))
        self._saved = time.monotonic()

    def remove(self) -> None:
        """The record is no longer needed."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        try:
            with safe_open(str(path), framework="pt") as file:
                header = json.loads((file.metadata() or {})["training"])
                for kind, entries in (("finished", self._finished), ("current", self._current)):
                    for name, part in header[kind].items():
                        held = {key: file.get_tensor(f"{name}/{key}") for key in part["tensors"]}
                        entries[name] = _Entry({**held, **part["numbers"]}, np.array(part["spent"]))
        except (OSError, SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise UnreadableFile(
                f"{path} is not a training record ({error}); delete it to train from the start"
            ) from None
        if header.get("recipe") != self._identity:
            raise UsageError(f"{path} records the training of another recipe or seed; delete it, or give another --out")
