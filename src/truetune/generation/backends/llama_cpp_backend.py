"""llama.cpp in this process: a GGUF file, asked by ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truetune.errors import UsageError
from truetune.generation.answer_samples import Answer, Prompt
from truetune.generation.backends.backend import Backend, Decoding, Ids, Progress, ScoredIds
from truetune.generation.backends.llama_cpp_engine import LlamaCppEngine, import_llama_cpp
from truetune.generation.backends.model_source import ModelSource, serving_stops
from truetune.generation.backends.next_token import (
    Floats,
    choose_token,
    log_softmax,
    reference_before_stop,
    stop_probability,
)
from truetune.generation.backends.open_backend import Options
from truetune.generation.build_prompts import make_decoder
from truetune.render.tokenizer import Tokenizer

MAX_OTHER_SPELLINGS = 0.01
"""Share of the vocabulary that a converter may have spelled otherwise"""


def open_backend(place: ModelSource, options: Options, tokenizer: Tokenizer) -> Backend:
    """Raises UsageError where the package is missing, llama.cpp does not load the file, or its vocabulary is another
    than the tokenizer's."""
    if place.kind != "gguf" or place.folder is None:
        raise UsageError(
            f"{place.name}: llama.cpp asks a .gguf file; `truetune export` writes one of a model"
        )
    engine = LlamaCppEngine(place.folder, gpu=_gpu_number(options.device))
    try:
        notes = compare_vocabularies(engine.words, tokenizer, place.name)
    except UsageError:
        engine.close()
        raise
    backend = LlamaCppBackend(place.name, engine, tokenizer)
    backend.notes += notes
    if options.dtype:
        backend.notes.append(
            f"--dtype {options.dtype} is not used: a GGUF file has its own formats"
        )
    return backend


def compare_vocabularies(words: Sequence[str], tokenizer: Tokenizer, name: str) -> list[str]:
    """Compare the file's tokens with the tokenizer's, id by id. Raises UsageError where they are not the same."""
    wanted = (
        f"it is of another model than the tokenizer in {tokenizer.folder}; name its own with"
        " --tokenizer"
    )
    if len(words) < tokenizer.vocabulary:
        raise UsageError(
            f"{name} has {len(words):,} tokens and the tokenizer {tokenizer.vocabulary:,}: {wanted}"
        )
    spelled = ((id, tokenizer.backend.id_to_token(id)) for id in range(tokenizer.vocabulary))
    other = [(id, text) for id, text in spelled if text is not None and words[id] != text]
    grave = [pair for pair in other if pair[0] in tokenizer.control]
    if not other:
        return []
    id, text = (grave or other)[0]
    said = (
        f"{len(other):,} of {tokenizer.vocabulary:,} tokens of {name} are spelled otherwise than"
        f" the tokenizer's, first {id:,}: {words[id]!r}, not {text!r}"
    )
    if grave or len(other) > MAX_OTHER_SPELLINGS * tokenizer.vocabulary:
        raise UsageError(f"{said}: {wanted}")
    return [said]


def _gpu_number(device: str | None) -> int | None:
    """The number of a GPU; None for the CPU."""
    kind, _, number = (device or "").partition(":")
    if kind == "cpu":
        return None
    if import_llama_cpp().llama_supports_gpu_offload():
        return int(number) if number.isdigit() else 0
    if kind:
        raise UsageError(f"--device {device}: this llama-cpp-python was built for the CPU alone")
    return None


class LlamaCppBackend(Backend):
    """Prompts one by one, each in an empty cache."""

    kind = "llama.cpp"

    def __init__(self, name: str, engine: LlamaCppEngine, tokenizer: Tokenizer) -> None:
        super().__init__(name)
        self.engine, self.tokenizer = engine, tokenizer
        self.decode = make_decoder(tokenizer)
        self.folder = serving_stops(tokenizer)
        if unknown := sorted(self.folder - engine.ends):
            self.notes.append(
                f"llama.cpp goes on behind {self._named(unknown)}: the file does not say that it"
                " ends an answer, the tokenizer's folder does"
            )

    def _known(self, stops: frozenset[int]) -> frozenset[int]:
        return frozenset(id for id in stops if 0 <= id < self.engine.count)

    def _named(self, ids: Sequence[int]) -> str:
        return ", ".join(
            f"{self.tokenizer.backend.id_to_token(id) or 'a token without text'} ({id:,})"
            for id in ids
        )

    def answers(
        self, prompts: Sequence[Prompt], decoding: Decoding, progress: Progress | None = None
    ) -> list[Answer | None]:
        """Where `decoding.stops` are those of the folder, answers end where llama.cpp ends them: at the file's own."""
        ends = self.engine.ends if decoding.stops == self.folder else self._known(decoding.stops)
        found: list[Answer | None] = []
        for i, prompt in enumerate(prompts):
            room = self.engine.positions - len(prompt.ids)
            found.append(
                self._answer(prompt, decoding, ends, room, i) if prompt.ids and room > 0 else None
            )
            if progress:
                progress(i + 1, len(prompts))
        if missing := found.count(None):
            self.notes.append(
                f"{missing} of {len(prompts)} prompts are empty, or leave no room in the "
                f"{self.engine.positions:,} positions of {self.name}"
            )
        if further := sorted(
            {said.stop for said in found if said and said.stop is not None} - decoding.stops
        ):
            self.notes.append(
                f"llama.cpp ended answers at {self._named(further)}, which the tokenizer's folder"
                " does not name"
            )
        return found

    def _answer(
        self, prompt: Prompt, decoding: Decoding, ends: frozenset[int], room: int, number: int
    ) -> Answer:
        random = np.random.default_rng((decoding.seed, number))
        limit, reference = (
            min(decoding.max_new_tokens, room),
            reference_before_stop(prompt, ends)[: room - 1],
        )
        self.engine.start(len(prompt.ids) + max(limit, len(reference) + 1))
        logits = first = self.engine.read(prompt.ids)
        ids: list[int] = []
        worth: list[float] = []
        stop = None
        while len(ids) < limit:
            token = choose_token(logits, decoding, random)
            worth.append(float(log_softmax(logits)[token]))
            if token in ends:
                stop = token
                break
            ids.append(token)
            if len(ids) < limit:
                logits = self.engine.read([token])
        logprob = float(np.mean(worth)) if worth else None
        answer = Answer(tuple(ids), self.decode(ids), stop, logprob=logprob)
        if not prompt.reference_ids or not ends:
            return answer
        probability, rank = stop_probability(self._behind(prompt.ids, reference, first), ends)
        return Answer(answer.ids, answer.text, stop, probability, rank, logprob)

    def _behind(self, prompt: Ids, reference: Ids, first: Floats) -> Floats:
        if not reference:
            return first
        if self.engine.back(len(prompt)):
            return self.engine.read(reference)
        self.engine.start(self.engine.size)
        return self.engine.read([*prompt, *reference])

    def score(
        self,
        sequences: Sequence[Ids],
        stops: frozenset[int] = frozenset(),
        progress: Progress | None = None,
    ) -> list[ScoredIds] | None:
        """Raises UsageError for a sequence longer than the model's positions."""
        found = []
        for i, ids in enumerate(sequences):
            found.append(self._scored(ids, sorted(self._known(stops))))
            if progress:
                progress(i + 1, len(sequences))
        return found

    def _scored(self, ids: Ids, stops: list[int]) -> ScoredIds:
        own, stop = np.full(len(ids), np.nan, np.float32), np.full(len(ids), np.nan, np.float32)
        if len(ids) > 1:
            self._start(len(ids))
            at = 1
            for logits in self.engine.read_each(ids[:-1]):
                logprobs, places = log_softmax(logits), slice(at, at + len(logits))
                own[places] = logprobs[np.arange(len(logits)), list(ids[places])]
                stop[places] = np.exp(logprobs[:, stops]).sum(-1)
                at += len(logits)
        return ScoredIds(own, stop if stops else None)

    def likeliest(self, prefixes: Sequence[Ids], count: int) -> list[dict[int, float]] | None:
        found = []
        for ids in prefixes:
            self._start(len(ids))
            logprobs = log_softmax(self.engine.read(ids))
            best = np.argsort(-logprobs, kind="stable")[:count]
            found.append({int(id): float(logprobs[id]) for id in best})
        return found

    def _start(self, length: int) -> None:
        if length > self.engine.positions:
            raise UsageError(
                f"{self.name}: {length:,} tokens, and its model has {self.engine.positions:,}"
                " positions"
            )
        self.engine.start(length)

    def close(self) -> None:
        self.engine.close()
