"""Finds where each name is bound, and which of its bindings may reach a place in the code.

How it works: one pass over the trees notes for each node its scope and its arms (the branches of `if`, loops, `try`
and `match` around it); a second one collects the bindings of each scope in the order of the text. A use of a name then
asks for the bindings before it, from the last one back, until one of them must have run.

The trade-off: order and nesting stand in for a control-flow graph. Both branches of an `if` reach what follows it,
unless one of them leaves; a function is taken to run after the whole file; conditions are never evaluated. So a use
has too many bindings rather than too few, and the work grows with the length of a file, not with its paths.
"""

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
"""Behind every line: a function runs when its file is done, so all bindings of the file may reach it"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STATEMENTS_THAT_LEAVE = (ast.Return, ast.Raise, ast.Continue)
"""At the end of a branch: what it binds does not reach the code behind it. `break` is none of them, for what a loop
binds before it is used after the loop."""
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
"""Bindings that may reach one place: of a name that is bound in hundreds of branches no more can be said with more.
Chosen, not measured: twice the origins that `data_flow` keeps"""
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


# Compared by identity: two scopes are never the same, and each is the key of tables.
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
    def runs_in_place(self) -> bool:
        """Does the code of the scope run where it stands, as that of a class body or a
        comprehension, and not when it is called?
        """
        return isinstance(self.node, (ast.ClassDef, *COMPREHENSIONS))

    @property
    def enclosing_file_scope(self) -> Scope:
        """The scope of the whole file."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


_Visit = tuple[ast.AST, Scope, tuple[Arm, ...]]
"""A node that waits for its visit, with the scope and the arms that it stands in"""


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
            self._note_scopes_arms_and_parents(tree)
            self.nodes_of[tree] = (begin, len(self.order))
        self._collect_bindings()

    def _note_scopes_arms_and_parents(self, tree: ast.Module) -> None:
        """Note the order, scope, arms and parent of each node of a tree."""
        # A stack, because generated code nests deeper than Python's recursion limit.
        stack: list[_Visit] = [(tree, self.inside[tree], ())]
        while stack:
            node, scope, arms = stack.pop()
            self.order.append(node)
            self.of[node], self.arms[node] = scope, arms
            inner = scope
            if isinstance(node, (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)):
                inner = self.inside[node] = Scope(node, scope)
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                scope.elsewhere.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
            children: list[_Visit] = []
            for name, child in _children_with_field_names(node):
                self.parent[child] = node
                is_outside = name in PARTS_EVALUATED_OUTSIDE
                if is_outside and isinstance(node, ast.arguments):
                    # Defaults are evaluated where the function is defined, one scope further out than its arguments.
                    assert scope.outer is not None
                    children.append((child, scope.outer, self.arms[scope.node]))
                elif is_outside and inner is not scope:
                    children.append((child, scope, arms))
                elif inner is not scope:
                    children.append((child, inner, ()))
                else:
                    children.append((child, scope, self._arms_of_field(node, name, arms)))
            stack.extend(reversed(children))

    def _arms_of_field(self, node: ast.AST, name: str, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """The arms (branches of `if`, loops, `try`) around the parts of a node in the field of that
        name; arms that leave at their end are noted.
        """
        # An `if` whose branch returns or raises cannot reach what follows it. A loop or `try` is only left in part by
        # such a statement, so its body still can.
        if isinstance(node, CONDITIONAL) and name in ("body", "orelse", "handlers", "cases"):
            arm = (id(node), name)
            body = getattr(node, name)
            if isinstance(node, ast.If) and isinstance(body[-1], STATEMENTS_THAT_LEAVE):
                self._ending.add(arm)
            return (*arms, arm)
        # Each handler and case is a branch of its own beside the others.
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            arm = (id(node), name)
            if isinstance(node.body[-1], STATEMENTS_THAT_LEAVE):
                self._ending.add(arm)
            return (*arms, arm)
        return arms

    def _collect_bindings(self) -> None:
        """Collect the bindings of each scope, in the order of the text."""
        for node in self.order:
            for binding in _bindings_of_node(node, self.arms[node]):
                self._add_binding(node, binding)
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                self.of[node].stars.append(node)
        for scope in self.inside.values():
            for bindings in scope.bindings.values():
                bindings.sort(key=lambda binding: binding.position)

    def _add_binding(self, node: ast.AST, binding: Binding) -> None:
        """Put a binding into the scope whose name it binds."""
        scope = self.of[node]
        if isinstance(node, FUNCTIONS) and binding.kind == "parameter":
            scope = self.inside[node]
        if isinstance(node, ast.NamedExpr):
            # `:=` in a comprehension binds in the function around it (PEP 572).
            while isinstance(scope.node, COMPREHENSIONS) and scope.outer:
                scope = scope.outer
        if binding.name in scope.elsewhere:
            # Whether the function that declares the name global has run is open, so its binding stands in an arm of
            # its own: it may reach every use and replaces none.
            arm = (id(scope.node), "elsewhere")
            binding = replace(binding, arms=(arm,))
            scope = _scope_of_global_or_nonlocal(scope, binding.name)
        scope.bindings.setdefault(binding.name, []).append(binding)

    def bindings_that_reach(self, name: ast.Name) -> tuple[Binding, ...]:
        """The bindings that may hold where `name` is used, the last one first."""
        scope: Scope | None = self.of[name]
        position, arms = (name.lineno, name.col_offset), self.arms[name]
        first = scope
        while scope is not None:
            # A class body's names are not seen by the functions in it, but by its own statements.
            if scope is first or not isinstance(scope.node, ast.ClassDef):
                if name.id in scope.elsewhere:
                    scope = _scope_of_global_or_nonlocal(scope, name.id)
                    position, arms = END_OF_SCOPE, ()
                reaching = self._bindings_of_scope_that_may_hold(scope, name.id, position, arms)
                if reaching:
                    return reaching
                if (
                    name.id in scope.bindings
                    and position != END_OF_SCOPE
                    and not scope.runs_in_place
                ):
                    # A local that is bound later only: in a loop its first binding is the one that comes around.
                    return tuple(scope.bindings[name.id][:1])
            # A class body and a comprehension run in their place, so around them the order still counts; a function
            # runs at any time later.
            if scope.runs_in_place:
                arms = self.arms[scope.node]
            else:
                position, arms = END_OF_SCOPE, ()
            scope = scope.outer
        return ()

    def scope_that_binds_name(self, name: ast.Name) -> Scope:
        """The home of a name: the scope that binds it, from where it is used outwards; that of the file where none
        does.
        """
        scope = self.of[name]
        while scope.outer is not None and name.id not in scope.bindings:
            scope = scope.outer
        return scope

    def bindings_at_end_of_file(self, scope: Scope, name: str) -> tuple[Binding, ...]:
        """The bindings of a name that may hold at the end of its file, when it has run, the last one first."""
        return self._bindings_of_scope_that_may_hold(scope, name, END_OF_SCOPE, ())

    def _bindings_of_scope_that_may_hold(
        self, scope: Scope, name: str, position: Position, arms: tuple[Arm, ...]
    ) -> tuple[Binding, ...]:
        """The bindings of a scope that may hold at a position in these arms, the last one first."""
        return self.bindings_that_hold(scope.bindings.get(name, []), position, arms)

    def bindings_that_hold(
        self, bindings: list[Binding], position: Position, arms: tuple[Arm, ...]
    ) -> tuple[Binding, ...]:
        """Those bindings of one name that may hold at a position, the last one first. They come in
        the order of the text.
        """
        reaching: list[Binding] = []
        # Bisected, because a test file may bind one name a thousand times and use it as often.
        before = bisect_right(bindings, position, key=lambda binding: binding.position)
        for number in range(before - 1, -1, -1):
            binding = bindings[number]
            if self._binding_can_never_reach_use(binding.arms, arms):
                continue
            reaching.append(binding)
            has_run = arms[: len(binding.arms)] == binding.arms
            if has_run or len(reaching) == MAX_REACHING_BINDINGS:
                break
        return tuple(reaching)

    def _binding_can_never_reach_use(self, bound: tuple[Arm, ...], used: tuple[Arm, ...]) -> bool:
        """Can a binding in these arms never reach a use in those?

        It can not where its branch leaves at its end, or where the use stands in the other branch.
        """
        common = 0
        while common < min(len(bound), len(used)) and bound[common] == used[common]:
            common += 1
        rest = bound[common:]
        # The use stands outside these arms, and the code that bound the name has left by then.
        if any(arm in self._ending for arm in rest):
            return True
        # In the first arms that differ, `body` and `else` of one statement never both run. A handler follows
        # a body that ran in part, and the cases of a `match` are not told apart.
        other = used[common : common + 1]
        return bool(
            rest
            and other
            and rest[0][0] == other[0][0]
            and {rest[0][1], other[0][1]} == {"body", "orelse"}
        )


def _scope_of_global_or_nonlocal(scope: Scope, name: str) -> Scope:
    """The scope that a `global` or `nonlocal` in this one means."""
    of_file = scope.elsewhere[name]
    return scope.enclosing_file_scope if of_file else scope.outer or scope


def _bindings_of_node(node: ast.AST, arms: tuple[Arm, ...]) -> Iterator[Binding]:
    """The bindings that a node makes, its parts not counted.

    A value is bound behind its whole statement (`x = f(x)` reads the old `x`), a definition where it begins.
    """
    start = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        kind: BindingKind = "class" if isinstance(node, ast.ClassDef) else "def"
        yield Binding(node.name, kind, node, None, (), "", start, arms)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for bound, qualified in _bound_and_qualified_imported_names(node):
            yield Binding(bound, "import", node, None, (), qualified, _end_position(node), arms)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield Binding(node.name, "other", node, None, (), "", start, arms)
    else:
        yield from _bindings_of_targets(node, arms)
    if isinstance(node, FUNCTIONS):
        for parameter in _iterate_parameters(node.args):
            yield Binding(parameter.arg, "parameter", parameter, None, (), "", (0, 0), ())


def _bindings_of_targets(node: ast.AST, arms: tuple[Arm, ...]) -> Iterator[Binding]:
    """The bindings of an assignment, a loop or a `with`, by the names in its targets."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bindings_of_target_names(
                target, "value", node, node.value, _end_position(node), arms
            )
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _bindings_of_target_names(
            node.target, "value", node, node.value, _end_position(node), arms
        )
    elif isinstance(node, ast.AugAssign):
        yield from _bindings_of_target_names(
            node.target, "other", node, None, _end_position(node), arms
        )
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        # A loop may run zero times, so what it binds is in its own arm and does not replace what was before.
        body = (*arms, (id(node), "body"))
        yield from _bindings_of_target_names(
            node.target, "element", node, node.iter, _end_position(node.iter), body
        )
    elif isinstance(node, ast.comprehension):
        # Its names are read before they are bound in the text (`f(x) for x in xs`): they hold from the beginning.
        yield from _bindings_of_target_names(node.target, "element", node, node.iter, (0, 0), arms)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        target = node.optional_vars
        yield from _bindings_of_target_names(
            target, "value", node, node.context_expr, _end_position(target), arms
        )


def _bindings_of_target_names(
    target: ast.expr,
    kind: BindingKind,
    node: ast.AST,
    value: ast.expr | None,
    position: Position,
    arms: tuple[Arm, ...],
) -> Iterator[Binding]:
    """A binding for each name in a target."""
    for name, path in _target_names_with_tuple_places(target):
        yield Binding(name, kind, node, value, path, "", position, arms)


def _end_position(node: ast.AST) -> Position:
    """Line and column where a node ends."""
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0


def _children_with_field_names(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The nodes in a node, each with the name of the field that holds it."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield name, value
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    yield name, item


def _target_names_with_tuple_places(
    target: ast.expr, path: tuple[int, ...] = ()
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names in a target, each with its place in the tuples around it; -1 where a star takes the rest."""
    # A stack instead of recursion, as everywhere here: the depth of a target is up to the file.
    stack = [(target, path)]
    while stack:
        node, where = stack.pop()
        if isinstance(node, ast.Name):
            yield node.id, where
        elif isinstance(node, (ast.Tuple, ast.List)):
            stack += [(item, (*where, i)) for i, item in enumerate(node.elts)]
        elif isinstance(node, ast.Starred):
            stack.append((node.value, (*where, -1)))


def _bound_and_qualified_imported_names(
    node: ast.Import | ast.ImportFrom,
) -> Iterator[tuple[str, str]]:
    """The names that an import binds, each with its qualified name; dots before a relative one are kept."""
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
            # `import a.b` binds `a` alone; the rest is an attribute of it.
            top = alias.name.partition(".")[0]
            yield top, top


def _iterate_parameters(args: ast.arguments) -> Iterator[ast.arg]:
    """All parameters of a function, `*args` and `**kwargs` with them."""
    yield from (*args.posonlyargs, *args.args, *args.kwonlyargs)
    yield from (arg for arg in (args.vararg, args.kwarg) if arg is not None)
