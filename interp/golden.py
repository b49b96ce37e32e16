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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from interp.analysis import DEFAULT_PROMPTS, analyse
from interp.checkpoints.opening import Checkpoint
from interp.errors import LayoutError, UnreadableFile
from interp.models.atomic import write_atomically
from interp.results import Analysis, Coefficient, Layer
from interp.results.golden import Golden, GoldenCoefficient, GoldenFidelity, GoldenProvenance, Moved, Tolerance
from interp.results.plain_data import from_plain, to_plain

__all__ = ["FORMAT", "compare_with_golden", "differences", "golden_of", "read_golden", "update_golden"]

FORMAT, VERSION = "interp-probe-golden", 1
ROUNDING = 1e-9  # of the largest coefficient of the layer
ANEW = "to make it anew, delete it and run interp-probe check with --update"
LARGE = 0.1  # of the largest weight of a layer of channel tokens
VERDICT = ("algorithm", "recognized", "solves_task")


def golden_of(
    result: Analysis, tolerance: Tolerance | None = None, names: Mapping[str, Mapping[str, Any]] | None = None
) -> Golden:
    """The golden file of a result; ``tolerance`` keeps that of the file it replaces. ``names``: the coefficients that
    such a file has, by layer; of channel tokens those are taken."""
    verdict, provenance, (low, high) = result.verdict, result.provenance, result.verdict.fidelity_ci
    return Golden(
        format=FORMAT,
        version=VERSION,
        checkpoint={"name": result.checkpoint.name, "sha256": result.checkpoint.sha256},
        verdict={key: getattr(verdict, key) for key in VERDICT},
        fidelity=GoldenFidelity(value=_rounded(verdict.fidelity), ci=(_rounded(low), _rounded(high))),
        coefficients={f"layer {layer.index}": _coefficients(layer, names) for layer in result.layers},
        tolerance=tolerance or Tolerance(),
        provenance=GoldenProvenance(
            prompts=provenance["prompts"],
            seed=provenance["seed"],
            **{key: provenance.get(key) for key in ("tool", "time", "python", "versions")},
        ),
    )


def _coefficients(layer: Layer, names: Mapping[str, Mapping[str, Any]] | None) -> dict[str, GoldenCoefficient]:
    """The live coefficients; of channel tokens those of ``names``, or those that are large."""
    wanted = None if names is None else names.get(f"layer {layer.index}", {})
    rows: dict[str, GoldenCoefficient] = {}
    for name, c in {**layer.omega, **layer.trace, **_large(layer.maps, wanted)}.items():
        value = c.weight if c.output is None and name in layer.maps else c.output
        if c.live and value is not None:
            stderr = None if c.output is None or c.stderr is None else _rounded(c.stderr)
            rows[name] = GoldenCoefficient(output=float(f"{value:.10g}"), stderr=stderr)
    return rows


def _large(maps: Mapping[str, Coefficient], wanted: Mapping[str, Any] | None) -> dict[str, Coefficient]:
    if wanted is not None:
        return {name: c for name, c in maps.items() if name in wanted}
    largest = max((abs(c.weight or 0.0) for c in maps.values()), default=0.0)
    return {name: c for name, c in maps.items() if abs(c.weight or 0.0) >= LARGE * largest > 0.0}


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
    kept = read_golden(path).tolerance if Path(path).exists() else None
    result = analyse(checkpoint, prompts, seed, progress, command, verdict_only=True)
    write_atomically(path, json.dumps(to_plain(golden_of(result, kept)), indent=2, ensure_ascii=False) + "\n")
    return result


def compare_with_golden(
    checkpoint: Checkpoint,
    path: str | Path,
    progress: Callable[[str], None] = lambda step: None,
    command: str | None = None,
) -> tuple[Analysis, list[Moved]]:
    """Analyse ``checkpoint`` on the prompts of the golden file; the result, and everything that moved."""
    golden = read_golden(path)
    run = golden.provenance
    result = analyse(checkpoint, run.prompts, run.seed, progress, command, verdict_only=True)
    return result, differences(golden, result)


def read_golden(path: str | Path) -> Golden:
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
    try:
        golden: Golden = from_plain(Golden, document, "document")
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}; {ANEW}") from None
    sizes = {f"tolerance.{key}": value for key, value in vars(golden.tolerance).items()}
    sizes |= {f"provenance.{key}": getattr(golden.provenance, key) for key in ("prompts", "seed")}
    sizes |= {
        f"coefficients.{layer}.{name}.stderr": entry.stderr or 0.0
        for layer, row in golden.coefficients.items()
        for name, entry in row.items()
    }
    for where, value in sizes.items():
        if value < 0:
            raise LayoutError(f"{path}: document.{where} is {value}, expected 0 or more; {ANEW}")
    return golden


def differences(golden: Golden, result: Analysis) -> list[Moved]:
    """Everything that moved; empty when the checkpoint still runs the same algorithm."""
    now = golden_of(result, names=golden.coefficients)
    moved = [
        Moved(figure=f"verdict.{key}", golden=golden.verdict.get(key), now=now.verdict[key])
        for key in VERDICT
        if golden.verdict.get(key) != now.verdict[key]
    ]
    old, new, allowed = golden.fidelity.value, now.fidelity.value, golden.tolerance.fidelity
    if (old is None) != (new is None) or (old is not None and new is not None and abs(new - old) > allowed):
        moved.append(Moved(figure="fidelity", golden=old, now=new, allowed=allowed))
    layers = {f"layer {layer.index}": layer for layer in result.layers}
    for name in dict.fromkeys([*golden.coefficients, *now.coefficients]):
        if name not in golden.coefficients or name not in now.coefficients:
            note = "no longer there" if name in golden.coefficients else "not in the golden file"
            moved.append(Moved(figure=name, note=note))
        else:
            moved.extend(_moved(layers[name], golden.coefficients[name], now.coefficients[name], golden.tolerance))
    return moved


def _moved(
    layer: Layer, golden: Mapping[str, GoldenCoefficient], now: Mapping[str, GoldenCoefficient], tolerance: Tolerance
) -> Iterator[Moved]:
    # Where a coefficient is exactly 0, another machine rounds to another 1e-18.
    rounding = ROUNDING * max((abs(entry.output) for entry in golden.values()), default=0.0)
    for name in dict.fromkeys([*golden, *now]):
        kind = "omega_" if name in layer.omega else "trace " if name in layer.trace else ""
        figure = f"layer {layer.index}, {kind}{name}"
        if name not in golden or name not in now:
            yield Moved(figure=figure, note="no longer has a say" if name in golden else "had no say, now it has")
            continue
        old, new = golden[name], now[name]
        if old.stderr is None or new.stderr is None:
            if old.stderr != new.stderr:
                note = f"{'now' if old.stderr is None else 'no longer'} determined by the data"
                yield Moved(figure=figure, note=note)
            continue
        change, error = abs(new.output - old.output), math.hypot(old.stderr, new.stderr)
        allowed = max(tolerance.relative * abs(old.output), tolerance.standard_errors * error, rounding)
        if change > allowed:
            yield Moved(figure=figure, golden=old.output, now=new.output, change=change, stderr=error, allowed=allowed)
