"""Hooks end when their context ends and not before, gradients pass through them, and the model is like any module."""

from __future__ import annotations

import copy

import pytest
import torch
from hooked_examples import (
    BATCH,
    CONTEXT,
    NAMES,
    QUERIES,
    WIDTH,
    assert_clean,
    double,
    fail,
    look,
    make,
    normal,
)
from torch import Tensor

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
