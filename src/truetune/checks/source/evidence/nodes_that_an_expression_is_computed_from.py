"""Computes backward slices: all nodes that an expression is computed from, through names, functions
of the file, and lists.

They are wider than the truth: whatever takes part anywhere counts. A rule asks them whether a
certain call takes part at all, and proves the rest itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module

MAX_EXPRESSIONS = 200
"""Expressions that one slice opens; the loss of a training loop takes some 30"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
WITHOUT_GRADIENT = ("no_grad", "inference_mode", "set_grad_enabled(False")
CALLERS = 4
"""Functions that are followed outwards, each through its callers"""
MAX_CALLERS = 6
"""Callers of one function that are asked. Chosen, not measured: losses of policy, reference and validation are three"""


def backward_slice(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that an expression is computed from, itself first, each once.

    What is added to a name (`total += x`, `values.append(x)`) belongs to it.
    """
    seen: set[ast.AST] = set()
    waiting: list[ast.AST] = [node]
    opened = 0
    while waiting and opened < MAX_EXPRESSIONS:
        opened += 1
        for part in ast.walk(waiting.pop()):
            if part in seen or isinstance(part, FUNCTIONS):
                continue
            seen.add(part)
            yield part
            if isinstance(part, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
                origins = (origin.node for origin in module.flow.origins(part))
                waiting += [
                    origin_node for origin_node in origins if isinstance(origin_node, ast.expr)
                ]
            if isinstance(part, ast.Name):
                waiting += module.expressions_added_to_variable(part)


def may_record_gradients(module: Module, node: ast.AST, depth: int = CALLERS) -> bool:
    """May gradients be recorded here: is neither this place nor every caller of its function
    without them?
    """
    if depth == 0:
        return True
    for around in module.parents(node):
        if isinstance(around, ast.With) and any(map(_context_turns_gradients_off, around.items)):
            return False
        if isinstance(around, FUNCTIONS):
            if any(map(_context_turns_gradients_off, getattr(around, "decorator_list", ()))):
                return False
            callers = module.flow.calls_of_function_or_class(around)[:MAX_CALLERS]
            return not callers or any(
                may_record_gradients(module, caller, depth - 1) for caller in callers
            )
    return True


def _context_turns_gradients_off(context: ast.AST) -> bool:
    """Does a context keep gradients from being recorded?"""
    text = ast.unparse(context)
    return any(name in text for name in WITHOUT_GRADIENT)
