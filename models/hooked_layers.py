"""The parts of the token-by-token model (``interp.models.hooked``), each with its hook points."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.models.errors import UsageError
from interp.models.hook_points import CheckedHookPoint
from interp.models.transformer import LinearTransformer

__all__ = ["Block", "FlatReadout", "TokenEmbedding"]


class Block(nn.Module):
    def __init__(self, model: LinearTransformer, layer: int) -> None:
        super().__init__()
        spec = model.spec
        self.residual, self.clip = spec.residual, spec.clip
        self.hook_resid_pre = CheckedHookPoint()
        self.attn = Attention(model.Q[layer], model.P[layer], causal=spec.attention.keys == "causal")
        self.hook_attn_out = CheckedHookPoint()
        self.ln = None
        if spec.layernorm is not None:
            self.hook_resid_mid = CheckedHookPoint()
            gain, bias = (model.tensors.get(f"layernorm.{name}") for name in ("gain", "bias"))
            self.ln = TokenLayerNorm(
                spec.layernorm.eps, None if gain is None else gain[layer], None if bias is None else bias[layer]
            )
            self.outside = spec.layernorm.placement == "before-skip"
        self.hook_resid_post = CheckedHookPoint()

    def forward(self, tokens: Float[Tensor, "batch pos D"], sources: int, scale: float) -> Float[Tensor, "batch pos D"]:
        tokens = self.hook_resid_pre(tokens)
        update = self.hook_attn_out(self.attn(tokens, tokens[:, :sources], scale))
        before, tokens = tokens, tokens + update if self.residual else update
        if self.ln is not None:
            tokens = self.ln(self.hook_resid_mid(tokens))
            if self.outside:
                tokens = before + tokens
        if self.clip is not None:
            tokens = tokens.clamp(-self.clip, self.clip)
        return self.hook_resid_post(tokens)


class Attention(nn.Module):
    Q: Tensor
    P: Tensor

    def __init__(self, Q: Float[Tensor, "head D D"], P: Float[Tensor, "head D D"], causal: bool) -> None:
        super().__init__()
        self.register_buffer("Q", Q.detach().clone())
        self.register_buffer("P", P.detach().clone())
        self.causal = causal
        self.hook_scores = CheckedHookPoint()
        self.hook_head_out = CheckedHookPoint()

    def forward(
        self, tokens: Float[Tensor, "batch dest D"], keys: Float[Tensor, "batch source D"], scale: float
    ) -> Float[Tensor, "batch dest D"]:
        scores = torch.einsum("bia,bhja->bhij", tokens, torch.einsum("hac,bjc->bhja", self.Q, keys))
        if self.causal:
            scores = scores.tril()  # j <= i, self included
        values = torch.einsum("hac,bjc->bhja", self.P, keys)
        return self.hook_head_out(scale * (self.hook_scores(scores) @ values)).sum(dim=1)


class TokenLayerNorm(nn.Module):
    gain: Tensor | None
    bias: Tensor | None

    def __init__(self, eps: float, gain: Float[Tensor, " D"] | None, bias: Float[Tensor, " D"] | None) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("gain", None if gain is None else gain.detach().clone())
        self.register_buffer("bias", None if bias is None else bias.detach().clone())
        self.hook_scale = CheckedHookPoint()
        self.hook_normalized = CheckedHookPoint()

    def forward(self, tokens: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch pos D"]:
        centred = tokens - tokens.mean(-1, keepdim=True)
        out = centred / self.hook_scale((centred.square().mean(-1, keepdim=True) + self.eps).sqrt())
        if self.gain is not None and self.bias is not None:
            out = self.gain * out + self.bias
        return self.hook_normalized(out)


class TokenEmbedding(nn.Module):
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Float[Tensor, "D token"], bias: Float[Tensor, " D"]) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("bias", bias.detach().clone())
        self.hook_embed = CheckedHookPoint()

    def forward(self, tokens: Float[Tensor, "batch pos token"]) -> Float[Tensor, "batch pos D"]:
        return self.hook_embed(tokens @ self.weight.mT + self.bias)


class FlatReadout(nn.Module):
    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Float[Tensor, "pos D"], bias: Float[Tensor, "1"]) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().clone())
        self.register_buffer("bias", bias.detach().clone())

    def forward(self, tokens: Float[Tensor, "batch pos D"]) -> Float[Tensor, "batch 1 1"]:
        if tokens.shape[1] != len(self.weight):
            raise UsageError(
                f"got prompts of {tokens.shape[1]} tokens, but the flat read-out has weights for {len(self.weight)}; "
                f"expected {len(self.weight) - 1} context tokens and one query"
            )
        return (torch.einsum("bia,ia->b", tokens, self.weight) + self.bias)[:, None, None]
