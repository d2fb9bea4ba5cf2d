"""Finds labels that code masks, in particular those that equal the pad or EOS id, and tokenizer
calls that pad.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.source.evidence.does_tokenizer_call_add_no_pad import surely_adds_no_pad
from truetune.checks.source.evidence.generate_call_inputs import (
    does_tokenizer_call_pad,
    encoding_calls_of_dictionary,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LM_COLLATOR_CLASSES = (
    "transformers.DataCollatorForLanguageModeling",
    "trl.DataCollatorForCompletionOnlyLM",
)
"""Rebuild the labels from input_ids, and mask every pad id"""
COMPARING_METHODS = ("eq", "ne", "not_equal")
"""Methods of tensors that compare with a number"""


def lm_collators_masking_by_id(module: Module) -> Iterator[Call]:
    """Collators of causal language modelling that mask by id; not those that the file derives and
    so may correct.
    """
    for call in module.calls(*LM_COLLATOR_CLASSES):
        if module.flow.name(call.node.func) is None:
            continue
        if call.named("trl.*") or module.flow.value(call.argument(1, "mlm")) is False:
            yield call


def is_ignored_label(module: Module, node: ast.AST) -> bool:
    """Is it the label -100, which losses ignore?"""
    value = (
        module.flow.value(node)
        if isinstance(node, (ast.UnaryOp, ast.Name, ast.Attribute))
        else None
    )
    return type(value) is int and value == -100


def holds_ignored_label(module: Module, node: ast.AST) -> bool:
    """Does code contain the label -100?"""
    return any(
        isinstance(n, (ast.UnaryOp, ast.Name)) and is_ignored_label(module, n)
        for n in ast.walk(node)
    )


def writes_ignored_label(module: Module, node: ast.AST) -> bool:
    """Does code contain a -100 that may become a label?

    One that is compared with counts labels, one that a loss ignores is none, and a name for -100
    writes nothing.
    """
    return any(
        isinstance(n, (ast.UnaryOp, ast.Name))
        and not isinstance(getattr(n, "ctx", None), ast.Store)
        and is_ignored_label(module, n)
        and not _ignored_label_is_only_read(module, n)
        for n in ast.walk(node)
    )


def _ignored_label_is_only_read(module: Module, ignored: ast.expr) -> bool:
    """Does -100 stand where nothing is written: a comparison, `ignore_index=`, or what a plain name
    is given?
    """
    parent = module.scopes.parent.get(ignored)
    if isinstance(parent, ast.keyword):
        return parent.arg == "ignore_index"
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr in COMPARING_METHODS
    if isinstance(parent, ast.Assign):
        return all(isinstance(target, ast.Name) for target in parent.targets)
    return isinstance(parent, ast.Compare)


def maskings_of_pad_id(module: Module) -> Iterator[ast.AST]:
    """The code that makes labels which equal the pad id -100 (`labels[labels == pad] = -100`), and
    losses that ignore that id.
    """
    yield from _maskings_of_id(module, is_pad_id)


def maskings_of_eos_id(module: Module) -> Iterator[ast.AST]:
    """The code that makes labels which equal the EOS id itself -100, and losses that ignore that
    id.
    """
    yield from _maskings_of_id(module, is_eos_id)


def _maskings_of_id(
    module: Module, is_masked_id: Callable[[Module, ast.expr], bool]
) -> Iterator[ast.AST]:
    """The comparisons with an id in the code that writes -100, and the losses that ignore the id."""
    for node in module.nodes(ast.Compare, ast.Call):
        if any(is_masked_id(module, side) for side in _sides_of_equality(module, node)):
            unit = _code_decided_by_comparison(module, node)
            if unit is not None and holds_ignored_label(module, unit):
                yield node
    for call in module.all_calls:
        ignored = call.keywords.get("ignore_index")
        if ignored is not None and is_masked_id(module, ignored):
            yield call.node


def _sides_of_equality(module: Module, node: ast.AST) -> list[ast.expr]:
    """Both sides of `a == b`, `a.eq(b)` and `torch.eq(a, b)`, and of their opposites; nothing of
    any other node.
    """
    if isinstance(node, ast.Compare):
        is_equality = isinstance(node.ops[0], (ast.Eq, ast.NotEq))
        return [node.left, *node.comparators] if is_equality else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in COMPARING_METHODS:
            receiver = [] if module.flow.name(node.func.value) else [node.func.value]
            return [*receiver, *node.args]
    return []


def _code_decided_by_comparison(module: Module, compared: ast.AST) -> ast.AST | None:
    """The code that a comparison decides about: its statement, list, entry of a dictionary, or
    branch.
    """
    inner = compared
    for around in module.parents(compared):
        # Entries of one dictionary are apart: `{"attention_mask": ids != pad, "labels": masked}` masks nothing by id.
        if isinstance(around, ast.Dict):
            return inner
        if isinstance(around, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.ListComp)):
            return around
        if isinstance(around, ast.If):
            return next((part for part in around.body if _stores_ignored_label(module, part)), None)
        if isinstance(around, ast.stmt):
            return None
        inner = around
    return None


def _stores_ignored_label(module: Module, statement: ast.stmt) -> bool:
    """Does a statement store -100: `labels[i] = -100`, `labels.append(-100)`?"""
    if isinstance(statement, ast.Assign):
        return is_ignored_label(module, statement.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return any(is_ignored_label(module, argument) for argument in statement.value.args)
    return False


def is_pad_id(module: Module, node: ast.expr) -> bool:
    """Is it `x.pad_token_id`, or a name for it?"""
    return _is_id_of_token(module, node, "pad_token_id")


def is_eos_id(module: Module, node: ast.expr) -> bool:
    """Is it `x.eos_token_id`, or a name for it?"""
    return _is_id_of_token(module, node, "eos_token_id")


def _is_id_of_token(module: Module, node: ast.expr, attribute: str) -> bool:
    """Is it this attribute of an object, or a name for it?"""
    return any(
        isinstance(origin.node, ast.Attribute) and origin.node.attr == attribute
        for origin in module.flow.origins(node)
    )


def tokenizer_of_pad_id(module: Module, node: ast.AST) -> ast.expr | None:
    """The tokenizer whose pad id is read in what masks by id: `tok` of `labels ==
    tok.pad_token_id`.
    """
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    origins = (origin.node for part in parts for origin in module.flow.origins(part))
    ids = (one for one in origins if isinstance(one, ast.Attribute) and one.attr == "pad_token_id")
    return next((one.value for one in ids), None)


def padding_call_of_result(module: Module, node: ast.AST) -> Call | None:
    """The tokenizer call whose result this is, and which pads: a single row is as long as the
    longest.
    """
    for origin in module.flow.origins(node):
        if isinstance(origin.node, ast.Call) and "encoding" in module.flow.types(origin.node):
            call = module.flow.call(origin.node)
            asks = module.flow.value(call.keywords.get("padding")) in (
                True,
                "max_length",
                "longest",
            )
            if asks and not surely_adds_no_pad(module, call):
                return call
    return None


def padding_call_of_batch(module: Module, batch: ast.expr) -> Call | None:
    """The tokenizer call of a loader's collator that pads the batch; None where none is seen, or
    one does not pad.
    """
    calls = list(encoding_calls_of_dictionary(module, batch))
    is_padded = bool(calls) and all(does_tokenizer_call_pad(module, call) for call in calls)
    return calls[0] if is_padded else None


def owner_and_column_read(module: Module, node: ast.AST) -> tuple[ast.expr, str] | None:
    """The owner and the column of a read: (x, "labels") of `x["labels"]` or `x.labels`; None
    otherwise.
    """
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        return node.value, node.slice.value
    if isinstance(node, ast.Attribute) and node.attr in ("input_ids", "labels", "attention_mask"):
        return node.value, node.attr
    return None


LM_COLLATOR_CALLS = CodePlaces("collators of language modelling", lm_collators_masking_by_id)
