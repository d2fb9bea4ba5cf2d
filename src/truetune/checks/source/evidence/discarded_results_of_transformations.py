"""Finds statements that transform rows, a table or a text and throw away what they return, while
the object is used as it was.

How it works: each statement that is nothing but a call is looked at. The method must be one that
gives a new object and leaves its own as it was; the object must be known as a data set, a table of
pandas or a text; and its name must be used again with the value that it had.

The trade-off: a statement may be there for what its function does (counting, printing, filling a
cache), or, as the last one of a notebook's cell, to be looked at. Where that is possible nothing is
said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

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


class DroppedTransformation(NamedTuple):
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


def statements_of_pure_methods(module: Module) -> Iterator[ast.Call]:
    """Statements that are nothing but a call of a method that returns a new object, by the method's
    name.
    """
    for node in module.nodes(ast.Expr):
        call = node.value
        if (
            isinstance(call, ast.Call)
            and _called_name(call) in RESHAPING | FRAME_METHODS | TEXT_METHODS | JOINER_NAMES
        ):
            yield call


def dropped_transformations(module: Module) -> Iterator[DroppedTransformation]:
    """The transformations of a file whose result is thrown away and whose object is used as it was."""
    for node in statements_of_pure_methods(module):
        call = module.flow.call(node)
        if _is_tried_for_an_error(module, node):
            continue
        kind = _transformed_kind(module, call)
        root = _root_of_chain(node) if kind else None
        if kind is None or root is None or _callback_has_side_effects(module, call):
            continue
        if _ends_notebook_cell(module, node) or _is_also_done_with_result_kept(module, node):
            continue
        used = _later_use_unchanged(module, node, root)
        if used is not None:
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else node
            simple = (
                isinstance(receiver, ast.Name | ast.Subscript | ast.Attribute)
                and _called_name(node) != "train_test_split"
            )
            yield DroppedTransformation(node, kind, module.text_of(root), used, simple)


def _called_name(call: ast.Call) -> str:
    """The last name of what is called; empty where it has none."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _transformed_kind(module: Module, call: Call) -> str | None:
    """What a call transforms without changing it: rows, table, text; None where that is not known."""
    if call.named(*JOINERS):
        return "rows"
    receiver, method = call.receiver, call.method
    if receiver is None or method is None:
        return None
    types = module.flow.types(receiver)
    if types:
        return "rows" if method in RESHAPING and types == {"dataset"} else None
    return _transformed_kind_by_maker(module, call, receiver, method)


def _transformed_kind_by_maker(
    module: Module, call: Call, receiver: ast.expr, method: str
) -> str | None:
    """What a call transforms (rows, table, text), by how the object was made; None where that is
    not known.
    """
    if is_table(module, receiver):
        return "table" if method in FRAME_METHODS and not _is_in_place(module, call) else None
    if method in ONLY_OF_DATASETS or (method == "map" and MAP_ARGUMENTS & call.keywords.keys()):
        return None if _is_of_project_class(module, receiver) else "rows"
    return "text" if method in TEXT_METHODS and _is_text_on_every_way(module, receiver) else None


def _is_of_project_class(module: Module, receiver: ast.expr) -> bool:
    """Is the object of a class of the project, whose methods may do anything?"""
    call = module.flow.producing_call(receiver)
    is_class = call is not None and any(
        node.name == _called_name(call.node) for node in module.nodes(ast.ClassDef)
    )
    is_self = isinstance(receiver, ast.Name) and receiver.id in ("self", "cls")
    return is_class or is_self


def is_table(module: Module, node: ast.expr, depth: int = 0) -> bool:
    """Is it a table of pandas, or a column of one, on every way?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(_is_table_origin(module, one.node, depth) for one in origins)


def _is_table_origin(module: Module, node: ast.AST, depth: int) -> bool:
    """Does an expression make a table, or is it a part or method of one?"""
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
    """Does a call change the table in place: `inplace=True`, or a value that is not known?"""
    inplace_argument = call.keywords.get("inplace")
    return None in call.keywords or (
        inplace_argument is not None and module.flow.value(inplace_argument) is not False
    )


def _is_text_on_every_way(module: Module, node: ast.expr) -> bool:
    """Is it a text on every way?"""
    origins = module.flow.origins(node)
    return bool(origins) and all(_is_text_origin(module, one.node) for one in origins)


def _is_text_origin(module: Module, node: ast.AST) -> bool:
    """Is an expression a text by its very form: a constant, an f-string, a call of `str`?"""
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
        return node.func.attr in (
            "join",
            "format",
            "apply_chat_template",
        ) and _is_text_on_every_way(module, node.func.value)
    return False


def _root_of_chain(call: ast.Call) -> ast.expr | None:
    """The name or `self.name` that a chain of methods begins with; of `concatenate_datasets` its
    first set; None for other objects.
    """
    node: ast.expr | None = call.func
    if isinstance(node, ast.Name) or _called_name(call) in JOINER_NAMES:
        return _first_concatenated_data_set(call)
    for _ in range(MAX_CHAIN):
        if node is None or isinstance(node, ast.Name) or _is_attribute_of_self(node):
            return node
        node = _previous_in_chain(node)
    return None


def _first_concatenated_data_set(call: ast.Call) -> ast.Name | None:
    """The name of the first set in the list that `concatenate_datasets` is given."""
    sets = call.args[0] if call.args else None
    first = sets.elts[:1] if isinstance(sets, ast.List | ast.Tuple) else []
    return first[0] if first and isinstance(first[0], ast.Name) else None


def _is_attribute_of_self(node: ast.expr) -> bool:
    """Is it an attribute of `self`?"""
    return isinstance(node, ast.Attribute) and _is_self_name(node.value)


def _previous_in_chain(node: ast.expr) -> ast.expr | None:
    """What an attribute, an item or a transformation is taken of; None for anything else."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return node.value
    transforming = RESHAPING | FRAME_METHODS | TEXT_METHODS
    if isinstance(node, ast.Call) and _called_name(node) in transforming:
        return node.func
    return None


def _callback_has_side_effects(module: Module, call: Call) -> bool:
    """Does the function that is given do something beside its result: count, print, write?"""
    arguments = [*call.args, *call.keywords.values()]
    return call.method in ("map", "filter", "apply") and any(
        _function_has_side_effects(module, one) for one in arguments
    )


def _function_has_side_effects(module: Module, expression: ast.expr) -> bool:
    """Does a function of the file change or show what is not its own, or is it a method of an
    object that may remember?
    """
    function = module.flow.function_that_expression_names(expression)
    if function is None:
        # What another module or an object does is not known; a name that nothing defines is no function of this file.
        return (
            isinstance(expression, ast.Attribute)
            and isinstance(expression.ctx, ast.Load)
            and _is_method_with_side_effects(expression)
        )
    own = {
        part.id
        for part in ast.walk(function)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    own |= {argument.arg for argument in function.args.args}
    return any(_is_side_effect(part, own) for part in ast.walk(function))


def _is_method_with_side_effects(node: ast.Attribute) -> bool:
    """Is it a method of an object that may remember, by its name: `counter.add`?"""
    return node.attr in SIDE_EFFECTS


def _is_side_effect(part: ast.AST, own: set[str]) -> bool:
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
    return _called_name(part) in ("print", "open")


def _is_tried_for_an_error(module: Module, node: ast.AST) -> bool:
    """Is the statement in a `try` or `raises` block, only to see whether it raises?"""
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


def _ends_notebook_cell(module: Module, node: ast.Call) -> bool:
    """Is a call the last line of a notebook's cell, where its value is displayed?"""
    if not module.cells or _called_name(node) not in LOOKED_AT:
        return False
    body = module.tree.body
    place = next(
        (at for at, one in enumerate(body) if isinstance(one, ast.Expr) and one.value is node), None
    )
    if place is None:
        return False
    return place + 1 == len(body) or _cell_name(module, body[place + 1]) != _cell_name(module, node)


def _cell_name(module: Module, node: ast.AST) -> str:
    """The cell of a notebook that a node stands in, as text; empty outside of notebooks."""
    return (module.describe_cell_and_line_of_node(node) or "").partition(",")[0]


def _is_also_done_with_result_kept(module: Module, node: ast.Call) -> bool:
    """Is the same done elsewhere with the result kept? Then this one fills a cache, or shows what
    comes.
    """
    same = (
        other.node
        for other in module.all_calls
        if other.node is not node
        and _called_name(other.node) == _called_name(node)
        and other.node.args[:1]
    )
    first = ast.dump(node.args[0]) if node.args else None
    return any(
        not isinstance(module.scopes.parent.get(other), ast.Expr)
        and ast.dump(other.args[0]) == first
        for other in same
    )


def _later_use_unchanged(module: Module, node: ast.Call, root: ast.expr) -> ast.AST | None:
    """The first use of the object after the statement, before its name gets another value; None
    where there is none.
    """
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    for read in _reads_of_same_value(module, root):
        is_later = (read.lineno, read.col_offset) >= end
        if is_later and _is_use_of_content(module, read):
            return read
    return None


def _reads_of_same_value(module: Module, root: ast.expr) -> Iterator[ast.expr]:
    """The reads of a name while it has the value of `root`; of `self.name`, all reads of it."""
    if isinstance(root, ast.Attribute):
        for attribute in module.nodes(ast.Attribute):
            is_read = attribute.attr == root.attr and isinstance(attribute.ctx, ast.Load)
            if is_read and _is_self_name(attribute.value):
                yield attribute
    if isinstance(root, ast.Name):
        bound = set(module.scopes.bindings_that_reach(root))
        for name in module.name_reads.get(root.id, []):
            if bound & set(module.scopes.bindings_that_reach(name)):
                yield name


def _is_self_name(node: ast.expr) -> bool:
    """Is it the name `self`?"""
    return isinstance(node, ast.Name) and node.id == "self"


def _is_use_of_content(module: Module, read: ast.expr) -> bool:
    """Does a read of a name use the object's content, and not only show it or drop another
    transformation of it?
    """
    for parent in module.parents(read):
        if (
            isinstance(parent, ast.Call)
            and _called_name(parent) in SHOWN_BY
            and read is not parent.func
        ):
            return False
        if isinstance(parent, ast.Expr):
            value = parent.value
            is_call = (
                isinstance(value, ast.Call)
                and _called_name(value) not in RESHAPING | FRAME_METHODS | TEXT_METHODS
            )
            return is_call
        if isinstance(parent, ast.stmt):
            return True
    return False
