"""The column that is trained on as the answer does not look like one.

## What it does
Looks at the answer of each row: answers equal to their prompt, and answers that contain role markers of another format.
(`answer-is-empty` reports empty answers.) It is an error from 10 % of the rows, and a warning below.

Where answers are edits of a text in their prompt (corrections, other styles, translations), it counts those that repeat
the text unchanged. It is a warning if these are a third of the edits, and an error from two thirds. Instructions that
allow it ("if there is nothing to correct, repeat it") do not count.

## Why it is bad
If another column is trained on as the answer, the loss falls too, often lower than with the right column, and the model
does something else. Of corrections that change nothing the model learns to return faulty sentences as they are.

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
from truetune.checks.rows.evidence.answers_beside_their_input import likeness_to_input
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch

ROLE_MARKER = re.compile(
    r"^(?:###"
    r" ?(?:Instruction|Response|Human|Assistant|Input)\b|(?:Human|User|Assistant|USER|ASSISTANT): )",
    re.M,
)
# Sentences of learners' corpora without a mistake are a third to a half, and who trains on them leaves most out.
# Chosen: below a third a model still learns to correct.
COPIED_WARNING, COPIED_ERROR = 1 / 3, 2 / 3
"""Shares of the edits"""
MIN_COPIES, MIN_SHARE_OF_ROWS = 5, 0.05
"""Rows, and share of all rows, below which copies may be slips of some"""


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
        self.rows = self.edits = 0
        """Rows with an answer, and those of them whose answer is an edit of the prompt's text"""
        self.counts: Counter[str] = Counter()
        self.cases: dict[str, list[Case]] = {"same": [], "marked": [], "copied": []}

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
            likeness = likeness_to_input(prompt, bare)
            if likeness == "copy":
                self._count_fault("copied", batch, row, f"the prompt gives it too: {bare[:60]!r}")
                continue
            self.edits += likeness == "edited"
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
        yield from self._findings_on_copies()
        for kind, what in (
            ("same", "have an answer that repeats their prompt"),
            ("marked", "have an answer with role markers of another format"),
        ):
            count = self.counts[kind]
            if count and not (kind == "same" and self._are_questions_to_be_edited):
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

    @property
    def _are_questions_to_be_edited(self) -> bool:
        """Do most answers edit the question? One that is equal left it as it was: the column is the right one."""
        return self.edits > self.counts["same"]

    def _findings_on_copies(self) -> Iterator[Finding]:
        """The finding that answers repeat the text that they are to change."""
        kinds = ("copied", "same") if self._are_questions_to_be_edited else ("copied",)
        count = sum(self.counts[kind] for kind in kinds)
        changed_or_copied = count + self.edits
        if count < MIN_COPIES or count < COPIED_WARNING * changed_or_copied:
            return
        if count < MIN_SHARE_OF_ROWS * self.rows:
            return
        yield self.finding(
            f"{count:,} of {changed_or_copied:,} answers that should change a text in their prompt repeat it unchanged",
            "drop these rows, or build their inputs again from the source (a later step may have corrected both"
            " columns); if a text may stay as it is, say so in the instruction",
            severity="error" if count >= COPIED_ERROR * changed_or_copied else "warning",
            cases=[case for kind in kinds for case in self.cases[kind]][:MAX_CASES],
            count=count,
            total=changed_or_copied,
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
