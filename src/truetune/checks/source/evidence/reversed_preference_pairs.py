"""Finds preference pairs that a script builds the wrong way round: the chosen answer is the worse
one.

How it works: both sides of a pair are followed back to how they were picked: a place of a sorted
list, `max` or `min`, `argmax`, or the arm of a test that compares two scores. What they are ordered
by has a name (`score`, `rank`), which says whether more is better. A pair is the wrong way round
where its chosen side stands behind the rejected one.

The trade-off: a name that may mean either is not judged, and neither is an order whose key is no
plain column.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.column_expression_values import column_of_cell
from truetune.checks.source.evidence.sort_key_columns_and_better_end import (
    column_and_negation_of_key_function,
    is_higher_better,
    last_name_of_node,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
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
    Item,
    Mapping,
    Operation,
    Result,
    Sequence,
    Value,
    parts_of_value,
)

SIDES = ("chosen", "rejected")
WINNERS = frozenset(("winner", "better", "preferred", "preference", "best", "winning"))
"""Columns that name the better side"""
LAST = 1_000
"""The place of the last item of a list whose length is not known, beside which the places of others are small"""
MAX_DEPTH = 8
"""Steps from a side of a pair back to how it was picked. Chosen by hand: a smaller one misses picks
behind helpers, a larger one costs time in values that lead to one another
"""
ENDS = ("argmax", "argmin", "idxmax", "idxmin")
SIDE_WORDS = frozenset(("a", "b", "0", "1", "2", "left", "right", "first", "second"))
"""Last words of columns that tell two sides apart"""
WORDS = re.compile(r"[A-Za-z]+|\d+")


class AnswerPick(NamedTuple):
    """How one answer was picked among several."""

    goodness: int
    """Its place from the worst to the best: 0 is the worst, LAST - 1 the best"""
    key: str
    """What they are ordered by"""
    node: ast.AST
    """What orders them"""


class WrongPair(NamedTuple):
    """A pair whose chosen side is the worse one."""

    node: ast.AST
    ordering: ast.AST
    why: str


def pairs_built_the_wrong_way_round(module: Module) -> Iterator[WrongPair]:
    """The pairs of a file that are built the wrong way round, each place once."""
    seen: set[ast.AST] = set()
    written = {id(node) for node in ast.walk(module.tree)}
    for trace in traces_of_scripts_that_reach_file(module):
        for wrong_pair in _wrong_pairs_of_trace(trace):
            if id(wrong_pair.node) in written and wrong_pair.ordering not in seen:
                seen.add(wrong_pair.ordering)
                yield wrong_pair


def pairs_of_known_order(module: Module) -> Iterator[ast.AST]:
    """The pairs of a file whose order is known: by what a side was picked, or by the test of the
    arm it stands in.
    """
    for trace in traces_of_scripts_that_reach_file(module):
        for chosen, rejected, node in _preference_pairs(trace):
            if (
                _pick_of_answer(trace, chosen) is not None
                or _pick_of_answer(trace, rejected) is not None
            ):
                yield node
        for frame, _, event in _pair_sides_named_in_branches(trace):
            if _better_side_and_why_wrong(frame) is not None:
                yield event.node


def _wrong_pairs_of_trace(trace: Trace) -> Iterator[WrongPair]:
    """The pairs of a run that are the wrong way round."""
    for chosen, rejected, node in _preference_pairs(trace):
        why = _reason_chosen_is_worse(trace, chosen, rejected)
        if why is not None:
            yield WrongPair(node, why[1], why[0])
    yield from _wrong_pairs_by_branch_conditions(trace)


def _preference_pairs(trace: Trace) -> Iterator[tuple[Value, Value, ast.AST]]:
    """The two sides of each pair, with where it is made."""
    for value in trace.values:
        if isinstance(value, Mapping) and all(side in value.entries for side in SIDES):
            if value.node is not None:
                yield value.entries["chosen"], value.entries["rejected"], value.node
    stores: dict[int, dict[str, StoreEvent]] = {}
    for event in trace.stores:
        key = event.key if isinstance(event.key, str) else constant_of(event.key)
        if key in SIDES:
            sides = stores.setdefault(id(event.base), {})
            sides[str(key)] = event
            if len(sides) == len(SIDES):
                yield sides["chosen"].value, sides["rejected"].value, event.node


def _reason_chosen_is_worse(
    trace: Trace, chosen: Value, rejected: Value
) -> tuple[str, ast.AST] | None:
    """Why a chosen answer is worse than the rejected one, and what orders them; None where it is
    not known to be.
    """
    one, other = _pick_of_answer(trace, chosen), _pick_of_answer(trace, rejected)
    if one is not None and other is not None:
        return _reason_by_picks(one, other)
    if one is not None and one.goodness == 0:
        return f"chosen is {_place_in_words(one)} by `{one.key}`", one.node
    if other is not None and other.goodness == LAST - 1:
        return f"rejected is {_place_in_words(other)} by `{other.key}`", other.node
    return None


def _reason_by_picks(chosen: AnswerPick, rejected: AnswerPick) -> tuple[str, ast.AST] | None:
    """Why the chosen answer is worse by how both were picked, and what orders them; None where it
    is not known to be.
    """
    if chosen.key != rejected.key or chosen.goodness >= rejected.goodness:
        return None
    places = f"it is {_place_in_words(chosen)}, and rejected is {_place_in_words(rejected)}"
    return f"chosen is the worse of both by `{chosen.key}`: {places}", chosen.node


def _place_in_words(pick: AnswerPick) -> str:
    """The position at which an answer was picked, in words for a message."""
    if pick.goodness == 0:
        return "the worst"
    if pick.goodness == LAST - 1:
        return "the best"
    from_best = LAST - pick.goodness
    is_low = pick.goodness < LAST // 2
    return (
        f"number {pick.goodness + 1} from the worst"
        if is_low
        else f"number {from_best} from the best"
    )


def _pick_of_answer(trace: Trace, value: Value, depth: int = 0) -> AnswerPick | None:
    """How an answer was picked; None where that is not known."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Choice):
        picks = {_pick_of_answer(trace, one, depth + 1) for one in value.options}
        return picks.pop() if len(picks) == 1 else None
    answer_pick = None
    if isinstance(value, Item):
        answer_pick = _pick_of_item(trace, value)
    elif isinstance(value, Result):
        answer_pick = _pick_of_max_or_min(value.call)
    inner = _source_of_answer(value) if answer_pick is None else None
    return answer_pick if inner is None else _pick_of_answer(trace, inner, depth + 1)


def _source_of_answer(value: Value) -> Value | None:
    """What an answer is read from: a row, the object of a method, or the message that it stands in."""
    if isinstance(value, Item | Attribute):
        return value.base
    return value.call.receiver if isinstance(value, Result) else _answer_inside(value)


def _answer_inside(value: Value) -> Value | None:
    """The answer inside a message, a list of one message, or a text that is put together."""
    if isinstance(value, Sequence) and value.items:
        return value.items[-1]
    if isinstance(value, Mapping):
        return value.entries.get("content") or value.entries.get("value")
    if isinstance(value, Operation) and value.operator in ("+", "format"):
        opaque = [one for one in value.operands if constant_of(one) is NO_CONSTANT]
        return opaque[-1] if opaque else None
    return None


def _pick_of_item(trace: Trace, item: Item) -> AnswerPick | None:
    """The pick by an index: `sorted(...)[0]`, `frame.sort_values(...).iloc[0]`,
    `answers[scores.argmax()]`; None for any other item.
    """
    index = constant_of(item.key)
    base = item.base
    if isinstance(base, Attribute) and base.name in ("iloc", "values", "loc"):
        base = base.base
    if isinstance(item.key, Result):
        return _pick_at_index_of_extreme_score(item.key.call)
    if type(index) is not int:
        return None
    ordering = _ordering_call_of(trace, base)
    return None if ordering is None else _pick_at_index(ordering, index)


def _ordering_call_of(trace: Trace, value: Value) -> CallEvent | None:
    """The call that ordered a list; None where it is not known."""
    if isinstance(value, Sequence):
        return value.ordered_by
    if isinstance(value, Result):
        call = value.call
        if (
            call.named("sorted", "heapq.nlargest", "heapq.nsmallest")
            or call.method == "sort_values"
        ):
            return call
        inner = _input_returned_in_same_order(call)
        if inner is not None:
            return _ordering_call_of(trace, inner)
    sorts = [
        one for one in trace.uses(value) if isinstance(one, CallEvent) and one.method == "sort"
    ]
    return sorts[-1] if len(sorts) == 1 else None


def _input_returned_in_same_order(call: CallEvent) -> Value | None:
    """What a call gives in the order that it had: `frame.reset_index()`, `list(answers)`; None for
    any other call.
    """
    if call.method in ("reset_index", "to_list", "tolist", "to_dict"):
        return call.receiver
    return call.args[0] if call.named("list", "tuple") and call.args else None


def _pick_at_index(ordering: CallEvent, index: int) -> AnswerPick | None:
    """What stands at a place of an ordered list."""
    found = _sort_key_and_is_negated(ordering)
    is_falling = _begins_with_largest(ordering)
    if found is None or is_falling is None:
        return None
    key, is_negated = found
    better = is_higher_better(key)
    if better is None:
        return None
    place = index if index >= 0 else LAST + index
    from_best = is_falling != is_negated
    if not better:
        from_best = not from_best
    return AnswerPick(LAST - 1 - place if from_best else place, key, ordering.node)


def _begins_with_largest(ordering: CallEvent) -> bool | None:
    """Does an order begin with the largest? None where only the run knows."""
    if ordering.named("heapq.nlargest"):
        return True
    if ordering.named("heapq.nsmallest"):
        return False
    name, falling = ("ascending", False) if ordering.method == "sort_values" else ("reverse", True)
    argument = ordering.keywords.get(name)
    if argument is None:
        return False
    plain = constant_of(argument)
    if not isinstance(plain, bool):
        return None
    return plain == falling


def _sort_key_and_is_negated(ordering: CallEvent) -> tuple[str, bool] | None:
    """What an order goes by, and whether it is negated; None where it is no plain column."""
    if ordering.method == "sort_values":
        by = ordering.argument(0, "by")
        plain = None if by is None else constant_of(by)
        plain = plain[0] if isinstance(plain, list) and plain else plain
        return (plain, False) if isinstance(plain, str) else None
    key = ordering.keywords.get("key")
    if key is not None:
        return column_and_negation_of_key_function(key)
    return _sort_key_of_zip_and_is_negated(ordering)


def _sort_key_of_zip_and_is_negated(ordering: CallEvent) -> tuple[str, bool] | None:
    """What a sorted zip goes by, its first list: `scores` of `sorted(zip(scores, answers))`; None
    otherwise.
    """
    node = ordering.node
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id == "zip":
        name = last_name_of_node(given.args[0]) if given.args else None
        return None if name is None else (name, False)
    return None


def _pick_of_max_or_min(call: CallEvent) -> AnswerPick | None:
    """The pick by `max(answers, key=...)` or `min`; None for any other call."""
    if not call.named("max", "min"):
        return None
    key = call.keywords.get("key")
    found = (
        _sort_key_of_zip_and_is_negated(call)
        if key is None
        else column_and_negation_of_key_function(key)
    )
    return None if found is None else _pick_of_extreme(call, *found, is_largest=call.named("max"))


def _pick_at_index_of_extreme_score(call: CallEvent) -> AnswerPick | None:
    """The item at `scores.argmax()` or `scores.index(max(scores))`; None for any other place."""
    if call.method == "item" and isinstance(call.receiver, Result):
        return _pick_at_index_of_extreme_score(call.receiver.call)
    if call.named("int") and call.args and isinstance(call.args[0], Result):
        return _pick_at_index_of_extreme_score(call.args[0].call)
    if call.method == "index" and call.args and isinstance(call.args[0], Result):
        return _pick_by_index_method(call, call.args[0].call)
    if call.named("max", "min"):
        return _pick_of_max_or_min(call)
    return _pick_by_argmax(call)


def _pick_by_index_method(call: CallEvent, extreme: CallEvent) -> AnswerPick | None:
    """The pick at the position of the largest or smallest: `scores.index(max(scores))`; None
    otherwise.
    """
    written = extreme.node
    inner = written.args[0] if isinstance(written, ast.Call) and written.args else None
    name = last_name_of_node(inner)
    if name is None or not extreme.named("max", "min"):
        return None
    return _pick_of_extreme(call, name, is_negated=False, is_largest=extreme.named("max"))


def _pick_by_argmax(call: CallEvent) -> AnswerPick | None:
    """The pick at the position that `scores.argmax()` or `np.argmin(scores)` gives; None for any
    other call.
    """
    node = call.node
    end = call.method or next((name.rpartition(".")[2] for name in call.names), "")
    if end not in ENDS or not isinstance(node, ast.Call):
        return None
    given = node.args[0] if node.args and not call.method else getattr(node.func, "value", None)
    name = last_name_of_node(given)
    if name is None:
        return None
    return _pick_of_extreme(call, name, is_negated=False, is_largest=end.endswith("max"))


def _pick_of_extreme(
    call: CallEvent, key: str, is_negated: bool, *, is_largest: bool
) -> AnswerPick | None:
    """The largest or smallest by a key."""
    better = is_higher_better(key)
    if better is None:
        return None
    is_best = (is_largest != is_negated) == better
    return AnswerPick(LAST - 1 if is_best else 0, key, call.node)


def _wrong_pairs_by_branch_conditions(trace: Trace) -> Iterator[WrongPair]:
    """The wrong pairs whose sides are taken in the arm of a test of two scores, or of a winner's
    name.
    """
    for frame, sides, event in _pair_sides_named_in_branches(trace):
        better = _better_side_and_why_wrong(frame)
        chosen, rejected = (_side_label_of_answer(sides[side]) for side in SIDES)
        if better is None or chosen is None or chosen == rejected:
            continue
        if rejected == better[0]:
            yield WrongPair(event.node, frame.node, better[1])


def _pair_sides_named_in_branches(trace: Trace) -> Iterator[tuple[Frame, dict[str, Value], Event]]:
    """Both sides of the pairs that are named in one arm of a test, with the last event that names
    one.
    """
    named: dict[int, dict[str, Value]] = {}
    for event in trace.events:
        frame = next(event.frames("branch"), None)
        if frame is None or frame.value is None:
            continue
        sides = named.setdefault(id(frame), {})
        given = _sides_of_event(event)
        sides.update(given)
        if given and len(sides) == len(SIDES):
            yield frame, dict(sides), event


def _sides_of_event(event: Event) -> dict[str, Value]:
    """The sides of a pair that an event names: `chosen = ...`, `return {"chosen": ...}`,
    `rows.append({...})`.
    """
    sides: dict[str, Value] = {}
    made: tuple[Value, ...] = ()
    if isinstance(event, NameEvent):
        made = (event.value,)
        if event.name in SIDES:
            sides[event.name] = event.value
    elif isinstance(event, ReturnEvent):
        made = (event.value,)
    elif isinstance(event, CallEvent) and event.method == "append":
        made = event.args
    for one in made:
        if isinstance(one, Mapping):
            sides.update((side, one.entries[side]) for side in SIDES if side in one.entries)
    return sides


def _better_side_and_why_wrong(frame: Frame) -> tuple[str, str] | None:
    """The better side in an arm of a test, and why its choice is wrong; None where the test says
    neither.
    """
    test = frame.value
    if not isinstance(test, Operation) or len(test.operands) != 2:
        return None
    left, right = test.operands
    name = column_of_cell(left)
    if name is None:
        return None
    if test.operator == "==":
        return _side_named_as_winner(frame, name, right)
    if test.operator not in (">", ">=", "<", "<="):
        return None
    one, other = _side_label_of_column(left), _side_label_of_column(right)
    more_is_better = is_higher_better(name)
    if one is None or other is None or one == other or more_is_better is None:
        return None
    left_is_more = test.operator.startswith(">") == frame.taken
    better = one if left_is_more == more_is_better else other
    return (
        better,
        f"chosen is the side with the worse `{name}`, and rejected the one with the better",
    )


def _side_named_as_winner(frame: Frame, name: str, named: Value) -> tuple[str, str] | None:
    """The side that `row["winner"] == "model_a"` names; None where it names none."""
    plain = constant_of(named)
    words = {word.lower() for word in WORDS.findall(name)}
    if not frame.taken or not words & WINNERS or isinstance(plain, bool):
        return None
    label = _last_word_of_name(str(plain)) if isinstance(plain, str | int) else ""
    why = f"rejected is the side that `{name}` names as the better one"
    return (label, why) if label in SIDE_WORDS else None


def _side_label_of_column(value: Value) -> str | None:
    """Which of two sides a value is of: the last word of its column, else the object that it is
    read from.
    """
    name = column_of_cell(value)
    if name is None:
        return None
    word = _last_word_of_name(name)
    if word in SIDE_WORDS:
        return word
    base = next(iter(parts_of_value(value)), None)
    return None if base is None else f"object {id(base)}"


def _side_label_of_answer(value: Value) -> str | None:
    """Which of two sides an answer is of."""
    for _ in range(MAX_DEPTH):
        label = _side_label_of_column(value)
        if label is not None:
            return label
        inner = _answer_inside(value)
        if inner is None:
            return None
        value = inner
    return None


def _last_word_of_name(name: str) -> str:
    """The last word of a name: `a` of `response_a` and `scoreA`."""
    words = WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1_\2", name))
    return words[-1].lower() if words else ""
