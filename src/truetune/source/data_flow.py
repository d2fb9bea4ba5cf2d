"""Follows names and expressions back to what they stand for, in a file and those that are judged
with it.

How it works: an expression is followed backwards, step by step, to its origins: a name to the bindings that may reach
it (`scopes.py`), a parameter to what calls give for it, a call to what the function of the files returns, `self.x` to
what the class sets it to, an imported name to the file that makes it (`imported_names.py`). What can be followed no
further (a literal, a call of a library, a parameter that nobody gives) is an origin. Values
(`evaluate_constant_expressions.py`), dictionaries and types (`infer_object_types.py`) are asked of the origins.

The trade-off: branches are not evaluated and calls are not told apart by where they stand, so an expression may have
several origins, and a rule must hold for all of them. Limits on steps and branches bound the time on any file; what
they cut is kept as an origin of itself, which counts as unknown. Results are cached by node, as nodes never change.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from truetune.source import evaluate_constant_expressions, infer_object_types
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.name_bindings_in_scopes import FUNCTIONS, Binding, Scope, Scopes
from truetune.source.settings_files_as_expressions import SettingsFiles
from truetune.source.shorten_qualified_names import (
    iterate_assigned_attributes,
    root_and_attributes,
    shorten_library_name,
)
from truetune.source.values_of_self_attributes import AssignedValue, values_that_reach_read

if TYPE_CHECKING:
    from truetune.source.resolve_imported_names import ImportedName, ImportedNames

MAX_STEPS = 10
"""Steps that an expression is followed. Chosen, not measured: helper, wrapper, `self` and a configuration object take
about two each; more steps cost time in files of tests and make the origins less certain."""
MAX_ORIGINS = 12
"""Origins that are kept; where there are more, the expression itself is one of them, for not all is known. Chosen, not
measured: a rule needs them to agree, and twelve that agree are rare enough"""
MAX_BRANCHES = 48
"""Bindings, calls or assignments that one step follows: a helper that a test file calls a thousand times is not
followed into each of them. Chosen, not measured: four times the origins that are kept"""


NAMESPACES = frozenset(("types.SimpleNamespace", "argparse.Namespace"))
"""Calls whose keywords are the attributes of what they make"""
CALLBACK = "transformers.TrainerCallback"
"""The class whose methods `on_...` a trainer calls with its model"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: an expression, a parameter (`ast.arg`), a `def`, a class or an import."""

    node: ast.AST
    path: tuple[int, ...] = ()
    """Which part of it, where a tuple was taken apart (-1: the rest)"""
    element: bool = False
    """One element of it, in a loop"""


class DataFlow:
    """What the expressions of some files stand for; see the module. It holds what was found, by node."""

    def __init__(
        self,
        scopes: Scopes,
        links: ImportedNames | None = None,
        paths: Mapping[Scope, str] | None = None,
    ) -> None:
        """`links`: what the imports stand for among files that are judged together; None where there is one file.
        `paths`: the scope of each file, and its path; settings beside a file are read by it."""
        self.scopes = scopes
        self.settings_files = SettingsFiles(scopes, paths or {})
        self._links = links
        self._origins: dict[ast.AST, tuple[Origin, ...]] = {}
        self._names: dict[ast.AST, str | None] = {}
        self._calls: dict[ast.Call, Call] = {}
        self._methods_of: dict[ast.ClassDef, dict[str, ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._arguments: dict[ast.arg, list[ast.expr]] = {}
        self.keys_taken_out: dict[tuple[Scope, str], set[str]] | None = None
        self.dictionary_writes: dict[tuple[Scope, str], list[ast.Assign | ast.Call]] | None = None
        self.writes_by_literal: dict[ast.AST, list[ast.Assign | ast.Call]] | None = None
        self.written_dicts: dict[
            tuple[ast.AST, Scope, str], evaluate_constant_expressions.WrittenDict
        ] = {}
        """Kept by evaluate_constant_expressions.py"""
        self.dicts_being_resolved: set[ast.AST] = set()
        """Literals whose entries evaluate_constant_expressions.py is reading"""
        # The tables above and below belong to other modules. They stand here, because they must live as long as the
        # trees whose nodes are their keys.
        self.known_values: dict[ast.AST, Any] = {}
        self.known_types: dict[ast.AST, frozenset[str]] = {}
        """Kept by infer_object_types.py"""

    def name(self, node: ast.AST) -> str | None:
        """The qualified name of what an expression is, if it is imported or built in.

        `transformers.AutoTokenizer.from_pretrained`, `torch.nn.functional.cross_entropy`, `len`; modules inside the
        libraries of LIBRARIES_WITH_SHORT_NAMES are left out. None for objects, and for what the file defines itself.
        """
        if node not in self._names:
            self._names[node] = None  # `name = name` in a cycle of bindings ends here
            self._names[node] = self._qualified_name_through_aliases(node, 0)
        return self._names[node]

    def _qualified_name_through_aliases(self, node: ast.AST, depth: int) -> str | None:
        """The qualified name of an expression, after so many aliases; None if it has none."""
        base, attributes = root_and_attributes(node)
        if not isinstance(base, ast.Name) or depth > MAX_STEPS:
            return None
        bindings = self.scopes.bindings_that_reach(base)
        imported = _import_among_bindings(bindings)
        links = self._definitions_of_name_in_other_files(base, imported, attributes)
        if links:
            return self._name_of_binding(links[0].binding, links[0].rest, depth)
        if imported is not None:
            return _join_base_and_attributes(imported.target, attributes)
        if bindings:
            return self._name_of_binding(bindings[0], attributes, depth)
        if hasattr(builtins, base.id):
            return _join_base_and_attributes(base.id, attributes)
        return _join_base_and_attributes(self._name_from_last_star_import(base), attributes)

    def _name_of_binding(
        self, binding: Binding, attributes: Sequence[str], depth: int
    ) -> str | None:
        """The qualified name of a binding with attributes: of an import, or of another name for one."""
        if binding.kind == "import":
            return _join_base_and_attributes(binding.target, attributes)
        is_alias = binding.kind == "value" and not binding.path
        if is_alias and isinstance(binding.value, (ast.Name, ast.Attribute)):
            return _join_base_and_attributes(
                self._qualified_name_through_aliases(binding.value, depth + 1), attributes
            )
        return None

    def _definitions_of_name_in_other_files(
        self, name: ast.Name, imported: Binding | None, attributes: list[str]
    ) -> tuple[ImportedName, ...]:
        """What a name with these attributes stands for in another file that is judged with this
        one; empty if nothing.
        """
        if self._links is None:
            return ()
        if imported is not None:
            return self._links.definitions_of_import(imported, attributes)
        # A name that nothing binds may come from a star; one that is bound hides what a star brought.
        scope = self.scopes.of[name].enclosing_file_scope
        if not scope.stars or self.scopes.bindings_that_reach(name):
            return ()
        return self._links.definitions_of_star_import(scope, name.id, attributes)

    def imported_name(self, node: ast.expr) -> str | None:
        """The dotted name that an import gives to an expression, whether or not that file is judged
        too; None for anything else.
        """
        base, attributes = root_and_attributes(node)
        if not isinstance(base, ast.Name):
            return None
        imported = _import_among_bindings(self.scopes.bindings_that_reach(base))
        return None if imported is None else _join_base_and_attributes(imported.target, attributes)

    def definitions_in_other_files(self, node: ast.expr) -> tuple[ImportedName, ...]:
        """The definitions in other judged files that a name, or an attribute of a module, stands
        for.
        """
        base, attributes = root_and_attributes(node)
        if self._links is None or not isinstance(base, ast.Name):
            return ()
        bindings = self.scopes.bindings_that_reach(base)
        imported = _import_among_bindings(bindings)
        if bindings and imported is None:
            return ()
        return self._definitions_of_name_in_other_files(base, imported, attributes)

    def _name_from_last_star_import(self, node: ast.Name) -> str | None:
        """The qualified name that the last `from x import *` around a name may have given it.

        Only for names of classes (`Trainer`) and of several words (`get_peft_model`): a short word is more often a
        variable that is set in a way not seen here, such as `exec` or a notebook's earlier state.
        """
        stars = [star for scope in self._scopes_around(node) for star in scope.stars]
        is_likely = bool(stars) and (node.id[:1].isupper() or "_" in node.id)
        return f"{stars[-1].module or ''}.{node.id}" if is_likely else None

    def _scopes_around(self, node: ast.AST) -> Iterator[Scope]:
        """The scope of a node and those around it, from the inside out."""
        scope = self.scopes.of.get(node)
        while scope is not None:
            yield scope
            scope = scope.outer

    def names(self, node: ast.AST) -> tuple[str, ...]:
        """The qualified name of an expression; if it is a class of the file, the names of its
        bases.
        """
        name = self.name(node)
        if name:
            return (name,)
        classes = (origin.node for origin in self.origins(node))
        return tuple(
            base for one in classes if isinstance(one, ast.ClassDef) for base in self.bases(one)
        )

    def bases(self, node: ast.ClassDef, depth: int = 0) -> tuple[str, ...]:
        """The qualified names of what a class is derived from, through classes of the file."""
        if depth > MAX_STEPS:
            return ()
        names: list[str] = []
        for base in node.bases:
            name = self.name(base)
            if name:
                names.append(name)
                continue
            for origin in self.origins(base):
                if isinstance(origin.node, ast.ClassDef) and origin.node is not node:
                    names += self.bases(origin.node, depth + 1)
        return tuple(names)

    def call(self, node: ast.Call) -> Call:
        """The call with its names resolved and its `**kwargs` expanded; computed once."""
        if node not in self._calls:
            self._calls[node] = self._compute_resolved_call(node)
        return self._calls[node]

    def _compute_resolved_call(self, node: ast.Call) -> Call:
        """The call with its names resolved and its `**kwargs` expanded, computed again at each call."""
        names = self.names(node.func)
        method = receiver = None
        # `torch.save` has a qualified name, so `save` is no method of an object there.
        if isinstance(node.func, ast.Attribute) and self.name(node.func.value) is None:
            method, receiver = node.func.attr, node.func.value
        keywords: dict[str, ast.expr] = {}
        unknown = any(isinstance(arg, ast.Starred) for arg in node.args)
        for keyword in node.keywords:
            if keyword.arg is not None:
                keywords[keyword.arg] = keyword.value
                continue
            # `**settings`: its entries are arguments like any other, as far as they are known.
            entries, whole = evaluate_constant_expressions.double_star_entries_without_removed_keys(
                self, keyword.value
            )
            keywords.update(entries)
            unknown = unknown or not whole
        return Call(node, names, method, receiver, tuple(node.args), keywords, unknown)

    def origins(self, node: ast.AST) -> tuple[Origin, ...]:
        """The origins that an expression may stand for: through aliases, tuples, parameters, local
        functions, `self`.
        """
        if node not in self._origins:
            # A value that is defined by itself (`x = f(x)`) asks for its own origins again: it is one itself then.
            self._origins[node] = (Origin(node),)
            self._origins[node] = self._all_origins(Origin(node))
        return self._origins[node]

    def _all_origins(self, start: Origin) -> tuple[Origin, ...]:
        """All origins that are reached from one in MAX_STEPS, in the order of the text, each once.
        If there are more than MAX_ORIGINS or MAX_BRANCHES, the expression that was cut is an origin
        too, so that no rule takes the others for all.

        Where more than MAX_ORIGINS or MAX_BRANCHES are found, the expression that was cut is an origin too, so no rule
        takes the others for all.
        """
        origins: dict[Origin, None] = {}
        seen = {start}
        waiting = [(start, 0)]
        while waiting and len(origins) < MAX_ORIGINS:
            origin, depth = waiting.pop()
            steps = self._origins_one_step_back(origin) if depth < MAX_STEPS else iter((origin,))
            next_ones = list(islice(steps, MAX_BRANCHES + 1))
            if len(next_ones) > MAX_BRANCHES:
                origins[origin] = None
            # Reversed, because the stack gives the last one first and origins are kept in the order of the text.
            for following in reversed(next_ones[:MAX_BRANCHES]):
                if following == origin:
                    origins[origin] = None
                elif following not in seen:
                    seen.add(following)
                    waiting.append((following, depth + 1))
        if waiting:  # MAX_ORIGINS was reached before all were followed
            origins[start] = None
        return tuple(origins) or (start,)

    def calls_value_passes_from_origins(self, node: ast.AST) -> frozenset[ast.Call]:
        """The calls of the files' own functions that an expression's value passes on the way from
        its origins. Two names with one origin are two objects if each got it by a call of its own.
        """
        # Steps are not counted as in `_all_origins`: what was seen bounds them.
        seen = {Origin(node)}
        waiting = [Origin(node)]
        while waiting and len(seen) < MAX_BRANCHES:
            for following in islice(self._origins_one_step_back(waiting.pop()), MAX_BRANCHES):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
        return frozenset(
            one.node
            for one in seen
            if isinstance(one.node, ast.Call) and self._returned_values(one.node)
        )

    def _origins_one_step_back(self, origin: Origin) -> Iterator[Origin]:
        """What an origin is made of, one step back; the origin itself if it can be followed no
        further.
        """
        node, path = origin.node, origin.path
        if origin.element:
            # What a loop gives is not followed into the items: a rule asks for the whole that is looped over.
            yield origin
        elif isinstance(node, ast.Name):
            yield from self._step_back_from_name(node, path)
        elif isinstance(node, (ast.Tuple, ast.List)) and path and 0 <= path[0] < len(node.elts):
            yield Origin(node.elts[path[0]], path[1:])
        elif isinstance(node, ast.Attribute):
            yield from self._step_back_from_attribute(node, path) or [origin]
        else:
            values = self._expressions_that_value_may_come_from(node)
            yield from [Origin(value, path) for value in values] or [origin]

    def _step_back_from_attribute(self, node: ast.Attribute, path: tuple[int, ...]) -> list[Origin]:
        """What `self.x`, `module.x` or an entry of settings is bound to; empty if that is not
        known.
        """
        assigned = [
            Origin(value, (*where, *path))
            for value, where in self.values_assigned_to_attribute(node)
        ]
        assigned = assigned or self._origins_in_other_files(node, path)
        return assigned or [
            Origin(one, path) for one in self._value_of_attribute_in_settings_file(node)
        ]

    def _expressions_that_value_may_come_from(self, node: ast.AST) -> Iterable[ast.expr]:
        """The expressions, one step back, whose value an expression may have: both arms of `a if x
        else b`, what calls give for a parameter, what a called function returns. Empty if none is
        known.
        """
        if isinstance(node, (ast.NamedExpr, ast.Await)):
            return (node.value,)
        if isinstance(node, ast.IfExp):
            return (node.body, node.orelse)
        if isinstance(node, ast.BoolOp):
            return node.values
        if isinstance(node, ast.arg):
            return self.arguments_given(node)
        if isinstance(node, ast.Subscript):
            return self._item_that_subscript_takes_of_literal(node)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            return self._returned_values(node)
        return ()

    def _step_back_from_name(self, node: ast.Name, path: tuple[int, ...]) -> Iterator[Origin]:
        """What the bindings that may reach a name give it."""
        bindings = self.scopes.bindings_that_reach(node)
        for binding in bindings:
            # An import of a library leads nowhere: it is the origin.
            elsewhere = self._origins_in_other_files(node, path) if binding.kind == "import" else []
            yield from elsewhere or [self._origin_of_binding(binding, path)]
        if not bindings:
            yield from self._origins_in_other_files(node, path) or [Origin(node, path)]

    def _origins_in_other_files(self, node: ast.expr, path: tuple[int, ...]) -> list[Origin]:
        """What an imported name, or an attribute of an imported module, is bound to in the file
        that defines it.
        """
        links = [link for link in self.definitions_in_other_files(node) if not link.rest]
        if any(link.binding in self._bindings_replaced_by_other_files for link in links):
            return []  # which of the two values holds depends on the order in which the files run
        return [self._origin_of_binding(link.binding, path) for link in links]

    @cached_property
    def _bindings_replaced_by_other_files(self) -> frozenset[Binding]:
        """The bindings of files that another file replaces: `import settings`, `settings.RATE =
        1e-3`.
        """
        if self._links is None:
            return frozenset()
        stores = (node for node in self.scopes.order if isinstance(node, ast.Attribute))
        changed = (node for node in stores if isinstance(node.ctx, ast.Store))
        return frozenset(
            link.binding
            for node in changed
            for link in self.definitions_in_other_files(node)
            if not link.rest
        )

    def _origin_of_binding(self, binding: Binding, path: tuple[int, ...]) -> Origin:
        """What a binding gives, and which part of it."""
        if binding.kind == "value" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path))
        if binding.kind == "element" and binding.value is not None:
            return Origin(binding.value, (*binding.path, *path), element=True)
        if binding.kind == "import":
            return Origin(_node_of_name_in_import(binding), path)
        return Origin(binding.node, path)

    def _item_that_subscript_takes_of_literal(self, node: ast.Subscript) -> Iterator[ast.expr]:
        """What `x[0]` or `x["key"]` is, where `x` is a literal list, tuple or dictionary."""
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
                entries = evaluate_constant_expressions.resolve_dict_entries(self, node.value)[0]
                if key in entries:
                    yield entries[key]
                return  # the entries are those of all origins already, not of this one

    def _value_of_attribute_in_settings_file(self, node: ast.Attribute) -> Iterator[ast.expr]:
        """The value of `cfg.model.name`, if `cfg` was read from a file of settings."""
        # Most attributes are of objects whose origins need not be followed.
        for origin in (
            self.origins(node.value)
            if self.settings_files.do_scripts_import_settings_reader
            else ()
        ):
            if isinstance(origin.node, ast.Dict) and not origin.path and not origin.element:
                if self.settings_files.settings_file_of_node(origin.node) is not None:
                    entries = evaluate_constant_expressions.resolve_dict_entries(
                        self, node.value
                    ).by_name
                    yield from (entries[node.attr],) if node.attr in entries else ()

    def function_that_expression_names(
        self, node: ast.expr
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The function of the file that an expression names; None if it names none."""
        for origin in self.origins(node):
            # With a path it is one item of what the function is in, which is not known to be this one.
            if isinstance(origin.node, FUNCTIONS) and not origin.path:
                return origin.node
        return self._method_called(node)

    def function_called(
        self, node: ast.expr
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
        """The function of the files that a call means, also as a method of an object that was
        passed in.

        `function` does not ask where an object was made, for origins are found with its help.
        """
        function = self.function_that_expression_names(node)
        if function is not None or not isinstance(node, ast.Attribute):
            return function
        owners = {
            owner
            for origin in self.origins(node.value)
            for owner in self._classes_of_object_or_annotation(origin.node)
        }
        # Objects of several classes have methods of the same name that do different things.
        return (
            self._functions_in_class_body_by_name(owners.pop()).get(node.attr)
            if len(owners) == 1
            else None
        )

    def _classes_of_object_or_annotation(self, node: ast.AST) -> Iterator[ast.ClassDef]:
        """The class of the files whose call made an object, or by which a parameter is annotated."""
        named = node.func if isinstance(node, ast.Call) else getattr(node, "annotation", None)
        if isinstance(named, ast.Name | ast.Attribute):
            owner = self._first_class_among_origins(named)
            if owner is not None:
                yield owner

    def _functions_in_class_body_by_name(
        self, owner: ast.ClassDef
    ) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions in the body of a class by name; of two, the first."""
        if owner not in self._methods_of:
            functions = [
                item
                for item in owner.body
                if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]
            # The first of a name: later ones are setters (`@x.setter`) as a rule.
            self._methods_of[owner] = {item.name: item for item in reversed(functions)}
        return self._methods_of[owner]

    def _returned_values(self, node: ast.Call) -> list[ast.expr]:
        """What a call of a function of the files may return; empty for any other."""
        settings = self.settings_files.settings_read_by_call(self, node)
        if settings is not None:
            return [settings]
        function = (
            self.function_that_expression_names(node.func) if not self.name(node.func) else None
        )
        if isinstance(function, ast.Lambda):
            return [function.body]
        return self.returned_expressions_by_function.get(function, []) if function else []

    @cached_property
    def returned_expressions_by_function(self) -> dict[ast.AST, list[ast.expr]]:
        """Function -> the expressions that its `return` statements return."""
        returned_by: dict[ast.AST, list[ast.expr]] = {}
        for node in self.scopes.order:
            if isinstance(node, ast.Return) and node.value is not None:
                returned_by.setdefault(self.scopes.of[node].node, []).append(node.value)
        return returned_by

    def arguments_given(self, parameter: ast.arg) -> list[ast.expr]:
        """The expressions that calls in the file give for a parameter; its default if no call gives
        one.
        """
        if parameter not in self._arguments:
            self._arguments[parameter] = self._arguments_in_calls(parameter)
        return self._arguments[parameter]

    def _arguments_in_calls(self, parameter: ast.arg) -> list[ast.expr]:
        """`arguments_given`, computed. Nothing for `*args` and `**kwargs`, which stand for many values."""
        arguments = self.scopes.parent.get(parameter)
        if not isinstance(arguments, ast.arguments):
            return []
        if parameter in (arguments.vararg, arguments.kwarg):
            return []
        function = self.scopes.parent[arguments]
        position = self._position_of_parameter_in_calls(function, arguments, parameter)
        values: list[ast.expr] = []
        for call in self.calls_of_function_or_class(function):
            value = _argument_by_name_or_position(call, position, parameter.arg)
            if value is not None:
                values.append(value)
        # A default counts only where nobody gives the argument: the script's own calls are how it is run.
        if values or self.is_callback_parameter_from_trainer(parameter):
            return values
        default = evaluate_constant_expressions.default_of_parameter(arguments, parameter)
        if default is None:
            default = self.settings_files.settings_given_by_hydra(self, function)
        return [] if default is None else [default]

    def is_callback_parameter_from_trainer(self, parameter: ast.arg) -> bool:
        """Is it a parameter of a callback's method, which a trainer calls: `on_evaluate(..., model=None)`?"""
        function = self.scopes.parent.get(self.scopes.parent[parameter])
        owner = self.scopes.of[function].node if function is not None else None
        is_hook = getattr(function, "name", "").startswith("on_")
        return is_hook and isinstance(owner, ast.ClassDef) and CALLBACK in self.bases(owner)

    def _position_of_parameter_in_calls(
        self, function: ast.AST, arguments: ast.arguments, parameter: ast.arg
    ) -> int:
        """Where calls give a parameter by position, counted without `self`; -1 where only by name."""
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        if parameter.arg not in names:
            return -1
        # `self` is given by Python; `Class.method(obj, x)`, which gives it by hand, is rare and judged wrong.
        is_method = isinstance(self.scopes.of[function].node, ast.ClassDef)
        has_self = is_method and names[0] in ("self", "cls")
        return names.index(parameter.arg) - has_self

    def calls_of_function_or_class(self, function: ast.AST) -> list[ast.Call]:
        """The calls, in any file, that may be of this function, or that make one of this class."""
        certain, by_attribute = self._calls_by_function_and_by_attribute
        sites = certain.get(function, [])
        scope = self.scopes.of[function]
        if isinstance(scope.node, ast.ClassDef):
            # What makes an object gives the arguments of `__init__`.
            if getattr(function, "name", "") == "__init__":
                sites = sites + certain.get(scope.node, [])
            # Of `trainer.step()` the class is not known mostly, so within its file a method's name stands for it.
            return sites + by_attribute.get(
                (scope.enclosing_file_scope, getattr(function, "name", "")), []
            )
        return sites

    @cached_property
    def _calls_by_function_and_by_attribute(
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
            functions = self._callables_certainly_named(node.func)
            for function in functions:
                certain.setdefault(function, []).append(node)
            if not functions and isinstance(node.func, ast.Attribute):
                key = (self.scopes.of[node].enclosing_file_scope, node.func.attr)
                by_attribute.setdefault(key, []).append(node)
        return certain, by_attribute

    def _callables_certainly_named(self, called: ast.expr) -> list[ast.AST]:
        """The functions and classes that are certainly meant by the name in a call."""
        bindings = [
            link.binding for link in self.definitions_in_other_files(called) if not link.rest
        ]
        if isinstance(called, ast.Name):
            bindings += self.scopes.bindings_that_reach(called)
        functions = [binding.node for binding in bindings if binding.kind in ("def", "class")]
        method = self._method_called(called) if not functions else None
        return functions if method is None else [*functions, method]

    def _method_called(self, called: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The method that `self.f`, `Runner(...).run` or `runner.run` means, and `__call__` of `runner` itself."""
        own_method = self._method_of_self(called) if isinstance(called, ast.Attribute) else None
        if own_method is not None:
            return own_method
        if isinstance(called, ast.Attribute):
            owner = self._class_called_to_make_object(called.value)
            if owner is not None:
                return self._method_of_class_or_bases(owner, called.attr)
        owner = self._class_called_to_make_object(called)
        if owner is None:
            return None
        # An object of torchmetrics hands what it is given to its `update`.
        is_metric = any("Metric" in ast.unparse(base) for base in owner.bases)
        return self._method_of_class_or_bases(owner, "__call__") or (
            self._method_of_class_or_bases(owner, "update") if is_metric else None
        )

    def _method_of_class_or_bases(
        self, owner: ast.ClassDef, name: str, depth: int = 0
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The method of a class of the files, or of one that it is made of."""
        own = self._functions_in_class_body_by_name(owner).get(name)
        if own is not None or depth > MAX_STEPS:
            return own
        for base in owner.bases:
            of_files = self._class_named_by_bindings_alone(base)
            found = (
                None
                if of_files is None or of_files is owner
                else self._method_of_class_or_bases(of_files, name, depth + 1)
            )
            if found is not None:
                return found
        return None

    def _class_called_to_make_object(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of the files whose call made an object, by the spelling alone: `Runner(...)`, or a name for that.

        Origins are not asked, for they need the table of calls, which is made with this. Of a name with several
        bindings nothing is said.
        """
        expression = self._expression_behind_single_binding(node)
        if not isinstance(expression, ast.Call) or isinstance(expression.func, ast.Call):
            return None
        return self._class_named_by_bindings_alone(expression.func)

    def _class_named_by_bindings_alone(self, node: ast.expr) -> ast.ClassDef | None:
        """The one class of the files that a name means, by its bindings alone."""
        bindings = [link.binding for link in self.definitions_in_other_files(node) if not link.rest]
        if isinstance(node, ast.Name):
            bindings += self.scopes.bindings_that_reach(node)
        classes = [one.node for one in bindings if isinstance(one.node, ast.ClassDef)]
        return classes[0] if len(classes) == 1 else None

    def _expression_behind_single_binding(self, node: ast.expr) -> ast.expr | None:
        """The one expression that a name or an attribute of `self` is bound to; any other expression as it is."""
        if isinstance(node, ast.Name):
            bindings = self.scopes.bindings_that_reach(node)
            is_one = len(bindings) == 1 and bindings[0].kind == "value" and not bindings[0].path
            return bindings[0].value if is_one else None
        if isinstance(node, ast.Attribute):
            assigned = self.assigned_to_self(node)
            return assigned[0][0] if len(assigned) == 1 and not assigned[0][1] else None
        return node

    def assigned_to_self(self, node: ast.Attribute) -> list[AssignedValue]:
        """What `self.x` was set to anywhere in its class; empty for any other attribute."""
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            return []
        owner = self.class_around(node)
        return (
            self.values_set_to_class_attributes.get(owner, {}).get(node.attr, []) if owner else []
        )

    def _method_of_self(
        self, called: ast.Attribute
    ) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The method that `self.f` means, where the class around it has one."""
        if not (isinstance(called.value, ast.Name) and called.value.id in ("self", "cls")):
            return None
        owner = self.class_around(called)
        return self._functions_in_class_body_by_name(owner).get(called.attr) if owner else None

    def values_assigned_to_attribute(self, node: ast.Attribute) -> list[AssignedValue]:
        """The values that `self.x` is set to anywhere in its class, or `Class.x` in the class's
        body; fields of a dataclass as its calls give them.
        """
        if not isinstance(node.value, ast.Name | ast.Attribute):
            return []
        fields = self._values_calls_give_for_field(node)
        if fields or self._may_get_fields_by_double_star(node.value):
            return fields
        is_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if is_self:
            return values_that_reach_read(self.scopes, node, self.assigned_to_self(node))
        owner = self.class_of_object(node.value)
        return (
            self.values_set_to_class_attributes.get(owner, {}).get(node.attr, []) if owner else []
        )

    def _values_calls_give_for_field(self, node: ast.Attribute) -> list[AssignedValue]:
        """What the calls that made a dataclass give for a field; empty where one is not seen, or it is set later.

        `self` is any of the objects that the calls of its class made.
        """
        if node.attr in self._attributes_set_on_objects:
            return []
        is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        makers = (
            self._calls_that_make_class_around_node(node)
            if is_self
            else [origin.node for origin in self.origins(node.value)]
        )
        values: list[AssignedValue] = []
        for maker in makers:
            value = (
                self._value_call_gives_for_field(maker, node.attr)
                if isinstance(maker, ast.Call)
                else None
            )
            if value is None:
                return []
            values.append((value, ()))
        return values

    def _value_call_gives_for_field(self, maker: ast.Call, field: str) -> ast.expr | None:
        """What a call gives for a field of a dataclass, by its name or place; None where it is left to a default."""
        if self.name(maker.func) in NAMESPACES:
            return _argument_by_name_or_position(maker, -1, field)
        owner = self._first_class_among_origins(maker.func)
        if owner is None or not self._constructor_takes_fields(owner):
            return None
        items = (item for item in owner.body if isinstance(item, ast.AnnAssign))
        names = [item.target.id for item in items if isinstance(item.target, ast.Name)]
        # The fields of a base come first, so places are known only of a class without one.
        position = names.index(field) if field in names and not owner.bases else -1
        return _argument_by_name_or_position(maker, position, field)

    def _constructor_takes_fields(self, owner: ast.ClassDef) -> bool:
        """Does a call of a class of the files give its fields: of a dataclass, or of one of pydantic?"""
        if any(map(_is_dataclass_decorator, owner.decorator_list)):
            return True
        return bool(owner.bases) and self._method_of_class_or_bases(owner, "__init__") is None

    def _may_get_fields_by_double_star(self, node: ast.expr) -> bool:
        """May a call that made an object give its fields by `**values`, which are not seen?"""
        makers = (one.node for one in self.origins(node) if isinstance(one.node, ast.Call))
        return any(
            any(given.arg is None for given in maker.keywords)
            and (owner := self._first_class_among_origins(maker.func)) is not None
            and self._constructor_takes_fields(owner)
            for maker in makers
        )

    def fields_of_object(self, node: ast.expr) -> evaluate_constant_expressions.DictEntries:
        """The fields of an object of a class of the files whose fields are annotated: as it is made, else as the class
        sets them. Fields that are set later, or by no one, are left out.
        """
        is_self = isinstance(node, ast.Name) and node.id == "self"
        makers = (
            self._calls_that_make_class_around_node(node)
            if is_self
            else self._calls_that_make_object(node)
        )
        owners = {self._first_class_among_origins(maker.func) for maker in makers}
        owner = owners.pop() if len(owners) == 1 else None
        if owner is None:
            return evaluate_constant_expressions.DictEntries({}, False)
        fields = self._annotated_fields(owner)
        given = [self._values_call_gives_for_fields(maker, list(fields)) for maker in makers]
        unsure = set(self._attributes_set_on_objects)
        if len(makers) > 1:
            # Of several objects nobody knows which one it is, so what one call gives is no value of the others.
            unsure = unsure.union(*given)
        for of_call in given:
            fields.update(of_call)
        known = {
            name: value
            for name, value in fields.items()
            if value is not None and name not in unsure
        }
        return evaluate_constant_expressions.DictEntries(known, len(known) == len(fields))

    def _calls_that_make_object(self, node: ast.expr) -> list[ast.Call]:
        """The calls that an object comes from; none where one of its origins is anything else."""
        origins = self.origins(node)
        makers = [one.node for one in origins if isinstance(one.node, ast.Call) and not one.path]
        return makers if len(makers) == len(origins) else []

    def _calls_that_make_class_around_node(self, node: ast.expr) -> list[ast.Call]:
        """The calls that make objects of the class around a node."""
        owner = self.class_around(node)
        return [] if owner is None else self.calls_of_function_or_class(owner)

    def _annotated_fields(self, owner: ast.ClassDef, depth: int = 0) -> dict[str, ast.expr | None]:
        """Field -> its default, None where it has none; those of the bases first, as a dataclass takes them."""
        fields: dict[str, ast.expr | None] = {}
        for base in owner.bases if depth < MAX_STEPS else ():
            of_files = self._first_class_among_origins(base)
            if of_files is not None and of_files is not owner:
                fields.update(self._annotated_fields(of_files, depth + 1))
        for item in owner.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                value = item.value
                fields[item.target.id] = None if value is None else _field_default_expression(value)
        return fields

    def _values_call_gives_for_fields(
        self, maker: ast.Call, names: list[str]
    ) -> dict[str, ast.expr]:
        """What a call gives for the fields of the object that it makes, by their names or places."""
        given = {
            name: _argument_by_name_or_position(maker, place, name)
            for place, name in enumerate(names)
        }
        return {name: value for name, value in given.items() if value is not None}

    @cached_property
    def _attributes_set_on_objects(self) -> frozenset[str]:
        """The names of attributes that are set from outside of a method: `settings.rate = 1e-3`."""
        stores = (
            node
            for node in self.scopes.order
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        )
        return frozenset(
            node.attr
            for node in stores
            if not (isinstance(node.value, ast.Name) and node.value.id == "self")
        )

    def class_of_object(self, node: ast.expr) -> ast.ClassDef | None:
        """The class of the files that a name is, or whose call made it."""
        owner = self._first_class_among_origins(node)
        if owner is not None:
            return owner
        calls = (one.node for one in self.origins(node) if isinstance(one.node, ast.Call))
        maker = next(calls, None)
        if maker is None or not isinstance(maker.func, (ast.Name, ast.Attribute)):
            return None
        return self._first_class_among_origins(maker.func)

    def _first_class_among_origins(self, node: ast.expr) -> ast.ClassDef | None:
        """The first class among the origins of an expression."""
        nodes = (origin.node for origin in self.origins(node))
        return next((one for one in nodes if isinstance(one, ast.ClassDef)), None)

    @cached_property
    def values_set_to_class_attributes(self) -> dict[ast.AST, dict[str, list[AssignedValue]]]:
        """Class -> attribute -> the expressions that it is set to."""
        attributes: dict[ast.AST, dict[str, list[AssignedValue]]] = {}
        for node in self.scopes.order:
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            owner = self.class_around(node)
            if owner is None:
                continue
            # In the class's body a bare name is an attribute too; in its methods only `self.x` is.
            in_body = self.scopes.of[node].node is owner
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, path in iterate_assigned_attributes(target, in_body=in_body):
                    of_class = attributes.setdefault(owner, {})
                    value = _field_default_expression(node.value) if in_body else node.value
                    of_class.setdefault(name, []).append((value, path))
        return attributes

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class that a node stands in."""
        around = (scope.node for scope in self._scopes_around(node))
        return next((one for one in around if isinstance(one, ast.ClassDef)), None)

    def producing_call(self, node: ast.AST | None) -> Call | None:
        """The one call whose result an expression is."""
        origins = self.origins(node) if node is not None else ()
        if len(origins) != 1 or origins[0].path or not isinstance(origins[0].node, ast.Call):
            return None
        return self.call(origins[0].node)

    def value(self, node: ast.AST | None) -> Any:
        """The evaluated constant, list, tuple, set or dictionary that an expression is; otherwise
        `UNKNOWN`.
        """
        return (
            evaluate_constant_expressions.UNKNOWN
            if node is None
            else evaluate_constant_expressions.evaluate_constant(self, node)
        )

    def dict_entries_and_if_complete(self, node: ast.AST) -> tuple[dict[str, ast.expr], bool]:
        """The entries of a dictionary by name, and whether they are all."""
        return evaluate_constant_expressions.resolve_dict_entries(self, node)

    def types(self, node: ast.AST | None) -> frozenset[str]:
        """The types of object (tokenizer, model, trainer, ...) that an expression may be: see infer_object_types.py."""
        return frozenset() if node is None else infer_object_types.infer_types(self, node)


def _field_default_expression(value: ast.expr) -> ast.expr:
    """The default value of a dataclass or pydantic field: the body of
    `field(default_factory=lambda: [...])`, the first argument of `Field(3e-5)`; otherwise the value
    itself.
    """
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name | ast.Attribute):
        return value
    name = value.func.id if isinstance(value.func, ast.Name) else value.func.attr
    if name not in ("field", "Field"):
        return value
    if name == "Field" and value.args:
        return value.args[0]
    for keyword in value.keywords:
        default = _default_in_keyword(keyword)
        if default is not None:
            return default
    return value


def _default_in_keyword(keyword: ast.keyword) -> ast.expr | None:
    """The default value that a keyword of `field` or `Field` gives; None for any other keyword."""
    if keyword.arg == "default":
        return keyword.value
    if keyword.arg != "default_factory":
        return None
    if isinstance(keyword.value, ast.Lambda):
        return keyword.value.body
    # The name of a class stands for its object, which has what the class sets.
    return keyword.value if isinstance(keyword.value, ast.Name | ast.Attribute) else None


def _is_dataclass_decorator(node: ast.expr) -> bool:
    """Is a decorator `@dataclass` or `@dataclasses.dataclass(frozen=True)`?"""
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "dataclass"


def _node_of_name_in_import(binding: Binding) -> ast.AST:
    """The node of the one name that an import binds, so that two names of one import statement are
    two origins.

    `from data import rows, loader` is one statement of two objects: as an origin it would make them the same.
    """
    statement = binding.node
    if not isinstance(statement, (ast.Import, ast.ImportFrom)):
        return statement
    bound = (
        alias
        for alias in statement.names
        if (alias.asname or alias.name.partition(".")[0]) == binding.name
    )
    return next(bound, statement)


def _import_among_bindings(bindings: Iterable[Binding]) -> Binding | None:
    """The import among bindings; it names a thing best, where a fallback in `except ImportError` binds it too."""
    return next((binding for binding in bindings if binding.kind == "import"), None)


def _join_base_and_attributes(base: str | None, attributes: Sequence[str]) -> str | None:
    """A qualified name of a base and its attributes; None without a base."""
    return None if base is None else shorten_library_name(".".join((base, *attributes)))


def _argument_by_name_or_position(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """What a call gives for a parameter, by this name, otherwise at this position; None after
    `*args`, whose length is not known.
    """
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if not 0 <= position < len(call.args):
        return None
    if any(isinstance(argument, ast.Starred) for argument in call.args[: position + 1]):
        return None
    return call.args[position]
