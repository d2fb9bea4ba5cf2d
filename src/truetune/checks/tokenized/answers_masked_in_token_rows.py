"""Answers in tokenized rows are not in the loss, or only partly.

## What it does
Looks for rows without any label, rows whose answers have none, and answers with gaps in their labels. The beginning of
an answer may be given to the model, such as an empty think block, and does not count. Rows without labels are an error
from half of the rows, and a warning below; gaps are a warning.

## Why it is bad
A row without a label trains nothing, but counts as a step. The cause is a limit that cut the answer off, a response
marker that was not found, or an inverted mask.

## Example
```yaml
make: [healthy, {labels: none}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize the rows again, or drop these.

## References
- huggingface/trl#6025, huggingface/trl#1053, unslothai/unsloth#3019, huggingface/trl#588
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
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
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
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
                "tokenize the rows again with a higher length limit (truetune encode --max-length N), and drop"
                " those whose answer is still cut off",
                severity="error" if 2 * empty.count >= summary.rows else "warning",
                cases=cases_of_row_places(empty),
                count=empty.count,
                total=summary.rows,
            )
        elif summary.answers.total and not summary.answers.learned:
            yield self.finding(
                f"none of {summary.answers.total:,} answers is in the loss, but other tokens are: the mask is"
                " inverted",
                "invert the mask: 1 in a mask, or the id in labels, for the answers; 0 or -100 for the rest",
            )
        partly = summary.answers.partly
        if partly >= MIN_GAPS and partly >= MIN_GAP_SHARE * summary.answers.learned:
            yield self.finding(
                f"{partly:,} of {summary.answers.learned:,} answers are only partly in the loss",
                "tokenize the rows again: a mask that is shifted, or made from other ids, leaves such gaps"
                " (truetune encode writes correct labels)",
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
