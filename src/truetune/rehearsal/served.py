"""The prompt of a server: the ids that a serving stack makes of the messages of the recited rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from truetune.errors import UsageError
from truetune.probe.record import Record

REACHED = 10.0
"""Seconds in which a server must answer at all"""
ANSWERED = 120.0
"""Seconds for one prompt; some servers load their model with the first"""
LARGEST = 1 << 24
"""Bytes of an answer that are read"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    root: str
    """Its URL, without /v1"""
    model: str | None
    """The name to ask by; None where it has none to tell"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    body: Any
    """JSON; a text where it is none"""

    @property
    def refusal(self) -> str:
        """Its status and message, in one line."""
        body = self.body
        for name in ("error", "message", "detail"):
            body = body.get(name, body) if isinstance(body, dict) else body
        return f"{self.status} {' '.join(str(body).split())[:200]}".strip()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a server makes it."""

    ids: list[int] | None
    """None where it tells their number alone"""
    count: int


def server_of(url: str, model: str | None = None) -> Server:
    """Raises UsageError where nothing answers at this URL."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise UsageError(f"{url!r} is no URL of a server: expected one like http://localhost:8000")
    root = url.rstrip("/").removesuffix("/v1")
    listed = _asked(f"{root}/v1/models", None, REACHED).body
    names = [entry.get("id") for entry in _list(listed, "data") if isinstance(entry, dict)]
    if model is None and len(names) > 1:
        raise UsageError(f"{url} serves {len(names)} models ({', '.join(map(str, names[:8]))}): name one with "
                         "--serve-model")  # fmt: skip
    return Server(root, model or next((str(name) for name in names if name), None))


def ask(record: Record, server: Server) -> None:
    """Ask for the prompt of each recited row whose messages are known: `facts["recitation"]["served"]`.

    Raises UsageError where the server stops answering, or has no way to tell any prompt.
    """
    found = record.facts.get("recitation", {})
    rows = [(i, row["asked"]) for i, row in enumerate(found.get("rows", ())) if row.get("asked")]
    prompts: list[dict[str, Any]] = []
    refused: list[str] = []
    for i, asked in rows:
        made = _prompt(server, asked)
        if isinstance(made, Prompt):
            prompts.append({"row": i, "ids": made.ids, "count": made.count})
        else:
            refused.append(made)
    if refused and not prompts:
        raise UsageError(f"{server.root} tells no prompt of a chat ({refused[0]}): expected vLLM, SGLang, llama.cpp's "
                         "server, or any other with /v1/chat/completions, which may need --serve-model")  # fmt: skip
    found["served"] = {"url": server.root, "prompts": prompts}
    record.facts["notes"] += list(_notes(server, prompts, refused))


def _notes(server: Server, prompts: list[dict[str, Any]], refused: list[str]) -> Iterator[str]:
    if refused:
        yield f"{server.root} refused {len(refused)} of {len(refused) + len(prompts)} chats: {refused[0]}"
    if not prompts:
        yield f"{server.root} was asked nothing: no messages of a recited row are known"
    elif any(prompt["ids"] is None for prompt in prompts):
        yield f"{server.root} can't tell its prompt ids: the number of tokens of {len(prompts)} prompts was compared"
    else:
        yield f"the ids of {len(prompts)} prompts were compared with those of {server.root}"


def _prompt(server: Server, asked: dict[str, Any]) -> Prompt | str:
    """By the first way that this server has; else what it said to each."""
    chat: dict[str, Any] = {"messages": [_sent(message) for message in asked["messages"]]}
    chat |= {"model": server.model} if server.model else {}
    chat |= {"tools": asked["tools"]} if asked["tools"] else {}
    chat |= {"chat_template_kwargs": asked["settings"]} if asked["settings"] else {}
    said = []
    for path, way in WAYS.items():
        made = way(server.root, chat)
        if isinstance(made, Prompt):
            return made
        said.append(f"{path}: {made.refusal}")
    return "; ".join(said)


def _tokenized(root: str, chat: dict[str, Any]) -> Prompt | Answer:
    """vLLM"""
    return _of_ids(_asked(f"{root}/tokenize", {**chat, "add_generation_prompt": True}))


def _templated(root: str, chat: dict[str, Any]) -> Prompt | Answer:
    """llama.cpp's server, whose chats are tokenized with the special tokens that the vocabulary adds: the template's
    own BOS has been taken off where it does."""
    made = _asked(f"{root}/apply-template", chat)
    if made.status != 200 or not isinstance(made.body, dict) or not isinstance(made.body.get("prompt"), str):
        return made
    content = {"content": made.body["prompt"], "add_special": True, "parse_special": True}
    return _of_ids(_asked(f"{root}/tokenize", content))


def _completed(root: str, chat: dict[str, Any]) -> Prompt | Answer:
    """Any other: a chat of one token. SGLang tells the ids of its prompt where it is asked to."""
    url, chat = f"{root}/v1/chat/completions", {**chat, "max_tokens": 1}
    made = _asked(url, {**chat, "return_prompt_token_ids": True})
    if made.status in (400, 422):
        made = _asked(url, chat)
    if made.status != 200 or not isinstance(made.body, dict):
        return made
    for holder in (made.body, *_list(made.body, "choices")[:1]):
        if ids := _ids(holder, "prompt_token_ids"):
            return Prompt(ids, len(ids))
    usage = made.body.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return Prompt(None, count) if isinstance(count, int) else made


WAYS: dict[str, Callable[[str, dict[str, Any]], Prompt | Answer]] = {
    "/tokenize": _tokenized,
    "/apply-template": _templated,
    "/v1/chat/completions": _completed,
}


def _of_ids(answer: Answer) -> Prompt | Answer:
    ids = _ids(answer.body, "tokens") if answer.status == 200 else []
    return Prompt(ids, len(ids)) if ids else answer


def _ids(body: Any, name: str) -> list[int]:
    found = _list(body, name)
    return found if all(isinstance(id, int) for id in found) else []


def _list(body: Any, name: str) -> list[Any]:
    found = body.get(name) if isinstance(body, dict) else None
    return found if isinstance(found, list) else []


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    """As the protocol has it: arguments of tool calls are JSON in a string."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"].get("arguments"))}}
        if isinstance(call.get("function"), dict) and not isinstance(call["function"].get("arguments"), str)
        else call
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _asked(url: str, content: dict[str, Any] | None, seconds: float = ANSWERED) -> Answer:
    """GET, or POST of JSON. Raises UsageError where no HTTP answer comes."""
    data = None if content is None else json.dumps(content).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    try:
        try:
            with urlopen(request, timeout=seconds) as reply:
                return Answer(reply.status, _json(reply.read(LARGEST)))
        except HTTPError as error:
            with error:
                return Answer(error.code, _json(error.read(LARGEST)))
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(f"{url}: no answer ({reason}); --serve takes the URL of a running server, like "
                         "http://localhost:8000") from None  # fmt: skip


def _json(read: bytes) -> Any:
    try:
        return json.loads(read)
    except ValueError:
        return read.decode("utf-8", "replace")
