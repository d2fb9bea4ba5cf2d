"""Finds masks of an own loop over turns that train what the script itself wrote between the model's turns.

How it works: a list (or a concatenated tensor) grows in a loop by `[1] * len(ids)`. It fires where such ones are added
for ids that a generation gave, and also for ids that a tokenizer gave for a text of the script: a tool's result.

The trade-off: an attention mask is all ones and right, so a mask is left out by its name, by being given as one, or
where another list of the loop tells the two apart with zeros.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.checks.source.evidence.policy_training_loops import has_own_policy_loss, loops_around
from truetune.checks.source.evidence.texts_held_by_a_text import texts_held_by
from truetune.source.parsed_source_file import Module

GROWING = ("extend", "append")
JOINING = ("cat", "concat", "concatenate", "hstack")
ATTENTION = re.compile(r"att(?:n|ention)|padding|pad_mask", re.I)
GENERATING = re.compile(r"generat|sampl|complet|chat|rollout|respon|output|new", re.I)
ENCODING = ("encode", "encode_plus", "apply_chat_template")
SPEAKING = ("decode", "batch_decode", "generate", "chat", "create", "completion", "completions")
"""Calls whose text is the model's own"""
PARTS_OF_IDS = ("tolist", "to", "squeeze", "flatten", "view", "cpu", "cuda")


class TrainedToolResult(NamedTuple):
    """Ones in a mask for ids of a text that the script wrote."""

    mask: str
    added: ast.AST
    ids: ast.expr
    encoding: ast.Call


class _Addition(NamedTuple):
    """What is added to a mask: so many ones, or zeros, as ids have."""

    mask: str
    node: ast.AST
    ids: ast.expr
    value: object


def additions_to_masks(module: Module) -> Iterator[ast.AST]:
    """What is added to masks as ones or zeros in loops, in files with a policy loss of their own."""
    for addition in _additions(module):
        yield addition.node


def trained_tool_results(module: Module) -> Iterator[TrainedToolResult]:
    """The ones that a mask gets for ids of the script's own texts."""
    additions = list(_additions(module))
    for name in dict.fromkeys(one.mask for one in additions):
        of_mask = [one for one in additions if one.mask == name]
        if _is_attention_mask(module, name) or any(not one.value for one in of_mask):
            continue
        yield from _tool_results_beside_samples(module, of_mask)


def _is_attention_mask(module: Module, name: str) -> bool:
    """Does a mask say what is attended to, and not what is trained?"""
    return ATTENTION.search(name) is not None or _is_given_as_attention(module, name)


def _tool_results_beside_samples(
    module: Module, additions: list[_Addition]
) -> Iterator[TrainedToolResult]:
    """The ones for the script's own texts, in a mask that also has ones for sampled ids."""
    encoded = []
    is_any_sampled = False
    for addition in additions:
        encoding = _encoding_of(module, addition.ids)
        if encoding is not None:
            encoded.append((addition, encoding))
        elif _is_sampled(module, addition.ids):
            is_any_sampled = True
    if not is_any_sampled:
        return
    for addition, encoding in encoded:
        if not _is_models_own_text(module, encoding):
            yield TrainedToolResult(addition.mask, addition.node, addition.ids, encoding)


def _additions(module: Module) -> Iterator[_Addition]:
    """The additions to masks in loops."""
    if not has_own_policy_loss(module):
        return
    for node in (*module.nodes(ast.AugAssign), *module.nodes(ast.Call), *module.nodes(ast.Assign)):
        added = _added_to_name(node)
        if added is None or not loops_around(module, node):
            continue
        name, value = added
        repeated = _repeated_for_ids(value)
        if repeated is not None:
            yield _Addition(name, node, *repeated)


def _added_to_name(node: ast.AST) -> tuple[str, ast.expr] | None:
    """The name that grows, and what is added: `m += x`, `m.extend(x)`, `m = m + x`, `m = torch.cat([m, x])`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return ast.unparse(node.target), node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_growing = node.func.attr in GROWING and len(node.args) == 1
        return (ast.unparse(node.func.value), node.args[0]) if is_growing else None
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    first, added = _joined_two(node.value)
    name = ast.unparse(node.targets[0])
    if first is None or added is None or ast.unparse(first) != name:
        return None
    return name, added


def _joined_two(value: ast.expr) -> tuple[ast.expr | None, ast.expr | None]:
    """The two things that an expression joins: `a + b`, `torch.cat([a, b])`; None for another expression."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return value.left, value.right
    if not isinstance(value, ast.Call) or not value.args:
        return None, None
    parts = value.args[0]
    if not ast.unparse(value.func).endswith(JOINING) or not isinstance(parts, ast.List | ast.Tuple):
        return None, None
    return (parts.elts[0], parts.elts[1]) if len(parts.elts) == 2 else (None, None)


def _repeated_for_ids(value: ast.expr) -> tuple[ast.expr, object] | None:
    """The ids that get a value each, and that value: `[1] * len(ids)`, `[1 for _ in ids]`, `torch.ones_like(ids)`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _repeated_list(value.left, value.right) or _repeated_list(value.right, value.left)
    if isinstance(value, ast.ListComp) and isinstance(value.elt, ast.Constant):
        return value.generators[0].iter, value.elt.value
    if isinstance(value, ast.Call) and value.args:
        return _filled_tensor(ast.unparse(value.func).rpartition(".")[2], value.args[0])
    return None


def _repeated_list(listed: ast.expr, times: ast.expr) -> tuple[ast.expr, object] | None:
    """The ids and the value of `[1] * len(ids)`."""
    if not isinstance(listed, ast.List) or len(listed.elts) != 1:
        return None
    element = listed.elts[0]
    ids = _counted(times)
    if ids is None or not isinstance(element, ast.Constant):
        return None
    return ids, element.value


def _filled_tensor(function: str, argument: ast.expr) -> tuple[ast.expr, object] | None:
    """The ids and the value of `torch.ones_like(ids)` and `torch.zeros(len(ids))`."""
    if function in ("ones_like", "zeros_like"):
        return argument, int(function == "ones_like")
    ids = _counted(argument) if function in ("ones", "zeros") else None
    return None if ids is None else (ids, int(function == "ones"))


def _counted(node: ast.expr) -> ast.expr | None:
    """What is counted: the ids of `len(ids)`, `ids.shape[1]`, `ids.numel()`; None for another number."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "len" and node.args:
        return node.args[0]
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        return node.value.value if node.value.attr == "shape" else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in ("size", "numel") else None
    return None


def _encoding_of(module: Module, ids: ast.expr) -> ast.Call | None:
    """The tokenizer's call that gave ids for a text; None where they come from elsewhere."""
    for origin in module.flow.origins(ids):
        node = origin.node
        while isinstance(node, ast.Subscript | ast.Attribute | ast.Call):
            if isinstance(node, ast.Call):
                if _is_encoding(node):
                    return node
                is_part = isinstance(node.func, ast.Attribute) and node.func.attr in PARTS_OF_IDS
                if not is_part or not isinstance(node.func, ast.Attribute):
                    break
                node = node.func.value
            else:
                node = node.value
    return None


def _is_encoding(call: ast.Call) -> bool:
    """Does a tokenizer's call give ids?"""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ENCODING:
        return True
    name = ast.unparse(call.func).rpartition(".")[2]
    return re.fullmatch(r"tok(?:enizer|enize)?|processor|processing_class", name) is not None


def _is_sampled(module: Module, ids: ast.expr) -> bool:
    """Do ids come from a generation?"""
    for part in backward_slice(module, ids):
        if isinstance(part, ast.Call) and GENERATING.search(ast.unparse(part.func)):
            return True
    return False


def _is_models_own_text(module: Module, encoding: ast.Call) -> bool:
    """Does the text that is encoded hold what the model said, or is it not known?"""
    text = encoding.args[0] if encoding.args else None
    if text is None:
        return True
    for part in texts_held_by(module, text):
        if isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] in SPEAKING:
            return True
        if isinstance(part, ast.Constant) and part.value == "assistant":
            return True
    return False


def _is_given_as_attention(module: Module, name: str) -> bool:
    """Is a mask given to a model as its attention mask?"""
    for call in module.nodes(ast.Call):
        for keyword in call.keywords:
            if keyword.arg == "attention_mask" and any(
                isinstance(part, ast.Name) and part.id == name for part in ast.walk(keyword.value)
            ):
                return True
    return False
