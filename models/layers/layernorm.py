"""LayerNorm over the entries of a token, at the end of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from jaxtyping import Float

from interp.errors import LayoutError
from interp.models.layers.registry import Layer, Shape, Site, read_table, register_layer
from interp.models.numbers import is_number
from interp.models.tensors import Tensor

__all__ = ["LayerNorm", "Placement"]

Placement = Literal["after-skip", "before-skip"]


@register_layer
@dataclass(frozen=True, kw_only=True)
class LayerNorm(Layer):
    """LN(e) = gain * (e - mean(e)) / sqrt(mean((e - mean(e))^2) + eps) + bias over the D entries of a token.

    ``placement`` "after-skip": e <- LN(e + update); "before-skip": e <- e + LN(e + update). With ``affine`` there are
    tensors "layernorm.gain" and "layernorm.bias", (layer, D) each; without, gain is 1 and bias 0.
    """

    name: ClassVar = "layernorm"
    words: ClassVar = "LayerNorm"
    path: ClassVar = "ln"
    order: ClassVar = 90
    points: ClassVar = ("hook_resid_mid", "ln.hook_scale", "ln.hook_normalized")

    placement: Placement = "after-skip"
    eps: float = 1e-5
    affine: bool = False

    @classmethod
    def from_dict(cls, value: Any) -> LayerNorm:
        fields = read_table(value, cls.name, ("placement", "eps", "affine"))
        placement, eps, affine = (fields.get(key, getattr(cls, key)) for key in ("placement", "eps", "affine"))
        if placement not in get_args(Placement):
            raise LayoutError(
                f"layernorm.placement is {placement!r}, expected {' or '.join(map(repr, get_args(Placement)))}"
            )
        if not is_number(eps) or eps < 0:
            raise LayoutError(f"layernorm.eps is {eps!r}, expected a finite number of 0 or more")
        if not isinstance(affine, bool):
            raise LayoutError(f"layernorm.affine is {affine!r}, expected true or false")
        return cls(placement=placement, eps=float(eps), affine=affine)

    def tensors(self, width: int, stream: int) -> Mapping[str, Shape]:
        return {"gain": (stream,), "bias": (stream,)} if self.affine else {}

    def run(self, tokens: Float[Tensor, "batch pos D"], site: Site) -> Float[Tensor, "batch pos D"]:
        z = site.at("hook_resid_mid", tokens)
        centred = z - z.mean(-1, keepdim=True)
        out = centred / site.at("ln.hook_scale", (centred.square().mean(-1, keepdim=True) + self.eps).sqrt())
        if self.affine:
            out = site.weights["gain"] * out + site.weights["bias"]
        out = site.at("ln.hook_normalized", out)
        return site.before + out if self.placement == "before-skip" else out
