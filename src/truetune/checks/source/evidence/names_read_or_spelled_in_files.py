"""Whether a name that a script sets or defines is read anywhere, also by its text.

A text counts as a use: `getattr(args, "name")` and a table of names read it. The trade-off: a text that only looks
like the name keeps a rule silent.
"""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module


def is_name_read_or_spelled(module: Module, name: str) -> bool:
    """Does a file, or one that runs with it, read an attribute of this name, or hold the name as a text?"""
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Attribute):
            if node.attr == name and isinstance(node.ctx, ast.Load):
                return True
        if any(node.value == name for node in part.nodes(ast.Constant)):
            return True
    return False
