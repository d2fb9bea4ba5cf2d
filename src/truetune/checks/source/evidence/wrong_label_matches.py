"""Finds comparisons of answers with labels that count wrong ones as right, or right ones as wrong,
in the symbolic run of a script.

How it works: the answer is a text that a model gave; the labels are those of the rows beside the
script, or constants of the script. Each comparison is then made with the labels themselves: one
label inside another (`valid`, `invalid`), one side in lower case alone.

The trade-off: where the labels are not known, or an answer is not certainly a text of a model,
nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.column_expression_values import (
    TEXT_METHODS,
    distinct_values_of_expression,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, NameEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Element,
    Item,
    Operation,
    Result,
    Sequence,
    Value,
    parts_of_value,
)

ANSWERING = frozenset(
    ("generate", "decode", "batch_decode", "chat", "create", "invoke", "completion")
)
PIPELINES = ("transformers.pipeline", "transformers.pipelines.pipeline")
ANSWER_KEYS = frozenset(("generated_text",))
PREDICTION_NAMES = frozenset(("prediction", "pred", "predicted", "generated"))
"""Columns of a file of answers; `output` and `response` may be of the training rows"""
MAX_VALUES = 400
"""Values that are followed back from a text to a model. Chosen by hand: it bounds the time of values
that lead to one another; beyond it the text is no answer
"""


class WrongMatch(NamedTuple):
    """A comparison that matches other labels than it should."""

    node: ast.AST
    what: str
    remedy: str


def wrong_matches(module: Module) -> Iterator[WrongMatch]:
    """The comparisons of a file that match other labels than they should, each place once."""
    seen: set[ast.AST] = set()
    compared = {id(node) for node in module.nodes(ast.Compare)}
    for trace in traces_of_scripts_that_reach_file(module):
        for found in (
            *_wrong_matches_by_contained_label(module, trace, compared),
            *_wrong_matches_at_beginning(module, trace),
            *_wrong_matches_by_case(module, trace, compared),
            *_first_rows_scores_over_all_rows(module, trace),
        ):
            if found.node not in seen:
                seen.add(found.node)
                yield found


def _wrong_matches_by_contained_label(
    module: Module, trace: Trace, compared: set[int]
) -> Iterator[WrongMatch]:
    """The wrong matches that look for a label inside of an answer: `label in answer`."""
    tried: dict[int, list[tuple[str, ast.AST]]] = {}
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator != "in":
            continue
        label, answer = value.operands
        if value.node is None or id(value.node) not in compared or not _is_model_answer(answer):
            continue
        plain = constant_of(label)
        if isinstance(plain, str):
            tried.setdefault(id(answer), []).append((plain, value.node))
            continue
        values = distinct_values_of_expression(module, label)
        both = None if values is None else _label_contained_in_another(values.values)
        if both is not None and values is not None:
            yield WrongMatch(
                value.node,
                f"the answer {both[1]!r} counts as right if `{values.column}` is {both[0]!r}, because it contains"
                " that text",
                "compare whole labels: prediction.strip() == label; or search with word boundaries",
            )
    yield from _wrong_matches_of_labels_tried_in_turn(tried.values())


def _wrong_matches_of_labels_tried_in_turn(tried: Any) -> Iterator[WrongMatch]:
    """The wrong matches of labels that are tried one after another, where an earlier one is
    contained in a later one.
    """
    for labels in tried:
        for number, (label, node) in enumerate(labels):
            later = next(
                (one for one, _ in labels[number + 1 :] if label in one and label != one), None
            )
            if later is not None and label:
                yield WrongMatch(
                    node,
                    f"{label!r} is tried before {later!r}, which contains it: {later!r} is read as {label!r}",
                    "try the longest label first (sorted(labels, key=len, reverse=True)), or compare whole words",
                )
                break


def _wrong_matches_at_beginning(module: Module, trace: Trace) -> Iterator[WrongMatch]:
    """The wrong matches of labels at the beginning of an answer: `answer.startswith(label)`."""
    for call in trace.methods("startswith"):
        if call.home.path != module.path or not call.args or call.receiver is None:
            continue
        values = (
            distinct_values_of_expression(module, call.args[0])
            if _is_model_answer(call.receiver)
            else None
        )
        both = (
            None
            if values is None
            else _label_contained_in_another(values.values, at_beginning=True)
        )
        if both is not None and values is not None:
            yield WrongMatch(
                call.node,
                f"the answer {both[1]!r} counts as right if `{values.column}` is {both[0]!r}, because it begins"
                " with that",
                "compare whole labels: prediction.strip() == label",
            )


def _label_contained_in_another(
    labels: tuple[Any, ...], *, at_beginning: bool = False
) -> tuple[str, str] | None:
    """The first label that is contained in another one, with that one; None where none is."""
    texts = [one for one in labels if isinstance(one, str) and one.strip()]
    for one in texts:
        for other in texts:
            is_part = other.startswith(one) if at_beginning else one in other
            if one != other and is_part:
                return one, other
    return None


def _wrong_matches_by_case(
    module: Module, trace: Trace, compared: set[int]
) -> Iterator[WrongMatch]:
    """The wrong matches of an answer in one case with labels that have the other: `answer.lower()
    == label`.
    """
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator not in ("==", "!="):
            continue
        if value.node is None or id(value.node) not in compared or len(value.operands) != 2:
            continue
        for answer, label in (value.operands, value.operands[::-1]):
            methods = _text_methods_applied(answer)
            if not methods or not _is_model_answer(answer):
                continue
            found = _reason_never_equal(module, label, methods)
            if found is not None:
                yield WrongMatch(
                    value.node, found, "bring both sides into one form: .strip().lower() on both"
                )
                break


def _text_methods_applied(value: Value) -> list[str]:
    """The text methods that a value went through, the last first."""
    methods: list[str] = []
    while isinstance(value, Result) and value.call.method in TEXT_METHODS:
        if not value.call.args:
            methods.append(value.call.method or "")
        if value.call.receiver is None:
            break
        value = value.call.receiver
    return methods


def _reason_never_equal(module: Module, label: Value, methods: list[str]) -> str | None:
    """Why an answer that went through these methods equals some labels never; None where it may."""
    plain = constant_of(label)
    if isinstance(plain, str):
        labels, column, source = (plain,), "the constant", "the script"
    else:
        values = distinct_values_of_expression(module, label)
        if values is None:
            return None
        labels, column, source = values.values, f"`{values.column}`", values.source
    for method in methods:
        if method in ("lower", "upper", "casefold", "strip"):
            lost = [one for one in labels if isinstance(one, str) and getattr(one, method)() != one]
            if lost:
                share = f"{len(lost):,} of {len(labels):,} labels" if len(labels) > 1 else "it"
                return (
                    f"the answer goes through {method}() but {column} of {source} does not: {share} can never match"
                    f" (such as {lost[0]!r})"
                )
    return None


def _first_rows_scores_over_all_rows(module: Module, trace: Trace) -> Iterator[WrongMatch]:
    """Right answers of the first rows, divided by the number of all: `for row in rows[:100]`,
    `right / len(rows)`.
    """
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator != "/" or value.node is None:
            continue
        counter, divisor = value.operands
        if not isinstance(divisor, Result) or not divisor.call.named("len"):
            continue
        if divisor.call.home.path != module.path or not divisor.call.args:
            continue
        whole = divisor.call.args[0]
        loop = _iterable_of_counting_loop(trace, counter)
        part = None if loop is None else _slice_looped_over(loop)
        if part is not None and part.base is whole:
            yield WrongMatch(
                value.node,
                "right answers among only some of the rows are divided by the number of all rows",
                "divide by the number of rows that the loop goes over",
            )


def _iterable_of_counting_loop(trace: Trace, counter: Value) -> Value | None:
    """What the loop goes over in which a number is counted up; None where it is no such number."""
    options = counter.options if isinstance(counter, Choice) else (counter,)
    for event in trace.events:
        if isinstance(event, NameEvent) and event.is_augmented:
            if any(one is event.value for one in options) and isinstance(event.value, Element):
                loop = next(event.frames("loop"), None)
                return None if loop is None else loop.value
    return None


def _slice_looped_over(value: Value) -> Item | None:
    """The slice that a loop goes over, through `enumerate`, `tqdm` and the like."""
    for _ in range(4):
        if isinstance(value, Sequence):
            return value.part_of
        if isinstance(value, Result) and value.call.named("enumerate", "tqdm.*", "*.tqdm", "list"):
            if not value.call.args:
                return None
            value = value.call.args[0]
            continue
        break
    return value if isinstance(value, Item) and type(value.key).__name__ == "Slice" else None


def _is_model_answer(value: Value) -> bool:
    """Is it certainly a text that a model gave?"""
    pending, seen = [value], 0
    while pending and seen < MAX_VALUES:
        one = pending.pop()
        seen += 1
        if isinstance(one, Sequence):
            return False
        if isinstance(one, Result) and _call_gives_model_texts(one.call):
            return True
        if isinstance(one, Item | Attribute) and _is_named_as_model_answer(one):
            return True
        pending.extend(_sources_of_text(one))
    return False


def _is_named_as_model_answer(read: Item | Attribute) -> bool:
    """Is a key or attribute read whose name says that it is a model's answer?"""
    key = constant_of(read.key) if isinstance(read, Item) else read.name
    return isinstance(key, str) and key in (*ANSWER_KEYS, *PREDICTION_NAMES)


def _sources_of_text(text: Value) -> Iterable[Value]:
    """The values that a text is taken from by a text method, a part or a choice."""
    if isinstance(text, Result):
        receiver = text.call.receiver
        is_text_method = text.call.method in (*TEXT_METHODS, "split", "partition", "get")
        return (receiver,) if is_text_method and receiver is not None else ()
    if isinstance(text, Item | Attribute):
        return (text.base,)
    return parts_of_value(text) if isinstance(text, Choice | Element) else ()


def _call_gives_model_texts(call: CallEvent) -> bool:
    """Does a call give texts of a model?"""
    if call.method in ANSWERING:
        return True
    receiver = call.receiver
    return isinstance(receiver, Result) and receiver.call.named(*PIPELINES)
