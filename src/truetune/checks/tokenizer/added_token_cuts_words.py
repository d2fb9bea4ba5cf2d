"""An added token that is a word is also matched inside longer words, and splits them.

## What it does
Looks at added tokens that are words of letters and are matched anywhere (`single_word` is false). It counts how often
they are inside a longer word in the rows: after a letter, or before four letters or more. It fires if that happens at
least five times, in three different words, and in half of the token's occurrences.

## Why it is bad
Added tokens are cut out of the text before the tokenizer sees it. A token `cat` splits `concatenate` into three pieces,
which the base model never saw, and the new embedding learns from all words that contain its letters.

## Example
```yaml
files:
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 1, content: "<|pad|>"}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "cat", special: false}
data:
  - messages:
      - {role: user, content: "Does the catalogue have a cat, and which categories?"}
      - {role: assistant, content: "It concatenates the categories: located, educated, and indicated ones."}
```

## Use instead
```yaml
files:
  tokenizer.json:
    added_tokens:
      - &token {id: 0, content: "<|endoftext|>", special: true, single_word: false, lstrip: false,
                rstrip: false, normalized: false}
      - {<<: *token, id: 1, content: "<|pad|>"}
      - {<<: *token, id: 2, content: "<|im_start|>"}
      - {<<: *token, id: 3, content: "<|im_end|>"}
      - {<<: *token, id: 2000, content: "cat", special: false, single_word: true}
data:
  - messages:
      - {role: user, content: "Does the catalogue have a cat, and which categories?"}
      - {role: assistant, content: "It concatenates the categories: located, educated, and indicated ones."}
```

## Fix safety
Changing the token changes all ids of rows that contain it: tokenize them again, and train again.

## References
- huggingface/transformers#1178, huggingface/tokenizers#917
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

# `token` in `tokens` and `adding` is a stem; a piece of four letters is a word or the rest of one.
MIN_LETTERS_BEHIND = 4
# Chosen, not measured: a name that stands in one compound word is no fault, nor is a typing error.
MIN_CUTS = 5
MIN_WORDS = 3
MIN_SHARE = 0.5
"""Of the places of a token"""
SHOWN_WORDS = 4


class AddedTokenCutsWords(DataRule):
    code = "TOK017"
    fault = Fault.TOKENIZER_DISTORTS_TEXTS
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        added = setup.tokenizer.backend.get_added_tokens_decoder()
        self.words = {
            number: token.content
            for number, token in added.items()
            if not token.special and _is_word(token.content)
        }
        self.places: Counter[int] = Counter()
        self.cuts: Counter[int] = Counter()
        self.cut_words: dict[int, Counter[str]] = defaultdict(Counter)
        self.cases: dict[int, list[Case]] = defaultdict(list)

    def add_batch(self, batch: Batch) -> None:
        """Count the places of the added words, and those inside of longer words."""
        if not self.words:
            return
        for place in np.flatnonzero(np.isin(batch.ids, list(self.words))).tolist():
            number = int(batch.ids[place])
            example = int(np.searchsorted(batch.offsets, place, side="right")) - 1
            text = batch.examples[example].rendering.text
            self.places[number] += 1
            cut_word = _word_cut_by_token(text, int(batch.starts[place]), self.words[number])
            if cut_word is None:
                continue
            self.cuts[number] += 1
            self.cut_words[number][cut_word] += 1
            if len(self.cases[number]) < MAX_CASES:
                self.cases[number].append(case_at_token(batch, place, repr(cut_word)))

    def unmet(self) -> Unmet | None:
        """Unmet where no added token is a word."""
        if self.words:
            return None
        return Unmet("it is about added tokens that are words, and this tokenizer has none")

    def measurement_if_clean(self) -> Measurement:
        """How many of the places of added words are inside of longer words."""
        return make_count_measurement(
            "added words inside longer words", self.cuts.total(), self.places.total()
        )

    def findings(self) -> Iterator[Finding]:
        for number, cuts in self.cuts.most_common():
            words = self.cut_words[number]
            places = self.places[number]
            if cuts < MIN_CUTS or len(words) < MIN_WORDS or cuts < MIN_SHARE * places:
                continue
            shown = ", ".join(word for word, _ in words.most_common(SHOWN_WORDS))
            token = self.words[number]
            yield self.finding(
                f"the added token {token!r} is inside longer words in {cuts:,} of {places:,} occurrences, and splits"
                f" them: {shown}",
                f"add it as AddedToken({token!r}, single_word=True), or in a form that no word contains (<{token}>),"
                " and tokenize the rows again",
                cases=self.cases[number],
                count=cuts,
                total=places,
            )


def _is_word(text: str) -> bool:
    """Is a text letters alone, of a script that writes words apart?"""
    # Scripts without capitals (Chinese, Thai) write without spaces: there each token stands beside a letter.
    return len(text) > 1 and all(char.lower() != char.upper() for char in text)


def _word_cut_by_token(text: str, begin: int, token: str) -> str | None:
    """The word that a token at a place of a text cuts; None where it is a word, or the stem of one."""
    begin = text.find(token, begin)
    if begin < 0:
        return None
    end = begin + len(token)
    first, last = begin, end
    while first and text[first - 1].isalpha():
        first -= 1
    while last < len(text) and text[last].isalpha():
        last += 1
    is_cut = first < begin or last - end >= MIN_LETTERS_BEHIND
    return text[first:last] if is_cut else None
