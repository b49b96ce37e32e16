"""What the tokens of a network hold, what its heads do, and where it divides.

With means over the keys, x~ = x - mean x and y~ = y - mean y of every row (the query's y is 0). In a layer with
LayerNorm the query's row is z = e + sum_h part_h before it. The read-out takes w, so the prediction is, up to the other
rows and a constant, <w_c, z> / std(z) with w_c = gain * w less its mean: a numerator and a denominator that are both
sums over the parts,

    <w_c, z> = sum_p <w_c, part_p> ,    std(z) = sum_p <z_c, part_p> / (D std(z)) ,    z_c = z - mean(z)             (1)

so every part has a share of each. An earlier LayerNorm after the skip has divided the whole row of the query by its own
standard deviation, a factor that numerator and denominator have in common; both are told without it. A head's shares
depend on how a layer's work is split between its heads, which is a matter of gauge; what the layer as a whole does is
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.families.passage import LayerPassage, Passage
from interp.models.layers import LayerNorm
from interp.models.specification import ModelSpec
from interp.models.tasks import LinePrompts
from interp.results import Direction, Division, DivisionBin, HeadRole, Slot
from interp.stats.averages import mean_with_error, quantile_bins
from interp.stats.least_squares import with_one

__all__ = [
    "DIVIDES",
    "EXPONENT",
    "VARIES",
    "Rows",
    "directions",
    "divisions",
    "head_roles",
    "query_share",
    "rows_of",
    "slots",
]

HOLDS = 0.9  # R^2 from which a slot is said to hold something, a head to have a role
SHARE = 0.1  # least share of a numerator or denominator that makes a role
DIVIDES = 0.9  # R^2 from which a standard deviation is said to be a power of V …
EXPONENT = (0.75, 1.25)  # … which is V where the power is in here …
VARIES = 0.3  # … and it varies over prompts: standard deviation of its logarithm
SILENT = 1e-9  # of the layer's largest part


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of every prompt, the query last, and the moments of x and y over the keys."""

    x: Float[Tensor, "prompt token"]
    y: Float[Tensor, "prompt token"]
    mean_x: Float[Tensor, " prompt"]
    mean_y: Float[Tensor, " prompt"]
    V: Float[Tensor, " prompt"]
    C: Float[Tensor, " prompt"]

    @property
    def centred(self) -> dict[str, Float[Tensor, "prompt token"]]:
        return {"x - mean": self.x - self.mean_x[:, None], "y - mean": self.y - self.mean_y[:, None]}

    @property
    def numerator(self) -> Float[Tensor, " prompt"]:
        """C (u - mean x) - V (0 - mean y): V times the fitted value at the query."""
        return self.C * (self.x[:, -1] - self.mean_x) + self.V * self.mean_y


def rows_of(prompts: LinePrompts, keys: str) -> Rows:
    x = torch.cat([prompts.x, prompts.x_query[:, None]], 1)
    y = torch.cat([prompts.y, torch.zeros_like(prompts.x_query)[:, None]], 1)
    n = prompts.context + (keys == "all")
    mean_x, mean_y = x[:, :n].mean(1), y[:, :n].mean(1)
    a, b = x[:, :n] - mean_x[:, None], y[:, :n] - mean_y[:, None]
    return Rows(x, y, mean_x, mean_y, a.square().mean(1), (a * b).mean(1))


def _r2(observed: Tensor, predicted: Tensor) -> float | None:
    total = float((observed - observed.mean()).square().sum())
    error = float((observed - predicted).square().sum())
    if not (total > 1e-20 * float(observed.square().sum()) and error < float("inf")):
        return None
    return 1.0 - error / total


def _line(observed: Tensor, regressor: Tensor) -> tuple[float, float]:
    """Intercept and slope of least squares; the slope is 0 where the regressor is constant."""
    centred = regressor - regressor.mean()
    spread = float(centred.square().sum())
    slope = float((centred * observed).sum()) / spread if spread > 1e-24 * float(regressor.square().sum()) else 0.0
    return float(observed.mean()) - slope * float(regressor.mean()), slope


def _line_r2(observed: Tensor, regressor: Tensor) -> float | None:
    intercept, slope = _line(observed, regressor)
    return _r2(observed, intercept + slope * regressor)


# --- slots ---------------------------------------------------------------------------------------------------------


def slots(passage: Passage, rows: Rows) -> tuple[Slot, ...]:
    """Every entry of the tokens before each layer: which of the candidates it is a line in, over the context's rows;
    ``query_r2`` is that very line in the query's row."""
    candidates = {"x": rows.x, "y": rows.y, **rows.centred}
    return tuple(
        _slot(layer, index, entry.before[..., index], candidates)
        for layer, entry in enumerate(passage.layers)
        for index in range(entry.before.shape[-1])
    )


def _slot(layer: int, index: int, value: Tensor, candidates: dict[str, Tensor]) -> Slot:
    context, query = value[:, :-1].flatten(), value[:, -1]
    size, spread = float(context.square().mean().sqrt()), float(context.std())
    lines = {name: _line(context, c[:, :-1].flatten()) for name, c in candidates.items()}
    scores = {name: _r2(context, a + b * candidates[name][:, :-1].flatten()) or 0.0 for name, (a, b) in lines.items()}
    best = max(scores, key=lambda name: scores[name])
    a, b = lines[best]
    told = scores[best] >= HOLDS
    known: dict[str, Any] = {
        "holds": best if told else "mixture",
        "sign": 1 if b >= 0 else -1,
        "scale": abs(b) if told else None,
        "r2": scores[best],
        "query_r2": _r2(query, a + b * candidates[best][:, -1]),
    }
    if size == 0 or (spread < 0.1 * size and not told):
        sign = 1 if float(context.mean()) >= 0 else -1
        known = {"holds": "constant", "sign": sign, "scale": size, "r2": None, "query_r2": None}
    return Slot(layer=layer, index=index, **known)


def directions(passage: Passage, rows: Rows) -> tuple[Direction, ...]:
    """Where in the tokens after every layer but the last x - mean x and y - mean y are, whatever the basis."""
    out = []
    for layer, entry in list(enumerate(passage.layers))[1:]:
        tokens = with_one(entry.before)
        size = tokens.flatten(0, 1).square().mean(0).sqrt().clamp_min(1e-300)  # it decides where tokens are dependent
        design = (tokens[:, :-1] / size).flatten(0, 1)
        for holds, value in rows.centred.items():
            target = value[:, :-1].flatten()
            solution = torch.linalg.lstsq(design, target[:, None], driver="gelsd").solution[:, 0] / size
            out.append(
                Direction(
                    layer=layer,
                    holds=holds,
                    vector=tuple(solution[:-1].tolist()),
                    r2=_r2(target, (tokens[:, :-1] @ solution).flatten()),
                    query_r2=_r2(value[:, -1], tokens[:, -1] @ solution),
                )
            )
    return tuple(out)


# --- heads ---------------------------------------------------------------------------------------------------------


def head_roles(passage: Passage, rows: Rows, spec: ModelSpec, weights: dict[str, Tensor]) -> tuple[HeadRole, ...]:
    """The role of every head. Numerators are told for the last layer alone, whose rows are read out."""
    out = []
    for layer, entry in enumerate(passage.layers):
        read = _read(spec, weights, layer) if layer + 1 == len(passage.layers) else None
        shares = partial(_shares, entry, rows, read, _common(passage, spec, layer))
        loudest = float(entry.parts.abs().max())
        for head, part in enumerate(entry.parts):
            figures = {**shares(part), "centring": _centring(part, rows)}
            role = _role(figures)
            if float(part.abs().max()) <= SILENT * loudest:
                role, figures = "silent", dict.fromkeys(figures)
            out.append(HeadRole(layer=layer, head=head, role=role, **figures))
        whole = entry.parts.sum(0)
        together = {**shares(whole), "centring": _centred(entry.mid, rows) if read is None else _centring(whole, rows)}
        told = together if read is None else {**together, "centring": None}
        out.append(HeadRole(layer=layer, head=None, role=_role(together), **told))
    return tuple(out)


def _role(figures: Mapping[str, float | None]) -> str:
    if (figures["centring"] or 0.0) >= HOLDS:
        return "centring"
    kinds = ("numerator", "denominator")
    roles = [k for k in kinds if (figures[k] or 0.0) >= SHARE and (figures[f"{k}_r2"] or 0.0) >= HOLDS]
    return " and ".join(roles) or "other"


def _read(spec: ModelSpec, weights: dict[str, Tensor], layer: int) -> Float[Tensor, " D"]:
    """w_c of (1)."""
    w = weights["readout.weight"][-1] if spec.readout.flat else torch.zeros(spec.stream, dtype=torch.float64)
    if not spec.readout.flat:
        w[spec.channel(spec.readout.channel).indices] = 1.0
    norm = spec.find(LayerNorm)
    if norm is None:
        return spec.readout.sign * w
    w = w * weights["layernorm.gain"][layer] if norm.affine else w
    return spec.readout.sign * (w - w.mean())


def _centred(mid: Float[Tensor, "prompt token D"], rows: Rows) -> float | None:
    """R^2 of the rows, explained by x - mean x and y - mean y."""
    seen = torch.stack([torch.ones_like(rows.x), *rows.centred.values()], -1)
    seen, value = seen.flatten(0, 1), mid.flatten(0, 1)
    fitted = seen @ torch.linalg.lstsq(seen, value, driver="gelsd").solution
    left = _ratio((value - fitted).square().sum(), (value - value.mean(0)).square().sum())
    return None if left is None else 1.0 - left


def _centring(part: Float[Tensor, "prompt token D"], rows: Rows) -> float | None:
    """R^2 of what a part adds to the rows, the same to all if it is centring, explained by the means of x and y."""
    means = torch.stack([torch.ones_like(rows.mean_x), rows.mean_x, rows.mean_y], -1)
    fitted = means @ torch.linalg.lstsq(means, part.mean(1), driver="gelsd").solution
    total = float((part - part.mean((0, 1))).square().sum())
    return None if total == 0 else 1.0 - float((part - fitted[:, None]).square().sum()) / total


def _shares(
    entry: LayerPassage, rows: Rows, read: Tensor | None, common: Float[Tensor, " prompt"], part: Tensor
) -> dict[str, float | None]:
    """What a part has of numerator and denominator, and what explains it."""
    z = entry.mid[:, -1]
    centred, std = z - z.mean(-1, keepdim=True), entry.scale[:, -1]
    below = common * (centred * part[:, -1]).sum(-1) / (z.shape[-1] * std).clamp_min(1e-300)
    out = {
        "numerator": None,
        "numerator_r2": None,
        "denominator": _ratio(below.sum(), (common * std).sum()),
        "denominator_r2": _line_r2(below, rows.V),
    }
    if read is not None:
        above, whole = common * (part[:, -1] @ read), common * (z @ read)
        out |= {"numerator": _ratio(above @ whole, whole @ whole), "numerator_r2": _line_r2(above, rows.numerator)}
    return out


def _ratio(top: Tensor, bottom: Tensor) -> float | None:
    return float(top) / float(bottom) if float(bottom) > 0 else None


# --- division ------------------------------------------------------------------------------------------------------


def divisions(
    passage: Passage, rows: Rows, spec: ModelSpec, weights: dict[str, Tensor]
) -> tuple[tuple[Division, ...], int | None]:
    """LayerNorm's standard deviation in the query's row against V, layer by layer, and the last layer that divides by
    V, if any does. Nothing without LayerNorm."""
    if spec.find(LayerNorm) is None:
        return (), None
    found = []
    for layer, entry in enumerate(passage.layers):
        common, numerator = _common(passage, spec, layer), None
        if layer + 1 == len(passage.layers):
            numerator = _line_r2(common * (entry.mid[:, -1] @ _read(spec, weights, layer)), rows.numerator)
        found.append(Division(layer=layer, numerator_r2=numerator, **_power(entry.scale[:, -1] * common, rows.V)))
    low, high = EXPONENT
    dividing = [
        d.layer
        for d in found
        if (d.r2 or 0.0) >= DIVIDES and low <= (d.exponent or 0.0) <= high and (d.variation or 0.0) >= VARIES
    ]
    return tuple(found), dividing[-1] if dividing else None


def _common(passage: Passage, spec: ModelSpec, layer: int) -> Float[Tensor, " prompt"]:
    """What the query's row was divided by before this layer, 1 where that did not rescale the whole row."""
    norm = spec.find(LayerNorm)
    whole = norm is not None and norm.placement == "after-skip" and layer > 0
    before = passage.layers[layer - 1 if whole else layer].scale[:, -1]
    return before if whole else torch.ones_like(before)


def _power(std: Float[Tensor, " prompt"], V: Float[Tensor, " prompt"]) -> dict[str, Any]:
    """A standard deviation as a power of V."""
    if not (bool((std > 0).all()) and bool((V > 0).all())):
        return {**dict.fromkeys(("r2", "exponent", "exponent_stderr", "variation")), "bins": ()}
    a, b, bins = V.log(), std.log(), quantile_bins(V)
    intercept, slope = _line(b, a)
    spread, residual = (a - a.mean()).square().sum(), b - intercept - slope * a
    means = {k: mean_with_error(std[bins == k]) for k in bins.unique().tolist()}
    return {
        "r2": _r2(b, intercept + slope * a),
        "exponent": slope,
        "exponent_stderr": _ratio((residual.square() * (a - a.mean()).square()).sum().sqrt(), spread),
        "variation": float(b.std()),
        "bins": tuple(
            DivisionBin(V=float(V[bins == k].mean()), scale=value, stderr=stderr)
            for k, (value, stderr) in means.items()
            if value is not None
        ),
    }


def query_share(passage: Passage, spec: ModelSpec, weights: dict[str, Tensor]) -> float | None:
    """Share of the prediction's variance that is read from the query's row: cov(that part, prediction) / variance."""
    if not spec.readout.flat:
        return 1.0
    part = spec.readout.sign * (passage.layers[-1].after[:, -1] @ weights["readout.weight"][-1])
    whole = passage.prediction - passage.prediction.mean()
    return _ratio((part * whole).sum(), whole.square().sum())
