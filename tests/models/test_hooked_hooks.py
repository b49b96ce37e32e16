"""The hook machinery: exact names, interventions that do what they say, and the traps of transformer_lens closed."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from interp.models.errors import UsageError
from interp.models.hooked import HookedLinearTransformer
from interp.models.specification import ModelSpec
from interp.models.transformer import LinearTransformer

BATCH, LAYERS, HEADS, CONTEXT, QUERIES, WIDTH = 3, 2, 2, 4, 1, 3
SUFFIXES = ["hook_resid_pre", "attn.hook_scores", "attn.hook_head_out", "hook_attn_out", "hook_resid_post"]
NAMES = [f"blocks.{layer}.{suffix}" for layer in range(LAYERS) for suffix in SUFFIXES]


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(keys: str = "context", scale_heads: tuple[float, float] = (1.0, 1.0)) -> HookedLinearTransformer:
    Q, P = 0.3 * normal(0, 2, LAYERS, HEADS, WIDTH, WIDTH)
    spec = ModelSpec.from_dict({"tokens": [["x", 2], ["y", 1]], "attention": {"keys": keys, "scale": "1/n"}})
    return HookedLinearTransformer(
        LinearTransformer(spec=spec, Q=Q, P=P * torch.tensor(scale_heads, dtype=P.dtype)[:, None, None])
    )


@pytest.fixture
def model() -> HookedLinearTransformer:
    return make()


@pytest.fixture
def prompts() -> tuple[Tensor, Tensor]:
    return normal(1, BATCH, CONTEXT, WIDTH), normal(2, BATCH, QUERIES, WIDTH)


@pytest.fixture
def sequence() -> Tensor:
    return normal(3, BATCH, CONTEXT, WIDTH)


def double(tensor: Tensor, *, hook: HookPoint) -> Tensor:
    return 2 * tensor


def look(tensor: Tensor, *, hook: HookPoint) -> None:
    return None


def fail(tensor: Tensor, *, hook: HookPoint) -> None:
    raise ZeroDivisionError("in a hook")


def assert_clean(model: HookedLinearTransformer) -> None:
    """No hook is left, in the bookkeeping of transformer_lens or in torch's own."""
    assert model.list_hooks() == {}
    assert model.context_level == 0
    for point in model.hook_points():
        assert not point._forward_hooks and not point._backward_hooks


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


# Hooks end when their context ends, and only then


@pytest.mark.parametrize("how", ["hook", "input", "body"])
def test_no_hook_is_left_after_an_exception(how, model, prompts):
    expected = model(*prompts)
    if how == "hook":
        with pytest.raises(ZeroDivisionError):
            model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[0], double), (NAMES[6], fail), (NAMES[7], look)])
        with pytest.raises(ZeroDivisionError), model.hooks([(NAMES[6], fail)]):
            model.run_with_cache(*prompts)
    elif how == "input":
        with pytest.raises(UsageError, match="dtype"):
            model.run_with_hooks(prompts[0].float(), prompts[1], fwd_hooks=[(NAMES[0], double)])
        with pytest.raises(UsageError, match="dtype"):
            model.run_with_cache(prompts[0].float(), prompts[1])
    else:  # and the complaint about hooks that never ran does not hide the first error
        with pytest.raises(ZeroDivisionError), model.hooks([(NAMES[0], double)], [(NAMES[1], look)]):
            raise ZeroDivisionError
    assert_clean(model)
    assert torch.equal(model(*prompts), expected)


def test_inner_contexts_leave_the_outer_hooks_alone(model, prompts):
    plain = model(*prompts)
    with model.hooks([(NAMES[3], double)]):
        outer = model(*prompts)
        assert not torch.equal(outer, plain)
        with model.hooks([(NAMES[8], double)]):
            assert not torch.equal(model(*prompts), outer)
        assert torch.equal(model(*prompts), outer)
        model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[8], double)])
        output, cache = model.run_with_cache(*prompts)
        assert torch.equal(output, outer)
        torch.testing.assert_close(cache[NAMES[3]], 2 * cache[NAMES[2]].sum(1), rtol=0, atol=0)  # sees the outer patch
        with pytest.raises(ZeroDivisionError):
            model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[8], fail)])
        model.reset_hooks()
        assert torch.equal(model(*prompts), outer)
    assert_clean(model)
    assert torch.equal(model(*prompts), plain)


def test_contexts_may_end_in_any_order(model, prompts):
    first, second = model.hooks([(NAMES[3], double)]), model.hooks([(NAMES[8], double)])
    first.__enter__()
    only_first = model(*prompts)
    second.__enter__()
    both = model(*prompts)
    first.__exit__(None, None, None)
    only_second = model(*prompts)
    assert len({float(value.sum()) for value in (only_first, both, only_second)}) == 3
    model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[3], double)])
    assert torch.equal(model(*prompts), only_second)
    second.__exit__(None, None, None)
    assert_clean(model)


def test_added_hooks_stay_until_reset_hooks(model, prompts):
    plain = model(*prompts)
    model.add_hook(NAMES[3], double)
    added = model(*prompts)
    with model.hooks([(NAMES[8], look)]):
        model(*prompts)
    model.run_with_cache(*prompts)
    assert torch.equal(model(*prompts), added) and not torch.equal(added, plain)
    model.reset_hooks()
    assert torch.equal(model(*prompts), plain)
    assert_clean(model)


def test_hooks_kept_with_reset_hooks_end_outlive_other_contexts(model, prompts):
    plain = model(*prompts)
    kept = model.run_with_hooks(*prompts, fwd_hooks=[(NAMES[3], double)], reset_hooks_end=False)
    with model.hooks([(NAMES[8], look)]):
        model(*prompts)
    assert torch.equal(model(*prompts), kept) and not torch.equal(kept, plain)
    model.reset_hooks()
    assert torch.equal(model(*prompts), plain)
    assert_clean(model)


def test_permanent_hooks_survive_reset_hooks(model, prompts):
    plain = model(*prompts)
    model.add_perma_hook(NAMES[3], double)
    model.reset_hooks()
    assert not torch.equal(model(*prompts), plain)
    model.reset_hooks(including_permanent=True)
    assert torch.equal(model(*prompts), plain)
    assert_clean(model)


def test_caching_hooks_fill_the_cache_until_reset(model, prompts):
    cache = model.add_caching_hooks(NAMES[4])
    model(*prompts)
    assert torch.equal(cache[NAMES[4]], model.run_with_cache(*prompts, names_filter=NAMES[4])[1][NAMES[4]])
    model.reset_hooks()
    assert_clean(model)


def test_list_hooks_shows_the_functions_that_were_given(model):
    model.add_hook(NAMES[0], double)
    with pytest.raises(UsageError, match="never ran"), model.hooks([(NAMES[0], look)]):
        assert [handle.user_hook for handle in model.list_hooks(NAMES[0])[NAMES[0]]] == [double, look]


# Every intervention has to run


@pytest.mark.parametrize("direction", ["fwd_hooks", "bwd_hooks"])
def test_a_context_in_which_a_hook_never_runs_is_an_error(direction, model, prompts):
    never = rf"hook on 'blocks\.0\.attn\.hook_scores' never ran: no {direction[:1]}"
    with pytest.raises(UsageError, match=never), model.hooks(**{direction: [(NAMES[1], look)]}):
        if direction == "fwd_hooks":
            make()(*prompts)  # another model
        else:
            model(*prompts)  # without a backward pass
    assert_clean(model)


def test_backward_hooks_that_would_be_removed_before_they_run_are_refused(model, prompts):
    with pytest.raises(UsageError, match="run_with_hooks removes them before a backward pass"):
        model.run_with_hooks(*prompts, bwd_hooks=[(NAMES[0], look)])
    assert_clean(model)


def test_backward_hooks_see_and_change_the_gradient(model, prompts):
    context, query = prompts[0].requires_grad_(), prompts[1].requires_grad_()
    kept, seen = {}, {}
    with model.hooks(
        [(NAMES[4], lambda t, hook: kept.update({hook.name: t}))],
        [(NAMES[4], lambda t, hook: seen.update({hook.name: t}))],
    ):
        output = model(context, query)
        plain = torch.autograd.grad(output.square().sum(), (kept[NAMES[4]], query), retain_graph=True)
        output.square().sum().backward()
    torch.testing.assert_close(seen[NAMES[4]], plain[0], rtol=0, atol=0)
    torch.testing.assert_close(query.grad, plain[1], rtol=0, atol=0)

    with model.hooks(bwd_hooks=[(NAMES[4], double)]):
        changed = torch.autograd.grad(model(context, query).square().sum(), query)[0]
    torch.testing.assert_close(changed, 2 * plain[1], rtol=1e-13, atol=0)

    cut = [(NAMES[4], lambda t, hook: t[:1])]
    with pytest.raises(UsageError, match="gave a tensor of shape"), model.hooks(bwd_hooks=cut):
        model(context, query).sum().backward()
    assert_clean(model)


# The rest of torch keeps working


def test_gradients_reach_the_inputs_and_pass_through_hooks_that_only_look(model, prompts):
    context, query = (t.requires_grad_() for t in prompts)
    plain = torch.autograd.grad(model(context, query).sum(), (context, query))
    hooked = torch.autograd.grad(
        model.run_with_hooks(context, query, fwd_hooks=[(lambda name: True, look)]).sum(), (context, query)
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, hooked, strict=True))
    output, cache = model.run_with_cache(context, query)
    assert output.requires_grad and not any(value.requires_grad for value in cache.values())


def test_jacrev_and_vmap(model, prompts):
    context, query = prompts
    # for keys = "context" the prediction is linear in the query token: -y of T^1 T^0 e
    jacobian = torch.func.vmap(torch.func.jacrev(lambda e, c: model(c[None], e[None, None])[0, 0, 0]), in_dims=(0, 0))(
        query[:, 0], context
    )
    torch.testing.assert_close(
        torch.einsum("ba,ba->b", jacobian, query[:, 0]), model(context, query)[:, 0, 0], rtol=1e-13, atol=1e-14
    )
    each = torch.func.vmap(lambda c, e: model.run_with_hooks(c[None], e[None], fwd_hooks=[(NAMES[3], double)])[0])
    torch.testing.assert_close(
        each(context, query),
        model.run_with_hooks(context, query, fwd_hooks=[(NAMES[3], double)]),
        rtol=1e-13,
        atol=1e-14,
    )
    assert_clean(model)


def test_gradients_in_the_weights_by_functional_call(model, prompts):
    def loss(P: Tensor) -> Tensor:
        return torch.func.functional_call(model, {"blocks.0.attn.P": P}, prompts).square().sum()

    P, step = model.blocks[0].attn.P, 1e-6
    direction = normal(5, *P.shape)
    slope = (loss(P + step * direction) - loss(P - step * direction)) / (2 * step)
    torch.testing.assert_close((torch.func.grad(loss)(P) * direction).sum(), slope, rtol=1e-7, atol=1e-9)


def test_deepcopy_is_independent(model, prompts):
    twin = copy.deepcopy(model)
    assert list(twin.hook_dict) == NAMES
    expected = model(*prompts)
    twin.add_hook(NAMES[3], double)
    twin.blocks[0].attn.Q.zero_()
    assert_clean(model)
    assert torch.equal(model(*prompts), expected) and not torch.equal(twin(*prompts), expected)


def test_the_state_is_the_weights(model):
    assert list(model.state_dict()) == [f"blocks.{layer}.attn.{matrix}" for layer in range(2) for matrix in "QP"]
    assert not list(model.parameters())


def test_to_another_precision(model, prompts):
    single = copy.deepcopy(model).to(torch.float32)
    assert single(*(t.float() for t in prompts)).dtype == torch.float32
    with pytest.raises(UsageError, match=r"dtype torch\.float64, but the model has torch\.float32"):
        single(*prompts)


def test_hooks_of_torch_on_the_model_run_in_every_way_of_running_it(model, prompts):
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    model(*prompts), model.run_with_hooks(*prompts), model.run_with_cache(*prompts)
    handle.remove()
    assert len(calls) == 3
