"""Stored predictions of a teacher do not fit the token ids of their rows.

## What it does
Reads rows with `input_ids`, the most likely tokens of a teacher and their log-probabilities (`teacher_topk_ids`,
`target_logprobs` and the like). It fires if there are fewer or more entries than tokens, if an entry has another
number of tokens than of values, if the values can't be log-probabilities (above 0, or above 1 in sum), and if the
teacher's tokens hardly ever hold the row's own ones, at any shift. A shift by one that all rows share is left alone:
programs differ on it.

## Why it is bad
Predictions that were stored for another row, cut otherwise, or of another tokenizer teach the student tokens that
have nothing to do with its text. Probabilities that are read as log-probabilities make all tokens about as likely.
The loss falls in all of these.

## Example
```yaml
data:
  - input_ids: [5, 6, 7, 8]
    teacher_topk_ids: [[6, 9], [7, 9], [8, 9]]
    teacher_topk_logprobs: [[-0.1, -3], [-0.2, -2], [-0.1, -4]]
  - input_ids: [5, 8, 7, 6]
    teacher_topk_ids: [[8, 9], [7, 9]]
    teacher_topk_logprobs: [[-0.1, -3], [-0.2, -2]]
```

## Use instead
```yaml
data:
  - input_ids: [5, 6, 7, 8]
    teacher_topk_ids: [[6, 9], [7, 9], [8, 9]]
    teacher_topk_logprobs: [[-0.1, -3], [-0.2, -2], [-0.1, -4]]
  - input_ids: [5, 8, 7, 6]
    teacher_topk_ids: [[8, 9], [7, 9], [6, 9]]
    teacher_topk_logprobs: [[-0.1, -3], [-0.2, -2], [-0.1, -4]]
```

## Fix safety
There is no automatic fix: ask the teacher again, with the ids that the student is trained on.

## References
- axolotl-ai-cloud/axolotl#2700 (entries that are left out shift all that follow), modelscope/ms-swift#10073
- haitongli/knowledge-distillation-pytorch#16 (stored outputs of a teacher in another order than the rows)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, TeacherRule
from truetune.data.teacher_predictions import TeacherRow

SHIFTS = (0, 1)
"""Whether the entry at a place is the prediction of that token or of the next one"""
# Chosen, not measured: a teacher's five most likely tokens hold the next one of ordinary text in six of ten places.
MIN_HIT_SHARE, MIN_PLACES = 0.1, 50
"""Share of the places where the teacher's tokens hold the row's own, and places, below which nothing is told"""
# Sums of rounded probabilities are a little above 1.
ROUNDING = 0.02


class TeacherPredictionsDoNotFit(TeacherRule):
    code = "IDS016"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"

    def measurement_if_clean(self) -> Measurement:
        """How many rows have predictions that do not fit: none."""
        return make_count_measurement(
            "rows whose stored predictions do not fit", 0, len(self.subject.rows)
        )

    def findings(self) -> Iterator[Finding]:
        """Findings on entries that are missing, on values, and on tokens of other rows."""
        rows = self.subject.rows
        torn = [row for row in rows if not _have_lengths_of_row(row)]
        if torn:
            yield self._finding_on_rows(
                torn,
                "rows have another number of predictions than of tokens, or of values than of predicted tokens",
                "store one entry for each token, and an empty one where the teacher predicts nothing",
            )
        wrong = [row for row in rows if not _are_log_probabilities(row)]
        if wrong and "log" in self.subject.values_name.lower():
            yield self._finding_on_rows(
                wrong,
                f"rows have values in {self.subject.values_name} that are no log-probabilities",
                "store their logarithms",
            )
        whole = [row for row in rows if row not in torn]
        share, places = _best_share_of_hits(whole)
        if places >= MIN_PLACES and share < MIN_HIT_SHARE:
            yield self._finding_on_rows(
                whole,
                f"rows together have the row's own token among the teacher's in {share:.0%} of {places:,} places: they"
                " are predictions for other texts",
                "ask the teacher again, with the ids that the student is trained on",
            )

    def _finding_on_rows(self, rows: list[TeacherRow], text: str, remedy: str) -> Finding:
        """A finding on some of the rows."""
        total = len(self.subject.rows)
        cases = [
            Case(f"{len(row.ids)} tokens, {len(row.tokens)} predictions", row.origin)
            for row in rows[:MAX_CASES]
        ]
        return self.finding(
            f"{len(rows):,} of {total:,} {text}", remedy, cases=cases, count=len(rows), total=total
        )


def _have_lengths_of_row(row: TeacherRow) -> bool:
    """Is there an entry for each token, but perhaps the first or last one, with a value for each of its tokens?"""
    if len(row.tokens) not in (len(row.ids), len(row.ids) - 1) or len(row.values) != len(
        row.tokens
    ):
        return False
    return all(
        len(tokens) == len(values) for tokens, values in zip(row.tokens, row.values, strict=True)
    )


def _are_log_probabilities(row: TeacherRow) -> bool:
    """Can all entries be logarithms of probabilities of different tokens?"""
    for values in row.values:
        if any(value > ROUNDING for value in values):
            return False
        if sum(map(math.exp, values)) > 1 + ROUNDING:
            return False
    return True


def _best_share_of_hits(rows: list[TeacherRow]) -> tuple[float, int]:
    """The share of the places where the teacher's tokens hold the row's own, at the better shift; and the places."""
    best, most = 0.0, 0
    for shift in SHIFTS:
        hits = places = 0
        for row in rows:
            for tokens, own in zip(row.tokens, row.ids[shift:], strict=False):
                places += bool(tokens)
                hits += own in tokens
        best, most = max(best, hits / max(places, 1)), max(most, places)
    return best, most
