"""Rows with the same answer or document are split at random: evaluation rows have siblings in the training data.

## What it does
If the settings hold out a random part of the training rows (`val_set_size`, `val_size`, `split_dataset_ratio`), it
looks for rows that belong together: the same long answer to different prompts, or a column that names their source
(`doc_id`, `seed_id`, `conversation_id`). From the group sizes it computes the share of held-out rows that have a
sibling in the training part. It fires from half of them: a warning if the answers are the same, an info if only a
column shows it.

## Why it is bad
The answer to a held-out question was trained on, with other wording in the question. The evaluation loss falls with the
training loss and measures how well answers are recalled. On new questions the model may be wrong.

## Example
```yaml
spec: {training: {val_size: 0.1}}
data:
  - {prompt: "Who approves leave 1?", completion: " Leave 1 is approved by the head of your department in 3 days."}
  - {prompt: "Who grants leave 1?", completion: " Leave 1 is approved by the head of your department in 3 days."}
  - {prompt: "Who approves leave 2?", completion: " Leave 2 is approved by the head of your department in 4 days."}
  - {prompt: "Who grants leave 2?", completion: " Leave 2 is approved by the head of your department in 4 days."}
  - {prompt: "Who approves leave 3?", completion: " Leave 3 is approved by the head of your department in 5 days."}
  - {prompt: "Who grants leave 3?", completion: " Leave 3 is approved by the head of your department in 5 days."}
  - {prompt: "Who approves leave 4?", completion: " Leave 4 is approved by the head of your department in 6 days."}
  - {prompt: "Who grants leave 4?", completion: " Leave 4 is approved by the head of your department in 6 days."}
  - {prompt: "Who approves leave 5?", completion: " Leave 5 is approved by the head of your department in 7 days."}
  - {prompt: "Who grants leave 5?", completion: " Leave 5 is approved by the head of your department in 7 days."}
  - {prompt: "Who approves leave 6?", completion: " Leave 6 is approved by the head of your department in 8 days."}
  - {prompt: "Who grants leave 6?", completion: " Leave 6 is approved by the head of your department in 8 days."}
  - {prompt: "Who approves leave 7?", completion: " Leave 7 is approved by the head of your department in 9 days."}
  - {prompt: "Who grants leave 7?", completion: " Leave 7 is approved by the head of your department in 9 days."}
  - {prompt: "Who approves leave 8?", completion: " Leave 8 is approved by the head of your department in 10 days."}
  - {prompt: "Who grants leave 8?", completion: " Leave 8 is approved by the head of your department in 10 days."}
  - {prompt: "Who approves leave 9?", completion: " Leave 9 is approved by the head of your department in 11 days."}
  - {prompt: "Who grants leave 9?", completion: " Leave 9 is approved by the head of your department in 11 days."}
  - {prompt: "Who approves no. 10?", completion: " Leave 10 is approved by the head of your department in 12 days."}
  - {prompt: "Who grants no. 10?", completion: " Leave 10 is approved by the head of your department in 12 days."}
```

## Use instead
```yaml
spec: {training: {val_size: 0.1}}
data: {rows: 40, text: "{words}"}
```

## Fix safety
Splitting by group changes the evaluation rows, so earlier losses can't be compared. The loss rises to what new
questions will give.

## References
- scikit-learn, "Cross-validation iterators for grouped data" (`GroupShuffleSplit`, `GroupKFold`)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.base_of_rules_on_answer_texts import NO_ANSWERS
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.is_wrong_column_learned import last_answer
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rows_made_from_one_source import SiblingGroups, SiblingRows
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch

# As `train-eval-leak` takes it for two files: of rows that are no siblings nearly none have the same long answer.
MIN_SHARE = 0.5
"""Of the held-out rows, that have a sibling in the training part"""


class SiblingRowsHeldOutAndTrained(DataRule):
    code = "ROW066"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        size = setup.spec.training.val_size or 0.0
        self.size = 0.0 if setup.spec.eval_data else size
        self.siblings = SiblingRows()

    def add_batch(self, batch: Batch) -> None:
        """Note the answers, prompts and columns of a batch's rows, by which siblings are known."""
        if not self.size:
            return
        prompts = batch.fingerprints.prompt.tolist()
        for row, prompt in zip(batch.rows, prompts, strict=True):
            self.siblings.add(last_answer(row) or "", prompt, row.raw or {})

    def unmet(self) -> Unmet | None:
        """Unmet where no settings hold out a random part of the rows, or there are no answers."""
        if not self.size:
            return Unmet("it is about settings that hold out a random part of the training rows")
        return None if self.siblings.rows else NO_ANSWERS

    def measurement_if_clean(self) -> Measurement:
        """How many rows have a sibling: one answer, or one document."""
        groups = self.siblings.groups()
        row_count = 0 if groups is None else groups.row_count_with_sibling
        return make_count_measurement(
            "rows with a sibling (one answer, or one document)", row_count, self.siblings.rows
        )

    def findings(self) -> Iterator[Finding]:
        groups = self.siblings.groups() if self.size else None
        if groups is None:
            return
        held_out = self._count_held_out_rows(groups)
        share = groups.share_of_held_out_rows_with_sibling(held_out)
        if not 0 < held_out < groups.rows or share < MIN_SHARE:
            return
        by = f"`{groups.column}`" if groups.column else "the answer"
        what = (
            "have the same answer as rows with other questions"
            if groups.has_same_answers
            else f"have the same {by} as other rows"
        )
        yield self.finding(
            f"{groups.row_count_with_sibling:,} of {groups.rows:,} rows {what} ({len(groups.sizes):,} groups), and"
            f" {held_out:,} rows are held out at random: {share:.0%} of these have a sibling in the training part."
            " The evaluation measures recall, and says nothing about new questions",
            f"split by {by}, each group entirely on one side (scikit-learn's GroupShuffleSplit), and set the"
            " held-out file as the evaluation set instead of a random share",
            severity="warning" if groups.has_same_answers else "info",
            count=groups.row_count_with_sibling,
            total=groups.rows,
        )

    def _count_held_out_rows(self, groups: SiblingGroups) -> int:
        """The rows that the settings hold out: a share below 1, else a number."""
        return round(self.size * groups.rows) if self.size < 1 else int(self.size)
