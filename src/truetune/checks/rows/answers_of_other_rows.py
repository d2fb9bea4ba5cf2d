"""Answers are paired with the questions of other rows.

## What it does
Compares each question with all answers by the rare words, and the numbers (of an order, a part, a case), that they
share. It tries these orders: a shift by any number of rows, for all rows or from some row on; the order in which
several processes returned their parts; the reverse order; rows swapped two by two. It also tries single pairs in
different rows that are far nearer to each other than to anything else. It fires if one order is far beyond chance,
counting all orders that were tried, and if the rows' own answers are no nearer than any other. Rows whose questions
and answers share no rare words are judged by quantities: it fires if the lengths of questions (of a translation), or
their numbers (of a problem), go with those of the answers some rows away, and not with their own. Labels are judged by
the words that texts of one label share. If a script builds the rows from a file and its code can be followed, the rows
are compared with the lines of that file.

## Why it is bad
The model learns fluent answers to other questions. The loss falls as usual, since most of it is about the language.
But what the model says has nothing to do with the question. The cause is a column that was filtered, sorted or joined
without the others.

## Example
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words_before}"}
```

## Use instead
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words}"}
```

## Fix safety
There is no automatic fix: shifting the answers back repairs what one dropped row displaced, and displaces everything
else. Build the rows again, and filter, sort and join whole rows (`dropna` on the table, a join by a key).

## References
- https://pandas.pydata.org/docs/user_guide/merging.html (what is put side by side is aligned by the index),
  huggingface/datasets#3273 (columns of sorted data sets were put together in the unsorted order),
  facebookresearch/fairseq#4146 (lines of a translation are one off)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from truetune.checks.faults import Fault
from truetune.checks.find_answer_shift_by_quantities import AnswerShift, find_answer_shift
from truetune.checks.find_answers_at_other_rows_by_row_chunks import DisplacedAnswersOfFile
from truetune.checks.find_answers_standing_at_other_rows import DisplacedAnswers
from truetune.checks.find_labels_of_other_rows_by_words import LabelShift, find_label_shift
from truetune.checks.findings import Case, Finding
from truetune.checks.is_wrong_column_learned import last_answer, last_user_text
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Origin
from truetune.data.script_rows.find_source_rows_and_mispaired_texts import Mispairing
from truetune.data.script_rows.read_rows_given_to_trainer import ScriptRows, read_trained_text_rows
from truetune.encoding.batch import Batch
from truetune.errors import TruetuneError
from truetune.settings.row_formats import is_script_named_as_format

MAX_MEASURED, MAX_CHARACTERS = 2_000, 4_000
"""Rows whose lengths and numbers are compared, and characters of a text that are kept for it"""


class AnswersOfOtherRows(DataRule):
    code = "ROW029"
    fault = Fault.ANSWERS_PAIRED_WITH_WRONG_QUESTIONS
    symptoms = ("garbage-output", "loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.file = DisplacedAnswersOfFile()
        self.measured: list[tuple[str, str, Case]] = []

    def add_batch(self, batch: Batch) -> None:
        """Keep the questions and the answers of a batch, to be compared."""
        for row in batch.rows:
            question, answer = last_user_text(row), last_answer(row) or ""
            self.file.add(question, answer, row.origin)
            if question and answer and len(self.measured) < MAX_MEASURED:
                case = Case("the answer of this row is that of another question", row.origin)
                self.measured.append((question[:MAX_CHARACTERS], answer[:MAX_CHARACTERS], case))

    def unmet(self) -> Unmet | None:
        """Unmet where it can't be judged to which question an answer belongs."""
        self.file.search_and_forget_kept_rows()
        if self._shift_by_quantities is not None or self._shift_of_labels is not None:
            return None
        return self.file.why_not_judged("an answer")

    @cached_property
    def _shift_by_quantities(self) -> AnswerShift | None:
        """The shift of answers that lengths or numbers tell, once all rows are known."""
        questions = [question for question, _, _ in self.measured]
        return find_answer_shift(questions, [answer for _, answer, _ in self.measured])

    @cached_property
    def _shift_of_labels(self) -> LabelShift | None:
        """The shift of labels that the words of the texts tell, once all rows are known."""
        texts = [question for question, _, _ in self.measured]
        return find_label_shift(texts, [answer.strip() for _, answer, _ in self.measured])

    def measurement_if_clean(self) -> Measurement:
        """For how many questions the nearest answer is their own."""
        return make_count_measurement(
            "questions whose nearest answer is their own, of those with one far nearer than all others",
            self.file.own_pairs,
            self.file.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        self.file.search_and_forget_kept_rows()
        rows = self._rows_of_script()
        if rows is not None and rows.mispairing is not None:
            yield self._report_mispairing(rows, rows.mispairing)
        elif self.file.displaced is not None:
            yield self._finding_on_displaced(self.file.displaced)
        elif self._shift_by_quantities is not None:
            yield self._finding_on_shift(self._shift_by_quantities)
        elif self._shift_of_labels is not None:
            yield self._finding_on_labels(self._shift_of_labels)

    def _finding_on_labels(self, shift: LabelShift) -> Finding:
        """The finding on labels that the words of the texts show to be those of other rows."""
        rows = abs(shift.offset)
        where = f"{rows} row{'s' if rows > 1 else ''} {'before' if shift.offset < 0 else 'after'}"
        cases = [case for _, _, case in self.measured[shift.first : shift.first + MAX_CASES]]
        return self.finding(
            f"from {cases[0].origin} on, the labels of {shift.count:,} neighbouring rows are those of other texts: the"
            f" right labels are {where}",
            "build the rows again and filter whole rows: a row was dropped from or added to only one of the columns"
            " (or files of lines)",
            evidence=[
                f"the words of the texts tell {shift.own:.0%} of the labels of the same row, {shift.other:.0%} of those"
                f" {where}"
            ],
            cases=cases,
            count=shift.count,
            total=len(self.measured),
        )

    def _finding_on_shift(self, shift: AnswerShift) -> Finding:
        """The finding on answers that lengths or numbers show to be those of other rows."""
        rows = abs(shift.offset)
        where = f"{rows} row{'s' if rows > 1 else ''} {'before' if shift.offset < 0 else 'after'}"
        cases = [case for _, _, case in self.measured[shift.first : shift.first + MAX_CASES]]
        return self.finding(
            f"from {cases[0].origin} on, the answers of {shift.count:,} neighbouring rows are paired with other"
            f" questions: the right answers are {where}",
            "build the rows again and filter whole rows: a row was dropped from or added to only one of the columns"
            " (or files of lines)",
            evidence=[
                f"rank correlation of {shift.quantity}: {shift.own_correlation:.2f} in the same row,"
                f" {shift.correlation:.2f} with the answers {where}"
            ],
            cases=cases,
            count=shift.count,
            total=len(self.measured),
        )

    def _rows_of_script(self) -> ScriptRows | None:
        """The rows as a script makes them, where one shapes them."""
        script = self.spec.format
        if script is None or not is_script_named_as_format(script):
            return None
        try:
            return read_trained_text_rows(script)
        except TruetuneError:
            return None

    def _report_mispairing(self, rows: ScriptRows, found: Mispairing) -> Finding:
        """The finding that a script pairs columns of different rows."""
        (one, other), (line, other_line) = found.columns, found.lines
        file = next(
            name for name in rows.training_files if Path(name).resolve() == found.first.file
        )
        place = Origin(file, line, 0)
        return self.finding(
            f"{found.rows:,} of {found.total:,} rows that {self.spec.format} makes pair texts of different rows:"
            f" {one} of line {line} is paired with {other} of line {other_line}",
            "take both columns from one row: check the index in the script, and shuffle or sort whole rows, not"
            " single columns",
            cases=[Case(f"{one} of this row is beside {other} of line {other_line}", place)],
            count=found.rows,
            total=found.total,
        )

    def _finding_on_displaced(self, displaced: DisplacedAnswers) -> Finding:
        """The finding that answers belong to other questions, from some row on."""
        rows = displaced.rows
        remedy = (
            "build the rows again: join questions and answers by a key, and sort, shuffle or filter"
            " whole rows"
        )
        if displaced.offset:
            what = f"the right answers are {displaced.order}"
            remedy = (
                "build the rows again and filter whole rows (dropna on the table): a row was dropped from only one"
                " of the columns"
            )
        elif displaced.order:
            what = f"they are {displaced.order}"
        else:
            what = (
                f"for {len(rows):,} of these questions, the answer that fits far better than all others is in"
                " another row"
            )
        count = displaced.last - displaced.first + 1
        where = f"from {self.file.cases[0].origin} on"
        if displaced.is_among_sound_rows:
            message = f"the answers of {len(rows):,} rows were swapped among each other, {where}"
        else:
            message = f"{where}, the answers of {count:,} neighbouring rows are paired with other questions: {what}"
        return self.finding(
            message,
            remedy,
            evidence=[displaced.evidence],
            cases=self.file.cases,
            count=count if displaced.log_chance is not None else len(rows),
            total=self.file.compared,
        )
