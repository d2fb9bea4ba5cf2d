"""Measures how much of what training changed a server serves.

The log-probabilities of the same tokens are told by the base (b), the tuned model (t) and the server (s). The factor is
the least squares solution of s - b = factor * (t - b), the cosine that between both sides: 1 and 1 where the server
has all of it, 0 where it serves the base. Where the server tells none, its greedy answers are held against those of
both.

The trade-off: log-probabilities of a few answers of the tuned model itself, where training shows most; a fault that
shows only far from them is missed. Base and tuned model run on this machine, one after the other.
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
from truetune.serving.load_contract_of_trained_prompts import TrainedPrompt
from truetune.serving.measure_kept_adapter_effect import measure_effect
from truetune.serving.server_client import GREEDY, ServerAnswer, ServerClient
from truetune.serving.wrong_adapter_scalings import list_wrong_scalings, make_rescaled_adapter

# Chosen, not measured: a few hundred tokens over all prompts, over which the rounding of one does not count.
ANSWER_TOKENS = 32
"""Of the tuned model's own answers, whose tokens are scored"""
# Chosen, not measured: servers compute in half precision, whose noise is of this size.
MIN_EFFECT_NATS = 0.01
"""Nats/token (root mean square) that training must have changed"""
# Chosen, not measured; the nearest known mistakes are half and double the scaling.
FULL_STRENGTH = (0.85, 1.2)
"""Factors that need no explanation: a server computes in another precision"""
# Chosen, not measured: catches an effect of the right size in another direction, which the factor can't.
MAX_DISTANCE_SHARE = 0.1
"""Share of the effect by which the server may be off the tuned model"""
# Chosen, not measured: a right guess leaves rounding alone; at double, a neighbouring scaling would do as well.
MAX_UNEXPLAINED_SHARE = 0.35
"""Share of the distance to the tuned model that a wrong scaling leaves, at most, where it explains what is served"""
TokenLogprobs = NDArray[np.float32]
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class OwnAnswers:
    """The model's own answers to the prompts, made on this machine."""

    prompts: tuple[Prompt, ...]
    answers: tuple[Answer | None, ...]


def select_strength_prompts(prompts: Sequence[TrainedPrompt], count: int) -> list[Prompt]:
    """Up to `count` different prompts, rows of the data first, those without tools before the
    others.
    """
    order = sorted(prompts, key=lambda trained: (not trained.is_from_data_row, bool(trained.tools)))
    # Of prompts with the same ids the first in this order stays: a dictionary keeps the last, so it is filled from the
    # end.
    different = {tuple(trained.ids): trained for trained in reversed(order)}
    return [
        Prompt(
            ids,
            text_of_last_message_or_prompt(trained),
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


def text_of_last_message_or_prompt(trained: TrainedPrompt) -> str:
    """The last thing that is said."""
    content = trained.messages[-1].get("content") if trained.messages else trained.text
    return content if isinstance(content, str) else ""


def measure_served_strength(
    source: ModelSource,
    server: Backend,
    client: ServerClient,
    prompts: Sequence[Prompt],
    tokenizer: Tokenizer,
    options: Options,
    stops: frozenset[int],
    say: Say = str,
) -> tuple[OwnAnswers, AdapterStrength | None, list[str]]:
    """Measure how much of the training is served: the model on this machine, its base, and the
    server are asked for the same tokens.

    Args:
        source: the tuned model or adapter.
        server: the server, as something that scores tokens.
        client: the same server, asked for answers where it scores none.
        prompts: what is asked.
        tokenizer: that of the training.
        options: for the models that are loaded here.
        stops: ids that end an answer.
        say: told what is being done.

    Returns:
        What the model says by itself; how much of it the server has, None where that can't be told; notes that say why.
    """
    say("asking the model on this machine")
    with open_backend(source, tokenizer, options) as tuned:
        answers = tuned.answers(prompts, Decoding(stops, ANSWER_TOKENS))
        own_answers = OwnAnswers(tuple(prompts), tuple(answers))
        sequences = _join_prompt_and_answer_ids(prompts, answers)
        say("asking the server for its log-probabilities")
        served_scores = server.score(sequences) if sequences else None
        tuned_scores = tuned.score(sequences) if served_scores else None
    base = _loadable_base_with_tuned_tokenizer(source)
    # Both or none: what one side can't score, the other can't be held against.
    logprobs = None
    if served_scores and tuned_scores:
        logprobs = (
            _logprobs_of_answers(prompts, answers, served_scores),
            _logprobs_of_answers(prompts, answers, tuned_scores),
        )
    if base is None:
        return own_answers, *_distance_from_tuned_or_note(source, logprobs)
    say("asking its base")
    with open_backend(base, tokenizer, options) as untuned:
        base_scores = None if logprobs is None else untuned.score(sequences)
        if logprobs is None or not base_scores:
            base_answers = untuned.answers(prompts, Decoding(stops, ANSWER_TOKENS))
            strength, notes = _strength_where_base_and_tuned_differ(
                source, own_answers, base_answers, client, tokenizer
            )
            return own_answers, strength, notes
    served, tuned_logprobs = logprobs
    base_logprobs = _logprobs_of_answers(prompts, answers, base_scores)
    is_adapter = source.kind == "adapter"
    strength = strength_from_logprobs(served, tuned_logprobs, base_logprobs, adapter=is_adapter)
    if strength is None:
        note = (
            "base and tuned model tell the same log-probabilities: there is no effect to look for"
        )
        return own_answers, None, [note]
    if is_adapter and _is_served_strength_not_full(strength):
        say("looking for the scaling that is served")
        strength = _explain_by_wrong_scaling(
            source, strength, served, sequences, (prompts, answers), tokenizer, options
        )
    return own_answers, strength, []


def _join_prompt_and_answer_ids(
    prompts: Sequence[Prompt], answers: Sequence[Answer | None]
) -> list[list[int]]:
    """Prompt and answer in one, for each prompt that has an answer."""
    pairs = zip(prompts, answers, strict=True)
    return [[*prompt.ids, *answer.ids] for prompt, answer in pairs if answer]


def _loadable_base_with_tuned_tokenizer(source: ModelSource) -> ModelSource | None:
    """The base that can be loaded; with the tuned model's tokenizer, so that both score the same ids."""
    if source.base is None or source.base == source.folder:
        return None
    try:
        base = find_model_source(str(source.base), tokenizer=str(source.tokenizer))
    except UsageError:
        return None
    return base if base.kind == "model" else None


def _logprobs_of_answers(
    prompts: Sequence[Prompt], answers: Sequence[Answer | None], scores: Sequence[ScoredIds]
) -> TokenLogprobs:
    """The log-probabilities of the answers' tokens, one after another."""
    lengths = [len(prompt.ids) for prompt, answer in zip(prompts, answers, strict=True) if answer]
    return np.concatenate(
        [scored.logprobs[length:] for scored, length in zip(scores, lengths, strict=True)]
    )


def strength_from_logprobs(
    served: TokenLogprobs, tuned: TokenLogprobs, base: TokenLogprobs, *, adapter: bool
) -> AdapterStrength | None:
    """How much of the training is served, by the log-probabilities of the same tokens, (n,) each,
    nan where one is not told; None where tuned and base are the same.
    """
    effect = measure_effect([base], [tuned], [served])
    if effect.size < MIN_EFFECT_NATS:
        return None
    return AdapterStrength(
        "logprobs",
        effect.places,
        adapter,
        factor=effect.kept,
        cosine=effect.cosine,
        effect=effect.size,
        distance=_root_mean_square(served - tuned),
    )


def _distance_from_tuned_or_note(
    source: ModelSource, logprobs: tuple[TokenLogprobs, TokenLogprobs] | None
) -> tuple[AdapterStrength | None, list[str]]:
    """The distance of the server from the tuned model, where both were scored, else a note."""
    if logprobs is not None:
        return _distance_from_tuned(source, *logprobs), []
    note = (
        f"{source.name}: its base is not known (--base): how much of the training is served"
        " was not measured"
    )
    return None, [note]


def _distance_from_tuned(
    source: ModelSource, served: TokenLogprobs, tuned: TokenLogprobs
) -> AdapterStrength:
    """How far the server is from the tuned model: all that can be said where there is no base to measure against."""
    tokens = int((np.isfinite(served) & np.isfinite(tuned)).sum())
    return AdapterStrength(
        "logprobs", tokens, source.kind == "adapter", distance=_root_mean_square(served - tuned)
    )


def _root_mean_square(values: TokenLogprobs) -> float:
    """Root mean square of the values that are told."""
    is_finite = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(is_finite**2))) if len(is_finite) else 0.0


def _is_served_strength_not_full(strength: AdapterStrength) -> bool:
    """Is it not all of it? Strong effects do not grow evenly with the scaling, and may turn."""
    assert strength.factor is not None
    assert strength.distance is not None
    assert strength.effect is not None
    return (
        not FULL_STRENGTH[0] <= strength.factor <= FULL_STRENGTH[1]
        or strength.distance > MAX_DISTANCE_SHARE * strength.effect
    )


def _explain_by_wrong_scaling(
    source: ModelSource,
    strength: AdapterStrength,
    served: TokenLogprobs,
    sequences: Sequence[Sequence[int]],
    prompts_and_answers: tuple[Sequence[Prompt], Sequence[Answer | None]],
    tokenizer: Tokenizer,
    options: Options,
) -> AdapterStrength:
    """The strength, with the wrong scaling whose log-probabilities are those that are served, where
    one of them fits. `served` are (tokens,) log-probabilities of the answers in
    `prompts_and_answers`, `sequences` their ids.

    `served` are (tokens,) log-probabilities of the answers in `prompts_and_answers`, `sequences` their ids.
    """
    best_name, least_distance = "", strength.distance or 0.0
    for name, scale in list_wrong_scalings(source, near=strength.factor or 0.0).items():
        with (
            make_rescaled_adapter(source, scale) as rescaled,
            open_backend(rescaled, tokenizer, options) as model,
        ):
            scores = model.score(sequences)
        if not scores:
            continue
        distance = _root_mean_square(served - _logprobs_of_answers(*prompts_and_answers, scores))
        if distance < least_distance:
            best_name, least_distance = name, distance
    if best_name and least_distance <= MAX_UNEXPLAINED_SHARE * (strength.distance or 0.0):
        return replace(strength, explained=best_name, explained_distance=least_distance)
    return strength


def _strength_where_base_and_tuned_differ(
    source: ModelSource,
    own_answers: OwnAnswers,
    base: Sequence[Answer | None],
    client: ServerClient,
    tokenizer: Tokenizer,
) -> tuple[AdapterStrength | None, list[str]]:
    """The strength by which answers are served at the prompts where base and tuned model differ.

    Args:
        source: the tuned model or adapter.
        own_answers: what the tuned model says.
        base: what its base says to the same prompts.
        client: the server.
        tokenizer: that of the training.
    """
    tuned_like = base_like = parted = 0
    for prompt, tuned, untuned in zip(own_answers.prompts, own_answers.answers, base, strict=True):
        if tuned is None or untuned is None or tuned.ids == untuned.ids:
            continue
        tuned_text, base_text = (
            _answer_text_as_served(tokenizer, tuned),
            _answer_text_as_served(tokenizer, untuned),
        )
        served = _ask_greedily(client, prompt)
        # Different ids may spell the same text, which tells nothing.
        if served.refusal or tuned_text == base_text:
            continue
        parted += 1
        served_text = served.text.strip()
        # Like one of both is an answer that stays with it behind the place where they part: rounding may turn a
        # greedy answer later on, so the rest need not be equal.
        common = count_common_prefix(tuned_text, base_text)
        as_tuned, as_base = (
            count_common_prefix(served_text, text) > common or served_text == text
            for text in (tuned_text, base_text)
        )
        tuned_like += as_tuned and not as_base
        base_like += as_base and not as_tuned
    if not parted:
        return None, [
            "base and tuned model give the same greedy answers, and the server gives no"
            " log-probabilities: how much of the training is served is not known"
        ]
    return (
        AdapterStrength(
            "answers", parted, source.kind == "adapter", as_tuned=tuned_like, as_base=base_like
        ),
        [],
    )


def _ask_greedily(client: ServerClient, prompt: Prompt) -> ServerAnswer:
    """The server's greedy answer to the prompt's ids, else to its messages, of which the server may
    make another prompt.
    """
    answer = client.complete_exact_ids(prompt.ids, prompt.text, ANSWER_TOKENS, **GREEDY)
    if not answer.refusal or prompt.chat is None:
        return answer
    chat = {
        "messages": prompt.chat.messages,
        "tools": prompt.chat.tools,
        "settings": prompt.chat.settings,
    }
    return client.chat(chat, ANSWER_TOKENS, **GREEDY)


def count_common_prefix(first: str, second: str) -> int:
    """How many characters two texts share at their beginning."""
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return i
    return min(len(first), len(second))


def _answer_text_as_served(tokenizer: Tokenizer, answer: Answer) -> str:
    """An answer as servers give it: without control tokens and outer white space."""
    return str(tokenizer.backend.decode(list(answer.ids), skip_special_tokens=True)).strip()


def pairs_with_stopping_answer(own_answers: OwnAnswers) -> Iterator[tuple[Prompt, Answer]]:
    """(prompt, answer) of the answers that end by themselves."""
    for prompt, answer in zip(own_answers.prompts, own_answers.answers, strict=True):
        if answer is not None and answer.stop is not None and prompt.chat is not None:
            yield prompt, answer
