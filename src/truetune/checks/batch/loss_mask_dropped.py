"""A mask column of the rows does not reach the loss.

## What it does
Looks for columns that say which tokens are in the loss (`assistant_masks`, `completion_mask`, `loss_mask`), in the rows
that the collator got and in the rows before any preparation. It fires if tokens that such a column masks have a label.
It also fires if the settings ask for a mask, packing or a fused loss is on, and everything is supervised.

## Why it is bad
The prompts are in the loss, and only with that setting: a model that was trained with packing, or with a fused kernel,
writes `<|im_start|>` again and again.

## Example

```python
made = [{"input_ids": row["input_ids"], "loss_mask": [int(label >= 0) for label in row["labels"]]}
        for row in encoded(rows)]

def collate(rows):
    padded = tokenizer.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt")
    return {**padded, "labels": padded["input_ids"].masked_fill(padded["attention_mask"] == 0, -100)}

run = transformers.Trainer(model, arguments(remove_unused_columns=False), collate, made, processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: make `labels` from the mask before anything else changes the rows. Prompts are then no longer
in the loss.

## References

- huggingface/trl#3728, huggingface/trl#3484, huggingface/trl#3781, karpathy/nanochat#582
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.answer_spans import text_around
from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    count_learned_and_all_tokens,
    explain_lost_mask,
    mask_column_name_of_unlabelled_rows,
    mask_column_without_effect,
    masked_and_learned_tokens_by_column,
    prompt_mask_setting,
    prompt_mask_setting_without_effect,
    tokens_learned_despite_mask,
)
from truetune.checks.batch.evidence.pretokenized_rows_without_labels import did_rows_come_tokenized
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.errors import format_name_list


class LossMaskDropped(BatchRule):
    code = "BAT011"
    fault = Fault.LOSS_MASK_IGNORED_OR_OVERWRITTEN
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        on = explain_lost_mask(self.subject)
        lost = tokens_learned_despite_mask(self.subject)
        column = mask_column_without_effect(self.subject)
        setting = prompt_mask_setting_without_effect(self.subject) if on else None
        # What is counted token by token says most; a column or a setting alone is told only where
        # all is learned.
        if lost:
            sample, place = lost.places[0]
            yield self.finding(
                f"{lost.tokens:,} of {lost.masked:,} tokens that the column {lost.column} masks"
                " are in the loss",
                self._remedy_for_mask(),
                evidence=[
                    f"the collator is {self.subject.facts['trainer']['collator']}",
                    *self._evidence_of_lost_mask(on),
                ],
                cases=[Case(f"{sample.place}: a label on {text_around(sample, place)}")],
                count=lost.tokens,
                total=lost.masked,
            )
        elif column:
            yield self.finding(
                f"the rows have the mask column {column}, but every token of the batches is in the"
                " loss",
                self._remedy_for_mask(),
                evidence=self._evidence_of_lost_mask(on),
            )
        elif setting:
            yield self.finding(
                f"{setting} asks for a mask, but {on} lost it: every token of the batches is in the"
                " loss",
                self._remedy_for_mask(),
                evidence=self._evidence_of_lost_mask(on),
            )

    def _remedy_for_mask(self) -> str:
        """How the mask would reach the loss: by a setting, where the trainer has one that reads this column."""
        remedy = (
            "make labels from the mask when you tokenize the rows (-100 where the mask is 0), so that nothing can"
            " lose it"
        )
        # TRL's SFTTrainer reads completion_mask of tokenized rows, but only where the setting asks
        # for it.
        is_sft = any("SFTTrainer" in base for base in self.subject.facts["trainer"]["bases"])
        has_column = mask_column_name_of_unlabelled_rows(self.subject) == "completion_mask"
        is_set = self.subject.facts["args"].get("completion_only_loss") is True
        if is_sft and has_column and did_rows_come_tokenized(self.subject) and not is_set:
            return f"set completion_only_loss=True, which reads this column; or {remedy}"
        return remedy

    def _evidence_of_lost_mask(self, on: str | None) -> list[str]:
        """Evidence: the columns that the collator is given, and on which way the mask was lost."""
        columns = format_name_list(self.subject.facts["data"]["used"])
        return [f"columns that reach the collator: {columns}", *([f"lost by {on}"] if on else [])]

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None or any(
            mask.masked for mask in masked_and_learned_tokens_by_column(self.subject)
        ):
            return lacking
        name = mask_column_name_of_unlabelled_rows(self.subject) or (
            explain_lost_mask(self.subject) and prompt_mask_setting(self.subject)
        )
        if not name:
            return Unmet(
                "it is about masks, in columns of the rows or by a setting, that may get lost:"
                " there is none"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many tokens are in the loss that a mask column leaves out; of all tokens without such a column."""
        mask = next(
            (mask for mask in masked_and_learned_tokens_by_column(self.subject) if mask.masked),
            None,
        )
        if mask is not None:
            return make_count_measurement(
                f"tokens that the column {mask.column} masks and that are in the loss",
                0,
                mask.masked,
            )
        name = mask_column_name_of_unlabelled_rows(self.subject) or prompt_mask_setting(
            self.subject
        )
        return make_count_measurement(
            f"tokens that are in the loss, with {name}", *count_learned_and_all_tokens(self.subject)
        )
