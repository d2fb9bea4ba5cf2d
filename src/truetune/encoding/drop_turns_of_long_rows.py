"""Shortens conversations that are too long, before they are rendered: to fewer turns, or to a question that begins
later.

A row is cut before it is rendered, never its tokens: what comes out is a conversation that the template could have been
given, with its system prompt and whole turns. How many turns fit is searched by halving, with a rendering for each
try. The trade-off: some ten renderings for a row that is too long, and an assumption, that fewer turns are never
longer; where a template breaks it, a row is cut more than it had to be, and still fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from truetune.data.conversation import Conversation
from truetune.render.rendering import Rendering

FitTest = Callable[[Conversation], bool]
"""Is a row short enough?"""
MAX_WORD_CHARACTERS = 40
"""How far a cut in a question moves on to the next space, so that it begins with a whole word. Chosen: longer than
words are, and short beside a question that was too long. Text without spaces is cut where it fits."""


def head_length_and_turn_starts(row: Conversation) -> tuple[int, list[int]]:
    """How many messages stand before the first turn, and where each turn begins; a turn begins with
    a user.
    """
    head = 0
    while head < len(row.messages) and row.messages[head].get("role") in ("system", "developer"):
        head += 1
    roles = [message.get("role") for message in row.messages]
    # Two user messages in a row are one question.
    later = [
        i for i in range(head + 1, len(roles)) if roles[i] == "user" and roles[i - 1] != "user"
    ]
    return head, [head, *later]


def row_with_head_and_turns(row: Conversation, head: int, start: int, stop: int) -> Conversation:
    """The messages before the first turn (`head` of them), and those of `start` to `stop`."""
    messages = [*row.messages[:head], *row.messages[start:stop]]
    prompt = row.prompt_messages
    if prompt is not None:
        # Where the prompt ended, less what was taken out before it; what is learned stays the same messages.
        prompt = max(head, min(prompt, stop) - (start - head))
    return replace(row, messages=messages, prompt_messages=prompt)


def cut_row_after_example_training_only_it(row: Conversation, rendering: Rendering) -> Conversation:
    """The row up to the end of an example, with only its turns to be learned, whatever stands around them.

    With `learn: last`, say, a shorter row would have another last turn.
    """
    trained = {span.turn for span in rendering.spans}
    messages = []
    for i, message in enumerate(row.messages):
        is_learned = i in trained or -1 in trained  # -1: a span of the whole text
        if message.get("role") == "assistant" and not is_learned:
            message = {**message, "train": False}
        messages.append(message)
    if rendering.turn is not None:
        messages = messages[: rendering.turn + 1]
    return replace(row, messages=messages)


def drop_oldest_turns_until_fits(row: Conversation, fits: FitTest) -> Conversation | None:
    """The row without its oldest turns, as few as will do; None where the last turn alone is too long."""
    head, starts = head_length_and_turn_starts(row)
    # The first turn to keep is in low..high; at least one is taken away, for the whole row did not fit.
    low, high = 1, len(starts)
    while low < high:
        middle = (low + high) // 2
        if fits(row_with_head_and_turns(row, head, starts[middle], len(row.messages))):
            high = middle
        else:
            low = middle + 1
    return (
        row_with_head_and_turns(row, head, starts[low], len(row.messages))
        if low < len(starts)
        else None
    )


def cut_beginning_of_last_question(row: Conversation, fits: FitTest) -> Conversation | None:
    """The last turn alone, its question cut at its beginning by as little as will do; None where
    that is not enough.
    """
    head, starts = head_length_and_turn_starts(row)
    if not row.is_chat:
        prompt = row.prompt or ""
        return _longest_ending_that_fits(prompt, lambda text: replace(row, prompt=text), fits)
    last = row_with_head_and_turns(row, head, starts[-1], len(row.messages))
    question = last.messages[head] if len(last.messages) > head else {}
    content = question.get("content")
    if question.get("role") != "user" or not isinstance(content, str):
        return None

    def with_question(text: str) -> Conversation:
        messages = [*last.messages]
        messages[head] = {**question, "content": text}
        return replace(last, messages=messages)

    return _longest_ending_that_fits(content, with_question, fits)


def _longest_ending_that_fits(
    text: str, make_row: Callable[[str], Conversation], fits: FitTest
) -> Conversation | None:
    """The row of the longest end of a text that fits, from the beginning of a word on; None where none does."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high) // 2
        if fits(make_row(text[middle:])):
            high = middle
        else:
            low = middle + 1
    if low >= len(text):
        return None
    near = range(low, min(low + MAX_WORD_CHARACTERS, len(text)))
    space = next((i for i in near if text[i].isspace()), low)
    from_word = text[space:].lstrip() if space > low else text[low:]
    # Fewer characters may be more tokens, and nothing but space may be left: the cut between characters comes second.
    for candidate in (from_word, text[low:]):
        if not candidate:
            continue
        row = make_row(candidate)
        if fits(row):
            return row
    return None


def split_by_turns(row: Conversation, fits: FitTest) -> list[Conversation]:
    """The row in parts of as many turns as fit; a turn that is too long by itself is a part too."""
    head, starts = head_length_and_turn_starts(row)
    ends = [*starts[1:], len(row.messages)]
    parts = []
    first = 0
    while first < len(starts):
        # Search for `low`, the first turn that does not fit behind those from `first` on.
        low, high = first, len(starts)
        while low < high:
            middle = (low + high) // 2
            if fits(row_with_head_and_turns(row, head, starts[first], ends[middle])):
                low = middle + 1
            else:
                high = middle
        # At least one turn, or this would never end; the caller drops a part that is too long.
        stop = max(low, first + 1)
        parts.append(row_with_head_and_turns(row, head, starts[first], ends[stop - 1]))
        first = stop
    return parts
