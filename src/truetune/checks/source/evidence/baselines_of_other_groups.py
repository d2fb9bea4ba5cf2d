"""Finds advantages whose baseline is a mean over completions of other prompts, though each prompt has a group.

How it works: rewards less a mean of theirs are looked for. Where the rewards were viewed as groups (`(-1, k)`), the
mean has to be over the last dimension: one over all values, over the first dimension, or over one of the groups
(`groups[:1].mean()`) is of other prompts. Where the rewards are flat, any mean of theirs is, if each of several prompts
was copied k times.

The trade-off: copies have to be seen, neighbours for the first dimension, and more than one prompt. A value that has
already been reduced by its group's mean may be normalised over the batch (REINFORCE++ with a baseline, advantage
whitening), and is left alone. So is a file that never speaks of groups or of GRPO, or that names REINFORCE: a mean of
the batch is a baseline, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.policy_training_loops import (
    has_own_policy_loss,
    loops_around,
    tensor_of_list,
    without_casts,
)
from truetune.checks.source.evidence.rewards_viewed_as_groups import (
    GroupView,
    factor_of_copies_as_blocks,
    factor_of_copies_in_runs,
    group_views,
    is_same_number,
)
from truetune.source.parsed_source_file import Module

REWARDS = re.compile(r"reward|return|score|advantage|\badvs?\b|group", re.I)
OF_GROUPS = re.compile(r"grpo|group|rloo", re.I)
OF_BATCHES = re.compile(r"reinforce|ppo_?whiten|whiten", re.I)
"""Words of methods whose baseline is a mean of the batch"""
MEANS = ("mean", "nanmean", "average")
RESHAPED = ("unsqueeze", "view", "reshape", "expand", "expand_as", "repeat", "item", "keepdim")
LAST = (1, -1)
CALLERS = 3
"""Functions that are followed outwards. Chosen, not measured: loop, step and loss are three"""


class ForeignBaseline(NamedTuple):
    """Rewards from which a mean over other prompts is taken."""

    centring: ast.BinOp
    mean: ast.expr
    copies: ast.AST
    """What gives each prompt several completions: the view as groups, or the code that copies the prompts"""
    is_one_group: bool
    """Is the mean that of one group, rather than of all?"""


class _Mean(NamedTuple):
    """A mean: of what, and over which dimension (None: all)."""

    node: ast.expr
    of: ast.expr
    dimension: int | None


def centrings(module: Module) -> Iterator[ast.BinOp]:
    """Rewards less something, in files with a policy loss of their own that speak of groups."""
    is_of_groups = OF_GROUPS.search(module.text) and not OF_BATCHES.search(module.text)
    if not is_of_groups or not has_own_policy_loss(module):
        return
    for node in module.nodes(ast.BinOp):
        if isinstance(node.op, ast.Sub) and REWARDS.search(ast.unparse(node.left)):
            yield node


def baselines_of_other_groups(module: Module) -> Iterator[ForeignBaseline]:
    """The advantages of a file whose baseline is a mean over other prompts, each once."""
    views = {view.node: view for view in group_views(module)}
    for centring in centrings(module):
        mean = _mean_behind(module, centring.right)
        if mean is None or _is_already_centred(module, centring.left):
            continue
        view = _view_behind(module, centring.left, views)
        if view is not None:
            foreign_baseline = _foreign_mean_of_groups(module, centring, mean, view)
        else:
            foreign_baseline = _foreign_mean_of_flat_rewards(module, centring, mean)
        if foreign_baseline is not None:
            yield foreign_baseline


def _mean_behind(module: Module, node: ast.expr) -> _Mean | None:
    """The mean that a baseline is, through names and reshapes; None where it is none."""
    for origin in module.flow.origins(node):
        inner = origin.node
        while isinstance(inner, ast.Call | ast.Subscript):
            if isinstance(inner, ast.Subscript):
                inner = inner.value
                continue
            if isinstance(inner.func, ast.Attribute) and inner.func.attr in MEANS:
                return _mean_of_call(module, inner)
            is_reshape = isinstance(inner.func, ast.Attribute) and inner.func.attr in RESHAPED
            if not is_reshape or not isinstance(inner.func, ast.Attribute):
                break
            inner = inner.func.value
            if isinstance(inner, ast.Name):
                return _mean_behind(module, inner)
    return None


def _mean_of_call(module: Module, call: ast.Call) -> _Mean | None:
    """A call of `mean`, taken apart."""
    assert isinstance(call.func, ast.Attribute), "the caller looked"
    given = list(call.args)
    of = call.func.value
    if module.flow.name(call.func) is not None:
        if not given:
            return None
        of = given.pop(0)
    written = next((one.value for one in call.keywords if one.arg in ("dim", "axis")), None)
    written = written or (given[0] if given else None)
    if written is None:
        return _Mean(call, of, None)
    dimension = module.flow.value(written)
    return _Mean(call, of, dimension) if isinstance(dimension, int) else None


def _view_behind(
    module: Module, node: ast.expr, views: dict[ast.Call, GroupView]
) -> GroupView | None:
    """The view as groups that a tensor is; None where it is none."""
    for origin in module.flow.origins(without_casts(node)):
        made = without_casts(origin.node) if isinstance(origin.node, ast.expr) else None
        if isinstance(made, ast.Call) and made in views and not origin.element:
            return views[made]
    return None


def _foreign_mean_of_groups(
    module: Module, centring: ast.BinOp, mean: _Mean, view: GroupView
) -> ForeignBaseline | None:
    """A mean that is not over the last dimension, of rewards in groups of k neighbours."""
    if mean.dimension in LAST or not _is_view_of_runs(module, view):
        return None
    is_one_group = isinstance(mean.of, ast.Subscript)
    base = without_casts(mean.of.value) if isinstance(mean.of, ast.Subscript) else mean.of
    if ast.unparse(without_casts(base)) != ast.unparse(without_casts(centring.left)):
        return None
    if isinstance(mean.of, ast.Subscript) and not _takes_first_groups(mean.of):
        return None
    return ForeignBaseline(centring, mean.node, view.node, is_one_group)


def _takes_first_groups(taken: ast.Subscript) -> bool:
    """Does a subscript take certain groups: a number, or a range of the first dimension?"""
    if isinstance(taken.slice, ast.Slice):
        return True
    return isinstance(taken.slice, ast.Constant) and isinstance(taken.slice.value, int)


def _is_view_of_runs(module: Module, view: GroupView) -> bool:
    """Does a view have one group in each row: are k copies next to each other, with k as its last size?"""
    for part in backward_slice(module, view.viewed):
        factor = factor_of_copies_in_runs(part)
        if factor is not None and is_same_number(module, view.sizes[1], factor):
            return True
    return False


def _is_already_centred(module: Module, node: ast.expr) -> bool:
    """Is a mean taken from a value before: do its origins hold a difference?"""
    for origin in module.flow.origins(without_casts(node)):
        if not isinstance(origin.node, ast.expr):
            continue
        for part in ast.walk(origin.node):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub):
                return True
    return False


def _foreign_mean_of_flat_rewards(
    module: Module, centring: ast.BinOp, mean: _Mean
) -> ForeignBaseline | None:
    """Any mean of flat rewards of a whole batch, where each of several prompts was copied."""
    whole = without_casts(mean.of)
    if ast.unparse(whole) != ast.unparse(without_casts(centring.left)):
        return None
    if mean.dimension not in (None, 0, -1) or isinstance(whole, ast.Subscript):
        return None
    for origin in module.flow.origins(whole):
        call = tensor_of_list(origin.node)
        if call is None or origin.path or origin.element:
            return None
        copies = _copies_of_several_prompts(module, call)
        if copies is not None and _is_of_same_pass(module, call, copies):
            return ForeignBaseline(centring, mean.node, copies, False)
    return None


def _copies_of_several_prompts(module: Module, made: ast.Call) -> ast.AST | None:
    """The code that copies each of several prompts, behind a tensor of rewards."""
    for part in backward_slice(module, made.args[0]):
        factor = factor_of_copies_in_runs(part) or factor_of_copies_as_blocks(module, part)
        if factor is None or module.flow.value(factor) == 1:
            continue
        if isinstance(part, ast.ListComp | ast.GeneratorExp | ast.BinOp):
            return part
    return None


def _is_of_same_pass(module: Module, made: ast.AST, copies: ast.AST, depth: int = CALLERS) -> bool:
    """Are rewards made of all copies: is every loop around the tensor around the copies, too?

    A tensor that a function makes counts where all calls of the function do.
    """
    function = module.function_around(made)
    if function is module.function_around(copies):
        outer = loops_around(module, copies)
        return all(any(loop is one for one in outer) for loop in loops_around(module, made))
    if function is None or depth == 0 or loops_around(module, made):
        return False
    callers = module.flow.calls_of_function_or_class(function)
    return bool(callers) and all(
        _is_of_same_pass(module, caller, copies, depth - 1) for caller in callers
    )
