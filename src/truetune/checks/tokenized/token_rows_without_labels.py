"""Rows of token ids have no labels, so the loss covers the prompts too.

## What it does
Looks for a `labels` column or a mask (`loss_mask`, `completion_mask`, `assistant_masks`) next to `input_ids`. If there
is none, it is an error for rows in which turns of the template are found, and an info for plain text, which may be for
pretraining.

## Why it is bad
A trainer cannot mask what it can't identify: the text is gone. It copies `input_ids` into the labels, and the model
learns its users' prompts along with the answers. `completion_only_loss` and `assistant_only_loss` have no effect on
such rows.

## Example
```yaml
make: [healthy, {drop: [labels]}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: `truetune encode` writes ids with labels; or give the trainer the rows before they were
tokenized. The loss gets higher, since it covers only the answers.

## References
- huggingface/trl#1507, huggingface/open-r1#517, huggingface/transformers#26357
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.tokenized.tokenized_summary import PROMPT_SOURCES
from truetune.trainers.label_columns import label_columns_of_trainer

LEARNS_EVERYTHING = "a trainer computes the loss on all tokens, prompts included"


class TokenRowsWithoutLabels(TokenizedRule):
    code = "IDS006"
    fault = Fault.PROMPTS_IN_LOSS
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if (
            summary.do_rows_say_which_tokens_are_learned
            or self.subject.do_settings_train_on_prompts
        ):
            return
        rule = label_columns_of_trainer(self.subject.trainer.name)
        does = (
            f"{self.subject.trainer.name_in_reports} {rule.without_labels}"
            if rule
            else LEARNS_EVERYTHING
        )
        known = [f"{self.subject.trainer.name_in_reports}: {rule.place}"] if rule else []
        if summary.chats:
            prompt_tokens = sum(int(summary.counts[source].sum()) for source in PROMPT_SOURCES)
            yield self.finding(
                f"{summary.rows:,} rows have input_ids and neither labels nor a mask: {does}",
                "tokenize the rows with labels: truetune encode DATA -t TOKENIZER -o encoded",
                evidence=[
                    f"{prompt_tokens:,} of {summary.tokens:,} tokens are system, user or tool text",
                    *known,
                ],
                count=summary.rows,
            )
        else:
            yield self.finding(
                f"{summary.rows:,} rows have neither labels nor a mask: {does}",
                "for pretraining, change nothing; for prompts with answers, tokenize the rows with labels (truetune"
                " encode)",
                severity="info",
                count=summary.rows,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows with labels or a mask."""
        summary = self.subject.summary
        return make_count_measurement(
            "rows with labels or a mask",
            summary.rows if summary.do_rows_say_which_tokens_are_learned else 0,
            summary.rows,
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the settings ask for all tokens in the loss."""
        if self.subject.do_settings_train_on_prompts:
            return Unmet("the settings ask for all tokens in the loss")
        return super().unmet()
