"""What a given row asks, what it wants for an answer, and the prompt that a server would make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CONVERSATION_COLUMNS = ("messages", "conversations", "conversation", "chat")
"""Columns of whole conversations"""
PROMPT_COLUMNS = ("prompt", "instruction", "question", "query", "problem", "input")
ANSWER_COLUMNS = ("completion", "chosen", "output", "response", "answer", "solution", "target")
SHAREGPT_ROLES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
"""ShareGPT's names"""


@dataclass
class PromptAndAnswer:
    """One given row, recognised."""

    number: int
    messages: list[dict[str, Any]]
    """Those before the answer"""
    answer: str
    chat: bool
    """Are the texts messages, to which a template belongs?"""
    others: dict[str, str] = field(default_factory=dict)
    """Further texts of the row by their path"""
    tools: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the template that the row gives"""

    @property
    def question(self) -> str:
        """The last text before the answer."""
        return next(
            (m["content"] for m in reversed(self.messages) if isinstance(m.get("content"), str)), ""
        )


def parse_row(row: Mapping[str, Any], number: int) -> PromptAndAnswer | None:
    """None where the row's format is not known, or it has no answer in text."""
    if not isinstance(row, Mapping):
        return None
    found = _split_conversation(row) or _split_columns(row)
    if found is None:
        return None
    messages, answer, chat, used = found
    if (
        isinstance(row.get("system"), str)
        and row["system"].strip()
        and not any(m["role"] == "system" for m in messages)
    ):
        messages = [{"role": "system", "content": row["system"]}, *messages]
        used = used | {"system"}
    if not answer.strip():
        return None
    others = {
        key: value
        for key, value in row.items()
        if key not in used
        and isinstance(value, str)
        and value.strip()
        and value.strip() != answer.strip()
    }
    settings = row.get("chat_template_kwargs")
    return PromptAndAnswer(
        number,
        messages,
        answer,
        chat,
        others,
        row.get("tools") or None,
        dict(settings) if isinstance(settings, Mapping) else {},
    )


_Split = tuple[list[dict[str, Any]], str, bool, set[str]]


def _split_conversation(row: Mapping[str, Any]) -> _Split | None:
    for name in CONVERSATION_COLUMNS:
        turns = _as_messages(row.get(name))
        if turns:
            return _split_at_last_answer(turns, {name})
    return None


def _split_columns(row: Mapping[str, Any]) -> _Split | None:
    answer = next((name for name in ANSWER_COLUMNS if row.get(name)), None)
    if answer is None:
        return None
    ask = next((name for name in PROMPT_COLUMNS if name in row and name != answer), None)
    used = {answer, *([ask] if ask else [])}
    turns = _as_messages(row[answer])
    before = _as_messages(row.get(ask)) if ask else None
    if turns:
        if before is None and isinstance(ask, str) and isinstance(row[ask], str):
            before = [{"role": "user", "content": row[ask]}]
        return _split_at_last_answer([*(before or []), *turns], used)
    if ask is None or not isinstance(row[answer], str):
        return None
    if before:
        return before, row[answer], True, used
    text = str(row[ask])
    if ask == "instruction" and isinstance(row.get("input"), str) and row["input"].strip():
        text += "\n" + row["input"]
        used.add("input")
    return [{"role": "user", "content": text}], row[answer], False, used


def _split_at_last_answer(turns: list[dict[str, Any]], used: set[str]) -> _Split | None:
    """The messages before the last answer, and that."""
    last = next((i for i in range(len(turns) - 1, -1, -1) if turns[i]["role"] == "assistant"), None)
    if last is None or not isinstance(turns[last].get("content"), str):
        return None
    return turns[:last], turns[last]["content"], True, used


def _as_messages(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], Mapping):
        return None
    made = []
    for turn in value:
        said = {key: item for key, item in turn.items() if item is not None}
        if "from" in said and "value" in said:
            said = {"role": said["from"], "content": said["value"]}
        if "role" not in said:
            return None
        made.append({**said, "role": SHAREGPT_ROLES.get(said["role"], said["role"])})
    return made


def served_prompt_ids(row: PromptAndAnswer, tokenizer: Any) -> list[int] | None:
    """Ids of the prompt as a chat server makes it. None without a template, or where the template refuses it."""
    if not getattr(tokenizer, "chat_template", None) or not row.messages:
        return None
    try:
        made = tokenizer.apply_chat_template(
            row.messages,
            tools=row.tools,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **row.settings,
        )
    except Exception:
        return None
    return [int(id) for id in made]


def generation_prompt_ids(tokenizer: Any) -> list[int]:
    """Ids of the template's generation prompt: what it puts before an answer."""
    if not getattr(tokenizer, "chat_template", None):
        return []
    messages = [{"role": "user", "content": "a"}]
    try:
        without = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
        made = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except Exception:
        return []
    return list(made[len(without) :]) if made[: len(without)] == without else []
