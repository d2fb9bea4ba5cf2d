"""Says whether a value is a decision for a class (0 or 1) and no score any more, and what decided.

How it works: a value is followed back through casts, lists that are filled and arrays that are
joined, to what made it: `argmax`, `round`, a comparison with a threshold.

The trade-off: every way back must end in such a decision; one that is not understood ends the
question.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CASTING_METHODS = frozenset(
    (
        "tolist", "cpu", "numpy", "detach", "astype", "int", "long", "float", "bool", "squeeze", "flatten", "ravel",
        "item", "to", "reshape", "view",
    )
)  # fmt: skip
JOINING = (
    "numpy.array", "numpy.asarray", "numpy.concatenate", "numpy.hstack", "torch.cat", "torch.concat", "torch.tensor",
    "list", "int", "float", "torch.stack",
)  # fmt: skip
DECIDING = ("numpy.argmax", "torch.argmax", "numpy.rint")
ROUNDING = ("numpy.round", "torch.round", "round")
MAX_STEPS = 8
"""Steps back from a value; scripts take about three"""


def node_deciding_class_of_value(
    module: Module, value: ast.expr, depth: int = MAX_STEPS
) -> ast.AST | None:
    """What decided for a class, of a value that is certainly such decisions; None for any other."""
    deciding_node: ast.AST | None = None
    for origin in module.flow.origins(value):
        if origin.path or origin.element or not isinstance(origin.node, ast.expr):
            return None
        decision = _node_deciding_class(module, origin.node, depth)
        if decision is None:
            return None
        deciding_node = deciding_node or decision
    return deciding_node


def _node_deciding_class(module: Module, node: ast.expr, depth: int) -> ast.AST | None:
    """What decided for a class in one expression."""
    if _is_class_decision(module, node):
        return node
    if not depth:
        return None
    parts = list(_sources_of_value(module, node))
    decisions = [node_deciding_class_of_value(module, part, depth - 1) for part in parts]
    if not decisions or any(one is None for one in decisions):
        return None
    return decisions[0]


def _is_class_decision(module: Module, node: ast.expr) -> bool:
    """Does an expression decide for a class: `x.argmax(-1)`, `np.round(p)`, `p > 0.5`?"""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE)
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if call.method == "round" or call.named(*ROUNDING):
        # With digits it only shortens a score: np.round(p, 3), round(p, ndigits=3).
        position = 0 if call.method else 1
        return call.lacks("decimals", position) and call.lacks("ndigits")
    return call.method == "argmax" or call.named(*DECIDING)


def _sources_of_value(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """What a cast, a joined array or a filled list is made of."""
    if isinstance(node, ast.Call):
        yield from _values_passed_on_by_call(module, module.flow.call(node))
    elif isinstance(node, ast.ListComp):
        yield node.elt
    elif isinstance(node, ast.List) and not node.elts:
        yield from _values_added_to_list(module, node)


def _values_passed_on_by_call(module: Module, call: Call) -> Iterator[ast.expr]:
    """What a call casts, joins, or turns into 0 and 1."""
    if call.method in CASTING_METHODS and call.receiver is not None:
        yield call.receiver
    elif call.named(*JOINING) and call.args:
        yield call.args[0]
    elif call.named("numpy.where", "torch.where") and len(call.args) == 3:
        if all(module.flow.value(one) in (0, 1) for one in call.args[1:]):
            yield call.args[0]


def _values_added_to_list(module: Module, filled: ast.List) -> Iterator[ast.expr]:
    """What is added to a list that begins empty."""
    for call in module.methods("append", "extend"):
        origins = [] if call.receiver is None else module.flow.origins(call.receiver)
        if call.args and any(origin.node is filled for origin in origins):
            yield call.args[0]
    for node in module.nodes(ast.AugAssign):
        if any(origin.node is filled for origin in module.flow.origins(node.target)):
            yield node.value
