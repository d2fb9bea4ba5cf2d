"""Base class of the rules that count rows with a faulty answer text, whatever the format of the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.findings import Case
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_message, case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.row_fingerprints import text_of

NO_ANSWERS = Unmet("it is about answers in words, and no row has one")


class AnswerText(NamedTuple):
    """One answer of a row that is learned."""

    text: str
    message: int | None
    """None where the row is plain text"""


class AnswerFault(NamedTuple):
    """What is wrong with an answer."""

    kind: str
    """As the finding counts it"""
    text: str
    """As the case shows it"""


def learned_answers_of_row(row: Conversation) -> Iterator[AnswerText]:
    """The answers of a row that are learned: its assistant turns with a loss, its completion, or
    its text.
    """
    if not row.is_chat:
        text = row.completion if row.text is None else row.text
        if text:
            yield AnswerText(text, None)
        return
    for index, message in enumerate(row.messages):
        if (
            message.get("role") == "assistant"
            and message.get("train", True)
            and message.get("weight", 1)
        ):
            text = text_of(message.get("content"))
            if text:
                yield AnswerText(text, index)


def text_besides_answers(row: Conversation) -> str:
    """The text of a row without its answers: the prompt, or the other turns."""
    if not row.is_chat:
        return row.prompt or ""
    return "\n".join(
        text_of(one.get("content")) for one in row.messages if one.get("role") != "assistant"
    )


class AnswerTextRule(DataRule):
    """Counts the rows that have an answer with a fault. Of each row the first such answer is told."""

    looks_for: str
    """For the figure: `answers with an unreplaced placeholder`"""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.found = 0
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []

    def find_fault(self, answer: AnswerText, row: Conversation) -> AnswerFault | None:
        """What is wrong with an answer of a row; None if nothing is."""
        raise NotImplementedError

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch that have an answer with a fault, and keep the first cases."""
        for row in batch.rows:
            answers = list(learned_answers_of_row(row))
            self.rows += bool(answers)
            looked_at = ((answer, self.find_fault(answer, row)) for answer in answers)
            faults = ((answer, fault) for answer, fault in looked_at if fault is not None)
            # A row with two faults is one row: the figure counts rows, and the first fault is what a reader fixes
            # first.
            answer, fault = next(faults, (None, None))
            if answer is None or fault is None:
                continue
            self.found += 1
            self.kinds[fault.kind] += 1
            if len(self.cases) < MAX_CASES:
                is_turn = answer.message is not None
                self.cases.append(
                    case_in_message(batch, row, answer.message or 0, fault.text)
                    if is_turn
                    else case_in_row(batch, row, fault.text)
                )

    def unmet(self) -> Unmet | None:
        return None if self.rows else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """How many of the rows have an answer with the fault that the rule looks for."""
        return make_count_measurement(f"rows with {self.looks_for}", self.found, self.rows)

    @property
    def faulty_row_count_in_words(self) -> str:
        """How many of the rows are faulty: `85 of 91 rows`."""
        return f"{self.found:,} of {self.rows:,} rows"
