"""Statements that transform rows, a table or a text, and throw away what they return.

How it works: each statement that is nothing but a call is looked at. The method must be one that gives a new object and
leaves its own as it was; the object must be known as a data set, a table of pandas or a text; and its name must be used
again with the value that it had.

The trade-off: a statement may be there for what its function does (counting, printing, filling a cache), or, as the
last one of a notebook's cell, to be looked at. Where that is possible nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.resolved_calls import Call

RESHAPING = frozenset(
    (
        "map", "filter", "rename_column", "rename_columns", "remove_columns", "select_columns", "add_column", "cast",
        "cast_column", "class_encode_column", "flatten", "train_test_split", "select", "shuffle", "sort", "shard",
        "take", "skip", "with_format", "with_transform", "batch",
    )
)  # fmt: skip
"""Methods of datasets.Dataset and DatasetDict that give a new set"""
ONLY_OF_DATASETS = frozenset(
    ("rename_column", "rename_columns", "remove_columns", "select_columns", "cast_column", "class_encode_column")
)  # fmt: skip
"""Names that no other usual class has: the object needs no known type"""
MAP_ARGUMENTS = frozenset(
    ("batched", "remove_columns", "num_proc", "fn_kwargs", "load_from_cache_file", "desc")
)
"""Arguments that `map` of a data set alone has; that of a pool has none of them"""
FRAME_METHODS = frozenset(
    (
        "dropna", "drop_duplicates", "drop", "rename", "replace", "fillna", "sample", "sort_values", "reset_index",
        "query", "assign", "merge", "join", "explode", "astype", "apply", "map", "head", "filter", "melt", "set_index",
    )
)  # fmt: skip
"""Methods of pandas that give a new table or column, unless `inplace=True` is given"""
FRAME_MAKERS = (
    "pandas.read_*",
    "pandas.DataFrame",
    "pandas.DataFrame.from_*",
    "pandas.concat",
    "pandas.merge",
)
TEXT_METHODS = frozenset(
    (
        "strip", "lstrip", "rstrip", "lower", "upper", "replace", "format", "removeprefix", "removesuffix", "title",
        "casefold", "capitalize",
    )
)  # fmt: skip
"""Methods of a text; all texts are immutable"""
JOINERS = ("datasets.concatenate_datasets", "datasets.interleave_datasets")
LOOKED_AT = frozenset(
    (
        "select", "shuffle", "sort", "take", "skip", "sample", "head", "sort_values", "query", "filter", "dropna",
        "drop_duplicates", "merge", "join", "train_test_split", "shard", "apply", "explode", "melt", "flatten", "batch",
        "with_format", "with_transform", "set_index", "reset_index",
    )
)  # fmt: skip
"""What the last line of a cell may be there to show: a few rows, or how many are left"""
SHOWN_BY = frozenset(("print", "len", "display", "type", "repr", "str"))
"""Functions whose use of a name proves no work with it"""
SIDE_EFFECTS = frozenset(
    (
        "append",
        "extend",
        "add",
        "update",
        "write",
        "writelines",
        "put",
        "increment",
        "print",
        "setdefault",
        "insert",
    )
)
JOINER_NAMES = frozenset(name.rpartition(".")[2] for name in JOINERS)
MAX_CHAIN = 20
"""Methods in a chain that are gone back through"""
MAX_ORIGINS = 4
"""Steps back to what made a table"""


class Dropped(NamedTuple):
    """A transformation whose result nothing takes."""

    call: ast.Call
    kind: str
    """rows, table or text"""
    name: str
    """What the object is called in the script"""
    used: ast.AST
    """Where the untransformed object is used next"""
    can_be_assigned: bool
    """Can the result be given to the same name?"""


def pure_statements(module: Module) -> Iterator[ast.Call]:
    """Statements that are a call of a method with one of the names, and nothing else."""
    for node in module.nodes(ast.Expr):
        call = node.value
        if (
            isinstance(call, ast.Call)
            and _name_of(call) in RESHAPING | FRAME_METHODS | TEXT_METHODS | JOINER_NAMES
        ):
            yield call


def dropped_transformations(module: Module) -> Iterator[Dropped]:
    """The transformations of a file whose result is thrown away and whose object is used as it was."""
    for node in pure_statements(module):
        call = module.flow.call(node)
        if _is_tried(module, node):
            continue
        kind = _kind(module, call)
        root = _root(node) if kind else None
        if kind is None or root is None or _acts_on_others(module, call):
            continue
        if _is_shown(module, node) or _is_repeated(module, node):
            continue
        used = _used_unchanged(module, node, root)
        if used is not None:
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else node
            simple = (
                isinstance(receiver, ast.Name | ast.Subscript | ast.Attribute)
                and _name_of(node) != "train_test_split"
            )
            yield Dropped(node, kind, module.text_of(root), used, simple)


def _name_of(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _kind(module: Module, call: Call) -> str | None:
    """What a call transforms without changing it: rows, table, text; None where that is not known."""
    if call.named(*JOINERS):
        return "rows"
    receiver, method = call.receiver, call.method
    if receiver is None or method is None:
        return None
    types = module.flow.types(receiver)
    if types:
        return "rows" if method in RESHAPING and types == {"dataset"} else None
    return _kind_by_making(module, call, receiver, method)


def _kind_by_making(module: Module, call: Call, receiver: ast.expr, method: str) -> str | None:
    """The same by how the object was made, where its type is not known."""
    if is_table(module, receiver):
        return "table" if method in FRAME_METHODS and not _is_in_place(module, call) else None
    if method in ONLY_OF_DATASETS or (method == "map" and MAP_ARGUMENTS & call.keywords.keys()):
        return None if _is_made_here(module, receiver) else "rows"
    return "text" if method in TEXT_METHODS and _is_text(module, receiver) else None


def _is_made_here(module: Module, receiver: ast.expr) -> bool:
    """Is the object of a class of the project, whose methods may do anything?"""
    made = module.flow.producing_call(receiver)
    is_class = made is not None and any(
        node.name == _name_of(made.node) for node in module.nodes(ast.ClassDef)
    )
    is_self = isinstance(receiver, ast.Name) and receiver.id in ("self", "cls")
    return is_class or is_self


def is_table(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Is it a table of pandas, or a column of one, on every way?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(_is_table_origin(module, one.node, depth) for one in origins)


def _is_table_origin(module: Module, node: ast.AST, depth: int) -> bool:
    """Is it what makes a table, or a part or method of one?"""
    if depth > MAX_ORIGINS:
        return False
    if isinstance(node, ast.Subscript):
        return is_table(module, node.value, depth + 1)
    if isinstance(node, ast.Attribute):
        return node.attr == "str" and is_table(module, node.value, depth + 1)
    if not isinstance(node, ast.Call):
        return False
    call = module.flow.call(node)
    if call.named(*FRAME_MAKERS) or call.method == "to_pandas":
        return True
    is_frame_method = call.method in FRAME_METHODS or call.method == "copy"
    return (
        is_frame_method and call.receiver is not None and is_table(module, call.receiver, depth + 1)
    )


def _is_in_place(module: Module, call: Call) -> bool:
    """`inplace=True`, or a value that is not known."""
    given = call.keywords.get("inplace")
    return None in call.keywords or (given is not None and module.flow.value(given) is not False)


def _is_text(module: Module, node: ast.expr) -> bool:
    """Is it a text on every way?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(_is_text_origin(module, one.node) for one in origins)


def _is_text_origin(module: Module, node: ast.AST) -> bool:
    """Is it a text by its very form?"""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (
            _is_text_origin(module, node.left) or _is_text_origin(module, node.right)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # `"\n".join(...)` and `template.format(...)`; `replace` is a method of paths as well.
        return node.func.attr in ("join", "format", "apply_chat_template") and _is_text(
            module, node.func.value
        )
    return False


def _root(call: ast.Call) -> ast.expr | None:
    """The name or `self.name` whose object a chain of methods begins with; of `concatenate_datasets` its first set."""
    node: ast.expr = call.func
    if isinstance(node, ast.Name) or _name_of(call) in JOINER_NAMES:
        sets = call.args[0] if call.args else None
        first = sets.elts[:1] if isinstance(sets, ast.List | ast.Tuple) else []
        return first[0] if first and isinstance(first[0], ast.Name) else None
    for _ in range(MAX_CHAIN):
        if isinstance(node, ast.Name):
            return node
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            return node
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and _name_of(node) in RESHAPING | FRAME_METHODS | TEXT_METHODS
        ):
            node = node.func
        else:
            return None
    return None


def _acts_on_others(module: Module, call: Call) -> bool:
    """Does the function that is given do something beside its result: count, print, write?"""
    given = [*call.args, *call.keywords.values()]
    return call.method in ("map", "filter", "apply") and any(
        _has_effects(module, one) for one in given
    )


def _has_effects(module: Module, given: ast.expr) -> bool:
    function = module.flow.function(given)
    if function is None:
        # What another module or an object does is not known; a name that nothing defines is no function of this file.
        return (
            isinstance(given, ast.Attribute)
            and isinstance(given.ctx, ast.Load)
            and _is_bound_method(given)
        )
    own = {
        part.id
        for part in ast.walk(function)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    own |= {argument.arg for argument in function.args.args}
    return any(_is_effect(part, own) for part in ast.walk(function))


def _is_bound_method(node: ast.Attribute) -> bool:
    """`counter.add`: the method of an object that may remember."""
    return node.attr in SIDE_EFFECTS


def _is_effect(part: ast.AST, own: set[str]) -> bool:
    """Does a part of a function change or show what is not its own?"""
    if isinstance(part, ast.Global | ast.Nonlocal):
        return True
    if isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
        base: ast.expr = part
        while isinstance(base, ast.Subscript | ast.Attribute):
            base = base.value
        return not (isinstance(base, ast.Name) and base.id in own)
    if not isinstance(part, ast.Call):
        return False
    if isinstance(part.func, ast.Attribute) and part.func.attr in SIDE_EFFECTS:
        base = part.func.value
        return not (isinstance(base, ast.Name) and base.id in own)
    return _name_of(part) in ("print", "open")


def _is_tried(module: Module, node: ast.AST) -> bool:
    """Is the statement there to see whether it raises?"""
    for parent in module.parents(node):
        if isinstance(parent, ast.Try) and node in [
            part for one in parent.body for part in ast.walk(one)
        ]:
            return True
        if isinstance(parent, ast.With) and any(
            "raises" in module.text_of(item) for item in parent.items
        ):
            return True
    return False


def _is_shown(module: Module, node: ast.Call) -> bool:
    """Is it the last line of a notebook's cell, and may be meant to be looked at?"""
    if not module.cells or _name_of(node) not in LOOKED_AT:
        return False
    body = module.tree.body
    place = next(
        (at for at, one in enumerate(body) if isinstance(one, ast.Expr) and one.value is node), None
    )
    if place is None:
        return False
    return place + 1 == len(body) or _cell(module, body[place + 1]) != _cell(module, node)


def _cell(module: Module, node: ast.AST) -> str:
    return (module.cell_of(node) or "").partition(",")[0]


def _is_repeated(module: Module, node: ast.Call) -> bool:
    """Is the same done elsewhere with the result kept? Then this one fills a cache, or shows what comes."""
    same = (
        other.node
        for other in module.all_calls
        if other.node is not node and _name_of(other.node) == _name_of(node) and other.node.args[:1]
    )
    first = ast.dump(node.args[0]) if node.args else None
    return any(
        not isinstance(module.scopes.parent.get(other), ast.Expr)
        and ast.dump(other.args[0]) == first
        for other in same
    )


def _used_unchanged(module: Module, node: ast.Call, root: ast.expr) -> ast.AST | None:
    """Where the object is used behind the statement, before its name gets another value; None where it is not."""
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    if isinstance(root, ast.Attribute):
        reads: list[ast.expr] = [
            one
            for one in module.nodes(ast.Attribute)
            if one.attr == root.attr and isinstance(one.ctx, ast.Load) and _is_self(one.value)
        ]
        later = [one for one in reads if (one.lineno, one.col_offset) >= end]
        return next((one for one in later if _is_work(module, one)), None)
    if not isinstance(root, ast.Name):
        return None
    bound = set(module.scopes.bindings_that_reach(root))
    for read in module.name_reads.get(root.id, []):
        is_later = (read.lineno, read.col_offset) >= end
        if (
            is_later
            and bound & set(module.scopes.bindings_that_reach(read))
            and _is_work(module, read)
        ):
            return read
    return None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_work(module: Module, read: ast.expr) -> bool:
    """Is a use of a name more than a look at it, or another dropped statement?"""
    for parent in module.parents(read):
        if (
            isinstance(parent, ast.Call)
            and _name_of(parent) in SHOWN_BY
            and read is not parent.func
        ):
            return False
        if isinstance(parent, ast.Expr):
            value = parent.value
            is_call = (
                isinstance(value, ast.Call)
                and _name_of(value) not in RESHAPING | FRAME_METHODS | TEXT_METHODS
            )
            return is_call
        if isinstance(parent, ast.stmt):
            return True
    return False
