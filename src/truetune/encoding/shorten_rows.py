"""Shorter rows: the same conversation with fewer turns, or with a question that begins later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from truetune.data.conversation import Conversation
from truetune.render.rendering import Rendering

Fits = Callable[[Conversation], bool]


def find_turns(row: Conversation) -> tuple[int, list[int]]:
    """(how many messages stand before the first turn, where each turn begins); a turn begins with a user."""
    head = 0
    while head < len(row.messages) and row.messages[head].get("role") in ("system", "developer"):
        head += 1
    roles = [message.get("role") for message in row.messages]
    later = [i for i in range(head + 1, len(roles)) if roles[i] == "user" != roles[i - 1]]
    return head, [head, *later]


def take_turns(row: Conversation, head: int, start: int, stop: int) -> Conversation:
    """The messages before the first turn, and those of `start` to `stop`."""
    prompt = row.prompt_messages
    return replace(
        row,
        messages=[*row.messages[:head], *row.messages[start:stop]],
        prompt_messages=None if prompt is None else max(head, min(prompt, stop) - (start - head)),
    )


def pin_trained_turns(row: Conversation, rendering: Rendering) -> Conversation:
    """The row up to the end of an example, with only its turns to be learned, whatever stands around them."""
    trained = {span.turn for span in rendering.spans}
    messages = [
        (
            {**message, "train": False}
            if message.get("role") == "assistant" and not {i, -1} & trained
            else message
        )
        for i, message in enumerate(row.messages)
    ]
    return replace(
        row, messages=messages if rendering.turn is None else messages[: rendering.turn + 1]
    )


def without_oldest(row: Conversation, fits: Fits) -> Conversation | None:
    """The row without its oldest turns, as few as will do; None where the last turn alone is too long."""
    head, starts = find_turns(row)
    low, high = 1, len(starts)
    while low < high:
        middle = (low + high) // 2
        if fits(take_turns(row, head, starts[middle], len(row.messages))):
            high = middle
        else:
            low = middle + 1
    return take_turns(row, head, starts[low], len(row.messages)) if low < len(starts) else None


def with_later_question(row: Conversation, fits: Fits) -> Conversation | None:
    """The last turn, its question cut at its beginning by as little as will do; None where that is not enough."""
    head, starts = find_turns(row)
    if not row.is_chat:
        prompt = row.prompt or ""
        return _cut_beginning(prompt, lambda text: replace(row, prompt=text), fits)
    last = take_turns(row, head, starts[-1], len(row.messages))
    question = last.messages[head] if len(last.messages) > head else {}
    content = question.get("content")
    if question.get("role") != "user" or not isinstance(content, str):
        return None

    def asked(text: str) -> Conversation:
        messages = [*last.messages]
        messages[head] = {**question, "content": text}
        return replace(last, messages=messages)

    return _cut_beginning(content, asked, fits)


def _cut_beginning(
    text: str, made: Callable[[str], Conversation], fits: Fits
) -> Conversation | None:
    low, high = 1, len(text)
    while low < high:
        middle = (low + high) // 2
        if fits(made(text[middle:])):
            high = middle
        else:
            low = middle + 1
    if low >= len(text):
        return None
    word = next((i for i in range(low, min(low + 40, len(text))) if text[i].isspace()), low)
    kept = text[word:].lstrip() if word > low else text[low:]
    for candidate in (kept, text[low:]):
        if candidate and fits(row := made(candidate)):
            return row
    return None


def split_by_turns(row: Conversation, fits: Fits) -> list[Conversation]:
    """The row in parts of as many turns as fit; a turn that is too long by itself is a part too."""
    head, starts = find_turns(row)
    ends = [*starts[1:], len(row.messages)]
    found, first = [], 0
    while first < len(starts):
        low, high = first, len(starts)
        while low < high:
            middle = (low + high) // 2
            if fits(take_turns(row, head, starts[first], ends[middle])):
                low = middle + 1
            else:
                high = middle
        stop = max(low, first + 1)
        found.append(take_turns(row, head, starts[first], ends[stop - 1]))
        first = stop
    return found
