"""Brings the messages of files into OpenAI's form, and notes the problems of each.

Role/content messages, ShareGPT's from/value, LLaMA-Factory's parts and JSON text all become the same dictionaries.
Nothing raises: what can't be carried over becomes a `Problem` of the row, and something printable takes its place, so
that one odd turn does not hide the rest of the row from the rules.
"""

from __future__ import annotations

import json
from functools import reduce
from operator import add
from typing import Any

from truetune.data.conversation import Message, Problem
from truetune.data.parse_json_columns import parse_json_text_or_keep
from truetune.errors import format_name_list, shorten_name

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "ipython"))
ROLE_BY_SHAREGPT_NAME = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "assistant", "bing", "bard"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
}
FUNCTION_CALL = "function_call"
MAX_WEIGHT = 1e9
"""A weight beyond is a mistake: times a loss of 10 it would overflow half precision many times over (chosen)."""


def read_messages_value(
    value: Any, problems: list[Problem], *, sharegpt: bool = False
) -> list[Message]:
    """A list of messages (role/content, or from/value).

    Args:
        value: what stands in the column, maybe as JSON text.
        problems: gets what is odd about it.
        sharegpt: translate ShareGPT's names of roles in role/content messages too.
    """
    value = parse_json_text_or_keep(value, problems)
    if not isinstance(value, list):
        problems.append(
            Problem("not-messages", f"expected a list of messages, found {_describe_value(value)}")
        )
        return []
    if not value:
        problems.append(Problem("empty", "a conversation without messages"))
    messages: list[Message] = []
    for item in value:
        if isinstance(item, dict):
            messages.append(
                _message_without_need_of_checks(item)
                or _read_message(item, len(messages), problems, sharegpt)
            )
        else:
            problems.append(
                Problem(
                    "not-messages",
                    f"expected a message with role and content, found {_describe_value(item)}",
                )
            )
    return messages


def _message_without_need_of_checks(item: Message) -> Message | None:
    """The message if there is nothing to check in it, as in nearly all; None otherwise. Reading
    costs as much as this test.
    """
    if len(item) != 2:
        return None
    role, source = item.get("role"), item.get("from")
    if type(role) is str and role in ROLES and type(item.get("content")) is str:
        return item
    if type(source) is str and source in ROLE_BY_SHAREGPT_NAME and type(item.get("value")) is str:
        return {"role": ROLE_BY_SHAREGPT_NAME[source], "content": item["value"]}
    return None


def is_messages(value: Any) -> bool:
    """Is this a list of messages, and not some other JSON?"""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and ("role" in item or "from" in item) for item in value)
    )


def _read_message(
    item: dict[str, Any], index: int, problems: list[Problem], sharegpt: bool
) -> Message:
    """One message, with what is odd about it noted."""
    # Columnar files fill absent keys with null; `content: null` is kept, for beside a tool call it
    # says something.
    message = {key: value for key, value in item.items() if value is not None or key == "content"}
    # `role` wins where a turn has both, as chat templates read no other key.
    is_sharegpt_turn = "role" not in message and "from" in message
    if is_sharegpt_turn or (sharegpt and message.get("role") == FUNCTION_CALL):
        message = _message_from_sharegpt_turn(message, index, problems)
    elif sharegpt:
        message["role"] = _openai_role(message.get("role"))
    if "role" not in item and "from" not in item:
        keys = format_name_list(item, empty="nothing")
        expected = "expected role and content, or from and value"
        problems.append(
            Problem("unknown-role", f"turn {index} has no role: found {keys}; {expected}", message)
        )
        # A role is needed further on; rules see the problem, not this word.
        message["role"] = "None"
    else:
        _replace_unknown_role(message, index, problems)
    if "tool_calls" in message:
        _normalize_tool_calls(message, index, problems)
    _normalize_content(message, index, problems)
    _normalize_weight(message, index, problems)
    return message


def _replace_unknown_role(message: Message, index: int, problems: list[Problem]) -> None:
    """Replace a role that nobody knows by a text, and note the problem."""
    role = message.get("role")
    if isinstance(role, str) and role in ROLES:
        return
    problems.append(
        Problem("unknown-role", f"turn {index} has the role {_short_value(role)}", message)
    )
    message["role"] = str(role)


def _message_from_sharegpt_turn(item: Message, index: int, problems: list[Problem]) -> Message:
    """A turn with `from` and `value` as a message; a `function_call` becomes a tool call."""
    source = item.get("role", item.get("from"))
    value = item.get("value", item.get("content"))
    rest = {
        key: entry for key, entry in item.items() if key not in ("role", "from", "value", "content")
    }
    if source != FUNCTION_CALL:
        return {"role": _openai_role(source), "content": value, **rest}
    call = parse_json_text_or_keep(value, problems)
    calls = call if isinstance(call, list) else [call]
    if all(isinstance(entry, dict) and "name" in entry for entry in calls):
        tool_calls = [{"type": "function", "function": entry} for entry in calls]
        return {"role": "assistant", "content": "", "tool_calls": tool_calls, **rest}
    message = {"role": "assistant", "content": value, **rest}
    problems.append(
        Problem(
            "bad-tool-call",
            f"turn {index} is a function_call that is not JSON with a name",
            message,
        )
    )
    return message


def _openai_role(role: Any) -> Any:
    """OpenAI's name of a role that ShareGPT calls otherwise."""
    return ROLE_BY_SHAREGPT_NAME.get(role, role) if isinstance(role, str) else role


def _normalize_tool_calls(message: Message, index: int, problems: list[Problem]) -> None:
    """Make `tool_calls` a list, also if it is JSON text."""
    # Columnar files give every call the keys of all calls, most of them null; a template would
    # print them.
    calls = _drop_empty_keys(parse_json_text_or_keep(message["tool_calls"], problems))
    message["tool_calls"] = calls
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        problems.append(
            Problem(
                "bad-tool-call", f"the tool_calls of turn {index} are no list of calls", message
            )
        )


def _normalize_content(message: Message, index: int, problems: list[Problem]) -> None:
    """Make `content` a text or a list of parts; anything else becomes a text, and a problem."""
    content, role = message.get("content"), message["role"]
    if isinstance(content, list):
        if not all(isinstance(part, dict) for part in content):
            text = f"the content of turn {index} ({role}) is a list, not of parts"
            problems.append(Problem("not-a-string", text, message))
        _normalize_parts(message, content, problems)
    elif content is None:
        # A turn that only calls a tool needs no content; any other without one has lost it.
        if not message.get("tool_calls") and "function_call" not in message:
            problems.append(Problem("no-content", f"turn {index} ({role}) has no content", message))
            message["content"] = ""
    elif not isinstance(content, str):
        type_name = type(content).__name__
        problems.append(
            Problem(
                "not-a-string",
                f"the content of turn {index} ({role}) is {type_name}, not text",
                message,
            )
        )
        message["content"] = json.dumps(content, ensure_ascii=False, default=str)


def _normalize_parts(message: Message, parts: list[Any], problems: list[Problem]) -> None:
    """Bring the parts of a content into OpenAI's form. Most stay as they are; LLaMA-Factory's parts
    call the text `value` and hold reasoning and calls.
    """
    is_llama_factory = bool(parts) and all(
        isinstance(part, dict) and "value" in part and "text" not in part for part in parts
    )
    if not is_llama_factory:
        message["content"] = _drop_empty_keys(parts)
        return
    by_type = _part_texts_by_type(message, parts, problems)
    message["content"] = _join_texts(by_type.pop("text", []))
    reasoning = by_type.pop("reasoning", None)
    if reasoning:
        message["reasoning_content"] = _join_texts(reasoning)
    calls = by_type.pop("tool_call", None)
    if calls:
        _tool_calls_from_parts(message, calls, problems)
    if by_type:
        # Images and the like: the row is kept without them, and says so.
        problems.append(
            Problem(
                "not-a-string",
                f"content parts that are no text: {format_name_list(sorted(by_type))}",
            )
        )


def _tool_calls_from_parts(message: Message, calls: list[str], problems: list[Problem]) -> None:
    """Make the message's tool calls from its parts of the type tool_call, each a function in JSON."""
    functions = [parse_json_text_or_keep(call, problems) for call in calls]
    if not all(isinstance(function, dict) for function in functions):
        text = "a content part of the type tool_call is no JSON object"
        problems.append(Problem("bad-tool-call", text, message))
    message["tool_calls"] = [{"type": "function", "function": function} for function in functions]


def _part_texts_by_type(
    message: Message, parts: list[Any], problems: list[Problem]
) -> dict[str, list[str]]:
    """The texts of the parts by their type, in order; a value that is no text becomes one, and a
    problem.
    """
    by_type: dict[str, list[str]] = {}
    for part in parts:
        value = part["value"]
        if not isinstance(value, str):
            text = (
                f"a content part of the type {_short_value(part.get('type'))} holds"
                f" {type(value).__name__}, not text"
            )
            problems.append(Problem("not-a-string", text, message))
        by_type.setdefault(str(part.get("type")), []).append(str(value))
    return by_type


def _join_texts(texts: list[str]) -> str:
    """The texts as one, by `+`: `str.join` would lose where each part stands in the file."""
    return reduce(add, texts, "")


def _normalize_weight(message: Message, index: int, problems: list[Problem]) -> None:
    """Keep `weight` and `train` only if the loss can use them. Others are taken out, and are a
    problem: no default may stand for them.
    """
    # The name that some trainers use; two that differ can't both be meant.
    if "loss_weight" in message:
        other = message.pop("loss_weight")
        if message.get("weight", other) != other:
            text = (
                f"turn {index} has two weights, {_short_value(message['weight'])} and {_short_value(other)}"
                " (loss_weight)"
            )
            problems.append(Problem("not-a-number", text, message))
        message["weight"] = other
    if "weight" in message and not _is_finite_number(message["weight"]):
        weight = _short_value(message.pop("weight"))
        text = (
            f"the weight of turn {index} is {weight}; expected a number from 0 to {MAX_WEIGHT:,.0f}"
        )
        problems.append(Problem("not-a-number", text, message))
    if message.get("train", True) not in (True, False):
        text = f"`train` of turn {index} is {_short_value(message.pop('train'))}; expected true or false"
        problems.append(Problem("not-a-bool", text, message))
    # A weight of 0 trains nothing: rules ask for `train` alone.
    if not message.get("weight", 1):
        message["train"] = False


def _is_finite_number(value: Any) -> bool:
    """Can the loss be multiplied by this value? NaN, infinity, text and true can't be meant as a
    weight.
    """
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_WEIGHT
    )


def _short_value(value: Any) -> str:
    """A value as a message shows it, cut."""
    return shorten_name(repr(value))


def _drop_empty_keys(value: Any) -> Any:
    """The value without the empty keys that columnar files fill structs with; arguments of calls
    stay as given.
    """
    if isinstance(value, dict):
        return {
            key: item if key == "arguments" else _drop_empty_keys(item)
            for key, item in value.items()
            if item is not None
        }
    return [_drop_empty_keys(item) for item in value] if isinstance(value, list) else value


def _describe_value(value: Any) -> str:
    """The type and the beginning of a value, for a message."""
    return f"{type(value).__name__} {str(value)[:40]!r}"
