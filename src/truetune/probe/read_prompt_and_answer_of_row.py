"""Reads one row of the user's data as a prompt and an answer, and makes the prompt that a server would make of it.

`parse_row` recognises whole conversations (`messages`, ShareGPT's `conversations`) and pairs of columns (`prompt` and
`completion`, `instruction` and `output`, ...) by their names alone. `served_prompt_ids` renders the messages before the
answer with the tokenizer's chat template, as an inference server does.

Trade-off: names are looked up in fixed orders, without a setting. A rehearsal has no question to ask the user, and a
row that is not recognised costs one comparison, while a guess would report a difference that is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Columns of whole conversations, as the loaders of TRL, Axolotl and LLaMA-Factory name them.
CONVERSATION_COLUMNS = ("messages", "conversations", "conversation", "chat")
# In the order in which they are tried: `input` is last, since beside `instruction` it is a part of the prompt.
PROMPT_COLUMNS = ("prompt", "instruction", "question", "query", "problem", "input")
ANSWER_COLUMNS = ("completion", "chosen", "output", "response", "answer", "solution", "target")
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}


@dataclass
class PromptAndAnswer:
    """One row of the user's data, recognised."""

    number: int
    """Of the row in its data set, from 0"""
    messages: list[dict[str, Any]]
    """Those before the answer"""
    answer: str
    chat: bool
    """Are the texts messages, to which a template belongs?"""
    others: dict[str, str] = field(default_factory=dict)
    """Further texts of the row by their column"""
    tools: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the template that the row gives"""

    @property
    def question(self) -> str:
        """The last text before the answer; empty where there is none."""
        for message in reversed(self.messages):
            if isinstance(message.get("content"), str):
                return str(message["content"])
        return ""


@dataclass
class _Split:
    """A row taken apart: the messages before the answer, the answer, and the columns that they are from."""

    messages: list[dict[str, Any]]
    answer: str
    chat: bool
    columns: set[str]


def parse_row(row: Mapping[str, Any], number: int) -> PromptAndAnswer | None:
    """Read a row as a prompt and its answer.

    Args:
        row: one row as the user's data set returns it.
        number: of the row in its data set.

    Returns:
        None where the row's format is not known, or it has no answer in text.
    """
    if not isinstance(row, Mapping):
        return None
    split = _split_conversation(row) or _split_columns(row)
    if split is None:
        return None
    messages, used = split.messages, split.columns
    system = row.get("system")
    has_system = any(message["role"] == "system" for message in messages)
    if isinstance(system, str) and system.strip() and not has_system:
        messages = [{"role": "system", "content": system}, *messages]
        used = used | {"system"}
    if not split.answer.strip():
        return None
    settings = row.get("chat_template_kwargs")
    return PromptAndAnswer(
        number,
        messages,
        split.answer,
        split.chat,
        _texts_outside_prompt_and_answer(row, used, split.answer.strip()),
        row.get("tools") or None,
        dict(settings) if isinstance(settings, Mapping) else {},
    )


def _texts_outside_prompt_and_answer(
    row: Mapping[str, Any], used: set[str], answer: str
) -> dict[str, str]:
    """The texts of a row that are in neither prompt nor answer; a copy of the answer is not another text."""
    return {
        key: value
        for key, value in row.items()
        if key not in used and isinstance(value, str) and value.strip() not in ("", answer)
    }


def _split_conversation(row: Mapping[str, Any]) -> _Split | None:
    """The row as one conversation; None where no column holds one."""
    for name in CONVERSATION_COLUMNS:
        messages = _as_messages_with_role_and_content(row.get(name))
        if messages:
            return _split_at_last_answer(messages, {name})
    return None


def _split_columns(row: Mapping[str, Any]) -> _Split | None:
    """The row as a column that asks and a column that answers, of texts or of messages."""
    answer_column, prompt_column = _answer_and_prompt_columns(row)
    if answer_column is None:
        return None
    columns = set(filter(None, (answer_column, prompt_column)))
    prompt = None if prompt_column is None else row[prompt_column]
    before = _as_messages_with_role_and_content(prompt)
    answers = _as_messages_with_role_and_content(row[answer_column])
    if answers:
        if before is None and isinstance(prompt, str):
            before = [{"role": "user", "content": prompt}]
        return _split_at_last_answer([*(before or []), *answers], columns)
    answer = row[answer_column]
    if prompt_column is None or not isinstance(answer, str):
        return None
    if before:
        return _Split(before, answer, True, columns)
    text = str(prompt)
    context = _alpaca_input(row, prompt_column)
    if context:
        text += "\n" + context
        columns.add("input")
    return _Split([{"role": "user", "content": text}], answer, False, columns)


def _alpaca_input(row: Mapping[str, Any], prompt_column: str) -> str:
    """The input column of a row in Alpaca's format: what its instruction is about; empty where there is
    nothing such.
    """
    context = row.get("input") if prompt_column == "instruction" else None
    return context if isinstance(context, str) and context.strip() else ""


def _answer_and_prompt_columns(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The names of the column that answers and of the one that asks; None for one that is not there."""
    answer = next((name for name in ANSWER_COLUMNS if row.get(name)), None)
    prompts = (name for name in PROMPT_COLUMNS if name in row and name != answer)
    return answer, next(prompts, None)


def _split_at_last_answer(messages: list[dict[str, Any]], columns: set[str]) -> _Split | None:
    """The messages before the last answer, and that; None where there is none in text."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "assistant":
            content = messages[at].get("content")
            if not isinstance(content, str):
                return None
            return _Split(messages[:at], content, True, columns)
    return None


def _as_messages_with_role_and_content(value: Any) -> list[dict[str, Any]] | None:
    """Messages with `role` and `content`, ShareGPT's translated; None where the value is no list of messages."""
    if not isinstance(value, list | tuple) or not value:
        return None
    if not all(isinstance(turn, Mapping) for turn in value):
        return None
    messages = []
    for turn in value:
        # pyarrow fills the keys that other rows have with None, which templates take for a value.
        message = {key: item for key, item in turn.items() if item is not None}
        if "from" in message and "value" in message:
            message = {"role": message["from"], "content": message["value"]}
        if "role" not in message:
            return None
        role = message["role"]
        if isinstance(role, str):
            role = SHAREGPT_ROLES.get(role, role)
        messages.append({**message, "role": role})
    return messages


def served_prompt_ids(row: PromptAndAnswer, tokenizer: Any) -> list[int] | None:
    """Ids of the prompt as a chat server makes it, with the generation prompt.

    Returns:
        None without a template, or where the template refuses the messages.
    """
    if not getattr(tokenizer, "chat_template", None) or not row.messages:
        return None
    try:
        ids = tokenizer.apply_chat_template(
            row.messages,
            tools=row.tools,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **row.settings,
        )
    except Exception:
        return None
    return [int(id) for id in ids]


def generation_prompt_ids(tokenizer: Any) -> list[int]:
    """Ids of the template's generation prompt: what it puts before an answer.

    Returns:
        An empty list where there is no template, or the prompt with it does not begin as the one without.
    """
    if not getattr(tokenizer, "chat_template", None):
        return []
    messages = [{"role": "user", "content": "a"}]
    try:
        without = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        whole = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception:
        return []
    return list(whole[len(without) :]) if whole[: len(without)] == without else []
