"""The ids that a server makes of a chat, by whatever way it has to tell them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from truetune.generation.backends.http_client import (
    ANSWER_TIMEOUT_S,
    Reply,
    Server,
    list_field,
    send_request,
)

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A prompt as a server makes it."""

    ids: list[int] | None
    """None where it tells their number alone"""
    count: int | None
    """None where it tells neither"""


def ask_server_prompt(
    server: Server, chat: Body, seconds: float = ANSWER_TIMEOUT_S
) -> ServerPrompt | str:
    """By the first way that this server has; else what it said to each.

    `chat` has `messages`, and may have `tools` and `settings`, variables for the template. Raises Unanswered.
    """
    said = []
    body = chat_request(server, chat)
    for path, way in PROMPT_ROUTES.items():
        made = way(server.root, body, seconds)
        if isinstance(made, ServerPrompt):
            return made
        said.append(f"{path}: {made.refusal}")
    return "; ".join(said)


def chat_request(server: Server, chat: Body) -> dict[str, Any]:
    """The fields of a request that say what is asked."""
    body: dict[str, Any] = {
        "messages": [_protocol_message(message) for message in chat["messages"]]
    }
    body |= {"model": server.model} if server.model else {}
    body |= {"tools": list(chat["tools"])} if chat.get("tools") else {}
    return body | ({"chat_template_kwargs": dict(chat["settings"])} if chat.get("settings") else {})


def _ask_tokenize(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """vLLM; its chats add no special tokens to those of the template."""
    return _prompt_from_tokens(
        send_request(
            f"{root}/tokenize",
            {**chat, "add_generation_prompt": True, "add_special_tokens": False},
            seconds,
        )
    )


def _ask_apply_template(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """llama.cpp's server, whose chats are tokenized with the special tokens that the vocabulary adds: the template's
    own BOS has been taken off where it does."""
    made = send_request(f"{root}/apply-template", chat, seconds)
    if (
        made.status != 200
        or not isinstance(made.body, dict)
        or not isinstance(made.body.get("prompt"), str)
    ):
        return made
    content = {"content": made.body["prompt"], "add_special": True, "parse_special": True}
    return _prompt_from_tokens(send_request(f"{root}/tokenize", content, seconds))


def _ask_chat_completion(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """Any other: a chat of one token. SGLang and vLLM tell the ids of its prompt where they are asked to."""
    url, chat = f"{root}/v1/chat/completions", {**chat, "max_tokens": 1}
    made = send_request(
        url, {**chat, "return_prompt_token_ids": True, "return_token_ids": True}, seconds
    )
    if made.status in (400, 422):
        made = send_request(url, chat, seconds)
    if made.status != 200 or not isinstance(made.body, dict):
        return made
    for holder in (made.body, *list_field(made.body, "choices")[:1]):
        if ids := id_list(holder, "prompt_token_ids"):
            return ServerPrompt(ids, len(ids))
    usage = made.body.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return (
        ServerPrompt(None, count if type(count) is int else None)
        if list_field(made.body, "choices")
        else made
    )


PROMPT_ROUTES: dict[str, Callable[[str, Body, float], ServerPrompt | Reply]] = {
    "/tokenize": _ask_tokenize,
    "/apply-template": _ask_apply_template,
    "/v1/chat/completions": _ask_chat_completion,
}


def id_list(body: Any, name: str) -> list[int]:
    """The list of ids of this name in an answer; empty where there is none."""
    found = list_field(body, name)
    return found if all(type(id) is int for id in found) else []


def _prompt_from_tokens(reply: Reply) -> ServerPrompt | Reply:
    ids = id_list(reply.body, "tokens") if reply.status == 200 else []
    return ServerPrompt(ids, len(ids)) if ids else reply


def _protocol_message(message: Body) -> dict[str, Any]:
    """As the protocol has it: arguments of tool calls are JSON in a string."""
    calls = [
        (
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": json.dumps(call["function"].get("arguments")),
                },
            }
            if isinstance(call.get("function"), dict)
            and not isinstance(call["function"].get("arguments"), str)
            else call
        )
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)
