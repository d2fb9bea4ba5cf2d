"""Rows have an answer without any text.

## What it does
Looks at the last answer of each row, in the column that is mapped as the answer: it is empty or only white space.
Answers that are a tool call don't count. It is an error from 10 % of the rows, and a warning below.

## Why it is bad
The model learns to end its answer at once. If many rows are empty, the wrong column is mapped, or a parser or a filter
lost the answers. The run then teaches little else, and its loss is very low.

## Example
```yaml
data:
  - {instruction: "Is it open?", output: ""}
  - {instruction: "When does it open?", output: "At nine."}
  - {instruction: "Where is it?", output: "It is on the hill."}
```

## Use instead
```yaml
data:
  - {instruction: "Is it open?", output: "It is open."}
  - {instruction: "When does it open?", output: "At nine."}
  - {instruction: "Where is it?", output: "It is on the hill."}
```

## Fix safety
Removing the rows is safe (`truetune fix --unsafe`). If 10 % of the rows or more are empty, first find out why: another
column may contain the answers (`--map answer=COLUMN`).

## References
- hiyouga/LLaMA-Factory#7592
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.last_question_and_answer import last_question_and_answer
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

# Chosen, not measured: a tenth is no slip of single rows but a column or a parser. At half, a few rows that a filter
# emptied would end a run; at double, a fifth of the answers may be lost before it does.
ERROR_SHARE = 0.1


class AnswerIsEmpty(DataRule):
    code = "ROW067"
    fault = Fault.TRAINING_ROWS_LACK_ANSWERS
    moot_where = ("pair-prompt-not-shared", "completion-repeats-its-prompt")
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    needs_tokenizer = False
    judges_columns = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.empty = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch whose last answer has no text."""
        for row in batch.rows:
            _, answer = last_question_and_answer(row)
            if answer is None:
                continue
            self.rows += 1
            if answer.strip():
                continue
            self.empty += 1
            if len(self.cases) < MAX_CASES:
                self.cases.append(case_in_row(batch, row, "the answer is empty"))

    def unmet(self) -> Unmet | None:
        """Unmet where no row has an answer in words."""
        return None if self.rows else Unmet("it is about answers in words, and no row has one")

    def measurement_if_clean(self) -> Measurement:
        """How many answers are empty."""
        return make_count_measurement("answers that are empty", self.empty, self.rows)

    def findings(self) -> Iterator[Finding]:
        if not self.empty:
            return
        yield self.finding(
            f"{self.empty:,} of {self.rows:,} rows have an empty answer: the model learns to say nothing",
            "check that the target column is right (--map answer=COLUMN), and fix or remove these"
            " rows",
            severity="error" if self.empty >= ERROR_SHARE * self.rows else "warning",
            cases=self.cases,
            count=self.empty,
            total=self.rows,
        )
