"""Finds what a script's parser puts into a trainer's class of arguments: a file of settings, or the
options of the command that starts the script.

How it works: the parser (`HfArgumentParser`, `TrlParser`) is given classes in the open; the one that a trainer takes
decides what the keys of the file mean. Keys of the other classes are the script's own, and left out.

The trade-off: a class that the script imports from elsewhere has fields that are not seen here. Then a key that no
trainer knows is taken for one of them. Commands are read from shell scripts near the script.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import TruetuneError
from truetune.settings.located_document import TextPosition, read_located_document
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE
from truetune.settings.stacks.known_keys import RENAMED_KEYS
from truetune.settings.stacks.options_of_commands import parse_options, position_of_option
from truetune.settings.stacks.read_config_of_any_stack import identify_stack
from truetune.settings.stacks.read_trainer_arguments import METHOD_OF_CLASS, class_defaults
from truetune.settings.stacks.settings_of_stack_commands import SETTINGS_FILE
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.find_command_line_option_values import (
    StartingCommand,
    shell_commands_starting_script,
)
from truetune.source.parsed_source_file import Module
from truetune.source.settings_files_as_expressions import ARGUMENT_FILES

PARSERS = (
    "transformers.HfArgumentParser",
    "transformers.*.HfArgumentParser",
    "trl.TrlParser",
    "trl.*.TrlParser",
)
COMMAND_PARSINGS = ("parse_args_into_dataclasses", "parse_args_and_config")
"""Methods of the parsers that read the command line"""
MAX_COMMANDS = 8
"""Commands that start one script. Chosen, not measured: folders hold a command for each model or stage"""


class CommandSettings(NamedTuple):
    """The options of a command that become the arguments of a trainer."""

    class_name: str
    """`SFTConfig`, or the library's class that one of the script is made of"""
    file: str
    values: Mapping[str, Any]
    """Argument -> its value; UNKNOWN_VALUE where only the shell or the script knows it"""
    spots: Mapping[str, TextPosition]
    is_whole: bool
    """No option is hidden in a variable of the shell: what is not given has its default"""


class ParsedSettings(NamedTuple):
    """The entries of a file that become the arguments of a trainer."""

    class_name: str
    """`CPOConfig`, or the library's class that one of the script is made of"""
    file: str
    text: str
    entries: Mapping[str, tuple[ast.expr, ast.expr]]
    """Key -> its node and that of its value, in the file"""


def settings_files_read_by_parser(module: Module) -> Iterator[ParsedSettings]:
    """The files that parsers of a script read into a trainer's arguments, one for each call and
    class. A file whose keys tell its program is left out: it is judged as a file of settings.
    """
    for method in ARGUMENT_FILES:
        for call in module.methods(method):
            settings = _settings_file_read_by_call(module, call, method)
            if settings is not None:
                yield settings


def _settings_file_read_by_call(module: Module, call: Call, method: str) -> ParsedSettings | None:
    """The file that a parser's method reads into the arguments of one trainer; None where it is not
    known, or is judged by itself.
    """
    parser = module.flow.producing_call(call.receiver)
    if parser is None or not parser.named(*PARSERS):
        return None
    classes = list(_classes_given_to_parser(module, parser.argument(0, "dataclass_types")))
    named = [name for one in classes if (name := _library_class_of_arguments(module, one))]
    files = module.flow.settings_files
    literal = files.arguments_read_by_parser(module.flow, call.node, method)
    home = files.settings_file_of_node(literal) if literal is not None else None
    if literal is None or home is None:
        return None
    if len(named) != 1 or _is_settings_file_judged_by_itself(home.path):
        return None
    entries = _entries_of_trainer_arguments(module, literal, named[0], classes)
    return ParsedSettings(named[0], home.path, home.text, entries)


def _entries_of_trainer_arguments(
    module: Module, literal: ast.Dict, trainer: str, classes: list[ast.expr]
) -> dict[str, tuple[ast.expr, ast.expr]]:
    """The entries of a file that the trainer's class takes; those of the other classes are the
    script's own.
    """
    entries = dict(_keys_with_nodes_and_values(literal))
    own = _fields_added_by_script_classes(module, classes)
    if own is not None:
        return {key: one for key, one in entries.items() if key not in own}
    known = _argument_names_of_all_releases(trainer)
    return {key: one for key, one in entries.items() if key in known}


def _argument_names_of_all_releases(class_name: str) -> set[str]:
    """The arguments of a library's class, with their names in other releases."""
    return {*class_defaults(class_name), *RENAMED_KEYS["transformers"], *RENAMED_KEYS["trl"]}


def command_options_read_by_parser(module: Module) -> Iterator[CommandSettings]:
    """The options that the commands of shell scripts beside a script give to a trainer's arguments,
    by the script's parser. A command that names a file of settings is left out, for the file and
    the options decide together.
    """
    for method in COMMAND_PARSINGS:
        for call in module.methods(method):
            parser = module.flow.producing_call(call.receiver)
            if parser is None or not parser.named(*PARSERS):
                continue
            classes = list(_classes_given_to_parser(module, parser.argument(0, "dataclass_types")))
            trainers = [one for one in classes if _library_class_of_arguments(module, one)]
            if len(trainers) != 1:
                continue
            path = Path(module.path)
            for command in shell_commands_starting_script(path.parent, path.name)[:MAX_COMMANDS]:
                options = dict(parse_options(command.words))
                if options and not any(f"--{key}" in SETTINGS_FILE for key in options):
                    yield _options_for_trainer_class(module, trainers[0], classes, command, options)


def _options_for_trainer_class(
    module: Module,
    trainer: ast.expr,
    classes: list[ast.expr],
    command: StartingCommand,
    options: Mapping[str, Any],
) -> CommandSettings:
    """The options of a command that the trainer's class takes; those of the other classes are the
    script's own.
    """
    name = _library_class_of_arguments(module, trainer)
    known = _argument_names_of_all_releases(name)
    values = {
        key: value
        for key, value in _script_class_fields_with_defaults(module, trainer)
        if key in known
    }
    others = [one for one in classes if one is not trainer]
    known -= {key for one in others for key, _ in _script_class_fields_with_defaults(module, one)}
    spots: dict[str, TextPosition] = {}
    text_lines = command.text.splitlines()
    for option, value in options.items():
        setting = _argument_set_by_option(option, value, known)
        if setting is None:
            continue
        key, values[key] = setting
        spots[key] = position_of_option(text_lines, command.line, option)
    is_whole = not any(word.startswith(("$", "`")) for word in command.words)
    return CommandSettings(name, command.file, values, spots, is_whole)


def _argument_set_by_option(
    option: str, value: object, known: Set[str]
) -> tuple[str, object] | None:
    """The argument that an option sets, with its value; None where none of the known ones is.

    `--no_bf16` sets `bf16` to False.
    """
    if option in known:
        return option, value
    key = option.removeprefix("no_")
    return (key, False) if key in known else None


def _script_class_fields_with_defaults(module: Module, node: ast.expr) -> Iterator[tuple[str, Any]]:
    """The fields that a class of the script declares, with their defaults."""
    for origin in module.flow.origins(node):
        body = origin.node.body if isinstance(origin.node, ast.ClassDef) else []
        for line in body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                value = module.flow.value(line.value) if line.value is not None else UNKNOWN
                yield line.target.id, UNKNOWN_VALUE if value is UNKNOWN else value


def _classes_given_to_parser(module: Module, node: ast.expr | None) -> Iterator[ast.expr]:
    """The classes of `(ScriptArguments, CPOConfig)`, written there or under a name."""
    origins = () if node is None else module.flow.origins(node)
    given = origins[0].node if len(origins) == 1 else node
    if isinstance(given, ast.Tuple | ast.List):
        yield from given.elts
    elif node is not None:
        yield node


def _library_class_of_arguments(module: Module, node: ast.expr) -> str:
    """The library's class of arguments that a class is, or is made of; empty for any other."""
    names = (name.rpartition(".") for name in module.flow.names(node))
    known = (
        last for package, _, last in names if package.partition(".")[0] in ("trl", "transformers")
    )
    return next((name for name in known if name in METHOD_OF_CLASS), "")


def _fields_added_by_script_classes(
    module: Module, classes: list[ast.expr]
) -> frozenset[str] | None:
    """The fields that classes of the script add; None where a class comes from elsewhere."""
    fields: set[str] = set()
    for node in classes:
        made_here = [
            one.node for one in module.flow.origins(node) if isinstance(one.node, ast.ClassDef)
        ]
        if not made_here and not _library_class_of_arguments(module, node):
            return None
        for one in made_here:
            fields |= set(_declared_fields(one))
    return frozenset(fields)


def _declared_fields(node: ast.ClassDef) -> Iterator[str]:
    """The fields that a class of the script declares."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id


def _keys_with_nodes_and_values(
    literal: ast.Dict,
) -> Iterator[tuple[str, tuple[ast.expr, ast.expr]]]:
    """The keys of a file with their nodes and values."""
    for key, value in zip(literal.keys, literal.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, (key, value)


def _is_settings_file_judged_by_itself(path: str) -> bool:
    """Is the file judged by itself, because its keys or its project tell who reads it?"""
    try:
        return identify_stack(read_located_document(Path(path)).value, Path(path)) is not None
    except TruetuneError:
        return True  # what is wrong with the file is said where it is looked at
