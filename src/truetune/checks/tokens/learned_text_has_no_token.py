"""The tokenizer has no token for characters of the answers.

## What it does
Counts the examples whose learned text contains the tokenizer's unknown token, and those with a letter, number or sign
for which the tokenizer gives no token at all. An unknown token that is written in the text itself (`<unk>` of a corpus)
does not count. It is a warning from 5 % of the examples, and an info below.

## Why it is bad
The model learns to write the unknown token, or nothing, for these characters. Decoded answers lack them: JSON without
braces, code without line breaks, names without letters. The loss falls as usual. Vocabularies without byte fallback
(T5, BERT, Marian, or one's own) are made from natural text, and often lack braces, backslashes, emoji or a script.

## Example
```yaml
files:
  tokenizer.json:
    pre_tokenizer: {type: Whitespace}
    model:
      type: WordLevel
      unk_token: "<unk>"
      vocab:
        {"<|endoftext|>": 0, "<|pad|>": 1, "<|im_start|>": 2, "<|im_end|>": 3, "<unk>": 4, what: 5, total: 6, "7": 7}
  tokenizer_config.json: {unk_token: "<unk>"}
data:
  - {messages: [{role: user, content: what total}, {role: assistant, content: "{ total 7 }"}]}
```

## Use instead
```yaml
files:
  tokenizer.json:
    pre_tokenizer: {type: Whitespace}
    model:
      type: WordLevel
      unk_token: "<unk>"
      vocab:
        {"<|endoftext|>": 0, "<|pad|>": 1, "<|im_start|>": 2, "<|im_end|>": 3, "<unk>": 4, what: 5, total: 6, "7": 7,
        "{": 8, "}": 9}
  tokenizer_config.json: {unk_token: "<unk>"}
data:
  - {messages: [{role: user, content: what total}, {role: assistant, content: "{ total 7 }"}]}
```

## Fix safety
New tokens need `model.resize_token_embeddings(len(tokenizer))`, and their embeddings have to be trained and saved.
Writing the answers without these characters, or taking a model with byte fallback, is safe.

## References
- google-research/text-to-text-transfer-transformer#390, huggingface/transformers#6150
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator

import numpy as np

from truetune.checks.base_of_rules_on_answer_texts import learned_answers_of_row
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_answer, case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EXAMPLE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.tokenizer import Tokenizer

# A rare sign is unknown to any small vocabulary. Chosen, like the shares of other rules on answers: a text in twenty is
# no rare sign.
WARNING_SHARE = 0.05
STRANGERS = ("\U00012345", "\U00014567")
"""Letters of scripts that no vocabulary has (cuneiform, Anatolian). BERT drops characters of private use"""
BLANKS = " \u2581"
"""A space, also as SentencePiece writes it"""
VISIBLE = ("L", "N", "P", "S")
"""Unicode's letters, numbers, punctuation and symbols; normalizers rightly drop others (marks, controls)"""
SHOWN_TEXTS, SHOWN_CHARACTERS = 5, 12
LINE_BREAKS = ("a\nb", "a b")
"""A tokenizer that gives both the same ids makes spaces of line breaks"""
NO_UNKNOWN = Unmet("it is about tokenizers that can't spell every text, and this one can")


class LearnedTextHasNoToken(DataRule):
    code = "LEN010"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    symptoms = ("garbage-output",)
    severity = "warning"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.unknown = None if setup.are_tokens_single_bytes else find_unknown_id(setup.tokenizer)
        self.drops_strangers = not (
            setup.are_tokens_single_bytes or ids_besides_blanks(setup.tokenizer, STRANGERS[0])
        )
        self.examples = self.faulty = 0
        self.texts: Counter[str] = Counter()
        """Examples by the text that has no token"""
        self.dropped: dict[str, bool] = {}
        """Is a character dropped? By character, each of which is encoded once"""
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the examples of a batch, and those that learn text without a token."""
        self.examples += len(batch.examples)
        if self.unknown is not None:
            self._count_unknown_tokens(batch, self.unknown)
        elif self.drops_strangers:
            self._count_dropped_characters(batch)

    def _count_unknown_tokens(self, batch: Batch, unknown: int) -> None:
        """Count the examples in which the unknown token is learned."""
        places = np.flatnonzero((batch.ids == unknown) & batch.supervised)
        owners = np.searchsorted(batch.offsets, places, side="right") - 1
        written = self.tokenizer.backend.id_to_token(unknown) or ""
        first: dict[int, int] = {}
        texts: set[tuple[int, str]] = set()
        for place, owner in zip(places.tolist(), owners.tolist(), strict=True):
            text = _text_of_token(batch, place, owner)
            if not text or text.startswith(written):
                continue
            first.setdefault(owner, place)
            texts.add((owner, text))
        self.faulty += len(first)
        self.texts.update(text for _, text in sorted(texts))
        for owner, place in list(first.items())[: MAX_CASES - len(self.cases)]:
            shown = _text_of_token(batch, place, owner)
            self.cases.append(case_at_token(batch, place, f"{shown!r} becomes {written}"))

    def _count_dropped_characters(self, batch: Batch) -> None:
        """Count the examples whose answers hold a character for which no token is given."""
        for i, example in enumerate(batch.examples):
            characters = {
                char for answer in learned_answers_of_row(example.row) for char in answer.text
            }
            lost = sorted(filter(self._is_dropped, characters))
            if not lost:
                continue
            self.faulty += 1
            self.texts.update(lost)
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_at_answer(batch, i, f"{lost[0]!r} gets no token"))

    def _is_dropped(self, char: str) -> bool:
        """Does the tokenizer give no token for a visible character?"""
        if char not in self.dropped:
            is_visible = unicodedata.category(char)[0] in VISIBLE
            self.dropped[char] = is_visible and not ids_besides_blanks(self.tokenizer, char)
        return self.dropped[char]

    def unmet(self) -> Unmet | None:
        """Unmet where the tokenizer can spell every text, or there is no example."""
        if self.setup.are_tokens_single_bytes:
            return Unmet("it is about the tokenizer, and it is not available")
        if self.unknown is None and not self.drops_strangers:
            return NO_UNKNOWN
        return None if self.examples else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """The number of examples that learn text without a token."""
        return make_count_measurement(
            "examples that learn text without a token", self.faulty, self.examples
        )

    def findings(self) -> Iterator[Finding]:
        if not self.faulty:
            return
        texts = ", ".join(
            f"{text[:SHOWN_CHARACTERS]!r} ({count:,})"
            for text, count in self.texts.most_common(SHOWN_TEXTS)
        )
        what = (
            "no token"
            if self.unknown is None
            else f"no token but {self.tokenizer.backend.id_to_token(self.unknown)}"
        )
        lines = [encode_text(self.tokenizer, text) for text in LINE_BREAKS]
        evidence = ["line breaks become spaces as well"] if lines[0] == lines[1] else []
        share = self.faulty / self.examples
        yield self.finding(
            f"in {self.faulty:,} of {self.examples:,} examples the tokenizer has {what} for text that is learned:"
            f" {texts}",
            "take a model whose tokenizer has byte fallback, or add the characters with tokenizer.add_tokens([...])"
            " and train their embeddings; or write the answers without them",
            severity="warning" if share >= WARNING_SHARE else "info",
            evidence=evidence,
            cases=self.cases,
            count=self.faulty,
            total=self.examples,
        )


def encode_text(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text, without BOS and EOS."""
    return list(tokenizer.backend.encode(text, add_special_tokens=False).ids)


def ids_besides_blanks(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text without those of blanks, which SentencePiece puts in front of words."""
    decode = tokenizer.backend.decode
    return [
        id
        for id in encode_text(tokenizer, text)
        if decode([id], skip_special_tokens=False).strip(BLANKS)
    ]


def find_unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id that a tokenizer gives for what it has no token for; None where it has none.

    Files may leave it unnamed (`unk_token` of tokenizer_config.json), or name one that is never given. So it is the one
    id that stands for either of two characters of no vocabulary; as bytes they would be several.
    """
    one, other = (ids_besides_blanks(tokenizer, char) for char in STRANGERS)
    return one[0] if one == other and len(one) == 1 else None


def _text_of_token(batch: Batch, place: int, owner: int) -> str:
    """The text of a token of an example, up to the next one."""
    text = batch.examples[owner].rendering.text
    is_last = place + 1 >= batch.offsets[owner + 1]
    end = len(text) if is_last else int(batch.starts[place + 1])
    return text[int(batch.starts[place]) : end].strip()
