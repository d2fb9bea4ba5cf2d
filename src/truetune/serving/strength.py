"""Strength: how much of what training changed is served.

The log-probabilities of the same tokens are told by the base (b), the tuned model (t) and the server (s). The factor is
the least squares solution of s - b = factor * (t - b), the cosine that between both sides: 1 and 1 where the server
has all of it, 0 where it serves the base. Where the server tells none, its greedy answers are held against those of
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Chat, Prompt
from truetune.generation.backends.backend import Backend, Decoding, ScoredIds
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.server_observations import AdapterStrength
from truetune.render.tokenizer import Tokenizer
from truetune.serving.client import GREEDY, Client
from truetune.serving.effect import effect
from truetune.serving.scalings import scaled, scalings
from truetune.serving.trained import Trained

TOKENS = 32
"""Of the tuned model's own answers, whose tokens are scored"""
LEAST = 0.01
"""Nats a token (root mean square) that training must have changed"""
FULL = (0.85, 1.2)
"""Factors that need no explanation: a server computes in another precision"""
ODD = 0.1
"""Share of the effect by which the server may be off the tuned model"""
EXPLAINS = 0.35
"""Share of the distance to the tuned model that a wrong scaling leaves, at most, where it explains what is served"""
Told = NDArray[np.float32]
Step = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Own:
    """What the model itself says to the prompts."""

    prompts: tuple[Prompt, ...]
    answers: tuple[Answer | None, ...]


def prompts_for(prompts: Sequence[Trained], count: int) -> list[Prompt]:
    """Up to `count` different ones, rows of the data first, those without tools before the others."""
    order = sorted(prompts, key=lambda trained: (not trained.of_data, bool(trained.tools)))
    different = {tuple(trained.ids): trained for trained in reversed(order)}
    return [
        Prompt(
            ids,
            question(trained),
            "",
            (),
            trained.name,
            0,
            text=trained.text,
            chat=(
                Chat(tuple(trained.messages), tuple(trained.tools), trained.settings)
                if trained.messages
                else None
            ),
        )
        for ids, trained in list(reversed(different.items()))[:count]
    ]


def question(trained: Trained) -> str:
    """The last thing that is said."""
    said = trained.messages[-1].get("content") if trained.messages else trained.text
    return said if isinstance(said, str) else ""


def strength_of(
    place: ModelSource,
    server: Backend,
    client: Client,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    options: Options,
    stops: frozenset[int],
    say: Step = str,
) -> tuple[Own, AdapterStrength | None, list[str]]:
    """What the model says by itself, and how much of it the server has; None, with a note, where that can't be told."""
    say("asking the model on this machine")
    with open_backend(place, tokenizer, options) as tuned:
        said = tuned.answers(prompts, Decoding(stops, TOKENS))
        own = Own(tuple(prompts), tuple(said))
        sequences = [
            [*prompt.ids, *answer.ids]
            for prompt, answer in zip(prompts, said, strict=True)
            if answer
        ]
        say("asking the server for its log-probabilities")
        served = server.score(sequences) if sequences else None
        mine = tuned.score(sequences) if served else None
    base = _base(place)
    if base is None:
        if served and mine:
            return (
                own,
                _without_base(
                    place,
                    _answer_logprobs(prompts, said, served),
                    _answer_logprobs(prompts, said, mine),
                ),
                [],
            )
        return (
            own,
            None,
            [
                f"{place.name}: its base is not known (--base): how much of the training is served"
                " was not measured"
            ],
        )
    say("asking its base")
    with open_backend(base, tokenizer, options) as untuned:
        if served and mine and (theirs := untuned.score(sequences)):
            s, t, b = (_answer_logprobs(prompts, said, one) for one in (served, mine, theirs))
            found = measured(s, t, b, adapter=place.kind == "adapter")
        else:
            return own, *_by_answers(
                place, own, untuned.answers(prompts, Decoding(stops, TOKENS)), client, tokenizer
            )
    if found is None:
        return (
            own,
            None,
            [
                "base and tuned model tell the same log-probabilities: there is no effect to"
                " look for"
            ],
        )
    if place.kind == "adapter" and _is_odd(found):
        say("looking for the scaling that is served")
        found = _explained(place, found, s, (t, b), sequences, (prompts, said), tokenizer, options)
    return own, found, []


def _base(place: ModelSource) -> ModelSource | None:
    if place.base is None or place.base == place.folder:
        return None
    try:
        found = find_model_source(str(place.base), tokenizer=str(place.tokenizer))
    except UsageError:
        return None
    return found if found.kind == "model" else None


def _answer_logprobs(
    prompts: Sequence[Prompt], answers: Sequence[Answer | None], scores: Sequence[ScoredIds]
) -> Told:
    """The log-probabilities of the answers' tokens, one after another."""
    lengths = [len(prompt.ids) for prompt, answer in zip(prompts, answers, strict=True) if answer]
    return np.concatenate([one.logprobs[at:] for one, at in zip(scores, lengths, strict=True)])


def measured(served: Told, tuned: Told, base: Told, *, adapter: bool) -> AdapterStrength | None:
    """(n,) log-probabilities each, nan where one is not told; None where tuned and base are the same."""
    found = effect([base], [tuned], [served])
    if found.size < LEAST:
        return None
    return AdapterStrength(
        "logprobs",
        found.places,
        adapter,
        factor=found.kept,
        cosine=found.cosine,
        effect=found.size,
        distance=_rms(served - tuned),
    )


def _without_base(place: ModelSource, served: Told, tuned: Told) -> AdapterStrength:
    known = int((np.isfinite(served) & np.isfinite(tuned)).sum())
    return AdapterStrength(
        "logprobs", known, place.kind == "adapter", distance=_rms(served - tuned)
    )


def _rms(values: Told) -> float:
    """Root mean square of those that are told."""
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(known**2))) if len(known) else 0.0


def _is_odd(found: AdapterStrength) -> bool:
    """Is it not all of it? Strong effects do not grow evenly with the scaling, and may turn."""
    assert found.factor is not None
    assert found.distance is not None
    assert found.effect is not None
    return not FULL[0] <= found.factor <= FULL[1] or found.distance > ODD * found.effect


def _explained(
    place: ModelSource,
    found: AdapterStrength,
    served: Told,
    own: tuple[Told, Told],
    sequences: Sequence[Sequence[int]],
    heard: tuple[Sequence[Prompt], Sequence[Answer | None]],
    tokenizer: Tokenizer,
    options: Options,
) -> AdapterStrength:
    """The same, with the wrong scaling whose log-probabilities are those that are served, where one of them fits."""
    best = ("", found.distance or 0.0)
    for name, scale in scalings(place, near=found.factor or 0.0).items():
        with scaled(place, scale) as other, open_backend(other, tokenizer, options) as model:
            scores = model.score(sequences)
        if scores:
            rest = _rms(served - _answer_logprobs(*heard, scores))
            if rest < best[1]:
                best = (name, rest)
    if best[0] and best[1] <= EXPLAINS * (found.distance or 0.0):
        return replace(found, explained=best[0], explained_distance=best[1])
    return found


def _by_answers(
    place: ModelSource,
    own: Own,
    base: Sequence[Answer | None],
    client: Client,
    tokenizer: Tokenizer,
) -> tuple[AdapterStrength | None, list[str]]:
    """Which answers are served at the prompts where base and tuned model part."""
    tuned = base_like = parted = 0
    for prompt, one, other in zip(own.prompts, own.answers, base, strict=True):
        if one is None or other is None or one.ids == other.ids:
            continue
        mine, theirs = (_plain(tokenizer, answer) for answer in (one, other))
        said = client.complete(prompt.ids, prompt.text, TOKENS, **GREEDY)
        if said.refusal and prompt.chat is not None:
            chat = {
                "messages": prompt.chat.messages,
                "tools": prompt.chat.tools,
                "settings": prompt.chat.settings,
            }
            said = client.chat(chat, TOKENS, **GREEDY)
        if said.refusal or mine == theirs:
            continue
        parted += 1
        part, nearest = common(mine, theirs), said.text.strip()
        as_tuned, as_base = (
            common(nearest, text) > part or nearest == text for text in (mine, theirs)
        )
        tuned += as_tuned and not as_base
        base_like += as_base and not as_tuned
    if not parted:
        return None, [
            "base and tuned model give the same greedy answers, and the server tells no"
            " log-probabilities: how much of the training is served can't be told"
        ]
    return (
        AdapterStrength(
            "answers", parted, place.kind == "adapter", as_tuned=tuned, as_base=base_like
        ),
        [],
    )


def common(one: str, other: str) -> int:
    """Characters with which both begin."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _plain(tokenizer: Tokenizer, answer: Answer) -> str:
    return str(tokenizer.backend.decode(list(answer.ids), skip_special_tokens=True)).strip()


def expectations(own: Own) -> Iterator[tuple[Prompt, Answer]]:
    """Prompts with answers that end by themselves."""
    for prompt, answer in zip(own.prompts, own.answers, strict=True):
        if answer is not None and answer.stop is not None and prompt.chat is not None:
            yield prompt, answer
