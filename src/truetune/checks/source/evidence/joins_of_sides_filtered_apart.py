"""Finds joins by position of two files after a script filtered each by its own rows, or shuffled
one of them.

How it works: both sides of a `zip`, of `concat(axis=1)` or of a new column are followed to two
files, in the symbolic run. Each must have gone through a filter, a `dropna` or a sort that reads a
field of its own: the text or the state of an answer, and nothing that both files share (an id, the
question, a split). The joined rows must end in one record.

The trade-off: a test against a collection may be what brings the sides into line, and says nothing;
so does a script that compares the lengths. Rows that are only mixed into one list are no records. A
shuffled side is wrong only where the record holds a question and its answer: negatives and
distractors are drawn at random on purpose.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.checks.source.evidence.row_filters_and_sorts import (
    Alignment,
    AlignmentChange,
    alignment_to_source,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Sequence, Value

SHARED_FIELD = re.compile(
    r"(?:\w*_)?(?:id|idx|index|key|hash|uid|uuid|number|question|prompt|instruction|input|query|problem|source|split|"
    r"lang|language|subset|task|dataset|category|type|topic|model|name|config|domain|file|path|url|step)s?",
    re.I,
)
"""Fields that two files of one set of questions have in common, or that choose a part of a file"""
UNRELATED = re.compile(
    r"distractor|negative|random|noise|filler|few_?shot|example|unrelated|mixed|mixture", re.I
)
"""Words of a record whose sides need not belong together"""
QUESTION_KEY = re.compile(r"prompt|question|instruction|input|query|source|user", re.I)
ANSWER_KEY = re.compile(
    r"completion|answer|output|response|target|label|assistant|chosen|summary", re.I
)
RANDOM_ORDER = re.compile(r"shuffle|\bsample\(|permutation")
"""Calls that put rows into an order that only chance knows"""
COMPARES_LENGTHS = re.compile(r"assert len\(|len\(\w+\) [!=]= len\(")
WHOLE_ROW_METHODS = frozenset(("dropna", "drop_duplicates"))
"""Methods that read all fields of a row where none is named"""


class JoinOfTwoFiles(NamedTuple):
    """A join by position whose sides were each filtered by their own rows."""

    node: ast.AST
    what: str
    changes: tuple[AlignmentChange, AlignmentChange]


def joins_of_filtered_files(module: Module) -> Iterator[JoinOfTwoFiles]:
    """The joins by position of two files that are filtered apart, each place once."""
    if COMPARES_LENGTHS.search(module.text):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for node, what, sides in _joins_ending_in_records(trace, module):
            is_by_index = what != "zip"
            changes = (
                None if node in seen else _changes_of_each_alone(trace, module, sides, is_by_index)
            )
            if changes is not None:
                seen.add(node)
                yield JoinOfTwoFiles(node, what, changes)


class JoinOfShuffledFile(NamedTuple):
    """A join by position of two files of which one alone was shuffled."""

    node: ast.AST
    change: AlignmentChange


def joins_of_shuffled_file(module: Module) -> Iterator[JoinOfShuffledFile]:
    """The joins of two files into questions with their answers where one file was shuffled, each
    place once.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.calls("zip"):
            node = call.node
            if call.home.path != module.path or node in seen or len(call.args) != 2 or call.is_open:
                continue
            change = _shuffle_of_one_side(trace, list(call.args))
            if change is not None and _zip_makes_question_answer_record(module, node):
                seen.add(node)
                yield JoinOfShuffledFile(node, change)


def _shuffle_of_one_side(trace: Trace, sides: list[Value]) -> AlignmentChange | None:
    """The shuffle that one of two files went through alone; None where there is none, or the other
    was moved too.
    """
    ways = [alignment_to_source(trace, side) for side in sides]
    if not all(isinstance(way.source, tuple) for way in ways) or ways[0].source == ways[1].source:
        return None
    orders = [[change for change in way.changes if change.kind == "order"] for way in ways]
    moved = [changes for changes in orders if changes]
    if len(moved) != 1 or not RANDOM_ORDER.search(ast.unparse(moved[0][-1].node)):
        return None
    return moved[0][-1]


def _zip_makes_question_answer_record(module: Module, node: ast.AST) -> bool:
    """Do the two rows of a `zip` end in one record that names a question and an answer?"""
    if not _pair_ends_in_record(module, node):
        return False
    function = module.function_around(node)
    around = function if function is not None else module.home(node).tree
    for part in ast.walk(around):
        if isinstance(part, ast.Dict) and not UNRELATED.search(ast.unparse(part)):
            keys = [str(key.value) for key in part.keys if isinstance(key, ast.Constant)]
            is_question = any(QUESTION_KEY.search(key) for key in keys)
            if is_question and any(ANSWER_KEY.search(key) for key in keys):
                return True
    return False


def _joins_ending_in_records(
    trace: Trace, module: Module
) -> Iterator[tuple[ast.AST, str, list[Value]]]:
    """The joins of two sides in a run that end in records, and how they are called."""
    for call in trace.all_calls:
        if call.home.path != module.path or call.is_in_later_loop_pass or call.is_open:
            continue
        if call.named("zip") and len(call.args) == 2 and "strict" not in call.keywords:
            if _pair_ends_in_record(module, call.node):
                yield call.node, "zip", list(call.args)
        elif call.named("pandas.concat") and constant_of(call.argument(1, "axis")) in (
            1,
            "columns",
        ):
            yield call.node, "pandas.concat(axis=1)", _concatenated_frames(call)


def _concatenated_frames(call: CallEvent) -> list[Value]:
    """The frames that `concat` puts side by side."""
    parts = call.args[0] if call.args else None
    return list(parts.items) if isinstance(parts, Sequence) and not parts.is_open else []


def _changes_of_each_alone(
    trace: Trace, module: Module, sides: list[Value], is_by_index: bool
) -> tuple[AlignmentChange, AlignmentChange] | None:
    """What each of two files went through alone; None where they may still fit each other."""
    ways = [alignment_to_source(trace, side) for side in sides]
    if len(ways) != 2 or not all(isinstance(way.source, tuple) for way in ways):
        return None
    one, other = ways
    if one.source == other.source or (is_by_index and _frames_keep_index(ways)):
        return None
    first, second = (_first_change_by_own_fields(module, way) for way in ways)
    return None if first is None or second is None else (first, second)


def _frames_keep_index(ways: list[Alignment]) -> bool:
    """Do frames that are joined by their index keep the number of each row, which is made again
    nowhere?
    """
    return not any(way.is_renumbered or way.is_positional for way in ways)


def _first_change_by_own_fields(module: Module, way: Alignment) -> AlignmentChange | None:
    """The first change that reads fields of its own file; None where any may bring the two into
    line.
    """
    fitting = [_fields_read_by_change(module, change) for change in way.changes]
    if any(fields is None for fields in fitting):
        return None
    own = [
        change
        for change, fields in zip(way.changes, fitting, strict=True)
        if fields and not any(SHARED_FIELD.fullmatch(field) for field in fields)
    ]
    return own[-1] if own else None


def _fields_read_by_change(module: Module, change: AlignmentChange) -> frozenset[str] | None:
    """The fields that a change reads, none of a test of whole lines; None where it compares with a
    collection.
    """
    tests = list(_tests_and_keys_of_change(module, change.node))
    if change.kind == "parts" or any(
        _tests_membership_of_row(part) for test in tests for part in ast.walk(test)
    ):
        return None
    fields = {name for test in tests for name in _fields_read(test)}
    return frozenset(fields | _fields_read_by_method(change.node))


def _fields_read_by_method(node: ast.AST) -> set[str]:
    """The fields that `dropna` or `drop_duplicates` reads; nothing for another change."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return set()
    if node.func.attr not in WHOLE_ROW_METHODS:
        return set()
    named = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    return {one for one in named if isinstance(one, str)} or {"all fields"}


def _tests_and_keys_of_change(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The tests by which a change leaves rows out, and the keys by which it sorts."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        yield from (test for one in node.generators for test in one.ifs)
    elif isinstance(node, ast.Subscript):
        yield node.slice
    elif isinstance(node, ast.Call):
        is_append = isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if is_append:
            yield from _tests_of_append_loop(module, node)
        else:
            yield from (*node.args, *(one.value for one in node.keywords))


def _tests_of_append_loop(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """The tests of the loop that a row is appended in."""
    for around in module.parents(node):
        if isinstance(around, ast.For):
            yield from (one.test for one in ast.walk(around) if isinstance(one, ast.If))
            return


def _tests_membership_of_row(node: ast.AST) -> bool:
    """Is it a test of a row against a collection: `row["id"] in kept`, `isin(...)`?"""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "isin"
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn):
        return False
    return not isinstance(node.left, ast.Constant)


def _fields_read(expression: ast.AST) -> Iterator[str]:
    """The fields that an expression reads anywhere in it."""
    for part in ast.walk(expression):
        field = field_name_read(part)
        if field is not None:
            yield field


def _pair_ends_in_record(module: Module, node: ast.AST) -> bool:
    """Do the two rows of one pass of a `zip` end in one record or comparison?"""
    loop = next(
        (
            one
            for one in module.parents(node)
            if isinstance(one, ast.For | ast.ListComp | ast.GeneratorExp | ast.DictComp)
        ),
        None,
    )
    if loop is None:
        return False
    target = loop.target if isinstance(loop, ast.For) else loop.generators[0].target
    pair = _names_of_zipped_rows(target)
    if pair is None:
        return False
    body = loop.body if isinstance(loop, ast.For) else [loop]
    parts = [part for one in body for part in ast.walk(one)]
    if any(_script_compares_shared_field(part, pair) for part in parts):
        return False
    return any(_is_record_of_pair(part, pair) for part in parts)


def _names_of_zipped_rows(target: ast.expr) -> tuple[str, str] | None:
    """The names of the two rows, also in `for n, (good, bad) in enumerate(zip(...))`."""
    if not isinstance(target, ast.Tuple):
        return None
    nested = next((one for one in target.elts if isinstance(one, ast.Tuple)), target)
    names = [one.id for one in nested.elts if isinstance(one, ast.Name)]
    return (names[0], names[1]) if len(names) == len(nested.elts) == 2 else None


def _is_record_of_pair(node: ast.AST, pair: tuple[str, str]) -> bool:
    """Is it a dictionary or a comparison that reads both rows, and no part of a mixture?"""
    if not isinstance(node, ast.Dict | ast.Compare) or UNRELATED.search(ast.unparse(node)):
        return False
    parts = list(ast.walk(node))
    if any(isinstance(part, ast.Call) and ast.unparse(part.func) == "len" for part in parts):
        return False
    return _reads_both_rows(node, pair)


def _script_compares_shared_field(node: ast.AST, pair: tuple[str, str]) -> bool:
    """Does the script itself see whether two rows belong together?"""
    if not isinstance(node, ast.Compare) or not _reads_both_rows(node, pair):
        return False
    fields = list(_fields_read(node))
    return bool(fields) and all(SHARED_FIELD.fullmatch(field) for field in fields)


def _reads_both_rows(node: ast.AST, pair: tuple[str, str]) -> bool:
    """Are both rows read in an expression?"""
    return set(pair) <= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
