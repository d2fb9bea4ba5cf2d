"""Makes the place (`Case`) and the fix (`Fix`) of a finding from nodes of source."""

from __future__ import annotations

import ast

from truetune.checks.findings import Case, Edit, Fix
from truetune.source.make_source_edits import Changes, convert_changes_to_file_positions
from truetune.source.parsed_source_file import Module

# Chosen to read: a line of code fits a terminal beside its place.
MAX_CODE_CHARACTERS = 100
"""Characters of code that a case shows"""


def case_of_node(module: Module, node: ast.AST, text: str = "") -> Case:
    """The case of a node: its file, line and column, and the first line of its code (or `text`)."""
    line, column = module.place(node)
    is_setting = module.flow.settings_files.settings_file_of_node(node) is not None
    # Of a file of settings the value alone says little: its line has the key too.
    shown = module.home(node).lines.line(line) if is_setting else module.text_of(node)
    code = text or " ".join(shown.split())
    if len(code) > MAX_CODE_CHARACTERS:
        code = code[: MAX_CODE_CHARACTERS - 4] + " ..."
    cell = module.describe_cell_and_line_of_node(node)
    return Case(
        f"{cell}: {code}" if cell else code, file=module.home(node).path, line=line, column=column
    )


def fix_of_changes(module: Module, changes: Changes, *, safe: bool = True) -> Fix | None:
    """A fix that makes these changes; None where there are none."""
    edits = tuple(Edit(*change) for change in convert_changes_to_file_positions(module, changes))
    return Fix(module.path, edits, safe) if edits else None
