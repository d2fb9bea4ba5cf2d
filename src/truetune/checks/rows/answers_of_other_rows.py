"""The answers stand beside the questions of other rows.

## What it does
Compares each question with its own answer, with those of the rows around it and with all others, by the rare words that
they share. It fires where, from some row on, the answer one or several rows away is far nearer than the row's own (six
standard errors), and where question and answer belong to each other alone (each is far nearer to the other than all
else) and hardly ever stand in one row. Rows whose questions and answers share no rare words (labels, translations,
canned replies that serve many rows) are not judged. Where a script makes the rows of a file and its code can be
followed, the rows are compared with the file: which line each text is of.

## Why it is bad
The model learns fluent answers to other questions. The loss falls as it should, for most of it is in the language; what
the model says has nothing to do with what it is asked. A column that was filtered, sorted or joined by itself does it.

## Example
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words_before}"}
```

## Use instead
```yaml
data: {rows: 60, instruction: "What about {words}", output: "It is so with {words}"}
```

## Fix safety
There is no automatic fix: shifting the answers back fixes what one dropped row displaced, and displaces all else. Build
the rows again, and filter, sort and join whole rows (`dropna` on the table, a join by a key).

## References
- https://pandas.pydata.org/docs/user_guide/merging.html (what is put side by side is aligned by the index),
  huggingface/datasets#3273 (columns of sorted data sets were put together in the unsorted order)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from truetune.checks.answers_beside_unread_columns import last_answer, last_question
from truetune.checks.find_displaced_answers import (
    MIN_PAIRS,
    AnswerShift,
    are_answers_elsewhere,
    case_of_displaced_answer,
    find_answer_shift,
    format_mean_with_interval,
)
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.checks.word_affinity import QuestionAnswerAffinity
from truetune.data.conversation import Origin
from truetune.data.script_rows.text_index import Mispairing
from truetune.data.script_rows.trained_rows import ScriptRows, read_trained_rows
from truetune.encoding.batch import Batch
from truetune.errors import TruetuneError
from truetune.settings.row_formats import is_script_format

CHUNK_ROWS = 1_000
"""Neighbouring rows that are compared with each other; of long files those from row 0, 1,000, 2,000, 4,000, 8,000, ...
on: a shift stays to the end of the file"""
# Chosen, not measured: words count as rare by the rows of the chunk, and of fewer rows nearly all
# words are rare.
MIN_ROWS = 40
"""Rows of a chunk from which it is judged"""
SHOWN_CASES = 20


class AnswersOfOtherRows(DataRule):
    code = "ROW029"
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.seen = self.compared = self.pairs = self.own_pairs = 0
        self.chunk: list[tuple[str, str, Origin]] = []
        self.shift: AnswerShift | None = None
        self.apart: tuple[int, int] | None = None
        """Questions that are a pair with some answer, and those of them where it is their own"""
        self.cases: list[Case] = []

    def batch(self, batch: Batch) -> None:
        for row in batch.rows:
            question, answer = last_question(row), last_answer(row) or ""
            if not question.strip() or not answer.strip():
                continue
            number = self.seen // CHUNK_ROWS
            if number & (number - 1) == 0:  # 0 and the powers of two
                self.chunk.append((question, answer, row.origin))
            self.seen += 1
            if len(self.chunk) == CHUNK_ROWS:
                self._compare_chunk()

    def unmet(self) -> Unmet | None:
        self._compare_chunk()
        if not self.compared:
            return Unmet(f"it is about {MIN_ROWS} questions with an answer or more")
        if self.pairs < MIN_PAIRS:
            return Unmet(
                "it is about questions and answers that share rare words with each other alone;"
                " these do not"
            )
        return None

    def figure(self) -> Measurement:
        return count_measurement(
            "questions whose nearest answer is their own, of those with one far nearer than all others",
            self.own_pairs,
            self.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        self._compare_chunk()
        rows = self._rows_of_script()
        if rows is not None and rows.mispairing is not None:
            yield self._report_mispairing(rows, rows.mispairing)
        elif self.shift is not None:
            yield self._report_shift(self.shift)
        elif self.apart is not None:
            pairs, own = self.apart
            yield self.finding(
                f"the answers stand beside other questions: {pairs:,} questions have one answer that"
                f" is far nearer than all others, and for {own:,} of them it is their own",
                "build the rows again: join questions and answers by a key, and sort or filter"
                " whole rows",
                cases=self.cases,
                count=pairs - own,
                total=pairs,
            )

    def _rows_of_script(self) -> ScriptRows | None:
        """The rows as a script makes them, where one shapes them."""
        script = self.spec.format
        if script is None or not is_script_format(script):
            return None
        try:
            return read_trained_rows(script)
        except TruetuneError:
            return None

    def _report_mispairing(self, rows: ScriptRows, found: Mispairing) -> Finding:
        """The script pairs columns of different rows."""
        (one, other), (line, other_line) = found.columns, found.lines
        file = next(name for name in rows.files if Path(name).resolve() == found.first.file)
        place = Origin(file, line, 0)
        return self.finding(
            f"{found.rows:,} of {found.total:,} rows that {self.spec.format} makes pair texts of different rows:"
            f" {one} of line {line} stands beside {other} of line {other_line}",
            "take both from one row: mind the index, and shuffle or sort whole rows",
            cases=[Case(f"{one} of this row is beside {other} of line {other_line}", place)],
            count=found.rows,
            total=found.total,
        )

    def _report_shift(self, shift: AnswerShift) -> Finding:
        """From some row on, the answers are those of the rows before or behind."""
        rows = abs(shift.offset)
        where = f"{rows} row{'s' * (rows != 1)} {'further on' if shift.offset > 0 else 'before'}"
        count = shift.last - shift.first + 1
        return self.finding(
            f"from {self.cases[0].origin} on, the answers of {count:,} neighbouring rows stand"
            f" beside other questions: those {where} are theirs",
            "build the rows again, and filter whole rows: a row was dropped from one of the columns",
            evidence=[
                f"affinity by rare words (0 to 1): own answer {format_mean_with_interval(shift.own)}, that"
                f" {where} {format_mean_with_interval(shift.other)}, {shift.sigmas:.0f} standard errors apart"
            ],
            cases=self.cases,
            count=count,
            total=self.compared,
        )

    def _compare_chunk(self) -> None:
        """Judge the rows that were kept, and forget them."""
        chunk, self.chunk = self.chunk, []
        if len(chunk) < MIN_ROWS:
            return
        affinity = QuestionAnswerAffinity([one[0] for one in chunk], [one[1] for one in chunk])
        paired, nearest = affinity.pairs(), affinity.nearest()
        pairs, own = int(paired.sum()), int((nearest == np.arange(len(chunk)))[paired].sum())
        self.compared += len(chunk)
        self.pairs += pairs
        self.own_pairs += own
        # One finding is enough; the later chunks only add to the figure.
        if self.shift is not None or self.apart is not None:
            return
        self.shift = find_answer_shift(affinity, chunk)
        if self.shift is not None:
            rows = range(self.shift.first, self.shift.last + 1)
            self.cases = [
                case_of_displaced_answer(chunk, row, row + self.shift.offset)
                for row in rows[:SHOWN_CASES]
            ]
        elif are_answers_elsewhere(affinity, pairs, own):
            self.apart = pairs, own
            away = np.flatnonzero(paired & (nearest != np.arange(len(chunk))))[
                :SHOWN_CASES
            ].tolist()
            self.cases = [case_of_displaced_answer(chunk, row, int(nearest[row])) for row in away]
