"""Finds the text by which a script looks for the beginning of each answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.response_marker_masking import (
    TRL_COMPLETION_COLLATOR,
    UNSLOTH_RESPONSE_MASKING,
)

SEARCHES = frozenset(
    ("encode", "convert_tokens_to_ids", "find", "rfind", "index", "rindex", "split", "partition")
    + ("rpartition",)
)


TOKENIZERS = frozenset(("tokenizer", "tok", "processing_class"))
"""Attributes of a collator that are called: `self.tokenizer(self.marker)`"""


class ResponseMarker(NamedTuple):
    """A marker of answers, and where it is given."""

    text: str
    place: ast.AST


def markers_searched_to_set_labels(module: Module) -> Iterator[ResponseMarker]:
    """The texts that a script which sets labels encodes or searches for."""
    by_library = any(True for _ in module.calls(*UNSLOTH_RESPONSE_MASKING, TRL_COMPLETION_COLLATOR))
    # Who masks by hand writes -100; without it the text is searched for something else.
    if not by_library and not module.mentions("-100"):
        return
    for call in module.all_calls:
        for searched in texts_searched_by_call(module, call):
            for text in _texts_of_argument(module, searched):
                yield ResponseMarker(text, call.node)


def _texts_of_argument(module: Module, argument: ast.expr) -> list[str]:
    """The texts that an argument may be, also where a class is given it when one is made: `Collator(tok, MARKER)`."""
    texts = possible_texts(module, argument)
    for origin in module.flow.origins(argument):
        if isinstance(origin.node, ast.arg):
            texts += [
                text
                for part in _arguments_of_constructor(module, origin.node)
                for text in possible_texts(module, part)
            ]
    if isinstance(argument, ast.Attribute) and ast.unparse(argument.value) == "self":
        texts += [
            text
            for part in _field_default(module, argument)
            for text in possible_texts(module, part)
        ]
    return list(dict.fromkeys(texts))


def _field_default(module: Module, attribute: ast.Attribute) -> Iterator[ast.expr]:
    """The default of a dataclass's field: `marker: str = "[/INST]"`."""
    field = next(
        (node for node in module.parents(attribute) if isinstance(node, ast.ClassDef)), None
    )
    for part in field.body if field is not None else []:
        is_field = isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == attribute.attr
        if is_field and isinstance(part, ast.AnnAssign) and part.value is not None:
            yield part.value


def _arguments_of_constructor(module: Module, parameter: ast.arg) -> Iterator[ast.expr]:
    """The arguments for a parameter of `__init__`, where objects of its class are made."""
    around = list(module.parents(parameter))
    function = next((node for node in around if isinstance(node, ast.FunctionDef)), None)
    enclosing_class = next((node for node in around if isinstance(node, ast.ClassDef)), None)
    if function is None or enclosing_class is None or function.name != "__init__":
        return
    names = [argument.arg for argument in function.args.args[1:]]
    # The first parameter is self, which calls leave out.
    place = names.index(parameter.arg) if parameter.arg in names else -1
    for node in module.flow.calls_of_function_or_class(enclosing_class):
        value = module.flow.call(node).argument(place, parameter.arg)
        if value is not None:
            yield value


def texts_searched_by_call(module: Module, call: Call) -> list[ast.expr]:
    """The texts that a call searches for."""
    if call.named(*UNSLOTH_RESPONSE_MASKING):
        part = call.argument(2, "response_part")
    elif call.named(TRL_COMPLETION_COLLATOR):
        part = call.argument(0, "response_template")
    elif (
        call.method in SEARCHES
        or call.method in TOKENIZERS
        or (call.receiver is None and "tokenizer" in module.flow.types(call.node.func))
    ):
        part = call.args[0] if call.args else None
    else:
        part = None
    return [part] if part is not None else []
