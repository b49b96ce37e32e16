"""Safe hook points: a hook gets a copy, may only hand back a tensor like the one it got, and is counted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor
from transformer_lens.hook_points import HookPoint, LensHandle

from interp.errors import UsageError, did_you_mean

__all__ = ["ActivationCache", "CheckedHookPoint", "CountedHook", "Direction", "Hook", "discard", "require_hook"]

Hook = Callable[..., Any]  # fn(tensor, *, hook) -> a tensor or None
Direction = Literal["fwd", "bwd"]


class CheckedHookPoint(HookPoint):
    """A hook point whose hooks get a copy each, and may only hand back a tensor like the one they got."""

    def add_hook(
        self,
        hook: Hook,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
        alias_names: list[str] | None = None,
    ) -> LensHandle:
        function, where = hook, str(self.name)
        require_hook(where, function)

        def checked(tensor: Tensor, *, hook: HookPoint) -> Tensor:
            own = tensor.clone()
            returned = function(own, hook=hook)
            value = own if returned is None else returned  # an edit in place counts, too
            if not isinstance(value, Tensor):
                raise UsageError(f"the hook on {where!r} returned {type(value).__name__}, expected a tensor or None")
            if (value.shape, value.dtype, value.device) != (tensor.shape, tensor.dtype, tensor.device):
                raise UsageError(f"the hook on {where!r} gave {_kind(value)}; expected {_kind(tensor)}, as it received")
            return value

        handle = super().add_hook(checked, dir, is_permanent, level, prepend, alias_names)
        handle.user_hook = function
        return handle

    def remove_hooks(
        self, dir: Literal["fwd", "bwd", "both"] = "fwd", including_permanent: bool = False, level: int | None = None
    ) -> None:
        """As in the base class, but without a level, hooks that belong to an open context are left to that context."""
        if level is not None:
            super().remove_hooks(dir, including_permanent, level)
            return
        handles = (self.fwd_hooks if dir != "bwd" else []) + (self.bwd_hooks if dir != "fwd" else [])
        for handle in handles:
            if handle.context_level is None and (including_permanent or not handle.is_permanent):
                discard(self, handle)


class CountedHook:
    """A hook that knows how often it ran."""

    def __init__(self, function: Hook) -> None:
        self.function, self.calls = function, 0

    def __call__(self, tensor: Tensor, *, hook: HookPoint) -> object:
        self.calls += 1
        return self.function(tensor, hook=hook)


class ActivationCache(dict[str, Tensor]):
    """Activations by hook name; asking for one that is not there says why."""

    def __init__(self, known: dict[str, HookPoint]) -> None:
        super().__init__()
        self.known = list(known)

    def __missing__(self, name: str) -> Tensor:
        if name in self.known:
            raise UsageError(f"{name!r} is not in the cache, because names_filter left it out; it has {list(self)}")
        raise UsageError(f"no hook point is named {name!r}; {did_you_mean(str(name), self.known)}")


def discard(point: HookPoint, handle: LensHandle) -> None:
    """Remove one hook; nothing happens when it is gone already."""
    handle.hook.remove()
    point.fwd_hooks = [other for other in point.fwd_hooks if other is not handle]
    point.bwd_hooks = [other for other in point.bwd_hooks if other is not handle]


def _kind(value: Tensor) -> str:
    return f"a tensor of shape {tuple(value.shape)}, dtype {value.dtype} on {value.device}"


def require_hook(where: str, hook: object) -> None:
    """Raises UsageError for what cannot be called as ``hook(tensor, hook=point)``."""
    if not callable(hook):
        raise UsageError(f"the hook on {where!r} is {hook!r}, expected a function fn(tensor, *, hook)")
    try:
        signature = inspect.signature(hook)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(None, hook=None)
    except TypeError as error:
        raise UsageError(
            f"the hook on {where!r} takes {signature} ({error}), expected fn(tensor, *, hook): "
            f"it is called with the tensor and the keyword 'hook'"
        ) from None
