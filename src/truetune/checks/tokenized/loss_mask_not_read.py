"""The trainer ignores the column that tells which tokens are in the loss.

## What it does
Compares the mask columns of tokenized rows without labels with those that the given trainer reads by default.

## Why it is bad
A mask that nobody reads masks nothing: the prompts are in the loss, without any error.

## Example
```yaml
trainer: transformers
make: [healthy, {mask: loss_mask}]
```

## Use instead
```yaml
trainer: transformers
make: [healthy]
```

## Fix safety
Writing the mask as labels (the id where it is 1, -100 elsewhere) changes nothing else.

## References
- huggingface/trl#4110, huggingface/open-r1#648
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import TokenizedRule
from truetune.errors import format_name_list
from truetune.trainers.label_columns import label_columns_of_trainer


class LossMaskNotRead(TokenizedRule):
    code = "IDS007"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        summary, rule = self.subject.summary, label_columns_of_trainer(self.subject.trainer.name)
        unread = self._masks_if_none_is_read()
        if rule is None or not unread:
            return
        yield self.finding(
            f"{self.subject.trainer.name_in_reports} does not read {format_name_list(unread)}, and the rows have no"
            f" labels: the loss covers all {summary.tokens:,} tokens, prompts included",
            "write the mask as a `labels` column: the token id where the mask is 1, -100 elsewhere",
            evidence=[f"{self.subject.trainer.name_in_reports} {rule.without_labels}", rule.place],
            count=summary.rows,
        )

    def _masks_if_none_is_read(self) -> list[str]:
        """The masks, where none of them is read."""
        summary, rule = self.subject.summary, label_columns_of_trainer(self.subject.trainer.name)
        if rule is None or summary.labels:
            return []
        # TRL reads completion_mask where it is told to, or where the rows have prompt and
        # completion; others never.
        mask_settings = (
            {"completion_mask"} if self.subject.spec.training.completion_only_loss else set()
        )
        masks = sorted(summary.masks)
        return [] if set(masks) & ({*rule.masks} | mask_settings) else masks

    def measurement_if_clean(self) -> str:
        """The names of the mask columns."""
        return f"masks: {format_name_list(sorted(self.subject.summary.masks))}"

    def unmet(self) -> Unmet | None:
        """Also unmet where the rows have labels or no mask, or the trainer's columns are not known."""
        if not self.subject.summary.masks or self.subject.summary.labels:
            return Unmet("it is about rows with a mask and without labels")
        if label_columns_of_trainer(self.subject.trainer.name) is None:
            return Unmet("it is not known which trainer reads the mask", "name it with --trainer")
        return super().unmet()
