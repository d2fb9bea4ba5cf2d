"""Says in which order a list's rows are: by which sorts and shuffles they have gone, from where
they are read to where they are used.

Only the order is followed, not the values: the rows of a list that a loop fills come in the order
of what the loop goes over, whatever else takes part in making them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
UNORDERED = ("concurrent.futures.as_completed", "asyncio.as_completed", "asyncio.wait")
UNORDERED_METHODS = frozenset(("imap_unordered",))
SAME_ORDER = (
    "list",
    "tuple",
    "iter",
    "enumerate",
    "zip",
    "map",
    "filter",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "tqdm.rich.tqdm",
)
INDEXED = ("enumerate", "range", "zip")
"""Their items carry the place of each row, by which the order is restored"""
OF_DATASETS = frozenset(("shuffle", "sort"))
OF_FRAMES = frozenset(("sort_values",))
"""Of pandas; `sample(frac=1)` shuffles as well"""
DEPTH = 14
"""Names, calls and loops that one order is followed through"""
READS = frozenset(
    (
        "open",
        "load",
        "loads",
        "load_dataset",
        "load_from_disk",
        "read_csv",
        "read_json",
        "read_parquet",
        "read_table",
        "read_jsonl",
        "read_text",
        "readlines",
        "splitlines",
        "from_list",
        "from_dict",
        "from_pandas",
        "range",
    )
)
"""Functions that read rows, by the last part of their name"""
READS_FROM = ("_rows", "_data", "_dataset", "_examples")
"""How functions of one's own are called that read rows, where their bodies are not in the file"""
RESTORES = ("argsort", "sort_index(", "original_order", "inverse", "restore", "unsort")
"""Signs that answers are put back in order"""


READ_HERE = "<rows are read here>"


class OrderTrace(NamedTuple):
    """The way of a list's rows through a file."""

    changes: frozenset[ast.AST]
    """The calls that change their order"""
    roots: frozenset[str]
    """READ_HERE, and the names that the file does not explain: `rows` of a script that a notebook fills"""

    def begins_at_same_source_as(self, other: OrderTrace) -> bool:
        """Are both followed to where rows are read, or to one name?

        Where neither holds, a step in between is not understood, or a list is handed in, as a
        trainer hands answers to a reward function: the order of the one says nothing of the other.
        """
        return bool(self.roots & other.roots)


class RowOrders:
    """The orders of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._in_place = _in_place_reorderings_by_name(module)

    def order_trace_of(self, node: ast.expr) -> OrderTrace:
        """The calls that change the order of a list's rows on the way to this place, and where the
        way begins.
        """
        changes: set[ast.AST] = set()
        roots: set[str] = set()
        seen: set[ast.AST] = set()
        waiting: list[tuple[ast.AST, int]] = [(node, 0)]
        while waiting:
            part, depth = waiting.pop()
            if part in seen or depth > DEPTH:
                continue
            seen.add(part)
            changed, sources = self._changes_and_sources(part)
            if self._is_source_of_rows(part):
                roots.add(READ_HERE)
            elif isinstance(part, ast.Name) and not sources:
                roots.add(part.id)
            changes.update(changed)
            waiting += [(source, depth + 1) for source in sources]
        return OrderTrace(frozenset(changes), frozenset(roots))

    def _is_source_of_rows(self, node: ast.AST) -> bool:
        """Do rows begin here: in a file, a data set, or a list that is written out?"""
        if isinstance(node, ast.List | ast.Tuple):
            return bool(node.elts)
        if not isinstance(node, ast.Call):
            return False
        name = self.module.flow.name(node.func) or ast.unparse(node.func)
        return name.rpartition(".")[2] in READS or name.endswith(READS_FROM)

    def _changes_and_sources(self, node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
        """What changes the order here, and what the rows come from."""
        if isinstance(node, ast.Name):
            return self._changes_and_sources_of_name(node)
        if isinstance(node, ast.Call):
            return self._changes_and_sources_of_call(self.module.flow.call(node))
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            first = node.generators[0]
            return [], self._lists_iterated_by_loop(first.iter, first.target, node.elt)
        if isinstance(node, ast.Subscript | ast.Attribute | ast.Starred):
            return [], [node.value]
        if isinstance(node, ast.BinOp):
            return [], [node.left, node.right]
        return [], []

    def _changes_and_sources_of_name(self, name: ast.Name) -> tuple[list[ast.AST], list[ast.AST]]:
        """The changes of order that stand behind a name, and what its rows come from."""
        module = self.module
        sources: list[ast.AST] = []
        for origin in module.flow.origins(name):
            if origin.element or origin.node is name or not isinstance(origin.node, ast.expr):
                continue
            sources.append(origin.node)
            if isinstance(origin.node, ast.List) and not origin.node.elts:
                sources += self._iterables_filling_list(name)
                sources += self._iterables_filling_returned_list(name, origin.node)
        line = name.lineno
        changes = self._in_place.get((module.scopes.scope_that_binds_name(name), name.id), [])
        return [call for call in changes if call.lineno < line], sources

    def _iterables_filling_list(self, name: ast.Name) -> list[ast.AST]:
        """What the loops that fill a list go over."""
        sources: list[ast.AST] = []
        for added in self.module.expressions_added_to_variable(name):
            loops = [one for one in self.module.parents(added) if isinstance(one, ast.For)]
            for loop in loops:
                sources += self._lists_iterated_by_loop(loop.iter, loop.target, loop)
            if not loops:
                sources.append(added)
        return sources

    def _iterables_filling_returned_list(self, name: ast.Name, empty: ast.List) -> list[ast.AST]:
        """What the loops of a function go over that fills a list and gives it back."""
        bound = self.module.scopes.parent.get(empty)
        target = bound.targets[0] if isinstance(bound, ast.Assign) else None
        if not isinstance(target, ast.Name):
            return []
        is_same_place = self.module.scopes.scope_that_binds_name(
            target
        ) is self.module.scopes.scope_that_binds_name(name)
        return [] if is_same_place else self._iterables_filling_list(target)

    def _lists_iterated_by_loop(
        self, iterated: ast.expr, target: ast.expr, body: ast.AST
    ) -> list[ast.AST]:
        """What a loop goes over; where it counts (`range`), the lists that it takes rows from by
        the number.
        """
        inner = _iterable_without_wrappers(self.module, iterated)
        is_range = isinstance(inner, ast.Call) and self.module.flow.name(inner.func) == "range"
        if not is_range:
            return [iterated]
        numbers = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        by_number: list[ast.AST] = [
            part.value
            for part in ast.walk(body)
            if isinstance(part, ast.Subscript) and _reads_any_name(part.slice, numbers)
        ]
        # `{k: v[i] for k, v in encoded.items()}`: what has columns is not the list of the rows, but it is as long.
        columns = _names_bound_by_comprehensions(body)
        lists = [one for one in by_number if ast.unparse(one) not in columns]
        return lists or _lists_counted_by_range(self.module, inner)

    def _changes_and_sources_of_call(self, call: Call) -> tuple[list[ast.AST], list[ast.AST]]:
        """The changes of order that a call makes, and what its rows come from."""
        by_function = self._changes_and_sources_of_known_function(call)
        if by_function is not None:
            return by_function
        module, node = self.module, call.node
        if call.method == "predict" and _does_trainer_group_by_length(module, call):
            return [node], list(node.args[:1])
        if call.receiver is not None and _reorders_rows(module, call):
            return [node], [call.receiver]
        if call.method in UNORDERED_METHODS:
            return [node], []
        return [], self._sources_of_call(call)

    def _changes_and_sources_of_known_function(
        self, call: Call
    ) -> tuple[list[ast.AST], list[ast.AST]] | None:
        """The changes of order that a function known by its name makes, and what its rows come
        from; None of any other function.
        """
        module, node = self.module, call.node
        first: list[ast.AST] = list(node.args[:1])
        if call.named("sorted", "set", "frozenset", *UNORDERED):
            inner = _iterable_without_wrappers(module, node.args[0]) if node.args else None
            is_indexed = isinstance(inner, ast.Call) and module.flow.name(inner.func) in INDEXED
            return ([], []) if is_indexed else ([node], first)
        if call.named("reversed"):
            return [node], first
        if call.named(*LOADERS):
            shuffled = module.flow.value(call.argument(2, "shuffle")) is True
            return ([node] if shuffled else []), first
        if call.named(*SAME_ORDER):
            return [], list(node.args)
        return None

    def _sources_of_call(self, call: Call) -> list[ast.AST]:
        """What an ordinary call takes its rows from: the object of a method, or what it is given."""
        sources: list[ast.AST] = list(
            self.module.flow.returned_expressions_by_function.get(
                _called_function(self.module, call), ()
            )
        )
        if sources:
            return sources
        if call.receiver is not None and call.method not in ("decode", "batch_decode", "generate"):
            sources.append(call.receiver)
        sources += call.node.args[:1]
        sources += [keyword.value for keyword in call.node.keywords if keyword.arg is None]
        return sources


def _reads_any_name(expression: ast.expr, names: set[str]) -> bool:
    """Does one of these names stand in an expression?"""
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(expression))


def _reorders_rows(module: Module, call: Call) -> bool:
    """Does a method give the rows of a data set or a frame in another order?"""
    if call.method in OF_DATASETS:
        return "dataset" in module.flow.types(call.receiver)
    return call.method in OF_FRAMES or (call.method == "sample" and "frac" in call.keywords)


def _does_trainer_group_by_length(module: Module, call: Call) -> bool:
    """Does the trainer group rows by length? Its evaluation loader then does so as well
    (transformers 5.23).
    """
    trainer = module.flow.producing_call(call.receiver) if call.receiver is not None else None
    settings = trainer.argument(1, "args") if trainer is not None else None
    arguments = module.flow.producing_call(settings) if settings is not None else None
    if trainer is None or arguments is None or "trainer" not in module.flow.types(trainer.node):
        return False
    strategy = module.flow.value(arguments.keywords.get("train_sampling_strategy"))
    grouped = module.flow.value(arguments.keywords.get("group_by_length"))
    return grouped is True or strategy == "group_by_length"


def _called_function(module: Module, call: Call) -> ast.AST:
    """The function of the file that a call runs; the call itself where it runs none of the file."""
    function = (
        module.flow.function_that_expression_names(call.node.func) if not call.names else None
    )
    return function if function is not None else call.node


def _names_bound_by_comprehensions(body: ast.AST) -> set[str]:
    """The names that comprehensions inside of a body bind."""
    loops = [part for part in ast.walk(body) if isinstance(part, ast.comprehension)]
    return {
        part.id for loop in loops for part in ast.walk(loop.target) if isinstance(part, ast.Name)
    }


def _lists_counted_by_range(module: Module, counted: ast.expr) -> list[ast.AST]:
    """The lists whose positions a range counts: `frame` of `range(len(frame))`."""
    return [
        part.args[0]
        for part in ast.walk(counted)
        if isinstance(part, ast.Call) and part.args and module.flow.name(part.func) == "len"
    ]


def _iterable_without_wrappers(module: Module, iterated: ast.expr) -> ast.expr:
    """What a loop iterates, without `tqdm(...)` and `list(...)` around it."""
    while isinstance(iterated, ast.Call) and iterated.args:
        name = module.flow.name(iterated.func) or ""
        if name not in ("list", "tuple") and not name.startswith("tqdm"):
            break
        iterated = iterated.args[0]
    return iterated


def _in_place_reorderings_by_name(module: Module) -> dict[tuple[object, str], list[ast.Call]]:
    """Scope and name -> the calls that sort or shuffle the list in place."""
    sorts: dict[tuple[object, str], list[ast.Call]] = {}
    calls: Iterator[tuple[ast.Call, ast.expr | None]] = (
        (call.node, call.receiver)
        for call in module.methods("sort", "reverse")
        if isinstance(module.scopes.parent.get(call.node), ast.Expr)
    )
    shuffles = ((call.node, call.argument(0, "x")) for call in module.calls(*SHUFFLES))
    for node, rows in (*calls, *shuffles):
        if isinstance(rows, ast.Name):
            sorts.setdefault((module.scopes.scope_that_binds_name(rows), rows.id), []).append(node)
    return sorts
