"""Finds stops that a script gives to generation, and that hold no token which ends a turn of its
chat model.

How it works: published chat models end a turn with one token and a text with another. A script that
asks by the chat template, and gives only the end of a text as `eos_token_id`, replaces the stops of
the model's own files. The trade-off: a model is known by the names that the script loads, so one
under a name of its own is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    normalized_model_name,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module


class EndTokensOfFamily(NamedTuple):
    """The tokens by which a published family of chat models ends."""

    pattern: str
    """Of the model's name, in lower case with `-` for every other sign"""
    turn: str
    turn_ids: frozenset[int]
    text: str
    text_id: int


# Read from the published tokenizer and generation_config files.
FAMILIES = (
    EndTokensOfFamily(
        r"(meta-)?llama-?3.*instruct",
        "<|eot_id|>",
        frozenset((128009, 128008)),
        "<|end_of_text|>",
        128001,
    ),
    EndTokensOfFamily(
        r"qwen(1-5|2|2-5)-.*(instruct|chat)|qwen3-(?!.*base)",
        "<|im_end|>",
        frozenset((151645,)),
        "<|endoftext|>",
        151643,
    ),
    EndTokensOfFamily(r"gemma-2-.*-it", "<end_of_turn>", frozenset((107,)), "<eos>", 1),
    EndTokensOfFamily(r"gemma-3-.*-it", "<end_of_turn>", frozenset((106,)), "<eos>", 1),
    EndTokensOfFamily(r"phi-3.*instruct", "<|end|>", frozenset((32007,)), "<|endoftext|>", 32000),
)
GENERATES = ("transformers.GenerationConfig",)
OTHER_STOPS = ("stop_strings", "stopping_criteria")


class StopOfText(NamedTuple):
    """A stop that ends texts, and no turns."""

    node: ast.expr
    family: EndTokensOfFamily


def stops_without_turn_end(module: Module) -> Iterator[StopOfText]:
    """The `eos_token_id` of calls that generate from a chat template, where no end of a turn is
    among them.
    """
    if "apply_chat_template" not in module.text or module.mentions(*OTHER_STOPS):
        return
    family = _only_chat_family_of_models(module)
    if family is None:
        return
    for call in (*module.calls(*GENERATES), *module.methods("generate")):
        node = _eos_of_call(module, call)
        if node is not None and _are_all_ids_end_of_text_tokens(module, node, family):
            yield StopOfText(node, family)


def _only_chat_family_of_models(module: Module) -> EndTokensOfFamily | None:
    """The one family of the published chat models that a file loads; None where it loads none, or
    several.
    """
    names = {
        text
        for call in module.calls("*.from_pretrained")
        for node in [call.argument(0, "pretrained_model_name_or_path")]
        if node is not None
        for text in possible_texts(module, node)
    }
    found = {
        family
        for name in names
        for family in FAMILIES
        if re.match(family.pattern, normalized_model_name(name))
    }
    return found.pop() if len(found) == 1 else None


def _eos_of_call(module: Module, call: Call) -> ast.expr | None:
    """What a call gives as `eos_token_id`, also in `**settings`; None where it gives nothing, or
    None.
    """
    eos_token_id_argument = call.keywords.get("eos_token_id")
    if eos_token_id_argument is not None:
        return eos_token_id_argument
    for keyword in call.node.keywords:
        if keyword.arg is None:
            entry = module.flow.dict_entries_and_if_complete(keyword.value)[0].get("eos_token_id")
            if entry is not None:
                return entry
    return None


def _are_all_ids_end_of_text_tokens(
    module: Module, node: ast.expr, family: EndTokensOfFamily
) -> bool:
    """Are all ids that are given the end of a text?"""
    value = module.flow.value(node)
    ids = value if isinstance(value, list) else [value]
    if ids and all(type(one) is int for one in ids):
        return set(ids) == {family.text_id}
    call = module.flow.producing_call(node)
    if call is None or call.method != "convert_tokens_to_ids" or not call.args:
        return False
    return bool(module.flow.value(call.args[0]) == family.text)
