"""The token-by-token forward pass, with every intermediate value at a named hook point.

The pass itself is ``interp.models.token_pass``; here are only the hook points around it. In a network of attention
layers, with the keys J(i) of a token:

    score_h(i, j) = e_i^T Q_h e_j                                           blocks.{l}.attn.hook_scores
    out_h(i)      = s * sum_{j in J(i)} score_h(i, j) P_h e_j               blocks.{l}.attn.hook_head_out
    e_i          <- clip(e_i + sum_h out_h(i))                              blocks.{l}.hook_attn_out, hook_resid_post

Every other layer kind brings the hook points that it names (``Layer.points``).

With ``interp.models.hook_points`` it is the only module that imports transformer_lens, and it makes the hooks of that
library safe: a name that does not exist, a filter that selects nothing, a hook that changes a shape or never runs are
errors instead of silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint, LensHandle

from interp.errors import UsageError, did_you_mean
from interp.models.hook_points import (
    ActivationCache,
    CheckedHookPoint,
    CountedHook,
    Direction,
    Hook,
    discard,
    require_hook,
)
from interp.models.specification import ModelSpec
from interp.models.token_pass import point_names, run
from interp.models.transformer import LinearTransformer

__all__ = ["HookedLinearTransformer"]

Hooks = Sequence[tuple[str | Callable[[str], bool], Hook]]
NamesFilter = str | Sequence[str] | Callable[[str], bool] | None


class HookedLinearTransformer(HookedRootModule):
    """A ``LinearTransformer`` whose activations can be read and replaced.

    Hook points of layer l, in order of execution. ``pos`` counts the context tokens first, then the query tokens; for
    causal models it is the sequence. ``source`` counts the keys: the context tokens (keys "context") or all of pos.

    ==============================  ==============================  =================================================
    name                            shape                           value
    ==============================  ==============================  =================================================
    blocks.{l}.hook_resid_pre       (batch, pos, D)                 the tokens before the layer
    blocks.{l}.attn.hook_scores     (batch, head, dest, source)     e_i^T Q_h e_j, before the scale s; 0 where j > i
                                                                    in a causal model
    blocks.{l}.attn.hook_head_out   (batch, head, pos, D)           s * sum_j score_h(i, j) P_h e_j
    blocks.{l}.hook_attn_out        (batch, pos, D)                 their sum over heads, the update of the tokens
    blocks.{l}.hook_resid_post      (batch, pos, D)                 the tokens after the layer (and after the clip)
    ==============================  ==============================  =================================================

    Other layer kinds have hook points of their own (``Layer.points``), an embedding and LayerNorm these:

    ==============================  ==============================  =================================================
    embed.hook_embed                (batch, pos, D)                 the embedded tokens
    blocks.{l}.hook_resid_mid       (batch, pos, D)                 the tokens plus their update, before LayerNorm
    blocks.{l}.ln.hook_scale        (batch, pos, 1)                 sqrt(variance over the D entries + eps)
    blocks.{l}.ln.hook_normalized   (batch, pos, D)                 what LayerNorm makes of them, gain and bias included
    ==============================  ==============================  =================================================

    A hook is called as ``fn(tensor, hook=point)``. It may return a tensor of the same shape and dtype, or edit its
    argument in place, which is its own copy: both change the rest of the run, and neither the caller's input.

    >>> import torch
    >>> from interp import HookedLinearTransformer, open_checkpoint
    >>> model = open_checkpoint("zoo:gdpp-l4-u5").model.to(torch.float64)
    >>> context, query = torch.randn(2, 20, 11).double(), torch.randn(2, 1, 11).double()
    >>> prediction, cache = HookedLinearTransformer(model).run_with_cache(context, query)
    >>> prediction.shape, cache["blocks.0.hook_resid_post"].shape
    (torch.Size([2, 1, 1]), torch.Size([2, 21, 11]))

    The weights are copied into buffers (``blocks.{l}.attn.Q`` and ``.P``), so gradients flow to the inputs; for
    gradients in the weights use ``torch.func.functional_call``.
    """

    spec: ModelSpec

    def __init__(self, model: LinearTransformer) -> None:
        """Raises UsageError when the weights are not both float32 or both float64."""
        super().__init__()
        dtypes = {name: value.dtype for name, value in model.named()}
        if model.Q.dtype not in (torch.float32, torch.float64) or len(set(dtypes.values())) > 1:
            found = " and ".join(f"{name} has dtype {dtype}" for name, dtype in dtypes.items())
            raise UsageError(f"{found}, expected all float32 or all float64; convert with model.to(torch.float64)")
        self.spec = model.spec
        for name in point_names(model.spec, model.layers):
            home, _, point = name.rpartition(".")
            self._home(home).add_module(point, CheckedHookPoint())
        self._paths: dict[str, list[str]] = {}  # of the buffers that hold a tensor: one for each block, or one
        named, sizes = dict(model.named()), (model.spec.width, model.spec.stream)
        for kind in model.spec.kinds():
            blocks = kind.stage == "block"
            homes = [f"blocks.{layer}.{kind.path}" for layer in range(model.layers)] if blocks else [kind.path]
            for short in kind.tensors(*sizes):
                value = named[kind.key(short)].detach().clone()
                for home, part in zip(homes, value if blocks else [value], strict=True):
                    self._home(home).register_buffer(short, part)
                self._paths[kind.key(short)] = [f"{home}.{short}" for home in homes]
        self.setup()  # names the hook points, so it comes last

    def _home(self, path: str) -> nn.Module:
        """The module at a path; what is not there yet is made."""
        module: nn.Module = self
        for part in path.split(".") if path else []:
            if part not in dict(module.named_children()):
                module.add_module(part, nn.ModuleList() if part == "blocks" else nn.Module())
            module = module.get_submodule(part)
        return module

    def _weights(self) -> dict[str, Tensor]:
        """The buffers by the names of the canonical checkpoint, those of the blocks put together."""
        found = {name: [self.get_buffer(path) for path in paths] for name, paths in self._paths.items()}
        blocks = {name for name, paths in self._paths.items() if paths[0].startswith("blocks.")}
        return {name: torch.stack(values) if name in blocks else values[0] for name, values in found.items()}

    def forward(self, tokens: Tensor, query: Tensor | None = None) -> Float[Tensor, "batch query output"]:
        """The predictions: sign * read-out channel of the query tokens, or of every token of a causal model.

        ``tokens``: the context (batch, n, D), or for causal keys the whole sequence (batch, T, D), then without
        ``query``. ``query``: (batch, q, D). n in the scales "1/n" and "1/(n+1)" counts the context tokens; in a causal
        model all T. With keys "context" every token attends to the context, with "all" to context and queries.

        Raises UsageError when a shape, dtype or device does not fit the model.
        """
        causal = self.spec.attention.keys == "causal"
        if causal and query is not None:
            raise UsageError(
                "got query tokens, but attention.keys is 'causal' and every token of the sequence is read out; "
                "expected the whole sequence as one tensor"
            )
        self._require_tokens("tokens" if causal else "context", tokens)
        given = tokens.shape[1]
        if not causal:
            if query is None:
                raise UsageError(
                    f"got no query tokens, but attention.keys is {self.spec.attention.keys!r} and the queries are read "
                    f"out; expected model(context, query)"
                )
            self._require_tokens("query", query)
            if len(query) != len(tokens):
                raise UsageError(
                    f"context holds {len(tokens)} prompts and query {len(query)}, expected as many; repeat one of them"
                )
            tokens = torch.cat([tokens, query], dim=1)
        return run(self.spec, self._weights(), tokens, given, lambda name, value: self.hook_dict[name](value))

    def hook_names(self, names_filter: NamesFilter = None) -> list[str]:
        """The hook points that ``names_filter`` (a name, a sequence of names or a predicate) selects, in order of
        execution; None selects all. Raises UsageError for an unknown name, or when nothing is selected."""
        if names_filter is None:
            return list(self.hook_dict)
        if callable(names_filter):
            chosen = {name for name in self.hook_dict if names_filter(name)}
        else:
            chosen = {names_filter} if isinstance(names_filter, str) else set(names_filter)
            for name in chosen:
                if name not in self.hook_dict:
                    raise UsageError(f"no hook point is named {name!r}; {did_you_mean(str(name), self.hook_dict)}")
        if not chosen:
            raise UsageError(
                f"names_filter selects none of the {len(self.hook_dict)} hook points, expected one or more; "
                f"they are named like {', '.join(map(repr, list(self.hook_dict)[:5]))}"
            )
        return [name for name in self.hook_dict if name in chosen]

    def run_with_cache(
        self,
        *model_args: Any,
        names_filter: NamesFilter = None,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        pos_slice: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The predictions, and the selected activations by name: detached copies, safe to edit.

        Hooks of an enclosing ``hooks`` context act, and the cache shows their effect. ``remove_batch_dim`` needs one
        prompt. ``incl_bwd`` and ``pos_slice`` are refused with UsageError.
        """
        cache, forward, backward = self.get_caching_hooks(
            names_filter, incl_bwd, device, remove_batch_dim, pos_slice=pos_slice
        )
        with self.hooks(forward, backward, reset_hooks_end, clear_contexts):
            return self(*model_args, **model_kwargs), cache

    def run_with_hooks(
        self,
        *model_args: Any,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        **model_kwargs: Any,
    ) -> Tensor:
        """The predictions with ``fwd_hooks``, pairs (name or predicate, hook), in place.

        Raises UsageError for ``bwd_hooks`` that would be removed before any backward pass can reach them.
        """
        if bwd_hooks and reset_hooks_end:
            raise UsageError(
                "got bwd_hooks, but run_with_hooks removes them before a backward pass can run; "
                "use 'with model.hooks(bwd_hooks=...):' and call backward inside"
            )
        with self.hooks(fwd_hooks, bwd_hooks, reset_hooks_end, clear_contexts):
            return self(*model_args, **model_kwargs)

    @contextmanager
    def hooks(
        self,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Iterator[HookedLinearTransformer]:
        """Hooks for the time of a ``with`` block, whatever ends it. Contexts nest, and each removes its own hooks only.

        Raises UsageError at the end of a block in which one of them never ran. With ``reset_hooks_end=False`` the hooks
        stay until ``reset_hooks()``, as if added by ``add_hook``, and may run later.
        """
        wanted = self._wanted("fwd", fwd_hooks) + self._wanted("bwd", bwd_hooks)
        added: list[tuple[HookPoint, LensHandle]] = []
        self.context_level += 1
        level = self.context_level if reset_hooks_end else None
        try:
            for point, hook, direction in wanted:
                handle = point.add_hook(hook, direction, level=level)
                handle.user_hook = hook.function
                added.append((point, handle))
            yield self
            for point, hook, direction in wanted:
                if reset_hooks_end and not hook.calls:
                    missing = "forward pass of this model" if direction == "fwd" else "backward pass through it"
                    raise UsageError(f"the hook on {point.name!r} never ran: no {missing} happened inside the context")
        finally:
            self.context_level -= 1
            if reset_hooks_end:
                for point, handle in added:
                    discard(point, handle)
                if clear_contexts:
                    self.clear_contexts()

    def add_hook(
        self,
        name: str | Callable[[str], bool],
        hook: Hook,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Add a hook that stays until ``reset_hooks()``; prefer ``hooks`` and ``run_with_hooks``, which clean up."""
        for chosen in self.hook_names(name):
            super().add_hook(chosen, hook, dir, is_permanent, level, prepend)

    def get_caching_hooks(
        self,
        names_filter: NamesFilter = None,
        incl_bwd: bool = False,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        cache: dict[str, Tensor] | None = None,
        pos_slice: Any = None,
    ) -> tuple[dict[str, Tensor], list[tuple[str, Hook]], list[tuple[str, Hook]]]:
        """A cache, the forward hooks that fill it, and no backward hooks; for use with ``hooks``."""
        if pos_slice is not None:
            raise UsageError(
                "pos_slice is not supported, as it guesses the position axis from the hook's name; "
                "slice the cached tensor instead, e.g. cache['blocks.0.hook_resid_post'][:, -1:]"
            )
        if incl_bwd:
            raise UsageError(
                "incl_bwd=True needs a scalar output, but the model predicts a (batch, query, output) tensor; "
                "use 'with model.hooks(bwd_hooks=...):' and call backward on your loss inside"
            )
        filled = ActivationCache(self.hook_dict) if cache is None else cache

        def save(tensor: Tensor, *, hook: HookPoint) -> None:
            if remove_batch_dim:
                if len(tensor) != 1:
                    raise UsageError(
                        f"remove_batch_dim=True with a batch of {len(tensor)} prompts, expected 1; "
                        f"leave it out, or pass one prompt"
                    )
                tensor = tensor[0]
            filled[str(hook.name)] = tensor.detach().to(device)  # the hook point handed over a copy

        return filled, [(name, save) for name in self.hook_names(names_filter)], []

    def add_caching_hooks(
        self,
        names_filter: NamesFilter = None,
        incl_bwd: bool = False,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        cache: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """A cache that every forward pass fills until ``reset_hooks()``."""
        filled, forward, _ = self.get_caching_hooks(names_filter, incl_bwd, device, remove_batch_dim, cache)
        for name, save in forward:
            self.add_hook(name, save)
        return filled

    def list_hooks(
        self,
        name_filter: NamesFilter = None,
        dir: Literal["fwd", "bwd", "both"] = "both",
        including_permanent: bool = True,
    ) -> dict[str, list[LensHandle]]:
        """The hooks now in place, by name; hook points without any are left out."""
        return super().list_hooks(self.hook_names(name_filter), dir, including_permanent)

    def _wanted(self, direction: Direction, pairs: Hooks) -> list[tuple[HookPoint, CountedHook, Direction]]:
        """The hook points and hooks that pairs (name or predicate, hook) ask for."""
        wanted: list[tuple[HookPoint, CountedHook, Direction]] = []
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise UsageError(f"{direction}_hooks holds {pair!r}, expected pairs (hook name or predicate, function)")
            for name in self.hook_names(pair[0]):
                require_hook(name, pair[1])
                wanted.append((self.hook_dict[name], CountedHook(pair[1]), direction))
        return wanted

    def _require_tokens(self, name: str, value: object) -> None:
        shape = f"(batch, number of {'queries' if name == 'query' else 'tokens'}, {self.spec.width}), none of them 0"
        if not isinstance(value, Tensor):
            raise UsageError(f"{name} is of type {type(value).__name__}, expected a torch tensor of shape {shape}")
        if value.ndim != 3 or value.shape[2] != self.spec.width or 0 in value.shape:
            raise UsageError(
                f"{name} has shape {tuple(value.shape)}, expected {shape}; "
                f"the channels are {dict(self.spec.tokens)}, which adds up to {self.spec.width}"
            )
        weights = next(self.buffers())
        if value.dtype != weights.dtype:
            raise UsageError(
                f"{name} has dtype {value.dtype}, but the model has {weights.dtype}; convert one of them with .to(...)"
            )
        if value.device != weights.device:
            raise UsageError(f"{name} is on {value.device}, but the model on {weights.device}; move one with .to(...)")
