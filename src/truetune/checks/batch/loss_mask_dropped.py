"""A mask column of the rows does not reach the loss.

## What it does

Looks for columns that say which tokens are to be learned (`assistant_masks`, `completion_mask`, `loss_mask`): in the
rows that the collator was given, and in the rows before any preparation. It fires where tokens that such a column
leaves out have a label, or where the settings ask for a mask, packing or a fused loss is on, and everything is
supervised.

## Why it is bad

The prompts are learned, and only with that setting: a model that was trained with packing, or with a fused kernel,
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

There is no automatic fix: make `labels` of the mask before anything else touches the rows.

## References

- huggingface/trl#3728, huggingface/trl#3484, huggingface/trl#3781, karpathy/nanochat#582
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.answers import around
from truetune.checks.batch.masks import (
    asked_setting,
    dropped,
    given_column,
    given_mask,
    in_the_loss,
    masks_of_rows,
    way,
    without_effect,
)
from truetune.checks.batch.tokenized_rows import came_tokenized
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import BatchRule
from truetune.errors import name_list


class LossMaskDropped(BatchRule):
    code = "BAT011"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        remedy = self._remedy()
        on = way(self.subject)
        lost = dropped(self.subject)
        if lost:
            sample, place = lost.places[0]
            yield self.finding(
                f"{lost.tokens:,} of {lost.masked:,} tokens that the column {lost.column} leaves"
                " out are in the loss",
                remedy,
                evidence=[
                    f"the collator is {self.subject.facts['trainer']['collator']}",
                    *self._on(on),
                ],
                cases=[Case(f"{sample.place}: a label on {around(sample, place)}")],
                count=lost.tokens,
                total=lost.masked,
            )
        elif column := given_mask(self.subject):
            yield self.finding(
                f"the rows come with the column {column}, and every token of the batches is in the"
                " loss",
                remedy,
                evidence=self._on(on),
            )
        elif on and (name := without_effect(self.subject)):
            yield self.finding(
                f"{name} asks for a mask, {on} lost it, and every token of the batches is in the"
                " loss",
                remedy,
                evidence=self._on(on),
            )

    def _remedy(self) -> str:
        remedy = (
            "make labels from the mask while the rows are tokenized, so that nothing can lose it"
        )
        is_sft = any("SFTTrainer" in base for base in self.subject.facts["trainer"]["bases"])
        reads_it = (
            is_sft
            and given_column(self.subject) == "completion_mask"
            and came_tokenized(self.subject)
        )
        asked = self.subject.facts["args"].get("completion_only_loss") is True
        return (
            f"set completion_only_loss=True, which reads it; or {remedy}"
            if reads_it and not asked
            else remedy
        )

    def _on(self, on: str | None) -> list[str]:
        columns = name_list(self.subject.facts["data"]["used"])
        return [f"columns that reach the collator: {columns}", *([f"lost by {on}"] if on else [])]

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None or any(
            mask.masked for mask in masks_of_rows(self.subject)
        ):
            return lacking
        name = given_column(self.subject) or (way(self.subject) and asked_setting(self.subject))
        if not name:
            return Unmet(
                "it is about masks, in columns of the rows or by a setting, that may get lost:"
                " there is none"
            )
        return None

    def figure(self) -> Measurement:
        mask = next((mask for mask in masks_of_rows(self.subject) if mask.masked), None)
        if mask is not None:
            return counted(
                f"tokens that the column {mask.column} leaves out and that are in the loss",
                0,
                mask.masked,
            )
        name = given_column(self.subject) or asked_setting(self.subject)
        return counted(f"tokens that are in the loss, with {name}", *in_the_loss(self.subject))
