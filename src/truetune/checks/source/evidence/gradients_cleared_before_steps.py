"""Finds `zero_grad()` calls that certainly run between a backward pass and the step that should use
its gradients.

How it works: the statements of a function, or of the file, are followed in their order with what is
known of the gradients: none yet, those of a backward pass, cleared. Branches are followed apart and
come together after the `if`; a loop's body is followed twice, so that the end of one pass meets the
beginning of the next; functions of the project are followed where they are called. A step counts
where the gradients are cleared on every way to it.

A step also counts after a loop whose passes each clear the gradients of the pass before: the step
sees those of the last pass alone. The loop is meant to collect them, for it does not step itself.
Where anything reads the gradients in between, they may be kept elsewhere, and nothing is said.

The trade-off: two optimizers are told apart by what the code calls them. Code that writes gradients
itself (`p.grad = ...`, a function with `grad` in its name) may put them back, so nothing is said
after it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from truetune.checks.source.evidence.which_place_surely_runs_first import FUNCTIONS
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

BACKWARD = re.compile(r"backward")
"""Methods that compute gradients: `backward`, `manual_backward`, `pc_backward`"""
TOUCHES_GRADIENTS = re.compile(
    r"(?<!zero_)(?<!no_)(?<!enable_)grad(?!_norm|_value|ient_check|_scal|_accum)"
)
"""Calls that may write gradients; clipping scales what is there"""
NO_OPTIMIZER = re.compile(
    r"sched|(?:^|[._])lr(?:$|[._])|prof|pbar|progress|(?:^|[._])env\b|tracker"
)
"""Owners of a `step` that is none of an optimizer"""
WRAPPERS = re.compile(r"scaler|accelerator|fabric")
"""What steps the optimizer that it is given"""
HOOKS = ("on_after_backward", "on_before_optimizer_step", "on_pre_optimizer_step")
"""Methods that Lightning and transformers call between the backward pass and the step"""
CLIPPING = re.compile(r"clip_grad|clip_by|unscale")
"""Calls that scale the gradients where they are"""
ALL = "*"
"""The owner of gradients that are cleared for whatever optimizer"""
MAX_STATES = 12
"""Ways through the code that are kept apart; beyond them nothing is said. Chosen, not measured: loops have a few"""
MAX_CALLS = 3
"""Functions inside one another that are followed. Chosen, not measured: a step is one or two below the loop"""


class ClearedStep(NamedTuple):
    """A step that finds no gradients, or only a part of those that were computed for it."""

    clearing: ast.AST
    step: ast.AST
    keeps_last_pass: bool = False
    """The clearing is in a loop before the step, whose last pass leaves its gradients"""


@dataclass(frozen=True, slots=True)
class _GradientState:
    """What is known of the gradients on one way through the code."""

    has_gradients: bool = False
    """A backward pass has run"""
    stepped: frozenset[str] = frozenset()
    """Optimizers that have used them"""
    cleared: Mapping[str, ast.AST] = field(default_factory=dict)
    """Optimizer -> what cleared its gradients before it used them"""
    is_read: bool = False
    """Code has read the gradients, and may keep them elsewhere"""
    lost_in_loop: Mapping[str, ast.AST] = field(default_factory=dict)
    """Optimizer -> what cleared unused gradients since the innermost loop began"""
    lost: Mapping[str, ast.AST] = field(default_factory=dict)
    """Optimizer -> what cleared, at each pass of a finished loop, the gradients of the one before"""

    def after_backward(self) -> _GradientState:
        """After a backward pass, whose gradients nothing has used."""
        return _GradientState(True, lost_in_loop=self.lost_in_loop, lost=self.lost)

    def after_clearing(self, owner: str, node: ast.AST) -> _GradientState:
        """After `zero_grad()`, which harms where a step should still use the gradients."""
        is_used = owner in self.stepped or (owner == ALL and bool(self.stepped))
        # What is cleared after a loop was not meant for a step.
        state = replace(self, lost=_without_nodes_of_optimizer(self.lost, owner))
        if not self.has_gradients or is_used:
            return state
        in_loop = self.lost_in_loop if self.is_read else {**self.lost_in_loop, owner: node}
        return replace(state, cleared={**self.cleared, owner: node}, lost_in_loop=in_loop)

    def after_step(self, owner: str) -> _GradientState:
        """After the step of an optimizer."""
        return replace(
            self,
            stepped=self.stepped | {owner},
            cleared=_without_nodes_of_optimizer(self.cleared, owner),
            lost_in_loop=_without_nodes_of_optimizer(self.lost_in_loop, owner),
            lost=_without_nodes_of_optimizer(self.lost, owner),
        )

    def after_read(self) -> _GradientState:
        """After code that reads the gradients."""
        return replace(self, is_read=True)

    def at_loop_boundary(self, lost: Mapping[str, ast.AST] | None = None) -> _GradientState:
        """Where a loop begins, or has ended with the loss of these gradients."""
        return replace(self, lost_in_loop={}, lost={**self.lost, **(lost or {})})

    def after_gradient_write(self) -> _GradientState:
        """After code that may set gradients: nothing is known any more."""
        return _GradientState()

    def clearing_of(self, owner: str) -> ast.AST | None:
        """What cleared the gradients that this optimizer would use."""
        return self.cleared.get(owner) or self.cleared.get(ALL)

    def partial_clearing_of(self, owner: str) -> ast.AST | None:
        """What cleared a part of the gradients that this optimizer would use."""
        return self.lost.get(owner) or self.lost.get(ALL)

    def key(self) -> tuple[object, ...]:
        """What tells the state from other states, for comparison."""
        return (
            self.has_gradients,
            self.stepped,
            self.is_read,
            *(
                tuple(sorted((name, id(node)) for name, node in nodes.items()))
                for nodes in (self.cleared, self.lost_in_loop, self.lost)
            ),
        )


States = list[_GradientState]


def steps_with_cleared_gradients(module: Module) -> Iterator[ClearedStep]:
    """The steps of a file whose gradients are cleared on every way to them, each once."""
    if not module.mentions("zero_grad", ".grad"):
        return
    walk = _GradientStateWalk(module)
    bodies: list[Sequence[ast.stmt]] = [module.tree.body]
    bodies += [one.body for one in module.nodes(ast.FunctionDef)]
    for body in bodies:
        walk.after_block(body, [_GradientState()], {}, ())
    yield from walk.found.values()


def clearings_in_hooks_before_step(module: Module) -> Iterator[ast.Call]:
    """`zero_grad()` in a method that a trainer calls between the backward pass and the step."""
    for function in module.nodes(ast.FunctionDef):
        if function.name not in HOOKS:
            continue
        for statement in function.body:
            call = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(call, ast.Call) and _method_name(call) == "zero_grad":
                yield call


class _GradientStateWalk:
    """Follows the statements of a file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.found: dict[tuple[ast.AST, ast.AST], ClearedStep] = {}
        self.returned: list[States] = []
        """States at the returns of the functions that are followed, the innermost last"""
        self.own_nodes = {id(node) for node in ast.walk(module.tree)}
        self.is_single = _optimizer_count(module) <= 1
        # The prepared optimizers of accelerate clear only where they also step.
        self.accumulates_by_library = module.mentions(".accumulate(")

    def after_block(
        self,
        body: Iterable[ast.stmt],
        states: States,
        names: Mapping[str, str],
        calls: tuple[ast.AST, ...],
    ) -> States:
        """The states after a block; none where no way leads to its end."""
        for statement in body:
            states = self.after_statement(statement, states, names, calls)
            if not states:
                break
        return states

    def after_statement(
        self, node: ast.stmt, states: States, names: Mapping[str, str], calls: tuple[ast.AST, ...]
    ) -> States:
        """The states after a statement."""
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return states
        if isinstance(node, ast.If | ast.Match):
            return self.after_branches(node, states, names, calls)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            return self.after_loop(node, states, names, calls)
        if isinstance(node, ast.With | ast.AsyncWith):
            return self.after_block(node.body, states, names, calls)
        if isinstance(node, ast.Try):
            return self.after_block(
                [*node.body, *node.orelse, *node.finalbody], states, names, calls
            )
        states = self.after_expression(node, states, names, calls)
        if isinstance(node, ast.Assign | ast.AugAssign):
            states = _after_assignment(node, states)
        if self.may_store_gradients_elsewhere(node):
            states = [one.after_read() for one in states]
        if isinstance(node, ast.Return) and self.returned:
            self.returned[-1] += states
        is_end = isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break)
        return [] if is_end else states

    def after_branches(
        self,
        node: ast.If | ast.Match,
        states: States,
        names: Mapping[str, str],
        calls: tuple[ast.AST, ...],
    ) -> States:
        """The states after an `if` or `match`, of all ways through it."""
        if isinstance(node, ast.If):
            head, arms = node.test, [node.body, node.orelse]
        else:
            # No case may fit.
            head, arms = node.subject, [*(case.body for case in node.cases), []]
        states = self.after_expression(head, states, names, calls)
        return _distinct_states(
            [one for arm in arms for one in self.after_block(arm, states, names, calls)]
        )

    def after_loop(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        states: States,
        names: Mapping[str, str],
        calls: tuple[ast.AST, ...],
    ) -> States:
        """The states after a loop, whose body runs once or more."""
        if isinstance(node, ast.For) and _clears_each_gradient_by_hand(node):
            return [one.after_clearing(ALL, node) for one in states]
        if len(node.body) == 1 and _writes_gradients(node):
            return [one.after_gradient_write() for one in states]
        return self.after_one_and_two_passes(
            node, [one.at_loop_boundary() for one in states], names, calls
        )

    def after_one_and_two_passes(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        states: States,
        names: Mapping[str, str],
        calls: tuple[ast.AST, ...],
    ) -> States:
        """The states after one pass through the body of a loop, and after two.

        The second pass begins with the gradients of the first, so it shows what a pass clears of
        the one before.
        """
        once = self.after_block(node.body, states, names, calls)
        twice = self.after_block(node.body, once, names, calls)
        lost = _clearings_of_unused_gradients_in_all_states(twice)
        # A pass that ends early (`continue`) leaves the loop as it was: what is known then is what was known before.
        ends_early = any(isinstance(one, ast.Continue | ast.Break) for one in ast.walk(node))
        others = [*once, *(states if ends_early else ())]
        return _distinct_states(
            [
                *(one.at_loop_boundary(lost) for one in twice),
                *(one.at_loop_boundary() for one in others),
            ]
        )

    def after_expression(
        self, node: ast.AST, states: States, names: Mapping[str, str], calls: tuple[ast.AST, ...]
    ) -> States:
        """The states after the calls of a statement, the inner ones first."""
        found = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
        perhaps = _conditional_calls(node)
        for call in sorted(found, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0)):
            after = self.after_call(call, states, names, calls)
            states = _distinct_states([*states, *after]) if call in perhaps else after
        return states

    def after_call(
        self, call: ast.Call, states: States, names: Mapping[str, str], calls: tuple[ast.AST, ...]
    ) -> States:
        """The states after a call."""
        method = _method_name(call)
        if method == "zero_grad":
            owner = self.optimizer_cleared_by_call(call, names)
            return [one.after_clearing(owner, call) for one in states]
        if method == "step":
            return self.after_step_call(call, states, names)
        function = self.module.flow.function_that_expression_names(call.func)
        if isinstance(function, ast.FunctionDef):
            if len(calls) < MAX_CALLS and function not in calls:
                return self.after_function(function, call, states, names, (*calls, function))
            return [one.after_gradient_write() for one in states]
        return _after_library_call(call, states)

    def after_function(
        self,
        function: ast.FunctionDef,
        call: ast.Call,
        states: States,
        names: Mapping[str, str],
        calls: tuple[ast.AST, ...],
    ) -> States:
        """The states after a function of the project, whose parameters stand for what it is given."""
        parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
            parameters = parameters[1:]
        given = dict(zip(parameters, map(ast.unparse, call.args), strict=False))
        given |= {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg}
        inside = {name: _name_at_caller(text, names) for name, text in given.items()}
        self.returned.append([])
        at_end = self.after_block(function.body, states, inside, calls)
        return _distinct_states([*at_end, *self.returned.pop()])

    def after_step_call(self, call: ast.Call, states: States, names: Mapping[str, str]) -> States:
        """The states after a step; it is kept where all of them have cleared its gradients."""
        owner = _stepped_optimizer_name(call, names)
        if not owner:
            return states
        if id(call) in self.own_nodes:
            self.record_step_without_gradients(call, owner, states)
        return [one.after_step(owner) for one in states]

    def record_step_without_gradients(self, call: ast.Call, owner: str, states: States) -> None:
        """Keep a step that finds no gradients on any way to it, or only those of the last pass."""
        clearings = [one.clearing_of(owner) for one in states]
        first = clearings[0] if clearings else None
        if first is not None and all(clearings):
            self.found.setdefault((first, call), ClearedStep(first, call))
            return
        if self.accumulates_by_library:
            return
        losses = [one.partial_clearing_of(owner) for one in states]
        loss = next((one for one in losses if one is not None), None)
        if loss is not None:
            self.found.setdefault((loss, call), ClearedStep(loss, call, keeps_last_pass=True))

    def may_store_gradients_elsewhere(self, statement: ast.stmt) -> bool:
        """May a statement keep gradients elsewhere: by reading `.grad`, or in a call for its effect
        that is given the model?
        """
        if any(
            isinstance(one, ast.Attribute) and one.attr == "grad" for one in ast.walk(statement)
        ):
            return True
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or CLIPPING.search(last_name_of_called(call)):
            return False
        arguments = [*call.args, *(one.value for one in call.keywords)]
        return any("model" in self.module.flow.types(one) for one in arguments)

    def optimizer_cleared_by_call(self, call: ast.Call, names: Mapping[str, str]) -> str:
        """The optimizer whose gradients are cleared; those of a model are those of the one
        optimizer.
        """
        owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        text = _name_at_caller(ast.unparse(owner), names)
        is_optimizer = "optimizer" in self.module.flow.types(owner) or re.search("opt", text, re.I)
        return text if is_optimizer or not self.is_single else ALL


def _without_nodes_of_optimizer(nodes: Mapping[str, ast.AST], owner: str) -> dict[str, ast.AST]:
    """The nodes by optimizer without those of one; without all where it stands for all."""
    return {name: node for name, node in nodes.items() if owner != ALL and name not in (owner, ALL)}


def _clearings_of_unused_gradients_in_all_states(states: States) -> dict[str, ast.AST]:
    """What cleared unused gradients on every way through two passes of a loop, by optimizer."""
    first = states[0].lost_in_loop if states else {}
    return {
        owner: node
        for owner, node in first.items()
        if all(owner in one.lost_in_loop for one in states)
    }


def _distinct_states(states: States) -> States:
    """These states, each once; a single one of which nothing is known where they are too many."""
    unique = list({one.key(): one for one in states}.values())
    return unique if len(unique) <= MAX_STATES else [_GradientState()]


def _conditional_calls(node: ast.AST) -> set[ast.AST]:
    """The calls of an expression that need not run: `last and optimizer.zero_grad()`, and those of
    a `lambda`.
    """
    parts: list[ast.expr] = []
    for one in ast.walk(node):
        if isinstance(one, ast.IfExp):
            parts += [one.body, one.orelse]
        elif isinstance(one, ast.BoolOp):
            parts += one.values[1:]
        elif isinstance(one, ast.Lambda):
            parts.append(one.body)
    return {one for part in parts for one in ast.walk(part) if isinstance(one, ast.Call)}


def _after_library_call(call: ast.Call, states: States) -> States:
    """The states after a call whose code is not here, by its name."""
    name = last_name_of_called(call)
    if BACKWARD.search(name):
        return [one.after_backward() for one in states]
    if TOUCHES_GRADIENTS.search(name) or ".grad." in ast.unparse(call.func):
        return [one.after_gradient_write() for one in states]
    return states


def _method_name(call: ast.Call) -> str:
    """The name of the method that is called; empty where it is none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _name_at_caller(text: str, names: Mapping[str, str]) -> str:
    """What the caller of a function calls something: `opt.x` is `optimizer.x` where `opt` was given
    `optimizer`.
    """
    root, dot, rest = text.partition(".")
    return names.get(root, root) + dot + rest


def _stepped_optimizer_name(call: ast.Call, names: Mapping[str, str]) -> str:
    """The optimizer that a call steps; empty where it steps none, or computes the gradients itself."""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if NO_OPTIMIZER.search(owner.lower()):
        return ""
    if WRAPPERS.search(owner.lower()):
        return _name_at_caller(ast.unparse(call.args[0]), names) if call.args else ""
    # A closure holds a backward pass of its own.
    return "" if call.args or call.keywords else _name_at_caller(owner, names)


def _optimizer_count(module: Module) -> int:
    """How many optimizers step in the file, by what they are called."""
    owners = {
        _stepped_optimizer_name(call, {})
        for call in module.nodes(ast.Call)
        if _method_name(call) == "step"
    }
    return len(owners - {""})


def _clears_each_gradient_by_hand(node: ast.For) -> bool:
    """Does a loop clear the gradient of each parameter, under no condition but that there is one?

    `for p in model.parameters(): p.grad = None`, or `p.grad.zero_()`.
    """
    if ".parameters(" not in ast.unparse(node.iter) or len(node.body) != 1:
        return False
    statement = node.body[0]
    if isinstance(statement, ast.If) and "grad" in ast.unparse(statement.test):
        statement = statement.body[0]
    text = ast.unparse(statement)
    return text.endswith((".grad = None", ".grad.zero_()", ".grad.detach_().zero_()"))


def _writes_gradients(node: ast.AST) -> bool:
    """Does it set the gradients of weights?"""
    return any(
        isinstance(one, ast.Attribute) and one.attr == "grad" and isinstance(one.ctx, ast.Store)
        for one in ast.walk(node)
    )


def _after_assignment(node: ast.Assign | ast.AugAssign, states: States) -> States:
    """The states after an assignment, which may set gradients."""
    return [one.after_gradient_write() for one in states] if _writes_gradients(node) else states
