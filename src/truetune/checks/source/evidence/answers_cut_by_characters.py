"""Finds answers that are cut out of what was generated at the wrong place, by the length of the prompt's text.

How it works: `generate` of a causal model gives the ids of prompt and answer. `len(prompt)` of a text is a number of
characters. As a place in the ids it lies far behind the prompt. As a place in the decoded text it is right only where
the text still holds the whole prompt: `skip_special_tokens=True` takes the marks of the chat template out of it, so
the place lies in the answer; and a search for the prompt's text finds nothing.

The trade-off: a prompt counts as one with marks where a chat template renders it, or a mark stands in its text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

DECODINGS = ("decode", "batch_decode")
MARK = re.compile(r"<\|[\w ]+\|>|</?s>|<(start|end)_of_turn>|<bos>|<eos>")
"""Special tokens in a text"""
MAX_DEPTH = 5
"""Names, lists and loops that a prompt is followed through. Chosen; scripts need three"""
REMOVALS = ("replace", "removeprefix", "split", "partition", "index", "find")
"""Methods of a text that look for another one"""
CutFault = Literal["ids", "text", "search"]


class WrongCut(NamedTuple):
    """A cut at the wrong place."""

    cut: ast.expr
    prompt: ast.expr
    decoding: ast.Call
    fault: CutFault
    """What is cut: ids by characters, a text without marks, or a text in which the prompt is looked for"""


def answers_cut_by_characters(module: Module) -> Iterator[WrongCut]:
    """The answers of a file that are cut at the wrong place.

    Args:
        module: A file that is judged.

    Yields:
        Each cut once.
    """
    for decoding in decodings_of_generation(module):
        yield from _wrong_cuts_of_decoded_ids(module, decoding)
        if _skips_special_tokens(module, decoding) and not _takes_part_of_ids(module, decoding):
            yield from _wrong_cuts_of_decoded_text(module, decoding)


def decodings_of_generation(module: Module) -> Iterator[Call]:
    """The calls that decode what `generate` gave."""
    if not any(module.methods("generate")):
        return
    for call in module.methods(*DECODINGS):
        ids = call.argument(0, "token_ids" if call.method == "decode" else "sequences")
        if ids is not None and _comes_from_generation(module, ids):
            yield call


def _comes_from_generation(module: Module, ids: ast.expr) -> bool:
    """Are ids what a call of `generate` gives?"""
    return any(
        isinstance(part, ast.Call) and last_name_of_called(part) == "generate"
        for part in backward_slice(module, ids)
    )


def _skips_special_tokens(module: Module, decoding: Call) -> bool:
    """Does a call take special tokens out of the text?"""
    return module.flow.value(decoding.argument(1, "skip_special_tokens")) is True


def _takes_part_of_ids(module: Module, decoding: Call) -> bool:
    """Is a part of the ids decoded, as by `out[:, length:]`?"""
    ids = decoding.argument(0, "token_ids" if decoding.method == "decode" else "sequences")
    parts = backward_slice(module, ids) if ids is not None else ()
    return any(isinstance(part, ast.Slice) and part.lower is not None for part in parts)


def _wrong_cuts_of_decoded_ids(module: Module, decoding: Call) -> Iterator[WrongCut]:
    """The slices of the decoded ids that begin at a number of characters."""
    ids = decoding.argument(0, "token_ids" if decoding.method == "decode" else "sequences")
    for part in ast.walk(ids) if ids is not None else ():
        prompt = _measured_text(module, part.lower) if isinstance(part, ast.Slice) else None
        if prompt is not None and _is_tokenized_text(module, prompt):
            yield WrongCut(ids or prompt, prompt, decoding.node, "ids")


def _measured_text(module: Module, length: ast.expr | None) -> ast.expr | None:
    """The text in `len(text)`, which a number is; None for other numbers."""
    if length is None:
        return None
    for origin in module.flow.origins(length):
        node = origin.node
        if isinstance(node, ast.Call) and last_name_of_called(node) == "len" and node.args:
            if isinstance(node.args[0], ast.Name | ast.Attribute):
                return node.args[0]
    return None


def _is_tokenized_text(module: Module, prompt: ast.expr) -> bool:
    """Is it a text, which a tokenizer is given under the same name?"""
    wanted = {origin.node for origin in module.flow.origins(prompt)}
    if any(_is_result_of_tokenizer(module, node) for node in wanted):
        return False
    return any(
        ast.unparse(text) == ast.unparse(prompt)
        and wanted == {origin.node for origin in module.flow.origins(text)}
        for text in _tokenized_texts(module)
    )


def _tokenized_texts(module: Module) -> Iterator[ast.expr]:
    """The expressions that a tokenizer is given as texts, those of a list too."""
    for call in module.all_calls:
        is_tokenizer = "tokenizer" in module.flow.types(call.node.func) or call.method == "encode"
        text = call.argument(0, "text") if is_tokenizer else None
        if isinstance(text, ast.List):
            yield from text.elts
        elif text is not None:
            yield text


def _is_result_of_tokenizer(module: Module, node: ast.AST) -> bool:
    """Does a tokenizer give what a name stands for, or a part of it?"""
    calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(
        "tokenizer" in module.flow.types(call.func) or last_name_of_called(call) == "encode"
        for call in calls
    )


def _wrong_cuts_of_decoded_text(module: Module, decoding: Call) -> Iterator[WrongCut]:
    """The cuts of a decoded text by a prompt whose marks it no longer has."""
    for text in _uses_of_decoded_text(module, decoding):
        around = module.scopes.parent.get(text)
        if isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Slice):
            prompt = _measured_text(module, around.slice.lower)
            if prompt is not None and is_prompt_with_special_tokens(module, prompt):
                yield WrongCut(around, prompt, decoding.node, "text")
        elif isinstance(around, ast.Attribute) and around.attr in REMOVALS:
            call = module.scopes.parent.get(around)
            sought = _text_looked_for(call)
            if (
                isinstance(call, ast.Call)
                and sought is not None
                and is_prompt_with_special_tokens(module, sought)
            ):
                yield WrongCut(call, sought, decoding.node, "search")


def _text_looked_for(call: ast.AST | None) -> ast.expr | None:
    """The name of the text that `replace(prompt, "")` or `split(prompt)` looks for; None for other calls."""
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return given if isinstance(given, ast.Name | ast.Attribute) else None


def _uses_of_decoded_text(module: Module, decoding: Call) -> Iterator[ast.expr]:
    """The places where the decoded text, or a text of the decoded batch, is used."""
    yield decoding.node
    function = module.function_around(decoding.node)
    for name in module.nodes(ast.Name):
        is_read = isinstance(name.ctx, ast.Load) and module.function_around(name) is function
        if is_read and _is_text_of_decoding(module, name, decoding):
            yield name


def _is_text_of_decoding(module: Module, text: ast.expr, decoding: Call, depth: int = 0) -> bool:
    """Is it the decoded text, an item of the decoded batch, or what a loop over its texts gives?"""
    for node in (origin.node for origin in module.flow.origins(text)):
        if node is decoding.node:
            return True
        if isinstance(node, ast.Subscript) and depth < MAX_DEPTH:
            if _is_text_of_decoding(module, node.value, decoding, depth + 1):
                return True
        if isinstance(node, ast.Call) and last_name_of_called(node) in ("zip", "enumerate"):
            if depth < MAX_DEPTH and any(
                _is_text_of_decoding(module, one, decoding, depth + 1) for one in node.args
            ):
                return True
    return False


def is_prompt_with_special_tokens(module: Module, prompt: ast.expr, depth: int = 0) -> bool:
    """Is a prompt a text with special tokens: rendered by a chat template, or written with marks?

    Args:
        module: The file.
        prompt: The expression.
        depth: How many names, lists and loops were passed.

    Returns:
        Whether each text that it may be has such marks; False where that is not known.
    """
    origins = [origin.node for origin in module.flow.origins(prompt)]
    return bool(origins) and all(
        _does_origin_hold_special_tokens(module, node, depth) for node in origins
    )


def _does_origin_hold_special_tokens(module: Module, node: ast.AST, depth: int) -> bool:
    """Is one origin of a prompt a text with special tokens?"""
    if depth > MAX_DEPTH:
        return False
    if isinstance(node, ast.Constant | ast.JoinedStr):
        return MARK.search(ast.unparse(node)) is not None
    if isinstance(node, ast.BinOp):
        return any(
            is_prompt_with_special_tokens(module, side, depth + 1)
            for side in (node.left, node.right)
        )
    if isinstance(node, ast.ListComp):
        return is_prompt_with_special_tokens(module, node.elt, depth + 1)
    if isinstance(node, ast.Subscript):
        return is_prompt_with_special_tokens(module, node.value, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if last_name_of_called(node) == "apply_chat_template":
        is_text = module.flow.value(call.argument(-1, "tokenize")) is False
        return is_text and all(
            map(_does_template_write_special_tokens, _chat_templates_written_in_file(module))
        )
    return last_name_of_called(node) in ("zip", "enumerate") and any(
        is_prompt_with_special_tokens(module, one, depth + 1) for one in call.args
    )


def _chat_templates_written_in_file(module: Module) -> Iterator[str]:
    """The chat templates that a file writes out and gives to a tokenizer."""
    for node in module.nodes(ast.Assign):
        is_template = any(
            isinstance(target, ast.Attribute) and target.attr == "chat_template"
            for target in node.targets
        )
        text = module.flow.value(node.value) if is_template else None
        if isinstance(text, str):
            yield text


def _does_template_write_special_tokens(template: str) -> bool:
    """Does a template write special tokens, by themselves or by their names (`eos_token`)?"""
    return MARK.search(template) is not None or "_token" in template
