"""Client: requests to a server whose own behaviour is in question; nothing is mended. A busy one is asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from truetune.generation.backends.http_client import (
    Reply,
    Server,
    list_field,
    map_concurrently,
    send_request,
)
from truetune.generation.backends.server_prompt_ids import chat_request

TRIES = 3
GREEDY = {"temperature": 0.0}
REFUSED = (400, 422)
"""Statuses of a request that a server does not understand"""


class Step(NamedTuple):
    """One token of an answer."""

    token: str
    logprob: float
    margin: float | None
    """Nats before the next best"""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, or why there is none."""

    text: str = ""
    finish: str = ""
    read: int | None = None
    """Tokens of the prompt, as the server counts them"""
    tokens: int | None = None
    """Tokens of the answer"""
    steps: tuple[Step, ...] = ()
    """Empty where the server tells no log-probabilities"""
    parsed: bool = False
    """The server has taken reasoning or tool calls out of the text."""
    refusal: str = ""


class Client:
    """Asks one server, `concurrency` requests at a time where there are many."""

    def __init__(
        self, server: Server, *, seconds: float, concurrency: int, bos: str | None
    ) -> None:
        self.server, self.seconds, self.concurrency, self.bos = server, seconds, concurrency, bos
        self.way: str | None = None
        """How a prompt is given to /v1/completions: ids, text, or text without BOS; None: not known yet"""

    def get(self, path: str) -> Any:
        """What stands at a path; None where there is nothing."""
        reply = send_request(f"{self.server.root}{path}", None, self.seconds)
        return reply.body if reply.status == 200 else None

    def chat(self, chat: Mapping[str, Any], tokens: int, **fields: Any) -> Said:
        """`chat` has `messages`, and may have `tools` and `settings`."""
        body = chat_request(self.server, chat) | {"max_tokens": tokens, **fields}
        return _said(
            send_request(f"{self.server.root}/v1/chat/completions", body, self.seconds, tries=TRIES)
        )

    def complete(self, ids: Sequence[int], text: str, tokens: int, **fields: Any) -> Said:
        """The answer to exactly these ids; a refusal where the server can't be given them."""
        ways = {"ids": list(ids), "text": text}
        if self.bos and text.startswith(self.bos):
            ways["text without BOS"] = text[len(self.bos) :]
        said = Said(refusal="it does not take prompts as ids or text")
        for way, prompt in ways.items():
            if self.way not in (None, way):
                continue
            body = {"prompt": prompt, "max_tokens": tokens, **fields}
            body |= {"model": self.server.model} if self.server.model else {}
            said = _said(
                send_request(f"{self.server.root}/v1/completions", body, self.seconds, tries=TRIES)
            )
            if said.read is not None and said.read != len(ids):
                said = Said(
                    refusal=f"/v1/completions reads {said.read} tokens of a prompt of {len(ids)}"
                )
            if not said.refusal:
                self.way = way
                return said
        return said

    def all(self, requests: Sequence[Callable[[], Said]]) -> list[Said]:
        """The answers to many requests at the same time, in their order."""
        return map_concurrently(lambda request, _: request(), requests, self.concurrency)


def _said(reply: Reply) -> Said:
    choice = next(iter(list_field(reply.body, "choices")), None)
    if reply.status != 200 or not isinstance(choice, dict):
        return Said(refusal=reply.refusal)
    usage = reply.body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {"content": choice.get("text")}
    content = message.get("content")
    taken = any(message.get(name) for name in ("reasoning_content", "reasoning", "tool_calls"))
    return Said(
        content if isinstance(content, str) else "",
        str(choice.get("finish_reason") or ""),
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        _steps(choice.get("logprobs")),
        taken,
    )


def _steps(told: Any) -> tuple[Step, ...]:
    """Of a chat (`content`), or of a completion (`tokens`, `token_logprobs`, `top_logprobs`)."""
    if not isinstance(told, dict):
        return ()
    try:
        if told.get("content"):
            return tuple(
                _step(
                    one["token"],
                    one["logprob"],
                    [other["logprob"] for other in one.get("top_logprobs") or ()],
                )
                for one in told["content"]
            )
        tokens, logprobs = told.get("tokens") or (), told.get("token_logprobs") or ()
        best = told.get("top_logprobs") or [None] * len(tokens)
        return tuple(
            _step(token, logprob, list((others or {}).values()))
            for token, logprob, others in zip(tokens, logprobs, best, strict=False)
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        return ()


def _step(token: Any, logprob: Any, best: list[Any]) -> Step:
    first, second, *_ = [*sorted(map(float, best), reverse=True), None, None]
    return Step(
        str(token), float(logprob), None if first is None or second is None else first - second
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
