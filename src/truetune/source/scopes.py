"""Scopes: where each name is bound, and which of its bindings may reach a place."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

Position = tuple[int, int]
Arm = tuple[int, str]
"""An `if`, loop, `try` or `match` (its id) and the part of it"""
END_OF_SCOPE: Position = (1 << 40, 0)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STATEMENTS_THAT_LEAVE = (ast.Return, ast.Raise, ast.Continue)
PARTS_EVALUATED_OUTSIDE = (
    "decorator_list",
    "returns",
    "bases",
    "keywords",
    "defaults",
    "kw_defaults",
    "type_params",
)
"""Parts of a function or class that are evaluated around it"""
MAX_REACHING_BINDINGS = 24
"""Bindings that may reach one place: of a name that is bound in hundreds of branches no more can be said with more"""
CONDITIONAL = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
BindingKind = Literal["value", "element", "import", "parameter", "def", "class", "other"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives a name a value."""

    name: str
    kind: BindingKind
    node: ast.AST
    """The statement, or the `ast.arg`"""
    value: ast.expr | None
    """value: what is assigned; element: what is looped over"""
    path: tuple[int, ...]
    """Where in the value, for `a, (b, c) = value`"""
    target: str
    """import: the qualified name"""
    position: Position
    arms: tuple[Arm, ...]


@dataclass(eq=False, slots=True)
class Scope:
    """A module, function, class or comprehension."""

    node: ast.AST
    outer: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[ast.ImportFrom] = field(default_factory=list)
    """The statements `from x import *`"""
    elsewhere: dict[str, bool] = field(default_factory=dict)
    """Names declared global (True) or nonlocal (False)"""

    @property
    def inline(self) -> bool:
        """Runs where it stands."""
        return isinstance(self.node, (ast.ClassDef, *COMPREHENSIONS))

    @property
    def of_file(self) -> Scope:
        """The scope of the whole file."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


class Scopes:
    """All scopes of one tree, or of several that are judged together; made in one pass without recursion.

    The tables hold the nodes of all trees, so whoever follows a value into another file asks no more than in one.
    """

    def __init__(self, *trees: ast.Module) -> None:
        self.parent: dict[ast.AST, ast.AST] = {}
        self.order: list[ast.AST] = []
        """Every node, in the order of the text, tree after tree"""
        self.nodes_of: dict[ast.Module, tuple[int, int]] = {}
        """Where in `order` the nodes of each tree begin and end"""
        self.of: dict[ast.AST, Scope] = {}
        """The scope that a node stands in"""
        self.arms: dict[ast.AST, tuple[Arm, ...]] = {}
        self.inside: dict[ast.AST, Scope] = {tree: Scope(tree, None) for tree in trees}
        """The scope that a file, function, class or comprehension makes"""
        self._ending: set[Arm] = set()
        for tree in trees:
            begin = len(self.order)
            self._walk(tree)
            self.nodes_of[tree] = (begin, len(self.order))
        self._bind()

    def _walk(self, tree: ast.Module) -> None:
        stack: list[tuple[ast.AST, Scope, tuple[Arm, ...]]] = [(tree, self.inside[tree], ())]
        while stack:
            node, scope, arms = stack.pop()
            self.order.append(node)
            self.of[node], self.arms[node] = scope, arms
            inner = scope
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
                inner = self.inside[node] = Scope(node, scope)
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                scope.elsewhere.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
            children: list[tuple[ast.AST, Scope, tuple[Arm, ...]]] = []
            for name, child in _iterate_children(node):
                self.parent[child] = node
                if name in PARTS_EVALUATED_OUTSIDE and (
                    inner is not scope or isinstance(node, ast.arguments)
                ):
                    around = scope.outer if isinstance(node, ast.arguments) else scope
                    assert around is not None
                    children.append(
                        (child, around, arms if around is scope else self.arms[scope.node])
                    )
                else:
                    children.append(
                        (child, inner, () if inner is not scope else self._arms(node, name, arms))
                    )
            stack.extend(reversed(children))

    def _arms(self, node: ast.AST, name: str, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        if isinstance(node, CONDITIONAL) and name in ("body", "orelse", "handlers", "cases"):
            arm = (id(node), name)
            body = getattr(node, name)
            if isinstance(node, ast.If) and isinstance(body[-1], STATEMENTS_THAT_LEAVE):
                self._ending.add(arm)
            return (*arms, arm)
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            arm = (id(node), name)
            if isinstance(node.body[-1], STATEMENTS_THAT_LEAVE):
                self._ending.add(arm)
            return (*arms, arm)
        return arms

    def _bind(self) -> None:
        for node in self.order:
            for binding in self._bindings(node):
                scope = (
                    self.inside[node]
                    if isinstance(node, FUNCTIONS) and binding.kind == "parameter"
                    else self.of[node]
                )
                if isinstance(node, ast.NamedExpr):
                    while isinstance(scope.node, COMPREHENSIONS) and scope.outer:
                        scope = scope.outer
                if binding.name in scope.elsewhere:
                    home = _declared_scope(scope, binding.name)
                    arm = (id(scope.node), "elsewhere")
                    binding = replace(binding, arms=(arm,))
                    scope = home
                scope.bindings.setdefault(binding.name, []).append(binding)
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                self.of[node].stars.append(node)
        for scope in self.inside.values():
            for bindings in scope.bindings.values():
                bindings.sort(key=lambda b: b.position)

    def _bindings(self, node: ast.AST) -> Iterator[Binding]:
        arms = self.arms[node]
        end = (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)
        start = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))

        def targets(
            target: ast.expr, kind: BindingKind, value: ast.expr | None, at: Position
        ) -> Iterator[Binding]:
            for name, path in _iterate_target_names(target):
                yield Binding(name, kind, node, value, path, "", at, arms)

        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from targets(target, "value", node.value, end)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield from targets(node.target, "value", node.value, end)
        elif isinstance(node, ast.AugAssign):
            yield from targets(node.target, "other", None, end)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            begins = (node.iter.end_lineno or 0, node.iter.end_col_offset or 0)
            for binding in targets(node.target, "element", node.iter, begins):
                yield replace(binding, arms=(*arms, (id(node), "body")))
        elif isinstance(node, ast.comprehension):
            yield from targets(node.target, "element", node.iter, (0, 0))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            at = node.optional_vars
            position = (at.end_lineno or 0, at.end_col_offset or 0)
            yield from targets(at, "value", node.context_expr, position)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for bound, qualified in _iterate_imported_names(node):
                yield Binding(bound, "import", node, None, (), qualified, end, arms)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            kind: BindingKind = "class" if isinstance(node, ast.ClassDef) else "def"
            yield Binding(node.name, kind, node, None, (), "", start, arms)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield Binding(node.name, "other", node, None, (), "", start, arms)
        if isinstance(node, FUNCTIONS):
            for arg in _iterate_parameters(node.args):
                yield Binding(arg.arg, "parameter", arg, None, (), "", (0, 0), ())

    def reaching(self, name: ast.Name) -> tuple[Binding, ...]:
        """The bindings that may hold where `name` is used, the last one first."""
        scope: Scope | None = self.of[name]
        assert scope is not None
        position, arms = (name.lineno, name.col_offset), self.arms[name]
        first = scope
        while scope is not None:
            if scope is first or not isinstance(scope.node, ast.ClassDef):
                if name.id in scope.elsewhere:
                    scope = _declared_scope(scope, name.id)
                    position, arms = END_OF_SCOPE, ()
                found = self._in_scope(scope, name.id, position, arms)
                if found:
                    return found
                if name.id in scope.bindings and position != END_OF_SCOPE and not scope.inline:
                    return tuple(scope.bindings[name.id][:1])
            if scope.inline:
                arms = self.arms[scope.node]
            else:
                position, arms = END_OF_SCOPE, ()
            scope = scope.outer
        return ()

    def home_of(self, name: ast.Name) -> Scope:
        """The scope that binds a name, from where it is used outwards; that of the file where none does."""
        scope = self.of[name]
        while scope.outer is not None and name.id not in scope.bindings:
            scope = scope.outer
        return scope

    def at_end_of_file(self, scope: Scope, name: str) -> tuple[Binding, ...]:
        """The bindings of a file's name that may hold when the file has run, the last one first."""
        return self._in_scope(scope, name, END_OF_SCOPE, ())

    def _in_scope(
        self, scope: Scope, name: str, position: Position, arms: tuple[Arm, ...]
    ) -> tuple[Binding, ...]:
        found: list[Binding] = []
        bindings = scope.bindings.get(name, [])
        before = bisect_right(bindings, position, key=lambda binding: binding.position)
        for number in range(before - 1, -1, -1):
            binding = bindings[number]
            if self._excluded(binding.arms, arms):
                continue
            found.append(binding)
            if len(found) == MAX_REACHING_BINDINGS or arms[: len(binding.arms)] == binding.arms:
                break
        return tuple(found)

    def _excluded(self, bound: tuple[Arm, ...], used: tuple[Arm, ...]) -> bool:
        """Can a binding in these arms never reach a use in those?"""
        common = 0
        while common < min(len(bound), len(used)) and bound[common] == used[common]:
            common += 1
        rest = bound[common:]
        if any(arm in self._ending for arm in rest):
            return True
        other = used[common : common + 1]
        return bool(
            rest
            and other
            and rest[0][0] == other[0][0]
            and {rest[0][1], other[0][1]} == {"body", "orelse"}
        )


def _declared_scope(scope: Scope, name: str) -> Scope:
    """The scope that a `global` or `nonlocal` in this one means."""
    of_file = scope.elsewhere[name]
    return scope.of_file if of_file else scope.outer or scope


def _iterate_children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield name, value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield name, item


def _iterate_target_names(
    target: ast.expr, path: tuple[int, ...] = ()
) -> Iterator[tuple[str, tuple[int, ...]]]:
    stack = [(target, path)]
    while stack:
        node, where = stack.pop()
        if isinstance(node, ast.Name):
            yield node.id, where
        elif isinstance(node, (ast.Tuple, ast.List)):
            stack += [(item, (*where, i)) for i, item in enumerate(node.elts)]
        elif isinstance(node, ast.Starred):
            stack.append((node.value, (*where, -1)))


def _iterate_imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            if alias.name != "*":
                yield (
                    alias.asname or alias.name,
                    f"{'.' * node.level}{node.module or ''}.{alias.name}",
                )
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            top = alias.name.partition(".")[0]
            yield top, top


def _iterate_parameters(args: ast.arguments) -> Iterator[ast.arg]:
    yield from (*args.posonlyargs, *args.args, *args.kwonlyargs)
    yield from (arg for arg in (args.vararg, args.kwarg) if arg is not None)
