"""Habits: what a server does where a request leaves it free, and whether greedy answers are always the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from truetune.generation.server_observations import RepeatedRequests, ServerSampling
from truetune.serving.behaviour import LOGPROBS
from truetune.serving.client import GREEDY, REFUSED, Client, Said
from truetune.serving.trained import Trained

TOKENS = 16
"""Of an answer"""
ALONE, TOGETHER, OTHERS = 3, 4, 2
"""The same request, one after another and at the same time, and other requests among those"""
FREE = 2
"""Requests without a temperature"""
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": (0, -1, None), "min_p": 0.0, "typical_p": 1.0,
           "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "no_repeat_ngram_size": 0,
           "encoder_repetition_penalty": 1.0, "length_penalty": 1.0, "num_beams": 1, "num_beam_groups": 1,
           "penalty_alpha": None, "bad_words_ids": None, "suppress_tokens": None}  # fmt: skip
"""Settings of generation_config.json that change answers, with the values that do not"""
PENALTIES: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0},
    {"frequency_penalty": 0.0, "presence_penalty": 0.0},
    {"frequency_penalty": 0.0},
)
"""Fields that take penalties away, all that a server knows of them"""


def settings_of(generation: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What generation_config.json sets that changes answers."""
    found = []
    for name, neutral in NEUTRAL.items():
        value = (generation or {}).get(name)
        if value is not None and value not in (
            neutral if isinstance(neutral, tuple) else (neutral,)
        ):
            found.append(f"{name} {value}")
    return tuple(found)


def repeats_of(client: Client, prompts: Sequence[Trained]) -> RepeatedRequests | None:
    """The first of the prompts, again and again, among others; None where it is refused."""
    asked, *others = prompts
    alone = [client.chat(asked.chat, TOKENS, **GREEDY, **LOGPROBS) for _ in range(ALONE)]
    if alone[0].refusal:
        return None

    def again(trained: Trained) -> Any:
        return lambda: client.chat(trained.chat, TOKENS, **GREEDY, **LOGPROBS)

    mixed = [again(trained) for trained in (*[asked] * TOGETHER, *others[:OTHERS])]
    together = client.all(mixed)[:TOGETHER]
    first = alone[0]
    different = [
        said for said in (*alone, *together) if not said.refusal and said.text != first.text
    ]
    return RepeatedRequests(
        len(alone),
        sum(said in different for said in alone),
        len(together),
        sum(said in different for said in together),
        _margin(first, different[0]) if different else None,
        tuple(dict.fromkeys(said.text for said in (first, *different))) if different else (),
    )


def _margin(one: Said, other: Said) -> float | None:
    """Between the best two tokens at the place where two answers part."""
    for mine, theirs in zip_longest(one.steps, other.steps):
        if mine is None or theirs is None or mine.token != theirs.token:
            known = [
                step.margin
                for step in (mine, theirs)
                if step is not None and step.margin is not None
            ]
            return min(known, default=None)
    return None


def sampling_of(
    client: Client,
    prompts: Sequence[Trained],
    generation: Mapping[str, Any] | None,
    *,
    repeatable: bool,
) -> ServerSampling:
    """Greedy answers against those to requests that name no temperature, and no penalty."""
    samples: bool | None = None
    penalised: bool | None = None
    answers: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    for trained in prompts:
        greedy = client.chat(trained.chat, TOKENS, **GREEDY)
        if greedy.refusal or not repeatable:
            continue
        free = [client.chat(trained.chat, TOKENS) for _ in range(FREE)]
        others = tuple(
            dict.fromkeys(
                said.text for said in free if not said.refusal and said.text != greedy.text
            )
        )
        if others and not answers:
            answers = (greedy.text, *others)
        samples = bool(answers)
        neutral = _neutral(client, trained)
        if neutral is not None:
            if neutral.text != greedy.text and not plain:
                plain = (greedy.text, neutral.text)
            penalised = bool(plain)
    return ServerSampling(settings_of(generation), samples, answers, penalised, plain)


def _neutral(client: Client, trained: Trained) -> Said | None:
    """Greedy, without penalties; None where the server knows no field for them."""
    for fields in PENALTIES:
        said = client.chat(trained.chat, TOKENS, **GREEDY, **fields)
        if not said.refusal.startswith(tuple(map(str, REFUSED))):
            return None if said.refusal else said
    return None
