"""Finds rows of token ids that one script of a project saves and another one trains a model of
another vocabulary on.

How it works: the paths that a script saves to and another one loads are compared as they are
written (constants, defaults of options and of the environment, values that shell scripts give). Of
both sides the published names are followed: of the tokenizer that made the ids, and of the model
that is trained.

The trade-off: a name or a path that is not written out says nothing, nor does a script that
tokenizes what it loads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.find_servers_with_base_and_adapter import command_files_of_project
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    ENVIRONMENT_READERS,
    literal_or_default_text_of_expression,
)
from truetune.checks.source.evidence.prompt_forms import scripts_beside, trains_a_model
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import option_value_from_commands_by_attribute
from truetune.source.parsed_source_file import Module

SAVES = {
    "save_to_disk": "dataset_path",
    "to_parquet": "path_or_buf",
    "to_json": "path_or_buf",
    "tofile": "fid",
}
"""Methods that save rows, with the name of their first argument"""
SAVING_CALLS = {
    "torch.save": (1, "f"),
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "numpy.memmap": (0, "filename"),
}
LOADING_CALLS = {
    "datasets.load_from_disk": (0, "dataset_path"),
    "datasets.*.load_from_disk": (0, "dataset_path"),
    "datasets.load_dataset": (-1, "data_files"),
    "datasets.*.from_parquet": (0, "path_or_paths"),
    "torch.load": (0, "f"),
    "numpy.load": (0, "file"),
    "numpy.memmap": (0, "filename"),
    "numpy.fromfile": (0, "file"),
    "pandas.read_parquet": (0, "path"),
    "pandas.read_json": (0, "path_or_buf"),
}
TOKENIZERS = ("transformers.*Tokenizer*.from_pretrained", "tokenizers.Tokenizer.from_pretrained")
MODELS = (
    "transformers.AutoModelForCausalLM.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
    "unsloth.*.from_pretrained",
)
IDS = re.compile(r"[\"']input_ids[\"']|\.input_ids\b|\.encode\(|\.memmap\(|tofile\(")
"""What a script that saves ids has in its text"""
MAKES_IDS = (
    "encode",
    "encode_batch",
    "apply_chat_template",
    "batch_encode_plus",
    "tokenize",
    "encode_plus",
)
CHANGES_THE_VOCABULARY = ("from_config", "set_input_embeddings", "resize_token_embeddings")
LOCAL_FOLDER = re.compile(r"[/~].*/([\w.-]+)/?")
SETS_ENVIRONMENT = r"(?:^|[\s;])(?:export\s+)?{}=[\"']?([^\"'\s;$]+)"


class IdsOfAnotherModel(NamedTuple):
    """Rows of ids of one vocabulary, on which a model of another is trained."""

    node: ast.AST
    path: str
    tokenizer: str
    model: str
    maker: Module
    made_by: ast.AST
    """The load of the tokenizer"""


def training_row_loads_with_paths(module: Module) -> Iterator[tuple[Call, str]]:
    """The calls of a training script that load rows from a path, with the path."""
    if not trains_a_model(module):
        return
    for pattern, (position, name) in LOADING_CALLS.items():
        for call in module.calls(pattern):
            for node in _argument_parts(call.argument(position, name)):
                path = _normalized_path(literal_or_default_text_of_expression(module, node))
                if path:
                    yield call, path


def ids_of_other_models(module: Module) -> Iterator[IdsOfAnotherModel]:
    """The rows of ids that a training script loads and that another vocabulary's tokenizer made."""
    loaded = list(training_row_loads_with_paths(module))
    if not loaded or _script_tokenizes(module) or any(module.methods(*CHANGES_THE_VOCABULARY)):
        return
    model = _only_loaded_name_and_call(module, MODELS)
    if model is None:
        return
    for maker in scripts_beside(module):
        saved = set(_saved_paths(maker))
        shared = next(((call, path) for call, path in loaded if path in saved), None)
        tokenizer = None if shared is None else _only_tokenizer_name_and_load(maker)
        if shared is None or tokenizer is None:
            continue
        if _vocabularies_differ(tokenizer[0], model[0]):
            call, path = shared
            yield IdsOfAnotherModel(call.node, path, tokenizer[0], model[0], maker, tokenizer[1])


def _only_tokenizer_name_and_load(maker: Module) -> tuple[str, ast.AST] | None:
    """The name of the one tokenizer by which a script makes ids, with its load; None otherwise."""
    if not _script_tokenizes(maker) or not IDS.search(maker.text):
        return None
    return _only_loaded_name_and_call(maker, TOKENIZERS)


def vocabulary_group_of(name: str) -> str | None:
    """The vocabulary of a published model by its name, also as the name of a folder of this
    machine.
    """
    folder = LOCAL_FOLDER.fullmatch(name)
    return vocabulary_group(f"local/{folder[1]}" if folder else name)


def _vocabularies_differ(one: str, other: str) -> bool:
    """Are both vocabularies known, and two?"""
    groups = (vocabulary_group_of(one), vocabulary_group_of(other))
    return None not in groups and groups[0] != groups[1]


def _argument_parts(node: ast.expr | None) -> Iterator[ast.expr]:
    """The expressions of an argument: itself, or what a list or dictionary of files holds."""
    if isinstance(node, ast.List | ast.Tuple):
        yield from node.elts
    elif isinstance(node, ast.Dict):
        yield from node.values
    elif node is not None:
        yield node


def _saved_paths(module: Module) -> Iterator[str]:
    """The paths that a script saves rows to."""
    for method, name in SAVES.items():
        for call in module.methods(method):
            yield _normalized_path(
                literal_or_default_text_of_expression(module, call.argument(0, name))
            )
    for pattern, (position, name) in SAVING_CALLS.items():
        for call in module.calls(pattern):
            yield _normalized_path(
                literal_or_default_text_of_expression(module, call.argument(position, name))
            )


def _normalized_path(path: str | None) -> str:
    """The path in one spelling, without parts that mean the same; empty where it is not known."""
    return "" if path is None else path.removeprefix("./").rstrip("/")


def _script_tokenizes(module: Module) -> bool:
    """Does a script make ids of texts?"""
    if any(module.methods(*MAKES_IDS)):
        return True
    return any(
        made is not None and made.named(*TOKENIZERS)
        for call in module.all_calls
        if call.method is None and call.args
        for made in [module.flow.producing_call(call.node.func)]
    )


def _only_loaded_name_and_call(
    module: Module, loads: tuple[str, ...]
) -> tuple[str, ast.AST] | None:
    """The one name that calls of a script load, with the first of them; None where one is not
    known, or two differ.
    """
    calls = list(module.calls(*loads))
    names = {
        _name_by_shell_or_default(module, call.argument(0, "pretrained_model_name_or_path"))
        for call in calls
    }
    if len(names) != 1:
        return None
    (name,) = names
    return (name, calls[0].node) if name else None


def _name_by_shell_or_default(module: Module, node: ast.expr | None) -> str:
    """The name that an expression is, by what shell scripts give and by defaults; empty where it is
    not known.
    """
    if node is None:
        return ""
    origins = [origin.node for origin in module.flow.origins(node)]
    if len(origins) == 1:
        given_option = option_value_from_commands_by_attribute(module, origins[0])
        if given_option is not None:
            return str(given_option.value)
        set_by_shell = _value_set_by_shell(module, origins[0])
        if set_by_shell is not None:
            return set_by_shell
    return literal_or_default_text_of_expression(module, node) or ""


def _value_set_by_shell(module: Module, node: ast.AST) -> str | None:
    """What the commands around a script set a variable of the environment to; empty where two
    differ, or it is unknown.

    None where the expression is no such variable, or no command sets it.
    """
    name = _environment_variable_read(module, node)
    if name is None:
        return None
    texts = [file.text for file in command_files_of_project(Path(module.path))]
    if not any(re.search(rf"\b{re.escape(name)}=", text) for text in texts):
        return None
    pattern = re.compile(SETS_ENVIRONMENT.format(re.escape(name)), re.M)
    values = {match[1] for text in texts for match in pattern.finditer(text)}
    return values.pop() if len(values) == 1 else ""


def _environment_variable_read(module: Module, node: ast.AST) -> str | None:
    """The variable of the environment that an expression reads; None for anything else."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
        value = module.flow.value(node.slice)
        return value if isinstance(value, str) else None
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    is_reader = call.named(*ENVIRONMENT_READERS) and bool(call.args)
    value = module.flow.value(call.args[0]) if is_reader else None
    return value if isinstance(value, str) else None
