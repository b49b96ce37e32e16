"""The names of a file's arrays: the file's own, and the shorter ones that training code wraps them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from interp.checkpoints.trees import Way
from interp.errors import visible

__all__ = ["Naming", "namings"]

# Entries of training checkpoints that hold the model, in order of preference.
WRAPPERS = (
    "model_state_dict", "state_dict", "model_state", "model", "module", "network", "net", "params", "weights",
    "ema_state_dict", "ema", "hist_dict", "target", "state",
)  # fmt: skip
# Left in front of names and within them by DataParallel, torch.compile, DeepSpeed and FSDP; trainers leave others.
WITHIN = ("module.", "_orig_mod.", "_forward_module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
PREFIXES = (*WITHIN, *(f"{wrapper}." for wrapper in WRAPPERS if wrapper != "module"))


@dataclass(frozen=True)
class Naming:
    """``names``: by the name in use, the file's own. ``notes`` say what was dropped."""

    names: Mapping[str, str]
    notes: tuple[str, ...] = ()


def namings(arrays: Mapping[Way, bool], beside: Mapping[str, str]) -> tuple[Naming, ...]:
    """The namings of a file, its own first, each shorter than the one before.

    ``arrays``: by way, whether it is one of weights, that is of fractions with an axis; counters beside the weights do
    not decide what is a wrapper or a prefix. ``beside``: the names of what is no array.
    """
    current = {way: ".".join(way) for way in arrays}
    weights = {way for way, counts in arrays.items() if counts}
    found = [Naming({name: name for name in current.values()})]
    keys = {way[0] for way in current} | {name.partition(".")[0] for name in beside}
    while (wrapper := _wrapper(weights)) is not None:
        listed = sorted(visible(key, 40) for key in keys)
        beside_it = ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "")
        weights = {way[1:] for way in weights if way[0] == wrapper and len(way) > 1}
        current = {way[1:]: own for way, own in current.items() if way[0] == wrapper and len(way) > 1}
        keys = {way[0] for way in current}
        note = f"read the entry {wrapper!r} of a training checkpoint ({beside_it})"
        found.append(Naming({".".join(way): own for way, own in current.items()}, (*found[-1].notes, note)))
    return (*found, *_shortened(found[-1], {".".join(way) for way in weights}))


def _wrapper(weights: set[Way]) -> str | None:
    holding = {way[0] for way in weights if len(way) > 1}
    # "state" is a wrapper where a model lies in it; of an optimiser it holds moments by number
    nested = {way[0] for way in weights if len(way) > 2 and way[1] in WRAPPERS}
    return next((key for key in WRAPPERS if key in (nested if key == "state" else holding)), None)


def _shortened(last: Naming, weights: set[str]) -> list[Naming]:
    """Without the prefixes that all weights have, and then without those within names."""
    found, dropped, names = [], "", dict(last.names)
    while weights:
        prefix = next((p for p in PREFIXES if all(name.startswith(p) and name != p for name in weights)), None)
        renamed = {name.removeprefix(prefix or ""): own for name, own in names.items()}
        if prefix is None or len(renamed) < len(names):
            break
        dropped += prefix
        every = "every array name" if all(name.startswith(prefix) for name in names) else "the names that have it"
        weights, names = {name.removeprefix(prefix) for name in weights}, renamed
        found.append(Naming(names, (*last.notes, f"dropped the prefix {dropped!r} from {every}")))
    inner = {_without(name): own for name, own in names.items()}
    if len(inner) == len(names) and inner.keys() != names.keys():
        gone = [part for part in WITHIN if any(f".{part}" in name for name in names)]
        note = f"dropped {', '.join(map(repr, gone))} from within array names"
        found.append(Naming(inner, (*(found[-1] if found else last).notes, note)))
    return found


def _without(name: str) -> str:
    for part in WITHIN:
        name = name.replace(f".{part}", ".")
    return name
