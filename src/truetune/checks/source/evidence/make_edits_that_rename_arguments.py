"""Makes the changes that give arguments their new names where they are given: in the call, or in a
dictionary that is spread into it.
"""

from __future__ import annotations

import ast

from truetune.settings.stacks.removed_arguments import RemovedArgument
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import Change, Changes, replace_expression
from truetune.source.parsed_source_file import Module


def node_of_argument(call: Call, name: str) -> ast.AST:
    """The node that gives an argument: the keyword in the call, or its value in a `**` dictionary."""
    return next(
        (keyword for keyword in call.node.keywords if keyword.arg == name), call.keywords[name]
    )


def changes_renaming_arguments(module: Module, call: Call, gone: list[RemovedArgument]) -> Changes:
    """The changes that rename the keywords of a call which today only have another name."""
    changes: list[Change] = []
    for one in gone:
        argument_node = node_of_argument(call, one.name)
        if (
            one.renamed is None
            or one.renamed in call.keywords
            or module.home(argument_node) is not module
        ):
            continue
        if isinstance(argument_node, ast.keyword):
            start = module.span(argument_node)[0]
            changes.append(Change(start, start + len(one.name), one.renamed))
        else:
            changes += _changes_renaming_key(module, argument_node, one)
    return tuple(changes)


def _changes_renaming_key(module: Module, value: ast.AST, gone: RemovedArgument) -> Changes:
    """The change of the name under which a dictionary holds a value: a key, a keyword of `dict`, or
    what an assignment sets.
    """
    parent = module.scopes.parent[value]
    if isinstance(parent, ast.keyword):
        start = module.span(parent)[0]
        return (Change(start, start + len(gone.name), gone.renamed or ""),)
    key: ast.expr | None = None
    if isinstance(parent, ast.Dict):
        key = next((k for k, v in zip(parent.keys, parent.values, strict=True) if v is value), None)
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript):
        key = parent.targets[0].slice
    return (
        replace_expression(module, key, f'"{gone.renamed}"')
        if isinstance(key, ast.Constant)
        else ()
    )
