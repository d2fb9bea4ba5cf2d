"""What source says on labels: collators that mask by id, labels made by hand, tokenizer calls that pad."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.source.evidence.unpadded_tokenizer_calls import pads_nothing
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

LM_COLLATOR_CLASSES = (
    "transformers.DataCollatorForLanguageModeling",
    "trl.DataCollatorForCompletionOnlyLM",
)
"""Rebuild the labels from input_ids, and mask every pad id"""


def lm_collator_calls(module: Module) -> Iterator[Call]:
    """Collators of causal language modelling that mask by id; not those that the file derives and so may correct."""
    for call in module.calls(*LM_COLLATOR_CLASSES):
        if module.flow.name(call.node.func) is None:
            continue
        if call.named("trl.*") or module.flow.value(call.argument(1, "mlm")) is False:
            yield call


def is_ignored_label(module: Module, node: ast.AST) -> bool:
    """Is it -100?"""
    value = (
        module.flow.value(node)
        if isinstance(node, (ast.UnaryOp, ast.Name, ast.Attribute))
        else None
    )
    return type(value) is int and value == -100


def holds_ignored_label(module: Module, node: ast.AST) -> bool:
    """Is there a -100 in it?"""
    return any(
        isinstance(n, (ast.UnaryOp, ast.Name)) and is_ignored_label(module, n)
        for n in ast.walk(node)
    )


def masks_by_id(module: Module) -> Iterator[ast.AST]:
    """Where labels that equal the pad id become -100 (`labels[labels == pad] = -100`), or a loss ignores that id."""
    for compare in module.nodes(ast.Compare):
        sides = [compare.left, *compare.comparators]
        if isinstance(compare.ops[0], (ast.Eq, ast.NotEq)) and any(
            is_pad_id(module, side) for side in sides
        ):
            around = next((n for n in module.parents(compare) if _is_whole_statement(n)), None)
            if around is not None and holds_ignored_label(module, around):
                yield compare
    for call in module.all_calls:
        ignored = call.keywords.get("ignore_index")
        if ignored is not None and is_pad_id(module, ignored):
            yield call.node


def _is_whole_statement(node: ast.AST) -> bool:
    """Is it a statement, or a list that is made element by element?"""
    return isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.ListComp))


def is_pad_id(module: Module, node: ast.expr) -> bool:
    """Is it `x.pad_token_id`, or a name for it?"""
    return any(
        isinstance(origin.node, ast.Attribute) and origin.node.attr == "pad_token_id"
        for origin in module.flow.origins(node)
    )


def tokenizer_of_pad_id(module: Module, node: ast.AST) -> ast.expr | None:
    """The tokenizer whose pad id is read in what masks by id: `tok` of `labels == tok.pad_token_id`."""
    parts = [part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))]
    origins = (origin.node for part in parts for origin in module.flow.origins(part))
    ids = (one for one in origins if isinstance(one, ast.Attribute) and one.attr == "pad_token_id")
    return next((one.value for one in ids), None)


def padding_call(module: Module, node: ast.AST) -> Call | None:
    """The tokenizer call whose result this is, and which pads: a single row is as long as the longest."""
    for origin in module.flow.origins(node):
        if isinstance(origin.node, ast.Call) and "encoding" in module.flow.types(origin.node):
            call = module.flow.call(origin.node)
            asks = module.flow.value(call.keywords.get("padding")) in (
                True,
                "max_length",
                "longest",
            )
            if asks and not pads_nothing(module, call):
                return call
    return None


def column_read(module: Module, node: ast.AST) -> tuple[ast.expr, str] | None:
    """`x["labels"]` or `x.labels` as (x, "labels")."""
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ):
        return node.value, node.slice.value
    if isinstance(node, ast.Attribute) and node.attr in ("input_ids", "labels", "attention_mask"):
        return node.value, node.attr
    return None


LM_COLLATOR_CALLS = CodePlaces("collators of language modelling", lm_collator_calls)
