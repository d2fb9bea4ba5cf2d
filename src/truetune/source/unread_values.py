"""Finds values that a script makes and nothing reads, such as settings that are built and left.

How it works: a value is followed forwards, through names, dictionaries and functions of the file, to what reads it.

The trade-off: a value counts as read wherever code might read it in a way not seen here (`globals()`, a text with its
name, another file), so some unused ones are missed and none is called unused wrongly.
"""

from __future__ import annotations

import ast
import re

from truetune.source.name_bindings_in_scopes import Scope
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

MAX_STEPS = 6
"""Names, dictionaries and functions that a value is followed through. Chosen; more are rare, and count as read."""
CALLS_READING_ANY_NAME = ("locals", "globals", "vars", "eval", "exec")
"""Functions that may read a name that the code does not spell"""


def is_never_read(module: Module, value: ast.expr, ignoring: tuple[str, ...] = ()) -> bool:
    """Does nothing read the value of an expression? `ignoring`: calls that take it and do nothing with it."""
    if any(module.calls(*CALLS_READING_ANY_NAME)):
        return False
    return _Search(module, ignoring).is_lost(value, 0)


class _Search:
    """Follows values of one file to what reads them."""

    def __init__(self, module: Module, ignoring: tuple[str, ...]) -> None:
        self.module = module
        self.ignoring = ignoring

    def is_lost(self, value: ast.expr, depth: int) -> bool:
        """Is the value of an expression lost: does it go nowhere that reads it?"""
        around = self.module.scopes.parent.get(value)
        if depth > MAX_STEPS or around is None:
            return False
        if isinstance(around, ast.Attribute):
            return isinstance(around.ctx, ast.Store)
        if isinstance(around, ast.Assign | ast.AnnAssign):
            return self._is_assigned_value_unread(around, depth)
        if isinstance(around, ast.Return):
            return self._do_all_calls_lose_result(around, depth)
        if isinstance(around, ast.IfExp | ast.Dict):
            return self.is_lost(around, depth + 1)
        if isinstance(around, ast.keyword):
            call = self.module.scopes.parent.get(around)
            return isinstance(call, ast.Call) and self._is_lost_in_call(call, value, depth)
        if isinstance(around, ast.Call):
            return self._is_lost_in_call(around, value, depth)
        # A bare name as the last line of a notebook's cell is shown, and no more.
        return isinstance(around, ast.Expr) and isinstance(value, ast.Name)

    def _is_assigned_value_unread(self, statement: ast.Assign | ast.AnnAssign, depth: int) -> bool:
        """Is what the value is assigned to read by nothing?"""
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
        if len(targets) != 1:
            return False
        target = targets[0]
        if isinstance(target, ast.Name):
            return self._is_name_unread(target, depth)
        if not isinstance(target, ast.Attribute):
            return False
        return _is_config_of_loaded_model(self.module, target) or self._is_attribute_unread(target)

    def _is_attribute_unread(self, target: ast.Attribute) -> bool:
        """Does nothing read an attribute of `self` whose class is made and used in this file alone?"""
        module = self.module
        owner = module.flow.class_around(target)
        if (
            spelling_of_variable(target) is None
            or owner is None
            or len(module.self_and_files_run_together) > 1
        ):
            return False
        # A base, a decorator or who is handed the object may read the attribute by its name.
        if (
            owner.bases
            or owner.keywords
            or owner.decorator_list
            or _is_object_passed_on(module, owner)
        ):
            return False
        return not _may_attribute_be_read(module, target.attr)

    def _is_name_unread(self, name: ast.Name, depth: int) -> bool:
        """Is every reading of a name lost as well? A name that may be read in a way not seen here is none."""
        scopes = self.module.scopes
        home = scopes.scope_that_binds_name(name)
        # Attributes of a class are read as `self.config` or from outside, which a search for the name does not find.
        if isinstance(home.node, ast.ClassDef) or _may_be_read_unseen(
            self.module, name, scopes.of[name]
        ):
            return False
        reads = (
            read
            for read in self.module.name_reads.get(name.id, ())
            if scopes.scope_that_binds_name(read) is home
        )
        return all(self.is_lost(read, depth + 1) for read in reads)

    def _is_lost_in_call(self, call: ast.Call, value: ast.expr, depth: int) -> bool:
        """Does a call do nothing with a value that it is given?"""
        resolved = self.module.flow.call(call)
        if resolved.named("dict"):
            return self.is_lost(call, depth + 1)
        if resolved.named("print", *self.ignoring):
            return True
        function = (
            self.module.flow.function_that_expression_names(call.func)
            if not resolved.names
            else None
        )
        if not isinstance(function, ast.FunctionDef):
            return False
        parameter = _parameter_given_by_argument(self.module, function, call, value)
        if parameter is None:
            return False
        inside = self.module.scopes.inside[function]
        reads = self.module.name_reads.get(parameter.arg, ())
        return not any(self.module.scopes.scope_that_binds_name(read) is inside for read in reads)

    def _do_all_calls_lose_result(self, statement: ast.Return, depth: int) -> bool:
        """Do all calls of the function lose what it returns? One that nothing calls may serve other files."""
        function = self.module.scopes.of[statement].node
        calls = (
            self.module.flow.calls_of_function_or_class(function)
            if isinstance(function, ast.FunctionDef)
            else []
        )
        return bool(calls) and all(self.is_lost(call, depth + 1) for call in calls)


def _may_attribute_be_read(module: Module, name: str) -> bool:
    """Does a file read an attribute of a name, spell the name as a text, or read all attributes at once?"""
    for node in module.nodes(ast.Attribute):
        is_read = node.attr == name and not isinstance(node.ctx, ast.Store)
        if is_read or node.attr == "__dict__":
            return True
    return any(node.value == name for node in module.nodes(ast.Constant))


def _is_object_passed_on(module: Module, owner: ast.ClassDef) -> bool:
    """Does an object of a class go anywhere as a whole: `f(self)`, `Experiment()` that is kept or given to a function?

    A class that nothing makes in the file is made by another one.
    """
    for name in module.name_reads.get("self", ()):
        if not isinstance(module.scopes.parent.get(name), ast.Attribute):
            return True
    calls = module.flow.calls_of_function_or_class(owner)
    return not calls or not all(_is_used_only_for_methods(module, call) for call in calls)


def _is_used_only_for_methods(module: Module, made: ast.Call) -> bool:
    """Is an object asked for a method where it is made, or under a name that is used for its methods alone?"""
    around = module.scopes.parent.get(made)
    if isinstance(around, ast.Assign) and len(around.targets) == 1:
        target = around.targets[0]
        if not isinstance(target, ast.Name):
            return False
        reads = module.name_reads.get(target.id, ())
        return all(isinstance(module.scopes.parent.get(read), ast.Attribute) for read in reads)
    return isinstance(around, ast.Attribute | ast.Expr)


def _is_config_of_loaded_model(module: Module, target: ast.Attribute) -> bool:
    """Is it `model.config.quantization_config` of a model whose weights are loaded by then?"""
    owner = target.value
    return (
        target.attr == "quantization_config"
        and isinstance(owner, ast.Attribute)
        and owner.attr == "config"
        and "model" in module.flow.types(owner.value)
    )


def _parameter_given_by_argument(
    module: Module, function: ast.FunctionDef, call: ast.Call, value: ast.expr
) -> ast.arg | None:
    """The parameter that a call gives the value for; None where that is not certain, or it is `**kwargs`."""
    arguments = function.args
    named = next((one.arg for one in call.keywords if one.value is value), None)
    if named is not None:
        every = (*arguments.args, *arguments.kwonlyargs)
        return next((one for one in every if one.arg == named), None)
    is_method = isinstance(module.scopes.of[function].node, ast.ClassDef)
    if is_method or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    position = call.args.index(value)
    positional = (*arguments.posonlyargs, *arguments.args)
    return positional[position] if position < len(positional) else None


def _may_be_read_unseen(module: Module, name: ast.Name, scope: Scope) -> bool:
    """May code read the name that is not seen to: declared global, named by a text, in a file that runs with it?"""
    if name.id in scope.elsewhere:
        return True
    # Other files and texts reach the names of a file, and not those inside of its functions.
    if module.scopes.scope_that_binds_name(name) is not scope.enclosing_file_scope:
        return False
    if any(node.value == name.id for node in module.nodes(ast.Constant)):
        return True
    word = re.compile(rf"\b{re.escape(name.id)}\b")
    return any(
        word.search(part.text) for part in module.self_and_files_run_together if part is not module
    )
