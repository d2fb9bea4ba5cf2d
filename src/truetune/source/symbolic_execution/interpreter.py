"""Interpreter: runs the statements and expressions of a script symbolically, in the order in which
Python would run them.

How it works: names hold values (`values.py`). Functions and classes of the project are entered with the values that
they are given, imports run the other file first, and a call of anything else becomes an event of the trace with an
opaque result. A test that is not decided runs both arms: what each writes is taken back through a journal, and what
differs afterwards becomes a choice. A loop over a short list that is known runs once for each item; any other loop
runs twice, so that what the end of a pass does is seen by the next. Functions that a library is handed run at that
call; functions that nobody calls run at the end, with arguments of which nothing is known.

The trade-off: nothing is executed, so a script of a stranger can do no harm and needs no GPU, and what only execution
tells (shapes, contents of data) stays unknown. Limits on steps and depth bound the time; a trace that met one says so.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.settings_files_as_expressions import ARGUMENT_FILES
from truetune.source.shorten_qualified_names import shorten_library_name
from truetune.source.symbolic_execution.command_line_options import (
    PARSING_METHODS,
    namespace_of_options,
    option_that_fills_parameter,
    record_option_of_add_argument,
)
from truetune.source.symbolic_execution.compute_library_functions import result_of_known_function
from truetune.source.symbolic_execution.element_of_iterable import (
    columns_of_zipped_rows,
    items_of_short_list,
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.fold_constants import (
    BINARY,
    COMPARISONS,
    UNARY,
    compute_operator,
    constant_of,
    format_f_string_part,
    join_f_string_parts,
    truth_of_test,
)
from truetune.source.symbolic_execution.lists_and_dicts import (
    call_dict_method,
    call_list_method,
    call_text_method,
    constant_key_of_index,
    item_or_slice_of_list,
    join_lists,
    plain_to_value,
    update_dict,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Frame,
    NameEvent,
    ReturnEvent,
    StoreEvent,
    Trace,
)
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Choice,
    Class,
    Constant,
    Element,
    Function,
    Instance,
    Item,
    Library,
    Mapping,
    Opaque,
    Operation,
    Option,
    Parameter,
    Partial,
    ProjectModule,
    Result,
    Scope,
    Sequence,
    Slice,
    SuperProxy,
    Unknown,
    Value,
    choice_of_values,
    options_of_choice,
)

MAX_STEPS = 150_000
"""Statements and expressions of one run: about half a second. A script of 300 lines takes some thousand"""
MAX_CALL_DEPTH = 20
"""Functions of the project inside one another; deeper ones give an unknown value"""
MAX_PARTS_OF_ARGUMENT = 100
"""Items of a list that a library is given, among which a function is looked for: callbacks and metrics are a handful,
and a list of ids may hold a hundred thousand"""
MAX_LOOP_DEPTH = 3
"""Loops inside one another that run twice; the body of a deeper one runs once, since passes multiply"""
MAX_CALLS_OF_FUNCTION = 40
"""Times that one function is entered; a helper that is called more often gives an unknown value"""
FALLS_THROUGH, CONTINUES, BREAKS, RETURNS, RAISES = range(5)
"""How a block ends. Of two arms the smaller one counts: it says where the run may continue"""
ENDING_CALLS = ("sys.exit", "exit", "quit", "os._exit", "os.abort")
STARTERS = (
    "threading.Thread",
    "multiprocessing.Process",
    "torch.multiprocessing.Process",
    "torch.multiprocessing.spawn",
    "accelerate.notebook_launcher",
    "accelerate.debug_launcher",
)
"""Calls that run a function with the arguments of their own `args`"""
FILLED_CLASSES = ("BaseModel", "BaseSettings", "NamedTuple", "Struct", "TypedDict")
"""Base classes of libraries that make a constructor of the annotated names"""
STAR = "*"
"""The name under which a scope keeps the library that a star brought names from"""
UNPACKED = "**"
"""The keyword under which a call keeps what it unpacks and is not known entry by entry"""
NO_HOOKS = frozenset(("__init__", "__post_init__", "__repr__", "__str__", "__len__", "__del__"))
"""Methods that say nothing of a run when they are called by themselves"""


class Arguments(NamedTuple):
    """The arguments of a call."""

    args: tuple[Value, ...]
    keywords: dict[str, Value]
    is_open: bool = False
    spread: Value | None = None
    """What is unpacked by `*rows`, where its items are not known"""


class LimitReached(Exception):
    """Raised where a run has made MAX_STEPS; it is ended there."""


COUNTER = "number"
"""What the value of a counter is an element of, as the number that `enumerate` gives"""
MODULE_LIBRARIES = ("torch.nn.", "transformers.", "lightning.", "pytorch_lightning.")
"""How the bases begin whose objects are called by their `forward`"""
_MISSING: Any = object()


def run_symbolically(entry: Module) -> Trace:
    """The trace of one file that is started as a script, with the files of the project that it imports."""
    interpreter = Interpreter(entry)
    try:
        interpreter.run()
    except (LimitReached, RecursionError):
        interpreter.trace.is_whole = False
    return interpreter.trace


class Interpreter:
    """One run; see the module."""

    max_steps = MAX_STEPS
    max_calls_of_function = MAX_CALLS_OF_FUNCTION

    def __init__(self, entry: Module) -> None:
        self.trace = Trace(entry)
        self._entry = entry
        self._frame: Frame | None = None
        self._steps = 0
        self._journal: list[tuple[dict[Any, Value], Any, Value]] = []
        self._active: list[ast.AST] = []
        """Functions that are being run, to end recursion"""
        self._times_called: dict[ast.AST, int] = {}
        self._modules: dict[str, ProjectModule] = {}
        self._classes: list[Class] = []
        program = entry.program
        files = (entry,) if program is None else program.modules
        self._files = {module.path: module for module in files}
        self._imports = None if program is None else program.imports

    def run(self) -> None:
        """Run the file, then the functions in it that nobody called."""
        main = self._run_file(self._entry, "__main__")
        self._run_uncalled_functions_of_file(main)
        for module in list(self._modules.values()):
            if module is not main:
                self._run_uncalled_functions_of_file(module)

    # Files

    def _run_file(self, module: Module, name: str) -> ProjectModule:
        """Run the statements of a file once."""
        imported = ProjectModule(
            module, {"__name__": Constant(name), "__file__": Constant(module.path)}
        )
        self._modules[module.path] = imported
        scope = Scope(imported.names, None, module)
        frame, self._frame = self._frame, None
        self._run_block(module.tree.body, scope)
        self._frame = frame
        return imported

    def _run_uncalled_functions_of_file(self, module: ProjectModule) -> None:
        """Run the functions and methods of a file that nobody called, with unknown arguments."""
        for value in list(module.names.values()):
            if isinstance(value, Function) and value.home is module.module:
                if value.definition not in self._times_called:
                    self._run_hook(value, None)
            elif isinstance(value, Class) and value.home is module.module:
                self._run_uncalled_class(value)

    def _run_uncalled_class(self, made: Class) -> None:
        """Run the methods of a class that nobody called."""
        if all(function.definition in self._times_called for function in _methods_of(made)):
            return
        instance = next((one for one in self.trace.instances if one.made_of is made), None)
        if instance is None:
            given = self._instantiate(made, Arguments((), {}, True), made.definition)
            instance = given if isinstance(given, Instance) else Instance(made)
        self._run_hooks(instance, None)

    # Statements

    def _run_block(self, statements: Iterable[ast.stmt], scope: Scope) -> int:
        """Run statements in order, up to one that ends the block."""
        for statement in statements:
            ending = self._run_statement(statement, scope)
            if ending != FALLS_THROUGH:
                return ending
        return FALLS_THROUGH

    def _run_statement(self, node: ast.stmt, scope: Scope) -> int:
        """Run one statement, and return how it ends."""
        self._count_step()
        run = getattr(self, _visitor_name("_run_", type(node).__name__), None)
        ending = run(node, scope) if run is not None else None
        return FALLS_THROUGH if ending is None else int(ending)

    def _count_step(self) -> None:
        """Count a step of the run; raises LimitReached after MAX_STEPS."""
        self._steps += 1
        if self._steps > self.max_steps:
            raise LimitReached

    def _run_expr(self, node: ast.Expr, scope: Scope) -> int:
        """Run a statement that is an expression alone. A call that ends the process ends the block."""
        value = self.evaluate(node.value, scope)
        is_end = isinstance(value, Result) and value.call.named(*ENDING_CALLS)
        return RAISES if is_end else FALLS_THROUGH

    def _run_assign(self, node: ast.Assign, scope: Scope) -> None:
        """Evaluate the value, and bind it to each target."""
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self._bind_target(target, value, scope, node)

    def _run_ann_assign(self, node: ast.AnnAssign, scope: Scope) -> None:
        """Bind an annotated name, if it is given a value."""
        if node.value is not None:
            self._bind_target(node.target, self.evaluate(node.value, scope), scope, node)

    def _run_aug_assign(self, node: ast.AugAssign, scope: Scope) -> None:
        """Bind the result of `x += y` and the like; a list is extended in place."""
        target = node.target
        # Evaluation does not look at the context of an expression, so the target can be read.
        earlier = self.evaluate(target, scope)
        added = self.evaluate(node.value, scope)
        if isinstance(node.op, ast.Add) and isinstance(earlier, Sequence):
            whole = self._list_to_extend_by(added, node)
            call_list_method(earlier, "extend", (whole,), in_loop=self._is_in_loop())
            value: Value = earlier
        elif (
            _is_known_number(earlier)
            and _is_known_number(added)
            and self._is_changed_in_each_pass(target)
        ):
            # Two passes stand for any number of them, so 1 and 2 would be two of its values.
            value = self._add_to_trace(Element(Constant(COUNTER), node=node))
        else:
            value = self._operate(BINARY[type(node.op)][0], (earlier, added), node)
        self._bind_target(target, value, scope, node, is_augmented=True)

    def _run_return(self, node: ast.Return, scope: Scope) -> int:
        """Note the value that a function returns, and end its block."""
        value = Constant(None) if node.value is None else self.evaluate(node.value, scope)
        scope.returned.append(value)
        if scope.function is not None:
            self.trace.events.append(
                ReturnEvent(
                    self._next_event_number(), node, scope.home, self._frame, scope.function, value
                )
            )
        return RETURNS

    def _run_raise(self, node: ast.Raise, scope: Scope) -> int:
        """Evaluate what is raised, and end the block."""
        if node.exc is not None:
            self.evaluate(node.exc, scope)
        return RAISES

    def _run_break(self, node: ast.Break, scope: Scope) -> int:
        """End the loop."""
        return BREAKS

    def _run_continue(self, node: ast.Continue, scope: Scope) -> int:
        """End the pass of the loop."""
        return CONTINUES

    def _run_assert(self, node: ast.Assert, scope: Scope) -> None:
        """Evaluate the test of an assertion, which is taken to hold."""
        self.evaluate(node.test, scope)

    def _run_global(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        """Note the names that a function declares global or nonlocal."""
        scope.global_names.update(node.names)

    _run_nonlocal = _run_global

    def _run_delete(self, node: ast.Delete, scope: Scope) -> None:
        """Make deleted names unknown; deleted items and attributes stay."""
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._write_with_undo_record(scope.names, target.id, Unknown("deleted", node=node))

    def _run_if(self, node: ast.If, scope: Scope) -> int:
        """Run the branch that the test decides, or both as alternatives if it does not."""
        test = self.evaluate(node.test, scope)
        truth = truth_of_test(test)
        if truth is not None:
            return self._run_block(node.body if truth else node.orelse, scope)
        return self._run_alternatives(
            [
                lambda: self._run_in_frame(
                    "branch", node, test, lambda: self._run_block(node.body, scope)
                ),
                lambda: self._run_in_frame(
                    "branch", node, test, lambda: self._run_block(node.orelse, scope), taken=False
                ),
            ],
            scope,
        )

    def _run_for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> int:
        """Run the body of a `for` loop for each known item, or for one element that stands for any."""
        iterable = self.evaluate(node.iter, scope)
        items = self._items_that_get_own_loop_pass(iterable)
        if items is None:
            items = [self._element(iterable, node.iter)] * self._passes_to_run_of_unknown_loop()
        for number, item in enumerate(items):
            ending = self._run_loop_pass(node, iterable, scope, item, repeated=number > 0)
            if ending == BREAKS:
                return FALLS_THROUGH
        return self._run_block(node.orelse, scope)

    _run_async_for = _run_for

    def _run_while(self, node: ast.While, scope: Scope) -> int:
        """Run the body of a `while` loop, unless its test is false."""
        test = self.evaluate(node.test, scope)
        if truth_of_test(test) is False:
            return self._run_block(node.orelse, scope)
        for number in range(self._passes_to_run_of_unknown_loop()):
            ending = self._run_loop_pass(node, test, scope, None, repeated=number > 0)
            if ending == BREAKS:
                return FALLS_THROUGH
            if ending == RETURNS and truth_of_test(test):
                return RETURNS
        return self._run_block(node.orelse, scope)

    def _items_that_get_own_loop_pass(self, iterable: Value) -> list[Value] | None:
        """The items of which each gets a pass of its own; None where they are not known, or too many."""
        return items_of_short_list(iterable)

    def _passes_to_run_of_unknown_loop(self) -> int:
        """How often the body of a loop is run whose number of passes is not known."""
        frames = [] if self._frame is None else list(self._frame.self_and_outer_frames())
        return 2 if sum(frame.kind == "loop" for frame in frames) < MAX_LOOP_DEPTH else 1

    def _run_loop_pass(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        iterable: Value,
        scope: Scope,
        item: Value | None,
        *,
        repeated: bool,
    ) -> int:
        """One pass of a loop."""

        def body() -> int:
            if item is not None and not isinstance(node, ast.While):
                self._bind_target(node.target, item, scope, node)
            return self._run_block(node.body, scope)

        return self._run_in_frame("loop", node, iterable, body, repeated=repeated)

    def _run_with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> int:
        """Run a `with` block inside frames of its managers."""
        outer = self._frame
        for item in node.items:
            manager = self.evaluate(item.context_expr, scope)
            self._frame = Frame("with", item.context_expr, self._frame, manager)
            if item.optional_vars is not None:
                self._bind_target(item.optional_vars, _value_bound_by_with(manager), scope, node)
        try:
            return self._run_block(node.body, scope)
        finally:
            self._frame = outer

    _run_async_with = _run_with

    def _run_function_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        """Bind a function's name to it, through its decorators."""
        decorators = tuple(self.evaluate(one, scope) for one in node.decorator_list)
        value: Value = self._make_function(node, scope, decorators)
        for decorator in reversed(decorators):
            if isinstance(decorator, Function) and not _decorator_only_registers_function(
                decorator
            ):
                value = self.call(decorator, Arguments((value,), {}), node, scope.home)
        self._bind_name(node.name, value, scope, node)

    _run_async_function_def = _run_function_def

    def _run_class_def(self, node: ast.ClassDef, scope: Scope) -> None:
        """Run the body of a class, and bind its name to it."""
        own_class = Class(
            node,
            scope.home,
            scope,
            tuple(self.evaluate(base, scope) for base in node.bases),
            tuple(self.evaluate(one, scope) for one in node.decorator_list),
            {},
            [],
            node=node,
        )
        body = Scope(own_class.namespace, scope, scope.home)
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                own_class.fields.append(statement.target.id)
        self._run_block(node.body, body)
        for value in own_class.namespace.values():
            if isinstance(value, Function) and value.owner is None:
                value.owner = own_class
        self._bind_name(node.name, own_class, scope, node)

    def _run_try(self, node: ast.Try, scope: Scope) -> int:
        """Run the body of a `try`, its handlers as alternatives, and its `finally`."""
        body = self._run_in_frame("try", node, None, lambda: self._run_block(node.body, scope))
        arms: list[Callable[[], int]] = [lambda: FALLS_THROUGH]
        arms += [
            self._except_handler_as_alternative_arm(handler, scope) for handler in node.handlers
        ]
        after = self._run_alternatives(arms, scope) if node.handlers else FALLS_THROUGH
        # A body that returns may have failed before it did so; then the handlers say how the run continues.
        ending = (
            body if body in (FALLS_THROUGH, CONTINUES) or not node.handlers else min(body, after)
        )
        if ending == FALLS_THROUGH and body == FALLS_THROUGH:
            ending = self._run_block(node.orelse, scope)
        final = self._run_block(node.finalbody, scope)
        return final or ending

    def _except_handler_as_alternative_arm(
        self, handler: ast.ExceptHandler, scope: Scope
    ) -> Callable[[], int]:
        """One `except` as an arm that a run may take."""

        def run() -> int:
            if handler.name:
                self._write_with_undo_record(
                    scope.names, handler.name, Unknown("an exception", node=handler)
                )
            return self._run_in_frame(
                "except", handler, None, lambda: self._run_block(handler.body, scope)
            )

        return run

    _run_try_star = _run_try

    def _run_match(self, node: ast.Match, scope: Scope) -> int:
        """Run the cases of a `match` as alternatives."""
        subject = self.evaluate(node.subject, scope)
        for pattern in (part for case in node.cases for part in ast.walk(case.pattern)):
            # `case "a":` compares as `==` does.
            if isinstance(pattern, ast.MatchValue):
                wanted = self.evaluate(pattern.value, scope)
                self._operate("==", (subject, wanted), pattern)
        arms: list[Callable[[], int]] = [lambda: FALLS_THROUGH]
        arms += [
            self._match_case_as_alternative_arm(node, case, subject, scope) for case in node.cases
        ]
        return self._run_alternatives(arms, scope)

    def _match_case_as_alternative_arm(
        self, node: ast.Match, case: ast.match_case, subject: Value, scope: Scope
    ) -> Callable[[], int]:
        """One `case` as an arm that a run may take."""
        return lambda: self._run_in_frame(
            "branch", node, subject, lambda: self._run_block(case.body, scope)
        )

    def _run_import(self, node: ast.Import, scope: Scope) -> None:
        """Bind the names of an `import`, and run the project's files that it means."""
        for alias in node.names:
            parts = tuple(alias.name.split("."))
            bound = parts if alias.asname else parts[:1]
            value = self._imported_value(scope.home, 0, bound)
            self._write_with_undo_record(scope.names, alias.asname or parts[0], value)

    def _run_import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        """Bind the names of a `from ... import`, and run the project's files that it means."""
        base = tuple((node.module or "").split(".")) if node.module else ()
        for alias in node.names:
            if alias.name == "*":
                source = self._imported_value(scope.home, node.level, base)
                if isinstance(source, ProjectModule):
                    for name, value in list(source.names.items()):
                        if not name.startswith("_"):
                            self._write_with_undo_record(scope.names, name, value)
                else:
                    self._write_with_undo_record(scope.names, STAR, source)
                continue
            value = self._imported_value(scope.home, node.level, (*base, alias.name))
            self._write_with_undo_record(scope.names, alias.asname or alias.name, value)

    def _imported_value(self, importer: Module, level: int, parts: tuple[str, ...]) -> Value:
        """What a dotted name of an import stands for."""
        target = None if self._imports is None else self._imports.find(importer.path, level, parts)
        if target is None or target.path not in self._files:
            return Library(shorten_library_name("." * level + ".".join(parts)))
        module = self._modules.get(target.path)
        if module is None:
            module = self._run_file(self._files[target.path], ".".join(parts[: target.used]))
        value: Value = module
        for part in parts[target.used :]:
            value = self._attribute(value, part, None)
        return value

    # Branches

    def _run_alternatives(self, arms: list[Callable[[], int]], scope: Scope) -> int:
        """Run arms of which one is taken; what they write becomes a choice. Returns how the whole
        ends.
        """
        endings: list[int] = []
        written: list[dict[tuple[int, Hashable], Value]] = []
        places: dict[tuple[int, Hashable], dict[Any, Value]] = {}
        for arm in arms:
            mark = len(self._journal)
            endings.append(arm())
            written.append(self._undo_writes_since(mark, places))
        for (identity, key), names in places.items():
            options: list[Value] = []
            for ending, changes in zip(endings, written, strict=True):
                if not _do_writes_count_after_branch(ending, names is scope.names):
                    continue
                value = changes.get((identity, key), names.get(key))
                if value is not None:
                    options.append(value)
            if options:
                self._write_with_undo_record(names, key, self._make_choice_in_trace(options))
        return min(endings)

    def _undo_writes_since(
        self, mark: int, places: dict[tuple[int, Hashable], dict[Any, Value]]
    ) -> dict[tuple[int, Hashable], Value]:
        """Undo what was written since a mark, and return it."""
        changes: dict[tuple[int, Hashable], Value] = {}
        while len(self._journal) > mark:
            names, key, earlier = self._journal.pop()
            place = (id(names), key)
            places[place] = names
            if key in names:
                changes.setdefault(place, names[key])
            if earlier is _MISSING:
                names.pop(key, None)
            else:
                names[key] = earlier
        return changes

    def _make_choice_in_trace(self, values: list[Value]) -> Value:
        """One of several values, known to the trace."""
        return self._add_to_trace(choice_of_values(values))

    def _write_with_undo_record(self, names: dict[Any, Value], key: Any, value: Value) -> None:
        """Set a name, attribute or entry, and note what it was, so that the write can be undone."""
        self._journal.append((names, key, names.get(key, _MISSING)))
        names[key] = value

    def _run_in_frame(
        self,
        kind: str,
        node: ast.AST,
        value: Value | None,
        run: Callable[[], int],
        *,
        taken: bool = True,
        repeated: bool = False,
    ) -> int:
        """Run something inside a frame, such as a loop or a branch, and return how it ends."""
        outer = self._frame
        self._frame = Frame(kind, node, outer, value, taken, repeated)
        try:
            return run()
        finally:
            self._frame = outer

    def _is_in_loop(self) -> bool:
        """Does it run inside a loop or comprehension?"""
        frames = () if self._frame is None else self._frame.self_and_outer_frames()
        return any(frame.kind in ("loop", "comprehension") for frame in frames)

    def _is_changed_in_each_pass(self, target: ast.expr) -> bool:
        """Is a name or attribute changed in each pass of a loop whose number of passes is not known?"""
        frames = () if self._frame is None else self._frame.self_and_outer_frames()
        # A local name begins again with each call; an attribute does not.
        ends = ("loop",) if isinstance(target, ast.Attribute) else ("loop", "call")
        loop = next((frame for frame in frames if frame.kind in ends), None)
        if loop is None or not isinstance(loop.node, ast.For | ast.AsyncFor | ast.While):
            return False
        if loop.value is not None and self._items_that_get_own_loop_pass(loop.value) is not None:
            return False
        return not _is_replaced_in_loop(loop.node, ast.unparse(target))

    def _next_event_number(self) -> int:
        """The number of the next event."""
        return len(self.trace.events)

    def _add_to_trace(self, value: Value) -> Value:
        """Add a value that is made of others to the trace, and return it."""
        self.trace.values.append(value)
        return value

    # Names, attributes, items

    def _bind_name(
        self, name: str, value: Value, scope: Scope, node: ast.AST, *, is_augmented: bool = False
    ) -> None:
        """Set a name of a scope."""
        home = scope
        if name in scope.global_names:
            while home.parent is not None and (home is scope or name not in home.names):
                home = home.parent
        self._write_with_undo_record(home.names, name, value)
        self.trace.events.append(
            NameEvent(
                self._next_event_number(), node, scope.home, self._frame, name, value, is_augmented
            )
        )

    def _bind_target(
        self,
        target: ast.expr,
        value: Value,
        scope: Scope,
        node: ast.AST,
        *,
        is_augmented: bool = False,
    ) -> None:
        """Bind a target of an assignment."""
        if isinstance(target, ast.Name):
            self._bind_name(target.id, value, scope, node, is_augmented=is_augmented)
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value, scope)
            self._set_attribute(base, target.attr, value, scope, node, is_augmented=is_augmented)
        elif isinstance(target, ast.Subscript):
            base = self.evaluate(target.value, scope)
            key = self.evaluate(target.slice, scope)
            self._set_item(base, key, value, scope, node, is_augmented=is_augmented)
        elif isinstance(target, ast.Tuple | ast.List):
            self._bind_unpacked_targets(target, value, scope, node)
        elif isinstance(target, ast.Starred):
            self._bind_target(target.value, Sequence("list", [value], True), scope, node)

    def _bind_unpacked_targets(
        self, target: ast.Tuple | ast.List, value: Value, scope: Scope, node: ast.AST
    ) -> None:
        """Bind the parts of a tuple."""
        is_starred = any(isinstance(part, ast.Starred) for part in target.elts)
        for number, part in enumerate(target.elts):
            one = value if is_starred else self._item(value, Constant(number), part)
            self._bind_target(part, one, scope, node)

    def _set_attribute(
        self,
        base: Value,
        name: str,
        value: Value,
        scope: Scope,
        node: ast.AST,
        *,
        is_augmented: bool = False,
    ) -> None:
        """Set an attribute of an object."""
        for one in options_of_choice(base):
            if isinstance(one, Opaque):
                self._write_with_undo_record(one.attributes, name, value)
            elif isinstance(one, Mapping):
                self._write_with_undo_record(one.entries, name, value)
            elif isinstance(one, Class):
                self._write_with_undo_record(one.namespace, name, value)
            elif isinstance(one, ProjectModule):
                self._write_with_undo_record(one.names, name, value)
        self.trace.events.append(
            StoreEvent(
                self._next_event_number(),
                node,
                scope.home,
                self._frame,
                base,
                name,
                value,
                is_augmented,
            )
        )

    def _set_item(
        self,
        base: Value,
        key: Value,
        value: Value,
        scope: Scope,
        node: ast.AST,
        *,
        is_augmented: bool = False,
    ) -> None:
        """Set an item of an object."""
        plain = constant_key_of_index(key)
        for one in options_of_choice(base):
            if isinstance(one, Mapping) and plain is not None:
                self._write_with_undo_record(one.entries, plain, value)
            elif isinstance(one, Mapping):
                one.is_open = True
            elif isinstance(one, Opaque) and plain is not None:
                self._write_with_undo_record(one.entries, plain, value)
            elif isinstance(one, Sequence):
                one.items.append(value)
                one.is_open = True
        self.trace.events.append(
            StoreEvent(
                self._next_event_number(),
                node,
                scope.home,
                self._frame,
                base,
                key,
                value,
                is_augmented,
            )
        )

    def _attribute(self, base: Value, name: str, node: ast.AST | None) -> Value:
        """An attribute of a value."""
        if isinstance(base, Choice):
            return self._make_choice_in_trace(
                [self._attribute(one, name, node) for one in base.options]
            )
        if isinstance(base, Library):
            return Library(shorten_library_name(f"{base.name}.{name}"), node=node)
        if isinstance(base, ProjectModule):
            return base.names.get(name) or Unknown(f"no {name} in the file", node=node)
        if isinstance(base, Mapping):
            return self._attribute_of_mapping(base, name, node)
        if isinstance(base, Class):
            return self._attribute_of_class(base, name, node)
        if isinstance(base, Instance):
            return self._attribute_of_instance(base, name, node)
        if isinstance(base, Opaque):
            if name not in base.attributes:
                base.attributes[name] = self._add_to_trace(Attribute(base, name, node=node))
            return base.attributes[name]
        return self._add_to_trace(Attribute(base, name, node=node))

    def _attribute_of_mapping(self, base: Mapping, name: str, node: ast.AST | None) -> Value:
        """A setting of a namespace, or of a dictionary that is read like one."""
        if name in base.entries:
            return base.entries[name]
        return self._add_to_trace(Attribute(base, name, node=node))

    def _attribute_of_class(self, base: Class, name: str, node: ast.AST | None) -> Value:
        """What a class or one of its bases defines."""
        for one in _class_and_bases(base):
            if name in one.namespace:
                value = one.namespace[name]
                if isinstance(value, Function) and _has_decorator(value, "classmethod"):
                    return _bind_method(value, base)
                return value
        return self._add_to_trace(Attribute(base, name, node=node))

    def _attribute_of_instance(self, base: Instance, name: str, node: ast.AST | None) -> Value:
        """An attribute that was set, else what its class defines."""
        if name in base.attributes:
            return base.attributes[name]
        for one in _class_and_bases(base.made_of):
            if name not in one.namespace:
                continue
            value = one.namespace[name]
            if not isinstance(value, Function) or _has_decorator(value, "staticmethod"):
                return value
            bound = _bind_method(value, base)
            if _has_decorator(value, "property", "functools.cached_property"):
                home = value.home
                return self.call(bound, Arguments((), {}), node or value.definition, home)
            return bound
        base.attributes[name] = self._add_to_trace(Attribute(base, name, node=node))
        return base.attributes[name]

    def _item(self, base: Value, key: Value, node: ast.AST | None) -> Value:
        """An item or slice of a value."""
        if isinstance(base, Choice):
            return self._make_choice_in_trace([self._item(one, key, node) for one in base.options])
        if isinstance(base, Class) or (
            isinstance(base, Library) and _is_class_indexed_by_types(base.name)
        ):
            return base
        plain = constant_key_of_index(key)
        if isinstance(base, Opaque) and plain is not None:
            if plain not in base.entries:
                base.entries[plain] = self._add_to_trace(Item(base, key, node=node))
            return base.entries[plain]
        known = self._item_of_container(base, plain, key, node)
        return known if known is not None else self._add_to_trace(Item(base, key, node=node))

    def _item_of_container(
        self, base: Value, plain: Hashable | None, key: Value, node: ast.AST | None
    ) -> Value | None:
        """An item or slice of a list, a dictionary or a constant; None where it is not known, and of other values."""
        if isinstance(base, Mapping):
            return self._item_of_mapping(base, plain, key, node)
        if isinstance(base, Constant):
            return _item_of_constant_if_known(base.value, plain)
        known = item_or_slice_of_list(base, key) if isinstance(base, Sequence) else None
        if isinstance(known, Sequence) and known.part_of is not None:
            self._add_to_trace(known)
        return known

    def _item_of_mapping(
        self, base: Mapping, plain: Hashable | None, key: Value, node: ast.AST | None
    ) -> Value | None:
        """An entry of a dictionary, or of what its other entries come from."""
        if plain is None:
            values = list(base.entries.values())
            return self._make_choice_in_trace(values) if values and not base.is_open else None
        if plain in base.entries:
            return base.entries[plain]
        return None if base.rest is None else self._item(base.rest, key, node)

    def _element(self, iterable: Value, node: ast.AST) -> Value:
        """One element of an iterable; of an object of the project, what its own methods give."""
        for one in options_of_choice(iterable):
            if isinstance(one, Instance) and "<row>" not in one.entries:
                self._run_element_methods(one, node)
        return self._add_to_trace(representative_element_of_iterable(iterable))

    def _list_to_extend_by(self, added: Value, node: ast.AST) -> Sequence:
        """What a list is extended by: the items of another one, else any number of one element."""
        if isinstance(added, Sequence):
            return added
        return Sequence("list", [self._element(added, node)], is_open=True, node=node)

    def _run_element_methods(self, instance: Instance, node: ast.AST) -> None:
        """Run the methods of an object that give its elements, such as `__getitem__`."""
        for name in ("__getitem__", "__iter__"):
            function = _find_method(instance.made_of, name)
            if function is None:
                continue
            index = (Unknown("an index"),) if name == "__getitem__" else ()
            given = self.call(
                _bind_method(function, instance), Arguments(index, {}), node, function.home
            )
            instance.entries["<row>"] = (
                representative_element_of_iterable(given) if name == "__iter__" else given
            )
            return

    def _run_element_methods_for_library(self, instance: Instance, event: CallEvent) -> None:
        """Run the methods that give the elements of an object, as the library does that got it."""
        outer = self._frame
        self._frame = Frame("callback", event.node, outer, instance, given_to=event)
        self._run_element_methods(instance, event.node)
        self._frame = outer

    # Expressions

    def evaluate(self, node: ast.expr, scope: Scope) -> Value:
        """The value that an expression stands for."""
        self._count_step()
        evaluate = getattr(self, _visitor_name("_value_of_", type(node).__name__), None)
        if evaluate is None:
            return Unknown(type(node).__name__, node=node)
        value: Value = evaluate(node, scope)
        return value

    def _value_of_constant(self, node: ast.Constant, scope: Scope) -> Value:
        """The value of a literal."""
        return Constant(node.value, node=node)

    def _value_of_name(self, node: ast.Name, scope: Scope) -> Value:
        """The value of a name, by the scopes around it."""
        around: Scope | None = scope
        outermost = scope
        while around is not None:
            if node.id in around.names:
                return around.names[node.id]
            outermost, around = around, around.parent
        if hasattr(builtins, node.id):
            return Library(node.id, node=node)
        star = outermost.names.get(STAR)
        # A short word is more often a variable that is set in a way not seen here, such as a notebook's earlier state.
        if isinstance(star, Library) and (node.id[:1].isupper() or "_" in node.id):
            return Library(shorten_library_name(f"{star.name}.{node.id}"), node=node)
        # A name that nothing binds is one object wherever it is read.
        outermost.names[node.id] = Unknown(node.id, node=node)
        return outermost.names[node.id]

    def _value_of_attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        """The value of `x.name`."""
        return self._attribute(self.evaluate(node.value, scope), node.attr, node)

    def _value_of_subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        """The value of `x[key]`."""
        base = self.evaluate(node.value, scope)
        key = self.evaluate(node.slice, scope)
        if isinstance(base, Library) and base.name == "os.environ":
            return Option(str(constant_of(key)), None, node=node)
        return self._item(base, key, node)

    def _value_of_slice(self, node: ast.Slice, scope: Scope) -> Value:
        """The value of `start:stop:step`."""
        limits = (
            None if limit is None else self.evaluate(limit, scope)
            for limit in (node.lower, node.upper, node.step)
        )
        return self._add_to_trace(Slice(*limits, node=node))

    def _value_of_list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
        """The value of a list, tuple or set literal."""
        items: list[Value] = []
        is_open = False
        for part in node.elts:
            if isinstance(part, ast.Starred):
                given = self.evaluate(part.value, scope)
                is_open = is_open or not isinstance(given, Sequence) or given.is_open
                items += (
                    given.items
                    if isinstance(given, Sequence)
                    else [representative_element_of_iterable(given)]
                )
            else:
                items.append(self.evaluate(part, scope))
        return self._add_to_trace(Sequence(type(node).__name__.lower(), items, is_open, node=node))

    _value_of_tuple = _value_of_list
    _value_of_set = _value_of_list

    def _value_of_dict(self, node: ast.Dict, scope: Scope) -> Value:
        """The value of a dictionary literal, with the entries of `**more`."""
        mapping = Mapping({}, node=node)
        for key, value in zip(node.keys, node.values, strict=True):
            given = self.evaluate(value, scope)
            if key is None:
                update_dict(mapping, given, self._write_with_undo_record)
                continue
            plain = constant_key_of_index(self.evaluate(key, scope))
            if plain is None:
                mapping.is_open = True
            else:
                mapping.entries[plain] = given
        return self._add_to_trace(mapping)

    def _value_of_joined_str(self, node: ast.JoinedStr, scope: Scope) -> Value:
        """The value of an f-string."""
        parts = tuple(self.evaluate(part, scope) for part in node.values)
        return self._operate("format", parts, node)

    def _value_of_formatted_value(self, node: ast.FormattedValue, scope: Scope) -> Value:
        """The value of one part of an f-string, with its conversion and format."""
        value = self.evaluate(node.value, scope)
        if node.format_spec is None and node.conversion < 0:
            return value
        how = Constant("") if node.format_spec is None else self.evaluate(node.format_spec, scope)
        plain, plain_how = constant_of(value, with_defaults=False), constant_of(how)
        text = format_f_string_part(plain, node.conversion, plain_how)
        if text is NO_CONSTANT:
            return self._add_to_trace(Operation("format", (value,), node=node))
        return Constant(text, node=node)

    def _value_of_bin_op(self, node: ast.BinOp, scope: Scope) -> Value:
        """The value of an operator between two expressions."""
        operands = (self.evaluate(node.left, scope), self.evaluate(node.right, scope))
        left, right = operands
        # Columns of frames and tensors are added item by item: see the runs that know them.
        is_list = isinstance(left, Sequence) and left.kind in ("list", "tuple", "set")
        if isinstance(node.op, ast.Add) and isinstance(left, Sequence) and is_list:
            if isinstance(right, Sequence):
                return self._add_to_trace(self._join_lists(left, right, node))
        if isinstance(node.op, ast.BitOr) and isinstance(left, Mapping):
            merged = Mapping(dict(left.entries), left.rest, left.is_open, node=node)
            update_dict(merged, right, self._write_with_undo_record)
            return self._add_to_trace(merged)
        return self._operate(BINARY[type(node.op)][0], operands, node)

    def _join_lists(self, left: Sequence, right: Sequence, node: ast.BinOp) -> Sequence:
        """Two lists one behind the other; runs that hold rows keep more of their items."""
        return join_lists(left, right, node)

    def _value_of_unary_op(self, node: ast.UnaryOp, scope: Scope) -> Value:
        """The value of `-x`, `not x` and the like."""
        operand = self.evaluate(node.operand, scope)
        sign, compute_one = UNARY[type(node.op)]
        if isinstance(operand, Constant) and isinstance(operand.value, int | float):
            try:
                return Constant(compute_one(operand.value), node=node)
            except TypeError:
                pass
        return self._operate(sign, (operand,), node)

    def _value_of_compare(self, node: ast.Compare, scope: Scope) -> Value:
        """The value of a comparison."""
        left = self.evaluate(node.left, scope)
        compared: list[Value] = []
        for comparison, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, scope)
            compared.append(self._operate(COMPARISONS[type(comparison)][0], (left, right), node))
            left = right
        return compared[0] if len(compared) == 1 else self._operate("and", tuple(compared), node)

    def _value_of_bool_op(self, node: ast.BoolOp, scope: Scope) -> Value:
        """The value of `and` and `or`, up to the operand that decides."""
        is_and = isinstance(node.op, ast.And)
        operands: list[Value] = []
        for part in node.values:
            operand = self.evaluate(part, scope)
            truth = truth_of_test(operand)
            if truth is not None and truth != is_and:
                operands.append(operand)
                break
            if truth is None or part is node.values[-1]:
                operands.append(operand)
        if len(operands) == 1:
            return operands[0]
        if is_and:
            return self._add_to_trace(Operation("and", tuple(operands), node=node))
        return self._make_choice_in_trace(operands)

    def _value_of_if_exp(self, node: ast.IfExp, scope: Scope) -> Value:
        """The value of `a if test else b`; a choice of both if the test is not decided."""
        truth = truth_of_test(self.evaluate(node.test, scope))
        if truth is not None:
            return self.evaluate(node.body if truth else node.orelse, scope)
        return self._make_choice_in_trace(
            [self.evaluate(node.body, scope), self.evaluate(node.orelse, scope)]
        )

    def _value_of_lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        """The function that a lambda makes."""
        return self._make_function(node, scope, ())

    def _value_of_named_expr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        """The value of `name := value`, which is bound."""
        value = self.evaluate(node.value, scope)
        self._bind_target(node.target, value, scope, node)
        return value

    def _value_of_starred(self, node: ast.Starred, scope: Scope) -> Value:
        """The value of the expression after a star."""
        return self.evaluate(node.value, scope)

    def _value_of_await(self, node: ast.Await, scope: Scope) -> Value:
        """The value of what is awaited."""
        return self.evaluate(node.value, scope)

    def _value_of_yield(self, node: ast.Yield, scope: Scope) -> Value:
        """Note the value that a generator yields."""
        value = Constant(None) if node.value is None else self.evaluate(node.value, scope)
        scope.yielded.append(value)
        return Constant(None)

    def _value_of_yield_from(self, node: ast.YieldFrom, scope: Scope) -> Value:
        """Note the elements that a generator yields of another iterable."""
        scope.yielded.append(representative_element_of_iterable(self.evaluate(node.value, scope)))
        return Constant(None)

    def _value_of_list_comp(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope
    ) -> Value:
        """The list that a list or set comprehension or a generator expression makes."""
        items, is_open, iterable = self._run_comprehension(
            node.generators, scope, lambda inner: self.evaluate(node.elt, inner)
        )
        return self._add_to_trace(Sequence("list", items, is_open, made_over=iterable, node=node))

    _value_of_set_comp = _value_of_list_comp
    _value_of_generator_exp = _value_of_list_comp

    def _value_of_dict_comp(self, node: ast.DictComp, scope: Scope) -> Value:
        """The dictionary that a comprehension makes."""
        mapping = Mapping({}, node=node)

        def add(inner: Scope) -> Value:
            plain = constant_key_of_index(self.evaluate(node.key, inner))
            value = self.evaluate(node.value, inner)
            if plain is not None:
                mapping.entries[plain] = value
            elif mapping.rest is None:
                mapping.is_open = True
                mapping.rest = self._dictionary_that_comprehension_maps(node, inner, value)
            return value

        _, is_open, _ = self._run_comprehension(node.generators, scope, add)
        mapping.is_open = mapping.is_open or is_open
        return self._add_to_trace(mapping)

    def _dictionary_that_comprehension_maps(
        self, node: ast.DictComp, inner: Scope, value: Value
    ) -> Value | None:
        """`batch` in `{k: v.to(device) for k, v in batch.items()}`: its entries are those of the new one."""
        source = self.evaluate(node.generators[0].iter, inner)
        if isinstance(source, Result) and source.call.method == "items":
            return source.call.receiver
        return None

    def _run_comprehension(
        self,
        generators: list[ast.comprehension],
        scope: Scope,
        make: Callable[[Scope], Value],
    ) -> tuple[list[Value], bool, Value | None]:
        """The values of a comprehension, whether there may be any number of them, and what it
        iterates.
        """
        inner = Scope({}, scope, scope.home, function=scope.function)
        values: list[Value] = []
        is_open = False
        outermost: Value | None = None

        def run(position: int) -> int:
            nonlocal is_open, outermost
            if position == len(generators):
                values.append(make(inner))
                return FALLS_THROUGH
            generator = generators[position]
            iterable = self.evaluate(generator.iter, inner)
            outermost = outermost or iterable
            items = self._items_that_get_own_loop_pass(iterable)
            if items is None:
                is_open = True
                items = [self._element(iterable, generator.iter)]
            for item in items:
                self._bind_target(generator.target, item, inner, generator)
                truths = [truth_of_test(self.evaluate(test, inner)) for test in generator.ifs]
                if False in truths:
                    continue
                is_open = is_open or None in truths
                self._run_in_frame("comprehension", generator, iterable, lambda: run(position + 1))
            return FALLS_THROUGH

        run(0)
        return values, is_open, outermost

    def _operate(self, sign: str, operands: tuple[Value, ...], node: ast.AST) -> Value:
        """The result of an operator, computed if all operands are constant."""
        if all(isinstance(one, Constant) for one in operands):
            plain = [one.value for one in operands if isinstance(one, Constant)]
            result: Any = NO_CONSTANT
            if sign == "format":
                result = join_f_string_parts(plain)
            elif len(plain) == 2 and sign != "and":
                result = compute_operator(sign, *plain)
            if result is not NO_CONSTANT:
                return Constant(result, node=node)
        return self._add_to_trace(Operation(sign, operands, node=node))

    # Calls

    def _value_of_call(self, node: ast.Call, scope: Scope) -> Value:
        """The result of a call."""
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            return self._proxy_of_super_in_method(scope, node)
        arguments = self._evaluate_call_arguments(node, scope)
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value, scope)
            return self._call_method(receiver, node.func.attr, arguments, node, scope.home)
        return self.call(self.evaluate(node.func, scope), arguments, node, scope.home)

    def _evaluate_call_arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        """The arguments of a call, with the entries of `*args` and `**kwargs` that are known."""
        args: list[Value] = []
        keywords: dict[str, Value] = {}
        is_open = False
        spread: Value | None = None
        for part in node.args:
            value = self.evaluate(part, scope)
            if not isinstance(part, ast.Starred):
                args.append(value)
            elif isinstance(value, Sequence) and not value.is_open:
                args += value.items
            else:
                is_open = True
                spread = value
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                continue
            if isinstance(value, Mapping):
                keywords.update((str(key), one) for key, one in value.entries.items())
            # What is unpacked stays among the inputs, so that its uses are seen.
            if not isinstance(value, Mapping) or value.is_open or value.rest is not None:
                is_open = True
                keywords[UNPACKED] = value
        return Arguments(tuple(args), keywords, is_open, spread)

    def _proxy_of_super_in_method(self, scope: Scope, node: ast.Call) -> Value:
        """`super()` in a method."""
        function = scope.function
        if function is None or function.owner is None or function.receiver is None:
            return Unknown("super outside of a method", node=node)
        return SuperProxy(function.receiver, function.owner, node=node)

    def call(self, function: Value, given: Arguments, node: ast.AST, home: Module) -> Value:
        """The result of calling any value."""
        self._count_step()
        if isinstance(function, Choice):
            return self._make_choice_in_trace(
                [self.call(one, given, node, home) for one in function.options[:4]]
            )
        if isinstance(function, Function):
            return self._call_function(function, given, node)
        if isinstance(function, Class):
            return self._instantiate(function, given, node)
        if isinstance(function, Partial):
            joined = Arguments(
                (*function.args, *given.args),
                {**function.keywords, **given.keywords},
                given.is_open,
            )
            return self.call(function.function, joined, node, home)
        if isinstance(function, Instance):
            return self._call_instance(function, given, node, home)
        if isinstance(function, Library):
            return self._call_library(function.name, given, node, home)
        if isinstance(function, Attribute):
            return self._record_library_call(
                (), function.name, function.base, given, node, home
            ).result
        event = self._record_library_call((), "__call__", function, given, node, home)
        wrapped = _module_wrapped_by_library_call(function)
        return event.result if wrapped is None else self._call_instance(wrapped, given, node, home)

    def _call_instance(
        self, instance: Instance, given: Arguments, node: ast.AST, home: Module
    ) -> Value:
        """A call of an object of the project: its `__call__`, or `forward` of a module of torch."""
        for name in ("__call__", "forward"):
            function = _find_method(instance.made_of, name)
            if function is not None:
                return self._call_function(_bind_method(function, instance), given, node)
        names = tuple(f"{name}.__call__" for name in library_bases(instance.made_of))
        return self._record_library_call(names, "__call__", instance, given, node, home).result

    def _call_method(
        self, receiver: Value, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value:
        """A call of `receiver.name(...)`."""
        if isinstance(receiver, Choice) and any(map(_are_methods_known_to_run, receiver.options)):
            _mark_lists_of_choice_open(receiver.options)
            return self._make_choice_in_trace(
                [self._call_method(one, name, given, node, home) for one in receiver.options]
            )
        if isinstance(receiver, Library):
            library = shorten_library_name(f"{receiver.name}.{name}")
            return self._call_library(library, given, node, home)
        if isinstance(receiver, SuperProxy):
            return self._call_super(receiver, name, given, node, home)
        if isinstance(receiver, Sequence | Mapping | Constant):
            known = self._call_method_of_container(receiver, name, given, node)
            event = self._record_library_call((), name, receiver, given, node, home)
            if name == "sort" and isinstance(receiver, Sequence):
                receiver.ordered_by = event
            return event.result if known is None else self._add_to_trace(known)
        if isinstance(receiver, ProjectModule | Class | Instance):
            function = self._attribute(receiver, name, node)
            if not isinstance(function, Attribute):
                return self.call(function, given, node, home)
        return self._call_library_method(receiver, name, given, node, home)

    def _call_library_method(
        self, receiver: Value, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value:
        """The result of a method that the project does not define."""
        if name == "add_argument" and isinstance(receiver, Opaque):
            record_option_of_add_argument(receiver, given.args, given.keywords)
        if name in PARSING_METHODS and isinstance(receiver, Opaque):
            parsed = self._options_of_command_line(receiver, name, node)
            if parsed is not None:
                return self._add_to_trace(parsed)
        if name in ARGUMENT_FILES and isinstance(receiver, Result):
            read = self._parse_argument_file(receiver.call, name, node, home)
            if read is not None:
                return self._add_to_trace(read)
        replaced = receiver.attributes.get(name) if isinstance(receiver, Opaque) else None
        event = self._record_library_call(
            _qualified_names_of_inherited_method(receiver, name), name, receiver, given, node, home
        )
        if isinstance(replaced, Function):
            return self.call(replaced, given, node, home)
        return event.result

    def _options_of_command_line(self, parser: Opaque, method: str, node: ast.AST) -> Value | None:
        """The options that a parser makes of the command line; None if it is no parser."""
        if isinstance(parser, Result) and parser.call.named("*HfArgumentParser", "*TrlParser"):
            return self._parse_into_dataclasses(parser.call, node)
        return namespace_of_options(parser, method, node)

    def _parse_into_dataclasses(self, call: CallEvent, node: ast.AST) -> Value | None:
        """Objects of the classes that a parser is given, with their defaults as options."""
        if not call.args:
            return None
        classes = call.args[0]
        items = classes.items if isinstance(classes, Sequence) else [classes]
        made: list[Value] = []
        for one in items:
            if isinstance(one, Class):
                instance = self._instantiate(one, Arguments((), {}, False), node)
                if isinstance(instance, Instance):
                    for name in _annotated_names_bases_first(one):
                        default = instance.attributes.get(name)
                        instance.attributes[name] = Option(
                            name, default, node=getattr(default, "node", None)
                        )
                made.append(instance)
            else:
                made.append(self.call(one, Arguments((), {}, True), node, self._entry))
        return Sequence("tuple", made, node=node)

    def _parse_argument_file(
        self, parser: CallEvent, method: str, node: ast.AST, home: Module
    ) -> Value | None:
        """The arguments that HfArgumentParser reads from a file; None for any other parser or file."""
        if not parser.named("*HfArgumentParser", "*TrlParser") or not parser.args:
            return None
        if not isinstance(node, ast.Call):
            return None
        literal = home.flow.settings_files.arguments_read_by_parser(home.flow, node, method)
        if literal is None:
            return None
        settings = self.evaluate(literal, Scope({}, None, home))
        classes = parser.args[0]
        items = classes.items if isinstance(classes, Sequence) else [classes]
        if not isinstance(settings, Mapping):
            return None
        made = [self._make_parsed_object_from_file_entries(one, settings, node) for one in items]
        return Sequence("tuple", made, node=node)

    def _make_parsed_object_from_file_entries(
        self, made_of: Value, settings: Mapping, node: ast.AST
    ) -> Value:
        """An object of one class that a parser is given, of the entries of a file that are its own."""
        entries = settings.entries
        if isinstance(made_of, Class):
            own = _annotated_names_bases_first(made_of)
            entries = {key: value for key, value in entries.items() if key in own}
        given = {key: value for key, value in entries.items() if isinstance(key, str)}
        return self.call(made_of, Arguments((), given, False), node, self._entry)

    def _call_super(
        self, proxy: SuperProxy, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value:
        """A method of a base class, called by a method of the project."""
        receiver = proxy.receiver
        made_of = receiver.made_of if isinstance(receiver, Instance) else proxy.owner
        bases = _class_and_bases(made_of)
        behind = bases[bases.index(proxy.owner) + 1 :] if proxy.owner in bases else []
        for one in behind:
            value = one.namespace.get(name)
            if isinstance(value, Function):
                return self._call_function(_bind_method(value, receiver), given, node)
        names = library_bases(made_of)
        if name != "__init__":
            names = tuple(f"{base}.{name}" for base in names)
            return self._record_library_call(names, name, receiver, given, node, home).result
        if isinstance(receiver, Instance) and names:
            receiver.construction = self._record_library_call(names, None, None, given, node, home)
            self._set_base_class_arguments_as_attributes(receiver, given)
        return Constant(None)

    def _set_base_class_arguments_as_attributes(self, instance: Instance, given: Arguments) -> None:
        """A base class of a library keeps its arguments under their names, as trainers do."""
        for name, value in given.keywords.items():
            if name != UNPACKED:
                instance.attributes.setdefault(name, value)

    def _call_method_of_container(
        self,
        receiver: Sequence | Mapping | Constant,
        name: str,
        given: Arguments,
        node: ast.AST,
    ) -> Value | None:
        """The result of a method of a list, dictionary or text; None if nothing is known of it."""
        if isinstance(receiver, Sequence):
            args = given.args
            if name in ("extend", "update"):
                args = tuple(self._list_to_extend_by(one, node) for one in args)
            return call_list_method(receiver, name, args, in_loop=self._is_in_loop())
        if isinstance(receiver, Mapping):
            return call_dict_method(
                receiver, name, given.args, given.keywords, self._write_with_undo_record
            )
        if isinstance(receiver.value, str) and not given.keywords:
            return call_text_method(receiver.value, name, given.args)
        return None

    def _call_library(self, name: str, given: Arguments, node: ast.AST, home: Module) -> Value:
        """A call of a function or class that the project does not define."""
        if name == "functools.partial" and given.args:
            return Partial(given.args[0], given.args[1:], given.keywords, node=node)
        if name == "itertools.chain" and given.spread is not None and not given.args:
            # `chain(*parts)` goes through the parts as `chain.from_iterable(parts)` does.
            name, given = f"{name}.from_iterable", Arguments((given.spread,), given.keywords)
        settings = self._read_settings(name, given, node, home)
        event = self._record_library_call((name,), None, None, given, node, home)
        if settings is not None:
            return settings
        known = self._result_of_builtin(name, given, node, home)
        if known is None:
            known = result_of_known_function(name, given.args, given.keywords, node)
        return event.result if known is None else self._add_to_trace(known)

    def _result_of_builtin(
        self, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value | None:
        """The result of a function of Python's own that reads objects of the run; None if it is not
        known.
        """
        args = given.args
        if name == "getattr" and len(args) > 1:
            attribute = constant_of(args[1])
            return self._attribute(args[0], attribute, node) if isinstance(attribute, str) else None
        if name == "setattr" and len(args) == 3:
            self._set_named_attribute(args, node, home)
            return None
        return self._result_of_iterating_builtin(name, given, node, home)

    def _result_of_iterating_builtin(
        self, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value | None:
        """The result of `next`, `zip(*rows)` or `map` with a library's function; None for any other
        call.
        """
        args = given.args
        if name == "next" and args:
            return self._element(args[0], node)
        if name == "zip" and given.spread is not None and not args:
            return columns_of_zipped_rows(representative_element_of_iterable(given.spread), node)
        if name == "map" and len(args) == 2 and isinstance(args[0], Library):
            return self._items_of_map_by_library(args[0], args[1], node, home)
        return None

    def _set_named_attribute(self, args: tuple[Value, ...], node: ast.AST, home: Module) -> None:
        """Set the attribute that `setattr(object, name, value)` names."""
        attribute = constant_of(args[1])
        if isinstance(attribute, str) and isinstance(node, ast.Call):
            self._set_attribute(args[0], attribute, args[2], Scope({}, None, home), node)

    def _items_of_map_by_library(
        self, function: Library, iterable: Value, node: ast.AST, home: Module
    ) -> Value | None:
        """What `map(torch.stack, columns)` gives, where the items are known; None where they are not."""
        items = items_of_short_list(iterable)
        if items is None:
            return None
        made = [self.call(function, Arguments((one,), {}), node, home) for one in items]
        return Sequence("list", made, node=node)

    def _read_settings(
        self, name: str, given: Arguments, node: ast.AST, home: Module
    ) -> Value | None:
        """What a call reads from a file of settings beside the script; None for any other call."""
        if not isinstance(node, ast.Call):
            return None
        files = home.flow.settings_files
        literal = files.settings_read_by_call(home.flow, node)
        if not isinstance(literal, ast.Dict):
            return None
        return self.evaluate(literal, Scope({}, None, home))

    def _record_library_call(
        self,
        names: tuple[str, ...],
        method: str | None,
        receiver: Value | None,
        given: Arguments,
        node: ast.AST,
        home: Module,
    ) -> CallEvent:
        """Record a call of a library, and run the project's functions that it is given."""
        event = CallEvent(
            self._next_event_number(),
            node,
            home,
            self._frame,
            names,
            method,
            receiver,
            given.args,
            given.keywords,
            given.is_open,
        )
        self.trace.events.append(event)
        self.trace.values.append(event.result)
        for value in (*given.args, *given.keywords.values()):
            self._run_function_given_to_library(value, event, 0)
        if (
            isinstance(receiver, Instance)
            and receiver.is_made
            and method is not None
            and library_bases(receiver.made_of)
        ):
            self._run_hooks(receiver, event)
        return event

    def _run_function_given_to_library(self, value: Value, event: CallEvent, depth: int) -> None:
        """Run a function that a library is given, also in a list or dictionary."""
        if isinstance(value, Function | Partial):
            returned = self._run_as_callback(value, event)
            inner = _unwrap_partial(value)
            if isinstance(inner, Function):
                event.returned_by_callbacks.append((inner, returned))
        elif isinstance(value, Instance):
            self._run_object_given_to_library(value, event)
        elif isinstance(value, Sequence | Mapping) and depth < 2:
            parts = value.items if isinstance(value, Sequence) else value.entries.values()
            for part in list(islice(parts, MAX_PARTS_OF_ARGUMENT)):
                self._run_function_given_to_library(part, event, depth + 1)
        elif isinstance(value, Choice):
            for option in value.options:
                self._run_function_given_to_library(option, event, depth + 1)

    def _run_object_given_to_library(self, value: Instance, event: CallEvent) -> None:
        """Run an object of the project that a library is given: it is called, or its hooks are."""
        function = _find_method(value.made_of, "__call__")
        if function is not None:
            returned = self._run_as_callback(_bind_method(function, value), event)
            event.returned_by_callbacks.append((_bind_method(function, value), returned))
            return
        if "<row>" not in value.entries:
            self._run_element_methods_for_library(value, event)
        if library_bases(value.made_of):
            self._run_hooks(value, event)

    def _run_as_callback(self, value: Function | Partial, event: CallEvent) -> Value:
        """Run a function as the library does that got it."""
        outer = self._frame
        self._frame = Frame("callback", event.node, outer, value, given_to=event)
        try:
            return self.call(value, _arguments_of_callback(value, event), event.node, event.home)
        finally:
            self._frame = outer

    def _run_hooks(self, instance: Instance, event: CallEvent | None) -> None:
        """Run the methods of an object that a library calls and the project does not."""
        if instance.hooks_ran:
            return
        instance.hooks_ran = True
        for function in _methods_of(instance.made_of):
            if function.definition in self._times_called or function.name in NO_HOOKS:
                continue
            is_static = _has_decorator(function, "staticmethod")
            self._run_hook(function if is_static else _bind_method(function, instance), event)

    def _run_hook(self, function: Function, event: CallEvent | None) -> None:
        """Run a function that a library calls (a hook), with arguments of which nothing is known."""
        outer = self._frame
        self._frame = Frame("callback", function.definition, outer, function, given_to=event)
        arguments = Arguments((), {})
        returned = self._call_function(function, arguments, function.definition, given_by=event)
        if event is not None:
            event.returned_by_hooks.append((function, returned))
        self._frame = outer

    def _make_function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        scope: Scope,
        decorators: tuple[Value, ...],
    ) -> Function:
        """A function with the values of its defaults."""
        function = Function(node, scope.home, scope, decorators, node=node)
        positional = [*node.args.posonlyargs, *node.args.args]
        behind = positional[len(positional) - len(node.args.defaults) :]
        for parameter, default in zip(behind, node.args.defaults, strict=True):
            function.defaults[parameter.arg] = self.evaluate(default, scope)
        for parameter, given in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if given is not None:
                function.defaults[parameter.arg] = self.evaluate(given, scope)
        return function

    def _call_function(
        self,
        function: Function,
        given: Arguments,
        node: ast.AST,
        *,
        given_by: CallEvent | None = None,
    ) -> Value:
        """The result of calling a function of the project."""
        definition = function.definition
        times = self._times_called.get(definition, 0)
        if definition in self._active or len(self._active) >= MAX_CALL_DEPTH:
            return Unknown("recursion", node=node)
        if times >= self.max_calls_of_function:
            return Unknown("called too often to follow", node=node)
        self._times_called[definition] = times + 1
        scope = Scope({}, _scope_seen_by(function), function.home, function=function)
        self._bind_parameters(function, given, scope, given_by)
        outer = self._frame
        frame: Frame | None = Frame("call", node, outer, function)
        for decorator in function.decorators:
            frame = Frame("with", definition, frame, decorator)
        self._frame = frame
        self._active.append(definition)
        try:
            return self._run_body(function, scope)
        finally:
            self._active.pop()
            self._frame = outer

    def _run_body(self, function: Function, scope: Scope) -> Value:
        """Run the statements of a function, and return its result."""
        definition = function.definition
        if isinstance(definition, ast.Lambda):
            return self.evaluate(definition.body, scope)
        ending = self._run_block(definition.body, scope)
        if scope.yielded:
            return self._add_to_trace(Sequence("list", scope.yielded, True, node=definition))
        if ending not in (RETURNS, RAISES) or not scope.returned:
            if ending != RAISES:
                scope.returned.append(Constant(None))
        return (
            self._make_choice_in_trace(scope.returned)
            if scope.returned
            else Unknown("raises", node=definition)
        )

    def _bind_parameters(
        self, function: Function, given: Arguments, scope: Scope, given_by: CallEvent | None
    ) -> None:
        """Give the parameters of a function their values."""
        arguments = function.definition.args
        positional = [*arguments.posonlyargs, *arguments.args]
        args = list(given.args)
        is_bound = function.receiver is not None and not _has_decorator(function, "staticmethod")
        if is_bound and function.receiver is not None:
            args.insert(0, function.receiver)
        keywords = dict(given.keywords)
        unpacked = keywords.pop(UNPACKED, None)
        for position, parameter in enumerate([*positional, *arguments.kwonlyargs]):
            name = parameter.arg
            if position < len(positional) and position < len(args):
                value = args[position]
            elif name in keywords:
                value = keywords.pop(name)
            elif unpacked is not None and name not in function.defaults:
                value = self._item(unpacked, Constant(name), parameter)
            else:
                value = self._value_of_missing_argument(function, name, position, given, given_by)
            scope.names[name] = value
            self.trace.events.append(
                NameEvent(
                    self._next_event_number(), parameter, function.home, self._frame, name, value
                )
            )
        if arguments.vararg is not None:
            rest = args[len(positional) :]
            scope.names[arguments.vararg.arg] = Sequence("tuple", rest, given.is_open)
        if arguments.kwarg is not None:
            entries: dict[Any, Value] = dict(keywords)
            scope.names[arguments.kwarg.arg] = Mapping(entries, unpacked, given.is_open)

    def _value_of_missing_argument(
        self,
        function: Function,
        name: str,
        position: int,
        given: Arguments,
        given_by: CallEvent | None,
    ) -> Value:
        """The value of a parameter that the call does not give: its default, an option, or unknown."""
        option = option_that_fills_parameter(function, name)
        if option is not None:
            return option
        is_called_by_nobody = self._frame is not None and self._frame.kind == "callback"
        if name in function.defaults and not given.is_open and not is_called_by_nobody:
            return function.defaults[name]
        settings = function.home.flow.settings_files.settings_given_by_hydra(
            function.home.flow, function.definition
        )
        if isinstance(settings, ast.Dict):
            return self.evaluate(settings, Scope({}, None, function.home))
        if name in function.defaults:
            return Option(name, function.defaults[name], node=function.defaults[name].node)
        return Parameter(name, position, function, given_by, node=function.definition)

    def _instantiate(self, made: Class, given: Arguments, node: ast.AST) -> Value:
        """A new object of a class of the project."""
        instance = Instance(made, node=node)
        self.trace.instances.append(instance)
        self._run_constructor(instance, given, node)
        instance.is_made = True
        return instance

    def _run_constructor(self, instance: Instance, given: Arguments, node: ast.AST) -> None:
        """Run the constructor of a new object, or of the library's class that it derives from."""
        made = instance.made_of
        construct = _find_method(made, "__init__")
        if construct is not None:
            self._call_function(_bind_method(construct, instance), given, node)
            return
        bases = library_bases(made)
        if _has_dataclass_like_constructor(made, bases):
            self._fill_dataclass_fields(instance, given, node)
        elif bases:
            instance.construction = self._record_library_call(
                bases, None, None, given, node, made.home
            )
            self._set_base_class_arguments_as_attributes(instance, given)

    def _fill_dataclass_fields(self, instance: Instance, given: Arguments, node: ast.AST) -> None:
        """Set the fields of a dataclass from the arguments and their defaults."""
        names = _annotated_names_bases_first(instance.made_of)
        for name, value in zip(names, given.args, strict=False):
            instance.attributes[name] = value
        for name in names[len(given.args) :]:
            if name in given.keywords:
                instance.attributes[name] = given.keywords[name]
                continue
            default = self._default_of_field(instance.made_of, name, node)
            if default is not None:
                instance.attributes[name] = Option(name, default) if given.is_open else default
            elif UNPACKED in given.keywords:
                # `Row(**json.loads(line))`: a field without a default is the column of its name.
                row = given.keywords[UNPACKED]
                instance.attributes[name] = self._item(row, Constant(name), node)
        finish = _find_method(instance.made_of, "__post_init__")
        if finish is not None:
            self._call_function(_bind_method(finish, instance), Arguments((), {}), node)

    def _default_of_field(self, made: Class, name: str, node: ast.AST) -> Value | None:
        """The default of a field, also of `field(default_factory=...)`; None without one."""
        for one in _class_and_bases(made):
            default = one.namespace.get(name)
            if default is None:
                continue
            if isinstance(default, Result) and default.call.named("dataclasses.field", "*.Field"):
                call = default.call
                if "default_factory" in call.keywords:
                    return self.call(
                        call.keywords["default_factory"], Arguments((), {}), node, made.home
                    )
                return (
                    call.argument(0, "default")
                    if call.named("*.Field")
                    else call.keywords.get("default")
                )
            return default
        return None


def _module_wrapped_by_library_call(value: Value) -> Instance | None:
    """The module of the project that was moved, compiled or prepared: what runs is its `forward`; else None."""
    if not isinstance(value, Result | Item):
        return None
    ways = lineages_back_to_origins(value)
    origin = ways[0].origin if len(ways) == 1 else None
    if not isinstance(origin, Instance):
        return None
    bases = library_bases(origin.made_of)
    is_module = any(base.startswith(MODULE_LIBRARIES) for base in bases)
    return origin if is_module else None


@cache
def _visitor_name(prefix: str, kind: str) -> str:
    """The interpreter's method for a class of the syntax tree: `_run_ann_assign` for AnnAssign."""
    return prefix + re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


def _do_writes_count_after_branch(ending: int, is_local: bool) -> bool:
    """Does what an arm wrote count behind the branch? The names of a function that returned do not."""
    return ending != RAISES and not (ending == RETURNS and is_local)


def _value_bound_by_with(manager: Value) -> Value:
    """The value that `with manager as name` binds: for a context manager of the project written as
    a generator, what it yields.
    """
    if isinstance(manager, Sequence) and manager.is_open and manager.items:
        return choice_of_values(manager.items)
    return manager


def _decorator_only_registers_function(function: Function) -> bool:
    """Does a decorator of the project only register the function, so that calls go to the function itself?"""
    return not function.definition.args.args


def _bind_method(function: Function, receiver: Value) -> Function:
    """The function as a method of an object."""
    if _has_decorator(function, "staticmethod"):
        return function
    return Function(
        function.definition,
        function.home,
        function.scope,
        function.decorators,
        receiver,
        function.owner,
        function.defaults,
        node=function.node,
    )


def _has_decorator(function: Function, *names: str) -> bool:
    """Has it one of these decorators?"""
    return any(isinstance(one, Library) and one.name in names for one in function.decorators)


def _scope_seen_by(function: Function) -> Scope:
    """The names around a function; those of a class body are not seen by its methods."""
    scope = function.scope
    is_class_body = function.owner is not None and scope.names is function.owner.namespace
    return scope.parent if is_class_body and scope.parent is not None else scope


def _class_and_bases(made: Class) -> list[Class]:
    """The class and its bases of the project, the nearest first."""
    linear: list[Class] = []
    waiting = [made]
    while waiting:
        one = waiting.pop(0)
        if one not in linear:
            linear.append(one)
            waiting = [base for base in one.bases if isinstance(base, Class)] + waiting
    return linear


def library_bases(made: Class) -> tuple[str, ...]:
    """The qualified names of the classes of libraries that a class of the project derives from."""
    return tuple(
        base.name
        for one in _class_and_bases(made)
        for base in one.bases
        if isinstance(base, Library) and base.name != "object"
    )


def _find_method(made: Class, name: str) -> Function | None:
    """The method of that name of a class or its bases."""
    for one in _class_and_bases(made):
        value = one.namespace.get(name)
        if isinstance(value, Function):
            return value
    return None


def _methods_of(made: Class) -> list[Function]:
    """The methods of a class and its bases, each name once."""
    methods: dict[str, Function] = {}
    for one in _class_and_bases(made):
        for name, value in one.namespace.items():
            if isinstance(value, Function):
                methods.setdefault(name, value)
    return list(methods.values())


def _annotated_names_bases_first(made: Class) -> list[str]:
    """The annotated names of a class, those of its bases first."""
    names: dict[str, None] = {}
    for one in reversed(_class_and_bases(made)):
        names.update(dict.fromkeys(one.fields))
    return list(names)


def _has_dataclass_like_constructor(made: Class, bases: tuple[str, ...]) -> bool:
    """Is its constructor made of its annotated names?"""
    names = [
        one.call.names[0]
        if isinstance(one, Result) and one.call.names
        else getattr(one, "name", "")
        for part in _class_and_bases(made)
        for one in part.decorators
    ]
    is_dataclass = any(name.rpartition(".")[2] in ("dataclass", "define") for name in names)
    is_model = any(base.rpartition(".")[2] in FILLED_CLASSES for base in bases)
    return is_dataclass or is_model or (not bases and bool(made.fields))


def _qualified_names_of_inherited_method(receiver: Value, name: str) -> tuple[str, ...]:
    """The qualified names of a method that an object of the project inherits from a library."""
    if isinstance(receiver, Instance):
        return tuple(f"{base}.{name}" for base in library_bases(receiver.made_of))
    return ()


def _is_class_indexed_by_types(name: str) -> bool:
    """Is it a class, so that an index is about types (`list[int]`) and gives no item?"""
    last = name.rpartition(".")[2]
    return last[:1].isupper() or name in ("list", "dict", "tuple", "set", "type", "frozenset")


def _item_of_constant_if_known(plain: Any, key: Hashable | None) -> Value | None:
    """A character of a text and the like; None where it is not known."""
    if key is None:
        return None
    try:
        return plain_to_value(plain[key])
    except (TypeError, LookupError):
        return None


def _unwrap_partial(value: Value) -> Value:
    """The function that a `functools.partial` calls in the end."""
    while isinstance(value, Partial):
        value = value.function
    return value


def _arguments_of_callback(value: Function | Partial, event: CallEvent) -> Arguments:
    """What a library gives to a function that it was handed."""
    if event.named(*STARTERS):
        return _arguments_of_started_process(event)
    if event.method in ("submit", "apply_async", "run_in_executor"):
        return Arguments(event.args[1:], {})
    if event.method in ("map", "filter") and event.receiver is not None:
        return _arguments_given_to_mapped_function(event, event.receiver)
    if event.named("map", "filter") and len(event.args) > 1:
        return Arguments((representative_element_of_iterable(event.args[1]),), {})
    function = _unwrap_partial(value)
    if not isinstance(function, Function):
        return Arguments((), {})
    return Arguments(_library_filled_parameters_without_default(function, event), {})


def _are_methods_known_to_run(value: Value) -> bool:
    """Is it a value whose methods the run knows, or looks up by the name of a library?"""
    return isinstance(value, Instance | Mapping | Sequence | Library | ProjectModule | Class)


def _mark_lists_of_choice_open(options: Iterable[Value]) -> None:
    """Open the lists among values of which a method is called: which of them it changes is not known.

    `(rest if is_bias else decay).append(p)`
    """
    for one in options:
        if isinstance(one, Sequence):
            one.is_open = True


def _arguments_of_started_process(event: CallEvent) -> Arguments:
    """What a process or thread that is started gives to its function: its rank, and `args=`."""
    args_argument = event.keywords.get("args", event.args[1] if len(event.args) > 1 else None)
    known = tuple(args_argument.items) if isinstance(args_argument, Sequence) else ()
    rank = (Unknown("a rank"),) if event.named("torch.multiprocessing.spawn") else ()
    return Arguments((*rank, *known), {}, not isinstance(args_argument, Sequence))


def _arguments_given_to_mapped_function(event: CallEvent, holder: Value) -> Arguments:
    """What `rows.map(f, fn_kwargs=...)`, `rows.filter(f)` and `pool.map(f, rows)` give to their function."""
    keywords = event.keywords.get("fn_kwargs")
    entries = keywords.entries if isinstance(keywords, Mapping) else {}
    rows = event.args[1] if len(event.args) > 1 and event.method == "map" else holder
    return Arguments(
        (representative_element_of_iterable(rows),), {str(key): one for key, one in entries.items()}
    )


def _library_filled_parameters_without_default(
    function: Function, event: CallEvent
) -> tuple[Value, ...]:
    """One parameter that the library fills for each without a default."""
    positional = [*function.definition.args.posonlyargs, *function.definition.args.args]
    is_bound = function.receiver is not None
    wanted = [one.arg for one in positional[1 if is_bound else 0 :]]
    return tuple(
        Parameter(name, position, function, event, node=function.definition)
        for position, name in enumerate(wanted)
        if name not in function.defaults
    )


@cache
def _is_replaced_in_loop(loop: ast.For | ast.AsyncFor | ast.While, target: str) -> bool:
    """Does a pass of a loop replace a name or attribute, by anything but `+=` and the like?"""
    return any(
        ast.unparse(one) == target
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for one in node.targets
    )


def _is_known_number(value: Value) -> bool:
    """Is it a number that is written, or follows from what is written?"""
    return isinstance(value, Constant) and type(value.value) in (int, float)
