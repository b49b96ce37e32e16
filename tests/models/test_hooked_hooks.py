"""The hook machinery: exact names, interventions that do what they say, and the traps of transformer_lens closed."""

from __future__ import annotations

import inspect

import pytest
import torch
from hooked_examples import (
    BATCH,
    CONTEXT,
    HEADS,
    LAYERS,
    NAMES,
    QUERIES,
    SUFFIXES,
    WIDTH,
    assert_clean,
    look,
    make,
    normal,
)
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from interp.errors import UsageError
from interp.models.hooked import HookedLinearTransformer


@pytest.fixture
def model() -> HookedLinearTransformer:
    return make()


@pytest.fixture
def prompts() -> tuple[Tensor, Tensor]:
    return normal(1, BATCH, CONTEXT, WIDTH), normal(2, BATCH, QUERIES, WIDTH)


@pytest.fixture
def sequence() -> Tensor:
    return normal(3, BATCH, CONTEXT, WIDTH)


# Names


def test_the_hook_points_are_exactly_these_in_order_of_execution(model, prompts):
    assert list(model.hook_dict) == NAMES
    assert [point.name for point in model.hook_points()] == NAMES
    # every hook point there is was registered by setup(), and runs once per forward pass
    assert sum(isinstance(module, HookPoint) for module in model.modules()) == len(NAMES)
    ran: list[str] = []
    model.run_with_hooks(*prompts, fwd_hooks=[(lambda name: True, lambda t, hook: ran.append(hook.name))])
    assert ran == NAMES
    assert list(model.run_with_cache(*prompts)[1]) == NAMES


@pytest.mark.parametrize(("keys", "pos", "source"), [("context", 5, 4), ("all", 5, 5), ("causal", 4, 4)])
def test_activation_shapes(keys, pos, source, prompts, sequence):
    arguments = (sequence,) if keys == "causal" else prompts
    output, cache = make(keys).run_with_cache(*arguments)
    assert output.shape == (BATCH, CONTEXT if keys == "causal" else QUERIES, 1)
    for layer in range(LAYERS):
        shapes = [tuple(cache[f"blocks.{layer}.{suffix}"].shape) for suffix in SUFFIXES]
        tokens = (BATCH, pos, WIDTH)
        assert shapes == [tokens, (BATCH, HEADS, pos, source), (BATCH, HEADS, pos, WIDTH), tokens, tokens]


CALLS = {
    "run_with_cache": lambda m, a, name: m.run_with_cache(*a, names_filter=name),
    "get_caching_hooks": lambda m, a, name: m.get_caching_hooks(name),
    "add_caching_hooks": lambda m, a, name: m.add_caching_hooks(name),
    "list_hooks": lambda m, a, name: m.list_hooks(name),
    "run_with_hooks": lambda m, a, name: m.run_with_hooks(*a, fwd_hooks=[(name, look)]),
    "hooks": lambda m, a, name: m.hooks(fwd_hooks=[(name, look)]).__enter__(),
    "hooks backward": lambda m, a, name: m.hooks(bwd_hooks=[(name, look)]).__enter__(),
    "add_hook": lambda m, a, name: m.add_hook(name, look),
    "add_perma_hook": lambda m, a, name: m.add_perma_hook(name, look),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_misspelt_name_is_an_error_that_suggests_the_right_one(call, model, prompts):
    with pytest.raises(UsageError, match=r"no hook point is named 'blocks\.1\.hook_atn_out'; did you mean") as caught:
        call(model, prompts, "blocks.1.hook_atn_out")
    assert "'blocks.1.hook_attn_out'" in str(caught.value)
    with pytest.raises(UsageError, match="no hook point is named 'blocks'"):  # a module, but not a hook point
        call(model, prompts, "blocks")
    assert_clean(model)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_predicate_that_selects_nothing_is_an_error(call, model, prompts):
    with pytest.raises(UsageError, match=r"selects none of the 10 hook points.*'blocks\.0\.hook_resid_pre'"):
        call(model, prompts, lambda name: name.endswith("hook_q"))
    assert_clean(model)


@pytest.mark.parametrize("kind", [list, tuple])
def test_names_can_be_a_list_or_a_tuple(kind, model, prompts):
    chosen = ["blocks.1.hook_resid_post", "blocks.0.attn.hook_scores"]
    assert list(model.run_with_cache(*prompts, names_filter=kind(chosen))[1]) == chosen[::-1]  # in order of execution
    with pytest.raises(UsageError, match=r"no hook point is named 'blocks\.2\.hook_resid_pre'"):
        model.run_with_cache(*prompts, names_filter=kind([*chosen, "blocks.2.hook_resid_pre"]))
    with pytest.raises(UsageError, match="selects none"):
        model.run_with_cache(*prompts, names_filter=kind())


def test_names_can_be_one_name_or_a_predicate(model, prompts):
    assert list(model.run_with_cache(*prompts, names_filter=NAMES[3])[1]) == [NAMES[3]]
    cache = model.run_with_cache(*prompts, names_filter=lambda name: name.endswith("scores"))[1]
    assert list(cache) == [NAMES[1], NAMES[6]]


def test_reading_a_name_that_the_cache_lacks_says_why(model, prompts):
    cache = model.run_with_cache(*prompts, names_filter=NAMES[:2])[1]
    with pytest.raises(UsageError, match="names_filter left it out"):
        cache[NAMES[5]]
    with pytest.raises(UsageError, match="did you mean 'blocks"):
        cache["blocks.0.hook_resid_per"]
    assert NAMES[5] not in cache and cache.get(NAMES[5]) is None


# Hooks as functions


@pytest.mark.parametrize("bad", [lambda tensor: tensor, lambda tensor, h: tensor, lambda: None])
@pytest.mark.parametrize("call", ["run_with_hooks", "add_hook"])
def test_a_hook_of_the_wrong_form_is_refused_before_anything_runs(bad, call, model, prompts):
    with pytest.raises(UsageError, match=r"on 'blocks\.0\.hook_resid_pre' takes .*expected fn\(tensor, \*, hook\)"):
        if call == "add_hook":
            model.add_hook(NAMES[0], bad)
        else:
            model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[0], bad)])
    assert_clean(model)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ((NAMES[0], look, "fwd"), "fwd_hooks holds .*expected pairs"),
        (NAMES[0], "fwd_hooks holds .*expected pairs"),
        ((NAMES[0], "double"), r"the hook on 'blocks\.0\.hook_resid_pre' is 'double', expected a function"),
        ((NAMES[0], None), r"the hook on 'blocks\.0\.hook_resid_pre' is None, expected a function"),
    ],
)
def test_hooks_must_be_pairs_of_a_name_and_a_function(pair, message, model):
    # inside the type checks of this suite, which users do not have, and which stop such calls before
    wanted = inspect.unwrap(HookedLinearTransformer._wanted)
    with pytest.raises(UsageError, match=message):
        wanted(model, "fwd", [pair])


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        (lambda t, hook: t[:1], r"shape \(1, 5, 3\).*expected a tensor of shape \(3, 5, 3\)"),
        (lambda t, hook: t.sum(), r"shape \(\)"),
        (lambda t, hook: t[:, None], r"shape \(3, 1, 5, 3\)"),
        (lambda t, hook: t.float(), "dtype torch.float32.*expected .*dtype torch.float64"),
        (lambda t, hook: t.to("meta"), "on meta; expected .*on cpu"),
        (lambda t, hook: t.numpy(), "returned ndarray, expected a tensor or None"),
        (lambda t, hook: t.resize_(1), r"shape \(1,\)"),
    ],
)
@pytest.mark.parametrize("how", ["context", "permanent"])
def test_a_hook_that_changes_shape_dtype_or_device_is_refused(hook, message, how, model, prompts):
    with pytest.raises(UsageError, match=rf"the hook on 'blocks\.1\.hook_resid_pre' .*{message}"):
        if how == "context":
            model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[5], hook)])
        else:
            model.add_hook(NAMES[5], hook)
            model(*prompts)
    model.reset_hooks()
    assert_clean(model)


def test_an_edit_in_place_changes_the_run_but_not_the_callers_tensors(sequence):
    model, before = make("causal"), sequence.clone()

    def edit(tensor: Tensor, *, hook: HookPoint) -> None:
        tensor[:, 0] = 7.0

    def replace(tensor: Tensor, *, hook: HookPoint) -> Tensor:
        return torch.cat([torch.full_like(tensor[:, :1], 7.0), tensor[:, 1:]], dim=1)

    edited = model.run_with_hooks(sequence, fwd_hooks=[("blocks.0.hook_resid_pre", edit)])
    assert torch.equal(sequence, before)
    assert torch.equal(edited, model.run_with_hooks(sequence, fwd_hooks=[("blocks.0.hook_resid_pre", replace)]))
    assert not torch.equal(edited, model(sequence))


def test_an_edit_in_place_does_not_reach_what_an_earlier_hook_kept(model, prompts):
    kept = []

    def edit(tensor: Tensor, *, hook: HookPoint) -> None:
        tensor.zero_()

    model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[0], lambda t, hook: kept.append(t)), (NAMES[0], edit)])
    assert kept[0].abs().min() > 0


def test_the_cache_can_be_edited_without_harm(sequence):
    model, before = make("causal"), sequence.clone()
    output, cache = model.run_with_cache(sequence)
    after = cache[NAMES[5]].clone()
    cache[NAMES[0]].zero_()
    cache[NAMES[4]].zero_()  # resid_post of layer 0 is resid_pre of layer 1
    assert torch.equal(sequence, before)
    assert torch.equal(cache[NAMES[5]], after)
    assert torch.equal(model(sequence), output)


# What the interventions mean


def test_zeroing_a_head_is_the_network_without_that_head(prompts):
    def drop(tensor: Tensor, *, hook: HookPoint) -> None:
        tensor[:, 1] = 0.0

    expected = make(scale_heads=(1.0, 0.0))(*prompts)
    for suffix in ("attn.hook_scores", "attn.hook_head_out"):
        torch.testing.assert_close(
            make().run_with_hooks(*prompts, fwd_hooks=[(lambda name, s=suffix: name.endswith(s), drop)]),
            expected,
            rtol=1e-14,
            atol=1e-14,
        )


def test_zeroing_every_update_returns_the_input(model, prompts):
    output = model.run_with_hooks(*prompts, fwd_hooks=[(lambda n: n.endswith("attn_out"), lambda t, hook: 0 * t)])
    assert torch.equal(output, -prompts[1][..., 2:])


def test_patching_an_activation_from_another_run_continues_that_run(model, prompts):
    other = (prompts[0] + 1, prompts[1] - 1)
    output, cache = model.run_with_cache(*other)
    patch = [("blocks.0.hook_resid_post", lambda t, hook: cache[hook.name])]
    assert torch.equal(model.run_with_hooks(*prompts, fwd_hooks=patch), output)


def test_the_updates_add_up(model, prompts):
    cache = model.run_with_cache(*prompts)[1]
    for layer in range(LAYERS):
        pre, scores, head_out, attn_out, post = (cache[f"blocks.{layer}.{suffix}"] for suffix in SUFFIXES)
        assert torch.equal(head_out.sum(1), attn_out)
        assert torch.equal(pre + attn_out, post)
        P = model.blocks[layer].attn.P
        by_hand = torch.einsum("bhij,hac,bjc->bhia", scores, P, pre[:, :CONTEXT]) / CONTEXT
        torch.testing.assert_close(head_out, by_hand, rtol=1e-13, atol=1e-14)


# Refused options


def test_pos_slice_is_refused(model, prompts):
    with pytest.raises(UsageError, match=r"pos_slice is not supported.*slice the cached tensor"):
        model.run_with_cache(*prompts, pos_slice=-1)
    with pytest.raises(UsageError, match="pos_slice"):
        model.get_caching_hooks(pos_slice=slice(0, 1))


def test_backward_caching_is_refused_with_the_way_to_do_it(model, prompts):
    with pytest.raises(UsageError, match=r"incl_bwd=True needs a scalar.*model\.hooks\(bwd_hooks"):
        model.run_with_cache(*prompts, incl_bwd=True)


def test_remove_batch_dim_takes_one_prompt_only(model, prompts):
    one = (prompts[0][:1], prompts[1][:1])
    full, squeezed = model.run_with_cache(*one)[1], model.run_with_cache(*one, remove_batch_dim=True)[1]
    for name in NAMES:
        assert torch.equal(full[name][0], squeezed[name])
    for call in (
        lambda: model.run_with_cache(*prompts, remove_batch_dim=True),
        lambda: model.run_with_cache(tokens=prompts[0], query=prompts[1], remove_batch_dim=True),
    ):
        with pytest.raises(UsageError, match="remove_batch_dim=True with a batch of 3 prompts, expected 1"):
            call()
    assert_clean(model)
