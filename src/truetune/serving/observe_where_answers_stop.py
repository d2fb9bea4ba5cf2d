"""Observes where a server ends an answer, and which stop tokens it has.

Prompts whose own answers stop (the tuned model gave them on this machine) are asked with a little room more: a server
without the right stop tokens continues, or shows the token that should have ended the answer. Without a model
only a stop token in the text can be seen. The trade-off: a few prompts, so a stop that fails rarely is missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.model_source import serving_stops
from truetune.generation.server_observations import AnswerEnd, ServerStops
from truetune.render.template_probes import Probes
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt, TrainingRecord
from truetune.serving.measure_adapter_effect_on_server import text_of_last_message_or_prompt
from truetune.serving.prompts_of_known_mistakes import CHAT_FORMATS, MIN_MARK_CHARS
from truetune.serving.server_client import GREEDY, REJECTED_STATUSES, ServerAnswer, ServerClient

# Chosen, not measured: enough for a role marker behind a missed stop, few enough that other prompts cost little.
EXTRA_TOKENS = 8
"""Tokens that an answer may have more than the model's own"""
# Chosen, not measured: many short answers end within it; more would make slow servers slower.
ANSWER_TOKENS = 48
"""Of an answer where it is not known when the model stops"""
SHOW_SPECIAL_FIELDS = {"skip_special_tokens": False}
"""Makes vLLM and SGLang show control tokens"""


def observe_where_server_ends_answers(
    client: ServerClient,
    record: TrainingRecord,
    probes: Probes,
    expected: Sequence[tuple[Prompt, Answer]],
    asked: Sequence[TrainedPrompt],
) -> ServerStops:
    """Observe where the server ends answers, and which stop tokens it says that it has.

    Args:
        client: the server.
        record: tells the tokens that end a turn where the template does not.
        probes: tokenizer and template of the training.
        expected: prompts with the model's own answers, which stop.
        asked: prompts that are asked where there are none of these.
    """
    markers = _list_texts_that_end_turns(probes)
    endings = []
    for prompt, own_answer in expected:
        assert prompt.chat is not None
        chat = {
            "messages": prompt.chat.messages,
            "tools": prompt.chat.tools,
            "settings": prompt.chat.settings,
        }
        # One more than the answer's own: its stop token, which `ids` leaves out.
        own_tokens = len(own_answer.ids) + 1
        answer = _ask_greedily_showing_control_tokens(client, chat, own_tokens + EXTRA_TOKENS)
        if not answer.refusal:
            backend = probes.tokenizer.backend
            own_text = str(backend.decode(list(own_answer.ids), skip_special_tokens=True)).strip()
            endings.append(
                _describe_answer_end(answer, prompt.question, markers, own_tokens, own_text)
            )
    for trained in asked if not expected else ():
        answer = _ask_greedily_showing_control_tokens(
            client, trained.as_chat_request_body, ANSWER_TOKENS
        )
        if not answer.refusal:
            endings.append(
                _describe_answer_end(
                    answer, text_of_last_message_or_prompt(trained), markers, None, None
                )
            )
    # What the model's own files name: a server that reads them ends there.
    kept = serving_stops(probes.tokenizer)
    turn = probes.terminator.token if probes.terminator else None
    ends = [(turn.token, turn.id)] if turn else list(record.stops)
    return ServerStops(
        tuple(f"{token} ({id})" for token, id in ends),
        tuple(_read_reported_stops(client)),
        tuple(f"{token} ({id})" for token, id in ends if id not in kept),
        tuple(endings),
    )


def _ask_greedily_showing_control_tokens(
    client: ServerClient, chat: dict[str, Any], tokens: int
) -> ServerAnswer:
    """The greedy answer with its control tokens as text; without them where the server knows no such field."""
    answer = client.chat(chat, tokens, **GREEDY, **SHOW_SPECIAL_FIELDS)
    return (
        client.chat(chat, tokens, **GREEDY)
        if answer.refusal.startswith(tuple(map(str, REJECTED_STATUSES)))
        else answer
    )


def _describe_answer_end(
    answer: ServerAnswer,
    question: str,
    markers: Sequence[str],
    expected: int | None,
    own_text: str | None,
) -> AnswerEnd:
    """How one answer ended; `expected` (tokens) and `own_text` are the model's own, where it was asked."""
    # An answer that ended by itself ended well, whatever stands in it: only one that was cut ran past its stop.
    cut = answer.finish == "length"
    leaked = (
        next((marker for marker in markers if marker in answer.text.rstrip()), "") if cut else ""
    )
    behind = answer.text.strip()
    # Another answer than the model's own says nothing of stops: it may just be longer.
    continues_own = bool(own_text) and own_text is not None and behind.startswith(own_text)
    runs_on = cut and continues_own and len(behind) > len(own_text or "")
    return AnswerEnd(question, expected, answer.answer_tokens, answer.finish, leaked, runs_on)


def _list_texts_that_end_turns(probes: Probes) -> list[str]:
    """Texts that show the end of a turn: the tokens that end one first, then other stops, then what
    begins a user's turn in known formats.
    """
    turn = (
        [probes.terminator.text.strip()]
        if probes.terminator and probes.terminator.text.strip()
        else []
    )
    ends = {str(probes.tokenizer.backend.id_to_token(id)) for id in serving_stops(probes.tokenizer)}
    formats = [
        format.user_message_beginning
        for format in CHAT_FORMATS.values()
        if len(format.user_message_beginning) >= MIN_MARK_CHARS
    ]
    return [*turn, *sorted(ends - set(turn)), *formats]


def _read_reported_stops(client: ServerClient) -> list[str]:
    """The stops that the server reports, which llama.cpp alone does."""
    props = client.get("/props")
    # Other servers tell nothing of their stops.
    eos = props.get("eos_token") if isinstance(props, dict) else None
    return [eos] if isinstance(eos, str) and eos else []
