"""Stop tokens of tokenized rows are not in the loss, or are missing.

## What it does
Looks at the token after each answer in the loss: is it a stop token, and does it have a label? Rows that a limit cut at
their end are ignored. It is an error from half of the answers, and a warning below.

## Why it is bad
A model that never learned to stop continues up to the limit. The cause is a pad token that is the EOS and is masked by
its id, a mask that ends with the text of the answer, or rows without EOS.

## Example
```yaml
make: [healthy, {labels: no-stop}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: choose another pad token if it is the stop token, and tokenize the rows again (`truetune
encode`).

## References
- huggingface/transformers#23530, huggingface/transformers#22794, huggingface/trl#976
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
    explain_shifted_labels,
    find_rows_without_stop_token,
)

# Chosen, not measured. Logs of chats hold some answers that were broken off; a writer that appends
# no stop token leaves it out everywhere. At 0.025 such logs would warn; at 0.1 a source without
# stop tokens in a mix of ten would pass.
MIN_OPEN_ANSWERS, MIN_OPEN_SHARE = 3, 0.05
"""Answers without an end, and their share of the learned ones"""


class StopMaskedInTokenRows(TokenizedRule):
    code = "IDS010"
    fault = Fault.STOP_TOKEN_LEFT_OUT_OF_LOSS
    symptoms = ("never-stops", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        answers, summary = self.subject.summary.answers, self.subject.summary
        masked = answers.closed - answers.stops_learned
        if masked and explain_shifted_labels(self.subject) is None:
            yield self.finding(
                f"{masked:,} of {answers.closed:,} stop tokens after answers are not in the loss: the model won't"
                " learn to stop",
                "tokenize the rows again with labels on the stop tokens (truetune encode does that); mask padding"
                " by attention_mask, not by the pad id",
                severity="error" if 2 * masked >= answers.closed else "warning",
                evidence=self._evidence_that_pad_is_stop_token(),
                cases=cases_of_row_places(summary.stops_masked),
                count=masked,
                total=answers.closed,
            )
        never = answers.open + self._count_rows_without_end() if answers.learned else 0
        if never >= MIN_OPEN_ANSWERS and never >= MIN_OPEN_SHARE * answers.learned:
            yield self.finding(
                f"{never:,} of {answers.learned:,} answers end without a stop token: the model won't learn to stop",
                "append the token that ends a turn, and tokenize the rows again (truetune encode does that)",
                severity="error" if 2 * never >= answers.learned else "warning",
                cases=[
                    *cases_of_row_places(summary.cut_answers),
                    *cases_of_row_places(summary.open_rows),
                ],
                count=never,
                total=answers.learned,
            )

    def _count_rows_without_end(self) -> int:
        """Rows that end without a stop token, and not at the limit, where a cut would have taken it."""
        return (
            0
            if self.subject.is_plain_text
            else find_rows_without_stop_token(self.subject.summary).elsewhere
        )

    def _evidence_that_pad_is_stop_token(self) -> list[str]:
        """Evidence: the pad token is a stop token, which a mask by id hides with it."""
        special = self.subject.probes.tokenizer.special
        pad = special.get("pad")
        is_stop = pad is not None and pad.id in self.subject.placer.stops
        return (
            [f"the pad token {pad.token} is a stop token: a mask by its id removes both"]
            if pad and is_stop
            else []
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of stop tokens after learned answers that are in the loss."""
        answers = self.subject.summary.answers
        return make_count_measurement(
            "stop tokens after answers in the loss", answers.stops_learned, answers.closed
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no answer has labels, or labels can't be judged."""
        if not self.subject.summary.answers.learned:
            return (
                super().unmet()
                or explain_missing_row_labels(self.subject)
                or Unmet("no answer was recognised among the labels")
            )
        return super().unmet() or explain_shifted_labels(self.subject)
