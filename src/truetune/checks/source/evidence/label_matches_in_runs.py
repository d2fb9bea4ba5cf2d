"""Comparisons of answers with labels that count wrong ones as right, or right ones as wrong, in the symbolic run.

How it works: the answer is a text that a model gave; the labels are those of the rows beside the script, or constants
of the script. Each comparison is then made with the labels themselves: one label inside another (`valid`, `invalid`),
one side in lower case alone.

The trade-off: where the labels are not known, or an answer is not certainly a text of a model, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.column_values_in_runs import TEXT_METHODS, column_values
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.kept_traces import traces_of
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


class WrongMatch(NamedTuple):
    """A comparison that matches other labels than it should."""

    node: ast.AST
    what: str
    remedy: str


def wrong_matches(module: Module) -> Iterator[WrongMatch]:
    """The comparisons of a file that match other labels than they should, each place once."""
    seen: set[ast.AST] = set()
    compared = {id(node) for node in module.nodes(ast.Compare)}
    for trace in traces_of(module):
        for found in (
            *_inside(module, trace, compared),
            *_at_the_beginning(module, trace),
            *_in_one_case(module, trace, compared),
            *_divided_by_all(module, trace),
        ):
            if found.node not in seen:
                seen.add(found.node)
                yield found


def _inside(module: Module, trace: Trace, compared: set[int]) -> Iterator[WrongMatch]:
    """`label in answer`."""
    tried: dict[int, list[tuple[str, ast.AST]]] = {}
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator != "in":
            continue
        label, answer = value.operands
        if value.node is None or id(value.node) not in compared or not _is_answer(answer):
            continue
        plain = constant_of(label)
        if isinstance(plain, str):
            tried.setdefault(id(answer), []).append((plain, value.node))
            continue
        values = column_values(module, label)
        both = None if values is None else _contained(values.values)
        if both is not None and values is not None:
            yield WrongMatch(
                value.node,
                f"the answer {both[1]!r} counts as right where `{values.column}` is {both[0]!r}, which stands in it",
                "compare whole labels: prediction.strip() == label; or search with word boundaries",
            )
    yield from _first_that_fits(tried.values())


def _first_that_fits(tried: Any) -> Iterator[WrongMatch]:
    """Labels that are tried one after another, of which an earlier one stands in a later one."""
    for labels in tried:
        for number, (label, node) in enumerate(labels):
            later = next(
                (one for one, _ in labels[number + 1 :] if label in one and label != one), None
            )
            if later is not None and label:
                yield WrongMatch(
                    node,
                    f"{label!r} is tried before {later!r}, in which it stands: {later!r} is read as {label!r}",
                    "try the longest label first (sorted(labels, key=len, reverse=True)), or compare whole words",
                )
                break


def _at_the_beginning(module: Module, trace: Trace) -> Iterator[WrongMatch]:
    """`answer.startswith(label)`."""
    for call in trace.methods("startswith"):
        if call.home.path != module.path or not call.args or call.receiver is None:
            continue
        values = column_values(module, call.args[0]) if _is_answer(call.receiver) else None
        both = None if values is None else _contained(values.values, at_beginning=True)
        if both is not None and values is not None:
            yield WrongMatch(
                call.node,
                f"the answer {both[1]!r} counts as right where `{values.column}` is {both[0]!r}, with which it begins",
                "compare whole labels: prediction.strip() == label",
            )


def _contained(labels: tuple[Any, ...], *, at_beginning: bool = False) -> tuple[str, str] | None:
    """A label, and another one that it stands in; None where none does."""
    texts = [one for one in labels if isinstance(one, str) and one.strip()]
    for one in texts:
        for other in texts:
            is_part = other.startswith(one) if at_beginning else one in other
            if one != other and is_part:
                return one, other
    return None


def _in_one_case(module: Module, trace: Trace, compared: set[int]) -> Iterator[WrongMatch]:
    """`answer.lower() == label`, where labels have capitals."""
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator not in ("==", "!="):
            continue
        if value.node is None or id(value.node) not in compared or len(value.operands) != 2:
            continue
        for answer, label in (value.operands, value.operands[::-1]):
            methods = _methods_of(answer)
            if not methods or not _is_answer(answer):
                continue
            found = _never_equal(module, label, methods)
            if found is not None:
                yield WrongMatch(
                    value.node, found, "bring both sides into one form: .strip().lower() on both"
                )
                break


def _methods_of(value: Value) -> list[str]:
    """The text methods that a value went through, the last first."""
    methods: list[str] = []
    while isinstance(value, Result) and value.call.method in TEXT_METHODS:
        if not value.call.args:
            methods.append(value.call.method or "")
        if value.call.receiver is None:
            break
        value = value.call.receiver
    return methods


def _never_equal(module: Module, label: Value, methods: list[str]) -> str | None:
    """Why an answer that went through these methods equals some labels never; None where it may."""
    plain = constant_of(label)
    if isinstance(plain, str):
        labels, column, source = (plain,), "the constant", "the script"
    else:
        values = column_values(module, label)
        if values is None:
            return None
        labels, column, source = values.values, f"`{values.column}`", values.source
    for method in methods:
        if method in ("lower", "upper", "casefold", "strip"):
            lost = [one for one in labels if isinstance(one, str) and getattr(one, method)() != one]
            if lost:
                share = f"{len(lost):,} of {len(labels):,} labels" if len(labels) > 1 else "it"
                return (
                    f"the answer goes through {method}() and {column} of {source} does not: {share} can never be met"
                    f" (such as {lost[0]!r})"
                )
    return None


def _divided_by_all(module: Module, trace: Trace) -> Iterator[WrongMatch]:
    """Right answers of the first rows, divided by the number of all: `for row in rows[:100]`, `right / len(rows)`."""
    for value in trace.values:
        if not isinstance(value, Operation) or value.operator != "/" or value.node is None:
            continue
        counter, divisor = value.operands
        if not isinstance(divisor, Result) or not divisor.call.named("len"):
            continue
        if divisor.call.home.path != module.path or not divisor.call.args:
            continue
        whole = divisor.call.args[0]
        loop = _loop_of_counter(trace, counter)
        part = None if loop is None else _sliced(loop)
        if part is not None and part.base is whole:
            yield WrongMatch(
                value.node,
                "right answers of a part of the rows are divided by the number of all rows",
                "divide by the rows that are asked: len(part)",
            )


def _loop_of_counter(trace: Trace, counter: Value) -> Value | None:
    """What the loop goes over in which a number is counted up; None where it is no such number."""
    options = counter.options if isinstance(counter, Choice) else (counter,)
    for event in trace.events:
        if isinstance(event, NameEvent) and event.is_augmented:
            if any(one is event.value for one in options) and isinstance(event.value, Element):
                loop = next(event.frames("loop"), None)
                return None if loop is None else loop.value
    return None


def _sliced(value: Value) -> Item | None:
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


def _is_answer(value: Value) -> bool:
    """Is it certainly a text that a model gave?"""
    pending, seen = [value], 0
    while pending and seen < MAX_VALUES:
        one = pending.pop()
        seen += 1
        if isinstance(one, Sequence):
            return False
        if isinstance(one, Result):
            if _answers(one.call):
                return True
            if (
                one.call.method in (*TEXT_METHODS, "split", "partition", "get")
                and one.call.receiver is not None
            ):
                pending.append(one.call.receiver)
            continue
        if isinstance(one, Item | Attribute):
            key = constant_of(one.key) if isinstance(one, Item) else one.name
            if isinstance(key, str) and key in (*ANSWER_KEYS, *PREDICTION_NAMES):
                return True
            pending.append(one.base)
        elif isinstance(one, Choice | Element):
            pending.extend(parts_of_value(one))
    return False


def _answers(call: CallEvent) -> bool:
    """Does a call give texts of a model?"""
    if call.method in ANSWERING:
        return True
    receiver = call.receiver
    return isinstance(receiver, Result) and receiver.call.named(*PIPELINES)
