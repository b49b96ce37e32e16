"""Opening a checkpoint: a path or ``zoo:NAME``, canonical or foreign, becomes a model and how it was read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from interp.checkpoints.arrays import ArrayFile, file_sha256
from interp.checkpoints.canonical import CanonicalHeader, canonical_header
from interp.checkpoints.importing import Import, Layout, detect, read_description, task_fields
from interp.checkpoints.locating import locate
from interp.checkpoints.reading import Described, Reading, Verified
from interp.checkpoints.scanning import scan
from interp.checkpoints.slips import Slip, slips
from interp.checkpoints.unused import Doubt, Unused, biases_of_size, contradictions, refuse, unused_arrays
from interp.errors import LayoutError, visible
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

__all__ = ["Checkpoint", "Inspection", "inspect_checkpoint", "open_checkpoint"]

NOTE_LIMIT = 2000  # characters


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A model and where it came from. Its weights may hold NaN: analyses call ``model.require_finite()``."""

    model: LinearTransformer  # in the file's own dtype, unless the notes say otherwise
    name: str  # file name or zoo:NAME
    sha256: str  # of the file's bytes
    layout: str  # "canonical", the name of a built-in layout, or "spec file"
    dtype: str  # of the file
    notes: tuple[str, ...]  # what was unwrapped, assumed, converted or overridden
    read_by: str | None = None  # of --spec: the SHA-256 of the file, or the name of a built-in layout
    unused: tuple[Unused, ...] = ()  # arrays of the file that are no part of the model
    verified: Verified | None = None  # against the network's own outputs
    source: Import | None = None  # of a foreign file

    def slips(self) -> Iterator[Slip]:
        """The readings of the file that are one slip away."""
        return slips(self.model, () if self.source is None else self.source.head_layouts())


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What the header of a file says. If it makes no model, ``problem`` says why and the model's fields are None."""

    name: str
    sha256: str
    size: int  # bytes
    format: str  # "safetensors", "npy", "npz" or "torch"
    arrays: tuple[tuple[str, tuple[int, ...], str], ...]  # name, shape, dtype
    layout: str | None = None
    problem: str | None = None
    dtype: str | None = None
    layers: int | None = None  # of all passes
    heads: int | None = None
    spec: ModelSpec | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[Unused, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of ``interp-probe inspect --json``."""
        arrays = [{"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in self.arrays]
        own = dict(vars(self))
        spec, notes, unused = own.pop("spec"), own.pop("notes"), own.pop("unused")
        left = [{"name": entry.name, "looks_like": entry.looks_like, "misread": entry.misread} for entry in unused]
        model = None if spec is None else spec.to_dict()
        fields = {**own, "arrays": arrays, "model": model, "notes": list(notes), "unused": left}
        return {"schema": "interp-probe-inspect/1", **fields}


def open_checkpoint(reference: str | os.PathLike[str], spec: Described = None) -> Checkpoint:
    """Read a checkpoint. ``spec`` is a TOML description of a foreign file or the name of a built-in layout; one that
    holds ``[task]`` alone sets the task, also of a canonical file. A ``Reading`` also says what may be left out.

    Raises UnreadableFile (damaged or unsafe), LayoutError (not known what the tensors mean, or a part of the network
    would be left out), UsageError (no such zoo model or description), CheckFailed (the network's own outputs are
    others).
    """
    name, path = locate(reference)
    reading = Reading.of(spec)
    found = _identify(scan(path), reading.spec)
    arrays = found.arrays
    biases = biases_of_size(arrays, found.unused, found.used)
    refuse(visible(str(path), 300), (*(u for u in found.unused if u.misread), *biases, *found.doubts), reading.ignore)
    model, notes = found.load()
    opened = Checkpoint(
        model=model,
        name=name,
        sha256=arrays.sha256(),
        layout=found.layout,
        dtype=found.source.dtype,
        notes=tuple(visible(note, NOTE_LIMIT) for note in (*arrays.notes, *found.notes, *notes)),
        read_by=file_sha256(reading.spec) if reading.spec and Path(reading.spec).exists() else reading.spec,
        unused=found.unused,
        source=found.source if isinstance(found.source, Import) else None,
    )
    if reading.verify is None:
        return opened
    from interp.checkpoints.verification import read_pairs, verify  # imports torch

    verified = verify(read_pairs(reading.verify, model), model, found.source.dtype, opened.slips())
    return replace(opened, verified=verified, notes=(*opened.notes, verified.words))


def inspect_checkpoint(reference: str | os.PathLike[str], spec: Described = None) -> Inspection:
    """Read the header of a checkpoint and say what it holds; no weights are read and nothing is run.

    A file whose layout is not known, or contradicts itself, is described all the same, with the ``problem``. Raises
    what ``open_checkpoint`` raises for a file that cannot be read, and for a ``spec`` that cannot.
    """
    name, path = locate(reference)
    arrays, reading = scan(path), Reading.of(spec)
    found, problem = None, None
    try:
        found = _identify(arrays, reading.spec)
    except LayoutError as error:
        if reading.spec is not None:
            raise
        problem = str(error)
    arrays = arrays if found is None else found.arrays
    header = Inspection(
        name=name,
        sha256=arrays.sha256(),
        size=arrays.size,
        format=arrays.format,
        arrays=tuple((key, info.shape, info.dtype) for key, info in arrays.arrays.items()),
        problem=problem,
        notes=arrays.notes,
    )
    if found is None:
        return header
    layers, heads = found.spec.loops * found.source.shape[0], found.source.shape[1]
    try:
        refuse(name, (*(u for u in found.unused if u.misread), *found.doubts), reading.ignore)
    except LayoutError as error:
        problem = str(error)
    return replace(
        header,
        layout=found.layout,
        problem=problem,
        dtype=found.source.dtype,
        layers=layers,
        heads=heads,
        spec=found.spec,
        notes=tuple(visible(note, NOTE_LIMIT) for note in (*arrays.notes, *found.notes)),
        unused=found.unused,
    )


@dataclass(frozen=True, kw_only=True)
class _Identified:
    """What a file is, its weights still unread."""

    source: CanonicalHeader | Import
    layout: str
    spec: ModelSpec
    told: tuple[str, ...]

    @property
    def arrays(self) -> ArrayFile:
        """The file, under the naming that the description fits."""
        return self.source.arrays

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(self.arrays.arrays) if isinstance(self.source, CanonicalHeader) else self.source.used

    @cached_property
    def unused(self) -> tuple[Unused, ...]:
        return unused_arrays(self.arrays, self.used)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What a file that does not state its own layout says against the reading."""
        if isinstance(self.source, CanonicalHeader):
            return ()
        layers, heads = self.source.shape[:2]
        return contradictions(self.arrays.said, self.spec, layers, heads, self.arrays.everything)

    @property
    def notes(self) -> tuple[str, ...]:
        words = [entry.words for entry in self.unused]
        more = f" and {len(words) - 12} more" if len(words) > 12 else ""
        return (*self.told, f"not used: {', '.join(words[:12])}{more}") if words else self.told

    def load(self) -> tuple[LinearTransformer, tuple[str, ...]]:
        loaded = self.source.load()
        model, notes = (loaded, ()) if isinstance(loaded, LinearTransformer) else loaded
        return replace(model, spec=self.spec), notes


def _identify(arrays: ArrayFile, spec: str | None) -> _Identified:
    description = None if spec is None else read_description(spec)
    canonical = canonical_header(arrays)
    notes = []
    if canonical is not None:
        if isinstance(description, Layout):
            raise LayoutError(
                f"{arrays.path} is canonical and states its own layout, but {spec} describes how to make Q and P; "
                "a --spec for it may hold [task] alone"
            )
        source, layout = canonical, "canonical"
    elif isinstance(description, Layout):
        source, layout = _in_some_form(arrays, lambda form: Import.bind(description, form)), description.name
    else:
        source = _in_some_form(arrays, lambda form: Import.bind(detect(form), form))
        layout = source.layout.name
        notes.append(
            f"assumed from the tensors' names and shapes: the built-in layout {layout!r} ({source.layout.description}) "
            "and its task; --spec FILE.toml says otherwise"
        )
    model_spec = source.spec
    if isinstance(description, Mapping):
        model_spec = replace(model_spec, task=task_fields(description, model_spec.width))
        notes.append(f"the task is that of {spec}" + ("" if source.spec.task is None else ", not the file's own"))
    if model_spec.loops > 1:
        stored, loops = source.shape[0], model_spec.loops
        layers = f"{stored} stored layer{'s' * (stored > 1)}"
        notes.append(f"looped: {layers}, run {loops} times, shown as {loops * stored} layers")
    return _Identified(source=source, layout=layout, spec=model_spec, told=tuple(notes))


def _in_some_form(arrays: ArrayFile, bound: Callable[[ArrayFile], Import]) -> Import:
    """The first naming of the file's arrays, its own before the shorter ones, that a description fits.

    Raises the LayoutError of the shortest, which also says how it came about."""
    for form in arrays.forms()[:-1]:
        with suppress(LayoutError):
            return bound(form)
    try:
        return bound(arrays)
    except LayoutError as error:
        dropped = "; ".join(arrays.naming.notes)
        if re.search(r"-\d+-of-\d+\.", arrays.path.name):
            dropped = "this is one file of several; give their index, ….index.json"
        raise LayoutError(f"{error} ({dropped})" if dropped else str(error)) from error
