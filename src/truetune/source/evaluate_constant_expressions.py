"""Evaluates expressions of a script to constants, lists and dictionaries, as far as the file says
what they are.

How it works: the origins of an expression (`data_flow.py`) are evaluated without running any code: literals, a few
operators on them, and dictionaries with the entries that later statements set. Where several origins may reach a
place, they must be equal, and one part that is not known makes the whole UNKNOWN.

The trade-off: nothing of the user's is ever executed, so a value that a call computes is not known; a rule says
nothing about it. UNKNOWN is an object of its own, because None is a value that settings often have.
"""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from truetune.source.data_flow import DataFlow
    from truetune.source.name_bindings_in_scopes import Scope

MAX_NESTED_VALUES = 12
"""Lists in lists, or operators in operators, that are followed. Chosen, not measured: settings nest three or four deep,
and each level costs several calls of Python's stack."""
MAX_COMPUTED_CHARACTERS = 10_000
"""Characters of a text or items of a list that an operator gives: what is longer is not computed. Chosen, not measured:
it is far above any setting, and keeps a script that doubles a text in each line from filling the memory."""
MAX_COMPUTED_NUMBER = 1e15
"""Larger numbers are not computed with: below it floats are exact to a tenth, and no integer grows without end"""


PATHS = frozenset(("pathlib.Path", "pathlib.PurePath", "pathlib.PurePosixPath", "os.path.join"))
"""Calls that join the parts of a path"""
TEXTS_OF_PATHS = frozenset(("str", "os.fspath"))
"""Functions that give a path as text"""
OBJECTS_TO_DICTS = frozenset(("vars", "dataclasses.asdict"))
"""Functions that give the fields of an object as a dictionary"""
METHODS_TO_DICTS = frozenset(("model_dump", "dict", "_asdict"))
"""The same as methods, of pydantic's models and named tuples"""


class _Unknown:
    """Nothing is known of a value."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False


UNKNOWN: Final = _Unknown()
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
NUMBER_CONVERSIONS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "round": round}
"""Functions of one number that scripts compute settings with: `lora_alpha=int(RANK * 0.5)`"""


def evaluate_constant(flow: DataFlow, node: ast.AST, depth: int = 0) -> Any:
    """The constant, list, tuple, set or dictionary that an expression is; UNKNOWN if any part of it
    is not known. If several values may reach the expression, they must be equal.

    Where several values may reach the place, they must be equal.
    """
    if node in flow.known_values or depth > MAX_NESTED_VALUES:
        return flow.known_values.get(node, UNKNOWN)
    flow.known_values[node] = UNKNOWN  # `x = x + 1` in a loop asks for itself
    flow.known_values[node] = _evaluate_common_origin_value(flow, node, depth)
    return flow.known_values[node]


def _evaluate_common_origin_value(flow: DataFlow, node: ast.AST, depth: int) -> Any:
    """The one value that all origins of an expression have; UNKNOWN if they differ or one is not
    known.
    """
    origins = flow.origins(node)
    values: list[Any] = []
    for origin in origins:
        if origin.path or origin.element:
            return UNKNOWN
        # Only under the name that the expression uses are the entries seen that were added to a dictionary later.
        named = node if isinstance(node, ast.Name) and len(origins) == 1 else origin.node
        value = _evaluate_literal(flow, origin.node, depth, named)
        if value is UNKNOWN:
            return UNKNOWN
        values.append(value)
    first = values[0]
    # 1 == True == 1.0, but a setting of one type is not that of another.
    same = all(value == first and type(value) is type(first) for value in values)
    return first if same else UNKNOWN


def _evaluate_literal(flow: DataFlow, node: ast.AST, depth: int, name: ast.AST) -> Any:
    """The value of a literal. `name` is the variable that stands for it, under which a dictionary
    may have got more entries.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return _evaluate_items(flow, node, depth)
    if _is_dict_literal_or_call(flow, node):
        return _evaluate_dict(flow, name, depth)
    if isinstance(node, ast.UnaryOp):
        return _evaluate_unary(node.op, evaluate_constant(flow, node.operand, depth + 1))
    if isinstance(node, ast.JoinedStr):
        return _evaluate_f_string(flow, node, depth)
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        left = evaluate_constant(flow, node.left, depth + 1)
        return _evaluate_binary(node, left, evaluate_constant(flow, node.right, depth + 1))
    if isinstance(node, ast.Call):
        path = _evaluate_path(flow, node, depth)
        return _evaluate_number_conversion(flow, node, depth) if path is UNKNOWN else path
    return UNKNOWN


def _evaluate_f_string(flow: DataFlow, node: ast.JoinedStr, depth: int) -> Any:
    """The text of an f-string whose parts are known texts and whole numbers; UNKNOWN of any other."""
    if not node.values:
        return UNKNOWN  # it stands for what a file of settings leaves open
    text = ""
    for part in node.values:
        is_plain = isinstance(part, ast.Constant) or (
            isinstance(part, ast.FormattedValue)
            and part.format_spec is None
            and part.conversion < 0
        )
        inner = part.value if isinstance(part, ast.FormattedValue) else part
        value = evaluate_constant(flow, inner, depth + 1) if is_plain else UNKNOWN
        if not isinstance(value, str | int) or len(text) > MAX_COMPUTED_CHARACTERS:
            return UNKNOWN
        text += str(value)
    return text


def _evaluate_path(flow: DataFlow, node: ast.Call, depth: int) -> Any:
    """The text of `Path("runs", "sft")`, `str(path)`, `os.path.join(...)` of known texts; UNKNOWN
    of anything else.
    """
    name = flow.name(node.func)
    is_text = name in TEXTS_OF_PATHS and len(node.args) == 1
    if not (is_text or name in PATHS) or node.keywords or not node.args:
        return UNKNOWN
    parts = [evaluate_constant(flow, one, depth + 1) for one in node.args]
    if not all(isinstance(one, str) for one in parts):
        return UNKNOWN
    return parts[0] if is_text else os.path.join(*parts)


def _evaluate_number_conversion(flow: DataFlow, node: ast.Call, depth: int) -> Any:
    """The result of `int(...)`, `float(...)` or `round(...)` of one known number; UNKNOWN of
    anything else.
    """
    convert = NUMBER_CONVERSIONS.get(flow.name(node.func) or "")
    if convert is None or len(node.args) != 1 or node.keywords:
        return UNKNOWN
    value = evaluate_constant(flow, node.args[0], depth + 1)
    is_number = isinstance(value, (int, float)) and abs(value) < MAX_COMPUTED_NUMBER
    return convert(value) if is_number else UNKNOWN


def _is_dict_literal_or_call(flow: DataFlow, node: ast.AST) -> bool:
    """Is it `{...}` or `dict(...)`?"""
    is_call = isinstance(node, ast.Call) and flow.name(node.func) == "dict"
    return is_call or isinstance(node, ast.Dict)


def _evaluate_items(flow: DataFlow, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Any:
    """The list, tuple or frozenset of evaluated items; UNKNOWN where one is not known."""
    items = [evaluate_constant(flow, item, depth + 1) for item in node.elts]
    if any(item is UNKNOWN for item in items):
        return UNKNOWN
    if isinstance(node, ast.List):
        return items
    if isinstance(node, ast.Tuple):
        return tuple(items)
    # A list cannot be in a set, and a script that tries fails by itself.
    return frozenset(
        item for item in items if isinstance(item, (str, int, float, bool, type(None)))
    )


def _evaluate_dict(flow: DataFlow, name: ast.AST, depth: int) -> Any:
    """The dictionary of evaluated entries; UNKNOWN where one is not known, or may be missing."""
    entries, whole = resolve_dict_entries(flow, name)
    values = {key: evaluate_constant(flow, value, depth + 1) for key, value in entries.items()}
    is_known = whole and all(value is not UNKNOWN for value in values.values())
    return values if is_known else UNKNOWN


def _evaluate_unary(operator_: ast.unaryop, value: Any) -> Any:
    """`-x`, `+x` or `not x` of a number; UNKNOWN of anything else."""
    if not isinstance(value, (int, float)):
        return UNKNOWN
    if isinstance(operator_, ast.USub):
        return -value
    if isinstance(operator_, ast.Not):
        return not value
    return value if isinstance(operator_, ast.UAdd) else UNKNOWN


def _evaluate_binary(node: ast.BinOp, left: Any, right: Any) -> Any:
    """The result of an operator on two numbers, or of `+` on two texts or lists; UNKNOWN of
    anything else.
    """
    numbers = all(
        isinstance(value, (int, float)) and abs(value) < MAX_COMPUTED_NUMBER
        for value in (left, right)
    )
    if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
        return os.path.join(left, right)  # two paths, for plain texts can't be divided
    if not numbers and not _is_concatenation_of_short_operands(node, left, right):
        return UNKNOWN
    try:
        return ARITHMETIC[type(node.op)](left, right)
    except ArithmeticError:
        return UNKNOWN


def _is_concatenation_of_short_operands(node: ast.BinOp, left: Any, right: Any) -> bool:
    """Are these two texts or two lists that `+` joins, and short enough?"""
    texts = isinstance(left, str) and isinstance(right, str)
    lists = isinstance(left, list) and isinstance(right, list)
    if not isinstance(node.op, ast.Add) or not (texts or lists):
        return False
    return len(left) + len(right) < MAX_COMPUTED_CHARACTERS


class DictEntries(NamedTuple):
    """The entries of a dictionary, and whether they are all."""

    by_name: dict[str, ast.expr]
    whole: bool


def resolve_dict_entries(flow: DataFlow, node: ast.AST, depth: int = 0) -> DictEntries:
    """The entries with string keys of a dictionary, and whether they are all.

    Of a name, with those set afterwards (`d["x"] = 1`, `d.update(x=1)`) before it is used.
    """
    origins = flow.origins(node)
    if len(origins) != 1 or origins[0].path or origins[0].element or depth > MAX_NESTED_VALUES:
        return DictEntries({}, False)
    literal = origins[0].node
    if isinstance(literal, ast.Dict):
        entries = _entries_of_dict_literal(flow, literal, depth)
    elif isinstance(literal, ast.Call) and flow.name(literal.func) == "dict":
        entries = _entries_of_dict_call(flow, literal, depth)
    else:
        turned = object_turned_into_dict(flow, literal)
        return DictEntries({}, False) if turned is None else flow.fields_of_object(turned)
    if literal is node:
        return entries
    if not isinstance(node, ast.Name):
        # A function that returns a dictionary may set entries before it does.
        return _add_writes_wherever_dict_was_made(flow, literal, entries)
    if flow.scopes.of[literal] is flow.scopes.of[node]:
        return _add_dict_writes_before_use(flow, node, literal, entries)
    return _add_writes_wherever_dict_was_made(flow, literal, entries)


def double_star_entries_without_removed_keys(flow: DataFlow, node: ast.expr) -> DictEntries:
    """The entries that `**d` passes to a call: without those that `d.pop("x")` or `del d["x"]`
    takes out under that name.
    """
    entries = resolve_dict_entries(flow, node)
    if not isinstance(node, ast.Name):
        return entries
    taken = _collect_removed_keys(flow).get((flow.scopes.of[node], node.id))
    if not taken:
        return entries
    left = {key: value for key, value in entries.by_name.items() if key not in taken}
    return DictEntries(left, entries.whole)


def _collect_removed_keys(flow: DataFlow) -> dict[tuple[Scope, str], set[str]]:
    """The keys that are removed from dictionaries, by the scope and the name of the dictionary,
    once per file.
    """
    if flow.keys_taken_out is None:
        flow.keys_taken_out = {}
        for node in flow.scopes.order:
            match node:
                case (
                    ast.Call(
                        func=ast.Attribute(value=ast.Name() as base, attr="pop"),
                        args=[ast.Constant() as key, *_],
                    )
                    | ast.Subscript(
                        value=ast.Name() as base, slice=ast.Constant() as key, ctx=ast.Del()
                    )
                ):
                    taken = flow.keys_taken_out.setdefault((flow.scopes.of[base], base.id), set())
                    taken.add(str(key.value))
    return flow.keys_taken_out


def object_turned_into_dict(flow: DataFlow, node: ast.AST) -> ast.expr | None:
    """The object whose fields `asdict(x)`, `vars(x)`, `x.model_dump()` or `x.__dict__` gives; None for any other."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "__dict__" else None
    if not isinstance(node, ast.Call):
        return None
    if flow.name(node.func) in OBJECTS_TO_DICTS and len(node.args) == 1:
        return node.args[0]
    if not isinstance(node.func, ast.Attribute) or node.args or node.keywords:
        return None
    return node.func.value if node.func.attr in METHODS_TO_DICTS else None


def _entries_of_dict_literal(flow: DataFlow, literal: ast.Dict, depth: int) -> DictEntries:
    """The entries of `{"x": 1, **more}`; later ones replace earlier ones, as in Python."""
    by_name: dict[str, ast.expr] = {}
    whole = True
    for key, value in zip(literal.keys, literal.values, strict=True):
        if key is None:  # `**value`
            if value is literal:
                whole = False
                continue
            more = resolve_dict_entries(flow, value, depth + 1)
            by_name.update(more.by_name)
            whole = whole and more.whole
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            by_name[key.value] = value
        else:
            whole = False
    return DictEntries(by_name, whole)


def _entries_of_dict_call(flow: DataFlow, literal: ast.Call, depth: int) -> DictEntries:
    """The entries of `dict(x=1, **more)`; those of a positional argument are not known."""
    by_name: dict[str, ast.expr] = {}
    whole = not literal.args
    for keyword in literal.keywords:
        if keyword.arg is not None:
            by_name[keyword.arg] = keyword.value
            continue
        more = resolve_dict_entries(flow, keyword.value, depth + 1)
        by_name.update(more.by_name)
        whole = whole and more.whole
    return DictEntries(by_name, whole)


@dataclass(slots=True)
class WrittenDict:
    """A dictionary with what was written to it so far: as it is after the first of the statements that write to its
    name.
    """

    entries: DictEntries
    writes: int
    """Statements that are in it"""
    line: int
    """Where its name was used last"""


def _add_dict_writes_before_use(
    flow: DataFlow, name: ast.Name, literal: ast.Dict | ast.Call, first: DictEntries
) -> DictEntries:
    """The entries with those set between the dictionary's literal and the use of the name.

    Uses come in the order of the text mostly, so what an earlier use found is taken up again: a file that writes and
    uses one dictionary a thousand times is read once.
    """
    scope = flow.scopes.of[name]
    so_far = flow.written_dicts.get((literal, scope, name.id))
    if so_far is None or so_far.line > name.lineno:
        so_far = WrittenDict(first, 0, 0)
    by_name, whole = dict(so_far.entries.by_name), so_far.entries.whole
    writes = _collect_dict_writes_by_name(flow).get((scope, name.id), [])
    number = so_far.writes
    while number < len(writes) and writes[number].lineno <= name.lineno:
        # What is written before the literal belongs to an earlier dictionary of this name.
        if writes[number].lineno > literal.lineno:
            # Two dictionaries may be updated by each other: what asks again continues behind this statement.
            flow.written_dicts[literal, scope, name.id] = WrittenDict(
                DictEntries(dict(by_name), whole), number + 1, name.lineno
            )
            more = _dict_entries_set_by_statement(flow, writes[number])
            by_name.update(more.by_name)
            whole = whole and more.whole
        number += 1
    flow.written_dicts[literal, scope, name.id] = WrittenDict(
        DictEntries(by_name, whole), number, name.lineno
    )
    return DictEntries(dict(by_name), whole)


def _add_writes_wherever_dict_was_made(
    flow: DataFlow, literal: ast.AST, first: DictEntries
) -> DictEntries:
    """The entries of a dictionary that a function is given, with all that is set where it was made.

    Which of these come before the call is not asked: a key that is set anywhere may be there.
    """
    if literal in flow.dicts_being_resolved:
        # A recursive function updates its dictionary by what it returns itself: `out.update(flatten(value))`.
        return DictEntries(first.by_name, False)
    by_name, whole = dict(first.by_name), first.whole
    flow.dicts_being_resolved.add(literal)
    try:
        for write in _collect_dict_writes_by_literal(flow).get(literal, ()):
            more, is_whole = _dict_entries_set_by_statement(flow, write)
            by_name.update(more)
            whole = whole and is_whole
    finally:
        flow.dicts_being_resolved.remove(literal)
    return DictEntries(by_name, whole)


def _collect_dict_writes_by_literal(flow: DataFlow) -> dict[ast.AST, list[ast.Assign | ast.Call]]:
    """The statements that set entries of a dictionary, by the literal that it begins as, once per
    file.
    """
    if flow.writes_by_literal is None:
        flow.writes_by_literal = {}
        for writes in _collect_dict_writes_by_name(flow).values():
            for write in writes:
                base = _dict_name_written_to(write)
                origins = flow.origins(base) if base is not None else ()
                if len(origins) == 1:
                    flow.writes_by_literal.setdefault(origins[0].node, []).append(write)
    return flow.writes_by_literal


def _dict_entries_set_by_statement(flow: DataFlow, node: ast.Assign | ast.Call) -> DictEntries:
    """What one statement sets in a dictionary."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        assert isinstance(target, ast.Subscript)
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            return DictEntries({target.slice.value: node.value}, True)
        return DictEntries({}, False)
    more = resolve_dict_entries(flow, node.args[0]) if node.args else DictEntries({}, True)
    named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    has_stars = any(keyword.arg is None for keyword in node.keywords)
    return DictEntries({**more.by_name, **named}, more.whole and not has_stars)


def _collect_dict_writes_by_name(
    flow: DataFlow,
) -> dict[tuple[Scope, str], list[ast.Assign | ast.Call]]:
    """`d[...] = x` and `d.update(...)` by the scope they stand in and the name of the dictionary, once per file."""
    if flow.dictionary_writes is None:
        flow.dictionary_writes = {}
        for node in flow.scopes.order:
            base = _dict_name_written_to(node)
            if base is not None and isinstance(node, (ast.Assign, ast.Call)):
                flow.dictionary_writes.setdefault((flow.scopes.of[base], base.id), []).append(node)
    return flow.dictionary_writes


def _dict_name_written_to(node: ast.AST) -> ast.Name | None:
    """The name `d` in `d[...] = x` and `d.update(...)`; None for any other node."""
    base: ast.expr | None = None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        base = node.targets[0].value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        base = node.func.value if node.func.attr == "update" else None
    return base if isinstance(base, ast.Name) else None


def default_of_parameter(arguments: ast.arguments, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter; None where it has none."""
    for keyword_only, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_only is parameter:
            return default
    # `ast` gives the defaults of the last positional parameters alone, so both are read from their ends.
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    return next((default for one, default in with_default if one is parameter), None)
