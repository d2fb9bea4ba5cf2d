"""Finds labels that are a copy of padded ids, as a whole or with only the first tokens masked, so
that pads are trained.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.label_masking_and_padding import (
    holds_ignored_label,
    is_ignored_label,
    owner_and_column_read,
    padding_call_of_batch,
    padding_call_of_result,
)
from truetune.checks.source.evidence.pad_token_settings_and_edits_that_change_them import (
    padding_sides_set,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

COPYING_METHODS = ("copy", "clone", "detach", "tolist", "squeeze", "long")
"""Methods whose result has the same ids"""
RESHAPING_METHODS = ("reshape", "view", "flatten", "contiguous", "to", "cuda", "ravel")
"""Methods whose result has the same tokens in the same order"""
SIMPLE_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
"""Statements without others inside"""
PAD_FUNCTION = "torch.nn.functional.pad"
MAX_STEPS = 12
"""Steps from labels to the ids that they are copied from"""


class CopiedIds(NamedTuple):
    """What labels are a copy of."""

    encoding: ast.expr
    """`x` of `x["input_ids"]`"""
    call: Call
    """The call of a tokenizer that made it, and that pads"""
    plain: bool
    """The labels are spelled as a copy: no name, list or slice stands between"""


def copied_padded_ids(module: Module, value: ast.expr) -> CopiedIds | None:
    """The padded ids that labels are copied from; None where they are made otherwise, or nothing is
    padded.

    Args:
        module: The file.
        value: What the labels are set to.
    """
    waiting = [(value, 0)]
    while waiting:
        node, steps = waiting.pop()
        bare = without_copying_calls(module, node)
        place = owner_and_column_read(module, bare)
        if place is None:
            waiting += (
                [(part, steps + 1) for part in _sources_of_token_ids(module, bare)]
                if steps < MAX_STEPS
                else []
            )
        elif place[1] == "input_ids":
            call = padding_call_of_result(module, place[0]) or padding_call_of_batch(
                module, place[0]
            )
            if call is not None:
                return CopiedIds(place[0], call, plain=steps == 0)
    return None


def hand_padding_of_labels(module: Module, value: ast.expr) -> ast.BinOp | ast.Call | None:
    """The expression that adds pads by hand to ids of which the labels are a plain copy; None where
    labels are made otherwise.

    `ids + [pad] * n`, `F.pad(ids, (0, n), value=pad)`.
    """
    for _ in range(MAX_STEPS):
        value = without_copying_calls(module, value)
        if isinstance(value, ast.BinOp):
            return value if isinstance(value.op, ast.Add) and _adds_pads(module, value) else None
        if isinstance(value, ast.Call) and module.flow.call(value).named(PAD_FUNCTION):
            value_argument = module.flow.call(value).argument(3, "value")
            return (
                value if value_argument is not None and is_pad_id(module, value_argument) else None
            )
        inner = _source_of_same_ids(module, value)
        if inner is None:
            return None
        value = inner
    return None


def _source_of_same_ids(module: Module, node: ast.expr) -> ast.expr | None:
    """The value that an expression has the ids of: what a method reshapes, or a name stands for;
    None for others.
    """
    if isinstance(node, ast.Call):
        call = module.flow.call(node)
        return call.receiver if call.method in RESHAPING_METHODS else None
    origins = module.flow.origins(node)
    source = origins[0].node if len(origins) == 1 and not origins[0].path else None
    return source if isinstance(source, ast.expr) and source is not node else None


def _adds_pads(module: Module, joined: ast.BinOp) -> bool:
    """Is one side of a sum of lists a list of pads that is repeated?"""
    for side in (joined.left, joined.right):
        is_repeated = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult)
        parts = (side.left, side.right) if isinstance(side, ast.BinOp) and is_repeated else ()
        lists = [part for part in parts if isinstance(part, ast.List)]
        if any(len(one.elts) == 1 and is_pad_id(module, one.elts[0]) for one in lists):
            return True
    return False


def is_pad_id(module: Module, node: ast.expr) -> bool:
    """Is it a tokenizer's `pad_token_id`, also by another name?"""
    return any(
        isinstance(origin.node, ast.Attribute) and origin.node.attr == "pad_token_id"
        for origin in module.flow.origins(node)
    )


def padded_ids_as_loss_targets(
    module: Module, loss: Call, *, with_reduction: bool = False
) -> CopiedIds | None:
    """The padded ids that a cross-entropy takes for its targets as they are; None where a mask may
    choose among them.

    Args:
        module: The file.
        loss: The call of a cross-entropy.
        with_reduction: Is one that names its reduction judged too? Who asks has to see that no mask comes after it.
    """
    target = loss.argument(1, "target")
    chosen = {"ignore_index"} if with_reduction else {"ignore_index", "reduction"}
    if target is None or loss.open or chosen & loss.keywords.keys():
        return None
    for _ in range(MAX_STEPS):
        target = without_copying_calls(module, target)
        place = owner_and_column_read(module, target)
        if place is not None and place[1] == "input_ids":
            call = padding_call_of_result(module, place[0]) or padding_call_of_batch(
                module, place[0]
            )
            return None if call is None else CopiedIds(place[0], call, plain=False)
        inner = _source_of_same_tokens(module, target)
        if inner is None:
            return None
        target = inner
    return None


def _source_of_same_tokens(module: Module, node: ast.expr) -> ast.expr | None:
    """The tensor that an expression has all tokens of, but for a cut at the ends; None where some
    may be left out.
    """
    if isinstance(node, ast.Call):
        call = module.flow.call(node)
        return call.receiver if call.method in RESHAPING_METHODS else None
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        is_cut = all(isinstance(part, (ast.Slice, ast.Constant)) for part in parts)
        return node.value if is_cut else None
    origins = module.flow.origins(node)
    is_one = len(origins) == 1 and not origins[0].path and not origins[0].element
    source = origins[0].node
    return source if is_one and isinstance(source, ast.expr) and source is not node else None


def masks_more_than_prompt(module: Module, function: ast.AST, encoding: ast.expr) -> bool:
    """Is there a -100 in a function that is not certainly on the first tokens of a row alone?

    Args:
        module: The file.
        function: The function that makes the labels.
        encoding: The padded encoding whose ids they are copied from.
    """
    if _sets_left_padding(module):
        return True
    ignored = (
        node
        for node in ast.walk(function)
        if isinstance(node, (ast.UnaryOp, ast.Name, ast.Attribute))
    )
    return any(
        not isinstance(getattr(node, "ctx", None), ast.Store)
        and is_ignored_label(module, node)
        and not _masks_first_tokens(module, node, encoding)
        for node in ignored
    )


def may_labels_be_changed(module: Module, function: ast.AST, copied: CopiedIds) -> bool:
    """May labels that a name or a list stands for be written into, other than by -100 on the first
    tokens?

    By an assignment of what is not known to be -100, or by a function of one's own that gets them.
    """
    if copied.plain:
        return False
    functions = {function}
    for node in (copied.encoding, copied.call.node):
        around = module.function_around(node)
        if around is not None:
            functions.add(around)
    parts = (part for one in functions for part in ast.walk(one))
    return any(_may_write_labels(module, part, copied) for part in parts)


def _may_write_labels(module: Module, node: ast.AST, copied: CopiedIds) -> bool:
    """Is it an entry that is written and masks no prompt, or a call of the file's functions that
    gets the labels?
    """
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        # `row["labels"] = ...` sets the whole column, which has been followed.
        is_column = isinstance(module.flow.value(node.slice), str)
        return not is_column and not _is_prompt_mask(module, node, copied.encoding)
    if (
        isinstance(node, ast.Call)
        and module.flow.function_that_expression_names(node.func) is not None
    ):
        return any(_is_copy_of_ids(module, argument, copied) for argument in node.args)
    return False


def _is_prompt_mask(module: Module, target: ast.Subscript, encoding: ast.expr) -> bool:
    """Is an entry set to -100 on the first tokens of a row?"""
    statement = module.scopes.parent.get(target)
    known = isinstance(statement, ast.Assign) and holds_ignored_label(module, statement.value)
    return known and _selects_first_tokens(module, target, encoding)


def _is_copy_of_ids(module: Module, argument: ast.expr, copied: CopiedIds) -> bool:
    """Is an argument a copy of the ids of the same call of a tokenizer?"""
    copied_ids = copied_padded_ids(module, argument)
    return copied_ids is not None and copied_ids.call.node is copied.call.node


def masks_labels_by_attention_mask_elsewhere(module: Module, function: ast.AST) -> bool:
    """Is there a statement with -100 and an attention mask outside a function, as in a collator?"""
    inside = set(ast.walk(function))
    masks = (
        node
        for node in module.nodes(ast.Name, ast.Attribute, ast.Constant)
        if _is_attention_mask(node)
    )
    statements = (module.statement(node) for node in masks if node not in inside)
    return any(
        isinstance(one, SIMPLE_STATEMENTS) and holds_ignored_label(module, one)
        for one in statements
    )


def without_copying_calls(module: Module, value: ast.expr) -> ast.expr:
    """What is copied: `x` of `x.copy()`, `list(x)`, `copy.deepcopy(x)`."""
    while isinstance(value, ast.Call):
        call = module.flow.call(value)
        if call.method in COPYING_METHODS and call.receiver is not None:
            value = call.receiver
        elif (
            call.named("list", "copy.copy", "copy.deepcopy", "torch.clone", "torch.tensor")
            and call.args
        ):
            value = call.args[0]
        else:
            break
    return value


def _sources_of_token_ids(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that a value takes its ids from."""
    if isinstance(node, ast.Subscript):
        yield node.value
    elif (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add)
        and holds_ignored_label(module, node.left)
    ):
        yield node.right
    elif isinstance(node, ast.ListComp):
        yield node.elt
    elif isinstance(node, ast.Name):
        for origin in module.flow.origins(node):
            yield from _expressions_of_name(module, node, origin)


def _expressions_of_name(module: Module, name: ast.Name, origin: Origin) -> Iterator[ast.expr]:
    """The expressions that a name stands for: a value, what is appended to a list, or one row of a
    batch in a loop.
    """
    source = origin.node
    if origin.element:
        row = _batch_looped_over(module, source, origin.path)
        if row is not None:
            yield row
    elif isinstance(source, ast.List) and not source.elts:
        yield from _items_appended_to_empty_list(module, source)
    elif isinstance(source, ast.expr) and source is not name and not origin.path:
        yield source


def _items_appended_to_empty_list(module: Module, empty: ast.List) -> Iterator[ast.expr]:
    """What is appended to the list that was made empty here."""
    for call in module.methods("append"):
        if not isinstance(call.receiver, ast.Name) or not call.args:
            continue
        if any(made.node is empty for made in module.flow.origins(call.receiver)):
            yield call.args[0]


def _batch_looped_over(module: Module, loop: ast.AST, path: tuple[int, ...]) -> ast.expr | None:
    """The batch that one of the names of a loop takes its rows from, through `zip` and `enumerate`."""
    if not isinstance(loop, ast.Call):
        return loop if isinstance(loop, ast.expr) and not path else None
    call = module.flow.call(loop)
    if call.named("zip") and path and path[0] < len(call.args):
        return call.args[path[0]] if len(path) == 1 else None
    if call.named("enumerate") and call.args and path[:1] == (1,):
        return _batch_looped_over(module, call.args[0], path[1:])
    return None


def _masks_first_tokens(module: Module, ignored: ast.AST, encoding: ast.expr) -> bool:
    """Is this -100 put on the first tokens of a row: `x[:n] = -100`, or `[-100] * n + ids`?"""
    parent = module.scopes.parent.get(ignored)
    if isinstance(parent, ast.Assign):
        target = parent.targets[0]
        # A name for -100 is no mask.
        return isinstance(target, ast.Name) or _selects_first_tokens(module, target, encoding)
    if not isinstance(parent, ast.List) or len(parent.elts) != 1:
        return False
    times = module.scopes.parent.get(parent)
    if not isinstance(times, ast.BinOp) or not isinstance(times.op, ast.Mult):
        return False
    number = times.right if times.left is parent else times.left
    whole = module.scopes.parent.get(times)
    if isinstance(whole, ast.Assign):
        return _selects_first_tokens(module, whole.targets[0], encoding)
    if not isinstance(whole, ast.BinOp) or not isinstance(whole.op, ast.Add):
        return False
    return whole.left is times and not _bound_may_count_pads(module, number, encoding)


def _selects_first_tokens(module: Module, target: ast.expr, encoding: ast.expr) -> bool:
    """Does an index select the first tokens of a row?

    `x[:n]`, `x[:, :n]`, `x[i, :n]` and `x[i][:n]`; also `x[i]` in `for i in range(n)`.
    """
    if not isinstance(target, ast.Subscript):
        return False
    index = (
        target.slice.elts[-1]
        if isinstance(target.slice, ast.Tuple) and target.slice.elts
        else target.slice
    )
    if isinstance(index, ast.Name):
        return _is_unconditional_range_index(module, index, encoding)
    if not isinstance(index, ast.Slice) or index.upper is None:
        return False
    starts = index.lower is None or module.flow.value(index.lower) == 0
    return starts and not _bound_may_count_pads(module, index.upper, encoding)


def _is_unconditional_range_index(module: Module, index: ast.Name, encoding: ast.expr) -> bool:
    """Does an index take each of the first numbers, without a condition: `for i in range(n): x[i] =
    -100`?
    """
    loop = module.scopes.parent.get(module.statement(index) or index)
    if (
        not isinstance(loop, ast.For)
        or not isinstance(loop.iter, ast.Call)
        or not isinstance(loop.target, ast.Name)
    ):
        return False
    call = module.flow.call(loop.iter)
    return (
        loop.target.id == index.id
        and call.named("range")
        and len(call.args) == 1
        and not _bound_may_count_pads(module, call.args[0], encoding)
    )


def _bound_may_count_pads(module: Module, bound: ast.expr, encoding: ast.expr) -> bool:
    """May a number of tokens count pads: by the mask of the padded batch, by a name with `pad`, or
    from the end?
    """
    if isinstance(bound, ast.UnaryOp):
        return True
    origins = (origin.node for origin in module.flow.origins(bound))
    expressions = (bound, *(node for node in origins if isinstance(node, ast.expr)))
    parts = (part for expression in expressions for part in ast.walk(expression))
    return any(_is_pad_dependent_term(module, part, encoding) for part in parts)


def _is_pad_dependent_term(module: Module, node: ast.AST, encoding: ast.expr) -> bool:
    """Is it the mask of the padded batch, a name with `pad`, or a difference of two lengths?"""
    place = owner_and_column_read(module, node)
    if place is not None and place[1] == "attention_mask":
        if module.text_of(place[0]) == module.text_of(encoding):
            return True
    if "pad" in getattr(node, "id", getattr(node, "attr", "")):
        return True
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    return not _is_known_whole_number(module, node.right)


def _is_known_whole_number(module: Module, node: ast.expr) -> bool:
    """Is it a whole number that the code says?"""
    return isinstance(module.flow.value(node), int)


def _is_attention_mask(node: ast.AST) -> bool:
    """Is it a name, an attribute or a key of an attention mask?"""
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "value", None)
    return isinstance(name, str) and name.endswith("attention_mask")


def _sets_left_padding(module: Module) -> bool:
    """Does the file set the padding side to the left? The first tokens are pads then."""
    return any(
        module.flow.value(value) == "left"
        for part in module.self_and_files_run_together
        for value in padding_sides_set(part)
    )
