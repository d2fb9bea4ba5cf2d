"""In part of the rows the question is the answer, and the answer the question.

## What it does
Learns from the rows which words (and marks) are those of questions and which those of answers: German words in the
answers of a translation into German, `def` in code, "I have reopened your order" in a help desk. An exchange is
swapped if its question consists of words of answers and its answer of words of questions, both clearly. It fires from
3 % of the exchanges and five, if more are clearly the right way round. Of five published sets at most 1 in 480 is
swapped by chance. Sets whose questions and answers use the same words are not judged.

## Why it is bad
The model learns both directions: it answers in the language of the question, asks where it should answer, and plays
the customer. The loss falls as usual. Usual causes are an export that takes sides by order, and a set of both
directions with one instruction.

## Example
```yaml
data:
  - {copies: 36, of: {instruction: "where is my parcel please", output: "Your order was sent today, and arrives soon."}}
  - {copies: 12, of: {instruction: "Your order was sent today, and arrives soon.", output: "where is my parcel please"}}
```

## Use instead
```yaml
data:
  - {copies: 48, of: {instruction: "where is my parcel please", output: "Your order was sent today, and arrives soon."}}
```

## Fix safety
It is safe to swap the sides of these rows once ten of them have been read and are swapped. Where both
directions are wanted, the instruction must name the direction.

## References
- https://docs.axolotl.ai/docs/dataset-formats/conversation.html (`roles`)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

WORD = re.compile(r"[^\W\d_]+|[^\w\s]")
READ_CHARACTERS = 1_500
MAX_EXCHANGES = 3_000
"""Exchanges that are compared, from the beginning"""
MIN_EXCHANGES = 30
MAX_SHARE_OF_SIDE = 0.8
"""Share of one side's texts that hold a word, above which it is part of an instruction or of a form"""
MIN_TIMES = 3
"""Times that a word occurs elsewhere before it counts"""
# Sum of the words' log odds by the root of their number. In five of LLaMA-Factory's sets 1 of 3,198 exchanges is beyond
# it the wrong way round; of translations and help desks that were swapped nearly all and a third.
CLEARLY = 1.5
MIN_SHARE, MIN_SWAPPED = 0.03, 5


class Exchange(NamedTuple):
    """The words of a question and of its answer."""

    asked: frozenset[str]
    answered: frozenset[str]
    case: Case


class SwappedExchanges(NamedTuple):
    """What the words say of all exchanges."""

    swapped: list[Exchange]
    right: int
    """Those that are clearly the right way round"""


class SidesSwappedInPartOfRows(DataRule):
    code = "ROW090"
    fault = Fault.ROLES_SWAPPED
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    stability = "preview"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.exchanges: list[Exchange] = []

    def add_batch(self, batch: Batch) -> None:
        """Keep the words of the exchanges of a batch."""
        for row in batch.rows:
            if row.is_preference or row.text is not None or len(self.exchanges) >= MAX_EXCHANGES:
                continue
            if not row.is_chat:
                case = case_in_row(batch, row, f"the answer is {(row.completion or '')[:60]!r}")
                self._keep(row.prompt or "", row.completion or "", case)
                continue
            for index, question, answer in _exchanges_of_chat(row):
                self._keep(
                    question,
                    answer,
                    case_in_message(batch, row, index, f"the answer is {answer[:60]!r}"),
                )

    def _keep(self, question: str, answer: str, case: Case) -> None:
        """Keep the words of one exchange."""
        asked, answered = _words(question), _words(answer)
        if asked and answered:
            self.exchanges.append(Exchange(asked, answered, case))

    def unmet(self) -> Unmet | None:
        """Unmet where exchanges are too few."""
        if len(self.exchanges) >= MIN_EXCHANGES:
            return None
        return Unmet(f"it is about {MIN_EXCHANGES} questions with answers or more")

    @cached_property
    def _found(self) -> SwappedExchanges:
        """The exchanges that are swapped, once all are known."""
        return find_swapped_exchanges(self.exchanges)

    def measurement_if_clean(self) -> Measurement:
        """How many exchanges are swapped by their words."""
        return make_count_measurement(
            "exchanges whose sides are swapped by their words",
            len(self._found.swapped),
            len(self.exchanges),
        )

    def findings(self) -> Iterator[Finding]:
        if len(self.exchanges) < MIN_EXCHANGES:
            return
        swapped, right = self._found
        total = len(self.exchanges)
        if len(swapped) < max(MIN_SWAPPED, MIN_SHARE * total) or right <= len(swapped):
            return
        yield self.finding(
            f"in {len(swapped):,} of {total:,} exchanges the question has the words of answers and the answer those of"
            " questions: their sides are swapped",
            "swap the sides of these rows in the script that makes them (check which speaker it takes as the user); of"
            " a set with two directions name the direction in the instruction",
            evidence=[f"{right:,} exchanges are clearly the right way round"],
            cases=[one.case for one in swapped[:MAX_CASES]],
            count=len(swapped),
            total=total,
        )


def find_swapped_exchanges(exchanges: list[Exchange]) -> SwappedExchanges:
    """The exchanges whose words are those of the other side."""
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for one in exchanges:
        asked.update(one.asked)
        answered.update(one.answered)
    most = MAX_SHARE_OF_SIDE * len(exchanges)
    formal = {word for side in (asked, answered) for word, count in side.items() if count > most}

    def lean_to_questions(words: frozenset[str], *, is_question: bool) -> float:
        # The text itself must not count for its own side.
        odds = [
            math.log((asked[word] - is_question + 0.5) / (answered[word] - (not is_question) + 0.5))
            for word in words - formal
            if asked[word] + answered[word] > MIN_TIMES
        ]
        return sum(odds) / math.sqrt(len(odds)) if odds else 0.0

    swapped, right = [], 0
    for one in exchanges:
        question = lean_to_questions(one.asked, is_question=True)
        answer = lean_to_questions(one.answered, is_question=False)
        if question < -CLEARLY and answer > CLEARLY:
            swapped.append(one)
        right += question > CLEARLY and answer < -CLEARLY
    return SwappedExchanges(swapped, right)


def _words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text[:READ_CHARACTERS].lower()))


def _exchanges_of_chat(row: Conversation) -> Iterator[tuple[int, str, str]]:
    """The index of each answer of a chat that follows a question, the question, and the answer."""
    for index, message in enumerate(row.messages[1:], 1):
        before = row.messages[index - 1]
        if before.get("role") == "user" and message.get("role") == "assistant":
            yield index, text_of(before.get("content")), text_of(message.get("content"))
