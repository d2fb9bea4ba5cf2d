"""llama.cpp in this process: a GGUF file, asked by ids.

Prompts are sent as ids of our tokenizer and never as text, so that what is measured is the model and not a second
tokenizer. Then the ids must mean the same in the file: its vocabulary is compared with the tokenizer's before anything
is asked (`compare_vocabularies`).

The trade-off: one prompt after the other, each in an empty cache. That is slow, and its answers do not depend on what
else was asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding, Ids, Progress, ScoredIds
from truetune.generation.backends.choose_next_token import (
    Floats,
    choose_token,
    log_softmax,
    reference_ids_before_stop,
    stop_probability_and_best_rank,
)
from truetune.generation.backends.llama_cpp_engine import LlamaCppEngine, import_llama_cpp
from truetune.generation.backends.model_source import ModelSource, serving_stops
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

# Chosen, not measured: converters rename unused and byte tokens; in another model's vocabulary nearly all differ.
# Control tokens may not differ at all.
MAX_OTHER_SPELLINGS_SHARE = 0.01
"""Share of the vocabulary that a converter may have spelled otherwise"""


def open_backend(source: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Open a GGUF file with llama.cpp in this process. Raises UsageError where the package is
    missing, llama.cpp does not load the file, or its vocabulary is another than the tokenizer's.
    """
    if source.kind != "gguf" or source.folder is None:
        raise UsageError(
            f"{source.name}: llama.cpp asks a .gguf file; `truetune export` writes one of a model"
        )
    engine = LlamaCppEngine(source.folder, gpu=_gpu_number(options.device))
    # Closed by hand where it can't be used: nobody else holds it yet, and it keeps the whole file in memory.
    try:
        notes = compare_vocabularies(engine.token_texts, tokenizer, source.name)
    except UsageError:
        engine.close()
        raise
    backend = LlamaCppBackend(source.name, engine, tokenizer)
    backend.notes += notes
    if options.dtype:
        backend.notes.append(
            f"--dtype {options.dtype} is not used: a GGUF file has its own formats"
        )
    return backend


def compare_vocabularies(words: Sequence[str], tokenizer: Tokenizer, name: str) -> list[str]:
    """Compare the file's tokens with the tokenizer's, id by id.

    Args:
        words: the tokens of the file, by id.
        tokenizer: that of the prompts.
        name: the file, for the message.

    Returns:
        A note where some ordinary tokens are spelled otherwise; nothing where none is.

    Raises:
        UsageError: where control tokens or too many others are not the same: it is another model's file.
    """
    # More tokens in the file are no fault: converters fill the vocabulary up to the rows of the embedding.
    advice = (
        f"it is of another model than the tokenizer in {tokenizer.folder}; name its own with"
        " --tokenizer"
    )
    if len(words) < tokenizer.vocabulary:
        raise UsageError(
            f"{name} has {len(words):,} tokens and the tokenizer {tokenizer.vocabulary:,}: {advice}"
        )
    tokens = ((id, tokenizer.backend.id_to_token(id)) for id in range(tokenizer.vocabulary))
    different = [(id, text) for id, text in tokens if text is not None and words[id] != text]
    different_control = [pair for pair in different if pair[0] in tokenizer.control]
    if not different:
        return []
    id, text = (different_control or different)[0]
    note = (
        f"{len(different):,} of {tokenizer.vocabulary:,} tokens of {name} are spelled otherwise than"
        f" the tokenizer's, first {id:,}: {words[id]!r}, not {text!r}"
    )
    if different_control or len(different) > MAX_OTHER_SPELLINGS_SHARE * tokenizer.vocabulary:
        raise UsageError(f"{note}: {advice}")
    return [note]


def _gpu_number(device: str | None) -> int | None:
    """The number of a GPU; None for the CPU."""
    kind, _, number = (device or "").partition(":")
    if kind == "cpu":
        return None
    if import_llama_cpp().llama_supports_gpu_offload():
        return int(number) if number.isdigit() else 0
    if kind:
        # A build for the CPU would take the name of a GPU without a word.
        raise UsageError(f"--device {device}: this llama-cpp-python was built for the CPU alone")
    return None


class LlamaCppBackend(Backend):
    """Prompts one by one, each in an empty cache.

    Attributes:
        engine: the open file.
        folder_stops: ids at which the tokenizer's folder says that serving ends an answer.
    """

    kind = "llama.cpp"
    takes_min_p = True

    def __init__(self, name: str, engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
        super().__init__(name)
        self.engine, self.tokenizer = engine, tokenizer
        self.decode = make_decoder(tokenizer)
        self.folder_stops = serving_stops(tokenizer)
        unknown = sorted(self.folder_stops - engine.end_token_ids)
        if unknown:
            self.notes.append(
                f"llama.cpp continues after {self._format_tokens_with_ids(unknown)}: the file does not say that it"
                " ends an answer, the tokenizer's folder does"
            )

    def _known_stops(self, stops: frozenset[int]) -> frozenset[int]:
        """Those of the stop ids that are tokens of the file."""
        return frozenset(id for id in stops if 0 <= id < self.engine.count)

    def _format_tokens_with_ids(self, ids: Sequence[int]) -> str:
        """Tokens with their ids for a message: `<|im_end|> (2), ...`."""
        return ", ".join(
            f"{self.tokenizer.backend.id_to_token(id) or 'a token without text'} ({id:,})"
            for id in ids
        )

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Answer prompts one by one. Where `decoding.stops` are those of the folder, answers end
        where llama.cpp ends them: at the file's own.
        """
        # The ends of the file are what its users get. Other stops are asked for on purpose.
        is_served_as_usual = decoding.stops == self.folder_stops
        stops = (
            self.engine.end_token_ids if is_served_as_usual else self._known_stops(decoding.stops)
        )
        answers: list[Answer | None] = []
        for i, prompt in enumerate(prompts):
            room = self.engine.positions - len(prompt.ids)
            can_answer = bool(prompt.ids) and room > 0
            answers.append(self._answer(prompt, decoding, stops, room, i) if can_answer else None)
            if progress:
                progress(i + 1, len(prompts))
        missing = answers.count(None)
        if missing:
            self.notes.append(
                f"{missing} of {len(prompts)} prompts are empty, or leave no room in the "
                f"{self.engine.positions:,} positions of {self.name}"
            )
        ends = {answer.stop for answer in answers if answer and answer.stop is not None}
        further = sorted(ends - decoding.stops)
        if further:
            self.notes.append(
                f"llama.cpp ended answers at {self._format_tokens_with_ids(further)}, which the tokenizer's folder"
                " does not name"
            )
        return answers

    def _answer(
        self, prompt: Prompt, decoding: Decoding, stops: frozenset[int], room: int, number: int
    ) -> Answer:
        """The answer to one prompt, and how likely a stop is behind its reference.

        Args:
            prompt: with ids.
            decoding: how it is answered.
            stops: ids that end the answer.
            room: positions behind the prompt.
            number: of the prompt, so that each draws its own numbers, whatever else is asked.
        """
        random = np.random.default_rng((decoding.seed, number))
        # Positions are a hard limit: behind them llama.cpp shifts its cache, or fails.
        limit = min(decoding.max_new_tokens, room)
        reference = reference_ids_before_stop(prompt, stops)[: room - 1]
        self.engine.start(len(prompt.ids) + max(limit, len(reference) + 1))
        logits = first = self.engine.read(prompt.ids)
        ids: list[int] = []
        logprobs: list[float] = []
        stop = None
        while len(ids) < limit:
            token = choose_token(logits, decoding, random)
            logprobs.append(float(log_softmax(logits)[token]))
            if token in stops:
                stop = token
                break
            ids.append(token)
            if len(ids) < limit:
                logits = self.engine.read([token])
        logprob = float(np.mean(logprobs)) if logprobs else None
        answer = Answer(tuple(ids), self.decode(ids), stop, logprob=logprob)
        if not prompt.reference_ids or not stops:
            return answer
        behind_reference = self._logits_behind_reference(prompt.ids, reference, first)
        probability, rank = stop_probability_and_best_rank(behind_reference, stops)
        return Answer(answer.ids, answer.text, stop, probability, rank, logprob)

    def _logits_behind_reference(self, prompt: Ids, reference: Ids, first: Floats) -> Floats:
        """(vocabulary,) logits behind the reference; `first` are those behind the prompt."""
        if not reference:
            return first
        # The cache still holds the prompt, so only the reference is read. Models with a recurrent state can't go back,
        # and read both.
        if self.engine.forget_after(len(prompt)):
            return self.engine.read(reference)
        self.engine.start(self.engine.size)
        return self.engine.read([*prompt, *reference])

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Score given ids, teacher-forced. Raises UsageError for a sequence longer than the model's
        positions.
        """
        scored = []
        for i, ids in enumerate(sequences):
            scored.append(self._score_sequence(ids, sorted(self._known_stops(stops))))
            if progress:
                progress(i + 1, len(sequences))
        return scored

    def _score_sequence(self, ids: Ids, stops: list[int]) -> ScoredIds:
        """Score one sequence, which is read once; the logits of some tokens at a time, which over a
        vocabulary are large.
        """
        own, stop = np.full(len(ids), np.nan, np.float32), np.full(len(ids), np.nan, np.float32)
        if len(ids) > 1:
            self._empty_cache_for(len(ids))
            # The logits behind token i are of token i + 1.
            start = 1
            for logits in self.engine.logits_behind_each_token(ids[:-1]):
                logprobs, places = log_softmax(logits), slice(start, start + len(logits))
                own[places] = logprobs[np.arange(len(logits)), list(ids[places])]
                stop[places] = np.exp(logprobs[:, stops]).sum(-1)
                start += len(logits)
        return ScoredIds(own, stop if stops else None)

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        """The `count` likeliest next tokens behind each prefix: id -> log-probability in nats."""
        likeliest = []
        for ids in prefixes:
            self._empty_cache_for(len(ids))
            logprobs = log_softmax(self.engine.read(ids))
            best = np.argsort(-logprobs, kind="stable")[:count]
            likeliest.append({int(id): float(logprobs[id]) for id in best})
        return likeliest

    def _empty_cache_for(self, length: int) -> None:
        """Empty the cache for so many tokens. Raises UsageError where the model has not the room."""
        if length > self.engine.positions:
            raise UsageError(
                f"{self.name}: {length:,} tokens, and its model has {self.engine.positions:,}"
                " positions"
            )
        self.engine.start(length)

    def close(self) -> None:
        """Free the open file with its context."""
        self.engine.close()
