"""The inference contract: which characters of a rendering the model must produce by itself.

For an assistant turn that is everything from the end of the serving prompt
(`render(messages[:i], add_generation_prompt=True)`) through the stop token that ends the turn. Where the
template rewrites earlier turns, one rendering can't show every turn as it will be served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.prefix_renderings import PrefixRenderings, RenderedText, ends_in_unknown
from truetune.render.render_plan import Mark, Plan, TurnPlan, leaf_path, make_plan
from truetune.render.template import LimitError, Parts, Template
from truetune.render.traced_string import UNKNOWN, Node, Path, Trace, Traced
from truetune.spec.run import RunSpec

REWRITTEN = "the template rewrites this turn once a later one follows"
NO_PROMPT = "a conversation that begins with the assistant has no serving prompt"

CONTEXT_REWRITTEN = "the template rewrites what stands before this turn once the turn is there"
UNPLACED = "where its answer begins in the training text can't be told, so that it is not trained"

TRACED_TURNS = 64
"""Up to so many assistant turns, each rendering that a turn is judged by keeps its questions, so that a recipe can be
made of the row. Conversations of one shape that are longer are too rare to be worth it."""
MAX_MESSAGES = 10_000
"""The longest conversation that is rendered. On a slow machine a template takes 50 us a message, so 0.5 s."""
MAX_RENDERED = 600_000
"""Messages that the template may be run over to judge the turns of one row. Each turn is judged by two renderings of
all that stands before it; at the 5 to 25 us that published templates take for a message this is 3 to 15 s, for 547
turns of a question and an answer."""


class StopPatterns(NamedTuple):
    """How turns end, as text."""

    known: tuple[str, ...]
    """Stop tokens that the tokenizer, generation_config or template name."""
    control: re.Pattern[str] | None
    """Any control token."""


def stop_patterns(known: Iterable[str], control: Iterable[str]) -> StopPatterns:
    """Stops from the tokens that are known to end turns, and all control tokens."""
    pattern = "|".join(re.escape(token) for token in sorted(control, key=len, reverse=True))
    return StopPatterns(tuple(known), re.compile(pattern) if pattern else None)


def plan_examples(
    template: Template, row: Conversation, spec: RunSpec, stops: StopPatterns, trace: Trace
) -> list[Plan]:
    """The training examples of a chat.

    Sets `trace.opaque` where they hold for this row alone. Raises TemplateError where the template does, and for a
    conversation that is too long.
    """
    weights = turn_weights(row, spec)
    is_long = len(weights) > TRACED_TURNS
    if is_long:
        trace.opaque = True
    _check_length(row, weights)
    judged = [index for index, weight in weights.items() if weight or not is_long]
    shown = PrefixRenderings(template, row, spec, trace, judged, is_long=is_long)
    whole = shown.text(len(row.messages))
    bos = template.special.get("bos_token")
    turns = []
    for index, weight in weights.items():
        if is_long and not weight:
            turns.append((TurnPlan(index, None, None, None, None, 0.0), whole))
        else:
            own = shown.through(index)
            turns.append((_plan_turn(shown, index, own, weight, stops), own))
    agreed = [_stands_as_served(turn, own, whole, trace) for turn, own in turns]
    served = all(ok or not turn.weight for (turn, _), ok in zip(turns, agreed, strict=True))
    if served or spec.history == "single" or spec.learn.what == "all":
        found = [
            _move_marks(turn, own, whole, trace) if ok else _without_marks(turn)
            for (turn, own), ok in zip(turns, agreed, strict=True)
        ]
        return [make_plan(whole.parts, tuple(found), None, row, bos)]
    return [
        make_plan(own.parts, (turn,), turn.message, row, bos) for turn, own in turns if turn.weight
    ]


def _check_length(row: Conversation, weights: dict[int, float]) -> None:
    """Raises TemplateError where judging the turns of a row would take too long."""
    if len(row.messages) > MAX_MESSAGES:
        raise TemplateError(
            f"the conversation has {len(row.messages):,} messages and at most {MAX_MESSAGES:,} are"
            " rendered; share it out over several rows"
        )
    trained = [index for index, weight in weights.items() if weight]
    rendered = sum(2 * index + 1 for index in trained)
    if len(weights) > TRACED_TURNS and rendered > MAX_RENDERED:
        raise TemplateError(
            f"the conversation has {len(trained):,} assistant turns to learn, each of which is"
            f" judged by what the template makes of all that stands before it: {rendered:,}"
            f" messages in all, where {MAX_RENDERED:,} is the limit; share it out over several"
            " rows, or learn its last turn alone"
        )


def turn_weights(row: Conversation, spec: RunSpec) -> dict[int, float]:
    """The weight of each assistant turn, 0 where it is not to be learned."""
    turns = [i for i, message in enumerate(row.messages) if message.get("role") == "assistant"]
    first = 0
    if spec.learn.what == "last" or (
        spec.learn.what == "completion" and row.prompt_messages is None
    ):
        first = turns[-1] if turns else 0
    elif spec.learn.what == "completion":
        first = row.prompt_messages or 0
    return {
        i: (
            float(row.messages[i].get("weight", 1.0))
            if i >= first and row.messages[i].get("train", True)
            else 0.0
        )
        for i in turns
    }


def _plan_turn(
    shown: PrefixRenderings, index: int, own: RenderedText, weight: float, stops: StopPatterns
) -> TurnPlan:
    """Where a turn begins and ends in its own rendering."""
    start, skew = _find_start(shown, index, own)
    if start is None:
        return TurnPlan(index, None, None, None, skew, 0.0)
    closing = _find_closing(own, index, start)
    found = _find_stop(own.parts, closing, stops)
    if found is None and closing.piece and ends_in_unknown(own.parts[: closing.piece]):
        found = _find_stop_in_unknown(own, start, stops)
    if found is None:
        return TurnPlan(index, start, None, closing, skew, weight)
    stop, length = found
    return TurnPlan(index, start, stop, stop._replace(offset=stop.offset + length), skew, weight)


def _find_start(
    shown: PrefixRenderings, index: int, own: RenderedText
) -> tuple[Mark | None, str | None]:
    """Where the model begins to speak, and why the serving prompt does not end there.

    That is the end of the serving prompt. Where the rendering does not begin with that prompt, but with the messages
    before the turn, it is the turn's first field behind them. None where neither holds: what stands where is not known.
    """
    if index == 0:
        start = _find_first_field(own, 0, Mark(0, 0), shown.trace)
        return start, NO_PROMPT if start is not None else f"{NO_PROMPT}, and {UNPLACED}"
    prompt: Parts | None = None
    try:
        prompt = shown.prompt(index)
    except LimitError:
        raise
    except TemplateError as error:
        skew = f"the serving prompt can't be rendered: {error}"
    else:
        end = find_prefix_end(prompt, own, shown.trace)
        if end is not None:
            return end, None
        skew = _describe_prompt_end(prompt)
    try:
        before = shown.text(index)
    except LimitError:
        raise
    except TemplateError:
        before = None
    if prompt is not None:
        resumed = _find_shared_prompt_end(prompt, before, own, index, shown.trace)
        if resumed is not None:
            return resumed, CONTEXT_REWRITTEN
    edge = None if before is None else find_prefix_end(before.parts, own, shown.trace)
    start = None if edge is None else _find_first_field(own, index, edge, shown.trace)
    return start, skew if start is not None else f"{skew}; {UNPLACED}"


def _find_shared_prompt_end(
    prompt: Parts, before: RenderedText | None, own: RenderedText, index: int, trace: Trace
) -> Mark | None:
    """The end of the serving prompt, where only what stands further back in it is written otherwise in the text.

    gpt-oss drops the analysis before a tool call once the final answer is there. What ends the prompt (all behind its
    last field, or what `add_generation_prompt` adds) must stand behind the last field that is not of the turn.
    """
    others = [i for i, part in enumerate(own.parts) if _message_indices(part) - {index}]
    if not others or others[-1] + 1 >= len(own.parts):
        return None
    field, behind = own.parts[others[-1]], own.parts[others[-1] + 1]
    if isinstance(behind, Traced):
        return None
    end = None
    last = next((i for i in reversed(range(len(prompt))) if isinstance(prompt[i], Traced)), None)
    if last is not None and last + 1 < len(prompt) and _is_same_part(prompt[last], field):
        tail = prompt[last + 1]
        end = len(tail) if behind.startswith(tail) else None
    if end is None and before is not None:
        added = _generation_prompt_text(prompt, before, trace)
        end = behind.rfind(added) + len(added) if added and added in behind else None
    if end is None:
        return None
    mark = Mark(others[-1] + 1, end)
    return mark if _find_first_field(own, index, mark, trace) is not None else None


def _generation_prompt_text(prompt: Parts, before: RenderedText, trace: Trace) -> str:
    """The literal text that `add_generation_prompt` adds; empty where it does something else."""
    text = RenderedText(prompt)
    end = find_prefix_end(before.parts, text, trace)
    if end is None or end.piece != len(prompt) - 1 or isinstance(prompt[-1], Traced):
        return ""
    return prompt[-1][end.offset :]


def _find_first_field(own: RenderedText, index: int, edge: Mark, trace: Trace) -> Mark | None:
    """The first field of a message behind a mark, where each of the message's characters stands in the text once.

    None where one may stand there more often, for then the first need not be what the model says; and where there is
    text behind the mark that can't be followed.
    """
    first = None
    fields: list[Traced] = []
    position = own.position(edge)
    for number, part in enumerate(own.parts):
        owners = _message_indices(part)
        if None in owners:
            return None
        if not isinstance(part, Traced) or index not in owners:
            continue
        is_before = own.starts[number] < position if trace.opaque else Mark(number, 0) < edge
        if owners != {index} or is_before:
            return None
        if any(_share_characters(part, other, trace) for other in fields):
            return None
        fields.append(part)
        if first is None:
            first = Mark(number, 0)
    return first


def _message_indices(part: str) -> set[int | None]:
    """The messages whose fields a part was made from; None for one that is not known, -1 for what is no message."""
    if not isinstance(part, Traced):
        return set()
    path = leaf_path(part.node)
    paths = (
        [path]
        if path != UNKNOWN
        else [segment.path for segment in part.segments if segment.path is not None]
    )
    return {_message_index(path) for path in paths}


def _message_index(path: Path) -> int | None:
    if path == UNKNOWN:
        return None
    return int(path[1]) if path[0] == "messages" else -1


def _share_characters(one: Traced, other: Traced, trace: Trace) -> bool:
    """May a character of a field stand in both of two expressions over it?

    Sets `trace.opaque` where that depends on what the field holds.
    """
    if UNKNOWN not in (leaf_path(one.node), leaf_path(other.node)):
        if leaf_path(one.node) != leaf_path(other.node) or _different_items(one.node, other.node):
            return False
        trace.opaque = True
    for path, (start, stop) in _character_ranges(one).items():
        begin, end = _character_ranges(other).get(path, (0, 0))
        if start < end and begin < stop:
            return True
    return False


def _different_items(one: Node, other: Node) -> bool:
    """Are two expressions made from two pieces of one `split` or `partition`, which share no character?"""
    mine = {node[1]: node[2] for node in _walk_operations(one) if node[0] == "item"}
    return any(
        node[0] == "item" and mine.get(node[1], node[2]) != node[2]
        for node in _walk_operations(other)
    )


def _walk_operations(node: Node) -> Iterator[Node]:
    """An expression, and those that it is made from."""
    while node[0] != "leaf":
        yield node
        node = node[1]


def _character_ranges(part: Traced) -> dict[Path, tuple[float, float]]:
    """From which to which character of its fields an expression reaches, by path.

    Characters that were made from a field in a way that is not known may be any of it.
    """
    found: dict[Path, tuple[float, float]] = {}
    for length, path, offset in part.segments:
        if path is None or not length:
            continue
        start, stop = (offset, offset + length) if offset >= 0 else (0.0, float("inf"))
        low, high = found.get(path, (start, stop))
        found[path] = min(low, start), max(high, stop)
    return found


def _find_closing(own: RenderedText, index: int, start: Mark) -> Mark:
    """The mark behind the last field of a turn, before any field of another message."""
    closing = start
    for number in range(start.piece, len(own.parts)):
        part = own.parts[number]
        if not isinstance(part, Traced):
            continue
        owners = _message_indices(part)
        if None in owners and own.goes_on:
            break
        if owners - {index, None}:
            if part:  # asked of the field itself, so that a recipe holds for rows with the same answer alone
                break
            continue
        closing = Mark(number + 1, 0)
    return closing


def _describe_prompt_end(prompt: Parts) -> str:
    tail = prompt[-1] if prompt else ""
    shown = "a field of the last message" if isinstance(tail, Traced) else repr(tail[-40:])
    return f"the serving prompt ends with {shown}, which the training text does not have there"


def _find_stop(own: Parts, closing: Mark, stops: StopPatterns) -> tuple[Mark, int] | None:
    """The stop token in the literal text that closes a turn, and its length."""
    if closing.piece >= len(own) or isinstance(own[closing.piece], Traced):
        return None
    tail = own[closing.piece]
    places = [(at, token) for token in stops.known if (at := tail.find(token, closing.offset)) >= 0]
    if places:
        at, token = min(places, key=lambda place: (place[0], -len(place[1])))
        return Mark(closing.piece, at), len(token)
    found = list(stops.control.finditer(tail, closing.offset)) if stops.control else []
    return (Mark(closing.piece, found[-1].start()), len(found[-1][0])) if found else None


def _find_stop_in_unknown(
    own: RenderedText, start: Mark, stops: StopPatterns
) -> tuple[Mark, int] | None:
    """The first stop token behind the beginning of a turn, where template text and fields can't be told apart."""
    places = [
        (at, token)
        for token in stops.known
        if (at := own.plain.find(token, own.position(start))) >= 0
    ]
    if not places:
        return None
    at, token = min(places, key=lambda place: (place[0], -len(place[1])))
    return own.mark(at), len(token)


def _stands_as_served(turn: TurnPlan, own: RenderedText, whole: RenderedText, trace: Trace) -> bool:
    """Does the whole conversation begin with this turn as it is served?"""
    if turn.end is None or own.begins_whole:
        return True
    return find_prefix_end(own.until(turn.end), whole, trace) is not None


def _without_marks(turn: TurnPlan) -> TurnPlan:
    """A turn that stands otherwise in the whole conversation: its marks mean nothing there."""
    return TurnPlan(
        turn.message, None, None, None, turn.skew or REWRITTEN if turn.weight else turn.skew, 0.0
    )


def _move_marks(turn: TurnPlan, own: RenderedText, whole: RenderedText, trace: Trace) -> TurnPlan:
    """The turn with its marks in the whole conversation, whose parts may be cut otherwise."""
    if turn.end is None or own.begins_whole:
        return turn
    if all(
        _is_same_part(a, b) for a, b in zip(own.parts[: turn.end.piece], whole.parts, strict=False)
    ):
        return turn

    trace.opaque = True

    def move(mark: Mark | None) -> Mark | None:
        return None if mark is None else whole.mark(own.position(mark))

    return turn._replace(start=move(turn.start), stop=move(turn.stop), end=move(turn.end))


def _is_same_part(one: str, other: str) -> bool:
    """Are two parts the same text, whatever the fields hold?"""
    if not isinstance(one, Traced) and not isinstance(other, Traced):
        return one == other
    if not isinstance(one, Traced) or not isinstance(other, Traced) or one.node != other.node:
        return False
    # All text of unknown origin has one and the same expression.
    return leaf_path(one.node) != UNKNOWN or one.plain == other.plain


def find_prefix_end(head: Parts, text: RenderedText, trace: Trace) -> Mark | None:
    """The mark in `text` at which `head` ends, None where text does not begin with head.

    Sets `trace.opaque` where that depends on more of the fields than how they begin.
    """
    if trace.opaque:
        return _prefix_end_by_characters("".join(head), text, trace)
    for i, (mine, other) in enumerate(zip(head, text.parts, strict=False)):
        if _is_same_part(mine, other):
            continue
        if not isinstance(mine, Traced) and not isinstance(other, Traced):
            if i == len(head) - 1 and other.startswith(mine):
                return Mark(i, len(mine))
            if not other.startswith(mine) and not mine.startswith(other):
                return None
            common = min(len(mine), len(other))
            if _differ_by_first_character(
                (mine[common:], *head[i + 1 :]), (other[common:], *text.parts[i + 1 :])
            ):
                return None
        elif _differ_by_first_character(head[i:], text.parts[i:]):
            return None
        return _prefix_end_by_characters("".join(head), text, trace)
    return (
        Mark(len(head), 0)
        if len(head) <= len(text.parts)
        else _prefix_end_by_characters("".join(head), text, trace)
    )


def _differ_by_first_character(one: Parts, other: Parts) -> bool:
    """Do two renderings differ in their next character, literal text in one and a field in the other?

    The field's beginning becomes one of the questions of its trace.
    """
    first, second = next(filter(None, one), ""), next(filter(None, other), "")
    if isinstance(first, Traced) == isinstance(second, Traced):
        return False
    field, literal = (first, second) if isinstance(first, Traced) else (second, first)
    return bool(literal) and not field.startswith(literal[0])


def _prefix_end_by_characters(head: str, text: RenderedText, trace: Trace) -> Mark | None:
    trace.opaque = True
    return text.mark(len(head)) if text.plain.startswith(head) else None
