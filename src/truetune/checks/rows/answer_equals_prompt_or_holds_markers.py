"""The column that is trained on as the answer does not look like one.

## What it does
Looks at the answer of each row: answers equal to their prompt, and answers that contain role markers of another format.
(`answer-is-empty` reports empty answers.) It is an error from 10 % of the rows, and a warning below.

## Why it is bad
If another column is trained on as the answer, the loss falls too, often lower than with the right column, and the model
does something else.

## Example
```yaml
data:
  - {instruction: "Is it open?", output: "Is it open?"}
  - {instruction: "When does it open?", output: "When does it open?"}
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
Set the right column with `--map answer=COLUMN`, and in the training settings or script; the rows need no change.

## References
- hiyouga/LLaMA-Factory#7592, huggingface/open-r1#585
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.last_question_and_answer import last_question_and_answer
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

ROLE_MARKER = re.compile(
    r"^(?:###"
    r" ?(?:Instruction|Response|Human|Assistant|Input)\b|(?:Human|User|Assistant|USER|ASSISTANT): )",
    re.M,
)


class AnswerEqualsPromptOrHoldsMarkers(DataRule):
    code = "ROW005"
    fault = Fault.ANOTHER_COLUMN_TRAINED_AS_ANSWER
    moot_where = ("pair-prompt-not-shared", "completion-repeats-its-prompt")
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False
    judges_columns = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = 0
        self.counts: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {"same": [], "marked": []}

    def add_batch(self, batch: Batch) -> None:
        """Count the answers of a batch that are their prompt or hold role markers."""
        for row in batch.rows:
            prompt, answer = last_question_and_answer(row)
            if answer is None:
                continue
            self.rows += 1
            bare = answer.strip()
            if not bare:
                continue
            if bare == prompt.strip():
                self._count_fault("same", batch, row, f"prompt and answer are {bare[:60]!r}")
                continue
            marker = _role_marker(bare)
            if marker:
                self._count_fault("marked", batch, row, f"the answer contains {marker!r}")

    def _count_fault(self, kind: str, batch: Batch, row: Conversation, text: str) -> None:
        """Count a row with a fault of this kind, and keep it as a case."""
        self.counts[kind] += 1
        if len(self.cases[kind]) < MAX_CASES:
            self.cases[kind].append(case_in_row(batch, row, text))

    def unmet(self) -> Unmet | None:
        """Unmet where no row has an answer in words."""
        return None if self.rows else Unmet("it is about answers in words, and no row has one")

    def measurement_if_clean(self) -> Measurement:
        """That no answer is its prompt or holds role markers."""
        return make_count_measurement(
            "answers that are their prompt or contain role markers", 0, self.rows
        )

    def findings(self) -> Iterator[Finding]:
        for kind, what in (
            ("same", "have an answer that repeats their prompt"),
            ("marked", "have an answer with role markers of another format"),
        ):
            count = self.counts[kind]
            if count:
                yield self.finding(
                    f"{count:,} of {self.rows:,} rows {what}",
                    "check that the target column is right (--map answer=COLUMN), and fix or remove"
                    " these rows",
                    # Chosen, not measured: a tenth is no slip of single rows but a column or a
                    # parser.
                    severity="error" if count * 10 >= self.rows else "warning",
                    cases=self.cases[kind],
                    count=count,
                    total=self.rows,
                )


def _role_marker(answer: str) -> str:
    """The first marker of a prompt format in an answer; empty where it has none.

    Most answers have neither of the beginnings that are looked at first, and are not searched.
    """
    begins = answer[0] in "#HUA" and ROLE_MARKER.match(answer) is not None
    # In the middle of an answer "Human: " may be a quotation; a heading of this format is none.
    if not begins and "\n### " not in answer:
        return ""
    marker = ROLE_MARKER.search(answer)
    return marker[0] if marker else ""
