"""Base class of the rules that count rows whose questions or answers have a fault, turn by turn.

A rule gives the fault of one text. What many rows have is a fault of the data; what few have may be their subject.
"""

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
from truetune.settings.run_spec import Severity

NO_TEXTS = Unmet("it is about questions and answers in words, and no row has one")
QUESTIONS = ("system", "developer", "user")
MANY = 0.05
"""Share of the rows from which a fault is a warning: below it, rows that talk of such texts are as frequent in the
public sets of instructions that the tests lay out"""

# Chosen to read: five fit a line or two of a terminal.
MAX_SHOWN_KINDS = 5


class RowText(NamedTuple):
    """One text of a row."""

    text: str
    is_answer: bool
    message: int | None
    """None where the row is plain text"""


class TextFault(NamedTuple):
    """What is wrong with a text."""

    kind: str
    """As the finding counts it"""
    text: str
    """As the case shows it"""


def questions_and_answers_of_row(row: Conversation) -> Iterator[RowText]:
    """The questions and the answers of a row, without texts of tools and without turns that are not
    learned.
    """
    if not row.is_chat:
        if row.prompt:
            yield RowText(row.prompt, False, None)
        answer = row.completion if row.text is None else row.text
        if answer:
            yield RowText(answer, True, None)
        return
    for index, message in enumerate(row.messages):
        role, text = message.get("role"), text_of(message.get("content"))
        is_learned = message.get("train", True) and message.get("weight", 1)
        if text and (role in QUESTIONS or (role == "assistant" and is_learned)):
            yield RowText(text, role == "assistant", index)


class RowTextRule(DataRule):
    """Counts the rows that have a text with a fault. Of each row the first such text is a case."""

    looks_for: str
    """For the figure: `rows with ...`"""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.faulty = self.faulty_answers = 0
        self.kinds: Counter[str] = Counter()
        self.cases: list[Case] = []

    def find_fault(self, text: RowText, row: Conversation) -> TextFault | None:
        """What is wrong with a text of a row; None where nothing is."""
        raise NotImplementedError

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch that have a text with the fault."""
        for row in batch.rows:
            self._count_row(batch, row)

    def _count_row(self, batch: Batch, row: Conversation) -> None:
        """Count one row, and keep its first fault."""
        texts = list(questions_and_answers_of_row(row))
        self.rows += bool(texts)
        looked_at = ((text, self.find_fault(text, row)) for text in texts)
        faults = [(text, fault) for text, fault in looked_at if fault is not None]
        if not faults:
            return
        self.faulty += 1
        self.faulty_answers += any(text.is_answer for text, _ in faults)
        # A set: a row with two faults of one kind is one row of that kind.
        self.kinds.update({fault.kind for _, fault in faults})
        if len(self.cases) < MAX_CASES:
            text, fault = faults[0]
            self.cases.append(
                case_in_row(batch, row, fault.text)
                if text.message is None
                else case_in_message(batch, row, text.message, fault.text)
            )

    def unmet(self) -> Unmet | None:
        """Unmet without rows with such texts."""
        return None if self.rows else NO_TEXTS

    def measurement_if_clean(self) -> Measurement:
        """How many rows have a text with the fault."""
        return make_count_measurement(f"rows with {self.looks_for}", self.faulty, self.rows)

    @property
    def has_several_or_only_faulty_rows(self) -> bool:
        """Do several rows have the fault, or all that there are? A single one of many is no fault of the data."""
        # A single row of many may talk of the fault; a single row that is all there is has it.
        return self.faulty > 1 or 0 < self.faulty == self.rows

    def severity_by_share_of_faulty_rows(self, error_from: float = 2.0) -> Severity:
        """The severity by the share of rows with the fault: an error from the share `error_from`
        on.
        """
        share = self.faulty / max(1, self.rows)
        if share >= error_from:
            return "error"
        return "warning" if share >= MANY else "info"

    @property
    def faulty_row_count_in_words(self) -> str:
        """How many of the rows have the fault: `85 of 91 rows`."""
        return f"{self.faulty:,} of {self.rows:,} rows"

    @property
    def fault_kinds_with_row_counts(self) -> str:
        """The kinds with their rows, the most frequent first; equal ones by name."""
        by_count = sorted(self.kinds.items(), key=lambda one: (-one[1], one[0]))
        return ", ".join(f"{kind} ({count:,})" for kind, count in by_count[:MAX_SHOWN_KINDS])

    @property
    def faulty_texts_in_words(self) -> str:
        """In which texts the faults are."""
        if self.faulty_answers == self.faulty:
            return "the answer"
        return "the answer or the question" if self.faulty_answers else "the question"
