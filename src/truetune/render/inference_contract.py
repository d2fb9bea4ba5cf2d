"""Finds which characters of a rendering the model must produce by itself: the inference contract.

For an assistant turn that is everything from the end of the serving prompt
(`render(messages[:i], add_generation_prompt=True)`) through the stop token that ends the turn. Where the
template rewrites earlier turns, one rendering can't show every turn as it will be served.

How a turn is judged, by three renderings of the same conversation:

    own      messages[:i + 1]              the conversation through the turn
    prompt   messages[:i], prompt          what the model is shown when it has to say the turn
    whole    all messages                  the text that is trained

1. The turn starts where `prompt` ends in `own` (`_find_start_and_skew`). Where `prompt` is no prefix of `own`, that
   is skew between training and serving; provenance may still say where the turn's first field stands.
2. It ends behind the first stop token after its last field (`_mark_behind_last_field`, `_find_stop`).
3. It is trained in `whole` only if `whole` begins with `own` up to that end (`_whole_begins_with_served_turn`); else
   as an example of its own, or not at all, as `history` says.

Renderings are compared part by part, not as strings: that two parts are the same expression holds for all rows, so
that a recipe can be made; where only the characters of this row are equal, the trace becomes opaque. The trade-off:
more code than `str.startswith`, for plans that serve all rows of a shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.prefix_renderings import PrefixRenderings, RenderedText, ends_in_unknown_origin
from truetune.render.template import LimitError, Parts, Template
from truetune.render.traced_string import (
    UNKNOWN,
    Node,
    Path,
    Trace,
    Traced,
    field_path_of_expression,
)
from truetune.render.unfilled_example_plan import Mark, Plan, TurnPlan, make_plan
from truetune.settings.run_spec import RunSpec

# What `Turn.skew` says of a turn that does not stand in the text as it will be served, for users.
REWRITTEN = "the template rewrites this turn once a later one follows"
NO_PROMPT = "a conversation that begins with the assistant has no serving prompt"

CONTEXT_REWRITTEN = "the template rewrites what comes before this turn once the turn is added"
UNPLACED = "where its answer begins in the training text is not known, so it is not trained"

TRACED_TURNS = 64
"""Up to so many assistant turns, each rendering that a turn is judged by keeps its questions, so that a recipe can be
made of the row. Conversations of one shape that are longer are too rare to be worth it. Chosen, not measured: tracing
makes a rendering several times as slow, and a row of n turns has 2 n + 1 of them."""
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


def make_stop_patterns(known: Iterable[str], control: Iterable[str]) -> StopPatterns:
    """Stops from the tokens that are known to end turns, and all control tokens."""
    # The longest first: a regular expression takes the first branch that matches, and a token may begin another one.
    pattern = "|".join(re.escape(token) for token in sorted(control, key=len, reverse=True))
    return StopPatterns(tuple(known), re.compile(pattern) if pattern else None)


def plan_examples(
    template: Template, row: Conversation, spec: RunSpec, stops: StopPatterns, trace: Trace
) -> list[Plan]:
    """The training examples of a chat.

    Args:
        template: what renders it.
        row: a chat.
        spec: says what is learned, and what to do where one rendering can't show all turns (`history`).
        stops: how turns end.
        trace: gets all questions; its `opaque` is set where the plans hold for this row alone.

    Returns:
        One plan of the whole conversation, or one for each trained turn as it will be served.

    Raises:
        TemplateError: where the template raises it, and for a conversation that is too long.
    """
    weights = turn_weights(row, spec)
    is_long = len(weights) > TRACED_TURNS
    trace.opaque = trace.opaque or is_long
    _refuse_long_conversation(row, weights)
    # Turns of weight 0 are judged too: reports show where every turn begins and ends. Not in long rows, to save time.
    judged_turns = [index for index in weights if weights[index] or not is_long]
    prefixes = PrefixRenderings(template, row, spec, trace, judged_turns, is_long=is_long)
    whole = prefixes.text(len(row.messages))
    turns = list(_plan_turns(prefixes, weights, whole, stops))
    as_served = [_whole_begins_with_served_turn(turn, own, whole, trace) for turn, own in turns]
    if (
        spec.history == "single"
        or spec.learn.what == "all"
        or _does_whole_train_all_turns(turns, as_served)
    ):
        in_whole = _move_turns_into_whole(turns, as_served, whole, trace)
        return [make_plan(whole.parts, in_whole, None, row, template)]
    return [
        make_plan(own.parts, (turn,), turn.message, row, template)
        for turn, own in turns
        if turn.weight
    ]


def _plan_turns(
    prefixes: PrefixRenderings, weights: dict[int, float], whole: RenderedText, stops: StopPatterns
) -> Iterator[tuple[TurnPlan, RenderedText]]:
    """Each assistant turn with its marks, and the rendering that they point into."""
    for index, weight in weights.items():
        if prefixes.is_long and not weight:
            # Not judged, to save time; without marks it agrees with any rendering.
            yield TurnPlan(index, None, None, None, None, 0.0), whole
        else:
            own = prefixes.text_through_turn(index)
            yield _plan_turn(prefixes, index, own, weight, stops), own


def _move_turns_into_whole(
    turns: list[tuple[TurnPlan, RenderedText]],
    as_served: list[bool],
    whole: RenderedText,
    trace: Trace,
) -> tuple[TurnPlan, ...]:
    """The turns with their marks in the whole conversation; those that do not stand there as served have none."""
    return tuple(
        _move_marks(turn, own, whole, trace) if stands else _without_marks(turn)
        for (turn, own), stands in zip(turns, as_served, strict=True)
    )


def _does_whole_train_all_turns(
    turns: list[tuple[TurnPlan, RenderedText]], as_served: list[bool]
) -> bool:
    """Can the whole conversation train every turn that is to be learned?"""
    return all(
        stands or not turn.weight for (turn, _), stands in zip(turns, as_served, strict=True)
    )


def _refuse_long_conversation(row: Conversation, weights: dict[int, float]) -> None:
    """Raises TemplateError where judging the turns of a row would take too long."""
    if len(row.messages) > MAX_MESSAGES:
        raise TemplateError(
            f"the conversation has {len(row.messages):,} messages and at most {MAX_MESSAGES:,} are"
            " rendered; share it out over several rows"
        )
    trained = [index for index, weight in weights.items() if weight]
    # Turn i is judged by messages[:i] as a prompt and messages[:i + 1]: 2 i + 1 messages.
    rendered = sum(2 * index + 1 for index in trained)
    if len(weights) > TRACED_TURNS and rendered > MAX_RENDERED:
        raise TemplateError(
            f"the conversation has {len(trained):,} assistant turns to learn, each of which is"
            f" judged by what the template makes of all that comes before it: {rendered:,}"
            f" messages in all, where {MAX_RENDERED:,} is the limit; share it out over several"
            " rows, or learn its last turn alone"
        )


def turn_weights(row: Conversation, spec: RunSpec) -> dict[int, float]:
    """The weight of each assistant turn, 0 where it is not to be learned."""
    turns = [i for i, message in enumerate(row.messages) if message.get("role") == "assistant"]
    # A chat that does not say where its prompt ends has its last turn for a completion.
    without_prompt = spec.learn.what == "completion" and row.prompt_messages is None
    first = 0
    if spec.learn.what == "last" or without_prompt:
        first = turns[-1] if turns else 0
    elif spec.learn.what == "completion":
        first = row.prompt_messages or 0
    weights = {}
    for index in turns:
        message = row.messages[index]
        is_learned = index >= first and message.get("train", True)
        weights[index] = float(message.get("weight", 1.0)) if is_learned else 0.0
    return weights


def _plan_turn(
    prefixes: PrefixRenderings, index: int, own: RenderedText, weight: float, stops: StopPatterns
) -> TurnPlan:
    """Plan a turn: where it begins and ends in its own rendering, `own`."""
    start, skew = _find_start_and_skew(prefixes, index, own)
    if start is None:
        # Nobody knows what the model would say here: weight 0, so that nothing of it is trained.
        return TurnPlan(index, None, None, None, skew, 0.0)
    closing = _mark_behind_last_field(own, index, start)
    match = _find_stop(own.parts, closing, stops)
    if match is None and closing.piece and ends_in_unknown_origin(own.parts[: closing.piece]):
        match = _find_stop_where_origin_unknown(own, start, stops)
    if match is None:
        # The template ends the turn with no stop token. It is trained through its last field; a rule reports it.
        return TurnPlan(index, start, None, closing, skew, weight)
    stop, length = match
    return TurnPlan(index, start, stop, stop._replace(offset=stop.offset + length), skew, weight)


def _find_start_and_skew(
    prefixes: PrefixRenderings, index: int, own: RenderedText
) -> tuple[Mark | None, str | None]:
    """Where the model begins to speak, and why the serving prompt does not end there.

    That is the end of the serving prompt. Where the rendering does not begin with that prompt, but with the messages
    before the turn, it is the turn's first field behind them. None where neither holds: what stands where is not known.

    Returns:
        (start, skew): the mark before the first character that the model says, and a text for the user.
    """
    trace = prefixes.trace
    if index == 0:
        start = _find_first_field(own, 0, Mark(0, 0), trace)
        return start, NO_PROMPT if start is not None else f"{NO_PROMPT}, and {UNPLACED}"
    prompt: Parts | None = None
    try:
        prompt = prefixes.serving_prompt_after_messages(index)
    except LimitError:
        # Ends the row (and every later one): to continue would mean to guess for a template that was stopped.
        raise
    except TemplateError as error:
        skew = f"the serving prompt can't be rendered: {error}"
    else:
        end = find_prefix_end(prompt, own, trace)
        if end is not None:
            return end, None
        skew = _describe_prompt_skew(prompt)
    before = _text_before_turn(prefixes, index)
    if prompt is not None:
        shared_end = _find_shared_prompt_end(prompt, before, own, index, trace)
        if shared_end is not None:
            return shared_end, CONTEXT_REWRITTEN
    edge = None if before is None else find_prefix_end(before.parts, own, trace)
    start = None if edge is None else _find_first_field(own, index, edge, trace)
    return start, skew if start is not None else f"{skew}; {UNPLACED}"


def _text_before_turn(prefixes: PrefixRenderings, index: int) -> RenderedText | None:
    """The messages before a turn, without a generation prompt; None where the template refuses to end there."""
    try:
        return prefixes.text(index)
    except LimitError:
        raise
    except TemplateError:
        return None


def _find_shared_prompt_end(
    prompt: Parts, before: RenderedText | None, own: RenderedText, index: int, trace: Trace
) -> Mark | None:
    """The end of the serving prompt, where only what stands further back in it is written otherwise in the text.

    gpt-oss drops the analysis before a tool call once the final answer is there. What ends the prompt (all behind its
    last field, or what `add_generation_prompt` adds) must stand behind the last field that is not of the turn.

    Args:
        prompt: the serving prompt of the turn.
        before: the messages before the turn, without a generation prompt; None where that can't be rendered.
        own: the conversation through the turn.
        index: the turn's message.
        trace: gets the questions.
    """
    others = [i for i, part in enumerate(own.parts) if _messages_that_part_is_from(part) - {index}]
    if not others or others[-1] + 1 >= len(own.parts):
        return None
    field, behind = own.parts[others[-1]], own.parts[others[-1] + 1]
    if isinstance(behind, Traced):
        return None
    length = _literal_length_behind_same_field(prompt, field, behind)
    if length is None and before is not None:
        added = _generation_prompt_text(prompt, before, trace)
        if added and added in behind:
            # The last one: text that only looks like it may stand before, in a header that is repeated.
            length = behind.rfind(added) + len(added)
    if length is None:
        return None
    mark = Mark(others[-1] + 1, length)
    # Without a field of the turn behind the mark, it is not proved that this is where the turn begins.
    return mark if _find_first_field(own, index, mark, trace) is not None else None


def _literal_length_behind_same_field(prompt: Parts, field: str, behind: str) -> int | None:
    """How much of the literal text `behind` a field the prompt ends with, where it has the same field before its end.

    None where it has another one, or other text behind it.
    """
    last = next((i for i in reversed(range(len(prompt))) if isinstance(prompt[i], Traced)), None)
    if last is None or last + 1 >= len(prompt) or not _is_same_part(prompt[last], field):
        return None
    tail = prompt[last + 1]
    return len(tail) if behind.startswith(tail) else None


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
        owners = _messages_that_part_is_from(part)
        if None in owners:
            # It may hold the turn's first word: what is found behind it would not be the first.
            return None
        if not isinstance(part, Traced) or index not in owners:
            continue
        # A mark that was found by characters stands behind the fields that are empty here and begin where it does:
        # characters compare right. One that was found by parts holds for other rows, in which such a field has text.
        is_before = (
            own.part_start_positions[number] < position if trace.opaque else Mark(number, 0) < edge
        )
        if owners != {index} or is_before:
            return None
        if any(_share_characters(part, other, trace) for other in fields):
            return None
        fields.append(part)
        if first is None:
            first = Mark(number, 0)
    return first


def _messages_that_part_is_from(part: str) -> set[int | None]:
    """The messages whose fields a part was made from; None for one that is not known, -1 for what is no message."""
    if not isinstance(part, Traced):
        return set()
    path = field_path_of_expression(part.node)
    paths = (
        [path]
        if path != UNKNOWN
        else [segment.path for segment in part.segments if segment.path is not None]
    )
    return {_message_that_field_is_in(path) for path in paths}


def _message_that_field_is_in(path: Path) -> int | None:
    """The message that a field is part of; None for an unknown field, -1 for one beside the messages."""
    if path == UNKNOWN:
        return None
    return int(path[1]) if path[0] == "messages" else -1


def _share_characters(one: Traced, other: Traced, trace: Trace) -> bool:
    """May a character of a field stand in both of two expressions over it?

    Sets `trace.opaque` where that depends on what the field holds.
    """
    if UNKNOWN not in (field_path_of_expression(one.node), field_path_of_expression(other.node)):
        if field_path_of_expression(one.node) != field_path_of_expression(
            other.node
        ) or _are_different_pieces_of_split(one.node, other.node):
            return False
        # One field twice: where the two overlap depends on its characters, as the ranges below are those of this row.
        trace.opaque = True
    for path, (start, stop) in _character_ranges(one).items():
        begin, end = _character_ranges(other).get(path, (0, 0))
        if start < end and begin < stop:
            return True
    return False


def _are_different_pieces_of_split(one: Node, other: Node) -> bool:
    """Are two expressions made from two pieces of one `split` or `partition`, which share no character?

    Qwen3 writes `content.split('</think>')[0]` as reasoning and `[-1]` as answer: one field, twice in the text, and yet
    no character of it twice.
    """
    items = {node[1]: node[2] for node in _expression_and_its_parents(one) if node[0] == "item"}
    return any(
        node[0] == "item" and items.get(node[1], node[2]) != node[2]
        for node in _expression_and_its_parents(other)
    )


def _expression_and_its_parents(node: Node) -> Iterator[Node]:
    """An expression, and those that it is made from."""
    while node[0] != "leaf":
        yield node
        node = node[1]


def _character_ranges(part: Traced) -> dict[Path, tuple[float, float]]:
    """From which to which character of its fields an expression reaches, by path.

    Characters that were made from a field in a way that is not known may be any of it.
    """
    ranges: dict[Path, tuple[float, float]] = {}
    for length, path, offset in part.segments:
        if path is None or not length:
            continue
        start, stop = (offset, offset + length) if offset >= 0 else (0.0, float("inf"))
        low, high = ranges.get(path, (start, stop))
        ranges[path] = min(low, start), max(high, stop)
    return ranges


def _mark_behind_last_field(own: RenderedText, index: int, start: Mark) -> Mark:
    """The mark behind the last field of a turn, before any field of another message."""
    closing = start
    for number in range(start.piece, len(own.parts)):
        part = own.parts[number]
        if not isinstance(part, Traced):
            continue
        owners = _messages_that_part_is_from(part)
        if None in owners and own.holds_later_messages:
            # It may be a field of a later message, which this text holds as well.
            break
        if owners - {index, None}:
            if part:  # asked of the field itself, so that a recipe holds for rows with the same answer alone
                break
            continue
        closing = Mark(number + 1, 0)
    return closing


def _describe_prompt_skew(prompt: Parts) -> str:
    """The skew of a serving prompt that the training text does not begin with, as a user reads it."""
    tail = prompt[-1] if prompt else ""
    end = "a field of the last message" if isinstance(tail, Traced) else repr(tail[-40:])
    return f"the serving prompt ends with {end}, which the training text does not have there"


def _find_stop(own: Parts, closing: Mark, stops: StopPatterns) -> tuple[Mark, int] | None:
    """The stop token in the literal text that closes a turn, and its length."""
    if closing.piece >= len(own) or isinstance(own[closing.piece], Traced):
        return None
    tail = own[closing.piece]
    first = _find_first_token(tail, stops.known, closing.offset)
    if first is not None:
        return Mark(closing.piece, first[0]), first[1]
    if stops.control is None:
        return None
    # No known stop token. The last control token of the text that closes the turn is taken for one: those before it
    # close parts of the turn (a tool call, a channel).
    controls = list(stops.control.finditer(tail, closing.offset))
    if not controls:
        return None
    return Mark(closing.piece, controls[-1].start()), len(controls[-1][0])


def _find_first_token(text: str, tokens: Iterable[str], start: int) -> tuple[int, int] | None:
    """(position, length) of the first of some tokens in a text from `start` on; of two at one place, the longer."""
    positions = [(text.find(token, start), token) for token in tokens]
    matches = [(position, -len(token)) for position, token in positions if position >= 0]
    if not matches:
        return None
    position, negative_length = min(matches)
    return position, -negative_length


def _find_stop_where_origin_unknown(
    own: RenderedText, start: Mark, stops: StopPatterns
) -> tuple[Mark, int] | None:
    """The first stop token behind the beginning of a turn, where template text and fields can't be told apart."""
    first = _find_first_token(own.plain, stops.known, own.position(start))
    return None if first is None else (own.mark_before_character(first[0]), first[1])


def _whole_begins_with_served_turn(
    turn: TurnPlan, own: RenderedText, whole: RenderedText, trace: Trace
) -> bool:
    """Does the whole conversation begin with this turn as it is served?"""
    if turn.end is None or own.begins_whole:
        return True
    return find_prefix_end(own.parts_before_mark(turn.end), whole, trace) is not None


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

    # Same characters, other parts. Marks are moved by characters, which holds for this row's lengths alone.
    trace.opaque = True

    def move(mark: Mark | None) -> Mark | None:
        return None if mark is None else whole.mark_before_character(own.position(mark))

    return turn._replace(start=move(turn.start), stop=move(turn.stop), end=move(turn.end))


def _is_same_part(one: str, other: str) -> bool:
    """Are two parts the same text, whatever the fields hold?"""
    if not isinstance(one, Traced) and not isinstance(other, Traced):
        return one == other
    if not isinstance(one, Traced) or not isinstance(other, Traced) or one.node != other.node:
        return False
    # All text of unknown origin has one and the same expression.
    return field_path_of_expression(one.node) != UNKNOWN or one.plain == other.plain


def find_prefix_end(head: Parts, text: RenderedText, trace: Trace) -> Mark | None:
    """The mark in `text` at which `head` ends, None where text does not begin with head.

    Sets `trace.opaque` where that depends on more of the fields than how they begin.

    Args:
        head: the parts of a rendering of fewer messages.
        text: a rendering that may begin with it.
        trace: gets the questions.
    """
    # Nothing is left to save where the trace is opaque already: the characters are the quickest answer.
    if trace.opaque:
        return _prefix_end_by_characters("".join(head), text, trace)
    number = 0
    while number < min(len(head), len(text.parts)):
        if not _is_same_part(head[number], text.parts[number]):
            break
        number += 1
    if number == len(head):
        return Mark(number, 0)
    if number < len(text.parts):
        part, other = head[number], text.parts[number]
        is_last = number == len(head) - 1
        if _is_literal(part) and _is_literal(other) and is_last and other.startswith(part):
            return Mark(number, len(part))
        if _never_begins_with_head_in_any_row(head[number:], text.parts[number:]):
            return None
    return _prefix_end_by_characters("".join(head), text, trace)


def _is_literal(part: str) -> bool:
    """Is a part text of the template?"""
    return not isinstance(part, Traced)


def _never_begins_with_head_in_any_row(head: Parts, text: Parts) -> bool:
    """Is it certain, for all rows that answer alike, that `text` does not begin with `head`?

    Both begin with a part that the other has not: two literal texts, or at least one field.
    """
    part, other = head[0], text[0]
    if not _is_literal(part) or not _is_literal(other):
        return _differ_by_first_character(head, text)
    if not other.startswith(part) and not part.startswith(other):
        return True
    # One literal text begins with the other: what decides is the next character behind what they share.
    common = min(len(part), len(other))
    return _differ_by_first_character((part[common:], *head[1:]), (other[common:], *text[1:]))


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
    """As `find_prefix_end`, for the characters of this row alone."""
    trace.opaque = True
    return text.mark_before_character(len(head)) if text.plain.startswith(head) else None
