"""Sends requests to a server whose own behaviour is checked, and reads its answers.

Nothing is fixed on the way: what `truetune sample` would work around (an ignored field, a doubled BOS) is what a check
must see. The one exception is a busy server, which is asked again, for that says nothing of what it serves.
"""

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

# Chosen, not measured: a server that is still busy at the third try would make the whole check wait.
MAX_TRIES = 3
# Temperature alone: top_p and top_k do not matter then, and some servers refuse fields that they do not know.
GREEDY = {"temperature": 0.0}
# Servers that are built on FastAPI answer 422 to a field of a wrong type; all others answer 400.
REJECTED_STATUSES = (400, 422)
"""Statuses of a request that a server does not understand"""


class AnswerToken(NamedTuple):
    """One token of an answer, with its log-probability and its margin."""

    token: str
    logprob: float
    margin: float | None
    """Nats before the next best"""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An answer of a server, or why there is none."""

    text: str = ""
    finish: str = ""
    prompt_tokens: int | None = None
    """Tokens of the prompt, as the server counts them"""
    answer_tokens: int | None = None
    """Tokens of the answer"""
    steps: tuple[AnswerToken, ...] = ()
    """Empty where the server tells no log-probabilities"""
    parsed: bool = False
    """The server has taken reasoning or tool calls out of the text."""
    refusal: str = ""


class ServerClient:
    """Sends requests to one server, `concurrency` at a time where there are many."""

    def __init__(
        self, server: Server, *, seconds: float, concurrency: int, bos: str | None
    ) -> None:
        self.server, self.seconds, self.concurrency, self.bos = server, seconds, concurrency, bos
        self.prompt_form: str | None = None
        """How a prompt is given to /v1/completions: ids, text, or text without BOS; None: not known yet"""

    def get(self, path: str) -> Any:
        """Get the JSON at a path of the server; None where there is none."""
        reply = send_request(f"{self.server.root}{path}", None, self.seconds)
        return reply.body if reply.status == 200 else None

    def chat(self, chat: Mapping[str, Any], tokens: int, **fields: Any) -> ServerAnswer:
        """Ask for the answer to a chat. `chat` has `messages`, and may have `tools` and `settings`."""
        body = chat_request(self.server, chat) | {"max_tokens": tokens, **fields}
        return _read_answer(
            send_request(
                f"{self.server.root}/v1/chat/completions", body, self.seconds, tries=MAX_TRIES
            )
        )

    def complete_exact_ids(
        self, ids: Sequence[int], text: str, tokens: int, **fields: Any
    ) -> ServerAnswer:
        """Have the server complete exactly these ids, and give its answer; a refusal where it can't be given them."""
        forms = {"ids": list(ids), "text": text}
        if self.bos and text.startswith(self.bos):
            forms["text without BOS"] = text[len(self.bos) :]
        answer = ServerAnswer(refusal="it does not take prompts as ids or text")
        # Ids first: they can't be encoded otherwise. Some servers take text alone, and put a BOS before it.
        for form, prompt in forms.items():
            if self.prompt_form not in (None, form):
                continue
            body = {"prompt": prompt, "max_tokens": tokens, **fields}
            body |= {"model": self.server.model} if self.server.model else {}
            answer = _read_answer(
                send_request(
                    f"{self.server.root}/v1/completions", body, self.seconds, tries=MAX_TRIES
                )
            )
            # Read as another number of tokens: this is no answer to these ids.
            if answer.prompt_tokens is not None and answer.prompt_tokens != len(ids):
                answer = ServerAnswer(
                    refusal=f"/v1/completions reads {answer.prompt_tokens} tokens of a prompt of {len(ids)}"
                )
            if not answer.refusal:
                self.prompt_form = form
                return answer
        return answer

    def send_all_concurrently(
        self, requests: Sequence[Callable[[], ServerAnswer]]
    ) -> list[ServerAnswer]:
        """Send many requests at the same time, and give all their answers in their order."""
        return map_concurrently(lambda request, _: request(), requests, self.concurrency)


def _read_answer(reply: Reply) -> ServerAnswer:
    """Read an answer, or why there is none, from a reply; servers leave out what they like, so each
    part may be missing.
    """
    choice = next(iter(list_field(reply.body, "choices")), None)
    if reply.status != 200 or not isinstance(choice, dict):
        return ServerAnswer(refusal=reply.refusal_message_in_one_line)
    usage = reply.body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    message = choice.get("message")
    message = message if isinstance(message, dict) else {"content": choice.get("text")}
    content = message.get("content")
    # A server with a parser of reasoning or calls moves text out of `content`: its text is not what the model wrote.
    has_parsed_parts = any(
        message.get(name) for name in ("reasoning_content", "reasoning", "tool_calls")
    )
    return ServerAnswer(
        content if isinstance(content, str) else "",
        str(choice.get("finish_reason") or ""),
        _int_or_none(usage.get("prompt_tokens")),
        _int_or_none(usage.get("completion_tokens")),
        _read_tokens(choice.get("logprobs")),
        has_parsed_parts,
    )


def _read_tokens(logprobs: Any) -> tuple[AnswerToken, ...]:
    """The tokens of an answer to a chat (`content`), or of a completion (`tokens`,
    `token_logprobs`, `top_logprobs`).
    """
    if not isinstance(logprobs, dict):
        return ()
    try:
        if logprobs.get("content"):
            return tuple(
                _read_token(
                    entry["token"],
                    entry["logprob"],
                    [other["logprob"] for other in entry.get("top_logprobs") or ()],
                )
                for entry in logprobs["content"]
            )
        tokens = logprobs.get("tokens") or ()
        token_logprobs = logprobs.get("token_logprobs") or ()
        best = logprobs.get("top_logprobs") or [None] * len(tokens)
        return tuple(
            _read_token(token, logprob, list((others or {}).values()))
            for token, logprob, others in zip(tokens, token_logprobs, best, strict=False)
        )
    # Log-probabilities are a help, never a need: a form that no server is known to have is as if there were none.
    except (KeyError, TypeError, AttributeError, ValueError):
        return ()


def _read_token(token: Any, logprob: Any, best: list[Any]) -> AnswerToken:
    """Read one token; its margin is that of the best two, which are not always the one that was
    taken.
    """
    ordered = sorted(map(float, best), reverse=True)
    margin = ordered[0] - ordered[1] if len(ordered) > 1 else None
    return AnswerToken(str(token), float(logprob), margin)


def _int_or_none(value: Any) -> int | None:
    """The value where it is an integer, and no bool, which is an int too; else None."""
    return value if type(value) is int else None
