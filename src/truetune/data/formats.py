"""Formats: how the columns of a row become a Conversation.

Texts are put together by `+` and cut by slices, as in data.messages: then it is known where each part of them stands in
the file (render.text_origins).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from truetune.data.columns import (
    Row,
    called,
    column,
    holds,
    only_text_column,
    renamer,
    text_columns,
    token_columns,
)
from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.draft import Draft
from truetune.data.messages import messages_of
from truetune.data.scores import scores_of
from truetune.errors import DataError, name_list, shortened
from truetune.spec.row_formats import row_formats
from truetune.spec.run import Format

THUMBS = {
    **dict.fromkeys(("true", "thumbs up", "upvote", "\U0001f44d"), True),
    **dict.fromkeys(("false", "thumbs down", "downvote", "\U0001f44e"), False),
}
"""Labels that are a verdict on the answer beside them; they make a row one of KTO"""
VERDICTS = {
    **THUMBS,
    **dict.fromkeys(("1", "1.0", "+1", "yes", "up", "like", "liked"), True),
    **dict.fromkeys(("0", "0.0", "-1", "-1.0", "no", "down", "dislike", "disliked"), False),
}
"""Those that may be a class of something else as well: they are read where the format is KTO's by name"""
SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")

Test = Callable[[Row, str], object]


def read_messages(draft: Draft) -> Conversation:
    """A list of messages in the column `messages`."""
    return draft.chat(messages_of(draft.take("messages"), draft.problems))


def read_sharegpt(draft: Draft) -> Conversation:
    """A list of turns in the column `conversations`, with `from` and `value` or other names."""
    return draft.chat(messages_of(draft.take("conversations"), draft.problems, sharegpt=True))


def read_alpaca(draft: Draft) -> Conversation:
    """An instruction with its input, the turns before it, and the output."""
    return draft.chat(
        [*_asked(draft), {"role": "assistant", "content": draft.text("output") or ""}]
    )


def _asked(draft: Draft) -> list[Message]:
    """The turns before the answer: history, then instruction and input as one turn."""
    made: list[Message] = []
    for pair in draft.structure("history", list) or ():
        if (
            isinstance(pair, list | tuple)
            and len(pair) == 2
            and all(isinstance(text, str) for text in pair)
        ):
            made += {"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}
        else:
            draft.problems.append(
                Problem(
                    "bad-history",
                    "history holds what is no pair of texts, a question and an answer",
                )
            )
    instruction = draft.turns("instruction")
    if isinstance(instruction, list):
        return made + messages_of(instruction, draft.problems)
    asked, more = instruction or "", draft.text("input") or ""
    return [
        *made,
        {"role": "user", "content": asked + "\n\n" + more if asked and more else asked + more},
    ]


def read_prompt_completion(draft: Draft) -> Conversation:
    """A prompt and its completion, as texts or as messages."""
    prompt, completion = draft.turns("prompt"), draft.turns("completion")
    if isinstance(prompt, list) or isinstance(completion, list):
        head = _side(draft, prompt, "user")
        return draft.chat(head + _side(draft, completion, "assistant"), len(head))
    return draft.plain(prompt=prompt, completion=completion)


def read_text(draft: Draft) -> Conversation:
    """A text that is trained as it is."""
    return draft.plain(text=draft.text("text"))


def read_preference(draft: Draft) -> Conversation:
    """A chosen and a rejected answer to one prompt, as texts or as messages; without a prompt, what both share."""
    chosen, rejected = draft.turns("chosen"), draft.turns("rejected")
    prompt = next(
        (p for p in map(draft.turns, ("prompt", "conversations", "messages")) if p is not None),
        None,
    )
    if prompt is None and holds(draft.row, "instruction"):
        prompt = _asked(draft)
    if isinstance(prompt, list) or isinstance(chosen, list) or isinstance(rejected, list):
        row = _pair_of_chats(draft, prompt, chosen, rejected)
    elif prompt is not None or chosen is None or rejected is None:
        row = draft.plain(prompt=prompt, completion=chosen, rejected=rejected)
    else:
        cut = _shared(chosen, rejected)
        row = draft.plain(prompt=chosen[:cut], completion=chosen[cut:], rejected=rejected[cut:])
    row.scores = scores_of(draft.row)
    return row


def _shared(chosen: str, rejected: str) -> int:
    """How many characters of two texts are their prompt; each keeps at least one, and the space before it."""
    cut = _common(chosen, rejected)
    if cut == min(len(chosen), len(rejected)):
        return max(cut - 1, 0)
    return cut - chosen[:cut].endswith(" ")


def _pair_of_chats(draft: Draft, prompt: Any, chosen: Any, rejected: Any) -> Conversation:
    """Where the prompt is no list, both sides may begin with it: then what they share is the prompt."""
    good, bad = _side(draft, chosen, "assistant"), _side(draft, rejected, "assistant")
    shared = 0 if isinstance(prompt, list) else min(_common(good, bad), max(len(good) - 1, 0))
    if not shared:
        head = _side(draft, prompt, "user") if prompt is not None else []
        return draft.chat(head + good, len(head), bad)
    if prompt not in [message.get("content") for message in good[:shared]]:
        draft.taken.discard("prompt")
    return draft.chat(good, shared, bad[shared:])


def read_kto(draft: Draft) -> Conversation:
    """A row of another format, whose answer has a label: good or bad."""
    label = draft.take("label")
    verdict = _verdict(label)
    if verdict is None:
        draft.problems.append(
            Problem("bad-label", f"the label is {shortened(repr(label))}, neither true nor false")
        )
    row = _conversation(draft, _base(draft.row, holds) or _base(draft.row, called) or "text")
    row.label = verdict
    row.label_value = None if isinstance(label, bool) else label
    return row


def _conversation(draft: Draft, format: Format) -> Conversation:
    """What the reader of this format makes of a row."""
    conversation: Conversation = row_formats()[format].reader()(draft)
    return conversation


def reader(row: Row, format: Format | None, where: str) -> Callable[[Row, Origin], Conversation]:
    """The reader of a file that begins with this row.

    Raises DataError where no format fits the row's columns, or not the one that is asked for.
    """
    found = format or _found(row, holds) or _found(row, called)
    if (
        found in (None, "text")
        and not holds(row, "text")
        and (name := only_text_column(row)) is not None
    ):
        return lambda row, origin: _read(renamer({"text": name}, "text")(row), origin, "text")
    if found is None or not _fits(row, found, called):
        if ids := token_columns(row):
            raise DataError(
                f"{where}: the rows are tokenized already ({name_list(ids)}); give the messages or"
                " text that they were made from"
            )
        names = name_list(row, empty="(none)")
        wrong = f"the format {format} needs {_needed(format)}, but" if format else "no format fits"
        raise DataError(
            f"{where}: {wrong} the columns {'are ' if format else ''}{names}; say which column is"
            f" what, as in {_mapped_as(row)}, or name a --data-format"
        )
    return lambda row, origin: _read(row, origin, found)


LONGEST_EXAMPLE_NAME = 60
"""Characters of a column's name that an example of --map repeats: a broken CSV can name a column by a whole text"""


def _mapped_as(row: Row) -> str:
    """An example of --map, with the row's own columns where two of them hold text."""
    texts = [name for name in text_columns(row) if len(name) <= LONGEST_EXAMPLE_NAME]
    if len(texts) == 1:
        return f"--map text={texts[0]}"
    if not texts:
        return "--map prompt=input --map completion=target"
    asked, answered = texts[0], max(texts[1:], key=lambda name: len(row[name]))
    return (
        f"--map prompt={asked} --map completion={answered} (or --map text={answered} for plain"
        " text)"
    )


def _read(row: Row, origin: Origin, format: Format) -> Conversation:
    if _fits(row, format):
        return _conversation(Draft(row, origin, format), format)
    other = _found(row, holds)
    draft = Draft(row, origin, other or format)
    if other is not None:
        draft.problems.append(
            Problem("mixed-formats", f"a row of the format {other} in a file of {format}")
        )
        return _conversation(draft, other)
    if not _fits(row, format, called):
        draft.problems.append(Problem("no-format", f"the format {format} needs {_needed(format)}"))
        return draft.plain()
    needed = row_formats()[(_base(row, called) or "text") if format == "kto" else format].columns
    empty = [str(called(row, name)) for name in needed if not holds(row, name)]
    draft.problems.append(Problem("no-content", f"nothing stands in {' and '.join(empty)}"))
    return _conversation(draft, format)


def _fits(row: Row, format: Format, there: Test = holds) -> bool:
    if format == "kto":
        return _base(row, there) is not None and bool(there(row, "label"))
    return all(there(row, name) for name in row_formats()[format].columns)


def _found(row: Row, there: Test) -> Format | None:
    if _fits(row, "preference", there):
        return "preference"
    base = _base(row, there)
    alias, label = column(row, "label")
    known = VERDICTS if alias == "kto_tag" else THUMBS
    return "kto" if _plain_word(label) in known and base not in (None, "text") else base


def _base(row: Row, there: Test) -> Format | None:
    others = (name for name in row_formats() if name not in ("preference", "kto"))
    return next((name for name in others if _fits(row, name, there)), None)


def _needed(format: Format) -> str:
    return " and ".join(row_formats()[format].columns or ("prompt", "completion", "label"))


def _verdict(label: Any) -> bool | None:
    return VERDICTS.get(_plain_word(label))


def _plain_word(label: Any) -> str:
    """A label in lower case, with spaces between its words: `thumbs_up` and `Thumbs-Up` are one."""
    word = SKIN_TONES.sub("", str(label)).strip().lower()
    return word if word[:1] in "+-" else re.sub(r"[_\s-]+", " ", word)


def _side(draft: Draft, value: Any, role: str) -> list[Message]:
    """One side of a row as messages; text becomes a turn of this role."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return messages_of(value, draft.problems, sharegpt=True)


def _common(one: Any, other: Any) -> int:
    """How many items two strings or lists share at their beginning."""
    return bisect_left(
        range(1, min(len(one), len(other)) + 1), True, key=lambda n: one[:n] != other[:n]
    )
