"""Strength: how much of what training changed is served.

The log-probabilities of the same tokens are told by the base (b), the tuned model (t) and the server (s). The factor is
the least squares solution of s - b = factor * (t - b), the cosine that between both sides: 1 and 1 where the server
has all of it, 0 where it serves the base. Where the server tells none, its greedy answers are held against those of
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix

import numpy as np
from numpy.typing import NDArray

from truetune.errors import UsageError
from truetune.generation.backends.backend import Backend, Decoding, Scored
from truetune.generation.backends.opening import Options, opened
from truetune.generation.backends.place import Place, placed
from truetune.generation.looks import Answer, Chat, Prompt
from truetune.generation.service import Strength
from truetune.render.tokenizer import Tokenizer
from truetune.serving.client import GREEDY, Client
from truetune.serving.scalings import scaled, scalings
from truetune.serving.trained import Trained

TOKENS = 32
"""Of the tuned model's own answers, whose tokens are scored"""
FULL = (0.85, 1.2)
"""Factors that need no explanation: a server computes in another precision"""
EXPLAINS = 0.35
"""Share of the distance to the tuned model that a wrong scaling leaves, at most, where it explains what is served"""
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
        Prompt(ids, question(trained), "", (), trained.name, 0, text=trained.text,
               chat=Chat(tuple(trained.messages), tuple(trained.tools), trained.settings) if trained.messages else None)
        for ids, trained in list(reversed(different.items()))[:count]
    ]  # fmt: skip


def question(trained: Trained) -> str:
    """The last thing that is said."""
    said = trained.messages[-1].get("content") if trained.messages else trained.text
    return said if isinstance(said, str) else ""


def strength_of(
    place: Place, server: Backend, client: Client, prompts: Sequence[Prompt], tokenizer: Tokenizer, options: Options,
    stops: frozenset[int], say: Step = str,
) -> tuple[Own, Strength | None, list[str]]:  # fmt: skip
    """What the model says by itself, and how much of it the server has; None, with a note, where that can't be told."""
    say("asking the model on this machine")
    with opened(place, tokenizer, options) as tuned:
        said = tuned.answers(prompts, Decoding(stops, TOKENS))
        own = Own(tuple(prompts), tuple(said))
        sequences = [[*prompt.ids, *answer.ids] for prompt, answer in zip(prompts, said, strict=True) if answer]
        say("asking the server for its log-probabilities")
        served = server.score(sequences) if sequences else None
        mine = tuned.score(sequences) if served else None
    base = _base(place)
    if base is None:
        if served and mine:
            return own, _without_base(place, _told(prompts, said, served), _told(prompts, said, mine)), []
        return own, None, [f"{place.name}: its base is not known (--base): how much of the training is served was not "
                           "measured"]  # fmt: skip
    say("asking its base")
    with opened(base, tokenizer, options) as untuned:
        if served and mine and (theirs := untuned.score(sequences)):
            s, t, b = (_told(prompts, said, one) for one in (served, mine, theirs))
            found = measured(s, t, b, adapter=place.kind == "adapter")
        else:
            return own, *_by_answers(place, own, untuned.answers(prompts, Decoding(stops, TOKENS)), client, tokenizer)
    if found is None:
        return own, None, ["base and tuned model tell the same log-probabilities: there is no effect to look for"]
    if place.kind == "adapter" and found.factor is not None and not FULL[0] <= found.factor <= FULL[1]:
        say("looking for the scaling that is served")
        found = _explained(place, found, s, (t, b), sequences, (prompts, said), tokenizer, options)
    return own, found, []


def _base(place: Place) -> Place | None:
    if place.base is None or place.base == place.folder:
        return None
    try:
        found = placed(str(place.base), tokenizer=str(place.tokenizer))
    except UsageError:
        return None
    return found if found.kind == "model" else None


def _told(prompts: Sequence[Prompt], answers: Sequence[Answer | None], scores: Sequence[Scored]) -> NDArray[np.float64]:
    """The log-probabilities of the answers' tokens, one after another."""
    lengths = [len(prompt.ids) for prompt, answer in zip(prompts, answers, strict=True) if answer]
    return np.concatenate([one.logprobs[at:] for one, at in zip(scores, lengths, strict=True)]).astype(np.float64)


def measured(
    served: NDArray[np.float64], tuned: NDArray[np.float64], base: NDArray[np.float64], *, adapter: bool
) -> Strength | None:
    """(n,) log-probabilities each, nan where one is not told; None where tuned and base agree to 0.01 nats."""
    known = np.isfinite(served) & np.isfinite(tuned) & np.isfinite(base)
    s, t, b = served[known], tuned[known], base[known]
    effect, change = t - b, s - b
    if not len(s) or _rms(effect) < 0.01:
        return None
    lengths = float(np.linalg.norm(effect) * np.linalg.norm(change))
    return Strength(
        "logprobs", len(s), adapter,
        factor=float(change @ effect / (effect @ effect)),
        cosine=float(change @ effect / lengths) if lengths else 0.0,
        effect=_rms(effect), distance=_rms(s - t),
    )  # fmt: skip


def _without_base(place: Place, served: NDArray[np.float64], tuned: NDArray[np.float64]) -> Strength:
    known = np.isfinite(served) & np.isfinite(tuned)
    return Strength("logprobs", int(known.sum()), place.kind == "adapter", distance=_rms((served - tuned)[known]))


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0


def _explained(
    place: Place, found: Strength, served: NDArray[np.float64], own: tuple[NDArray[np.float64], NDArray[np.float64]],
    sequences: Sequence[Sequence[int]], heard: tuple[Sequence[Prompt], Sequence[Answer | None]], tokenizer: Tokenizer,
    options: Options,
) -> Strength:  # fmt: skip
    """The same, with the wrong scaling whose log-probabilities are those that are served, where one of them fits."""
    best = ("", found.distance or 0.0)
    for name, scale in scalings(place, near=found.factor or 0.0).items():
        with scaled(place, scale) as other, opened(other, tokenizer, options) as model:
            scores = model.score(sequences)
        if scores:
            off = np.abs(served - _told(*heard, scores))
            rest = _rms(off[np.isfinite(off)])
            if rest < best[1]:
                best = (name, rest)
    if best[0] and best[1] <= EXPLAINS * (found.distance or 0.0):
        return replace(found, explained=best[0], explained_distance=best[1])
    return found


def _by_answers(
    place: Place, own: Own, base: Sequence[Answer | None], client: Client, tokenizer: Tokenizer
) -> tuple[Strength | None, list[str]]:
    """Which answers are served at the prompts where base and tuned model part."""
    tuned = base_like = parted = 0
    for prompt, one, other in zip(own.prompts, own.answers, base, strict=True):
        if one is None or other is None or one.ids == other.ids:
            continue
        mine, theirs = (_plain(tokenizer, answer) for answer in (one, other))
        said = client.complete(prompt.ids, prompt.text, TOKENS, **GREEDY)
        if said.refusal and prompt.chat is not None:
            chat = {"messages": prompt.chat.messages, "tools": prompt.chat.tools, "settings": prompt.chat.settings}
            said = client.chat(chat, TOKENS, **GREEDY)
        if said.refusal or mine == theirs:
            continue
        parted += 1
        part, nearest = len(commonprefix([mine, theirs])), said.text.strip()
        as_tuned, as_base = (len(commonprefix([nearest, text])) > part or nearest == text for text in (mine, theirs))
        tuned += as_tuned and not as_base
        base_like += as_base and not as_tuned
    if not parted:
        return None, ["base and tuned model give the same greedy answers, and the server tells no log-probabilities: "
                      "how much of the training is served can't be told"]  # fmt: skip
    return Strength("answers", parted, place.kind == "adapter", as_tuned=tuned, as_base=base_like), []


def _plain(tokenizer: Tokenizer, answer: Answer) -> str:
    return str(tokenizer.backend.decode(list(answer.ids), skip_special_tokens=True)).strip()


def expectations(own: Own) -> Iterator[tuple[Prompt, Answer]]:
    """Prompts with answers that end by themselves."""
    for prompt, answer in zip(own.prompts, own.answers, strict=True):
        if answer is not None and answer.stop is not None and prompt.chat is not None:
            yield prompt, answer
