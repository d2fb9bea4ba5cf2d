"""The texts in prompts, or in a column, have exactly the greatest length of all, and end in mid-sentence.

## What it does
Counts the characters and the words of the longest paragraph of each prompt and of each text column that is no answer.
It fires if at least five texts and 3 % have exactly the greatest length, three times as many as any other length, and
if most of these end with a letter and not with a mark. Texts of fewer than eight words, and texts with the same end,
don't count, and 15 % of these ends have to be inside a word, or before a word that must follow. Answers are judged by
`answer-is-incomplete`. Chunks of documents are left alone: they are cut on purpose.

## Why it is bad
Something cut these texts: a column type (`VARCHAR(255)`), a slice (`context[:512]`), a cell of a spreadsheet (32,767
characters), an export that shows a preview. What the answer is about is not in the context any more: the model learns
to make it up.

## Example
```yaml
data:
  - {instruction: "When?", input: "The harbour opened in 1862 and the people of the town built th", output: In 1862.}
  - {instruction: "Who?", input: "On Fridays the market fills the square of the town with the pe", output: Sellers.}
  - {instruction: "What?", input: "A storm took the bridge, so that the town built the second one", output: Iron.}
  - {instruction: "How?", input: "Most pupils came by boat until the town had the road along the", output: "1930"}
  - {instruction: "Where?", input: "The tower can be seen from the sea, from the hills and from th", output: The sea.}
```

## Use instead
```yaml
data:
  - {instruction: "When?", input: "The harbour opened in 1862.", output: In 1862.}
  - {instruction: "Who?", input: "On Fridays the square is full of sellers.", output: Sellers.}
  - {instruction: "What?", input: "The town built the second bridge of iron.", output: Iron.}
  - {instruction: "How?", input: "Most pupils came by boat until 1930.", output: "1930"}
  - {instruction: "Where?", input: "The tower can be seen from the sea.", output: The sea.}
```

## Fix safety
Read the texts from their source again, without the limit. To drop the cut ones is safe, and takes away the long ones.

## References
- bskinn/excel-csvexporter#36 (cells of 256 characters), getsentry/sentry#122767 (an export of previews)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer, last_user_text
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.generation.cut_ends_of_training_texts import (
    ends_before_its_next_word,
    ends_inside_a_word,
    words_and_prefixes_but_last_words,
)

# Chosen: of 1,000 texts of prose whose greatest length is some hundred, two have it by chance.
MIN_SHARE, MIN_TEXTS = 0.03, 5
MIN_OPEN_SHARE = 0.7
"""Of the texts of the greatest length, that end with a letter: titles and verses have other lengths each"""
END_CHARACTERS = 60
"""Of a text by which its end is told from others, and seen to break off"""
# As `answer-is-incomplete` takes them: of English cut at any word, a third ends behind a word that another must follow.
MIN_SURE, MIN_SURE_SHARE = 3, 0.15
MAX_KEPT, MAX_KEPT_CHARACTERS = 2_000, 1_000
MIN_WORDS, MIN_CHARACTERS = 8, 40
MAX_COLUMNS = 24
PROMPT = "the longest paragraphs of the prompts"
MIN_TIMES_OTHERS = 3
"""How many times as many texts have the greatest length as any other one: filled-in templates have piles everywhere"""
ENDS_IN_LETTER = re.compile(r"[^\W\d_][ ,]?\Z")
UNITS = ("characters", "words")


@dataclass
class LongestTexts:
    """The texts of one place that have the greatest length so far."""

    texts: int = 0
    greatest: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)
    """Ends of some texts, whose words the last ones are compared with"""
    ends: set[str] = field(default_factory=set)
    """Different ends of texts of that length: a filled-in template has one end"""
    open: int = 0
    """Of these, those that end with a letter"""
    cases: list[Case] = field(default_factory=list)

    def add(self, text: str, length: int, batch: Batch, row: Conversation) -> None:
        """Count a text."""
        self.texts += 1
        self.lengths[length] += 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(text[-MAX_KEPT_CHARACTERS:])
        if length > self.greatest:
            self.greatest, self.open = length, 0
            self.ends, self.cases = set(), []
        end = text[-END_CHARACTERS:]
        if length < self.greatest or end in self.ends:
            return
        self.ends.add(end)
        self.open += ENDS_IN_LETTER.search(text) is not None
        if len(self.cases) < MAX_CASES:
            self.cases.append(case_in_row(batch, row, f"ends with {text[-50:]!r}"))

    @property
    def are_cut(self) -> bool:
        """Are these texts cut at one length, and do enough of them surely break off?"""
        count = len(self.ends)
        others = max(
            (rows for length, rows in self.lengths.items() if length < self.greatest), default=0
        )
        is_pile = count >= max(MIN_TEXTS, MIN_SHARE * self.texts, MIN_TIMES_OTHERS * others)
        if not is_pile or self.open < MIN_OPEN_SHARE * count:
            return False
        vocabulary = words_and_prefixes_but_last_words(self.kept)
        sure = sum(
            ends_before_its_next_word(end) or ends_inside_a_word(end, vocabulary)
            for end in self.ends
        )
        return sure >= max(MIN_SURE, MIN_SURE_SHARE * count)


class PromptsAreCutAtOneLength(DataRule):
    code = "ROW099"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.longest: dict[tuple[str, str], LongestTexts] = {}

    def add_batch(self, batch: Batch) -> None:
        """Keep the longest texts of a batch by the place that they are at."""
        for row in batch.rows:
            texts = dict(_texts_of_row(row))
            self.rows += bool(texts)
            for place, text in texts.items():
                words = len(text.split())
                if len(text) < MIN_CHARACTERS or (words < MIN_WORDS and text.isascii()):
                    continue
                for unit, length in zip(UNITS, (len(text), words), strict=True):
                    known = self.longest.setdefault((place, unit), LongestTexts())
                    known.add(text, length, batch, row)

    def unmet(self) -> Unmet | None:
        """Unmet without texts of some words."""
        return (
            None if self.longest else Unmet("it is about texts of some words, and no row has one")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many texts have the greatest length of their place."""
        most = max(self.longest.values(), key=lambda one: len(one.ends) / one.texts)
        return make_count_measurement("texts of the greatest length", len(most.ends), most.texts)

    def findings(self) -> Iterator[Finding]:
        cut = {key: longest for key, longest in self.longest.items() if longest.are_cut}
        if not cut:
            return
        (place, unit), longest = max(cut.items(), key=lambda one: len(one[1].ends))
        count = len(longest.ends)
        yield self.finding(
            f"{count:,} of {longest.texts:,} of {place} have exactly {longest.greatest:,} {unit}, the greatest length"
            f" of all, and {longest.open:,} of them end in mid-sentence: something cut them there",
            "write these texts again from their source, without a slice, a column type or an export that cuts at"
            f" {longest.greatest:,} {unit}",
            cases=longest.cases,
            count=count,
            total=longest.texts,
        )


def _texts_of_row(row: Conversation) -> Iterator[tuple[str, str]]:
    """The texts of a row by the place that they are at: its columns and the longest paragraph of its prompt."""
    if row.text is not None:
        return
    answer = last_answer(row)
    columns = [(name, value) for name, value in (row.raw or {}).items() if isinstance(value, str)]
    for name, value in columns[:MAX_COLUMNS]:
        if value != answer:
            yield f"the texts in `{name}`", value
    prompt = last_user_text(row) if row.is_chat else row.prompt
    if prompt:
        yield PROMPT, max(prompt.split("\n"), key=len)
