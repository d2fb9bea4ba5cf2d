"""Settings of a quantization that a script builds, and whether anything reads them.

Examples and notebooks leave a `BitsAndBytesConfig` behind that no longer reaches a model; rules on quantization must
not judge it, and one rule says so. The trade-off: a config counts as read wherever code might read it in a way not
seen here (`globals()`, a text with its name, another file), so some unused ones are missed and none is called unused
wrongly.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.module import Module
from truetune.source.resolved_calls import Call
from truetune.source.scopes import Scope

BITSANDBYTES_CONFIG = "transformers.BitsAndBytesConfig"
MODEL_READERS = (
    "*.from_pretrained",
    "*.get_peft_model",
    "transformers.pipeline",
    "transformers.*Trainer",
    "trl.*Trainer",
)
"""Calls that load or wrap a model: a file with one of them uses its settings itself"""
CALLS_READING_ANY_NAME = ("locals", "globals", "vars", "eval", "exec")
"""Functions that may read a name that the code does not spell"""


def find_quantization_configs(module: Module) -> Iterator[Call]:
    """The settings of bitsandbytes that may reach a model: those that something reads."""
    return (
        call for call in module.calls(BITSANDBYTES_CONFIG) if not is_unused_config(module, call)
    )


def is_unused_config(module: Module, call: Call) -> bool:
    """Is a call's result given a name that nothing reads, in a file that loads a model itself?

    A file that loads none may hold settings for others, and a class's attributes are read through it.
    """
    name = _assigned_name(module, call)
    if (
        name is None
        or not any(module.calls(*MODEL_READERS))
        or any(module.calls(*CALLS_READING_ANY_NAME))
    ):
        return False
    # Attributes of a class are read as `self.config` or from outside, which a search for the name does not find.
    scopes = module.scopes
    home = scopes.home_of(name)
    if isinstance(home.node, ast.ClassDef) or _may_be_read_unseen(module, name, scopes.of[name]):
        return False
    reads = (read for read in module.name_reads.get(name.id, ()) if scopes.home_of(read) is home)
    return all(_is_only_printed(module, read) for read in reads)


def _assigned_name(module: Module, call: Call) -> ast.Name | None:
    """The one name that the call's result is assigned to; None where it goes elsewhere."""
    statement = next(module.parents(call.node), None)
    if isinstance(statement, ast.AnnAssign):
        targets: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    else:
        return None
    target = targets[0] if len(targets) == 1 else None
    return target if isinstance(target, ast.Name) else None


def _may_be_read_unseen(module: Module, name: ast.Name, scope: Scope) -> bool:
    """May code read the name that is not seen to: declared global, named by a text, in a file that runs with it?"""
    if name.id in scope.elsewhere:
        return True
    if any(node.value == name.id for node in module.nodes(ast.Constant)):
        return True
    return any(name.id in part.text for part in module.with_linked if part is not module)


def _is_only_printed(module: Module, read: ast.Name) -> bool:
    """Is the name read to be printed, or to set an attribute of it?"""
    around = next(module.parents(read), None)
    # A bare name as the last line of a notebook's cell is shown, and no more.
    if isinstance(around, ast.Attribute):
        return isinstance(around.ctx, ast.Store)
    return isinstance(around, ast.Expr) or (
        isinstance(around, ast.Call) and module.flow.call(around).named("print")
    )
