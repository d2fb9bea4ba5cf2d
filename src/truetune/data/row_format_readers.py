"""Reads the columns of a row of each format into a Conversation.

Texts are put together by `+` and cut by slices, as in data.parse_messages: then it is known where each part of them
stands in the file (render.text_origins_in_file).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from truetune.data.bring_messages_into_openai_form import read_messages_value
from truetune.data.column_name_aliases import (
    Row,
    find_column_name,
    find_filled_column,
    find_only_text_column,
    has_filled_column,
    make_row_renamer,
    text_columns,
    token_id_columns,
)
from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.conversation_draft import ConversationDraft
from truetune.data.pair_score_columns import pair_scores_of_row
from truetune.errors import DataError, format_name_list, shorten_name
from truetune.settings.row_formats import row_formats
from truetune.settings.run_spec import FormatName

# A data set of classification has a `label` too, mostly 0 and 1: those are read as a verdict only
# where KTO is named.
VERDICT_BY_THUMB = {
    **dict.fromkeys(("true", "thumbs up", "upvote", "\U0001f44d"), True),
    **dict.fromkeys(("false", "thumbs down", "downvote", "\U0001f44e"), False),
}
"""Labels that are a verdict on the answer beside them; they make a row one of KTO"""
VERDICT_BY_WORD = {
    **VERDICT_BY_THUMB,
    **dict.fromkeys(("1", "1.0", "+1", "yes", "up", "like", "liked"), True),
    **dict.fromkeys(("0", "0.0", "-1", "-1.0", "no", "down", "dislike", "disliked"), False),
}
"""Those that may be a class of something else as well: they are read where the format is KTO's by name"""
SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")

ColumnTest = Callable[[Row, str], object]


def read_messages(draft: ConversationDraft) -> Conversation:
    """A list of messages in the column `messages`."""
    return draft.make_conversation(read_messages_value(draft.take("messages"), draft.problems))


def read_sharegpt(draft: ConversationDraft) -> Conversation:
    """A list of turns in the column `conversations`, with `from` and `value` or other names."""
    return draft.make_conversation(
        read_messages_value(draft.take("conversations"), draft.problems, sharegpt=True)
    )


def read_alpaca(draft: ConversationDraft) -> Conversation:
    """An instruction with its input, the turns before it, and the output."""
    return draft.make_conversation(
        [*_alpaca_prompt(draft), {"role": "assistant", "content": draft.text("output") or ""}]
    )


def _alpaca_prompt(draft: ConversationDraft) -> list[Message]:
    """The turns before the answer: history, then instruction and input as one turn."""
    turns: list[Message] = []
    for pair in draft.list_or_object_of_column("history", list) or ():
        if _is_pair_of_texts(pair):
            turns.append({"role": "user", "content": pair[0]})
            turns.append({"role": "assistant", "content": pair[1]})
        else:
            message = "history holds what is no pair of texts, a question and an answer"
            draft.problems.append(Problem("bad-history", message))
    instruction = draft.messages_or_text_of_column("instruction")
    if isinstance(instruction, list):
        return turns + read_messages_value(instruction, draft.problems)
    question = instruction or ""
    more = draft.text("input") or ""
    # By `+` and not by a format string: provenance follows the parts of a sum.
    content = question + "\n\n" + more if question and more else question + more
    return [*turns, {"role": "user", "content": content}]


def _is_pair_of_texts(value: Any) -> bool:
    """Is it a list of two texts?"""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(isinstance(text, str) for text in value)


def read_prompt_completion(draft: ConversationDraft) -> Conversation:
    """A prompt and its completion, as texts or as messages."""
    prompt, completion = (
        draft.messages_or_text_of_column("prompt"),
        draft.messages_or_text_of_column("completion"),
    )
    if isinstance(prompt, list) or isinstance(completion, list):
        head = _messages_of_side(draft, prompt, "user")
        return draft.make_conversation(
            head + _messages_of_side(draft, completion, "assistant"), len(head)
        )
    return draft.plain(prompt=prompt, completion=completion)


def read_verl(draft: ConversationDraft) -> Conversation:
    """A prompt of verl and the right answer in its `reward_model`, which is given to the reward function."""
    prompt = draft.messages_or_text_of_column("prompt")
    graded = draft.list_or_object_of_column("reward_model", dict) or {}
    head = _messages_of_side(draft, prompt, "user")
    # verl hands these to the reward function, and no token comes of them.
    for column in ("data_source", "ability", "extra_info"):
        draft.take(column)
    answer = graded.get("ground_truth")
    if not isinstance(answer, str | int | float) or isinstance(answer, bool):
        return draft.make_conversation(head, len(head))
    return draft.make_conversation(
        [*head, {"role": "assistant", "content": str(answer)}], len(head)
    )


def read_text(draft: ConversationDraft) -> Conversation:
    """A row of text that is trained as it is."""
    return draft.plain(text=draft.text("text"))


def read_preference(draft: ConversationDraft) -> Conversation:
    """A chosen and a rejected answer to one prompt, as texts or as messages; without a prompt, what both share."""
    chosen, rejected = (
        draft.messages_or_text_of_column("chosen"),
        draft.messages_or_text_of_column("rejected"),
    )
    # Lazily, so that of two such columns the second one is not taken, and shows as unused.
    columns = map(draft.messages_or_text_of_column, ("prompt", "conversations", "messages"))
    prompt = next((turns for turns in columns if turns is not None), None)
    if prompt is None and has_filled_column(draft.row, "instruction"):
        prompt = _alpaca_prompt(draft)
    if isinstance(prompt, list) or isinstance(chosen, list) or isinstance(rejected, list):
        row = _read_pair_of_chats(draft, prompt, chosen, rejected)
    elif prompt is not None or chosen is None or rejected is None:
        row = draft.plain(prompt=prompt, completion=chosen, rejected=rejected)
    else:
        cut = _shared_prompt_length(chosen, rejected)
        row = draft.plain(prompt=chosen[:cut], completion=chosen[cut:], rejected=rejected[cut:])
    row.scores = pair_scores_of_row(draft.row)
    return row


def _shared_prompt_length(chosen: str, rejected: str) -> int:
    """The number of characters that two texts share as their prompt; each keeps at least one, and
    the space before it.
    """
    # TRL's `extract_prompt` cuts pairs of texts at the same place.
    cut = _common_prefix_length(chosen, rejected)
    if cut == min(len(chosen), len(rejected)):
        # One side begins with the other: an empty answer would be left, so that one shared
        # character stays in each.
        return max(cut - 1, 0)
    # A space belongs to the word behind it: tokenizers join the two, and a prompt that ends in a
    # space is served differently.
    return cut - chosen[:cut].endswith(" ")


def _read_pair_of_chats(
    draft: ConversationDraft, prompt: Any, chosen: Any, rejected: Any
) -> Conversation:
    """A pair whose sides are lists of messages. If the prompt is no list, both sides may begin with
    it: then what they share is the prompt.
    """
    good = _messages_of_side(draft, chosen, "assistant")
    bad = _messages_of_side(draft, rejected, "assistant")
    shared = 0
    if not isinstance(prompt, list):
        # The chosen side keeps one turn at least: its answer.
        shared = min(_common_prefix_length(good, bad), max(len(good) - 1, 0))
    if not shared:
        head = _messages_of_side(draft, prompt, "user") if prompt is not None else []
        return draft.make_conversation(head + good, len(head), bad)
    if prompt not in [message.get("content") for message in good[:shared]]:
        # The prompt's column says something else than the turns that are used: it counts as unused.
        draft.taken.discard("prompt")
    return draft.make_conversation(good, shared, bad[shared:])


def read_kto(draft: ConversationDraft) -> Conversation:
    """A row of another format whose answer has a label, good or bad."""
    label = draft.take("label")
    verdict = _parse_kto_label(label)
    if verdict is None:
        draft.problems.append(
            Problem(
                "bad-label", f"the label is {shorten_name(repr(label))}, neither true nor false"
            )
        )
    # First by what the row holds, then by what it names: a row with an empty column still has its
    # format.
    base = _guess_format_without_label(draft.row, has_filled_column) or _guess_format_without_label(
        draft.row, find_column_name
    )
    row = _read_by_format(draft, base or "text")
    row.label = verdict
    row.label_value = None if isinstance(label, bool) else label
    return row


def _read_by_format(draft: ConversationDraft, format: FormatName) -> Conversation:
    """What the reader of this format makes of a row."""
    conversation: Conversation = row_formats()[format].reader()(draft)
    return conversation


def choose_reader(
    row: Row, format: FormatName | None, where: str
) -> Callable[[Row, Origin], Conversation]:
    """The reader of a file that begins with this row.

    Args:
        row: the first row.
        format: the one that is asked for; None looks for one by the columns.
        where: file and line, for messages.

    Raises DataError where no format fits the row's columns, or not the one that is asked for.
    """
    # The order of the formats in the table decides, most columns first: a pair has a prompt as
    # well.
    chosen = format or _guess_format(row, has_filled_column) or _guess_format(row, find_column_name)
    # Only where no format fits: a file with one column of text needs no name for it.
    if chosen in (None, "text") and not has_filled_column(row, "text"):
        name = find_only_text_column(row)
        if name is not None:
            rename = make_row_renamer({"text": name}, "text")
            return lambda row, origin: _read_row(rename(row), origin, "text")
    if chosen is None or not _has_columns_of(row, chosen, find_column_name):
        raise _unknown_format_error(row, format, where)
    return lambda row, origin: _read_row(row, origin, chosen)


def _unknown_format_error(row: Row, format: FormatName | None, where: str) -> DataError:
    """The error for a file whose columns fit no format, or not the one that is asked for."""
    ids = token_id_columns(row)
    if ids:
        return DataError(
            f"{where}: the rows are tokenized already ({format_name_list(ids)}); give the messages or"
            " text that they were made from"
        )
    names = format_name_list(row, empty="(none)")
    if format:
        wrong = f"the format {format} needs {_describe_needed_columns(format)}, but the columns are {names}"
    else:
        wrong = f"no format fits the columns {names}"
    return DataError(
        f"{where}: {wrong}; say which column is what, as in {_example_of_map_option(row)}, or name a"
        " --data-format"
    )


MAX_EXAMPLE_NAME_CHARACTERS = 60
"""Characters of a column's name that an example of --map repeats: a broken CSV can name a column by a whole text"""


def _example_of_map_option(row: Row) -> str:
    """An example of the option --map, with the row's own columns if two of them hold text."""
    texts = [name for name in text_columns(row) if len(name) <= MAX_EXAMPLE_NAME_CHARACTERS]
    if len(texts) == 1:
        return f"--map text={texts[0]}"
    if not texts:
        return "--map prompt=input --map completion=target"
    prompt, answer = texts[0], max(texts[1:], key=lambda name: len(row[name]))
    return (
        f"--map prompt={prompt} --map completion={answer} (or --map text={answer} for plain text)"
    )


def _read_row(row: Row, origin: Origin, format: FormatName) -> Conversation:
    """A row as a Conversation of the file's format; what is odd about its columns becomes a problem."""
    # The format is that of the file's first row; a row of another one is read by its own, and
    # reported.
    if _has_columns_of(row, format):
        return _read_by_format(ConversationDraft(row, origin, format), format)
    other = _guess_format(row, has_filled_column)
    draft = ConversationDraft(row, origin, other or format)
    if other is not None:
        draft.problems.append(
            Problem("mixed-formats", f"a row of the format {other} in a file of {format}")
        )
        return _read_by_format(draft, other)
    if not _has_columns_of(row, format, find_column_name):
        draft.problems.append(
            Problem("no-format", f"the format {format} needs {_describe_needed_columns(format)}")
        )
        return draft.plain()
    # All columns are there and one is empty: the reader makes what it can, and the rule on empty
    # answers has a row to show.
    needed = row_formats()[
        (_guess_format_without_label(row, find_column_name) or "text")
        if format == "kto"
        else format
    ].columns
    empty = [
        str(find_column_name(row, name)) for name in needed if not has_filled_column(row, name)
    ]
    draft.problems.append(Problem("no-content", f"{' and '.join(empty)}: null or empty"))
    return _read_by_format(draft, format)


def _has_columns_of(row: Row, format: FormatName, there: ColumnTest = has_filled_column) -> bool:
    """Has the row all columns that a format needs?"""
    if format == "kto":
        return _guess_format_without_label(row, there) is not None and bool(there(row, "label"))
    return all(there(row, name) for name in row_formats()[format].columns)


def _guess_format(row: Row, there: ColumnTest) -> FormatName | None:
    """The format of a row by its columns; a pair or a verdict comes before others. None if none
    fits.
    """
    if _has_columns_of(row, "preference", there):
        return "preference"
    base = _guess_format_without_label(row, there)
    alias, label = find_filled_column(row, "label")
    known = VERDICT_BY_WORD if alias == "kto_tag" else VERDICT_BY_THUMB
    return "kto" if _normalize_label(label) in known and base not in (None, "text") else base


def _guess_format_without_label(row: Row, there: ColumnTest) -> FormatName | None:
    """The format of a row by its columns, apart from its label or its rejected side."""
    others = (name for name in row_formats() if name not in ("preference", "kto"))
    fitting = (name for name in others if _has_columns_of(row, name, there))
    return next((name for name in fitting if _may_hold_turns(row, name)), None)


def _may_hold_turns(row: Row, format: FormatName) -> bool:
    """May the column of a chat hold turns? A column `dialogue` with the number of a dialogue holds
    none.
    """
    if format not in ("messages", "sharegpt"):
        return True
    name, value = find_filled_column(row, format if format == "messages" else "conversations")
    is_own_name = name in ("messages", "conversations")
    return is_own_name or not isinstance(value, str) or value.lstrip()[:1] in ("[", "{", "")


def _describe_needed_columns(format: FormatName) -> str:
    """The columns that a format needs, for a message."""
    return " and ".join(row_formats()[format].columns or ("prompt", "completion", "label"))


def _parse_kto_label(label: Any) -> bool | None:
    """True for a label that says good, False for one that says bad; None if it says neither."""
    return VERDICT_BY_WORD.get(_normalize_label(label))


def _normalize_label(label: Any) -> str:
    """A label in lower case, with spaces between its words: `thumbs_up` and `Thumbs-Up` are one."""
    word = SKIN_TONES.sub("", str(label)).strip().lower()
    # `-1` must keep its sign; elsewhere dashes part words.
    return word if word[:1] in "+-" else re.sub(r"[_\s-]+", " ", word)


def _messages_of_side(draft: ConversationDraft, value: Any, role: str) -> list[Message]:
    """One side of a row as messages; text becomes a turn of this role."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return read_messages_value(value, draft.problems, sharegpt=True)


def _common_prefix_length(one: Any, other: Any) -> int:
    """How many items two strings or lists share at their beginning.

    The length is searched by halves. Slices of strings are compared as memory, without a step in Python for each
    character.
    """
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, True, key=lambda length: one[:length] != other[:length])
