"""Finds losses that a loop keeps, in a list or a sum, and says whether they still hold their
autograd graph.

A place counts only where a graph is certainly recorded and certainly kept. Below `no_grad`, behind
`item()`, and in functions whose callers are not seen, nothing is said: some leaks are missed for
it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    possible_losses,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOSS_CALLS = ("torch.nn.functional.*", "torch.nn.*Loss", "transformers.loss.*")
"""Calls that compute a loss, or make what does"""
KEEP_GRAPH = frozenset(
    (
        "mean",
        "sum",
        "cpu",
        "cuda",
        "to",
        "float",
        "double",
        "half",
        "bfloat16",
        "clone",
        "squeeze",
        "unsqueeze",
        "view",
    )
    + ("reshape", "flatten", "div", "mul", "add")
)
"""Methods of a tensor whose result has its graph"""
WITHOUT_GRAPH = ("no_grad", "inference_mode", "set_grad_enabled(False")
RENEWED_BY = frozenset(("clear", "pop", "popleft", "reset"))
STEPS_OF_TRAINERS = ("compute_loss", "training_step")
"""Methods that a Trainer or Lightning calls for each step; they call backward on what these return"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
# Names, calls and functions that are followed. Chosen, not measured: fewer miss sums that pass through a helper.
MAX_STEPS = 6


@dataclass(frozen=True, slots=True)
class KeptLoss:
    """A place where a loop keeps a loss."""

    node: ast.Call | ast.stmt
    holder: ast.expr
    """The list or the sum"""
    value: ast.expr
    loop: ast.AST
    """The one whose steps it collects; the method that a trainer calls for each step"""

    @property
    def is_loop_run_by_trainer(self) -> bool:
        """Does a trainer run the loop, and call backward in it?"""
        return isinstance(self.loop, FUNCTIONS)


def kept_losses(module: Module) -> Iterator[KeptLoss]:
    """The places in loops where a loss, or what is made of one, is appended to a list or added to a
    sum.
    """
    backwards = {
        ast.unparse(loss) for call in backward_calls(module) for loss in possible_losses(call)
    }
    for node, holder, value in _appends_and_additions(module):
        loop = _loop_around_kept_value(module, node, value)
        if loop is not None and any(_is_loss(module, part, backwards) for part in ast.walk(value)):
            yield KeptLoss(node, holder, value, loop)
        method = _trainer_step_method_around(module, node) if loop is None else None
        if method is not None and _is_part_of_returned_loss(module, method, value):
            yield KeptLoss(node, holder, value, method)


def _trainer_step_method_around(module: Module, node: ast.AST) -> ast.FunctionDef | None:
    """The method around a place that a trainer calls for each step and takes the loss from; None
    without one.
    """
    function = next((one for one in module.parents(node) if isinstance(one, FUNCTIONS)), None)
    if not isinstance(function, ast.FunctionDef) or function.name not in STEPS_OF_TRAINERS:
        return None
    return function if isinstance(module.scopes.parent.get(function), ast.ClassDef) else None


def _is_part_of_returned_loss(module: Module, method: ast.FunctionDef, value: ast.expr) -> bool:
    """Is a value, as a name, a part of the loss that the method returns?"""
    if not isinstance(value, ast.Name):
        return False
    wanted = set(module.flow.origins(value))
    for returned in module.flow.returned_expressions_by_function.get(method, ()):
        for part in backward_slice(module, returned):
            if isinstance(part, ast.Name) and wanted & set(module.flow.origins(part)):
                return True
    return False


def _appends_and_additions(
    module: Module,
) -> Iterator[tuple[ast.Call | ast.stmt, ast.expr, ast.expr]]:
    """The statements and calls that append a value to a list or add it to a sum: the place, the
    holder and the value.

    `losses.append(x)`, `losses += [x]`, `total += x` and `total = total + x`.
    """
    for call in module.methods("append"):
        if call.receiver is not None and len(call.args) == 1:
            yield call.node, call.receiver, call.args[0]
    for added in module.nodes(ast.AugAssign):
        if isinstance(added.op, ast.Add):
            item = added.value
            if isinstance(item, ast.List) and len(item.elts) == 1:
                item = item.elts[0]
            yield added, added.target, item
    for assigned in module.nodes(ast.Assign):
        target = assigned.targets[0]
        for item in _terms_added_to_target(target, assigned.value):
            yield assigned, target, item
    yield from _calls_of_methods_storing_argument(module)


def _calls_of_methods_storing_argument(
    module: Module,
) -> Iterator[tuple[ast.Call, ast.expr, ast.expr]]:
    """Calls of a method of the files' classes that keeps its argument: the call, the holder and the
    argument.

    `meter.update(x)`, whose class appends x to a list or adds it to a sum.
    """
    for call in module.all_calls:
        if call.receiver is None or call.method in ("append", "backward"):
            continue
        method = _method_of_own_class_called(module, call)
        for value, name in _arguments_by_parameter(call, method) if method is not None else ():
            if _does_method_store_parameter_on_self(module, method, name):
                yield call.node, call.receiver, value


def _method_of_own_class_called(module: Module, call: Call) -> ast.FunctionDef | None:
    """The method of a class of the files that is called, where the object, or each of a list of
    objects, was made by a call of that class.
    """
    if call.receiver is None:
        return None
    for origin in module.flow.origins(call.receiver):
        for made in _calls_making_objects(module, origin.node):
            for owner in module.flow.origins(made.func):
                for item in owner.node.body if isinstance(owner.node, ast.ClassDef) else ():
                    if isinstance(item, ast.FunctionDef) and item.name == call.method:
                        return item
    return None


def _calls_making_objects(module: Module, node: ast.AST) -> Iterator[ast.Call]:
    """The calls that make an object, or each of those that a list or dictionary holds:
    `self.meters[name]`.
    """
    if isinstance(node, ast.Call):
        yield node
    elif isinstance(node, ast.Subscript):
        for origin in module.flow.origins(node.value):
            held = origin.node
            items: list[ast.expr] = []
            if isinstance(held, ast.DictComp):
                items = [held.value]
            elif isinstance(held, ast.ListComp):
                items = [held.elt]
            elif isinstance(held, ast.Dict):
                items = held.values
            yield from (item for item in items if isinstance(item, ast.Call))


def _arguments_by_parameter(call: Call, method: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """The arguments of a call of a method, each with the name of its parameter."""
    names = [argument.arg for argument in method.args.args[1:]]
    if not any(isinstance(argument, ast.Starred) for argument in call.args):
        yield from zip(call.args, names, strict=False)
    yield from ((value, name) for name, value in call.keywords.items() if name in names)


def _does_method_store_parameter_on_self(
    module: Module, method: ast.FunctionDef | None, name: str, depth: int = 0
) -> bool:
    """Does a method keep a parameter with its graph in an attribute of its object, under any name?"""
    if method is None or depth > MAX_STEPS or _rebinds_parameter_or_records_no_graph(method, name):
        return False
    return any(
        _keeps_parameter_in_attribute(module, node, name)
        or _passes_parameter_to_storing_method(module, method, node, name, depth)
        for node in ast.walk(method)
    )


def _passes_parameter_to_storing_method(
    module: Module, method: ast.FunctionDef, node: ast.AST, name: str, depth: int
) -> bool:
    """Does a call give the parameter to a method of another object, which keeps it?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    call = module.flow.call(node)
    inner = _method_of_own_class_called(module, call)
    if inner is None or inner is method:
        return False
    return any(
        isinstance(value, ast.Name)
        and value.id == name
        and _does_method_store_parameter_on_self(module, inner, parameter, depth + 1)
        for value, parameter in _arguments_by_parameter(call, inner)
    )


def _rebinds_parameter_or_records_no_graph(method: ast.FunctionDef, name: str) -> bool:
    """Does a method bind its parameter again (`value = value.item()`), or record no graph?"""
    if any(map(_context_turns_gradients_off, method.decorator_list)):
        return True
    for node in ast.walk(method):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.With) and any(
            _context_turns_gradients_off(item.context_expr) for item in node.items
        ):
            return True
    return False


def _keeps_parameter_in_attribute(module: Module, node: ast.AST, name: str) -> bool:
    """Does a statement or call append a parameter to an attribute of `self`, or add it there?

    `self.values.append(x)`, `self.sum += x * n` and `self.sum = self.sum + x * n`, of a parameter
    x.
    """
    if isinstance(node, ast.Call):
        return _appends_to_list_of_self(module, node, name)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return _is_attribute_of_self(node.target) and _is_parameter_with_graph(node.value, name)
    if isinstance(node, ast.Assign) and _is_attribute_of_self(node.targets[0]):
        added = _terms_added_to_target(node.targets[0], node.value)
        return any(_is_parameter_with_graph(item, name) for item in added)
    return False


def _appends_to_list_of_self(module: Module, node: ast.Call, name: str) -> bool:
    """Is a value of this name appended to a list of `self`?

    Not to a `deque`, which drops its oldest and keeps few.
    """
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "append":
        return False
    owner = node.func.value
    if len(node.args) != 1 or not _is_attribute_of_self(owner):
        return False
    makers = (ast.unparse(origin.node) for origin in module.flow.origins(owner))
    is_bounded = any("deque" in maker for maker in makers)
    return not is_bounded and _is_parameter_with_graph(node.args[0], name)


def _is_attribute_of_self(node: ast.expr) -> bool:
    """Is it an attribute of `self`, or an entry of one: `self.x`, `self.x[key]`?"""
    while isinstance(node, ast.Subscript):
        node = node.value
    is_attribute = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    return is_attribute and ast.unparse(node).startswith("self.")


def _is_parameter_with_graph(value: ast.expr, name: str) -> bool:
    """Is it the parameter of this name, or a term of it, with its graph: `x`, `x * n`, `x.mean()`?"""
    # A sum of hundreds of terms nests as deep on its left.
    while isinstance(value, ast.BinOp):
        if _is_parameter_with_graph(value.right, name):
            return True
        value = value.left
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in KEEP_GRAPH and _is_parameter_with_graph(value.func.value, name)
    return isinstance(value, ast.Name) and value.id == name


def _terms_added_to_target(target: ast.expr, total: ast.expr) -> Iterator[ast.expr]:
    """What is added to the target in a sum: `x` of `total + x` and of `x + total`."""
    if not isinstance(total, ast.BinOp) or not isinstance(total.op, ast.Add):
        return
    for one, other in ((total.left, total.right), (total.right, total.left)):
        # The kind first: a sum of hundreds of terms is too deep to be written out.
        if type(one) is type(target) and ast.unparse(one) == ast.unparse(target):
            yield other


def _loop_around_kept_value(module: Module, node: ast.AST, value: ast.expr) -> ast.AST | None:
    """The innermost loop around a kept value; where each pass of it is a micro-batch of one
    optimizer step, the outer loop of the steps.
    """
    loops: list[ast.AST] = []
    for around in module.parents(node):
        if isinstance(around, FUNCTIONS):
            break
        if isinstance(around, LOOPS):
            loops.append(around)
    if not loops or backward_on_value_in_loop(module, loops[0], value) is None:
        return loops[0] if loops else None
    return next(
        (loop for loop in loops if any(map(_is_optimizer_step_call, ast.walk(loop)))), loops[0]
    )


def _is_optimizer_step_call(node: ast.AST) -> bool:
    """Is it a call of `step`: `optimizer.step()`, or any other method of that name?"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
    )


def _is_loss(module: Module, part: ast.AST, backwards: set[str]) -> bool:
    """Is an expression a loss: what a backward is called on, a model's loss, or a result of a loss
    function?
    """
    if not isinstance(part, ast.Name | ast.Attribute | ast.Call):
        return False
    if ast.unparse(part) in backwards or _is_model_loss(module, part):
        return True
    return isinstance(part, ast.Name) and any(
        _is_model_loss(module, inner)
        for origin in module.flow.origins(part)
        for inner in ast.walk(origin.node)
    )


def _is_model_loss(module: Module, node: ast.AST) -> bool:
    """Is it the loss of a model's output: `model(**batch).loss`, `outputs.loss`, `outputs["loss"]`?"""
    if isinstance(node, ast.Subscript):
        is_loss = isinstance(node.slice, ast.Constant) and node.slice.value == "loss"
    elif isinstance(node, ast.Attribute):
        is_loss = node.attr == "loss"
    else:
        return False
    return is_loss and _model_call_of_output(module, node.value) is not None


def _model_call_of_output(module: Module, output: ast.expr) -> ast.Call | None:
    """The call of a model that gave this output."""
    calls = (
        origin.node for origin in module.flow.origins(output) if isinstance(origin.node, ast.Call)
    )
    return next((call for call in calls if "model" in module.flow.types(call.func)), None)


def backward_on_kept_loss(module: Module, kept: KeptLoss) -> ast.Call | None:
    """The call of backward on a kept loss in its loop; None where there is none."""
    return backward_on_value_in_loop(module, kept.loop, kept.value)


def backward_on_value_in_loop(module: Module, loop: ast.AST, value: ast.expr) -> ast.Call | None:
    """The call of backward in a loop on a loss that this value is made of; None where there is
    none.
    """
    parts = {
        ast.unparse(part): part
        for part in ast.walk(value)
        if isinstance(part, ast.Name | ast.Attribute)
    }
    inside = set(ast.walk(loop))
    for call in backward_calls(module):
        if call.node in inside:
            for loss in possible_losses(call):
                same = parts.get(ast.unparse(loss))
                if same is not None and _have_same_value(module, same, loss):
                    return call.node
    return None


def _have_same_value(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Do two expressions that are written alike stand for one value?

    `out.loss` does where `out` does.
    """
    if isinstance(one, ast.Attribute) and isinstance(other, ast.Attribute):
        if _have_same_value(module, one.value, other.value):
            return True
    return bool(set(module.flow.origins(one)) & set(module.flow.origins(other)))


def does_kept_loss_hold_autograd_graph(module: Module, kept: KeptLoss) -> bool:
    """Is a graph certainly recorded for a kept loss, and does it still hold that graph?"""
    # A list keeps the loss as it is; a sum that is made without gradients has no graph.
    if _is_kept_in_sum(kept) and _is_in_no_grad_block(module, kept.node):
        return False
    if kept.is_loop_run_by_trainer:
        origins = (origin.node for origin in module.flow.origins(kept.value))
        is_whole = not any(_is_detached(origin) for origin in origins)
        return is_whole and not _is_in_no_grad_block(module, kept.node)
    if backward_on_kept_loss(module, kept) is not None:
        losses = {
            ast.unparse(loss) for call in backward_calls(module) for loss in possible_losses(call)
        }
        return _carries_graph_of_loss(module, kept.value, losses)
    return _carries_graph_of_loss(module, kept.value, set()) and _graph_is_certainly_recorded(
        module, kept.node
    )


def _is_kept_in_sum(kept: KeptLoss) -> bool:
    """Is the loss added to a number or tensor, and not to a list?"""
    if not isinstance(kept.node, ast.AugAssign | ast.Assign):
        return False
    return not any(isinstance(part, ast.List) for part in ast.walk(kept.node.value))


def _carries_graph_of_loss(
    module: Module, value: ast.AST, losses: set[str], depth: int = 0
) -> bool:
    """Does an expression carry the graph of a loss?

    `losses` are what backward is called on, as text.
    """
    if depth > MAX_STEPS:
        return False
    if isinstance(value, ast.BinOp):
        sides = (value.left, value.right)
        return any(_carries_graph_of_loss(module, side, losses, depth + 1) for side in sides)
    if _is_model_loss(module, value):
        return not _output_is_computed_without_graph(module, value)
    if isinstance(value, ast.Call):
        function = value.func
        if not isinstance(function, ast.Attribute) or function.attr not in KEEP_GRAPH:
            return False
        return _carries_graph_of_loss(module, function.value, losses, depth + 1)
    if not isinstance(value, ast.Name | ast.Attribute):
        return False
    return _name_carries_graph(module, value, losses, depth)


def _name_carries_graph(
    module: Module, name: ast.Name | ast.Attribute, losses: set[str], depth: int
) -> bool:
    """Does what a name stands for carry the graph of a loss, whichever way was taken?"""
    origins = [origin.node for origin in module.flow.origins(name)]
    if ast.unparse(name) in losses and not any(_is_detached(origin) for origin in origins):
        return True
    return all(
        origin is not name and _carries_graph_of_loss(module, origin, losses, depth + 1)
        for origin in origins
    )


def _output_is_computed_without_graph(module: Module, output: ast.AST) -> bool:
    """Did the model run under `no_grad`? Its loss may be read after that block."""
    if not isinstance(output, ast.Attribute | ast.Subscript):
        return False
    call = _model_call_of_output(module, output.value)
    if call is None:
        return False
    blocks = (around for around in module.parents(call) if isinstance(around, ast.With))
    return any(
        _context_turns_gradients_off(item.context_expr) for block in blocks for item in block.items
    )


def _is_detached(node: ast.AST) -> bool:
    """Is a value certainly without its graph: `loss.item()`, `loss.detach()`, `float(loss)`,
    `loss.data`, or an expression of one?
    """
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in (
            "item",
            "detach",
            "data",
            "tolist",
            "numpy",
            "detach_",
        ):
            return True
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id == "float"
        ):
            return True
    return False


def _graph_is_certainly_recorded(module: Module, node: ast.AST) -> bool:
    """Is a graph certainly recorded at a place?

    Not in a function whose callers are not seen, nor where weights are frozen.
    """
    if module.mentions("requires_grad", "set_grad_enabled", "torch.autograd.grad_mode"):
        return False
    for _ in range(MAX_STEPS):
        if _is_in_no_grad_block(module, node):
            return False
        function = next((one for one in module.parents(node) if isinstance(one, FUNCTIONS)), None)
        if function is None:
            return True
        if any(map(_context_turns_gradients_off, getattr(function, "decorator_list", ()))):
            return False
        callers = module.flow.calls_of_function_or_class(function)
        if len(callers) != 1:
            return bool(callers) and all(
                _graph_is_certainly_recorded(module, caller) for caller in callers
            )
        node = callers[0]
    return False


def _is_in_no_grad_block(module: Module, node: ast.AST) -> bool:
    """Does a `with torch.no_grad()` of the same function stand around a place?"""
    for around in module.parents(node):
        if isinstance(around, FUNCTIONS):
            return False
        if isinstance(around, ast.With):
            if any(_context_turns_gradients_off(item.context_expr) for item in around.items):
                return True
    return False


def _context_turns_gradients_off(context: ast.expr) -> bool:
    """Is a context or decorator one that records no graph?"""
    text = ast.unparse(context)
    return any(name in text for name in WITHOUT_GRAPH)


def is_kept_list_renewed_or_bounded(module: Module, kept: KeptLoss) -> bool:
    """Is the list or sum renewed, emptied or detached in the loop, or is its length limited?

    What a trainer's method keeps may be emptied by any other method of its class, or die with the
    call.
    """
    names = _names_of_holder(kept.holder)
    if kept.is_loop_run_by_trainer and (
        not _is_attribute_of_self(kept.holder)
        or _is_kept_loss_emptied_in_class(module, kept, names)
    ):
        return True
    for node in ast.walk(kept.loop):
        if node is not kept.node and (_rebinds_any_of(node, names) or _empties_any_of(node, names)):
            return True
    makers = (origin.node for origin in module.flow.origins(kept.holder))
    return any(isinstance(node, ast.Call) and "deque" in ast.unparse(node.func) for node in makers)


def _names_of_holder(holder: ast.expr) -> set[str]:
    """The names of a list or sum, and of what it is in, as they are written."""
    parts = (part for part in ast.walk(holder) if isinstance(part, ast.Name | ast.Attribute))
    # `self.x = ...` renews nothing but x.
    return {ast.unparse(holder), *map(ast.unparse, parts)} - {"self"}


def _is_kept_loss_emptied_in_class(module: Module, kept: KeptLoss, names: set[str]) -> bool:
    """Does a method of the class bind what is kept again, or empty anything?"""
    owner = module.scopes.parent.get(kept.loop)
    methods = owner.body if isinstance(owner, ast.ClassDef) else []
    for method in methods:
        if getattr(method, "name", "") == "__init__":
            continue
        for node in ast.walk(method):
            if node is not kept.node and (_rebinds_any_of(node, names) or _is_clear_call(node)):
                return True
    return False


def _is_clear_call(node: ast.AST) -> bool:
    """Is it a call of `clear`, of anything: `values.clear()`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in RENEWED_BY


def _rebinds_any_of(node: ast.AST, names: set[str]) -> bool:
    """Does a statement bind or delete one of these names, or an entry of it?"""
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.For):
        targets = [node.target]
    else:
        return False
    written = (part for target in targets for part in ast.walk(target))
    return any(isinstance(part, ast.expr) and ast.unparse(part) in names for part in written)


def _empties_any_of(node: ast.AST, names: set[str]) -> bool:
    """Does a call empty one of these, or take something out: `losses.clear()`, `losses.pop(0)`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in RENEWED_BY and ast.unparse(node.func.value) in names


def does_kept_sum_or_list_reach_backward(module: Module, holder: ast.expr) -> bool:
    """Is backward called on a kept sum, or on what is made of a kept list?"""
    return backward_call_on_kept_sum_or_list(module, holder) is not None


def backward_call_on_kept_sum_or_list(module: Module, holder: ast.expr) -> ast.Call | None:
    """The call of backward on a kept sum, or on what is made of a kept list; None where there is
    none.
    """
    calls = backward_calls(module)
    return next((call.node for call in calls if _backward_is_on_holder(module, call, holder)), None)


def carries_graph_of_model(module: Module, value: ast.expr) -> bool:
    """Is a value a loss that the model returned, with its graph?"""
    return _carries_graph_of_loss(module, value, set())


def _backward_is_on_holder(module: Module, call: Call, holder: ast.expr) -> bool:
    """Is backward called on the kept sum, or on what is made of the kept list?"""
    wanted = ast.unparse(holder)
    waiting: list[tuple[ast.AST, int]] = [(loss, 0) for loss in possible_losses(call)]
    seen: set[ast.AST] = set()
    while waiting:
        node, depth = waiting.pop()
        if node in seen or depth > MAX_STEPS:
            continue
        seen.add(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute | ast.Subscript):
                if ast.unparse(part) == wanted:
                    return True
                waiting += [(origin.node, depth + 1) for origin in module.flow.origins(part)]
    return False
