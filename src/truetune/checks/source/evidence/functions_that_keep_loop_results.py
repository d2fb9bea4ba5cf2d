"""Finds functions and methods that keep what a loop gives them, and their calls:

`self.scores.append(scores)` in an object.

How it works: the place stands in another function than the call of the model, so the calls of that
function are looked for. A method counts where the object that it is called on is of its class, by
what made it.

The trade-off: an object that nobody in the files makes is of no known class, and what it keeps is
not seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

Function = ast.FunctionDef | ast.AsyncFunctionDef
EMPTYING_METHODS = frozenset(("clear", "pop", "popleft", "popitem"))
HOOK_OF_BATCH = re.compile(r"on_(train|validation|test|predict)_batch_(?:start|end)")
"""Methods that Lightning calls before and after each batch"""
MAX_BASES = 8
"""Classes over one another that are followed. Chosen, not measured: metrics have one or two"""


class CallThatKeeps(NamedTuple):
    """A call of a function that keeps what it is given."""

    call: ast.AST
    """The call; of a hook of Lightning, which a trainer calls, the function itself"""
    function: Function
    owner: ast.ClassDef | None
    """The class whose method it is"""
    name: str
    """What it keeps things in: an attribute of the object, or a name"""
    given: str = ""
    """What the call names it, where the function is given it"""

    def is_renewed_in_each_step(self, module: Module, step: ast.AST) -> bool:
        """Is the object, or the list, a new one in each step?"""
        if not isinstance(self.call, ast.Call):
            return False
        base = self.call.func.value if isinstance(self.call.func, ast.Attribute) else None
        holders = [base, *self.call.args] if self.owner is None else [base]
        origins = [
            origin.node for one in holders if one is not None for origin in module.flow.origins(one)
        ]
        made = (one for one in origins if isinstance(one, ast.Call | ast.List | ast.Dict))
        return any(step in module.parents(one) for one in made)


def calls_of_function_keeping_results(
    module: Module, node: ast.AST, holder: ast.expr, forward: ast.Call
) -> list[CallThatKeeps]:
    """The calls of the function around a place that keeps something, where the model is called
    elsewhere.

    Args:
        module: The file of the place.
        node: The place.
        holder: What keeps it.
        forward: The call of the model.
    """
    function = module.function_around(node)
    if function is None or function is module.function_around(forward):
        return []
    root = _root_name_of_holder(holder)
    parent = module.scopes.parent.get(function)
    owner = parent if isinstance(parent, ast.ClassDef) else None
    if root is None or not _holder_outlives_call(module, function, owner, root):
        return []
    calls = module.flow.calls_of_function_or_class(function)
    if owner is not None:
        calls = [
            call for call in calls if _is_called_on_object_of(module, call, function.name, owner)
        ]
    around = module.function_around(forward)
    name = root.removeprefix("self.")
    return [
        CallThatKeeps(
            call, function, owner, name, _caller_name_of_list_parameter(function, root, call)
        )
        for call in calls
        if module.function_around(call) is around
    ]


def _holder_outlives_call(
    module: Module, function: Function, owner: ast.ClassDef | None, root: str
) -> bool:
    """Is a holder still there after the call: an attribute of an object, or a list made elsewhere?"""
    if root.startswith("self."):
        return owner is not None
    return not _list_is_local(module, function, root)


def lightning_batch_hook_keeping_results(
    module: Module, node: ast.AST, holder: ast.expr
) -> CallThatKeeps | None:
    """The method around a place that Lightning calls after each batch, where it keeps things in its
    object; None otherwise.
    """
    function, root = module.function_around(node), _root_name_of_holder(holder)
    if function is None or root is None or not root.startswith("self."):
        return None
    owner = module.scopes.parent.get(function)
    is_hook = HOOK_OF_BATCH.fullmatch(function.name) and function.name.endswith("_end")
    if not is_hook or not isinstance(owner, ast.ClassDef):
        return None
    return CallThatKeeps(function, function, owner, root.removeprefix("self."))


def output_returned_by_lightning_step(
    module: Module, outputs: ast.expr, key: str
) -> ast.expr | None:
    """What the step before a hook of Lightning returns under a key: `outputs["logits"]` of
    `on_train_batch_end`.
    """
    given = [origin.node for origin in module.flow.origins(outputs)]
    parameter = given[0] if len(given) == 1 else None
    if not isinstance(parameter, ast.arg) or parameter.arg != "outputs":
        return None
    hook = module.function_around(parameter)
    match = HOOK_OF_BATCH.fullmatch(hook.name) if hook is not None else None
    stage = match.group(1) if match is not None else ""
    name = {"train": "training_step"}.get(stage, f"{stage}_step")
    found = [
        module.flow.dict_entries_and_if_complete(value)[0].get(key)
        for part in module.self_and_files_run_together
        for step in part.nodes(ast.FunctionDef)
        if step.name == name
        for value in module.flow.returned_expressions_by_function.get(step, [])
    ]
    return found[0] if len(found) == 1 else None


def holder_is_emptied(module: Module, kept: CallThatKeeps, loop: ast.AST) -> bool:
    """Is the list that keeps things emptied or renewed in the loop, in the function itself, or
    around each batch?
    """
    hooks = [
        one
        for part in module.self_and_files_run_together
        for one in part.nodes(ast.FunctionDef)
        if HOOK_OF_BATCH.fullmatch(one.name)
    ]
    emptying = _emptying_methods(kept)
    if kept.given and any(
        _empties_or_renews(part, kept.given, frozenset()) for part in ast.walk(loop)
    ):
        return True
    places = [loop, kept.function, *hooks]
    if any(
        _empties_or_renews(part, kept.name, emptying) for root in places for part in ast.walk(root)
    ):
        return True
    return any(is_bounded_queue(call) for call in _constructors_of_holder(kept))


def is_bounded_queue(made: ast.Call) -> bool:
    """Is it `deque(maxlen=100)`? Without a length a queue grows as a list does."""
    if "deque" not in ast.unparse(made.func):
        return False
    return len(made.args) > 1 or any(one.arg == "maxlen" for one in made.keywords)


def _root_name_of_holder(holder: ast.expr) -> str | None:
    """The attribute of `self`, or the name, that a holder is a part of: `self.kept` of
    `self.kept["logits"]`.
    """
    while isinstance(holder, ast.Subscript | ast.Call):
        inner = holder.value if isinstance(holder, ast.Subscript) else holder.func
        holder = (
            inner.value
            if isinstance(inner, ast.Attribute) and inner.attr == "setdefault"
            else inner
        )
    text = ast.unparse(holder)
    is_attribute = isinstance(holder, ast.Attribute) and text.count(".") == 1
    return (
        text
        if isinstance(holder, ast.Name) or (is_attribute and text.startswith("self."))
        else None
    )


def _caller_name_of_list_parameter(function: Function, root: str, call: ast.Call) -> str:
    """What a call names the list that the function knows as a parameter; empty where it is none."""
    names = [one.arg for one in function.args.args]
    if root not in names:
        return ""
    by_name = [one.value for one in call.keywords if one.arg == root]
    given = [*by_name, *call.args[names.index(root) : names.index(root) + 1]]
    return ast.unparse(given[0]).rpartition(".")[2] if given else ""


def _list_is_local(module: Module, function: Function, name: str) -> bool:
    """Is a list made in the function itself, and gone with it?"""
    return any(
        isinstance(part, ast.Assign | ast.AnnAssign) and _sets_or_deletes(part, name)
        for part in ast.walk(function)
    )


def _is_called_on_object_of(module: Module, call: ast.Call, name: str, owner: ast.ClassDef) -> bool:
    """Is a method called on an object of a class, or of one that is made of it?"""
    called = call.func
    is_by_name = isinstance(called, ast.Attribute) and called.attr == name
    # An object that is called itself hands what it is given to a method.
    receiver = called.value if isinstance(called, ast.Attribute) and is_by_name else called
    if isinstance(receiver, ast.Name) and receiver.id in ("self", "cls"):
        around = next((one for one in module.parents(call) if isinstance(one, ast.ClassDef)), None)
        return around is not None and owner in _with_bases(module, around)
    definition = module.flow.class_of_object(receiver)
    return definition is not None and owner in _with_bases(module, definition)


def _with_bases(module: Module, owner: ast.ClassDef) -> list[ast.ClassDef]:
    """The class, and the classes of the files that it is derived from."""
    chain = [owner]
    for one in chain:
        definitions = (module.flow.class_of_object(base) for base in one.bases)
        chain += [base for base in definitions if base is not None and base not in chain]
        if len(chain) > MAX_BASES:
            break
    return chain


def _emptying_methods(kept: CallThatKeeps) -> frozenset[str]:
    """The methods of the class that empty or renew what is kept."""
    if kept.owner is None:
        return frozenset()
    methods = (one for one in kept.owner.body if isinstance(one, Function))
    return frozenset(
        one.name
        for one in methods
        if one.name != "__init__"
        and any(_empties_or_renews(part, kept.name, frozenset()) for part in ast.walk(one))
    )


def _empties_or_renews(part: ast.AST, name: str, emptying: frozenset[str]) -> bool:
    """Does a part of the code empty or renew what has a name, itself or by a method that does?"""
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
        is_own = part.func.attr in EMPTYING_METHODS and _is_name_or_attribute_named(
            part.func.value, name
        )
        return is_own or part.func.attr in emptying
    return isinstance(part, ast.Assign | ast.AnnAssign | ast.Delete) and _sets_or_deletes(
        part, name
    )


def _sets_or_deletes(statement: ast.Assign | ast.AnnAssign | ast.Delete, name: str) -> bool:
    """Does a statement set or delete what has a name, or all of its items?"""
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
    for target in targets:
        # `del kept[0]` and `kept[:] = []` take items out; `kept[n] = x` puts one in.
        base = target
        if isinstance(target, ast.Subscript):
            is_out = isinstance(statement, ast.Delete) or isinstance(target.slice, ast.Slice)
            base = target.value if is_out else target
        parts = base.elts if isinstance(base, ast.Tuple) else [base]
        if any(_is_name_or_attribute_named(one, name) for one in parts):
            return True
    return False


def _is_name_or_attribute_named(node: ast.expr, name: str) -> bool:
    """Is it the name itself, or an attribute of this name: `x.name`?"""
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _constructors_of_holder(kept: CallThatKeeps) -> Iterator[ast.Call]:
    """The calls that make what things are kept in, in the class."""
    if kept.owner is None:
        return
    for part in ast.walk(kept.owner):
        if isinstance(part, ast.Assign | ast.AnnAssign) and isinstance(part.value, ast.Call):
            if _sets_or_deletes(part, kept.name):
                yield part.value
