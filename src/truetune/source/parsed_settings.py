"""Files of settings that a script reads into a class of a trainer's arguments: `parse_yaml_file`, `parse_json_file`.

How it works: the parser (`HfArgumentParser`, `TrlParser`) is given classes in the open; the one that a trainer takes
decides what the keys of the file mean. Keys of the other classes are the script's own, and left out.

The trade-off: a class that the script imports from elsewhere has fields that are not seen here. Then a key that no
trainer knows is taken for one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from truetune.errors import TruetuneError
from truetune.settings.located_document import read_document
from truetune.settings.stacks.config_file import identify_stack
from truetune.settings.stacks.known_keys import RENAMED_KEYS
from truetune.settings.stacks.trainer_arguments import METHOD_OF_CLASS, class_defaults
from truetune.source.module import Module
from truetune.source.settings_files import ARGUMENT_FILES

PARSERS = (
    "transformers.HfArgumentParser",
    "transformers.*.HfArgumentParser",
    "trl.TrlParser",
    "trl.*.TrlParser",
)


class ParsedSettings(NamedTuple):
    """The entries of a file that become the arguments of a trainer."""

    class_name: str
    """`CPOConfig`, or the library's class that one of the script is made of"""
    file: str
    text: str
    entries: Mapping[str, tuple[ast.expr, ast.expr]]
    """Key -> its node and that of its value, in the file"""


def find_parsed_settings(module: Module) -> Iterator[ParsedSettings]:
    """The files that parsers of a script read, one for each call and class of a trainer's arguments.

    A file whose program its keys tell is left out: it is judged as a file of settings.
    """
    for method in ARGUMENT_FILES:
        for call in module.methods(method):
            parser = module.flow.producing_call(call.receiver)
            if parser is None or not parser.named(*PARSERS):
                continue
            classes = list(_given_classes(module, parser.argument(0, "dataclass_types")))
            named = [name for one in classes if (name := _trainer_class(module, one))]
            literal = module.flow.settings_files.arguments_read_by(module.flow, call.node, method)
            home = module.flow.settings_files.home_of(literal) if literal is not None else None
            if literal is None or home is None or len(named) != 1 or _is_told_by_keys(home.path):
                continue
            entries = dict(_entries(literal))
            own = _fields_of_script(module, classes)
            if own is not None:
                kept = {key: one for key, one in entries.items() if key not in own}
            else:
                known = {
                    *class_defaults(named[0]),
                    *RENAMED_KEYS["transformers"],
                    *RENAMED_KEYS["trl"],
                }
                kept = {key: one for key, one in entries.items() if key in known}
            yield ParsedSettings(named[0], home.path, home.text, kept)


def _given_classes(module: Module, node: ast.expr | None) -> Iterator[ast.expr]:
    """The classes of `(ScriptArguments, CPOConfig)`, written there or under a name."""
    origins = () if node is None else module.flow.origins(node)
    given = origins[0].node if len(origins) == 1 else node
    if isinstance(given, ast.Tuple | ast.List):
        yield from given.elts
    elif node is not None:
        yield node


def _trainer_class(module: Module, node: ast.expr) -> str:
    """The library's class of arguments that a class is, or is made of; empty for any other."""
    names = (name.rpartition(".") for name in module.flow.names(node))
    known = (
        last for package, _, last in names if package.partition(".")[0] in ("trl", "transformers")
    )
    return next((name for name in known if name in METHOD_OF_CLASS), "")


def _fields_of_script(module: Module, classes: list[ast.expr]) -> frozenset[str] | None:
    """The fields that classes of the script add; None where a class comes from elsewhere."""
    fields: set[str] = set()
    for node in classes:
        made_here = [
            one.node for one in module.flow.origins(node) if isinstance(one.node, ast.ClassDef)
        ]
        if not made_here and not _trainer_class(module, node):
            return None
        for one in made_here:
            fields |= set(_own_fields(one))
    return frozenset(fields)


def _own_fields(node: ast.ClassDef) -> Iterator[str]:
    """The fields that a class of the script declares."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id


def _entries(literal: ast.Dict) -> Iterator[tuple[str, tuple[ast.expr, ast.expr]]]:
    """The keys of a file with their nodes and values."""
    for key, value in zip(literal.keys, literal.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, (key, value)


def _is_told_by_keys(path: str) -> bool:
    """Is the file judged by itself, because its keys or its project tell who reads it?"""
    try:
        return identify_stack(read_document(Path(path)).value, Path(path)) is not None
    except TruetuneError:
        return True  # what is wrong with the file is said where it is looked at
