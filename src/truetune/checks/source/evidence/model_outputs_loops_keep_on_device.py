"""Finds large outputs of a model (logits, hidden states) that a loop keeps on the device: what is
added to a list in each step, and how large it is.

The list may be one of an object or a function that the loop hands the output to
(`functions_that_keep_loop_results.py`).

Size is judged by the part of the output (logits, hidden states, attentions), for no code says its
shapes. What is moved to the CPU, cut to a slice or kept in a list that is emptied in the loop is
left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.functions_that_keep_loop_results import (
    CallThatKeeps,
    calls_of_function_keeping_results,
    holder_is_emptied,
    is_bounded_queue,
    lightning_batch_hook_keeping_results,
    output_returned_by_lightning_step,
)
from truetune.source.parsed_source_file import Module

LARGE_PARTS = frozenset(
    ("logits", "hidden_states", "last_hidden_state", "attentions", "past_key_values", "scores")
)
"""Parts of an output with a vector, a matrix or a vocabulary for each token"""
SIZE_KEEPING_METHODS = frozenset(
    ("detach", "clone", "float", "half", "bfloat16", "double", "contiguous", "to")
)
"""Methods whose result is as large, and on the same device where `to` names none of the CPU"""
MODEL_NAMES = frozenset(("model", "net", "llm", "network"))
SIZE_KEEPING_CALLS = (
    "torch.stack",
    "torch.cat",
    "torch.nn.functional.softmax",
    "torch.nn.functional.log_softmax",
)
RESHAPING_METHODS = frozenset(
    ("softmax", "log_softmax", "squeeze", "unsqueeze", "view", "reshape", "flatten")
)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
STEP_METHODS = frozenset(("training_step", "validation_step", "test_step", "predict_step"))
"""Methods that Lightning calls for each batch"""
EMPTYING_METHODS = frozenset(("clear", "pop", "popleft", "popitem"))
# Moves, joins and names between the output and the list. Chosen, not measured; it ends chains that refer to each other.
MAX_STEPS = 8
FEW_STEPS = 64
"""A loop over fewer steps, as its code says, is a trial or a loop over layers: it keeps little"""


# Chosen, not measured: what is kept more seldom may be meant, and grows slowly.
MAX_PERIOD = 100
GENERATED_PARTS = (
    "output_scores",
    "output_logits",
    "output_hidden_states",
    "output_attentions",
)
"""Arguments of generate() that make its result hold a vocabulary or a vector for each new token"""


class KeptOutput(NamedTuple):
    """A place where a loop keeps an output."""

    node: ast.AST
    holder: ast.expr
    """The list"""
    value: ast.expr
    part: str
    """The part of the output: `logits`; `output` where all of it is kept"""
    forward: ast.Call
    """The call of the model"""


def model_outputs_kept_in_loops(module: Module) -> Iterator[KeptOutput]:
    """The places where a list or dictionary gets a large part of a model's output, in the loop that
    calls the model.
    """
    for node, holder, value in _stores_into_list_or_dict(module):
        large = _large_output_part(module, value)
        if large is None:
            continue
        part, forward = large
        if _does_holder_accumulate_outputs(module, node, holder, forward):
            yield KeptOutput(node, holder, value, part, forward)


def _does_holder_accumulate_outputs(
    module: Module, node: ast.AST, holder: ast.expr, forward: ast.Call
) -> bool:
    """Does a holder get more and more outputs: through a function, a hook of Lightning, or a loop?"""
    kept = calls_of_function_keeping_results(module, node, holder, forward)
    if kept:
        return _is_keeping_function_called_repeatedly(module, kept[0], node, forward)
    hook = lightning_batch_hook_keeping_results(module, node, holder)
    if hook is not None:
        is_kept = not _does_condition_decide_if_place_is_reached_at_all(module, node, hook.function)
        return is_kept and not holder_is_emptied(module, hook, hook.function)
    loop = _shared_loop(module, node, forward)
    is_list_of_step = isinstance(loop, FUNCTIONS) and not ast.unparse(holder).startswith("self.")
    if loop is None or is_list_of_step:
        return False
    return not _is_renewed_or_rarely_filled(module, node, holder, loop)


def _is_keeping_function_called_repeatedly(
    module: Module, kept: CallThatKeeps, node: ast.AST, forward: ast.Call
) -> bool:
    """Is a function that keeps what it is given called again and again, by a loop or a step of
    Lightning?
    """
    loop = _shared_loop(module, kept.call, forward)
    if loop is None or _does_condition_decide_if_place_is_reached_at_all(
        module, node, kept.function
    ):
        return False
    is_seldom = _does_condition_decide_if_place_is_reached_at_all(module, kept.call, loop) or (
        isinstance(loop, ast.For) and _iterates_few_steps(module, loop.iter)
    )
    if kept.is_renewed_in_each_step(module, loop):
        return False  # an object of one step
    return not is_seldom and not holder_is_emptied(module, kept, loop)


def _stores_into_list_or_dict(module: Module) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """The statements and calls that put something into a list or dictionary: the place, the holder
    and each value.

    `kept.append(x)`, `kept += [x]` and `kept[i] = x`.
    """
    for call in module.methods("append", "appendleft"):
        if call.receiver is not None and len(call.args) == 1:
            for value in _parts_of_item(call.args[0]):
                yield call.node, call.receiver, value
    for added in module.nodes(ast.AugAssign):
        if isinstance(added.op, ast.Add) and isinstance(added.value, ast.List):
            for value in added.value.elts[:1]:
                yield added, added.target, value
    for assigned in module.nodes(ast.Assign):
        target = assigned.targets[0]
        # `outputs["logits"] = x` is written again in each step; only a key that varies collects.
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant):
            yield assigned, target.value, assigned.value


def _parts_of_item(item: ast.expr) -> list[ast.expr]:
    """What one item of a list holds: the values of a dictionary, the elements of a tuple, or the
    item itself.
    """
    if isinstance(item, ast.Dict):
        return item.values
    return item.elts if isinstance(item, ast.Tuple) else [item]


def _large_output_part(module: Module, value: ast.expr) -> tuple[str, ast.Call] | None:
    """The name of the large part of a model's output that a value is, still on its device, with the
    model's call; None for anything else.
    """
    for _ in range(MAX_STEPS):
        named = _name_of_output_part(value)
        if named not in LARGE_PARTS or not isinstance(value, ast.Attribute | ast.Subscript):
            forward = _forward_call(module, value)
            part, inner = "output", _same_size_source(module, value)
        elif isinstance(value, ast.Attribute):
            forward = _forward_call(module, value.value)
            forward = forward or _forward_call_by_name(module, value.value)
            part, inner = named, None
        else:
            forward = _forward_call(module, value.value)
            part, inner = named, output_returned_by_lightning_step(module, value.value, named)
        if forward is not None:
            return part, forward
        if inner is None:
            return None
        value = inner
    return None


def _name_of_output_part(value: ast.expr) -> str:
    """The name of the part of an output that is read: `logits` of `out.logits` and of
    `out["logits"]`; empty for any other expression.
    """
    return value.attr if isinstance(value, ast.Attribute) else _constant_key(value) or ""


def _same_size_source(module: Module, value: ast.expr) -> ast.expr | None:
    """The expression that a value is as large as, where it leaves it on its device; None where
    nothing is known.
    """
    if isinstance(value, ast.Subscript):
        # One layer of a tuple, one row of a batch of one; a slice of tokens is small.
        return None if isinstance(value.slice, ast.Slice | ast.Tuple) else value.value
    if isinstance(value, ast.Name):
        return _only_value_of_name(module, value)
    if not isinstance(value, ast.Call):
        return None
    call = module.flow.call(value)
    if call.named(*SIZE_KEEPING_CALLS) and call.args:
        return call.args[0]
    if call.receiver is None or call.method not in SIZE_KEEPING_METHODS | RESHAPING_METHODS:
        return None
    arguments = [*call.args, *call.keywords.values()]
    return None if any("cpu" in ast.unparse(one) for one in arguments) else call.receiver


def _only_value_of_name(module: Module, name: ast.Name) -> ast.expr | None:
    """The one expression that a name stands for; None where there are several, or a part of one."""
    origins = module.flow.origins(name)
    if len(origins) != 1 or origins[0].path or origins[0].element:
        return None
    value = origins[0].node
    return value if isinstance(value, ast.expr) and value is not name else None


def _constant_key(value: ast.expr) -> str | None:
    """The text that an entry is read by: the key of `outputs["logits"]`; None of a key that varies."""
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return value.slice.value if isinstance(value.slice.value, str) else None
    return None


def _forward_call(module: Module, output: ast.expr) -> ast.Call | None:
    """The call of a model that gave this output."""
    origins = module.flow.origins(output)
    for origin in origins:
        node = origin.node
        if isinstance(node, ast.Call) and not origin.path and not origin.element:
            if "model" in module.flow.types(node.func) or _is_model_wrapper(module, node.func):
                return node
            if _generates_with_scores(module, node):
                return node
    return None


def _generates_with_scores(module: Module, node: ast.Call) -> bool:
    """Does `generate` return scores or hidden states: `return_dict_in_generate=True,
    output_scores=True`?
    """
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "generate":
        return False
    given = {one.arg for one in node.keywords if module.flow.value(one.value) is True}
    is_whole = "return_dict_in_generate" in given and not given.isdisjoint(GENERATED_PARTS)
    return is_whole and "model" in module.flow.types(node.func.value)


def _forward_call_by_name(module: Module, output: ast.expr) -> ast.Call | None:
    """The call of what is named a model, of which a part is read that only an output of one has:
    `self.model(**batch)` in a class that is given its model."""
    for origin in module.flow.origins(output):
        node = origin.node
        if isinstance(node, ast.Call) and not origin.path and not origin.element:
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in MODEL_NAMES:
                return node
    return None


def _is_model_wrapper(module: Module, called: ast.expr) -> bool:
    """Is what is called a wrapper that was put around a model?"""
    call = module.flow.producing_call(called)
    return call is not None and call.named("torch.*.DistributedDataParallel", "torch.compile")


def _shared_loop(module: Module, node: ast.AST, forward: ast.Call) -> ast.AST | None:
    """The innermost loop around both the place and the call of the model."""
    around = set(_loops_and_lightning_step_around(module, forward))
    return next(
        (loop for loop in _loops_and_lightning_step_around(module, node) if loop in around), None
    )


def _loops_and_lightning_step_around(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The loops around a place, the innermost first, and the step method of Lightning that they
    stand in.
    """
    for parent in module.parents(node):
        if isinstance(parent, FUNCTIONS):
            # A trainer calls it for each batch, as a loop would.
            if isinstance(parent, ast.FunctionDef) and parent.name in STEP_METHODS:
                yield parent
            return
        if isinstance(parent, LOOPS):
            yield parent


def _is_renewed_or_rarely_filled(
    module: Module, node: ast.AST, holder: ast.expr, loop: ast.AST
) -> bool:
    """Is the list renewed in the loop, has the loop few steps, or does a condition decide on the
    place?
    """
    if _does_condition_decide_if_place_is_reached_at_all(module, node, loop):
        return True
    if isinstance(loop, ast.For) and _iterates_few_steps(module, loop.iter):
        return True
    name = ast.unparse(holder)
    for part in ast.walk(loop):
        if part is not node and _rebinds_name(part, name):
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            if part.func.attr in EMPTYING_METHODS and ast.unparse(part.func.value) == name:
                return True
    call = module.flow.producing_call(holder)
    return call is not None and is_bounded_queue(call.node)


def _does_condition_decide_if_place_is_reached_at_all(
    module: Module, node: ast.AST, loop: ast.AST
) -> bool:
    """Does an `if` inside of the loop decide whether a place is reached at all, and not only how
    often?
    """
    inner = node
    for parent in module.parents(node):
        if parent is loop:
            return False
        is_branch = isinstance(parent, ast.If) and inner is not parent.test
        if is_branch and not _is_branch_of_every_nth_step(module, parent, inner):
            return True
        inner = parent
    return False


def _is_branch_of_every_nth_step(module: Module, branch: ast.AST, inner: ast.AST) -> bool:
    """Is it the body of `if step % 10 == 0:`, which is reached again and again?"""
    if not isinstance(branch, ast.If) or inner not in branch.body:
        return False
    test = branch.test
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.BinOp):
        return False
    is_period = isinstance(test.left.op, ast.Mod) and isinstance(test.ops[0], ast.Eq)
    period = module.flow.value(test.left.right) if is_period else None
    return isinstance(period, int) and 0 < period <= MAX_PERIOD


def _rebinds_name(statement: ast.AST, name: str) -> bool:
    """Does a statement bind or delete a name, or an entry of it?"""
    targets: list[ast.expr] = []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.Assign | ast.Delete):
        targets = statement.targets
    return any(ast.unparse(target).partition("[")[0] == name for target in targets)


def _iterates_few_steps(module: Module, iterated: ast.expr) -> bool:
    """Does the code say that the loop has few steps: `range(8)`, `islice(loader, 10)`, a list of
    some?
    """
    if isinstance(iterated, ast.List | ast.Tuple):
        return True
    if not isinstance(iterated, ast.Call):
        known = module.flow.value(iterated)
        return isinstance(known, list | tuple) and len(known) < FEW_STEPS
    last = module.flow.value(iterated.args[-1]) if iterated.args else None
    is_count = module.flow.name(iterated.func) in ("range", "itertools.islice")
    return is_count and isinstance(last, int) and last < FEW_STEPS
