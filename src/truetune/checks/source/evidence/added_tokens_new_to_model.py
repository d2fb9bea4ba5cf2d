"""Finds tokens that code adds to a tokenizer, and says whether they are new to its model and fit
its embedding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.examined_code_places import places_of_method_calls
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    ModelFamily,
    families_of_tokenizer,
    likely_model_names,
    model_names_of_tokenizer,
    normalized_model_name,
    vocabulary_of_local_tokenizer_folder,
)
from truetune.errors import TokenizerError
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import read_json
from truetune.render.find_tokenizer_folder import find_tokenizer_folder
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

OF_LLAMA = ("transformers.LlamaForCausalLM.from_*", "transformers.LlamaTokenizer*.from_*")
"""Both in one file: the model is a Llama, whatever it is called"""
TEMPLATE_CLONES = ("trl.clone_chat_template",)
"""Calls that add the tokens of another model's chat template, and resize"""
ADDITIONAL = ("additional_special_tokens", "extra_special_tokens")
"""Roles of tokens that a model is meant to write or read, by their names in transformers 4 and 5"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SPECIAL = frozenset(("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>"))
"""Tokens of all models that have such; code names them to give them their role"""
NAMES = frozenset(("name", "model", "path", "template", "type", "family", "arch"))


@dataclass(frozen=True, slots=True)
class AddedTokens:
    """The tokens of one call that the tokenizer may not have."""

    call: Call
    names: tuple[str, ...]
    spare_rows: int | None
    """Rows of the embedding that no token has yet; None: not known"""
    model_known: bool
    """Is it known which tokens the model has?"""


def added_tokens_unknown_to_model(
    module: Module, *, without_pad: bool = False
) -> list[AddedTokens]:
    """What `add_tokens` and `add_special_tokens` add, but for what the model is known to have.

    Args:
        module: The file.
        without_pad: Leave out what is given as the pad token, which no one has to write.
    """
    added = []
    for call in module.methods("add_special_tokens", "add_tokens"):
        if call.receiver is None or "tokenizer" not in module.flow.types(call.receiver):
            continue
        has = vocabulary_of_local_tokenizer_folder(module, call.receiver)
        names = tuple(
            name
            for name in _tokens_in_call(module, call, without_pad=without_pad)
            if name not in has | SPECIAL
        )
        known = families_of_tokenizer(module, call.receiver)
        if (
            not names
            or _is_in_branch_for_named_model(module, call.node)
            or any(one and one.completed_by_code for one in known)
        ):
            continue
        added.append(
            AddedTokens(
                call,
                names,
                _spare_embedding_rows(module, call, known, len(has)),
                bool(has or _all_vocabularies_are_known(known)),
            )
        )
    return added


def added_tokens_of_unknown_text(module: Module) -> list[AddedTokens]:
    """Tokens whose text is not in the files, where the code that adds them resizes the embedding
    for them.

    By `add_tokens` or as additional special tokens, which no one uses for a pad, or by TRL's
    `clone_chat_template`, which resizes by itself.
    """
    added = []
    for call in module.methods("add_tokens"):
        new_tokens_argument = call.argument(0, "new_tokens")
        is_unknown = (
            new_tokens_argument is not None and module.flow.value(new_tokens_argument) is UNKNOWN
        )
        if not is_unknown or "tokenizer" not in module.flow.types(call.receiver):
            continue
        if _resizes_embedding_in_same_function(
            module, call.node
        ) and not _is_in_branch_for_named_model(module, call.node):
            added.append(AddedTokens(call, (), None, model_known=True))
    added += _special_tokens_of_unknown_text(module)
    for call in module.calls(*TEMPLATE_CLONES):
        is_other = _is_template_of_another_family(module, call)
        if is_other is not False:
            added.append(AddedTokens(call, (), None, model_known=is_other is True))
    return added


def _special_tokens_of_unknown_text(module: Module) -> Iterator[AddedTokens]:
    """Additional special tokens whose text an option or a field names:
    `{"additional_special_tokens": args.tags}`.

    An option that is asked for first (`if args.tags:`) may be empty, so nothing is said of it.
    """
    for call in module.methods("add_special_tokens"):
        special_tokens_dict_argument = call.argument(0, "special_tokens_dict")
        if special_tokens_dict_argument is None or "tokenizer" not in module.flow.types(
            call.receiver
        ):
            continue
        entries, _ = module.flow.dict_entries_and_if_complete(special_tokens_dict_argument)
        named = next((entries[role] for role in ADDITIONAL if role in entries), None)
        if named is None or module.flow.value(named) is not UNKNOWN:
            continue
        if _runs_only_for_option_or_model(module, call.node, named):
            continue
        names = _default_texts_of_option(module, named)
        if _resizes_embedding_in_same_function(module, call.node):
            if not names or not _local_tokenizer_has_all(module, call, names):
                yield AddedTokens(call, names, None, model_known=True)


def _runs_only_for_option_or_model(module: Module, node: ast.AST, named: ast.expr) -> bool:
    """Does a place run only where the option is given, or for models of one name?"""
    if _is_under_test_of_option(module, node, named):
        return True
    return _is_in_branch_for_named_model(module, node)


def _local_tokenizer_has_all(module: Module, call: Call, names: tuple[str, ...]) -> bool:
    """Has the tokenizer, by its files here, all of these tokens already?"""
    has = vocabulary_of_local_tokenizer_folder(module, call.receiver) | SPECIAL
    return has.issuperset(names)


def _default_texts_of_option(module: Module, named: ast.expr) -> tuple[str, ...]:
    """The texts of the list that a field or option begins with; none where it is not seen."""
    lists = [one.node for one in module.flow.origins(named) if isinstance(one.node, ast.List)]
    texts = (item.value for one in lists for item in one.elts if isinstance(item, ast.Constant))
    return tuple(text for text in texts if isinstance(text, str))


def _is_under_test_of_option(module: Module, node: ast.AST, named: ast.expr) -> bool:
    """Does an `if` around a place test the option or field that is named?"""
    text = ast.unparse(named)
    tests = (around.test for around in module.parents(node) if isinstance(around, ast.If))
    return any(text in ast.unparse(test) for test in tests)


def _resizes_embedding_in_same_function(module: Module, node: ast.AST) -> bool:
    """Does the function that a place stands in resize the embedding to the tokenizer's length?"""
    functions = (one for one in module.parents(node) if isinstance(one, FUNCTIONS))
    around = next(functions, module.tree)
    return any(
        isinstance(part, ast.Attribute) and part.attr == "resize_token_embeddings"
        for part in ast.walk(around)
    )


def _is_template_of_another_family(module: Module, call: Call) -> bool | None:
    """Does a chat template come from a model of another family, with tokens of its own? None where
    it is not known.
    """
    source = call.argument(2, "source_tokenizer_path")
    names = likely_model_names(module, call.argument(1, "tokenizer"))
    sources = possible_texts(module.home(source), source) if source is not None else []
    families = {_first_word_of_model_name(name) for name in names}
    others = {_first_word_of_model_name(name) for name in sources}
    if len(families) != 1 or len(others) != 1 or "" in families | others:
        return None
    return families != others


def _first_word_of_model_name(name: str) -> str:
    """The word that a model's name begins with: `qwen` of `Qwen/Qwen2.5-7B`, `llama` of
    `meta-llama/Meta-Llama-3-8B`; empty where it begins otherwise.
    """
    match = re.match(r"(?:meta-)?([a-z]+)", normalized_model_name(name))
    return match.group(1) if match is not None else ""


def _tokens_in_call(module: Module, call: Call, *, without_pad: bool) -> list[str]:
    """The tokens that a call is given as constants, in a list, in a dictionary by role, or alone."""
    value = module.flow.value(
        call.argument(0, "new_tokens") or call.keywords.get("special_tokens_dict")
    )
    by_role = value if isinstance(value, dict) else {"": value}
    parts = [item for role, item in by_role.items() if not (without_pad and role == "pad_token")]
    names = [
        name
        for part in parts
        for name in (part if isinstance(part, (list, tuple, frozenset)) else [part])
    ]
    return [name for name in names if isinstance(name, str)]


def _all_vocabularies_are_known(known: list[ModelFamily | None]) -> bool:
    """Are the vocabularies of all models known that the tokenizer may belong to?"""
    return bool(known) and all(one is not None and one.spare_rows is not None for one in known)


def _spare_embedding_rows(
    module: Module, call: Call, known: list[ModelFamily | None], tokens: int
) -> int | None:
    """How many rows of the embedding are left for new tokens; None where that is not known.

    By the model's own config, its family, or its class. A tokenizer that is here is taken to be as
    long as its model.
    """
    if tokens and (rows := _embedding_rows_by_local_config(module, call)) is not None:
        return max(0, rows - tokens)
    spare = [one.spare_rows for one in known if one is not None and one.spare_rows is not None]
    if known and len(spare) == len(known):
        # The poorest of several candidates: it is the one that runs out of rows.
        return min(spare)
    return 0 if tokens or all(any(module.calls(pattern)) for pattern in OF_LLAMA) else None


def _embedding_rows_by_local_config(module: Module, call: Call) -> int | None:
    """Rows of the embedding by the config.json of a model on this machine; None where none is here."""
    # Only what is on this machine: no name is asked for on the hub.
    for name in model_names_of_tokenizer(module, call.receiver):
        try:
            config = read_json(find_tokenizer_folder(name) / "config.json", MODEL_FILE)
        except (TokenizerError, OSError, ValueError):
            continue
        if isinstance(config, dict) and isinstance(config.get("vocab_size"), int):
            return int(config["vocab_size"])
    return None


def _is_in_branch_for_named_model(module: Module, node: ast.AST) -> bool:
    """Does it stand in a branch for models of one name, whose tokens its author knows?"""
    tests = (around.test for around in module.parents(node) if isinstance(around, ast.If))
    return any(_tests_model_name(part) for test in tests for part in ast.walk(test))


def _tests_model_name(node: ast.AST) -> bool:
    """Does a test ask for the name or type of a model: `"gemma" in args.model_name`, `model_type ==
    "yuan"`, `name.startswith("org/")`?
    """
    sides = _sides_compared_by_test(node)
    is_named = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
    if not is_named:
        return False
    parts = (part for side in sides for part in ast.walk(side))
    names = (
        part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in parts
    )
    words = {word for name in names for word in name.lower().split("_")}
    return not words.isdisjoint(NAMES)


def _sides_compared_by_test(node: ast.AST) -> list[ast.expr]:
    """What a test by `in`, `==` or `startswith` compares; nothing of another one."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        is_test = isinstance(node.ops[0], (ast.In, ast.Eq))
        return [node.left, node.comparators[0]] if is_test else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return [node.func.value, *node.args] if node.func.attr == "startswith" else []
    return []


TOKENS_ADDED = places_of_method_calls("calls that add tokens", "add_special_tokens", "add_tokens")
