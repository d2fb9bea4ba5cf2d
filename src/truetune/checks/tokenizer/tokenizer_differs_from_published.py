"""The tokenizer is not the one that this model was published with, or splits texts otherwise than it.

## What it does
Recognises the vocabulary in tokenizer.json among those of published models, by a sample of its tokens. It is an error
if config.json has the shape of a published model with another vocabulary. It is a warning if the tokenizer splits ten
short texts otherwise than the published one (pre-tokenizer, normalizer, merges), gives a control token another id, or
puts another token before each text.

## Why it is bad
Each id is valid and stands for another piece of text than the model was trained with. Two vocabularies of 32,000 tokens
differ in nearly all of them. With another pattern for numbers, words or spaces, the model gets pieces that it rarely
saw. A control token with a new id has a row that was never trained. Nothing fails: the loss begins higher, and fewer
answers are right.

## Example
```yaml
files:
  tokenizer.json:
    normalizer: {type: Lowercase}
```

## Use instead
```yaml
files:
  tokenizer.json:
    version: "1.0"
```

## Fix safety
Taking tokenizer.json and tokenizer_config.json from the published model is safe if no token was added. A model that was
trained with the other tokenizer keeps it, or is trained again.

## References
- huggingface/transformers#42591, unslothai/unsloth#4996, ggml-org/llama.cpp#23252, ggml-org/llama.cpp#7088
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule
from truetune.checks.tokenizer.evidence.published_vocabularies import (
    PROBES,
    PublishedVocabulary,
    probes_split_otherwise,
    recognise_vocabulary,
    vocabularies_of_model,
)

FILE = "tokenizer.json"
SHOWN_TOKENS = 12
REMEDY = (
    "take tokenizer.json and tokenizer_config.json from the published model, and add your own tokens with add_tokens;"
    " keep this file only with a model that was trained with it"
)


class TokenizerDiffersFromPublished(DataRule):
    code = "TOK025"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    judges_saved_file = True
    judges_without_rows = True

    def unmet(self) -> Unmet | None:
        """Unmet where the vocabulary is none of those that are known."""
        if self.setup.are_tokens_single_bytes or self._vocabulary is None:
            return Unmet("its vocabulary is none of the published ones that are known")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of texts that are split otherwise than by the published tokenizer."""
        return make_count_measurement(
            "texts that are split otherwise than by the published tokenizer",
            len(self._texts_split_otherwise),
            len(PROBES),
        )

    def findings(self) -> Iterator[Finding]:
        vocabulary = self._vocabulary
        if self.setup.are_tokens_single_bytes or vocabulary is None:
            return
        expected = vocabularies_of_model(self.tokenizer.model_config)
        if expected and vocabulary.name not in expected:
            yield self._finding_on_other_vocabulary(vocabulary, sorted(expected))
            return
        moved = self._control_tokens_with_other_id(vocabulary)
        if moved:
            yield self.finding(
                f"{len(moved):,} control tokens have another id than in the published tokenizer of {vocabulary.name}:"
                f" {moved[0]}",
                REMEDY,
                cases=[Case(text, file=FILE) for text in moved],
                count=len(moved),
            )
        start = self._unpublished_start(vocabulary)
        if start:
            yield self.finding(
                f"{FILE} puts {start} before each text, and the published tokenizer of {vocabulary.name} puts"
                f" {vocabulary.start or 'nothing'} there",
                REMEDY,
                cases=[Case(f"post_processor writes {start}", file=FILE)],
            )
        split = self._texts_split_otherwise
        if split:
            what, tokens = next(iter(split.items()))
            yield self.finding(
                f"{FILE} has the vocabulary of {vocabulary.name}, but splits {', '.join(split)} otherwise than the"
                f" published tokenizer: {PROBES[what]!r} becomes {_shorten(tokens)}",
                REMEDY,
                cases=[
                    Case(f"{PROBES[what]!r} becomes {_shorten(tokens)}", file=FILE)
                    for what, tokens in split.items()
                ],
                count=len(split),
                total=len(PROBES),
            )

    def _finding_on_other_vocabulary(
        self, vocabulary: PublishedVocabulary, expected: list[str]
    ) -> Finding:
        """The finding on a model whose published vocabulary is another one."""
        config = self.tokenizer.model_config
        return self.finding(
            f"{FILE} is that of {vocabulary.name}, but config.json describes a model whose vocabulary is that of"
            f" {' or '.join(expected)}: each id stands for another piece of text than the model was trained with",
            REMEDY,
            severity="error",
            evidence=[
                f"config.json: model_type {config.get('model_type')}, hidden_size {config.get('hidden_size')},"
                f" {config.get('num_hidden_layers')} layers, vocab_size {config.get('vocab_size')}"
            ],
            cases=[Case("", file=FILE)],
        )

    @cached_property
    def _vocabulary(self) -> PublishedVocabulary | None:
        """The published vocabulary of tokenizer.json; None where it is another, or can't be asked (in a browser)."""
        backend = self.tokenizer.backend
        return recognise_vocabulary(backend) if hasattr(backend, "id_to_token") else None

    def _control_tokens_with_other_id(self, vocabulary: PublishedVocabulary) -> list[str]:
        """Control tokens of the published tokenizer that have another id here."""
        ids = {text: self.tokenizer.backend.token_to_id(text) for text in vocabulary.special}
        return [
            f"{text} is {ids[text]:,} here but {id:,} there"
            for text, id in vocabulary.special.items()
            if ids[text] not in (None, id)
        ]

    def _unpublished_start(self, vocabulary: PublishedVocabulary) -> str:
        """The token that this file puts before each text and the published one does not; "" where there is none."""
        if not vocabulary.special:
            return ""
        backend = self.tokenizer.backend
        plain, whole = (backend.encode("a", add_special_tokens=adds).ids for adds in (False, True))
        if len(whole) <= len(plain) or whole[: len(plain)] == plain:
            return ""
        start = str(backend.id_to_token(whole[0]))
        return start if start != vocabulary.start else ""

    @cached_property
    def _texts_split_otherwise(self) -> dict[str, list[str]]:
        """What is split otherwise than by the published tokenizer -> the tokens."""
        vocabulary = self._vocabulary
        if vocabulary is None:
            return {}
        return probes_split_otherwise(self.tokenizer.backend, vocabulary)


def _shorten(tokens: list[str]) -> str:
    """The first tokens of a text, as the file writes them."""
    more = " ..." if len(tokens) > SHOWN_TOKENS else ""
    return " ".join(tokens[:SHOWN_TOKENS]) + more
