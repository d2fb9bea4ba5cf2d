"""Finds evaluations on the first rows of a data file that lack labels or kinds of rows which the
whole file has.

How it works: in the symbolic run, `select(range(n))`, `rows[:n]`, `islice`, `head`, `take`,
`nrows=n` and `split="test[:n]"` are made on the rows of the file; a column of labels that the
script reads tells which of them the head lacks. In a script that trains, the heads count that its
trainer evaluates on, or that are taken of a file whose name is that of a validation; there a column
of kinds (`task`), the system prompts or the lengths of the answers tell of which kind the head is.

The trade-off: where anything on the way from the file filters, sorts or shuffles, nothing is known;
a label that is so rare that it may be missing from as many rows drawn at random is no evidence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import FileRows
from truetune.checks.source.evidence.possible_values_of_expressions import possible_numbers
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.checks.source.evidence.row_filters_and_sorts import SHUFFLES
from truetune.checks.source.evidence.row_kinds_missing_in_first_rows import (
    LABEL_COLUMN,
    AnswerLengths,
    columns_of_kinds_or_labels,
    differing_answer_lengths,
    flatten_row_with_system_prompt,
    head_values_and_improbably_missing_values,
)
from truetune.checks.source.evidence.unshuffled_splits_of_sorted_rows import (
    columns_of_few_values,
    rows_in_file_order,
    slices_of_run,
)
from truetune.checks.split_training_and_held_out_files_by_name import HELD_OUT_NAME
from truetune.errors import format_name_list
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Choice,
    Item,
    Operation,
    Result,
    Slice,
    Value,
    parts_of_value,
)

MIN_HEAD = 20
"""Fewer rows are printed to see them, or are examples for a prompt. Chosen, not measured"""
SPLIT_OF_ROWS = re.compile(r"\w+\[:(?P<rows>\d+)(?P<percent>%?)\]")
HEADS = {"head": "n", "take": "n", "limit": "n"}
"""Methods that give the first rows, with the name of their argument"""
EVALUATIONS = ("eval_dataset", "eval_data", "test_dataset", "validation_data", "val_dataset")
"""Arguments that take the rows of an evaluation"""
EVALUATING_METHODS = ("evaluate", "predict")
NOWHERE = ast.Pass()
"""The place of a head that no script takes"""
MAX_VALUES = 3_000
"""Values that an evaluation is made of. Chosen, not measured: only a script with rows written out has more"""


class SortedHead(NamedTuple):
    """A head that lacks labels of its file."""

    node: ast.AST
    source: str
    column: str
    rows: int
    whole: int
    held: tuple[str, ...]
    missing: tuple[tuple[str, int], ...]
    """The labels that are not in the head, each with its rows"""
    lengths: AnswerLengths | None = None
    """Those of the answers, where they alone tell the head from the other rows"""


class _Head(NamedTuple):
    """Rows of which the first so many are taken."""

    node: ast.AST
    data: Value
    rows: int
    value: Value | None = None
    """What the cut gives; None where a loop ends"""
    is_percent: bool = False
    """`rows` is a share in percent"""
    is_off: bool = False
    """It stands in a branch that the defaults of the options do not take"""
    is_split: bool = False
    """The other rows are the other part of a split"""


def heads_lacking_labels(module: Module) -> Iterator[SortedHead]:
    """The heads of a file that lack labels, each place once."""
    seen: set[ast.AST] = set()
    trains = trains_a_model(module)
    for trace in traces_of_scripts_that_reach_file(module):
        evaluated = _identities_of_evaluated_data(trace) if trains else None
        for head in _heads_taken_in_run(trace, module):
            if head.node in seen or head.is_off or _is_shuffled_in_place(trace, head.data):
                continue
            sorted_head = _as_head_lacking_rows(trace, module, head, evaluated)
            if sorted_head is not None:
                seen.add(head.node)
                yield sorted_head


def _as_head_lacking_rows(
    trace: Trace, module: Module, head: _Head, evaluated: frozenset[int] | None
) -> SortedHead | None:
    """What a head lacks of its file; `evaluated` is what a training evaluates on, None where
    nothing is trained.
    """
    rows = rows_in_file_order(trace, module, head.data)
    if rows is None:
        return None
    if evaluated is None:
        return None if head.is_split else _head_lacking_labels(module, head, rows)
    is_evaluated = id(head.value) in evaluated or _is_untrained_validation_head(trace, head, rows)
    return _head_lacking_kind_or_length(head, rows) if is_evaluated else None


def _heads_taken_in_run(trace: Trace, module: Module) -> Iterator[_Head]:
    """Everything that takes the first rows of something."""
    yield from _heads_by_calls(trace, module)
    yield from _heads_by_slices(trace, module)
    yield from _heads_by_breaks(trace, module)


def _is_shuffled_in_place(trace: Trace, data: Value) -> bool:
    """Are these rows, or what they were made of, shuffled in place?"""
    shuffled = {id(one) for call in trace.calls(*SHUFFLES) for one in call.args[:1]}
    return bool(shuffled) and not shuffled.isdisjoint(_identities_of_sources([data]))


def _identities_of_sources(values: list[Value]) -> frozenset[int]:
    """The identities of the values, and of what they were made of."""
    pending, seen = list(values), set[int]()
    while pending and len(seen) < MAX_VALUES:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            pending.extend(parts_of_value(one))
    return frozenset(seen)


def _identities_of_evaluated_data(trace: Trace) -> frozenset[int]:
    """The identities of what the evaluations of a run are made of."""
    given: list[Value] = []
    for call in trace.all_calls:
        given += [call.keywords[name] for name in EVALUATIONS if name in call.keywords]
        if call.method in EVALUATING_METHODS:
            given += call.args[:1]
    return _identities_of_sources(given)


def _is_untrained_validation_head(trace: Trace, head: _Head, rows: FileRows) -> bool:
    """Is a head of a file that is named as a validation, and is nothing of that file trained?"""
    if HELD_OUT_NAME.search(PurePath(rows.source).stem) is None:
        return False
    trained = [
        call.keywords["train_dataset"]
        for call in trace.all_calls
        if "train_dataset" in call.keywords
    ]
    return id(head.value) not in _identities_of_sources(trained)


def _heads_by_calls(trace: Trace, module: Module) -> Iterator[_Head]:
    """The heads that calls take: `select(range(n))`, `head(n)`, `islice(rows, n)`, and readers that
    stop early.
    """
    for call in trace.all_calls:
        if call.home.path != module.path or call.is_in_later_loop_pass:
            continue
        given = _head_rows_and_count(call)
        if given is not None and given[0] is not None and given[1] is not None:
            percent = call.named("datasets.load_dataset") and _split_is_in_percent(call)
            yield _Head(
                call.node,
                given[0],
                given[1],
                call.result,
                percent,
                _is_in_branch_off_by_default(call),
            )


def _is_in_branch_off_by_default(call: CallEvent) -> bool:
    """Does a call stand in a branch that the defaults of options leave out?"""
    for branch in call.frames("branch"):
        test = constant_of(branch.value)
        if test is not NO_CONSTANT and bool(test) is not branch.taken:
            return True
    return False


def _split_is_in_percent(call: CallEvent) -> bool:
    """Does `split="test[:5%]"` count in percent?"""
    return "%" in str(constant_of(call.keywords.get("split")))


def _head_rows_and_count(call: CallEvent) -> tuple[Value | None, int | None] | None:
    """The rows that a call takes the first of, and how many; None for another call."""
    if call.method == "select":
        return call.receiver, _count_of_range(call.argument(0, "indices"))
    if call.method in HEADS:
        return call.receiver, _row_count_of_value(call.argument(0, HEADS[call.method]))
    if call.named("itertools.islice") and len(call.args) == 2:
        return call.args[0], _row_count_of_value(call.args[1])
    if call.named("torch.utils.data.Subset") and len(call.args) == 2:
        return call.args[0], _count_of_range(call.args[1])
    if call.named("pandas.read_*"):
        return call.result, _row_count_of_value(call.keywords.get("nrows"))
    if call.named("datasets.load_dataset"):
        split = constant_of(call.keywords.get("split"))
        match = SPLIT_OF_ROWS.fullmatch(split) if isinstance(split, str) else None
        return call.result, int(match["rows"]) if match else None
    return None


def _count_of_range(value: Value | None) -> int | None:
    """The rows of `range(n)`, also as a list."""
    if isinstance(value, Result) and value.call.named("list") and value.call.args:
        value = value.call.args[0]
    is_range = isinstance(value, Result) and value.call.named("range")
    if not isinstance(value, Result) or not is_range or not value.call.args:
        return None
    first, *rest = value.call.args
    if not rest:
        return _row_count_of_value(first)
    return _row_count_of_value(rest[0]) if constant_of(first) == 0 and len(rest) == 1 else None


def _heads_by_slices(trace: Trace, module: Module) -> Iterator[_Head]:
    """The heads that slices take, `rows[:n]`; where there is a `rows[n:]` too, the head is a part
    of a split.
    """
    slices = list(slices_of_run(trace))
    starts = {
        _sliced_identity_and_bound_text(one, one.key.start)
        for one in slices
        if isinstance(one.key, Slice)
    }
    for one in slices:
        key = one.key
        if not isinstance(key, Slice) or key.start is not None or key.step is not None:
            continue
        rows = _row_count_of_value(key.stop)
        node = key.node
        if rows is not None and node is not None and module.holds(node):
            is_split = _sliced_identity_and_bound_text(one, key.stop) in starts
            yield _Head(node, one.base, rows, one, is_split=is_split)


def _heads_by_breaks(trace: Trace, module: Module) -> Iterator[_Head]:
    """The heads that loops take which end early: `for n, row in enumerate(rows)` with `if n >= 100:
    break`.
    """
    limits = dict(_loops_with_a_limit(module))
    for call in trace.all_calls if limits else ():
        for loop in call.frames("loop"):
            counted = loop.value.call if isinstance(loop.value, Result) else None
            if loop.node in limits and counted is not None and counted.named("enumerate"):
                yield _Head(limits[loop.node][0], counted.args[0], limits[loop.node][1])


def _loops_with_a_limit(module: Module) -> Iterator[tuple[ast.AST, tuple[ast.AST, int]]]:
    """The loops over `enumerate` that a number of rows ends, with the test and the number."""
    for test in module.nodes(ast.If):
        loop = module.scopes.parent.get(test)
        compared = test.test
        if not isinstance(loop, ast.For) or not isinstance(test.body[-1], ast.Break):
            continue
        if not isinstance(loop.target, ast.Tuple) or not isinstance(compared, ast.Compare):
            continue
        is_number = ast.unparse(compared.left) == ast.unparse(loop.target.elts[0])
        numbers = possible_numbers(module, compared.comparators[0])
        is_end = isinstance(compared.ops[0], ast.GtE | ast.Gt | ast.Eq)
        if is_number and is_end and len(numbers) == 1 and numbers[0] >= MIN_HEAD:
            yield loop, (compared, int(numbers[0]))


def _sliced_identity_and_bound_text(item: Item, bound: Value | None) -> tuple[int, str]:
    """What is sliced, and the bound as it is written; no place where there is no bound."""
    text = "" if bound is None or bound.node is None else ast.unparse(bound.node)
    return (id(item.base) if text else id(item), text)


def _row_count_of_value(value: Value | None) -> int | None:
    """The number of rows that a value says; also the default of an option, and `n` of `min(n,
    len(rows))`; None for others.
    """
    if isinstance(value, Result) and value.call.named("min", "int"):
        numbers = [one for one in map(_row_count_of_value, value.call.args) if one is not None]
        return min(numbers, default=None)
    if isinstance(value, Operation) and value.operator == "or":
        return _row_count_of_value(value.operands[0])
    if isinstance(value, Choice):
        row_counts = {_row_count_of_value(one) for one in value.options} - {None}
        return row_counts.pop() if len(row_counts) == 1 else None
    plain = constant_of(value)
    return plain if type(plain) is int and plain >= MIN_HEAD else None


def _head_size(head: _Head, rows: FileRows) -> int:
    """How many rows a head has; as many as the file where it is the whole of it."""
    count = round(len(rows.rows) * head.rows / 100) if head.is_percent else head.rows
    return min(count, len(rows.rows))


def _head_lacking_labels(module: Module, head: _Head, rows: FileRows) -> SortedHead | None:
    """The labels of the file that a head lacks, where chance does not explain it."""
    count = _head_size(head, rows)
    if count < MIN_HEAD or count == len(rows.rows):
        return None
    for column in _label_columns(module, rows):
        held, missing = head_values_and_improbably_missing_values(
            [row[column] for row in rows.rows], count
        )
        if missing:
            return SortedHead(head.node, rows.source, column, count, len(rows.rows), held, missing)
    return None


def _head_lacking_kind_or_length(head: _Head, rows: FileRows) -> SortedHead | None:
    """The kinds of rows that a head lacks, or the lengths of answers that it has alone."""
    sorted_head = first_rows_lacking_kind_or_length(rows.rows, rows.source, _head_size(head, rows))
    return None if sorted_head is None else sorted_head._replace(node=head.node)


def first_rows_lacking_kind_or_length(
    rows: Sequence[Mapping[str, Any]], source: str, count: int
) -> SortedHead | None:
    """What the first `count` rows of a file lack: a kind of row, or answers of other lengths; None
    for nothing.
    """
    if not MIN_HEAD <= count < len(rows):
        return None
    flat = tuple(map(flatten_row_with_system_prompt, rows))
    for column in columns_of_kinds_or_labels(columns_of_few_values(flat)):
        held, missing = head_values_and_improbably_missing_values(
            [row[column] for row in flat], count
        )
        if missing:
            return SortedHead(NOWHERE, source, column, count, len(rows), held, missing)
    lengths = differing_answer_lengths(rows, count)
    if lengths is None:
        return None
    return SortedHead(NOWHERE, source, "", count, len(rows), (), (), lengths)


def describe_head_difference(head: SortedHead) -> str:
    """In what the rows of a head differ from the others, for a sentence."""
    if head.lengths is not None:
        return (
            f"their answers have {head.lengths.of_head:g} words, those of the other rows"
            f" {head.lengths.of_others:g} (medians): the other kind of row is never tested"
        )
    held = format_name_list(map(repr, head.held))
    missing = format_name_list(f"{name!r} ({count:,} rows)" for name, count in head.missing)
    verb = "is" if len(head.missing) == 1 else "are"
    return f"their `{head.column}` is only {held}: {missing} {verb} never tested"


def _label_columns(module: Module, rows: FileRows) -> Iterator[str]:
    """The columns of few values that a script reads as labels."""
    read = {one.value for one in module.nodes(ast.Constant) if isinstance(one.value, str)}
    read |= {one.attr for one in module.nodes(ast.Attribute)}
    for column in columns_of_few_values(rows.rows):
        if LABEL_COLUMN.fullmatch(column) and column in read:
            yield column
