"""The settings keep prompts out of the loss, and every token is in it.

## What it does

Reads `completion_only_loss` and `assistant_only_loss` of the training arguments, and looks whether any token of the
first batches has no label. It fires where one of them is True and all tokens have one.

## Why it is bad

TRL builds the mask while it tokenizes. Rows that hold `input_ids` already pass by that, and so do `messages` under
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

There is no automatic fix: give the trainer the rows as text, or with labels.

## References

- huggingface/trl#1507, huggingface/open-r1#517, huggingface/trl#4110
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.batch.masks import (
    asked_setting,
    dropped,
    everything,
    given_mask,
    in_the_loss,
    overwritten,
    way,
    without_effect,
)
from truetune.checks.batch.tokenized_rows import ENCODE, came_tokenized, came_without_labels
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import BatchRule
from truetune.errors import name_list

TEXT = (
    "give the trainer prompt and completion, or messages, and let it tokenize them; or rows with"
    " labels"
)


class MaskingSettingWithoutEffect(BatchRule):
    code = "BAT012"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        name = without_effect(self.subject)
        if (
            name is None
            or overwritten(self.subject)
            or dropped(self.subject)
            or given_mask(self.subject)
        ):
            return
        if way(self.subject):
            return
        given = (self.subject.facts["data"]["given"] or {}).get("columns")
        yield self.finding(
            f"{name} asks for a mask, and every token of the batches is in the loss{self._cause()}",
            ENCODE if came_tokenized(self.subject) else TEXT,
            evidence=[f"columns of the rows given: {name_list(given)}"] if given else (),
        )

    def _cause(self) -> str:
        return (
            ": the rows came tokenized, without labels" if came_without_labels(self.subject) else ""
        )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if asked_setting(self.subject) is None:
            return Unmet("it is about settings that keep prompts out of the loss, and none is set")
        if everything(self.subject):
            return Unmet(
                "the mask was lost on the way, which loss-mask-dropped or"
                " labels-overwritten-by-collator says"
            )
        return None

    def figure(self) -> Measurement:
        return counted(
            f"tokens that are in the loss, with {asked_setting(self.subject)}",
            *in_the_loss(self.subject),
        )
