"""Answers in tokenized rows are not in the loss, or only a part of them is.

## What it does
Looks for rows without any label, for rows whose answers have none, and for answers with gaps in their labels. What
is at the beginning of an answer may be given to the model, such as an empty think block, and is not counted.

## Why it is bad
A row without a label trains nothing, and counts as a step all the same. It comes from a limit that cut the answer off,
a response marker that was not found, or a mask that was inverted.

## Example
```yaml
make: [healthy, {labels: none}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: encode the rows again, or leave these out.

## References
- huggingface/trl#6025, huggingface/trl#1053, unslothai/unsloth#3019, huggingface/trl#588
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import (
    cases_of_row_places,
    explain_missing_row_labels,
)

# Chosen, not measured. A mask that is off by some tokens leaves gaps in nearly all answers, a gap
# on purpose (a secret, a tool's result inside of an answer) in few. At 0.05 data with such gaps
# would warn; at 0.2 one broken source of five would pass.
MIN_GAPS, MIN_GAP_SHARE = 3, 0.1
"""Answers with gaps, and their share of the learned ones"""


class AnswersMaskedInTokenRows(TokenizedRule):
    code = "IDS009"
    symptoms = ("loss-does-not-fall", "nothing-is-learned", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if not summary.do_rows_say_which_tokens_are_learned:
            return
        empty = summary.without_label
        if empty.count:
            yield self.finding(
                f"{empty.count:,} of {summary.rows:,} rows have no token in the loss",
                "encode the rows again; leave out those whose answer a limit cuts off",
                severity="error" if 2 * empty.count >= summary.rows else "warning",
                cases=cases_of_row_places(empty),
                count=empty.count,
                total=summary.rows,
            )
        elif summary.answers.total and not summary.answers.learned:
            yield self.finding(
                f"none of {summary.answers.total:,} answers is in the loss, and other tokens are",
                "turn the mask round: 1 and the id for the answers, 0 and -100 for the rest",
            )
        partly = summary.answers.partly
        if partly >= MIN_GAPS and partly >= MIN_GAP_SHARE * summary.answers.learned:
            yield self.finding(
                f"{partly:,} of {summary.answers.learned:,} answers are only partly in the loss",
                "encode the rows again: a mask that is shifted, or made of other ids, leaves such"
                " gaps",
                severity="warning",
                cases=cases_of_row_places(summary.partly),
                count=partly,
                total=summary.answers.learned,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows without a token in the loss."""
        summary = self.subject.summary
        return make_count_measurement(
            "rows without a token in the loss", summary.without_label.count, summary.rows
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where labels can't be judged."""
        return super().unmet() or explain_missing_row_labels(self.subject)
