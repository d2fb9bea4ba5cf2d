"""Answers are none of the options that their prompts list.

## What it does
Reads the options of a prompt: labelled ones (`A) Paris`), and labels in words (`one of: billing, refund, other`;
`Answer with yes or no`). It counts short answers that

- name a label that is not listed (`E` beside A to D, `2` beside letters),
- name one option and write the text of another (`B) Paris`, where Paris is A), or name one whose text is listed twice,
- are another word than those listed (`qa` beside `question`), or (nearly all of them) one in another spelling
  (`Question.`).

It fires from 3 % of the answers to prompts with options, and at least 3. Lists in words count if most answers are in
them, or if the answers are as few as the options, and prompts share lists and answers as labels are shared.

## Why it is bad
The model learns a second set of labels beside the one that it is asked for. Code that compares answers with the list
counts these as wrong, and a mapping by position (shuffled options, labels counted from 0) trains wrong answers.

## Example
```yaml
data:
  rows: 12
  instruction: "Which kind is request {i}: {words}? Answer with one of: billing, refund, other."
  output: "complaint"
```

## Use instead
```yaml
data:
  rows: 12
  instruction: "Which kind is request {i}: {words}? Answer with one of: billing, refund, other."
  output: "refund"
```

## Fix safety
Another spelling can be mapped to the listed one. A letter beside the wrong text needs the source: one of the two is
right. Correct the script that numbers or shuffles the options.

## References
- huggingface/datasets#3550 (a published set had texts in the column of letters)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from truetune.checks.answer_diversity import MOST_LABELS, NEARLY_ALL
from truetune.checks.base_of_rules_on_answer_texts import (
    AnswerText,
    learned_answers_of_row,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.options_named_in_words import normal_label, options_named_in_words
from truetune.checks.position_of_answered_option import labels_and_texts_of_listed_options
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

UNLISTED, OTHER_TEXT = "name a label that is not listed", "name one option and write another's text"
SAME_TEXT = "name an option whose text is listed twice"
OTHER_WORD, OTHER_SPELLING = "are none of the listed words", "are a listed word in another spelling"
LABEL_ALONE = re.compile(r"\W{0,3}([A-Ha-h]|\d)\W{0,3}")
LABEL_AND_TEXT = re.compile(r"\W{0,3}([A-Ha-h1-8])[).:]\W{0,3}\s*(\S[^\n]*?)\W{0,2}")
# Chosen, not measured: a slip of an annotator is rarer, and two rows are chance.
MIN_SHARE, MIN_ROWS = 0.03, 3
"""Share of the answers to prompts with options, and their number"""
MIN_LISTED_SHARE = 0.5
"""Share of the answers that are in the lists of their prompts, from which a list is one of answers"""
MIN_ROWS_PER_LABEL = 2
"""Rows to each different list and to each different answer, from which answers outside of all lists are labels"""
MAX_ANSWER = 40
"""Characters of an answer that may be a label"""
ERROR_SHARE = 0.2
MAX_DISTINCT = 1_000
"""Different answers that are kept"""
REMEDIES = {
    UNLISTED: "write the labels that the prompts list, counted as they count (A is the first, not 0)",
    OTHER_TEXT: "take letter and text from the same list: shuffle the options before the letter is looked up",
    SAME_TEXT: "draw the wrong options without the right one and without repeats",
    OTHER_WORD: "map these answers to the listed labels, or list them in the prompts",
    OTHER_SPELLING: "write the labels as the prompts list them: same case, no full stop",
}


class AnswerIsNoneOfTheOptions(DataRule):
    code = "ROW083"
    fault = Fault.TRAINING_ANSWERS_IN_WRONG_FORM
    symptoms = ("odd-metrics", "garbage-output")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.labelled = self.worded = 0
        self.kinds: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {}
        self.answers: set[str] = set()
        self.options: set[str] = set()
        self.lists: set[tuple[str, ...]] = set()

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch that are none of the options of their prompts."""
        for row in batch.rows:
            answer = next(iter(learned_answers_of_row(row)), None)
            if answer is None or row.text is not None:
                continue
            prompt = _text_before(row, answer)
            kind = self._fault_of_answer(prompt, answer.text.strip())
            if kind is None:
                continue
            self.kinds[kind] += 1
            cases = self.cases.setdefault(kind, [])
            if len(cases) < MAX_CASES:
                cases.append(case_in_row(batch, row, f"the answer is {answer.text.strip()[:60]!r}"))

    def _fault_of_answer(self, prompt: str, answer: str) -> str | None:
        """What is wrong with an answer, by the options of its prompt."""
        options = labels_and_texts_of_listed_options(prompt)
        if options:
            return self._fault_by_labels(options, answer)
        words = options_named_in_words(prompt)
        if not words or len(answer) > MAX_ANSWER or "\n" in answer:
            return None
        self.worded += 1
        if len(self.answers) < MAX_DISTINCT:
            self.answers.add(normal_label(answer))
            self.options.update(map(normal_label, words))
            self.lists.add(words)
        if answer in words:
            return None
        return OTHER_SPELLING if normal_label(answer) in map(normal_label, words) else OTHER_WORD

    def _fault_by_labels(self, options: list[tuple[str, str]], answer: str) -> str | None:
        """What is wrong with an answer beside options with labels."""
        alone = LABEL_ALONE.fullmatch(answer)
        both = LABEL_AND_TEXT.fullmatch(answer)
        if alone is None and both is None:
            return None
        self.labelled += 1
        text_by_label = {label.casefold(): normal_label(text) for label, text in options}
        texts = set(text_by_label.values())
        if both is not None:
            return _fault_of_label_with_text(
                both[1].casefold(), normal_label(both[2]), text_by_label
            )
        # A number may be the text of an option, or the result that is asked for.
        label = alone[1].casefold() if alone is not None else ""
        if label not in text_by_label:
            return None if normal_label(answer) in texts else UNLISTED
        same = sum(normal_label(text) == text_by_label[label] for _, text in options)
        return SAME_TEXT if same > 1 else None

    def unmet(self) -> Unmet | None:
        """Unmet where no prompt lists options."""
        if self.labelled + self.worded:
            return None
        return Unmet("it is about prompts that list their options, and no row has one")

    def measurement_if_clean(self) -> Measurement:
        """How many answers are none of the options."""
        return make_count_measurement(
            "answers that are none of the listed options",
            self.kinds.total(),
            self.labelled + self.worded,
        )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_of_kinds((UNLISTED, OTHER_TEXT, SAME_TEXT), self.labelled)
        if not self._are_lists_of_answers():
            return
        # Where the labels are few and only some are spelt otherwise, `labels-are-inconsistent` says so.
        is_in_part = self.kinds[OTHER_SPELLING] < NEARLY_ALL * self.worded
        kinds = (
            (OTHER_WORD,)
            if is_in_part and len(self.options) <= MOST_LABELS
            else (OTHER_WORD, OTHER_SPELLING)
        )
        yield from self._findings_of_kinds(kinds, self.worded)

    def _are_lists_of_answers(self) -> bool:
        """Are the lists in words what the answers are taken from?

        Where no answer is listed, each prompt of a text book may have a list of its own (`the point (x, y)`), and each
        answer be another number: labels and their lists are shared by several rows.
        """
        other = self.kinds[OTHER_WORD]
        if self.worded - other >= MIN_LISTED_SHARE * self.worded:
            return True
        most = self.worded / MIN_ROWS_PER_LABEL
        are_shared = len(self.lists) <= most and len(self.answers) <= most
        return are_shared and len(self.answers) <= len(self.options)

    def _findings_of_kinds(self, kinds: tuple[str, ...], total: int) -> Iterator[Finding]:
        """The finding on kinds that enough of the answers have."""
        frequent = [kind for kind in kinds if self.kinds[kind] >= max(MIN_ROWS, MIN_SHARE * total)]
        if not frequent:
            return
        count = sum(self.kinds[kind] for kind in frequent)
        told = ", ".join(f"{self.kinds[kind]:,} {kind}" for kind in frequent)
        yield self.finding(
            f"of {total:,} answers to prompts that list their options {told}",
            "; ".join(REMEDIES[kind] for kind in frequent),
            severity="error" if count >= ERROR_SHARE * total else "warning",
            cases=[case for kind in frequent for case in self.cases[kind]][:MAX_CASES],
            count=count,
            total=total,
        )


def _text_before(row: Conversation, answer: AnswerText) -> str:
    """What comes before an answer: the prompt, or the last question, else the instructions before it."""
    if answer.message is None:
        return row.prompt or ""
    return "\n".join(
        text_of(one.get("content"))
        for one in row.messages[: answer.message]
        if one.get("role") != "assistant"
    )


def _fault_of_label_with_text(
    label: str, text: str, text_by_label: Mapping[str, str]
) -> str | None:
    """What is wrong with an answer that gives a label and the text of an option."""
    if text not in text_by_label.values():
        return None
    if label not in text_by_label:
        return UNLISTED
    return OTHER_TEXT if text != text_by_label[label] else None
