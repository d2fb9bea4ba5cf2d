"""The ids that a server makes of a chat, by whatever way it has to tell them.

There is no standard route for it. vLLM has /tokenize for chats, llama.cpp's server /apply-template and then /tokenize
for the text, SGLang tells the ids with an answer, and of most others only their number is known (`usage`). The ways are
tried in that order, the exact ones first; the last costs one generated token.
"""

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
    usage_count,
)

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """A prompt as a server makes it."""

    ids: list[int] | None
    """None where it tells their number alone"""
    count: int | None
    """Tokens; None where it tells neither"""


def ask_server_prompt(
    server: Server, chat: Body, seconds: float = ANSWER_TIMEOUT_S
) -> ServerPrompt | str:
    """Ask for the prompt of a chat.

    Args:
        server: who is asked.
        chat: has `messages`, and may have `tools` and `settings`, variables for the template.
        seconds: for each answer.

    Returns:
        The prompt, by the first way that this server has; else what it said to each.

    Raises:
        NoReply: where no answer comes.
    """
    refusals = []
    # One body for all routes: each reads the fields that it knows.
    body = chat_request(server, chat)
    for path, ask_prompt in PROMPT_ROUTES.items():
        prompt = ask_prompt(server.root, body, seconds)
        if isinstance(prompt, ServerPrompt):
            return prompt
        refusals.append(f"{path}: {prompt.refusal_message_in_one_line}")
    return "; ".join(refusals)


def chat_request(server: Server, chat: Body) -> dict[str, Any]:
    """The fields of a request that say what is asked. `chat` is that of `ask_server_prompt`."""
    body: dict[str, Any] = {
        "messages": [_message_in_openai_protocol(message) for message in chat["messages"]]
    }
    if server.model:
        body["model"] = server.model
    if chat.get("tools"):
        body["tools"] = list(chat["tools"])
    if chat.get("settings"):
        body["chat_template_kwargs"] = dict(chat["settings"])
    return body


def id_list(body: Any, name: str) -> list[int]:
    """The list of ids of this name in an answer; empty where there is none."""
    ids = list_field(body, name)
    # `type` and not isinstance: true is an int in Python.
    return ids if all(type(id) is int for id in ids) else []


def _ask_tokenize_of_vllm(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """The prompt by vLLM's route /tokenize. vLLM's chats add no special tokens to those of the
    template, its /tokenize would by default.
    """
    content = {**chat, "add_generation_prompt": True, "add_special_tokens": False}
    return _prompt_or_refusing_reply(send_request(f"{root}/tokenize", content, seconds))


def _ask_apply_template_of_llama_cpp(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """The prompt by /apply-template and /tokenize of llama.cpp's server. Its chats are tokenized
    with the special tokens that the vocabulary adds: the template's own BOS has been taken off
    where it does.
    """
    reply = send_request(f"{root}/apply-template", chat, seconds)
    prompt = reply.body.get("prompt") if isinstance(reply.body, dict) else None
    if reply.status != 200 or not isinstance(prompt, str):
        return reply
    content = {"content": prompt, "add_special": True, "parse_special": True}
    return _prompt_or_refusing_reply(send_request(f"{root}/tokenize", content, seconds))


def _ask_prompt_by_chat_completion(root: str, chat: Body, seconds: float) -> ServerPrompt | Reply:
    """The prompt by a chat of one token, which any other server answers. SGLang and vLLM tell the
    ids of its prompt where they are asked to.
    """
    url, chat = f"{root}/v1/chat/completions", {**chat, "max_tokens": 1}
    with_ids = {**chat, "return_prompt_token_ids": True, "return_token_ids": True}
    reply = send_request(url, with_ids, seconds)
    # Strict servers refuse fields that they do not know; their count is known without them.
    if reply.status in (400, 422):
        reply = send_request(url, chat, seconds)
    if reply.status != 200 or not isinstance(reply.body, dict):
        return reply
    choices = list_field(reply.body, "choices")
    # Servers tell the ids beside the choices, or in the first of them.
    for holder in (reply.body, *choices[:1]):
        ids = id_list(holder, "prompt_token_ids")
        if ids:
            return ServerPrompt(ids, len(ids))
    return ServerPrompt(None, usage_count(reply.body, "prompt_tokens")) if choices else reply


PROMPT_ROUTES: dict[str, Callable[[str, Body, float], ServerPrompt | Reply]] = {
    "/tokenize": _ask_tokenize_of_vllm,
    "/apply-template": _ask_apply_template_of_llama_cpp,
    "/v1/chat/completions": _ask_prompt_by_chat_completion,
}
"""Route -> asks it for the prompt of a chat; gives its refusal where it has no such route"""


def _prompt_or_refusing_reply(reply: Reply) -> ServerPrompt | Reply:
    """The prompt of a reply that lists tokens; the reply itself where it lists none."""
    ids = id_list(reply.body, "tokens") if reply.status == 200 else []
    return ServerPrompt(ids, len(ids)) if ids else reply


def _message_in_openai_protocol(message: Body) -> dict[str, Any]:
    """A message as OpenAI's protocol has it: arguments of tool calls are JSON in a string. Data and
    templates have them as objects.
    """
    calls = [_tool_call_in_openai_protocol(call) for call in message.get("tool_calls") or ()]
    return {**message, "tool_calls": calls} if calls else dict(message)


def _tool_call_in_openai_protocol(call: Any) -> Any:
    """A tool call as OpenAI's protocol has it, with its arguments as JSON in a string."""
    function = call.get("function")
    if not isinstance(function, dict) or isinstance(function.get("arguments"), str):
        return call
    # Not again where they are a string already: a template would get a string in a string.
    arguments = json.dumps(function.get("arguments"))
    return {**call, "function": {**function, "arguments": arguments}}
