"""Regression on recovered algorithms: a small golden file, and what moved since.

A golden file keeps the verdict, the fidelity and the output-weighted coefficients with their standard errors, the
tolerances they are held to, and the prompts and seed that make the comparison repeatable. Coefficients are
gauge-free, so rescaled, permuted or split heads are no difference. A coefficient moved when it changed by more than

    max(relative * |old|, standard_errors * sqrt(stderr_old^2 + stderr_new^2)).

What the output estimate does not determine has no standard error: it is listed, never compared. Of the many
coefficients of channel tokens a file keeps those of at least a tenth of their layer's largest weight, and only they are
compared. None of this rests on the further evidence, so a check analyses for the verdict alone.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from interp.analysis import DEFAULT_PROMPTS, analyse
from interp.checkpoints.opening import Checkpoint
from interp.models.atomic import write_atomically
from interp.models.errors import LayoutError, UnreadableFile
from interp.results import Analysis, Coefficient, Layer

__all__ = ["FORMAT", "compare_with_golden", "differences", "golden_document", "read_golden", "update_golden"]

FORMAT, VERSION = "interp-probe-golden", 1
ROUNDING = 1e-9  # of the largest coefficient of the layer
ANEW = "to make it anew, delete it and run interp-probe check with --update"
LARGE = 0.1  # of the largest weight of a layer of channel tokens
TOLERANCE = {"relative": 0.01, "standard_errors": 4.0, "fidelity": 0.01}


def golden_document(
    result: Analysis,
    tolerance: Mapping[str, float] | None = None,
    names: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """The golden file of a result; ``tolerance`` keeps that of the file it replaces. ``names``: the coefficients that
    such a file has, by layer; of channel tokens the same are taken."""
    coefficients: dict[str, Any] = {}
    for layer in result.layers:
        row: dict[str, Any] = {}
        wanted = None if names is None else names.get(f"layer {layer.index}", {})
        for name, c in {**layer.omega, **layer.trace, **_large(layer, wanted)}.items():
            if not c.live or (c.output is None and name not in layer.maps):
                continue
            if c.output is None:
                row[name] = {"output": _rounded(c.weight), "stderr": None}
                continue
            row[name] = {"output": _rounded(c.output), "stderr": _rounded(c.stderr)}
        coefficients[f"layer {layer.index}"] = row
    verdict = result.verdict
    return {
        "format": FORMAT,
        "version": VERSION,
        "checkpoint": {"name": result.checkpoint.name, "sha256": result.checkpoint.sha256},
        "verdict": {
            "algorithm": verdict.algorithm, "recognized": verdict.recognized, "solves_task": verdict.solves_task
        },
        "fidelity": {"value": _rounded(verdict.fidelity), "ci": [_rounded(v) for v in verdict.fidelity_ci]},
        "coefficients": coefficients,
        "tolerance": dict(tolerance or TOLERANCE),
        "provenance": {
            key: result.provenance.get(key) for key in ("tool", "prompts", "seed", "time", "python", "versions")
        },
    }  # fmt: skip


def _large(layer: Layer, wanted: Mapping[str, Any] | None) -> Mapping[str, Coefficient]:
    if wanted is not None:
        return {name: c for name, c in layer.maps.items() if name in wanted}
    largest = max((abs(c.weight or 0.0) for c in layer.maps.values()), default=0.0)
    return {name: c for name, c in layer.maps.items() if abs(c.weight or 0.0) >= LARGE * largest > 0.0}


def _rounded(value: float | None) -> float | None:
    """Ten significant digits: far below any tolerance, and the same on every machine."""
    return None if value is None else float(f"{value:.10g}")


def update_golden(
    checkpoint: Checkpoint,
    path: str | Path,
    prompts: int = DEFAULT_PROMPTS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> Analysis:
    """Analyse ``checkpoint`` and write its golden file, keeping the tolerances of the one it replaces."""
    kept = read_golden(path)["tolerance"] if Path(path).exists() else None
    result = analyse(checkpoint, prompts, seed, progress, command, verdict_only=True)
    text = json.dumps(golden_document(result, kept), indent=2, ensure_ascii=False)
    write_atomically(path, text + "\n")
    return result


def compare_with_golden(
    checkpoint: Checkpoint,
    path: str | Path,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> tuple[Analysis, list[str]]:
    """Analyse ``checkpoint`` on the prompts of the golden file; the result, and a line for everything that moved."""
    golden = read_golden(path)
    prompts, seed = golden["provenance"]["prompts"], golden["provenance"]["seed"]
    result = analyse(checkpoint, prompts, seed, progress, command, verdict_only=True)
    return result, differences(golden, result)


def read_golden(path: str | Path) -> dict[str, Any]:
    """Raises UnreadableFile when the file is missing or damaged, LayoutError when it is not a golden file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnreadableFile(
            f"{path}: no such golden file; make it with interp-probe check CHECKPOINT --golden {path} --update"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path}: not readable as JSON ({error}); {ANEW}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise LayoutError(f'{path}: expected "format": "{FORMAT}" and "version": {VERSION}; {ANEW}')
    for key in ("verdict", "fidelity", "coefficients", "tolerance", "provenance"):
        _require(isinstance(document.get(key), dict), path, key, document.get(key), "a table")
    value = document["fidelity"].get("value")
    _require(value is None or _is_number(value), path, "fidelity.value", value, "a number or null")
    for key in TOLERANCE:
        value = document["tolerance"].get(key)
        _require(_is_number(value) and value >= 0, path, f"tolerance.{key}", value, "a number of 0 or more")
    for key in ("prompts", "seed"):
        value = document["provenance"].get(key)
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        _require(whole, path, f"provenance.{key}", value, "a whole number of 0 or more")
    for layer, row in document["coefficients"].items():
        _require(isinstance(row, dict), path, f"coefficients.{layer}", row, "a table")
        for name, entry in row.items():
            output, stderr = (entry.get("output"), entry.get("stderr")) if isinstance(entry, dict) else (None, None)
            good = _is_number(output) and (stderr is None or (_is_number(stderr) and stderr >= 0))
            _require(good, path, f"coefficients.{layer}.{name}", entry, "an output and its stderr")
    return document


def _require(good: bool, path: str | Path, where: str, found: object, expected: str) -> None:
    if not good:
        raise LayoutError(f"{path}: {where} is {reprlib.repr(found)}, expected {expected}; {ANEW}")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300  # not NaN either


def differences(golden: Mapping[str, Any], result: Analysis) -> list[str]:
    """One line for everything that moved; empty when the checkpoint still runs the same algorithm."""
    found = golden_document(result, names=golden["coefficients"])
    out = []
    for key in ("algorithm", "recognized", "solves_task"):
        old, new = golden["verdict"].get(key), found["verdict"][key]
        if old != new:
            out.append(f"verdict.{key}: {_word(old)} -> {_word(new)}")
    out.extend(_fidelity_moved(golden, found))
    layers = list(dict.fromkeys([*golden["coefficients"], *found["coefficients"]]))
    for layer in layers:
        old_row, new_row = golden["coefficients"].get(layer), found["coefficients"].get(layer)
        if old_row is None or new_row is None:
            out.append(f"{layer}: {'not in the golden file' if old_row is None else 'no longer there'}")
        else:
            out.extend(_coefficients_moved(layer, old_row, new_row, golden["tolerance"]))
    return out


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fidelity_moved(golden: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    old, new = golden["fidelity"].get("value"), found["fidelity"]["value"]
    allowed = golden["tolerance"]["fidelity"]
    if (old is None) != (new is None) or (old is not None and abs(new - old) > allowed):
        yield f"fidelity: {_number(old)} -> {_number(new)} (allowed: {allowed:g})"


def _coefficients_moved(
    layer: str, old_row: Mapping[str, Any], new_row: Mapping[str, Any], tolerance: Mapping[str, float]
) -> Iterator[str]:
    # Where a coefficient is exactly 0, another machine rounds to another 1e-18.
    rounding = ROUNDING * max((abs(entry["output"]) for entry in old_row.values()), default=0.0)
    for name in dict.fromkeys([*old_row, *new_row]):
        kind = "" if "+=" in name else "trace " if ":" in name else "omega_"
        label = f"{layer}, {kind}{name}"
        if name not in old_row or name not in new_row:
            yield f"{label}: {'no longer has a say' if name in old_row else 'had no say, now it has'}"
            continue
        old, new = old_row[name], new_row[name]
        if old["stderr"] is None or new["stderr"] is None:
            if old["stderr"] != new["stderr"]:
                yield f"{label}: {'now' if old['stderr'] is None else 'no longer'} determined by the data"
            continue
        change, error = abs(new["output"] - old["output"]), math.hypot(old["stderr"], new["stderr"])
        allowed = max(tolerance["relative"] * abs(old["output"]), tolerance["standard_errors"] * error, rounding)
        if change > allowed:
            sizes = f"{change / error:.3g} standard errors" if error > 0 else "no standard error"
            yield (
                f"{label}: {_number(old['output'])} -> {_number(new['output'])}, moved by {change:.3g} = {sizes} "
                f"(allowed: {allowed:.3g})"
            )


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.6g}"
