"""Labels of tokenized rows include the prompts.

## What it does
Locates the turns by the template's headers, and looks for system, user and tool text that has labels. It is an error if
most of it has, and a warning if only some has.

## Why it is bad
The model learns to write what its users write. The cause is `labels = input_ids` in a `map`, a mask that was lost in
packing, or a response marker that was not found.

## Example
```yaml
make: [healthy, {labels: copy}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: tokenize the rows again with labels (`truetune encode`). The loss gets higher, since it
covers only the answers.

## References
- huggingface/trl#3728, huggingface/trl#1282, arXiv:2405.14394
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
from truetune.tokenized.tokenized_summary import PROMPT_SOURCES


class PromptsSupervisedInTokenRows(TokenizedRule):
    code = "IDS008"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary, prompts = self.subject.summary, self.subject.summary.prompts_learned
        if explain_shifted_labels(self.subject) is not None:
            return
        if (
            self.subject.do_settings_train_on_prompts
            or not prompts.count
            or not summary.do_rows_say_which_tokens_are_learned
        ):
            return
        learned, total = self._count_supervised_and_all_prompt_tokens()
        most = 2 * learned >= total
        everything = summary.all_supervised.count == summary.rows
        yield self.finding(
            f"{prompts.count:,} of {summary.rows:,} rows have prompts in the loss: {learned:,} of"
            f" {total:,} tokens of system, user and tool text have labels",
            "tokenize the rows again with labels on the answers only: truetune encode DATA -t TOKENIZER -o encoded",
            severity="error" if most else "warning",
            evidence=(
                ["every token of every row has a label: the labels are a copy of the ids"]
                if everything
                else []
            ),
            cases=cases_of_row_places(prompts),
            count=prompts.count,
            total=summary.rows,
        )

    def _count_supervised_and_all_prompt_tokens(self) -> tuple[int, int]:
        """(tokens of system, user and tool text that are in the loss, all such tokens)."""
        counts = self.subject.summary.counts[list(PROMPT_SOURCES)]
        return int(counts[:, 1].sum()), int(counts.sum())

    def measurement_if_clean(self) -> Measurement:
        """The number of tokens of system, user and tool text that are in the loss."""
        return make_count_measurement(
            "tokens of system, user and tool text in the loss",
            *self._count_supervised_and_all_prompt_tokens(),
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the settings ask for prompts in the loss, or labels or turns can't be
        judged.
        """
        if self.subject.do_settings_train_on_prompts:
            return Unmet("the settings ask for prompts in the loss")
        return (
            super().unmet()
            or explain_missing_row_labels(self.subject)
            or explain_shifted_labels(self.subject)
            or explain_missing_turns(self.subject)
        )
