"""The canonical checkpoint, version 1: a safetensors file with tensors Q and P and one JSON string of metadata.

``__metadata__["interp"]`` holds {"format": "interp-linear-transformer", "version": 1, "tokens": …, "attention": …,
"residual": …, "clip": …, "readout": …, "task": …, "provenance": …}, the fields of ``ModelSpec``. Q and P are
(layers, heads, D, D) in float16, bfloat16, float32 or float64, and come back bit for bit. Fields that say of an
embedding, LayerNorm or a flat read-out ask for further tensors of the same dtype (``ModelSpec.tensors``). "loops": k
says that the stored layers, as a sequence, are run k times; without it they are run once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from interp.checkpoints.arrays import FLOATS, ArrayFile
from interp.checkpoints.scanning import scan
from interp.errors import LayoutError, UsageError
from interp.models.atomic import write_atomically
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer, check_shapes

__all__ = ["FORMAT", "VERSION", "CanonicalHeader", "canonical_header", "read_header", "write_checkpoint"]

FORMAT = "interp-linear-transformer"
VERSION = 1
_KEY = "interp"


@dataclass(frozen=True, kw_only=True)
class CanonicalHeader:
    """A canonical checkpoint before its weights are read."""

    arrays: ArrayFile
    spec: ModelSpec
    dtype: str
    shape: tuple[int, int, int, int]  # of Q and of P: (layers, heads, D, D)

    def load(self) -> LinearTransformer:
        """The model, in the dtype of the file."""
        found = self.arrays.load(("Q", "P", *self.spec.tensors(self.shape[0])))
        return LinearTransformer.unrolled(self.spec, found)


def write_checkpoint(model: LinearTransformer, path: str | os.PathLike[str]) -> None:
    """Write a model as a canonical checkpoint, atomically; equal models give equal bytes.

    Raises LayoutError for a dtype outside the format, UsageError for a task or provenance that JSON cannot hold and
    for a place that cannot be written.
    """
    _check_dtypes({name: str(value.dtype).removeprefix("torch.") for name, value in model.named()}, where="the model")
    try:
        fields = json.dumps(
            {"format": FORMAT, "version": VERSION, **model.spec.to_dict()},
            sort_keys=True, allow_nan=False,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise UsageError(f"the task or provenance of the model cannot be written as JSON: {error}") from error
    from safetensors.torch import save

    # Clones: safetensors refuses tensors that share memory, as Q and P of a symmetric construction may.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in sorted(model.stored())}
    write_atomically(path, save(tensors, metadata={_KEY: fields}))


def read_header(path: str | os.PathLike[str]) -> CanonicalHeader:
    """The header of a canonical checkpoint; no weights are read.

    Raises UnreadableFile for a damaged file and LayoutError for one that is not canonical or contradicts itself.
    """
    arrays = scan(path)
    header = canonical_header(arrays)
    if header is None:
        raise LayoutError(
            f"{path} is not a canonical checkpoint: it has no metadata {_KEY!r}; it holds {arrays.seen()}"
        )
    return header


def canonical_header(arrays: ArrayFile) -> CanonicalHeader | None:
    """The canonical header of a scanned file, or None when the file does not claim to be canonical."""
    if _KEY not in arrays.metadata:
        return None
    path = arrays.path
    try:
        fields = json.loads(arrays.metadata[_KEY])
    except (ValueError, RecursionError) as error:
        raise LayoutError(f"the metadata {_KEY!r} of {path} is not JSON: {error}") from error
    if not isinstance(fields, Mapping) or fields.get("format") != FORMAT:
        found = fields.get("format") if isinstance(fields, Mapping) else fields
        raise LayoutError(f"the metadata {_KEY!r} of {path} has format {found!r}, expected {FORMAT!r}")
    version = fields.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise LayoutError(f"{path} has version {version!r}, expected {VERSION}")
    if version > VERSION:
        raise LayoutError(
            f"{path} is a canonical checkpoint of version {version}, expected at most {VERSION}; "
            "a newer interp-probe reads it"
        )
    with _of_file(path):
        spec = ModelSpec.from_dict({key: fields[key] for key in fields if key not in ("format", "version")})
    expected = {"Q", "P", *spec.tensors(1)}
    missing, unknown = expected - set(arrays.arrays), set(arrays.arrays) - expected
    if missing or unknown:
        wanted = ", ".join(sorted(expected - {"Q", "P"}))
        raise LayoutError(
            f"{path} holds {arrays.seen()}, expected "
            + (f"Q, P, {wanted}, which its fields ask for," if wanted else "Q and P alone")
            + f" in a canonical checkpoint of version {VERSION}"
            + ("; a newer interp-probe may know the others" if not missing else "")
        )
    _check_dtypes({name: arrays.arrays[name].dtype for name in ("Q", "P", *sorted(expected - {"Q", "P"}))}, where=path)
    with _of_file(path):
        check_shapes(spec, {name: info.shape for name, info in arrays.arrays.items()})
    layers, heads, D, _ = arrays.arrays["Q"].shape
    return CanonicalHeader(arrays=arrays, spec=spec, dtype=arrays.arrays["Q"].dtype, shape=(layers, heads, D, D))


@contextmanager
def _of_file(path: os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from error


def _check_dtypes(dtypes: Mapping[str, str], *, where: object) -> None:
    if len(set(dtypes.values())) > 1 or dtypes["Q"] not in FLOATS:
        found = " and ".join(f"{name} in {dtype}" for name, dtype in dtypes.items())
        raise LayoutError(
            f"{where} has {found}, expected {'both' if len(dtypes) == 2 else 'all'} in one of {', '.join(FLOATS)}"
        )
