"""A reader of pickles that runs nothing: no name in the file is imported, no object of the file is built or called.

The standard library's ``pickletools`` takes the stream apart; this machine keeps plain values (numbers, text, lists,
dictionaries) and arrays (of numpy, jax and torch, described and not built). Whatever else a pickle would make by
importing and calling something becomes an ``Inert``, which remembers the name and the arguments.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, cast

from interp.checkpoints.stored import ITEM_SIZES, StoredArray, Stream, row_strides

__all__ = ["READ", "Damaged", "Global", "Inert", "Storage", "read_pickle"]

_STEP_LIMIT = 300_000
_KEY_LIMIT = 10_000  # characters

Persistent = Callable[[Any], Any]


class Damaged(ValueError):
    """A stream that is no pickle, or more than this reader takes on."""


@dataclass(frozen=True)
class Global:
    """A name that a pickle would import."""

    name: str


@dataclass(eq=False)
class Inert:
    """What a pickle would have made by calling ``name``: never imported, never called."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Storage:
    """A block of numbers in the file: of torch, or of the pickle itself."""

    dtype: str
    size: int  # bytes
    bytes_at: Callable[[int, int], bytes]
    swapped: bool = False


@dataclass(eq=False)
class _NumpyType:
    dtype: str
    swapped: bool = False


def read_pickle(file: Stream, persistent: Persistent | None = None) -> Any:
    """The value of the pickle at the file's position, which is left behind it. ``persistent`` finds what the pickle
    keeps elsewhere (torch's storages). Raises Damaged, and nothing else, for a stream that makes no sense."""
    machine = _Machine(persistent)
    try:
        for step, (code, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], file))):
            if step > _STEP_LIMIT:
                raise Damaged(f"the pickle has over {_STEP_LIMIT} steps")
            if code.name == "STOP":
                return machine.stack.pop()
            machine.run(code.name, argument)
    except Damaged:
        raise
    except Exception as error:  # a hostile stream can make the parser raise anything
        text = " ".join(str(error).split())[:200]
        raise Damaged(f"the pickle makes no sense: {text or type(error).__name__}") from error
    raise Damaged("the pickle has no end")


class _Machine:
    def __init__(self, persistent: Persistent | None) -> None:
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.persistent = persistent

    def run(self, name: str, argument: Any) -> None:
        """One step of the pickle."""
        if name in _IGNORED:
            return
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _MADE:
            self.stack.append(_MADE[name]())
        elif "GET" in name:
            self.stack.append(self.memo[int(argument)])
        elif name.endswith("PUT"):
            self.memo[int(argument)] = self.stack[-1]
        else:
            getattr(self, f"_{name.lower()}")(argument)

    def _push(self, value: Any) -> None:
        self.stack.append(value)  # after the value is known: finding it may have changed which stack is in use

    def _memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _mark(self, _: Any) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def _since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def _taken(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise Damaged("the pickle takes more from its stack than there is")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return items

    def _pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._since_mark()

    def _pop_mark(self, _: Any) -> None:
        self._since_mark()

    def _dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def _list(self, _: Any) -> None:
        self._push(self._since_mark())

    def _tuple(self, _: Any) -> None:
        self._push(tuple(self._since_mark()))

    def _frozenset(self, _: Any) -> None:
        self._push(self._since_mark())  # a set's members are of no interest beyond being listed

    def _tuple1(self, _: Any) -> None:
        self.stack.append(tuple(self._taken(1)))

    def _tuple2(self, _: Any) -> None:
        self.stack.append(tuple(self._taken(2)))

    def _tuple3(self, _: Any) -> None:
        self.stack.append(tuple(self._taken(3)))

    def _dict(self, _: Any) -> None:
        made: dict[Any, Any] = {}
        _set_items(made, self._since_mark())
        self.stack.append(made)

    def _append(self, _: Any) -> None:
        self._extend(self._taken(1))

    def _appends(self, _: Any) -> None:
        self._extend(self._since_mark())

    _additems = _appends

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, (list, Inert)):
            (target if isinstance(target, list) else target.items).extend(items)

    def _setitem(self, _: Any) -> None:
        items = self._taken(2)
        _set_items(self.stack[-1], items)

    def _setitems(self, _: Any) -> None:
        items = self._since_mark()
        _set_items(self.stack[-1], items)

    def _global(self, argument: str) -> None:
        self.stack.append(Global(".".join(argument.split(" ", 1))))

    def _stack_global(self, _: Any) -> None:
        module, name = self._taken(2)
        self.stack.append(Global(f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "?"))

    def _inst(self, argument: str) -> None:
        self._push(_called(Global(".".join(argument.split(" ", 1))), tuple(self._since_mark())))

    def _obj(self, _: Any) -> None:
        kind, *arguments = self._since_mark()
        self.stack.append(_called(kind, tuple(arguments)))

    def _reduce(self, _: Any) -> None:
        function, arguments = self._taken(2)
        self.stack.append(_called(function, arguments if isinstance(arguments, tuple) else ()))

    _newobj = _reduce

    def _newobj_ex(self, _: Any) -> None:
        kind, arguments, named = self._taken(3)
        self.stack.append(_called(kind, (*arguments, named) if isinstance(arguments, tuple) else ()))

    def _build(self, _: Any) -> None:
        (state,) = self._taken(1)
        target = self.stack[-1]
        if isinstance(target, Inert):
            target.state = state
        elif isinstance(target, StoredArray) and target.bytes_at is None:
            _fill_numpy(target, state)
        elif isinstance(target, _NumpyType) and isinstance(state, tuple) and len(state) > 1:
            target.swapped = state[1] == ">"

    def _ext1(self, argument: Any) -> None:
        self.stack.append(Global(f"extension {argument}"))

    _ext2 = _ext4 = _ext1

    def _persid(self, argument: Any) -> None:
        if self.persistent is None:
            raise Damaged("the pickle keeps a part of itself in another place")
        self.stack.append(self.persistent(argument))

    def _binpersid(self, _: Any) -> None:
        self._persid(self._taken(1)[0])


_IGNORED = frozenset({"PROTO", "FRAME"})
_VALUES = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
})  # fmt: skip
_MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": list,
}  # fmt: skip


def _set_items(target: Any, items: list[Any]) -> None:
    entries = target.entries if isinstance(target, Inert) else target
    if isinstance(entries, dict):
        entries.update((_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))


def _key(key: Any) -> Any:
    """A key that is quick and safe to hash; of others (deep tuples, stand-ins) what they are in words."""
    if isinstance(key, (str, bytes)):
        return key[:_KEY_LIMIT]
    if (isinstance(key, int) and abs(key) < 2**64) or isinstance(key, float) or key is None:
        return key
    if isinstance(key, tuple) and len(key) < 10 and all(isinstance(part, (str, int)) for part in key):
        return "_".join(str(part)[:_KEY_LIMIT] for part in key if isinstance(part, str) or abs(part) < 2**64)
    return f"<{type(key).__name__}>"


# what is read although a pickle says it as a call -------------------------------------------------------------------


def _called(function: Any, arguments: tuple[Any, ...]) -> Any:
    if not isinstance(function, Global):
        return Inert(f"a call of {type(function).__name__}", arguments)
    reader = READ.get(function.name) or READ.get(function.name.rpartition(".")[2])
    if reader is not None:
        try:
            made = reader(*arguments)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError):
            made = None  # not what numpy or torch would have written
        if made is not None:
            return made
    name = function.name
    if name in ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__") and arguments:
        name = getattr(arguments[0], "name", name)
        arguments = arguments[1:]
    return Inert(name, arguments)


def _mapping(*arguments: Any) -> dict[Any, Any] | None:
    """OrderedDict, defaultdict, Counter: empty, of a mapping, or of pairs."""
    made: dict[Any, Any] = {}
    for argument in arguments:
        if isinstance(argument, dict):
            made.update(argument)
        elif isinstance(argument, list):
            _set_items(made, [part for pair in argument for part in pair])
    return made


def _encoded(text: str, encoding: str) -> bytes | None:
    return text.encode("latin-1") if encoding.replace("-", "").replace("_", "") == "latin1" else None


def _numpy_type(name: Any, *_: Any) -> _NumpyType | None:
    """numpy.dtype("f4", False, True), or of a type such as ml_dtypes.bfloat16."""
    import numpy as np

    if isinstance(name, Global):
        return _NumpyType(name.name.rpartition(".")[2])
    if not isinstance(name, str):
        return None
    if name in ("bfloat16", "O", "O8"):
        return _NumpyType(name if name == "bfloat16" else "object")
    known = np.dtype(name) if re.fullmatch(r"[<>=|]?[?biufcSUV]\d{0,3}", name) else None
    if known is None:
        return None
    return _NumpyType(known.name, swapped=known.str.startswith(">"))


def _empty_array(kind: Any, *_: Any) -> StoredArray | None:
    """numpy's _reconstruct(ndarray, (0,), b"b"): an array whose state follows. Of ndarrays alone."""
    return StoredArray() if isinstance(kind, Global) and kind.name.startswith("numpy") else None


def _fill_numpy(array: StoredArray, state: Any) -> None:
    if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _NumpyType):
        return
    _, shape, dtype, columns_first, data = state
    if isinstance(data, list):
        array.dtype, array.members = "Python objects", data
        return
    _describe(array, data, dtype, shape, bool(columns_first))


def _describe(array: StoredArray, data: Any, dtype: _NumpyType, shape: Any, columns_first: bool) -> None:
    content = data.encode("latin-1") if isinstance(data, str) else bytes(data)
    if not isinstance(shape, tuple) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise Damaged("a numpy array has a shape that is none")
    array.shape, array.dtype, array.swapped = shape, dtype.dtype, dtype.swapped
    if dtype.dtype in ITEM_SIZES:
        array.strides, array.size = row_strides(shape, columns_first), len(content)
        array.bytes_at = lambda start, stop: content[start:stop]


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any) -> StoredArray | None:
    """numpy's _frombuffer(data, dtype, shape, order), of protocol 5."""
    array = StoredArray()
    _describe(array, data, dtype, shape, order == "F")
    return array


def _jax_array(function: Any, arguments: Any, state: Any, *_: Any) -> StoredArray | None:
    """jax's arrays say how numpy would make one: _reconstruct_array(_reconstruct, arguments, state, kind)."""
    if not isinstance(function, Global):
        return None
    array = _called(function, arguments)
    if isinstance(array, StoredArray) and array.bytes_at is None:
        _fill_numpy(array, state)
    return array if isinstance(array, StoredArray) else None


def _torch_tensor(storage: Storage, offset: int, shape: Any, strides: Any, *rest: Any) -> StoredArray | None:
    """torch's _rebuild_tensor_v2 and _v3: a view of a storage; v3 states the dtype of its numbers apart."""
    stated = next((part.name.removeprefix("torch.") for part in rest if isinstance(part, Global)), storage.dtype)
    array = StoredArray(shape=tuple(shape), dtype=stated, strides=tuple(strides), offset=offset)
    if stated in ITEM_SIZES:
        array.size, array.bytes_at, array.swapped = storage.size, storage.bytes_at, storage.swapped
    return array


def _listed(what: str, shape: Any) -> StoredArray:
    """A tensor that is shown and never read as numbers."""
    sizes = shape if isinstance(shape, tuple) else ()
    return StoredArray(shape=tuple(n for n in sizes if type(n) is int and 0 <= n < 2**63), dtype=what)


def _nested(buffer: Any, *_: Any) -> StoredArray:
    return _listed(f"nested {getattr(buffer, 'dtype', 'tensor')}", getattr(buffer, "shape", ()))


def _quantised(storage: Any, offset: Any, shape: Any, *_: Any) -> StoredArray:
    return _listed(f"quantised {getattr(storage, 'dtype', 'tensor')}", shape)


def _sparse(layout: Any, data: Any, *_: Any) -> StoredArray:
    values = [part for part in data if isinstance(part, StoredArray)]
    sizes = next((part for part in data if isinstance(part, tuple)), ())
    return _listed(f"sparse {values[-1].dtype if values else 'tensor'}", sizes)


def _without_data(dtype: Any, shape: Any, *_: Any) -> StoredArray:
    return _listed(f"{getattr(dtype, 'name', 'tensor').removeprefix('torch.')} without data", shape)


def _subclass(function: Any, kind: Any, arguments: Any, *_: Any) -> Any:
    """torch's _rebuild_from_type_v2: a tensor of a class of its own is read as the tensor that it is."""
    return _called(function, arguments)


def _numpy_scalar(dtype: Any, data: Any = b"", *_: Any) -> StoredArray:
    array = StoredArray()
    _describe(array, data, dtype, (), False)
    return array


def _first(value: Any, *_: Any) -> Any:
    return value


READ: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("collections.OrderedDict", "collections.Counter", "collections.defaultdict"), _mapping),
    **dict.fromkeys(("builtins.dict", "__builtin__.dict"), _mapping),
    "_codecs.encode": _encoded,
    "numpy.dtype": _numpy_type,
    **dict.fromkeys(("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"), _empty_array),
    **dict.fromkeys(("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"), _from_buffer),
    **dict.fromkeys(("_reconstruct_array", "reconstruct_device_array"), _jax_array),  # in several modules of jax
    **dict.fromkeys(("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"), _torch_tensor),
    "torch._utils._rebuild_tensor_v3": _torch_tensor,
    **dict.fromkeys(("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"), _first),
    **dict.fromkeys(("torch._tensor._rebuild_from_type_v2", "torch._tensor._rebuild_from_type"), _subclass),
    "torch.nn.parameter.Parameter": _first,
    "torch.Size": _first,
    **dict.fromkeys(("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"), _numpy_scalar),
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch._utils._rebuild_qtensor": _quantised,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_meta_tensor_no_storage": _without_data,
    "torch._utils._rebuild_device_tensor_from_numpy": _first,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _first,
}  # fmt: skip
