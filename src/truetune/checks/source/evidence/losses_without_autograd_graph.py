"""Finds losses that are computed only from a tensor without a graph:

`torch.tensor(out.loss.item(), requires_grad=True)`.

How it works: a loss is followed back through names, arithmetic, tensor methods, and functions of
the files, down to what it is made of. `detach()`, `item()` and `.data` end a way; what is then
given `requires_grad` by hand is a leaf.

The trade-off: whatever is not known may hold the graph. So a call that is neither torch's nor a
tensor's, a forward pass, and a name that nothing tells end the search, unless they are named as
labels, masks and weights are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CUTTING_METHODS = ("detach", "item", "tolist", "numpy", "size", "dim", "numel")
CUTTING_ATTRIBUTES = ("data", "shape", "device", "dtype", "ndim")
CUTTING_FUNCTIONS = ("float", "int", "len", "range", "round")
NO_MODEL_OUTPUT = re.compile(
    r"label|target|mask|weight|gamma|alpha|beta|scale|factor|coef|accum|num_|count|temperature|eps|ignore|inputs"
    r"|batch|_id|idx|dim|reduction|device|dtype|^(?:self|args|cfg|config|w|n|y)$",
    re.I,
)
"""Names of what a loss is computed with beside the model's output"""
FORWARD_NAME = re.compile(r"model|policy|student|net(?:work)?$|forward|engine|head|^lm$|llm", re.I)
TAKES_GRADIENTS_ITSELF = re.compile(r"\.grad\b|autograd\.grad|autograd\.backward|backward\(\s*\w")
"""In files: gradients of a cut tensor are handed on by hand"""
PARAMETERS = ("weight", "bias")
"""Attributes of a layer that are trained"""
MAX_NODES = 150
"""Expressions that one loss opens; the loss of a training loop takes some 30, and each is two calls deep"""


class GraphlessLossSearch:
    """What one loss is made of."""

    def __init__(
        self,
        module: Module,
        leaves: set[ast.AST],
        forced: Mapping[tuple[ast.AST | None, str], ast.AST],
    ) -> None:
        self.module = module
        self.leaves = leaves
        """Calls that make a leaf with `requires_grad`"""
        self.forced = forced
        """Function and name of what is given `requires_grad` by hand -> where"""
        self.found: list[ast.AST] = []
        self.may_hold_graph = False
        self.seen: set[ast.AST] = set()

    def only_leaf_tensor(self, loss: ast.expr) -> ast.AST | None:
        """The node that makes the only tensor with a gradient which a loss is made of; None where
        another way may hold the model's graph.
        """
        self._follow(loss)
        return self.found[0] if self.found and not self.may_hold_graph else None

    def _follow(self, node: ast.expr) -> None:
        """Follow an expression to what it is made of, and note each tensor that begins a graph."""
        if node in self.seen or self.may_hold_graph:
            return
        self.seen.add(node)
        if len(self.seen) > MAX_NODES:
            self.may_hold_graph = True
        elif isinstance(node, ast.Call):
            self._follow_call(node)
        elif isinstance(node, ast.Name):
            self._follow_name(node)
        elif isinstance(node, ast.Attribute):
            self.may_hold_graph |= node.attr in PARAMETERS
            if node.attr not in CUTTING_ATTRIBUTES and not NO_MODEL_OUTPUT.search(node.attr):
                self._follow(node.value)
        else:
            self._follow_parts(node)

    def _follow_parts(self, node: ast.expr) -> None:
        """Follow the parts of an expression that a gradient may come through."""
        if isinstance(node, ast.Compare | ast.Constant | ast.Slice | ast.JoinedStr):
            return
        if isinstance(node, ast.Subscript):
            self._follow(node.value)
        elif isinstance(node, ast.IfExp):
            self._follow(node.body)
            self._follow(node.orelse)
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.Tuple | ast.List | ast.Starred):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    self._follow(part)
        else:
            self.may_hold_graph = True

    def _follow_name(self, name: ast.Name) -> None:
        """Follow what a name stands for; a name that is given `requires_grad` by hand begins a
        graph of its own.
        """
        given = self.forced.get((self.module.function_around(name), name.id))
        made = [one.node for one in self.module.flow.origins(name) if one.node is not name]
        made += self.module.expressions_added_to_variable(name)
        if not made or any(not isinstance(one, ast.expr) for one in made):
            if NO_MODEL_OUTPUT.search(name.id) is None:
                self.may_hold_graph = True
            return
        for one in made:
            if isinstance(one, ast.expr):
                self._follow(one)
        if given is not None and not self.may_hold_graph:
            self.found.append(given)

    def _follow_call(self, node: ast.Call) -> None:
        """Follow what a call passes on: a tensor method its tensor, torch's function its arguments."""
        if node in self.leaves:
            self.found.append(node)
            return
        call = self.module.flow.call(node)
        if call.method == "requires_grad_" and call.receiver is not None:
            self._follow_detached_with_forced_gradient(node, call.receiver)
            return
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in CUTTING_METHODS or called in CUTTING_FUNCTIONS:
            return
        returned = [one.node for one in self.module.flow.origins(node) if one.node is not node]
        if returned:
            self._follow_returned(returned)
        elif FORWARD_NAME.search(called) or not _is_tensor_operation(self.module, call):
            self.may_hold_graph = True
        else:
            self._follow_receiver_and_arguments(call)

    def _follow_detached_with_forced_gradient(self, node: ast.Call, tensor: ast.expr) -> None:
        """Note a tensor that is detached and given `requires_grad_()` in one expression:
        `out.loss.detach().requires_grad_()`.
        """
        self._follow(tensor)
        if not self.may_hold_graph:
            self.found.append(node)

    def _follow_returned(self, returned: list[ast.AST]) -> None:
        """Follow what a function of the files returns."""
        for one in returned:
            if isinstance(one, ast.expr):
                self._follow(one)
            else:
                self.may_hold_graph = True

    def _follow_receiver_and_arguments(self, call: Call) -> None:
        """Follow the tensor that a method is called on, and the arguments."""
        if call.receiver is not None and not call.named("torch.*"):
            self._follow(call.receiver)
        for part in (*call.args, *call.keywords.values()):
            self._follow(part)


def _is_tensor_operation(module: Module, call: Call) -> bool:
    """Is it a function or loss of torch, or a method of a tensor?"""
    if call.named("torch.*"):
        return True
    maker = module.flow.producing_call(call.node.func)
    if maker is not None and maker.named("torch.nn.*Loss"):
        return True
    is_module = "model" in module.flow.types(call.receiver) if call.receiver is not None else True
    return call.method is not None and not is_module and not _is_self_name(call.receiver)


def _is_self_name(node: ast.expr | None) -> bool:
    """Is it the object that a method belongs to, `self`?"""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def losses_returned_to_trainers(module: Module) -> Iterator[ast.expr]:
    """What the methods return that a trainer takes its loss from: `compute_loss`, and Lightning's
    `training_step`.
    """
    for returned in module.nodes(ast.Return):
        function = module.function_around(returned)
        owner = next(iter(module.parents(function)), None) if function is not None else None
        if function is None or function.name not in ("compute_loss", "training_step"):
            continue
        if isinstance(owner, ast.ClassDef) and returned.value is not None:
            yield from _loss_parts(returned.value)


def _loss_parts(value: ast.expr) -> Iterator[ast.expr]:
    """The loss in what a method returns, of each arm: `(loss, outputs) if return_outputs else
    loss`.
    """
    if isinstance(value, ast.IfExp):
        yield from _loss_parts(value.body)
        yield from _loss_parts(value.orelse)
    elif isinstance(value, ast.Tuple):
        yield from value.elts[:1]
    elif isinstance(value, ast.Dict):
        for key, part in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "loss":
                yield part
    else:
        yield value
