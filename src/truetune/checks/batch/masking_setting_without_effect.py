"""The settings keep prompts out of the loss, but every token is in it.

## What it does
Reads `completion_only_loss` and `assistant_only_loss` from the training arguments, and checks whether any token of the
first batches has no label. It fires if one of them is True and all tokens have a label.

## Why it is bad
TRL builds the mask while it tokenizes. Rows that already have `input_ids` skip that, and so do `messages` with
`completion_only_loss`: the setting is read, nothing is masked, and the model learns its prompts.

## Example

```python
ids = [{"input_ids": row["input_ids"]} for row in encoded(rows)]
run = sft(ids, completion_only_loss=True)
```

## Use instead

```python
run = sft(encoded(rows), completion_only_loss=True)
```

## Fix safety
There is no automatic fix: give the trainer the rows as text, or with labels. Prompts are then no longer in the loss.

## References

- huggingface/trl#1507, huggingface/open-r1#517, huggingface/trl#4110
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.evidence.loss_masks_lost_in_batches import (
    are_all_tokens_learned,
    count_learned_and_all_tokens,
    explain_lost_mask,
    labels_learned_despite_minus_100,
    mask_column_without_effect,
    prompt_mask_setting,
    prompt_mask_setting_without_effect,
    tokens_learned_despite_mask,
)
from truetune.checks.batch.evidence.pretokenized_rows_without_labels import (
    ENCODE_REMEDY,
    did_rows_come_tokenized,
    did_rows_come_without_labels,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.errors import format_name_list

TEXT_REMEDY = (
    "give the trainer prompt and completion columns, or messages with assistant_only_loss=True, and let it tokenize"
    " them; or give it rows with labels"
)


class MaskingSettingWithoutEffect(BatchRule):
    code = "BAT012"
    fault = Fault.PROMPTS_IN_LOSS
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        name = prompt_mask_setting_without_effect(self.subject)
        if (
            name is None
            or labels_learned_despite_minus_100(self.subject)
            or tokens_learned_despite_mask(self.subject)
            or mask_column_without_effect(self.subject)
        ):
            return
        if explain_lost_mask(self.subject):
            return
        columns = (self.subject.facts["data"]["given"] or {}).get("columns")
        yield self.finding(
            f"{name} asks for a mask, but every token of the batches is in the loss{self._describe_cause()}",
            ENCODE_REMEDY if did_rows_come_tokenized(self.subject) else TEXT_REMEDY,
            evidence=[f"columns of the rows given: {format_name_list(columns)}"] if columns else (),
        )

    def _describe_cause(self) -> str:
        """Why the setting has no effect, where it is known; the end of a message."""
        return (
            ": the rows came tokenized, without labels"
            if did_rows_come_without_labels(self.subject)
            else ""
        )

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if prompt_mask_setting(self.subject) is None:
            return Unmet("it is about settings that keep prompts out of the loss, and none is set")
        if are_all_tokens_learned(self.subject):
            return Unmet(
                "the mask was lost on the way, which loss-mask-dropped or"
                " labels-overwritten-by-collator says"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many tokens are in the loss under the setting that masks prompts."""
        return make_count_measurement(
            f"tokens that are in the loss, with {prompt_mask_setting(self.subject)}",
            *count_learned_and_all_tokens(self.subject),
        )
