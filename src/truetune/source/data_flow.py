"""Flow: what names and expressions stand for, as far as the file says, and those that are judged with it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from truetune.source import constant_values, inferred_types
from truetune.source.calls import Call
from truetune.source.qualified_names import (
    iterate_assigned_attributes,
    shorten_library_name,
    split_off_attributes,
)
from truetune.source.scopes import FUNCTIONS, Binding, Scope, Scopes

if TYPE_CHECKING:
    from truetune.source.imported_names import ImportedName, ImportedNames

MAX_STEPS = 10
"""Steps that an expression is followed"""
MAX_ORIGINS = 12
"""Origins that are kept; where there are more, the expression itself is one of them, for not all is known"""
MAX_BRANCHES = 48
"""Bindings, calls or assignments that one step follows: a helper that a test file calls a thousand times is not
followed into each of them"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: an expression, a parameter (`ast.arg`), a `def`, a class or an import."""

    node: ast.AST
    path: tuple[int, ...] = ()
    """Which part of it, where a tuple was taken apart (-1: the rest)"""
    element: bool = False
    """One element of it, in a loop"""


class DataFlow:
    def __init__(self, scopes: Scopes, links: ImportedNames | None = None) -> None:
        """`links`: what the imports stand for among files that are judged together; None where there is one file."""
        self.scopes = scopes
        self._links = links
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._calls: dict[ast.Call, Call] = {}
        self._methods_of: dict[ast.ClassDef, dict[str, ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._given: dict[ast.arg, list[ast.expr]] = {}
        self.dictionary_writes: dict[tuple[Scope, str], list[ast.Assign | ast.Call]] | None = None
        self.writes_by_literal: dict[ast.AST, list[ast.Assign | ast.Call]] | None = None
        self.written_dicts: dict[tuple[ast.AST, Scope, str], constant_values.WrittenDict] = {}
        """Kept by constant_values.py"""
        self.known_values: dict[ast.AST, Any] = {}
        self.known_kinds: dict[ast.AST, frozenset[str]] = {}
        """Kept by inferred_types.py"""

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
        node, attributes = split_off_attributes(node)
        if not isinstance(node, ast.Name) or depth > MAX_STEPS:
            return None
        bindings = self.scopes.reaching(node)
        imported = next((b for b in bindings if b.kind == "import"), None)
        links = self._linked_elsewhere(node, imported, attributes)
        if links:
            return self._name_of_link(links[0], depth)
        base: str | None = None
        if imported is not None:
            base = imported.target
        elif not bindings:
            base = node.id if hasattr(builtins, node.id) else self._name_from_star(node)
        else:
            value = bindings[0].value
            if (
                bindings[0].kind == "value"
                and not bindings[0].path
                and isinstance(value, (ast.Name, ast.Attribute))
            ):
                base = self._name(value, depth + 1)
        return None if base is None else shorten_library_name(".".join((base, *attributes)))

    def _name_of_link(self, link: ImportedName, depth: int) -> str | None:
        binding, rest = link
        base = binding.target if binding.kind == "import" else None
        if (
            binding.kind == "value"
            and not binding.path
            and isinstance(binding.value, (ast.Name, ast.Attribute))
        ):
            base = self._name(binding.value, depth + 1)
        return None if base is None else shorten_library_name(".".join((base, *rest)))

    def _linked_elsewhere(
        self, name: ast.Name, imported: Binding | None, attributes: list[str]
    ) -> tuple[ImportedName, ...]:
        """What a name with these attributes stands for in another file that is judged with this one."""
        if self._links is None:
            return ()
        if imported is not None:
            return self._links.of_import(imported, attributes)
        scope = self.scopes.of[name].of_file
        if not scope.stars or self.scopes.reaching(name):
            return ()
        return self._links.of_star(scope, name.id, attributes)

    def imported_name(self, node: ast.expr) -> str | None:
        """The dotted name that an import gives, whether or not its file is judged too; None for anything else."""
        base, attributes = split_off_attributes(node)
        bindings = self.scopes.reaching(base) if isinstance(base, ast.Name) else ()
        imported = next((binding for binding in bindings if binding.kind == "import"), None)
        return (
            None
            if imported is None
            else shorten_library_name(".".join((imported.target, *attributes)))
        )

    def links(self, node: ast.expr) -> tuple[ImportedName, ...]:
        """What a name, or an attribute of a module, stands for in another file that is judged with this one."""
        base, attributes = split_off_attributes(node)
        if self._links is None or not isinstance(base, ast.Name):
            return ()
        bindings = self.scopes.reaching(base)
        imported = next((binding for binding in bindings if binding.kind == "import"), None)
        if bindings and imported is None:
            return ()
        return self._linked_elsewhere(base, imported, attributes)

    def _name_from_star(self, node: ast.Name) -> str | None:
        stars = [star for scope in self._around(node) for star in scope.stars]
        is_likely = bool(stars) and (node.id[:1].isupper() or "_" in node.id)
        return f"{stars[-1].module or ''}.{node.id}" if is_likely else None

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
        if depth > MAX_STEPS:
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
            entries, whole = constant_values.resolve_dict_entries(self, keyword.value)
            keywords.update(entries)
            unknown = unknown or not whole
        return Call(node, names, method, receiver, tuple(node.args), keywords, unknown)

    def origins(self, node: ast.AST) -> tuple[Origin, ...]:
        """What an expression may stand for: through aliases, tuples, parameters, local functions, `self`."""
        if node not in self._origins:
            self._origins[node] = (Origin(node),)
            self._origins[node] = self._follow(Origin(node))
        return self._origins[node]

    def _follow(self, start: Origin) -> tuple[Origin, ...]:
        found: dict[Origin, None] = {}
        seen = {start}
        waiting = [(start, 0)]
        while waiting and len(found) < MAX_ORIGINS:
            origin, depth = waiting.pop()
            following_ones = (
                list(islice(self._step(origin), MAX_BRANCHES + 1))
                if depth < MAX_STEPS
                else [origin]
            )
            if len(following_ones) > MAX_BRANCHES:
                found[origin] = None
            for following in reversed(following_ones[:MAX_BRANCHES]):
                if following == origin:
                    found[origin] = None
                elif following not in seen:
                    seen.add(following)
                    waiting.append((following, depth + 1))
        if waiting:
            found[start] = None
        return tuple(found) or (start,)

    def calls_passed(self, node: ast.AST) -> frozenset[ast.Call]:
        """The calls of functions of the files whose results an expression may be, on the way to its origins.

        Two names with one origin are two objects where each got it by a call of its own.
        """
        seen = {Origin(node)}
        waiting = [Origin(node)]
        while waiting and len(seen) < MAX_BRANCHES:
            for following in islice(self._step(waiting.pop()), MAX_BRANCHES):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return frozenset(
            one.node for one in seen if isinstance(one.node, ast.Call) and self._returned(one.node)
        )

    def _step(self, origin: Origin) -> Iterator[Origin]:
        node, path = origin.node, origin.path
        if origin.element:
            yield origin
        elif isinstance(node, ast.Name):
            yield from self._step_of_name(node, path)
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
            given = self.arguments_given(node)
            yield from (Origin(value, path) for value in given) if given else (origin,)
        elif isinstance(node, ast.Attribute):
            assigned = [Origin(value, (*where, *path)) for value, where in self.assigned(node)]
            yield from assigned or self._in_other_files(node, path) or [origin]
        elif isinstance(node, ast.Subscript):
            yield from (
                [Origin(value, path) for value in self._items_of_subscript(node)] or [origin]
            )
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield from ([Origin(value, path) for value in self._returned(node)] or [origin])
        else:
            yield origin

    def _step_of_name(self, node: ast.Name, path: tuple[int, ...]) -> Iterator[Origin]:
        bindings = self.scopes.reaching(node)
        for binding in bindings:
            if binding.kind == "import":
                yield from self._in_other_files(node, path) or [
                    self._origin_of_binding(binding, path)
                ]
            else:
                yield self._origin_of_binding(binding, path)
        if not bindings:
            yield from self._in_other_files(node, path) or [Origin(node, path)]

    def _in_other_files(self, node: ast.expr, path: tuple[int, ...]) -> list[Origin]:
        """What an imported name, or an attribute of an imported module, is bound to where it is made."""
        links = [link for link in self.links(node) if not link.rest]
        if any(link.binding in self._set_from_outside for link in links):
            return []
        return [self._origin_of_binding(link.binding, path) for link in links]

    @cached_property
    def _set_from_outside(self) -> frozenset[Binding]:
        """The bindings of files that another file replaces: `import settings`, `settings.RATE = 1e-3`."""
        if self._links is None:
            return frozenset()
        stores = (node for node in self.scopes.order if isinstance(node, ast.Attribute))
        changed = (node for node in stores if isinstance(node.ctx, ast.Store))
        return frozenset(
            link.binding for node in changed for link in self.links(node) if not link.rest
        )

    def _origin_of_binding(self, binding: Binding, path: tuple[int, ...]) -> Origin:
        if binding.kind == "value" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path))
        if binding.kind == "element" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path), element=True)
        return Origin(binding.node, path)

    def _items_of_subscript(self, node: ast.Subscript) -> Iterator[ast.expr]:
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
                entries = constant_values.resolve_dict_entries(self, node.value)[0]
                if key in entries:
                    yield entries[key]
                return

    def function(
        self, node: ast.expr
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The function of the file that an expression names."""
        for origin in self.origins(node):
            if isinstance(origin.node, FUNCTIONS) and not origin.path:
                return origin.node
        return self._own_method(node) if isinstance(node, ast.Attribute) else None

    def _methods(self, owner: ast.ClassDef) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions in the body of a class by name; of two, the first."""
        if owner not in self._methods_of:
            functions = [
                item
                for item in owner.body
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
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

    def arguments_given(self, parameter: ast.arg) -> list[ast.expr]:
        """What calls in the file give for a parameter; its default where no call gives one."""
        if parameter not in self._given:
            self._given[parameter] = self._arguments_in_calls(parameter)
        return self._given[parameter]

    def _arguments_in_calls(self, parameter: ast.arg) -> list[ast.expr]:
        arguments = self.scopes.parent.get(parameter)
        if not isinstance(arguments, ast.arguments) or parameter in (
            arguments.vararg,
            arguments.kwarg,
        ):
            return []
        function = self.scopes.parent[arguments]
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        bound = (
            bool(names)
            and names[0] in ("self", "cls")
            and isinstance(self.scopes.of[function].node, ast.ClassDef)
        )
        place = names.index(parameter.arg) - bound if parameter.arg in names else -1
        found: list[ast.expr] = []
        for call in self.calls_of(function):
            by_name = next((k.value for k in call.keywords if k.arg == parameter.arg), None)
            if by_name is not None:
                found.append(by_name)
            elif 0 <= place < len(call.args) and not any(
                isinstance(a, ast.Starred) for a in call.args[: place + 1]
            ):
                found.append(call.args[place])
        if (
            not found
            and (default := constant_values.default_of_parameter(arguments, parameter)) is not None
        ):
            found.append(default)
        return found

    def calls_of(self, function: ast.AST) -> list[ast.Call]:
        """The calls, in any file, that may be of this function, or that make one of this class."""
        certain, by_attribute = self._call_sites
        found = certain.get(function, [])
        scope = self.scopes.of[function]
        if isinstance(scope.node, ast.ClassDef):
            return found + by_attribute.get((scope.of_file, getattr(function, "name", "")), [])
        return found

    @cached_property
    def _call_sites(
        self,
    ) -> tuple[dict[ast.AST, list[ast.Call]], dict[tuple[Scope, str], list[ast.Call]]]:
        """Function or class -> the calls that name it, in any file; file and attribute -> the calls of that attribute
        there on an object of which no more is known.

        A bare name is looked up in its scope, because test files define functions of one name in many places; `self.f`
        is the method of the class around it, where that has one.
        """
        certain: dict[ast.AST, list[ast.Call]] = {}
        by_attribute: dict[tuple[Scope, str], list[ast.Call]] = {}
        for node in self.scopes.order:
            if not isinstance(node, ast.Call):
                continue
            functions = self._functions_named(node.func)
            for function in functions:
                certain.setdefault(function, []).append(node)
            if not functions and isinstance(node.func, ast.Attribute):
                key = (self.scopes.of[node].of_file, node.func.attr)
                by_attribute.setdefault(key, []).append(node)
        return certain, by_attribute

    def _functions_named(self, called: ast.expr) -> list[ast.AST]:
        """The functions and classes that are certainly meant by the name in a call."""
        bindings = [link.binding for link in self.links(called) if not link.rest]
        if isinstance(called, ast.Name):
            bindings += self.scopes.reaching(called)
        functions = [binding.node for binding in bindings if binding.kind in ("def", "class")]
        if isinstance(called, ast.Attribute) and (own := self._own_method(called)) is not None:
            functions.append(own)
        return functions

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
            owner = next(
                (o.node for o in self.origins(node.value) if isinstance(o.node, ast.ClassDef)), None
            )
            if owner is None:
                made = next(
                    (o.node for o in self.origins(node.value) if isinstance(o.node, ast.Call)), None
                )
                if made is not None and isinstance(made.func, (ast.Name, ast.Attribute)):
                    owner = next(
                        (
                            o.node
                            for o in self.origins(made.func)
                            if isinstance(o.node, ast.ClassDef)
                        ),
                        None,
                    )
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
                for name, path in iterate_assigned_attributes(
                    target, in_body=self.scopes.of[node].node is owner
                ):
                    if owner is not None:
                        found.setdefault(owner, {}).setdefault(name, []).append((node.value, path))
        return found

    def _class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((s.node for s in self._around(node) if isinstance(s.node, ast.ClassDef)), None)

    def producing_call(self, node: ast.AST | None) -> Call | None:
        """The one call whose result an expression is."""
        origins = self.origins(node) if node is not None else ()
        only = origins[0] if len(origins) == 1 else None
        return (
            self.call(only.node)
            if only and isinstance(only.node, ast.Call) and not only.path
            else None
        )

    def value(self, node: ast.AST | None) -> Any:
        """The constant, list, tuple, set or dictionary that an expression is, else `constant_values.UNKNOWN`."""
        return (
            constant_values.UNKNOWN
            if node is None
            else constant_values.evaluate_constant(self, node)
        )

    def entries(self, node: ast.AST) -> tuple[dict[str, ast.expr], bool]:
        """The entries of a dictionary by name, and whether they are all."""
        return constant_values.resolve_dict_entries(self, node)

    def types(self, node: ast.AST | None) -> frozenset[str]:
        """What kind of object an expression may be: see inferred_types.py."""
        return frozenset() if node is None else inferred_types.infer_types(self, node)
