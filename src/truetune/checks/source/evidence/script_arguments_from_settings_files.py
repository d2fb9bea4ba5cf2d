"""Reads the arguments that a script takes from a settings file beside it:

`LoraConfig(**cfg["lora"])`.

The script says which keys it reads, and not always which file. So each YAML or JSON file in its
folder, or in a folder of settings there, that has a mapping under these keys may be the one; what
none of them holds is certainly not given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truetune.errors import SpecError
from truetune.settings.located_document import read_located_document
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

READERS = (
    "yaml.safe_load",
    "yaml.load",
    "yaml.full_load",
    "json.load",
    "json.loads",
    "omegaconf.OmegaConf.load",
)
COPIES = ("omegaconf.OmegaConf.to_container", "dict", "copy.deepcopy")
"""Calls that give the same settings again"""
FOLDERS_OF_SETTINGS = ("", "conf", "config", "configs")
SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 40
"""Files of a folder that are read: a folder of data in JSON is no folder of settings"""
MAX_STEPS = 8
"""Keys, names and copies between an argument and the file"""


class ReadSettings(NamedTuple):
    """A part of what a script reads from a file of settings."""

    reader: ast.Call
    keys: tuple[str, ...]


def surely_lacks_argument(module: Module, call: Call, name: str) -> bool:
    """Is an argument certainly not given, by the call itself or by the settings that `**` spreads
    in it?
    """
    if name in call.keywords or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    if not call.open:
        return call.lacks(name)
    mappings = settings_spread_into_call(module, call)
    return mappings is not None and not any(name in one for one in mappings)


def settings_spread_into_call(module: Module, call: Call) -> list[Mapping[str, Any]] | None:
    """What `**` may spread in a call, by the settings beside the script; None where some of it is
    not seen.
    """
    spread = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    mappings: list[Mapping[str, Any]] = []
    for value in spread:
        if module.flow.dict_entries_and_if_complete(value)[1]:
            continue  # a dictionary of the files, whose entries the call has already
        settings = settings_part_of_expression(module, value)
        beside = list(_settings_mappings_beside(module, settings)) if settings is not None else []
        if not beside:
            return None
        mappings += beside
    return mappings


def settings_part_of_expression(module: Module, value: ast.expr) -> ReadSettings | None:
    """The part of a settings file that an expression is; None where it comes from elsewhere."""
    keys: list[str] = []
    node: ast.AST = value
    for _ in range(MAX_STEPS):
        if isinstance(node, ast.Call):
            call = module.flow.call(node)
            if call.named(*READERS):
                return ReadSettings(node, tuple(reversed(keys)))
            if not call.named(*COPIES) or not node.args:
                return None
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.append(str(node.slice.value))
            node = node.value
        elif isinstance(node, ast.Attribute) and _is_key_of_read_settings(module, node):
            keys.append(node.attr)
            node = node.value
        else:
            made = _only_origin_of_whole_value(module, node)
            if made is None:
                return None
            node = made
    return None


def _only_origin_of_whole_value(module: Module, node: ast.AST) -> ast.AST | None:
    """The one place that makes a value, whole and not a part of it; None where there are several,
    or it is this.
    """
    origins = module.flow.origins(node)
    if len(origins) != 1 or origins[0].path or origins[0].element:
        return None
    return None if origins[0].node is node else origins[0].node


def _is_key_of_read_settings(module: Module, node: ast.Attribute) -> bool:
    """Is nothing in the files known to set this attribute? Then it is a key of what was read."""
    return all(origin.node is node for origin in module.flow.origins(node))


def _settings_mappings_beside(
    module: Module, settings: ReadSettings
) -> Iterator[Mapping[str, Any]]:
    """What the files beside the script hold under these keys, where that is a mapping."""
    folder = Path(module.home(settings.reader).path).absolute().parent
    files = [
        path
        for name in FOLDERS_OF_SETTINGS
        for path in sorted((folder / name).glob("*"))
        if path.suffix in SUFFIXES and path.is_file()
    ]
    for path in files[:MAX_FILES]:
        try:
            value = read_located_document(path).value
        except SpecError:
            continue
        for key in settings.keys:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict):
            yield value
