"""Stopping: where a server ends an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.model_source import serving_stops
from truetune.generation.server_observations import AnswerEnd, ServerStops
from truetune.render.probes import Probes
from truetune.serving.client import GREEDY, REFUSED, Client, Said
from truetune.serving.strength import question
from truetune.serving.suspects import FORMATS, MARK
from truetune.serving.trained import Record, Trained

MORE = 8
"""Tokens that an answer may have more than the model's own"""
TOKENS = 48
"""Of an answer where it is not known when the model stops"""
SHOWN = {"skip_special_tokens": False}
"""Makes vLLM and SGLang show control tokens"""


def stopping_of(
    client: Client,
    record: Record,
    made: Probes,
    expected: Sequence[tuple[Prompt, Answer]],
    asked: Sequence[Trained],
) -> ServerStops:
    """`expected` are prompts with the model's own answers, which stop; without any, `asked` are asked."""
    markers = _markers(made)
    endings = []
    for prompt, answer in expected:
        assert prompt.chat is not None
        chat = {
            "messages": prompt.chat.messages,
            "tools": prompt.chat.tools,
            "settings": prompt.chat.settings,
        }
        said = _said(client, chat, len(answer.ids) + 1 + MORE)
        if not said.refusal:
            own = str(
                made.tokenizer.backend.decode(list(answer.ids), skip_special_tokens=True)
            ).strip()
            endings.append(_ending(said, prompt.question, markers, len(answer.ids) + 1, own))
    for trained in asked if not expected else ():
        said = _said(client, trained.chat, TOKENS)
        if not said.refusal:
            endings.append(_ending(said, question(trained), markers, None, None))
    kept = serving_stops(made.tokenizer)
    turn = made.terminator.token if made.terminator else None
    ends = [(turn.token, turn.id)] if turn else list(record.stops)
    return ServerStops(
        tuple(f"{token} ({id})" for token, id in ends),
        tuple(_told(client)),
        tuple(f"{token} ({id})" for token, id in ends if id not in kept),
        tuple(endings),
    )


def _said(client: Client, chat: dict[str, Any], tokens: int) -> Said:
    said = client.chat(chat, tokens, **GREEDY, **SHOWN)
    return (
        client.chat(chat, tokens, **GREEDY)
        if said.refusal.startswith(tuple(map(str, REFUSED)))
        else said
    )


def _ending(
    said: Said, asked: str, markers: Sequence[str], expected: int | None, own: str | None
) -> AnswerEnd:
    cut = said.finish == "length"
    leaked = next((marker for marker in markers if marker in said.text.rstrip()), "") if cut else ""
    behind = said.text.strip()
    runs_on = (
        cut and bool(own) and own is not None and behind.startswith(own) and len(behind) > len(own)
    )
    return AnswerEnd(asked, expected, said.tokens, said.finish, leaked, runs_on)


def _markers(made: Probes) -> list[str]:
    """The tokens that end a turn first, then other stops, then what begins a user's turn in known formats."""
    turn = (
        [made.terminator.text.strip()] if made.terminator and made.terminator.text.strip() else []
    )
    ends = {str(made.tokenizer.backend.id_to_token(id)) for id in serving_stops(made.tokenizer)}
    formats = [format.mark for format in FORMATS.values() if len(format.mark) >= MARK]
    return [*turn, *sorted(ends - set(turn)), *formats]


def _told(client: Client) -> list[str]:
    """What llama.cpp says of it."""
    props = client.get("/props")
    eos = props.get("eos_token") if isinstance(props, dict) else None
    return [eos] if isinstance(eos, str) and eos else []
