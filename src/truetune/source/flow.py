"""Flow: what names and expressions of one file stand for, as far as the file itself says."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from truetune.source import kinds, values
from truetune.source.calls import Call
from truetune.source.scopes import FUNCTIONS, Binding, Scope, Scopes

DEPTH = 10
"""Steps that an expression is followed"""
MOST = 12
"""Origins that are kept; where there are more, the expression itself is one of them, for not all is known"""
BRANCHES = 48
"""Bindings, calls or assignments that one step follows: a helper that a test file calls a thousand times is not
followed into each of them"""
FLAT = ("transformers", "trl", "peft", "datasets", "accelerate", "unsloth", "bitsandbytes")
"""Libraries whose names are written without the modules between: `trl.trainer.sft_trainer.SFTTrainer` is
`trl.SFTTrainer`"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: an expression, a parameter (`ast.arg`), a `def`, a class or an import."""

    node: ast.AST
    path: tuple[int, ...] = ()
    """Which part of it, where a tuple was taken apart (-1: the rest)"""
    element: bool = False
    """One element of it, in a loop"""


class Flow:
    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._calls: dict[ast.Call, Call] = {}
        self._methods_of: dict[ast.ClassDef, dict[str, ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._given: dict[ast.arg, list[ast.expr]] = {}
        self.dictionary_writes: dict[tuple[Scope, str], list[ast.Assign | ast.Call]] | None = None
        self.written_dicts: dict[tuple[ast.AST, Scope, str], values.WrittenDict] = {}
        """Kept by values.py"""
        self.known_values: dict[ast.AST, Any] = {}
        self.known_kinds: dict[ast.AST, frozenset[str]] = {}
        """Kept by kinds.py"""

    def name(self, node: ast.AST) -> str | None:
        """The qualified name of what an expression is, where it is imported or built in.

        `transformers.AutoTokenizer.from_pretrained`, `torch.nn.functional.cross_entropy`, `len`; modules inside the
        libraries of FLAT are left out. None for objects, and for what the file defines itself.
        """
        if node not in self._names:
            self._names[node] = None
            self._names[node] = self._name(node, 0)
        return self._names[node]

    def _name(self, node: ast.AST, depth: int) -> str | None:
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or depth > DEPTH:
            return None
        bindings = self.scopes.reaching(node)
        base = next((b.target for b in bindings if b.kind == "import"), None)
        if not bindings:
            base = node.id if hasattr(builtins, node.id) else self._starred(node)
        elif base is None:
            value = bindings[0].value
            if bindings[0].kind == "value" and not bindings[0].path and isinstance(value, (ast.Name, ast.Attribute)):
                base = self._name(value, depth + 1)
        return None if base is None else flat(".".join((base, *reversed(attributes))))

    def _starred(self, node: ast.Name) -> str | None:
        stars = [star for scope in self._around(node) for star in scope.stars]
        return f"{stars[-1]}.{node.id}" if stars and (node.id[:1].isupper() or "_" in node.id) else None

    def _around(self, node: ast.AST) -> Iterator[Any]:
        scope = self.scopes.of.get(node)
        while scope is not None:
            yield scope
            scope = scope.outer

    def names(self, node: ast.AST) -> tuple[str, ...]:
        """`name`, or where it is a class of the file, the names of its bases."""
        if found := self.name(node):
            return (found,)
        return tuple(
            name
            for origin in self.origins(node)
            if isinstance(origin.node, ast.ClassDef)
            for name in self.bases(origin.node)
        )

    def bases(self, node: ast.ClassDef, depth: int = 0) -> tuple[str, ...]:
        """The qualified names of what a class is derived from, through classes of the file."""
        if depth > DEPTH:
            return ()
        found: list[str] = []
        for base in node.bases:
            if name := self.name(base):
                found.append(name)
            else:
                for origin in self.origins(base):
                    if isinstance(origin.node, ast.ClassDef) and origin.node is not node:
                        found += self.bases(origin.node, depth + 1)
        return tuple(found)

    def call(self, node: ast.Call) -> Call:
        if node not in self._calls:
            self._calls[node] = self._call(node)
        return self._calls[node]

    def _call(self, node: ast.Call) -> Call:
        names = self.names(node.func)
        method = receiver = None
        if isinstance(node.func, ast.Attribute) and self.name(node.func.value) is None:
            method, receiver = node.func.attr, node.func.value
        keywords: dict[str, ast.expr] = {}
        unknown = any(isinstance(arg, ast.Starred) for arg in node.args)
        for keyword in node.keywords:
            if keyword.arg is not None:
                keywords[keyword.arg] = keyword.value
                continue
            entries, whole = values.entries(self, keyword.value)
            keywords.update(entries)
            unknown = unknown or not whole
        return Call(node, names, method, receiver, tuple(node.args), keywords, unknown)

    def origins(self, node: ast.AST) -> tuple[Origin, ...]:
        """What an expression may stand for: through aliases, tuples, parameters, local functions, `self`."""
        if node not in self._origins:
            self._origins[node] = (Origin(node),)
            self._origins[node] = self._followed(Origin(node))
        return self._origins[node]

    def _followed(self, start: Origin) -> tuple[Origin, ...]:
        found: dict[Origin, None] = {}
        seen = {start}
        waiting = [(start, 0)]
        while waiting and len(found) < MOST:
            origin, depth = waiting.pop()
            following_ones = list(islice(self._step(origin), BRANCHES + 1)) if depth < DEPTH else [origin]
            if len(following_ones) > BRANCHES:
                found[origin] = None
            for following in reversed(following_ones[:BRANCHES]):
                if following == origin:
                    found[origin] = None
                elif following not in seen:
                    seen.add(following)
                    waiting.append((following, depth + 1))
        if waiting:
            found[start] = None
        return tuple(found) or (start,)

    def _step(self, origin: Origin) -> Iterator[Origin]:
        node, path = origin.node, origin.path
        if origin.element:
            yield origin
        elif isinstance(node, ast.Name):
            bindings = self.scopes.reaching(node)
            yield from (self._bound(binding, path) for binding in bindings)
            if not bindings:
                yield origin
        elif isinstance(node, ast.NamedExpr):
            yield Origin(node.value, path)
        elif isinstance(node, ast.IfExp):
            yield from (Origin(node.body, path), Origin(node.orelse, path))
        elif isinstance(node, ast.BoolOp):
            yield from (Origin(value, path) for value in node.values)
        elif isinstance(node, ast.Await):
            yield Origin(node.value, path)
        elif isinstance(node, (ast.Tuple, ast.List)) and path and 0 <= path[0] < len(node.elts):
            yield Origin(node.elts[path[0]], path[1:])
        elif isinstance(node, ast.arg):
            given = self.given(node)
            yield from (Origin(value, path) for value in given) if given else (origin,)
        elif isinstance(node, ast.Attribute):
            assigned = self.assigned(node)
            yield from (Origin(value, (*where, *path)) for value, where in assigned) if assigned else (origin,)
        elif isinstance(node, ast.Subscript):
            yield from ([Origin(value, path) for value in self._item(node)] or [origin])
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield from ([Origin(value, path) for value in self._returned(node)] or [origin])
        else:
            yield origin

    def _bound(self, binding: Binding, path: tuple[int, ...]) -> Origin:
        if binding.kind == "value" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path))
        if binding.kind == "element" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path), element=True)
        return Origin(binding.node, path)

    def _item(self, node: ast.Subscript) -> Iterator[ast.expr]:
        if not isinstance(node.slice, ast.Constant):
            return
        key = node.slice.value
        for origin in self.origins(node.value):
            if (
                isinstance(key, int)
                and isinstance(origin.node, (ast.Tuple, ast.List))
                and -len(origin.node.elts) <= key < len(origin.node.elts)
            ):
                yield origin.node.elts[key]
            elif isinstance(key, str) and isinstance(origin.node, (ast.Dict, ast.Call)):
                entries = values.entries(self, node.value)[0]
                if key in entries:
                    yield entries[key]
                return

    def function(self, node: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The function of the file that an expression names."""
        for origin in self.origins(node):
            if isinstance(origin.node, FUNCTIONS) and not origin.path:
                return origin.node
        return self._own_method(node) if isinstance(node, ast.Attribute) else None

    def _methods(self, owner: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions in the body of a class by name; of two, the first."""
        if owner not in self._methods_of:
            functions = [item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]
            self._methods_of[owner] = {item.name: item for item in reversed(functions)}
        return self._methods_of[owner]

    def _returned(self, node: ast.Call) -> list[ast.expr]:
        function = self.function(node.func) if not self.name(node.func) else None
        if isinstance(function, ast.Lambda):
            return [function.body]
        return self.returns.get(function, []) if function else []

    @cached_property
    def returns(self) -> dict[ast.AST, list[ast.expr]]:
        """What the `return` statements of each function return; generators and properties are no different."""
        found: dict[ast.AST, list[ast.expr]] = {}
        for node in self.scopes.order:
            if isinstance(node, ast.Return) and node.value is not None:
                found.setdefault(self.scopes.of[node].node, []).append(node.value)
        return found

    def given(self, parameter: ast.arg) -> list[ast.expr]:
        """What calls in the file give for a parameter; its default where no call gives one."""
        if parameter not in self._given:
            self._given[parameter] = self._given_by_calls(parameter)
        return self._given[parameter]

    def _given_by_calls(self, parameter: ast.arg) -> list[ast.expr]:
        arguments = self.scopes.parent.get(parameter)
        if not isinstance(arguments, ast.arguments) or parameter in (arguments.vararg, arguments.kwarg):
            return []
        function = self.scopes.parent[arguments]
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        bound = bool(names) and names[0] in ("self", "cls") and isinstance(self.scopes.of[function].node, ast.ClassDef)
        place = names.index(parameter.arg) - bound if parameter.arg in names else -1
        found: list[ast.expr] = []
        for call in self._calls_of(function):
            by_name = next((k.value for k in call.keywords if k.arg == parameter.arg), None)
            if by_name is not None:
                found.append(by_name)
            elif 0 <= place < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args[: place + 1]):
                found.append(call.args[place])
        if not found and (default := values.default(arguments, parameter)) is not None:
            found.append(default)
        return found

    def _calls_of(self, function: ast.AST) -> list[ast.Call]:
        """The calls in the file that may be of this function."""
        certain, by_attribute = self._call_sites
        found = certain.get(function, [])
        if isinstance(self.scopes.of[function].node, ast.ClassDef):
            return found + by_attribute.get(getattr(function, "name", ""), [])
        return found

    @cached_property
    def _call_sites(self) -> tuple[dict[ast.AST, list[ast.Call]], dict[str, list[ast.Call]]]:
        """Function -> the calls that name it; attribute -> the calls of it on an object of which no more is known.

        A bare name is looked up in its scope, because test files define functions of one name in many places; `self.f`
        is the method of the class around it, where that has one.
        """
        certain: dict[ast.AST, list[ast.Call]] = {}
        by_attribute: dict[str, list[ast.Call]] = {}
        for node in self.scopes.order:
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name):
                for binding in self.scopes.reaching(called):
                    if binding.kind == "def":
                        certain.setdefault(binding.node, []).append(node)
            elif isinstance(called, ast.Attribute):
                own = self._own_method(called)
                if own is not None:
                    certain.setdefault(own, []).append(node)
                else:
                    by_attribute.setdefault(called.attr, []).append(node)
        return certain, by_attribute

    def _own_method(self, called: ast.Attribute) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The method that `self.f` means, where the class around it has one."""
        if not (isinstance(called.value, ast.Name) and called.value.id in ("self", "cls")):
            return None
        owner = self._class_around(called)
        return self._methods(owner).get(called.attr) if owner else None

    def assigned(self, node: ast.Attribute) -> list[tuple[ast.expr, tuple[int, ...]]]:
        """What `self.x` was set to anywhere in its class, or `Class.x` in the class's body."""
        owner = None
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            owner = self._class_around(node)
        elif isinstance(node.value, ast.Name):
            owner = next((o.node for o in self.origins(node.value) if isinstance(o.node, ast.ClassDef)), None)
            if owner is None:
                made = next((o.node for o in self.origins(node.value) if isinstance(o.node, ast.Call)), None)
                if made is not None and isinstance(made.func, ast.Name):
                    owner = next((o.node for o in self.origins(made.func) if isinstance(o.node, ast.ClassDef)), None)
        return self.attributes.get(owner, {}).get(node.attr, []) if owner else []

    @cached_property
    def attributes(self) -> dict[ast.AST, dict[str, list[tuple[ast.expr, tuple[int, ...]]]]]:
        """Class -> attribute -> the expressions that it is set to."""
        found: dict[ast.AST, dict[str, list[tuple[ast.expr, tuple[int, ...]]]]] = {}
        for node in self.scopes.order:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            owner = self._class_around(node)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, path in _attributes(target, in_body=self.scopes.of[node].node is owner):
                    if owner is not None:
                        found.setdefault(owner, {}).setdefault(name, []).append((node.value, path))
        return found

    def _class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((s.node for s in self._around(node) if isinstance(s.node, ast.ClassDef)), None)

    def made(self, node: ast.AST | None) -> Call | None:
        """The one call whose result an expression is."""
        origins = self.origins(node) if node is not None else ()
        only = origins[0] if len(origins) == 1 else None
        return self.call(only.node) if only and isinstance(only.node, ast.Call) and not only.path else None

    def value(self, node: ast.AST | None) -> Any:
        """The constant, list, tuple, set or dictionary that an expression is, else `values.UNKNOWN`."""
        return values.UNKNOWN if node is None else values.constant(self, node)

    def entries(self, node: ast.AST) -> tuple[dict[str, ast.expr], bool]:
        """The entries of a dictionary by name, and whether they are all."""
        return values.entries(self, node)

    def kinds(self, node: ast.AST | None) -> frozenset[str]:
        """What kind of object an expression may be: see kinds.py."""
        return frozenset() if node is None else kinds.of(self, node)


def _attributes(target: ast.expr, *, in_body: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    if isinstance(target, ast.Tuple):
        for i, item in enumerate(target.elts):
            yield from ((name, (i, *path)) for name, path in _attributes(item, in_body=in_body))
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        yield target.attr, ()
    elif in_body and isinstance(target, ast.Name):
        yield target.id, ()


def flat(name: str) -> str:
    """A qualified name without the modules inside a library of FLAT."""
    parts = name.split(".")
    if parts[0] not in FLAT or len(parts) < 3:
        return name
    first = next((i for i, part in enumerate(parts) if i and part[:1].isupper()), len(parts) - 1)
    return ".".join((parts[0], *parts[first:]))
