"""Observes how a server samples where a request leaves it free, and whether greedy answers are
always the same.

The same greedy request is sent one after another and together with others; then without a temperature, and with
penalties taken away. The trade-off: a handful of requests of a few tokens. Rare differences are missed, and a server
whose greedy answers differ by themselves can't be judged on sampling at all, which is why repeatability comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from truetune.generation.server_observations import RepeatedRequests, ServerSampling
from truetune.serving.infer_prompt_from_answers import LOGPROB_FIELDS
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt
from truetune.serving.server_client import GREEDY, REJECTED_STATUSES, ServerAnswer, ServerClient

# Chosen, not measured: sampling at temperature 1 leaves the greedy path within a few tokens.
ANSWER_TOKENS = 16
"""Of an answer"""
# Chosen, not measured: enough for a server to make a batch of them, few enough for a slow one.
SERIAL_REQUESTS, PARALLEL_REQUESTS, OTHER_REQUESTS = 3, 4, 2
"""The same request, one after another and at the same time, and other requests among those"""
# One sample may be the greedy answer by chance; two on two prompts hardly are.
UNSET_SAMPLING_REQUESTS = 2
"""Requests without a temperature"""
NEUTRAL_SETTINGS = {
    "temperature": 1.0,
    "top_p": 1.0,
    # Libraries write "all tokens" in three ways.
    "top_k": (0, -1, None),
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "bad_words_ids": None,
    "suppress_tokens": None,
}
"""Settings of generation_config.json that change answers, with the values that do not"""
# In this order, for servers refuse requests with a field that they do not know: the OpenAI protocol has no
# repetition_penalty, and some servers have one of the other two alone.
NO_PENALTY_FIELDS: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    {"frequency_penalty": 0.0, "presence_penalty": 0.0},
    {"frequency_penalty": 0.0},
)
"""Fields that take penalties away, all that a server knows of them"""


def list_settings_that_change_answers(generation: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The settings in generation_config.json that change answers."""
    settings = []
    for name, neutral in NEUTRAL_SETTINGS.items():
        value = (generation or {}).get(name)
        neutral_values = neutral if isinstance(neutral, tuple) else (neutral,)
        if value is not None and value not in neutral_values:
            settings.append(f"{name} {value}")
    return tuple(settings)


def measure_repeatability_of_greedy_requests(
    client: ServerClient, prompts: Sequence[TrainedPrompt]
) -> RepeatedRequests | None:
    """Send the first of the prompts again and again, among others, and compare the greedy answers;
    None where it is refused.
    """
    repeated, *others = prompts
    alone = [
        client.chat(repeated.as_chat_request_body, ANSWER_TOKENS, **GREEDY, **LOGPROB_FIELDS)
        for _ in range(SERIAL_REQUESTS)
    ]
    if alone[0].refusal:
        return None

    def again(trained: TrainedPrompt) -> Any:
        return lambda: client.chat(
            trained.as_chat_request_body, ANSWER_TOKENS, **GREEDY, **LOGPROB_FIELDS
        )

    requests = [
        again(trained) for trained in (*[repeated] * PARALLEL_REQUESTS, *others[:OTHER_REQUESTS])
    ]
    # Others among them, for a batch of equal prompts may be computed once.
    together = client.send_all_concurrently(requests)[:PARALLEL_REQUESTS]
    first = alone[0]
    different = [
        answer for answer in (*alone, *together) if not answer.refusal and answer.text != first.text
    ]
    return RepeatedRequests(
        len(alone),
        sum(answer in different for answer in alone),
        len(together),
        sum(answer in different for answer in together),
        _margin_at_first_difference(first, different[0]) if different else None,
        tuple(dict.fromkeys(answer.text for answer in (first, *different))) if different else (),
    )


def _margin_at_first_difference(first: ServerAnswer, second: ServerAnswer) -> float | None:
    """The margin between the best two tokens where two answers first differ."""
    for first_step, second_step in zip_longest(first.steps, second.steps):
        if first_step is None or second_step is None or first_step.token != second_step.token:
            margins = [
                step.margin
                for step in (first_step, second_step)
                if step is not None and step.margin is not None
            ]
            # A tie within rounding may turn either way: the smaller margin says how near it was.
            return min(margins, default=None)
    return None


def observe_sampling_defaults(
    client: ServerClient,
    prompts: Sequence[TrainedPrompt],
    generation: Mapping[str, Any] | None,
    *,
    repeatable: bool,
) -> ServerSampling:
    """Compare greedy answers with those to requests that name no temperature, and no penalty.

    Args:
        client: the server.
        prompts: a few that it does not refuse.
        generation: generation_config.json of the model.
        repeatable: its greedy answers are always the same; without that, a difference says nothing of sampling.
    """
    samples: bool | None = None
    penalised: bool | None = None
    answers: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    for trained in prompts:
        greedy = client.chat(trained.as_chat_request_body, ANSWER_TOKENS, **GREEDY)
        if greedy.refusal or not repeatable:
            continue
        others = _non_greedy_answers_without_temperature(client, trained, greedy)
        if others and not answers:
            answers = (greedy.text, *others)
        samples = bool(answers)
        neutral = _answer_without_penalties(client, trained)
        if neutral is not None:
            if neutral.text != greedy.text and not plain:
                plain = (greedy.text, neutral.text)
            penalised = bool(plain)
    return ServerSampling(
        list_settings_that_change_answers(generation), samples, answers, penalised, plain
    )


def _non_greedy_answers_without_temperature(
    client: ServerClient, trained: TrainedPrompt, greedy: ServerAnswer
) -> tuple[str, ...]:
    """The different answers to requests without a temperature that are not the greedy one."""
    free = [
        client.chat(trained.as_chat_request_body, ANSWER_TOKENS)
        for _ in range(UNSET_SAMPLING_REQUESTS)
    ]
    texts = (answer.text for answer in free if not answer.refusal)
    return tuple(dict.fromkeys(text for text in texts if text != greedy.text))


def _answer_without_penalties(client: ServerClient, trained: TrainedPrompt) -> ServerAnswer | None:
    """The greedy answer without penalties; None where the server knows no field for them."""
    for fields in NO_PENALTY_FIELDS:
        answer = client.chat(trained.as_chat_request_body, ANSWER_TOKENS, **GREEDY, **fields)
        if not answer.refusal.startswith(tuple(map(str, REJECTED_STATUSES))):
            return None if answer.refusal else answer
    return None
