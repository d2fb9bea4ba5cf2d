"""Formats: how the columns of a row become a Conversation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from truetune.data.conversation import Conversation, Message, Origin, Problem
from truetune.data.messages import messages_of, parsed
from truetune.errors import DataError, SpecError
from truetune.spec.run import Format

Row = dict[str, Any]
Reader = Callable[[Row, Origin], Conversation]

ALIASES = {
    "messages": ("messages", "dialogue", "dialog"),
    "conversations": ("conversations", "conversation"),
    "instruction": ("instruction", "question", "query"),
    "output": ("output", "response", "answer"),
    "prompt": ("prompt",),
    "completion": ("completion",),
    "chosen": ("chosen", "chosen_messages"),
    "rejected": ("rejected", "rejected_messages"),
    "label": ("label", "kto_tag"),
    "text": ("text",),
    "input": ("input",),
    "system": ("system", "system_prompt"),
    "tools": ("tools",),
    "documents": ("documents",),
    "history": ("history",),
    "chat_template_kwargs": ("chat_template_kwargs",),
}
"""What truetune calls a column, and what files call it."""
MAP_ALIASES = {"answer": "output", "response": "output", "question": "instruction", "query": "instruction"}


def renamed(row: Row, columns: Mapping[str, str], where: str) -> Row:
    """The row with its columns called what truetune calls them. Raises SpecError or DataError."""
    made = dict(row)
    for ours, theirs in columns.items():
        name = MAP_ALIASES.get(ours, ours)
        if name not in ALIASES:
            near = difflib.get_close_matches(ours, [*ALIASES, *MAP_ALIASES], n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(ALIASES)}"
            raise SpecError(f"--map {ours}={theirs}: {ours} is no column that truetune knows{hint}")
        if theirs not in row:
            near = difflib.get_close_matches(theirs, list(row), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; the row has {', '.join(row)}"
            raise DataError(f"{where}: --map {ours}={theirs}: there is no column {theirs}{hint}")
        for alias in ALIASES[name]:
            if alias not in columns.values():
                made.pop(alias, None)
        made[name] = row[theirs]
        if theirs != name:
            made.pop(theirs, None)
    return made


def reader_of(row: Row, format: Format | None) -> Reader:
    """The reader of a named format, or of the one that the row's columns show."""
    return _READERS[format or _found(row) or "messages"]


def known(row: Row) -> bool:
    """Does some format fit the row's columns?"""
    return _found(row) is not None


def _found(row: Row) -> Format | None:
    has = row.__contains__
    chosen = has("chosen") or has("chosen_messages")
    if chosen and (has("rejected") or has("rejected_messages")):
        return "preference"
    if (has("label") or has("kto_tag")) and (has("completion") or has("messages") or has("conversations")):
        return "kto"
    if has("messages") or has("dialogue") or has("dialog"):
        return "messages"
    if has("conversations") or has("conversation"):
        return "sharegpt"
    if has("prompt") and has("completion"):
        return "prompt-completion"
    if any(map(has, ALIASES["instruction"])) and any(map(has, ALIASES["output"])):
        return "alpaca"
    if has("text"):
        return "text"
    return None


class _Columns:
    """The columns of a row, each noted when it is taken."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.taken: set[str] = set()

    def take(self, name: str) -> Any:
        for alias in ALIASES[name]:
            if alias in self.row:
                self.taken.add(alias)
                return self.row[alias]
        return None

    def unused(self) -> tuple[str, ...]:
        rest = self.row.keys() - self.taken
        return tuple(key for key in self.row if key in rest and self.row[key] not in (None, "", [], {}))


def _chat(
    columns: _Columns, origin: Origin, format: Format, messages: list[Message], problems: list[Problem], **more: Any
) -> Conversation:
    system, tools, documents = columns.take("system"), columns.take("tools"), columns.take("documents")
    if system and not (messages and messages[0].get("role") == "system"):
        messages = [{"role": "system", "content": str(system)}, *messages]
        if more.get("prompt_messages") is not None:
            more["prompt_messages"] += 1
    variables = columns.take("chat_template_kwargs")
    tools = parsed(tools)
    return _safe(Conversation(
        origin, format, messages,
        tools=tools if isinstance(tools, list) and tools else None,
        documents=documents if isinstance(documents, list) and documents else None,
        template_kwargs=variables if isinstance(variables, dict) else {},
        unused=columns.unused(), problems=tuple(problems), **more,
    ))  # fmt: skip


def _messages(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    value = columns.take("messages")
    if value is None:
        problems.append(Problem("no-format", f"no format fits the columns {', '.join(row) or '(none)'}"))
        return _chat(columns, origin, "messages", [], problems)
    return _chat(columns, origin, "messages", messages_of(value, problems), problems)


def _sharegpt(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    return _chat(columns, origin, "sharegpt", messages_of(columns.take("conversations"), problems), problems)


def _alpaca(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    instruction, more, output = (_string(columns, name, problems) for name in ("instruction", "input", "output"))
    messages: list[Message] = []
    for pair in columns.take("history") or []:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            messages += [{"role": "user", "content": str(pair[0])}, {"role": "assistant", "content": str(pair[1])}]
        else:
            problems.append(Problem("bad-history", "history holds something that is no pair of question and answer"))
    question = f"{instruction}\n\n{more}" if more else instruction
    messages += [{"role": "user", "content": question}, {"role": "assistant", "content": output}]
    return _chat(columns, origin, "alpaca", messages, problems)


def _prompt_completion(row: Row, origin: Origin, format: Format = "prompt-completion", **more: Any) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    if format == "kto":
        columns.take("label")
    prompt, completion = parsed(columns.take("prompt")), parsed(columns.take("completion"))
    if isinstance(prompt, list) or isinstance(completion, list):
        head = _as_messages(prompt, "user", problems)
        tail = _as_messages(completion, "assistant", problems)
        return _chat(columns, origin, format, head + tail, problems, prompt_messages=len(head), **more)
    texts = {name: _string(columns, name, problems) for name in ("prompt", "completion")}
    return _safe(Conversation(
        origin, format, prompt=texts["prompt"], completion=texts["completion"],
        unused=columns.unused(), problems=tuple(problems), **more,
    ))  # fmt: skip


def _text(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    text = _string(columns, "text", problems)
    return _safe(Conversation(origin, "text", text=text, unused=columns.unused(), problems=tuple(problems)))


def _preference(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    chosen, rejected = parsed(columns.take("chosen")), parsed(columns.take("rejected"))
    prompt = parsed(columns.take("prompt"))
    if prompt is None:
        prompt = columns.take("conversations") or columns.take("messages")
    if isinstance(chosen, str) and isinstance(rejected, str) and not isinstance(prompt, list):
        if prompt is None:
            prompt = chosen[: _common(chosen, rejected)]
            chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
        return _safe(Conversation(
            origin, "preference", prompt=str(prompt), completion=chosen, rejected=rejected,
            unused=columns.unused(), problems=tuple(problems),
        ))  # fmt: skip
    head = _as_messages(prompt, "user", problems) if prompt is not None else []
    good, bad = _as_messages(chosen, "assistant", problems), _as_messages(rejected, "assistant", problems)
    if not head:
        shared = _common(good, bad)
        head, good, bad = good[:shared], good[shared:], bad[shared:]
    return _chat(columns, origin, "preference", head + good, problems, prompt_messages=len(head), rejected=bad)


def _kto(row: Row, origin: Origin) -> Conversation:
    columns, problems = _Columns(row), list[Problem]()
    label = columns.take("label")
    label = label if isinstance(label, bool) else str(label).lower() in ("1", "true", "yes")
    if "completion" in row:
        return _prompt_completion(row, origin, "kto", label=label)
    value = columns.take("messages") or columns.take("conversations")
    return _chat(columns, origin, "kto", messages_of(value, problems), problems, label=label)


_READERS: dict[Format, Reader] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "prompt-completion": _prompt_completion,
    "text": _text,
    "preference": _preference,
    "kto": _kto,
}


def _as_messages(value: Any, role: str, problems: list[Problem]) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return messages_of([value] if isinstance(value, dict) else value, problems)


def _string(columns: _Columns, name: str, problems: list[Problem]) -> str:
    value = columns.take(name)
    if isinstance(value, str):
        return value
    if value is not None:
        problems.append(Problem("not-a-string", f"the column {name} holds {type(value).__name__}, not text"))
    elif name not in ("input", "system"):
        problems.append(Problem("no-content", f"the column {name} is missing or empty"))
    return "" if value is None else str(value)


def _common(one: Any, other: Any) -> int:
    """How many items two strings or lists share at their beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _safe(row: Conversation) -> Conversation:
    """Replace lone surrogates (broken escapes in JSON), which no tokenizer takes."""
    try:
        _encodable(row)
    except UnicodeEncodeError:
        for name in ("messages", "tools", "prompt", "completion", "text", "rejected"):
            setattr(row, name, _replaced(getattr(row, name)))
        row.problems = (*row.problems, Problem("lone-surrogate", "half of a surrogate pair became U+FFFD"))
    return row


def _encodable(row: Conversation) -> None:
    """Raise UnicodeEncodeError where a string of the row is no valid Unicode."""
    for message in row.messages:
        content = message.get("content")
        if isinstance(content, str):
            if not content.isascii():
                content.encode()
        elif content is not None or len(message) > 2:
            _encode(message)
    for text in (row.prompt, row.completion, row.text, row.rejected if isinstance(row.rejected, str) else None):
        if text is not None and not text.isascii():
            text.encode()
    if row.tools:
        _encode(row.tools)


def _encode(value: Any) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _encode(item)


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _replaced(item) for key, item in value.items()}
    return [_replaced(item) for item in value] if isinstance(value, list) else value
