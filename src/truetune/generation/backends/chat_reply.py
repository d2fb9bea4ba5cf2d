"""What a server's reply says: the answer's text, ids, end and log-probability."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truetune.errors import TemplateError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.http_client import list_field
from truetune.generation.backends.server_prompt_ids import id_list
from truetune.generation.build_prompts import make_decoder
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import REPLY
from truetune.render.template import Template
from truetune.render.tokenizer import Tokenizer
from truetune.render.traced_string import parts

STOP_REASONS = frozenset(
    {"stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call"}
)
LIMIT_REASONS = frozenset({"length", "max_tokens"})
REASONING_FIELDS = ("reasoning_content", "reasoning")
UNKNOWN_STOP = -1
"""Stands for a stop token whose id nothing tells"""
ZERO_LOGPROB = 1e-9
"""A log-probability that is no larger for any token is that of a distribution without a doubt: greedy decoding's own"""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """One reply, read."""

    answer: Answer
    own_ids: bool
    """The ids are the server's, not those of our own encoding of its text."""
    counted: int | None
    """Tokens that the server counts, stop token among them"""
    prompt_ids: list[int] | None
    prompt_count: int | None
    apart: bool
    """Reasoning or tool calls were taken out of the text, and their place in it is a guess."""
    certain: bool
    """Its log-probabilities are all 0."""


class ReplyReader:
    """Reads replies with one tokenizer and its template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.decode = tokenizer, make_decoder(tokenizer)
        source = tokenizer.templates.get("default")
        special = {f"{name}_token": token.token for name, token in tokenizer.special.items()}
        self.one_at_a_time = threading.Lock()
        self.template = _compile_template(source, special) if source else None

    def read(self, body: Any, prompt: Prompt, stops: frozenset[int], limit: int) -> ChatReply | str:
        """What `body` answers to `prompt`; why not, in words, where it is no answer."""
        choice = next(iter(list_field(body, "choices")), None)
        message = (
            (choice.get("message") or {"content": choice.get("text")})
            if isinstance(choice, dict)
            else None
        )
        if not isinstance(choice, dict) or not isinstance(message, dict):
            return f"its reply holds no answer: {json.dumps(body)[:200]}"
        usage = body.get("usage") if isinstance(body.get("usage"), dict) else {}
        counted = _int_or_none(usage.get("completion_tokens"))
        reason = choice.get("finish_reason")
        if reason is None and isinstance(counted, int):
            reason = "stop" if counted < limit else "length"
        if not isinstance(reason, str) or reason not in STOP_REASONS | LIMIT_REASONS:
            return f"its answer ended for the reason {reason!r}"
        ids, worth = _ids_and_logprobs(choice)
        stop = self._stop(choice, ids, prompt, stops) if reason in STOP_REASONS else None
        apart = False
        if ids is None:
            text, apart = self._written(message, prompt)
            kept = self.tokenizer.backend.encode(text, add_special_tokens=False).ids
        else:
            kept = ids[:-1] if ids and ids[-1] == stop else ids
            text = self.decode(kept)
        certain = len(worth) > 1 and all(abs(one) < ZERO_LOGPROB for one in worth)
        mean = math.fsum(worth) / len(worth) if worth and not certain else None
        answer = Answer(tuple(kept), text, stop, logprob=mean)
        asked = id_list(body, "prompt_token_ids") or id_list(choice, "prompt_token_ids") or None
        return ChatReply(
            answer,
            ids is not None,
            counted,
            asked,
            _int_or_none(usage.get("prompt_tokens")),
            apart,
            certain,
        )

    def usual_stop(self, prompt: Prompt, stops: frozenset[int]) -> int:
        """The stop id that a server means that tells none: the trained one, else the tokenizer's."""
        trained = prompt.reference_ids[-1:]
        if trained and (trained[0] in stops or trained[0] in self.tokenizer.control):
            return trained[0]
        eos = self.tokenizer.special.get("eos")
        return (
            eos.id if eos and (eos.id in stops or not stops) else min(stops, default=UNKNOWN_STOP)
        )

    def _stop(
        self,
        choice: Mapping[str, Any],
        ids: list[int] | None,
        prompt: Prompt,
        stops: frozenset[int],
    ) -> int:
        told = choice.get("stop_reason")
        if type(told) is int and 0 <= told < self.tokenizer.vocabulary:
            return told
        if ids and ids[-1] in stops | self.tokenizer.control:
            return ids[-1]
        return self.usual_stop(prompt, stops)

    def _written(self, message: Mapping[str, Any], prompt: Prompt) -> tuple[str, bool]:
        """The answer as the model wrote it, as the template writes it; and whether that is a guess."""
        content = str(message.get("content") or "")
        reasoning = next((str(message[name]) for name in REASONING_FIELDS if message.get(name)), "")
        calls = [call for call in list_field(message, "tool_calls") if isinstance(call, dict)]
        if not reasoning and not calls:
            return content, False
        answer: dict[str, Any] = {"role": "assistant", "content": content}
        answer |= {"reasoning_content": reasoning} if reasoning else {}
        answer |= {"tool_calls": [_parse_arguments(call) for call in calls]} if calls else {}
        written = self._rendered(answer, prompt)
        if written is not None and content in written and reasoning.strip() in written:
            return written, False
        thought = f"<think>\n{reasoning.strip()}\n</think>\n\n" if reasoning else ""
        return (
            thought
            + "\n".join(filter(None, (content, *map(json.dumps, answer.get("tool_calls", ()))))),
            True,
        )

    def _rendered(self, answer: dict[str, Any], prompt: Prompt) -> str | None:
        if self.template is None or prompt.chat is None:
            return None
        chat = prompt.chat
        messages, tools = [*map(dict, chat.messages), answer], list(map(dict, chat.tools)) or None
        try:
            with self.one_at_a_time:
                made = self.template.render(messages, tools=tools, **chat.settings)
        except TemplateError:
            return None
        text = "".join(parts(made))
        if not text.startswith(prompt.text):
            return None
        stop = self.usual_stop(prompt, frozenset())
        return (
            None
            if stop == UNKNOWN_STOP
            else text[len(prompt.text) :].partition(self.decode([stop]))[0]
        )


def _compile_template(source: str, special: dict[str, str]) -> Template | None:
    try:
        return Template(source, special)
    except TemplateError:
        return None


def _parse_arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Templates take arguments as an object."""
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {
            **call,
            "function": {
                **function,
                "arguments": parse_json(function["arguments"], REPLY, exact_integers=True),
            },
        }
    except ValueError:
        return call


def _ids_and_logprobs(choice: Mapping[str, Any]) -> tuple[list[int] | None, list[float]]:
    """The ids of the answer where the reply has them, and the log-probabilities of its tokens."""
    held = choice.get("logprobs")
    content = [entry for entry in list_field(held, "content") if isinstance(entry, dict)]
    worth = [entry.get("logprob") for entry in content] or list_field(held, "token_logprobs")
    numbers = [float(one) for one in worth if isinstance(one, int | float) and math.isfinite(one)]
    ids = list_field(choice, "token_ids") or [entry.get("id") for entry in content]
    return (
        ids if ids and all(type(id) is int and 0 <= id < 1 << 31 for id in ids) else None
    ), numbers


def _int_or_none(value: Any) -> int | None:
    return value if type(value) is int else None
