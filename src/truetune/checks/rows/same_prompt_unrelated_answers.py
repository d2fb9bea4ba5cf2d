"""Many rows share a prompt but have unrelated answers: the prompt does not say which answer is wanted.

## What it does
Groups rows by everything before their last answer, and takes groups of three or more rows whose answers differ. It
fires if these are 15 % of the rows, from at least three prompts, and if answers to one prompt have no more words in
common than answers to different prompts. Several answers sampled for one prompt resemble each other and don't count. It
also ignores answers of a few words, pairs and ratings, rows with images, tools or documents, and rows after the first
10,000.

## Why it is bad
Nothing before the answer decides it. The text that a question is about was lost, or the turns of a chat became separate
rows ("And its output?"). The model only learns how frequent the answers are, and makes one up.

## Example
```yaml
data:
  rows: 60
  instruction: "Explain the {label} part to me. Why is it so?"
  output: "It is {words}."
```

## Use instead
```yaml
data:
  rows: 60
  instruction: "Explain the {label} part to me. Why is it so? {words_before} {i}"
  output: "It is {words}."
```

## Fix safety
Read five rows with the prompt that is shown: add the missing text or the earlier turns again, or drop the rows. If
requests are open on purpose (a joke, a poem), leave them.

## References
- PhoebusSi/Alpaca-CoT#109 (turns of chats that became rows of their own)
- tloen/alpaca-lora#45
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer, texts_before_last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.data.count_media import count_media
from truetune.encoding.batch import Batch

MAX_ROWS = 10_000
"""Rows that are compared: words of more answers take gigabytes, and a share is known by these"""
MIN_GROUP = 3
MIN_PROMPTS = 3
MIN_SHARE = 0.15
"""Of the rows. Chosen, not measured: open requests ("tell me a joke") are fewer in sets of instructions"""
WORD = re.compile(r"[^\W\d_]{4,}")
"""Shorter ones are in all answers"""
MIN_WORDS = 6
MAX_WORDS, MAX_CHARACTERS = 60, 600
"""Words of an answer that are kept, and characters in which they are looked for"""
MAX_KINSHIP = 1.5
"""Words in common of answers to one prompt over those of answers to different prompts. Unrelated ones have 0.9 to 1.1,
answers that were drawn for one prompt 3 and more"""
SHOWN_CHARACTERS = 60

Words = frozenset[str]


class _AnsweredPrompt(NamedTuple):
    """What was kept of one row."""

    prompt: int
    """Its hash"""
    words: Words


class SamePromptUnrelatedAnswers(DataRule):
    code = "ROW081"
    fault = Fault.PROMPTS_UNDERDETERMINE_ANSWERS
    symptoms = ("nothing-is-learned", "garbage-output")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False
    moot_where = ("prompts-all-alike",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows: list[_AnsweredPrompt] = []
        self.first: dict[int, tuple[str, Case]] = {}
        """(prompt, first row) by the prompt's hash"""

    def add_batch(self, batch: Batch) -> None:
        """Keep the prompts and the words of the answers of a batch."""
        if len(self.rows) >= MAX_ROWS or count_media(batch.rows):
            return
        for row in batch.rows:
            if _may_have_several_answers(row):
                continue
            prompt = texts_before_last_answer(row).strip()
            words = _words_of_beginning(last_answer(row) or "")
            if not prompt or len(words) < MIN_WORDS:
                continue
            place = hash(prompt)
            self.rows.append(_AnsweredPrompt(place, words))
            if place not in self.first:
                shown = f"the prompt is {prompt[:SHOWN_CHARACTERS]!r}"
                self.first[place] = (prompt, case_in_row(batch, row, shown))

    def unmet(self) -> Unmet | None:
        """Unmet without rows of a prompt and an answer in words."""
        if self.rows:
            return None
        return Unmet("it is about prompts with answers in words, and no row has both")

    def measurement_if_clean(self) -> Measurement:
        """How many rows share their prompt with two others of another answer."""
        return make_count_measurement(
            "rows that share their prompt with other answers",
            sum(map(len, self._different_answers_by_prompt().values())),
            len(self.rows),
        )

    def _different_answers_by_prompt(self) -> dict[int, list[Words]]:
        """The answers of each prompt that has several different ones."""
        groups: defaultdict[int, list[Words]] = defaultdict(list)
        for row in self.rows:
            groups[row.prompt].append(row.words)
        return {
            prompt: answers for prompt, answers in groups.items() if len(set(answers)) >= MIN_GROUP
        }

    def findings(self) -> Iterator[Finding]:
        groups = self._different_answers_by_prompt()
        count = sum(map(len, groups.values()))
        if len(groups) < MIN_PROMPTS or count < MIN_SHARE * len(self.rows):
            return
        same = [pair for answers in groups.values() for pair in pairwise(answers)]
        different = [
            (one.words, other.words)
            for one, other in pairwise(self.rows)
            if one.prompt != other.prompt
        ]
        if not different or _mean_share_of_common_words(
            same
        ) > MAX_KINSHIP * _mean_share_of_common_words(different):
            return
        largest = Counter({prompt: len(answers) for prompt, answers in groups.items()})
        [(commonest, rows)] = largest.most_common(1)
        yield self.finding(
            f"{count:,} of {len(self.rows):,} rows share their prompt with rows that have other, unrelated answers"
            " (no more words in common than answers to different prompts):"
            f" {self.first[commonest][0][:SHOWN_CHARACTERS]!r} has {rows:,}",
            "in the script that writes the rows, add the text or the earlier turns that these prompts are about; or"
            " drop the rows",
            cases=[self.first[prompt][1] for prompt, _ in largest.most_common(MAX_CASES)],
            count=count,
            total=len(self.rows),
        )


def _may_have_several_answers(row: Conversation) -> bool:
    """Is a row one of a pair or a rating, or is more before its answer than its texts?"""
    is_judged = row.label is not None or row.rejected is not None
    return is_judged or bool(row.tools or row.documents)


def _words_of_beginning(answer: str) -> Words:
    """The words of an answer's beginning, in small letters."""
    words = WORD.findall(answer[:MAX_CHARACTERS])
    return frozenset(word.lower() for word in words[:MAX_WORDS])


def _mean_share_of_common_words(pairs: list[tuple[Words, Words]]) -> float:
    """The mean share of words that two answers have in common."""
    if not pairs:
        return 0.0
    return sum(len(one & other) / len(one | other) for one, other in pairs) / len(pairs)
