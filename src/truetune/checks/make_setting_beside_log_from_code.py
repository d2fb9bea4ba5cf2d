"""Makes a setting beside a log (name, value, file, line) of the place in a script's code that sets it."""

from __future__ import annotations

import ast

from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.source.parsed_source_file import Module


def setting_at_code_place(
    module: Module, node: ast.AST, name: str, value: bool | int | str, text: str
) -> SettingBeside:
    """A setting that a place in the code makes, at its line."""
    line, _ = module.place(node)
    return SettingBeside(name, value, module.home(node).path, line, text)
