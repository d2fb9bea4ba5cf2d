"""Messages in OpenAI's form, from what files hold."""

from __future__ import annotations

import json
from typing import Any

from truetune.data.conversation import Message, Problem

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function", "ipython"))
SHAREGPT = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant",
    "bing": "assistant", "bard": "assistant", "system": "system", "tool": "tool", "observation": "tool",
    "function_response": "tool", "function_call": "assistant",
}  # fmt: skip


def messages_of(value: Any, problems: list[Problem]) -> list[Message]:
    """A list of messages (role/content, or from/value), each checked; what is odd about them goes to `problems`."""
    value = parsed(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        problems.append(Problem("not-messages", f"expected a list of messages, found {type(value).__name__}"))
        return []
    if not value:
        problems.append(Problem("empty", "a conversation without messages"))
    return [_message(item, i, problems) for i, item in enumerate(value)]


def _message(item: dict[str, Any], index: int, problems: list[Problem]) -> Message:
    if "role" not in item and "from" in item:
        item = _from_sharegpt(item, index, problems)
    message = {key: value for key, value in item.items() if value is not None}
    role = message.get("role")
    if role not in ROLES:
        problems.append(Problem("unknown-role", f"turn {index} has the role {role!r}"))
        message["role"] = str(role)
    content = item.get("content")
    if isinstance(content, list):
        _take_parts(message, content)
    elif content is None:
        if not message.get("tool_calls") and not message.get("function_call"):
            problems.append(Problem("no-content", f"turn {index} ({role}) has no content"))
            message["content"] = ""
    elif not isinstance(content, str):
        problems.append(
            Problem("not-a-string", f"the content of turn {index} ({role}) is {type(content).__name__}, not text")
        )
        message["content"] = json.dumps(content, ensure_ascii=False)
    if "tool_calls" in message:
        message["tool_calls"] = _tidy(parsed(message["tool_calls"]))
    if "loss_weight" in message:
        message["weight"] = message.pop("loss_weight")
    if "weight" in message:
        weight = message["weight"]
        if not isinstance(weight, int | float):
            problems.append(Problem("not-a-number", f"the weight of turn {index} is {weight!r}"))
            del message["weight"]
        elif not weight:
            message["train"] = False
    return message


def _take_parts(message: Message, parts: list[Any]) -> None:
    """Parts stay as they are, but for LLaMA-Factory's, which call the text `value` and hold reasoning and calls."""
    if not all(isinstance(part, dict) and "value" in part and "text" not in part for part in parts) or not parts:
        message["content"] = _tidy(parts)
        return
    by_type: dict[str, list[str]] = {}
    for part in parts:
        by_type.setdefault(str(part.get("type")), []).append(str(part["value"]))
    message["content"] = "".join(by_type.get("text", []))
    if "reasoning" in by_type:
        message["reasoning_content"] = "".join(by_type["reasoning"])
    calls = [{"type": "function", "function": parsed(call)} for call in by_type.get("tool_call", [])]
    if calls:
        message["tool_calls"] = calls


def _from_sharegpt(item: dict[str, Any], index: int, problems: list[Problem]) -> Message:
    source, value = item.get("from"), item.get("value")
    rest = {key: entry for key, entry in item.items() if key not in ("from", "value")}
    if source == "function_call":
        call = parsed(value)
        calls = call if isinstance(call, list) else [call]
        if all(isinstance(entry, dict) and "name" in entry for entry in calls):
            made = [{"type": "function", "function": entry} for entry in calls]
            return {"role": "assistant", "content": "", "tool_calls": made, **rest}
        problems.append(Problem("bad-tool-call", f"turn {index} is a function_call that is not JSON with a name"))
    return {"role": SHAREGPT.get(str(source), source), "content": value, **rest}


def parsed(value: Any) -> Any:
    """A JSON string as the value it holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _tidy(value: Any) -> Any:
    """Without the empty keys that columnar files fill structs with."""
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items() if item is not None}
    return [_tidy(item) for item in value] if isinstance(value, list) else value
