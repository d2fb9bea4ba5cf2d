"""Labels of tokenized rows begin before the answer.

## What it does
Looks for labels on what the template writes before an answer, if the prompts themselves have none.

## Why it is bad
The header is part of the prompt when the model is served, so these labels teach nothing. A mask that begins too early
often ends too early: prompt and whole text were tokenized separately, and their lengths differ.

## Example
```yaml
make: [healthy, {labels: early}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize the rows again.

## References
- NVIDIA-NeMo/Automodel#3352, QwenLM/Qwen#446, NVIDIA-NeMo/Speech#16284
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
    explain_missing_turns,
    explain_shifted_labels,
)

# Chosen, not measured: labels that begin too early do so in every answer. Below it lie answers that
# quote a header.
MIN_SHARE = 0.02
"""Of the learned answers"""


class HeadersSupervisedInTokenRows(TokenizedRule):
    code = "IDS011"
    fault = Fault.TEMPLATE_TEXT_IN_LOSS
    symptoms = ("garbage-output", "nothing-is-learned", "cached-data")
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        answers, summary = self.subject.summary.answers, self.subject.summary
        if (
            self.subject.do_settings_train_on_prompts
            or summary.prompts_learned.count
            or not answers.headers
        ):
            return
        if explain_shifted_labels(self.subject) is not None:
            return
        # Some generation prompts end in the middle of the header (gpt-oss: the model writes the
        # channel itself).
        if self.subject.placer.layout.header_is_learned:
            return
        if answers.headers >= MIN_SHARE * answers.learned:
            yield self.finding(
                f"{answers.headers:,} of {answers.learned:,} learned answers have labels in their"
                " header",
                "begin the labels after the header, and check that they include the stop token; tokenize the rows"
                " again with truetune encode, which does that",
                cases=cases_of_row_places(summary.headers_learned),
                count=answers.headers,
                total=answers.learned,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of learned answers with labels in their header."""
        answers = self.subject.summary.answers
        return make_count_measurement(
            "learned answers with labels in their header", answers.headers, answers.learned
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where labels or turns can't be judged, the model writes a part of the header
        itself, or prompts are learned.
        """
        lacking = (
            super().unmet()
            or explain_missing_row_labels(self.subject)
            or explain_shifted_labels(self.subject)
            or explain_missing_turns(self.subject)
        )
        if lacking is None and self.subject.placer.layout.header_is_learned:
            return Unmet(
                "the model writes a part of the header itself: the generation prompt ends before it"
            )
        if lacking is None and self.subject.summary.prompts_learned.count:
            return Unmet("whole prompts are in the loss")
        return lacking
